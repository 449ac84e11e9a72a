// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The first directory of a TIFF file: its entries by their tags. EXIF data, which says how a
/// photo was held, is stored as such a file inside other ones.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/io/file_bytes.hpp>
#include <pvm/io/orientation.hpp>

namespace pvm::inline v0::io::detail {

/// Read access to the entries of a TIFF file's first directory. Never reads outside of the bytes.
class TiffDirectory {
 public:
  struct Entry {
    std::size_t at = 0;       ///< offset of its first value in the file
    std::uint32_t type = 0;   ///< 3: 16-bit numbers, 4: 32-bit numbers
    std::uint32_t count = 0;  ///< number of values
  };

  /// Nothing if `bytes` do not begin as a TIFF file (not BigTIFF) or its directory is cut off.
  static std::optional<TiffDirectory> find(Bytes bytes) noexcept {
    using namespace std::string_view_literals;
    TiffDirectory found(bytes, starts_with(bytes, "MM\0*"sv));
    if (bytes.size() < 8 || !(found.big_ || starts_with(bytes, "II*\0"sv))) return std::nullopt;
    found.at_ = found.number(4, 4);
    if (!has_bytes(bytes, found.at_, 2)) return std::nullopt;
    found.entries_ = found.number(found.at_, 2);
    if (!has_bytes(bytes, found.at_ + 2, entry_bytes * found.entries_)) return std::nullopt;
    return found;
  }

  /// The entry of `tag`; nothing if there is none, or its values are outside of the file or no
  /// unsigned numbers of 16 or 32 bits. The first one counts if there are several, as in libtiff.
  [[nodiscard]] std::optional<Entry> entry(std::uint32_t tag) const noexcept {
    for (std::size_t i = 0; i < entries_; ++i) {
      const std::size_t at = at_ + 2 + entry_bytes * i;
      if (number(at, 2) != tag) continue;
      Entry found{at + 8, number(at + 2, 2), number(at + 4, 4)};
      if (found.type != 3 && found.type != 4) return std::nullopt;
      const std::uint64_t bytes = std::uint64_t{found.count} * size_of(found);
      if (bytes > 4) found.at = number(at + 8, 4);
      if (bytes == 0 || bytes > bytes_.size() || !has_bytes(bytes_, found.at, bytes))
        return std::nullopt;
      return found;
    }
    return std::nullopt;
  }
  [[nodiscard]] bool has(std::uint32_t tag) const noexcept {
    for (std::size_t i = 0; i < entries_; ++i) {
      if (number(at_ + 2 + entry_bytes * i, 2) == tag) return true;
    }
    return false;
  }

  /// The first value of `tag`, or `otherwise` if there is no such entry; nothing if the entry
  /// cannot be read.
  [[nodiscard]] std::optional<std::uint32_t> value(std::uint32_t tag,
                                                   std::uint32_t otherwise) const noexcept {
    if (!has(tag)) return otherwise;
    const auto found = entry(tag);
    if (!found) return std::nullopt;
    return number(found->at, size_of(*found));
  }

  /// The bytes of the directory's numbers have the most significant one first.
  [[nodiscard]] bool big_endian_numbers() const noexcept { return big_; }

  static constexpr std::size_t size_of(const Entry& entry) noexcept {
    return entry.type == 3 ? 2 : 4;
  }

 private:
  TiffDirectory(Bytes bytes, bool big) noexcept : bytes_(bytes), big_(big) {}

  [[nodiscard]] std::uint32_t number(std::size_t at, std::size_t count) const noexcept {
    return big_ ? big_endian(bytes_, at, count) : little_endian(bytes_, at, count);
  }

  static constexpr std::size_t entry_bytes = 12;
  Bytes bytes_;
  bool big_;
  std::size_t at_ = 0;       // of the directory
  std::size_t entries_ = 0;  // their number
};

inline constexpr std::uint32_t tiff_orientation_tag = 274;

/// The orientation that a TIFF file, or EXIF data, states; upright if it states none.
inline Orientation tiff_orientation(Bytes bytes) noexcept {
  const auto directory = TiffDirectory::find(bytes);
  if (!directory) return {};
  return orientation_of_exif(directory->value(tiff_orientation_tag, 1).value_or(1));
}

/// Replaces `changed` by a copy of a TIFF file that states to be upright. False if `bytes` are no
/// TIFF file, or state nothing.
inline bool call_tiff_upright(Bytes bytes, std::vector<std::uint8_t>& changed) {
  const auto directory = TiffDirectory::find(bytes);
  const auto entry = directory ? directory->entry(tiff_orientation_tag) : std::nullopt;
  if (!entry) return false;
  changed.assign(bytes.begin(), bytes.end());
  const std::size_t size = TiffDirectory::size_of(*entry);
  for (std::size_t i = 0; i < size; ++i) {
    const bool last = directory->big_endian_numbers() ? i + 1 == size : i == 0;
    changed[entry->at + i] = last ? 1 : 0;
  }
  return true;
}

}  // namespace pvm::inline v0::io::detail
