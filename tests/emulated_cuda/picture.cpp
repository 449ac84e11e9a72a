// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include "picture.hpp"

#include <stdexcept>

#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/io/gpu/picture_kernel.cuh>

namespace pvm_test {

void make_frame_emulated(const VideoPicture& picture, const pvm::io::FrameShape& shape,
                         std::span<std::uint8_t> pixels) {
  namespace detail = pvm::detail;
  const auto up = [](std::span<const std::uint8_t> bytes) {
    detail::DeviceArray<std::uint8_t> array(bytes.size());
    detail::cuda_check(
        cudaMemcpyAsync(array.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice, nullptr),
        "copying a picture");
    return array;
  };
  const auto luma = up(picture.luma), chroma = up(picture.chroma);
  const detail::DeviceArray<std::uint8_t> frame(pixels.size());
  const pvm::io::detail::Nv12 planes{luma.get(),         chroma.get(),       picture.width,
                                     picture.width,      picture.width,      picture.height,
                                     picture.full_range, picture.orientation};
  detail::cuda_check(pvm::io::detail::launch_frame(planes, frame.get(), shape, nullptr),
                     "making a frame");
  detail::cuda_check(
      cudaMemcpyAsync(pixels.data(), frame.get(), pixels.size(), cudaMemcpyDeviceToHost, nullptr),
      "copying a frame");
  detail::cuda_check(cudaStreamSynchronize(nullptr), "making a frame");
}

}  // namespace pvm_test
