// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// From a JPEG's planes to the frame of a network, in one kernel: chroma is interpolated, colours
/// are converted and the picture is resized for the pixels that the frame needs only.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io::detail {

/// A decoded JPEG in device memory.
struct Planes {
  const std::uint8_t* plane[3];  ///< Y, Cb, Cr
  int pitch[3];                  ///< bytes from row to row
  int width, height;
  int chroma_width, chroma_height;
  int halved_x, halved_y;  ///< see PlainJpeg
  int components;
};

/// Chroma at a pixel, interpolated as libjpeg does ("fancy upsampling"): a triangle filter, with
/// the roundings of its two loops.
__device__ inline int chroma_at(const Planes& p, int c, int x, int y) {
  const std::uint8_t* const plane = p.plane[c];
  const auto at = [&](int column, int row) {
    column = min(max(column, 0), p.chroma_width - 1);
    row = min(max(row, 0), p.chroma_height - 1);
    return static_cast<int>(plane[static_cast<std::size_t>(row) * p.pitch[c] + column]);
  };
  if (!p.halved_x) return at(x, y);
  const int column = x >> 1;
  const int beside = (x & 1) != 0 ? column + 1 : column - 1;
  if (!p.halved_y) {
    return (3 * at(column, y) + at(beside, y) + ((x & 1) != 0 ? 2 : 1)) >> 2;
  }
  const int row = y >> 1;
  const int above = (y & 1) != 0 ? row + 1 : row - 1;
  const int here = 3 * at(column, row) + at(column, above);
  const int there = 3 * at(beside, row) + at(beside, above);
  return (3 * here + there + ((x & 1) != 0 ? 7 : 8)) >> 4;
}

struct Bgr {
  int b, g, r;
};

__device__ inline int clamp8(int value) { return min(max(value, 0), 255); }

/// The colour of a pixel, converted in libjpeg's 16-bit fixed point.
__device__ inline Bgr colour_at(const Planes& p, int x, int y) {
  const int luma = p.plane[0][static_cast<std::size_t>(y) * p.pitch[0] + x];
  if (p.components == 1) return {luma, luma, luma};
  const int cb = chroma_at(p, 1, x, y) - 128;
  const int cr = chroma_at(p, 2, x, y) - 128;
  constexpr int half = 1 << 15;
  return {clamp8(luma + ((116130 * cb + half) >> 16)),
          clamp8(luma + ((-22554 * cb - 46802 * cr + half) >> 16)),
          clamp8(luma + ((91881 * cr + half) >> 16))};
}

/// Where a row or column of the frame lies in the picture, and the weights of the four samples
/// around it: OpenCV's INTER_CUBIC with its 11-bit weights.
struct Cubic {
  int first;
  int weight[4];
};

__device__ inline Cubic cubic(int index, int from, int to) {
  const double scale = static_cast<double>(from) / to;
  const float place = static_cast<float>((index + 0.5) * scale - 0.5);
  const int whole = static_cast<int>(floorf(place));
  const float x = place - static_cast<float>(whole);
  constexpr float a = -0.75F;
  float w[4];
  w[0] = ((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a;
  w[1] = ((a + 2) * x - (a + 3)) * x * x + 1;
  w[2] = ((a + 2) * (1 - x) - (a + 3)) * (1 - x) * (1 - x) + 1;
  w[3] = 1.0F - w[0] - w[1] - w[2];
  Cubic out{whole - 1, {}};
  for (int i = 0; i < 4; ++i) out.weight[i] = __float2int_rn(w[i] * 2048.0F);
  return out;
}

/// frames: [pictures][height][width][channels]; grid (pixel blocks, pictures).
template <int Channels>
__global__ void make_frames(const Planes* pictures, std::uint8_t* frames, int height, int width) {
  const int pixel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (pixel >= height * width) return;
  const Planes picture = pictures[blockIdx.y];
  const Cubic across = cubic(pixel % width, picture.width, width);
  const Cubic down = cubic(pixel / width, picture.height, height);
  int sums[Channels] = {};
  for (int j = 0; j < 4; ++j) {
    const int y = min(max(down.first + j, 0), picture.height - 1);
    int row[Channels] = {};
    for (int i = 0; i < 4; ++i) {
      const int x = min(max(across.first + i, 0), picture.width - 1);
      const Bgr colour = colour_at(picture, x, y);
      if constexpr (Channels == 1) {  // OpenCV's BGR to grey
        const int grey = (3735 * colour.b + 19235 * colour.g + 9798 * colour.r + (1 << 14)) >> 15;
        row[0] += across.weight[i] * grey;
      } else {
        row[0] += across.weight[i] * colour.b;
        row[1] += across.weight[i] * colour.g;
        row[2] += across.weight[i] * colour.r;
      }
    }
    for (int c = 0; c < Channels; ++c) sums[c] += down.weight[j] * row[c];
  }
  std::uint8_t* const out =
      frames + (static_cast<std::size_t>(blockIdx.y) * height * width + pixel) * Channels;
  for (int c = 0; c < Channels; ++c) {
    out[c] = static_cast<std::uint8_t>(clamp8((sums[c] + (1 << 21)) >> 22));
  }
}

}  // namespace pvm::inline v0::io::detail
