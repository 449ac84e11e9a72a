// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reads the size of a TIFF before a decoder sees it.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include <pvm/core/config.hpp>
#include <pvm/io/file_bytes.hpp>
#include <pvm/io/image_facts.hpp>
#include <pvm/io/tiff_directory.hpp>

namespace pvm::inline v0::io::detail {

/// Whether the pixels are packed in one of the usual ways: not at all, fax, LZW, JPEG, deflate (two
/// numbers), PackBits, Zstandard. Other ways either need decoders that are known for their flaws or
/// let a few bytes ask for gigabytes, as LZMA does.
inline bool usual_tiff_packing(std::uint32_t packing) noexcept {
  constexpr std::array<std::uint32_t, 10> usual = {1, 2, 3, 4, 5, 7, 8, 32773, 32946, 50000};
  return std::find(usual.begin(), usual.end(), packing) != usual.end();
}

/// The facts of the first picture in a TIFF; whether its pixels are all there, its decoder notices.
/// Nothing if its size cannot be read or it breaks the limits.
inline std::optional<ImageFacts> tiff_facts(Bytes bytes) noexcept {
  const auto directory = TiffDirectory::find(bytes);
  if (!directory) return std::nullopt;
  const auto width = directory->value(256, 0), height = directory->value(257, 0);
  const auto bits = directory->value(258, 1), packing = directory->value(259, 1);
  const auto samples = directory->value(277, 1), rows = directory->value(278, 0xFFFF'FFFF);
  const auto tile_width = directory->value(322, 0), tile_height = directory->value(323, 0);
  if (!width || !height || !bits || !packing || !samples || !rows || !tile_width || !tile_height)
    return std::nullopt;
  if (!sensible_size(*width, *height) || !usual_tiff_packing(*packing)) return std::nullopt;
  if (*bits == 0 || *bits > 64 || *samples == 0 || *samples > 4) return std::nullopt;

  // It is decoded in tiles, or in strips as wide as the picture. Those at its edges are whole
  // tiles.
  std::uint64_t across = *width, down = std::clamp<std::uint64_t>(*rows, 1, *height);
  if (directory->has(322) || directory->has(323)) {
    across = *tile_width;
    down = *tile_height;
    if (!sensible_size(across, down)) return std::nullopt;
    const std::uint64_t columns = (*width + across - 1) / across;
    if (!sensible_size(columns * across, (*height + down - 1) / down * down)) return std::nullopt;
  }
  const std::uint64_t of_part = across * down * (4 + *samples * ((*bits + 7) / 8));
  constexpr std::uint32_t rgb = 2;  // others may have four channels, too: CMYK
  const bool alpha =
      *samples == 4 && directory->value(262, 0) == rgb && (*bits == 8 || *bits == 16);
  return within_limits(*width, *height, of_part,
                       orientation_of_exif(directory->value(tiff_orientation_tag, 1).value_or(1)),
                       alpha);
}

}  // namespace pvm::inline v0::io::detail
