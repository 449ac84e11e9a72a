// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Decodes many JPEGs at a time on an NVIDIA GPU with nvJPEG. For files that nvcc compiles, in
/// programs that link nvJPEG and say so by PVM_NVJPEG.

#include <cuda_runtime.h>
#include <nvjpeg.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/gpu/device_bytes.hpp>
#include <pvm/io/gpu/picture_kernel.cuh>
#include <pvm/io/jpeg_batches.hpp>
#include <pvm/io/jpeg_header.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

/// One batch of JPEGs in work at a time, on the device that was current when it was made.
class GpuJpegDecoder {
 public:
  /// Throws Fault::device where there is no GPU or nvJPEG cannot use it.
  GpuJpegDecoder() {
    detail::check_decoding(cudaGetDevice(&device_), "looking for a GPU");
    stream_ = detail::make_decoding_stream();
    hardware_ = nvjpegCreateEx(NVJPEG_BACKEND_HARDWARE, nullptr, nullptr, 0, &handle_) ==
                NVJPEG_STATUS_SUCCESS;
    const bool made = hardware_ || nvjpegCreateEx(NVJPEG_BACKEND_DEFAULT, nullptr, nullptr, 0,
                                                  &handle_) == NVJPEG_STATUS_SUCCESS;
    if (!made || nvjpegJpegStateCreate(handle_, &state_) != NVJPEG_STATUS_SUCCESS) {
      release();
      throw Error(Fault::device, "nvJPEG cannot be used on this GPU; use --decode cpu");
    }
  }
  ~GpuJpegDecoder() { release(); }
  GpuJpegDecoder(const GpuJpegDecoder&) = delete;
  GpuJpegDecoder& operator=(const GpuJpegDecoder&) = delete;

  /// Whether the GPU has a JPEG engine of its own.
  [[nodiscard]] bool hardware() const noexcept { return hardware_; }

  /// Begins to decode `items`, whose bytes must stay until `wait` has returned, into frames of
  /// `shape`. False where nvJPEG refuses one of them: then none is decoded. Throws Fault::device.
  bool start(std::span<const JpegItem> items, const FrameShape& shape) {
    detail::check_decoding(cudaSetDevice(device_), "choosing the GPU");
    shape_ = shape;
    count_ = items.size();
    place(items);
    if (!decode(items)) {
      (void)cudaStreamSynchronize(stream_);
      (void)cudaGetLastError();
      return false;
    }
    make_frames();
    return true;
  }

  /// The frames of the batch begun last, [items][shape.size()]; valid until the next `start`.
  /// Throws Fault::device.
  std::span<const std::uint8_t> wait() {
    detail::check_decoding(cudaStreamSynchronize(stream_), "decoding a batch");
    return {pinned_.get(), count_ * shape_.size()};
  }

 private:
  static constexpr std::size_t align = 256;
  struct Image : nvjpegImage_t {};  // named: nvcc cannot make a vector of a struct without a name
  static_assert(sizeof(Image) == sizeof(nvjpegImage_t));

  void release() noexcept {
    if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
    if (state_ != nullptr) (void)nvjpegJpegStateDestroy(state_);
    if (handle_ != nullptr) (void)nvjpegDestroy(handle_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
    state_ = nullptr;
    handle_ = nullptr;
    stream_ = nullptr;
  }

  /// Gives every plane of every picture its place in one piece of memory.
  void place(std::span<const JpegItem> items) {
    planes_.assign(count_, {});
    images_.assign(count_, {});
    std::vector<std::size_t> starts;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const PlainJpeg& jpeg = items[i].facts;
      detail::Planes& p = planes_[i];
      p.width = jpeg.width;
      p.height = jpeg.height;
      p.components = jpeg.components;
      p.halved_x = jpeg.halved_x;
      p.halved_y = jpeg.halved_y;
      p.chroma_width = (jpeg.width + jpeg.halved_x) >> jpeg.halved_x;
      p.chroma_height = (jpeg.height + jpeg.halved_y) >> jpeg.halved_y;
      for (int c = 0; c < jpeg.components; ++c) {
        const auto width = static_cast<std::size_t>(c == 0 ? p.width : p.chroma_width);
        const auto height = static_cast<std::size_t>(c == 0 ? p.height : p.chroma_height);
        const std::size_t pitch = (width + align - 1) / align * align;
        p.pitch[c] = static_cast<int>(pitch);
        starts.push_back(bytes);
        bytes += pitch * ((height + 15) / 16 * 16);  // decoders may write whole blocks
      }
    }
    std::uint8_t* const base = arena_.at_least(bytes);
    auto start = starts.begin();
    for (std::size_t i = 0; i < count_; ++i) {
      for (int c = 0; c < planes_[i].components; ++c) {
        planes_[i].plane[c] = base + *start;
        images_[i].channel[c] = base + *start++;
        images_[i].pitch[c] = static_cast<std::size_t>(planes_[i].pitch[c]);
      }
    }
  }

  bool decode(std::span<const JpegItem> items) {
    std::vector<const unsigned char*> data(count_);
    std::vector<std::size_t> lengths(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      data[i] = items[i].bytes.data();
      lengths[i] = items[i].bytes.size();
    }
    if (prepared_for_ != count_) {
      constexpr int threads = 1;  // of nvJPEG's own, where there is no engine
      if (nvjpegDecodeBatchedInitialize(handle_, state_, static_cast<int>(count_), threads,
                                        NVJPEG_OUTPUT_YUV) != NVJPEG_STATUS_SUCCESS) {
        return false;
      }
      prepared_for_ = count_;
    }
    if (nvjpegDecodeBatched(handle_, state_, data.data(), lengths.data(), images_.data(),
                            stream_) == NVJPEG_STATUS_SUCCESS) {
      return true;
    }
    prepared_for_ = 0;
    return false;
  }

  void make_frames() {
    const std::size_t facts = count_ * sizeof(detail::Planes);
    auto* const pinned_facts = reinterpret_cast<detail::Planes*>(pinned_facts_.at_least(facts));
    std::copy(planes_.begin(), planes_.end(), pinned_facts);
    auto* const device_facts = reinterpret_cast<detail::Planes*>(facts_.at_least(facts));
    detail::check_decoding(
        cudaMemcpyAsync(device_facts, pinned_facts, facts, cudaMemcpyHostToDevice, stream_),
        "copying facts");
    const std::size_t bytes = count_ * shape_.size();
    std::uint8_t* const frames = frames_.at_least(bytes);
    detail::check_decoding(detail::launch_frames(device_facts, count_, frames, shape_, stream_),
                           "resizing");
    detail::check_decoding(
        cudaMemcpyAsync(pinned_.at_least(bytes), frames, bytes, cudaMemcpyDeviceToHost, stream_),
        "copying frames");
  }

  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  nvjpegHandle_t handle_ = nullptr;
  nvjpegJpegState_t state_ = nullptr;
  bool hardware_ = false;
  FrameShape shape_{};
  std::size_t count_ = 0;
  std::size_t prepared_for_ = 0;
  std::vector<detail::Planes> planes_;
  std::vector<Image> images_;
  detail::GpuBytes<detail::FreeDevice> arena_, facts_, frames_;
  detail::GpuBytes<detail::FreePinned> pinned_, pinned_facts_;
};

}  // namespace pvm::inline v0::io
