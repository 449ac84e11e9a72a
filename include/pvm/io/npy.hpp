// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Writes records of named fields as a NumPy file, record by record.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/atomic_file.hpp>

namespace pvm::inline v0::io {

/// A field of a record, as NumPy describes it.
struct NpyField {
  std::string name;
  std::string type;        ///< such as <f4 or <u8, little-endian
  std::vector<int> shape;  ///< empty for one value
};

/// A one-dimensional structured array, which `numpy.load(path, mmap_mode="r")` maps into memory.
/// The file appears when `finish` is called, and is never there incomplete.
class NpyWriter {
 public:
  /// Throws Error (Fault::checkpoint) if no file can be created.
  NpyWriter(const std::filesystem::path& path, std::vector<NpyField> fields)
      : file_(path), fields_(std::move(fields)) {
    const std::string start = header(0);
    file_.write(start.data(), start.size());
  }

  /// Appends a record: the bytes of its fields, one after the other.
  void write(const std::vector<std::uint8_t>& record) {
    file_.write(record.data(), record.size());
    ++records_;
  }
  [[nodiscard]] std::uint64_t records() const noexcept { return records_; }

  /// Completes the file and gives it its name.
  void finish() {
    const std::string start = header(records_);
    file_.rewrite(start.data(), start.size());
    file_.commit(false);
  }

 private:
  /// The header for `records` records: always equally long.
  [[nodiscard]] std::string header(std::uint64_t records) const {
    std::string fields;
    for (const NpyField& field : fields_) {
      fields += "('" + field.name + "', '" + field.type + "'";
      if (!field.shape.empty()) {
        fields += ", (";
        for (const int n : field.shape) fields += std::to_string(n) + ",";
        fields += ")";
      }
      fields += "), ";
    }
    std::string text = "{'descr': [" + fields + "], 'fortran_order': False, 'shape': (" +
                       std::to_string(records) + ",), }";
    constexpr std::size_t most_digits = 20;
    constexpr std::size_t aligned = 64;
    constexpr std::size_t before = 10;  // magic, version and the header's length
    const std::size_t longest =
        before + text.size() - std::to_string(records).size() + most_digits + 1;
    text.resize((longest + aligned - 1) / aligned * aligned - before - 1, ' ');
    text += '\n';
    std::string all = "\x93NUMPY";
    all += '\x01';
    all += '\0';
    all += static_cast<char>(text.size() & 0xFF);
    all += static_cast<char>(text.size() >> 8);
    return all + text;
  }

  AtomicFile file_;
  std::vector<NpyField> fields_;
  std::uint64_t records_ = 0;
};

}  // namespace pvm::inline v0::io
