// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// The checks of pictures before a decoder sees them: JPEG, PNG, TIFF, WebP, BMP, PGM, PPM.

#include <span>
#include <vector>

#include <pvm/io/image_check.hpp>
#include <pvm/io/image_facts.hpp>
#include <pvm/io/jpeg_header.hpp>

#include "fuzz.hpp"

namespace io = pvm::io;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> bytes(data, size);
  const auto facts = io::image_facts(bytes);
  if (facts) {
    fuzz::require(facts->width > 0 && facts->height > 0, "a picture has pixels");
    fuzz::require(facts->width * facts->height <= io::most_pixels, "not too many of them");
    fuzz::require(facts->decoding_bytes <= io::most_decoding_bytes, "decoding takes no gigabytes");
  }
  if (const auto plain = io::plain_jpeg(bytes)) {
    fuzz::require(facts.has_value(), "a plain JPEG is a whole picture");
    fuzz::require(facts->width == static_cast<unsigned>(plain->width),
                  "they agree about the width");
    fuzz::require(facts->height == static_cast<unsigned>(plain->height), "... and the height");
  }
  if (facts && data[0] == 0x89) {
    std::vector<std::uint8_t> without;
    if (io::without_extras_of_png(bytes, without)) {
      const auto same = io::image_facts(without);
      fuzz::require(without.size() < size, "a PNG without extras is smaller");
      fuzz::require(same && same->width == facts->width && same->height == facts->height,
                    "a PNG without extras has the same size");
      fuzz::require(same && same->alpha == facts->alpha, "... and is as transparent");
    }
  }
  return 0;
}
