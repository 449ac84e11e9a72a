// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Runs the kernel for a video's pictures on the emulated device, for tests that do not include
/// CUDA.

#include <cstdint>
#include <span>

#include <pvm/io/orientation.hpp>
#include <pvm/io/source.hpp>

namespace pvm_test {

/// An NV12 picture: Y, and Cb and Cr interleaved at half the resolution; both have rows of `width`
/// bytes.
struct VideoPicture {
  std::span<const std::uint8_t> luma, chroma;
  int width = 0, height = 0;
  bool full_range = false;
  pvm::io::Orientation orientation{};
};

/// Makes the frame of `picture` at `shape`, in `pixels` (`shape.size()` bytes).
void make_frame_emulated(const VideoPicture& picture, const pvm::io::FrameShape& shape,
                         std::span<std::uint8_t> pixels);

}  // namespace pvm_test
