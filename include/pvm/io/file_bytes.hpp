// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Numbers and texts in the bytes of a file.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io::detail {

using Bytes = std::span<const std::uint8_t>;

/// The number stored in `count` bytes (at most 4) from offset `at` on; they must exist.
constexpr std::uint32_t big_endian(Bytes bytes, std::size_t at, std::size_t count) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) value = value << 8 | bytes[at + i];
  return value;
}

constexpr std::uint32_t little_endian(Bytes bytes, std::size_t at, std::size_t count) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = count; i-- > 0;) value = value << 8 | bytes[at + i];
  return value;
}

/// Whether `count` bytes exist from offset `at` on.
constexpr bool has_bytes(Bytes bytes, std::size_t at, std::size_t count) noexcept {
  return at <= bytes.size() && count <= bytes.size() - at;
}

inline bool starts_with(Bytes bytes, std::string_view magic, std::size_t at = 0) noexcept {
  return has_bytes(bytes, at, magic.size()) &&
         std::memcmp(bytes.data() + at, magic.data(), magic.size()) == 0;
}

}  // namespace pvm::inline v0::io::detail
