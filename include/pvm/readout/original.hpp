// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Loads the readout in a checkpoint of the original implementation, a zip. Needs libzip.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <pvm/core/need_libzip.hpp>

#include <zip.h>

#include <pvm/core/error.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/readout/mlp.hpp>

namespace pvm::inline v0::readout {

namespace detail {

/// The arrays of a readout in an archive of the original. They are raw values without a header;
/// their pickled descriptions are never read, because unpickling could run code.
class OriginalReadout {
 public:
  explicit OriginalReadout(const std::filesystem::path& path)
      : where_("checkpoint " + quote(path.string())) {
    int code = 0;
    archive_.reset(zip_open(path.c_str(), ZIP_RDONLY, &code));
    if (!archive_) refuse("it is no zip that can be opened");
  }

  [[nodiscard]] bool has(const std::string& name) const {
    return zip_name_locate(archive_.get(), name.c_str(), 0) >= 0;
  }

  /// The values of an entry. Throws Fault::checkpoint if there is none, if it is damaged, or if it
  /// has another number of bytes than `count` values.
  template <class T>
  [[nodiscard]] std::vector<T> read(const std::string& name, std::size_t count) const {
    zip_stat_t status;
    if (zip_stat(archive_.get(), name.c_str(), 0, &status) != 0 ||
        (status.valid & ZIP_STAT_SIZE) == 0) {
      refuse("it has no entry " + quote(name) + ", so it holds no readout");
    }
    if (status.size != count * sizeof(T)) {
      refuse("its " + quote(name) + " has " + std::to_string(status.size / sizeof(T)) +
             " values and this network's readout has " + std::to_string(count) +
             ": it is another network's, or has other sizes");
    }
    struct Close {
      void operator()(zip_file_t* entry) const noexcept { zip_fclose(entry); }
    };
    const std::unique_ptr<zip_file_t, Close> entry(zip_fopen(archive_.get(), name.c_str(), 0));
    std::vector<T> values(count);
    auto* to = reinterpret_cast<char*>(values.data());
    for (std::size_t done = 0; done < count * sizeof(T);) {
      const zip_int64_t got =
          entry ? zip_fread(entry.get(), to + done, count * sizeof(T) - done) : 0;
      if (got <= 0) refuse("its " + quote(name) + " is damaged");
      done += static_cast<std::size_t>(got);
    }
    char beyond = 0;  // at the end libzip verifies the checksum
    if (zip_fread(entry.get(), &beyond, 1) != 0) refuse("its " + quote(name) + " is damaged");
    return values;
  }

  /// The number of bytes of an entry; 0 if there is none.
  [[nodiscard]] std::uint64_t bytes(const std::string& name) const {
    zip_stat_t status;
    const bool there = zip_stat(archive_.get(), name.c_str(), 0, &status) == 0;
    return there && (status.valid & ZIP_STAT_SIZE) != 0 ? status.size : 0;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Fault::checkpoint, where_ + ": " + why);
  }

 private:
  struct Discard {
    void operator()(zip_t* archive) const noexcept { zip_discard(archive); }
  };
  std::string where_;
  std::unique_ptr<zip_t, Discard> archive_;
};

}  // namespace detail

/// The readout of the original in the zip at `path`, for a network of `spec`: its weights, and the
/// last change of each. The number of layers, the size of its representation and that of its blocks
/// are those of the file. `options`: the rest. Throws Error (Fault::checkpoint) if the archive
/// holds no readout, is damaged, or belongs to another network.
inline MlpReadout load_original_readout(const std::filesystem::path& path, const Spec& spec,
                                        MlpOptions options = {}) {
  const detail::OriginalReadout archive(path);
  const auto name = [](const char* what, std::size_t layer) {
    return "mlp/objects/" + std::string(what) + "_0" + std::to_string(layer) + ".npy";
  };
  const auto cells = static_cast<std::size_t>(spec.layer_shapes.front());
  const std::size_t positions = cells * cells;
  const auto first = archive.read<std::int32_t>(name("shape0", 0), positions);
  options.layers = archive.has(name("weight_mem", 2)) ? 4 : 3;
  const auto depth = static_cast<std::size_t>(options.layers - 1);
  const auto last = archive.read<std::int32_t>(name("shape0", depth - 1), positions);
  options.representation = first.front();
  options.block = 1;
  while (options.block < 256 && options.block * options.block < last.front()) ++options.block;
  for (std::size_t p = 0; p < positions; ++p) {
    if (first[p] != options.representation || last[p] != options.block * options.block) {
      archive.refuse("its networks have " + std::to_string(first[p]) + " hidden and " +
                     std::to_string(last[p]) + " output values, which is no readout of a heatmap");
    }
  }
  MlpReadout readout(spec, make_connectome(spec), options);
  // Two arrays take turns with the last changes; one bit in a pickle says whose turn it is. It is
  // the byte before the end: 0x88 is true.
  const std::string turn = "mlp/flip_buf.pkl";
  std::string changes = "dweight_mem";
  constexpr std::uint64_t longest = 64;
  if (const std::uint64_t size = archive.bytes(turn); size >= 2 && size <= longest) {
    const auto pickle = archive.read<std::uint8_t>(turn, static_cast<std::size_t>(size));
    constexpr std::uint8_t is_false = 0x89;
    if (pickle[pickle.size() - 2] == is_false) changes = "mweight_mem";
  }
  for (std::size_t l = 0; l < depth; ++l) {
    const std::size_t size = readout.weights(l).size();
    auto weights = archive.read<float>(name("weight_mem", l), size);
    std::vector<float> last_changes(size);
    if (archive.has(name(changes.c_str(), l))) {
      last_changes = archive.read<float>(name(changes.c_str(), l), size);
    }
    for (const auto* values : {&weights, &last_changes}) {
      for (const float value : *values) {
        if (!std::isfinite(value)) archive.refuse("its readout holds values that are not numbers");
      }
    }
    readout.set_layer(l, std::move(weights), std::move(last_changes));
  }
  return readout;
}

}  // namespace pvm::inline v0::readout
