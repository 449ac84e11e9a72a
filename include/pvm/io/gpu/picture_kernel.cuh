// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One kernel that turns a decoder's planes into the frame of a network. Each thread makes one
/// pixel of the frame: it takes the 4 x 4 pixels of the picture that cubic interpolation needs,
/// interpolates their chroma, converts them to BGR (or grey), and adds them up with their weights.
/// Pixels of the picture that no pixel of the frame needs are never converted.
///
/// All arithmetic is that of the CPU's libraries, rounding included as far as possible: libjpeg for
/// JPEGs, swscale for videos, OpenCV for grey and resizing.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/io/orientation.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io::detail {

/// A decoded JPEG in device memory: 8-bit planes, of which only the first exists for a grey one.
struct Planes {
  const std::uint8_t* plane[3];  ///< Y, Cb, Cr
  int pitch[3];                  ///< bytes from one row to the next
  int width, height;             ///< of Y, in pixels
  int chroma_width, chroma_height;
  int halved_x, halved_y;   ///< see PlainJpeg
  int components;           ///< 1 or 3 planes
  Orientation orientation;  ///< how the pixels must be turned
};

/// The chroma of plane `c` (1 or 2) at pixel (x, y), interpolated as libjpeg does ("fancy
/// upsampling"): a triangle filter, with the same rounding constants as libjpeg's loops for 4:2:2
/// and for 4:2:0.
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

/// The colour of pixel (x, y) of a JPEG, converted in libjpeg's fixed point with 16 fractional
/// bits.
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

/// A decoded picture of a video in device memory, in the NV12 layout.
struct Nv12 {
  const std::uint8_t* luma;      ///< [height][width]
  const std::uint8_t* chroma;    ///< [height / 2][width / 2][2]: Cb and Cr, interleaved
  int luma_pitch, chroma_pitch;  ///< bytes from one row to the next
  int width, height;             ///< of Y, in pixels; both even
  bool full_range;               ///< values are 0 to 255, not 16 to 235
  Orientation orientation;       ///< how the pixels must be turned
};

/// The factors of BT.601, scaled by 8192 and rounded as swscale does; `black` is the luma of black.
struct VideoColours {
  int black, luma, red, blue, green_of_blue, green_of_red;
};

__host__ __device__ constexpr VideoColours video_colours(bool full_range) {
  const auto scaled = [full_range](long long factor) {
    const long long used = full_range ? factor * 224 / 255 : factor;
    return static_cast<int>((used * 8192 + 32768) >> 16);
  };
  const long long luma = full_range ? 65536 : 65536LL * 255 / 219;
  return {full_range ? 0 : 16, static_cast<int>((luma * 8192 + 32768) >> 16),
          scaled(104597),      scaled(132201),
          scaled(-25675),      scaled(-53279)};
}

/// The colour of pixel (x, y) of a video, as OpenCV gets it from swscale: always by BT.601,
/// whatever the stream says, and with the nearest chroma sample, not interpolated.
__device__ inline Bgr colour_at(const Nv12& p, int x, int y) {
  const VideoColours to = video_colours(p.full_range);
  const std::uint8_t* const chroma =
      p.chroma + static_cast<std::size_t>(y >> 1) * p.chroma_pitch + (x & ~1);
  const int luma = p.luma[static_cast<std::size_t>(y) * p.luma_pitch + x];
  const int bright = (8 * (luma - to.black) * to.luma) >> 16;
  const int cb = 8 * (chroma[0] - 128);
  const int cr = 8 * (chroma[1] - 128);
  return {clamp8(bright + ((cb * to.blue) >> 16)),
          clamp8(bright + ((cb * to.green_of_blue) >> 16) + ((cr * to.green_of_red) >> 16)),
          clamp8(bright + ((cr * to.red) >> 16))};
}

/// Cubic interpolation along one axis, for one row or column of the frame: the four neighbouring
/// rows or columns of the picture and their weights. As OpenCV's INTER_CUBIC, with its weights in
/// fixed point with 11 fractional bits.
struct Cubic {
  int first;      ///< the first of the four; may lie outside of the picture
  int weight[4];  ///< scaled by 2048
};

/// For row or column `index` of `to` in the frame, out of `from` in the picture.
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

/// A picture seen upright.
template <class Picture>
struct Upright {
  const Picture& stored;
  int width, height;  ///< in pixels

  __device__ explicit Upright(const Picture& picture)
      : stored(picture),
        width(picture.orientation.transposed ? picture.height : picture.width),
        height(picture.orientation.transposed ? picture.width : picture.height) {}

  __device__ Bgr at(int x, int y) const {
    if (stored.orientation.mirrored_x) x = width - 1 - x;
    if (stored.orientation.mirrored_y) y = height - 1 - y;
    return stored.orientation.transposed ? colour_at(stored, y, x) : colour_at(stored, x, y);
  }
};

/// Computes pixel `pixel` (row * width + column) of a frame of `height` x `width` pixels and writes
/// its `Channels` bytes to `out`: grey or BGR, and alpha, which is opaque.
template <int Channels, class Picture>
__device__ void make_pixel(const Picture& stored, int pixel, int height, int width,
                           std::uint8_t* out) {
  const Upright<Picture> picture(stored);
  const Cubic across = cubic(pixel % width, picture.width, width);
  const Cubic down = cubic(pixel / width, picture.height, height);
  constexpr int colours = Channels < 3 ? 1 : 3;
  int sums[colours] = {};
  for (int j = 0; j < 4; ++j) {
    const int y = min(max(down.first + j, 0), picture.height - 1);
    int row[colours] = {};
    for (int i = 0; i < 4; ++i) {
      const int x = min(max(across.first + i, 0), picture.width - 1);
      const Bgr colour = picture.at(x, y);
      if constexpr (colours == 1) {  // OpenCV's COLOR_BGR2GRAY
        const int grey = (3735 * colour.b + 19235 * colour.g + 9798 * colour.r + (1 << 14)) >> 15;
        row[0] += across.weight[i] * grey;
      } else {
        row[0] += across.weight[i] * colour.b;
        row[1] += across.weight[i] * colour.g;
        row[2] += across.weight[i] * colour.r;
      }
    }
    for (int c = 0; c < colours; ++c) sums[c] += down.weight[j] * row[c];
  }
  for (int c = 0; c < colours; ++c) {
    out[c] = static_cast<std::uint8_t>(clamp8((sums[c] + (1 << 21)) >> 22));
  }
  if constexpr (Channels > colours) out[colours] = 255;
}

/// Makes the frames of several JPEGs, [pictures][height][width][channels]. Grid: (blocks of pixels,
/// pictures); one thread for each pixel.
template <int Channels>
__global__ void make_frames(const Planes* pictures, std::uint8_t* frames, int height, int width) {
  const int pixel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (pixel >= height * width) return;
  const std::size_t at = static_cast<std::size_t>(blockIdx.y) * height * width + pixel;
  make_pixel<Channels>(pictures[blockIdx.y], pixel, height, width, frames + at * Channels);
}

/// Makes the frame of one picture of a video, [height][width][channels]. Grid: (blocks of pixels).
template <int Channels>
__global__ void make_frame(Nv12 picture, std::uint8_t* frame, int height, int width) {
  const int pixel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (pixel >= height * width) return;
  make_pixel<Channels>(picture, pixel, height, width,
                       frame + static_cast<std::size_t>(pixel) * Channels);
}

inline pvm::detail::LaunchShape frames_launch(const FrameShape& shape, std::size_t pictures,
                                              cudaStream_t stream) {
  constexpr int threads = 128;
  const int blocks = (shape.height * shape.width + threads - 1) / threads;
  return {.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(pictures)),
          .threads = threads,
          .stream = stream};
}

/// Launches the making of the frames of `count` JPEGs; `pictures` and `frames` are in device
/// memory. `frames`: [count][shape.size()].
inline cudaError_t launch_frames(const Planes* pictures, std::size_t count, std::uint8_t* frames,
                                 const FrameShape& shape, cudaStream_t stream) {
  using Kernel = void (*)(const Planes*, std::uint8_t*, int, int);
  constexpr Kernel of_channels[] = {make_frames<1>, make_frames<2>, make_frames<3>, make_frames<4>};
  return pvm::detail::launch(of_channels[shape.channels - 1], frames_launch(shape, count, stream),
                             pictures, frames, shape.height, shape.width);
}

/// Launches the making of the frame of a video's picture; `frame` is in device memory.
inline cudaError_t launch_frame(const Nv12& picture, std::uint8_t* frame, const FrameShape& shape,
                                cudaStream_t stream) {
  using Kernel = void (*)(Nv12, std::uint8_t*, int, int);
  constexpr Kernel of_channels[] = {make_frame<1>, make_frame<2>, make_frame<3>, make_frame<4>};
  return pvm::detail::launch(of_channels[shape.channels - 1], frames_launch(shape, 1, stream),
                             picture, frame, shape.height, shape.width);
}

}  // namespace pvm::inline v0::io::detail
