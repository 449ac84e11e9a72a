// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Loads weights from checkpoints of the original Python implementation, which are zip archives.
/// Needs libzip.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pvm/core/need_libzip.hpp>

#include <zip.h>

#include <pvm/core/error.hpp>
#include <pvm/core/open_fault.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::io {

namespace detail {

/// A checkpoint archive of the original implementation, open for reading. Only the weights are ever
/// read, because unpickling the other entries could run code.
class OriginalArchive {
 public:
  /// Throws Fault::checkpoint if the archive cannot be opened.
  explicit OriginalArchive(const std::filesystem::path& path)
      : where_("checkpoint " + quote(path.string())) {
    int code = 0;
    archive_.reset(zip_open(path.c_str(), ZIP_RDONLY, &code));
    if (!archive_) {
      zip_error_t error;
      zip_error_init_with_code(&error, code);
      std::string why = why_not_readable(path);
      if (why.empty()) why = zip_error_strerror(&error);
      zip_error_fini(&error);
      refuse("the zip cannot be opened: " + why);
    }
  }

  /// The bytes of the entry with the weights. Throws Fault::checkpoint if there is none or if it is
  /// damaged. The size that the entry claims is never allocated in advance: whenever the memory has
  /// to grow, check(bytes so far, claimed size) may throw.
  template <class Check>
  [[nodiscard]] std::vector<std::uint8_t> read_weights(const Check& check) const {
    zip_stat_t status;
    const zip_uint64_t index = find_weights();
    if (zip_stat_index(archive_.get(), index, 0, &status) != 0 ||
        (status.valid & ZIP_STAT_SIZE) == 0) {
      refuse("its weights cannot be found in the zip");
    }
    struct Close {
      void operator()(zip_file_t* entry) const noexcept { zip_fclose(entry); }
    };
    const std::unique_ptr<zip_file_t, Close> entry(zip_fopen_index(archive_.get(), index, 0));
    if (!entry) refuse("its weights cannot be read: " + message());
    constexpr std::size_t room_for_header = 1 << 17;
    const auto size = static_cast<std::size_t>(status.size);
    std::vector<std::uint8_t> bytes;
    for (std::size_t done = 0; done < size;) {
      if (done == bytes.size()) {
        if (done > 0) check(std::span<const std::uint8_t>(bytes), size);
        bytes.resize(std::min(size, std::max(2 * done, room_for_header)));
      }
      const zip_int64_t got = zip_fread(entry.get(), bytes.data() + done, bytes.size() - done);
      if (got <= 0) refuse("its weights are damaged or cut off");
      done += static_cast<std::size_t>(got);
    }
    std::uint8_t beyond = 0;  // at the end libzip verifies the checksum
    if (zip_fread(entry.get(), &beyond, 1) != 0) refuse("its weights are damaged");
    return bytes;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Fault::checkpoint, where_ + ": " + why);
  }
  [[nodiscard]] const std::string& where() const noexcept { return where_; }

 private:
  /// The index of the entry `pvm/weight_memory_main.npy`, in whatever folder.
  [[nodiscard]] zip_uint64_t find_weights() const {
    constexpr std::string_view wanted = "pvm/weight_memory_main.npy";
    const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
    for (zip_int64_t i = 0; i < count; ++i) {
      const auto index = static_cast<zip_uint64_t>(i);
      const char* name = zip_get_name(archive_.get(), index, 0);
      if (name == nullptr) continue;
      const std::string_view entry = name;
      if (entry == wanted || entry.ends_with("/" + std::string(wanted))) return index;
    }
    refuse("the zip has no entry " + std::string(wanted) +
           ", so it is not a checkpoint of the original");
  }

  [[nodiscard]] std::string message() const { return zip_strerror(archive_.get()); }

  struct Discard {
    void operator()(zip_t* archive) const noexcept { zip_discard(archive); }
  };
  std::string where_;
  std::unique_ptr<zip_t, Discard> archive_;
};

/// The offset of the values: behind the npy header if there is one (the original writes none), else
/// 0. Throws Fault::checkpoint if the header says anything but little-endian float32 in C order.
inline std::size_t skip_npy_header(const std::string& where, std::span<const std::uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr std::string_view magic = "\x93NUMPY";
  if (!text.starts_with(magic) || text.size() < 12) return 0;
  const bool long_length = text[6] != 1;
  std::size_t length = bytes[8] + 256U * bytes[9];
  if (long_length) length += 65536U * (bytes[10] + 256U * bytes[11]);
  const std::size_t begin = (long_length ? 12 : 10) + length;
  const std::string_view header = text.substr(0, begin);
  if (begin > text.size() || header.find("<f4") == std::string_view::npos ||
      header.find("'fortran_order': True") != std::string_view::npos) {
    throw Error(Fault::checkpoint, where + ": its npy header is damaged or not of float32 values");
  }
  return begin;
}

}  // namespace detail

/// Loads the weights of a checkpoint of the original implementation, as a start at step 0. Throws
/// Error (Fault::checkpoint) if the archive is damaged or belongs to another spec.
inline Checkpoint load_original(const std::filesystem::path& path, const Spec& spec) {
  const detail::OriginalArchive archive(path);
  const auto bytes =
      archive.read_weights([&](std::span<const std::uint8_t> begun, std::size_t size) {
        const std::size_t header = detail::skip_npy_header(archive.where(), begun);
        detail::check_weight_count(archive.where(), (size - header) / sizeof(float), spec);
      });
  const std::size_t begin = detail::skip_npy_header(archive.where(), bytes);
  const std::size_t count = (bytes.size() - begin) / sizeof(float);
  if (begin + count * sizeof(float) != bytes.size()) {
    archive.refuse("its weights are " + std::to_string(bytes.size() - begin) +
                   " bytes, which is not a number of float32 values");
  }
  Checkpoint checkpoint;
  checkpoint.spec = spec;
  detail::check_weight_count(archive.where(), count, spec);
  checkpoint.state.weights.resize(count);
  std::memcpy(checkpoint.state.weights.data(), bytes.data() + begin, count * sizeof(float));
  if (!detail::all_finite(checkpoint.state.weights)) {
    detail::refuse_not_finite(archive.where(), "weights");
  }
  return checkpoint;
}

namespace detail {

/// The spec of a zip, which holds none that can be read.
inline const Spec& spec_for_zip(const std::filesystem::path& path, const Spec* spec) {
  if (spec != nullptr) return *spec;
  throw Error(Fault::usage, "checkpoint " + quote(path.string()) +
                                ": it holds no spec that can be read; name the spec it was made "
                                "with");
}

}  // namespace detail

/// Loads any checkpoint: `load_original` if the file is a zip, else `load_checkpoint`. Throws what
/// these throw, and Fault::usage for a zip if `spec` is null.
inline Checkpoint load_any_checkpoint(const std::filesystem::path& path,
                                      const Spec* spec = nullptr) {
  if (detail::kind_of(path) != detail::CheckpointKind::zip) return load_checkpoint(path, spec);
  return load_original(path, detail::spec_for_zip(path, spec));
}
/// The same for what prediction needs: `load_original` or `load_network`.
inline Checkpoint load_any_network(const std::filesystem::path& path, const Spec* spec = nullptr) {
  if (detail::kind_of(path) != detail::CheckpointKind::zip) return load_network(path, spec);
  return load_original(path, detail::spec_for_zip(path, spec));
}

}  // namespace pvm::inline v0::io
