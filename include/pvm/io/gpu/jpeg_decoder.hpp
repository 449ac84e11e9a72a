// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Decodes batches of JPEGs on an NVIDIA GPU with nvJPEG. Must be compiled by nvcc, in a program
/// that links nvJPEG and defines PVM_NVJPEG.

#include <cuda_runtime.h>
#include <nvjpeg.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/gpus.hpp>
#include <pvm/io/gpu/device_bytes.hpp>
#include <pvm/io/gpu/picture_kernel.cuh>
#include <pvm/io/jpeg_batches.hpp>
#include <pvm/io/jpeg_header.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

/// The `Device` of JpegBatches: decodes batches of JPEGs on the device that was current when it was
/// constructed. It has two places, 0 and 1, that each hold one batch. For each place call `stage`,
/// `start` and `wait` in that order. `stage` and `start` must be called by one thread at a time
/// each; otherwise calls for different places may overlap.
class GpuJpegDecoder {
 public:
  /// Throws Fault::device if there is no GPU or nvJPEG cannot use it.
  GpuJpegDecoder() {
    detail::check_decoding(pvm::detail::gpu_of_thread(&device_), "looking for a GPU");
    hardware_ = nvjpegCreateEx(NVJPEG_BACKEND_HARDWARE, nullptr, nullptr, 0, &handle_) ==
                NVJPEG_STATUS_SUCCESS;
    bool made = hardware_ || nvjpegCreateEx(NVJPEG_BACKEND_DEFAULT, nullptr, nullptr, 0,
                                            &handle_) == NVJPEG_STATUS_SUCCESS;
    for (Place& place : places_) {
      made = made && nvjpegJpegStateCreate(handle_, &place.state) == NVJPEG_STATUS_SUCCESS;
      if (made) place.stream = detail::make_decoding_stream();
    }
    if (made) return;
    release();
    throw Error(Fault::device, "nvJPEG cannot be used on this GPU; use --decode cpu");
  }
  ~GpuJpegDecoder() { release(); }
  GpuJpegDecoder(const GpuJpegDecoder&) = delete;
  GpuJpegDecoder& operator=(const GpuJpegDecoder&) = delete;

  /// Whether the GPU has a hardware JPEG decoder, which is used then.
  [[nodiscard]] bool hardware() const noexcept { return hardware_; }

  /// Copies the bytes of `items` to the page-locked memory of `place` (0 or 1) and makes `items`
  /// refer to it: the hardware JPEG decoder reads page-locked memory 1.5 times as fast. Throws
  /// Fault::device.
  void stage(std::span<JpegItem> items, std::size_t place) {
    detail::check_decoding(cudaSetDevice(device_), "choosing the GPU");
    std::size_t bytes = 0;
    for (const JpegItem& item : items) bytes += item.bytes.size();
    std::uint8_t* to = places_.at(place).staged.at_least(bytes, bytes / 4);
    for (JpegItem& item : items) {
      std::copy(item.bytes.begin(), item.bytes.end(), to);
      item.bytes = {to, item.bytes.size()};
      to += item.bytes.size();
    }
  }

  /// Decodes `items`, which were staged at `place`, and launches the making of frames of `shape`.
  /// False if nvJPEG refuses one of them: then there are no frames at all. Throws Fault::device.
  bool start(std::span<const JpegItem> items, std::size_t place, const FrameShape& shape) {
    detail::check_decoding(cudaSetDevice(device_), "choosing the GPU");
    Place& at = places_.at(place);
    at.shape = shape;
    at.count = items.size();
    lay_out(at, items);
    if (!decode(at, items)) {
      (void)cudaStreamSynchronize(at.stream);
      (void)cudaGetLastError();
      return false;
    }
    make_frames(at);
    return true;
  }

  /// Waits for the frames of the batch at `place` and returns them, [items][shape.size()]; valid
  /// until the next `start` at this place. Throws Fault::device.
  std::span<const std::uint8_t> wait(std::size_t place) {
    const Place& at = places_.at(place);
    detail::check_decoding(cudaStreamSynchronize(at.stream), "decoding a batch");
    return {at.pinned.get(), at.count * at.shape.size()};
  }

 private:
  static constexpr std::size_t align = 256;  // of rows, in bytes
  struct Image : nvjpegImage_t {};  // named: nvcc cannot make a vector of a struct without a name
  static_assert(sizeof(Image) == sizeof(nvjpegImage_t));

  struct Place {
    cudaStream_t stream = nullptr;
    nvjpegJpegState_t state = nullptr;
    std::size_t prepared_for = 0;  // the batch size that `state` is initialised for
    FrameShape shape{};            // of the frames of the batch
    std::size_t count = 0;         // pictures of the batch
    std::vector<detail::Planes> planes;
    std::vector<Image> images;  // the same planes, as nvJPEG wants them
    // In device memory: the decoded planes of all pictures, a copy of `planes`, and the frames.
    detail::GpuBytes<detail::FreeDevice> arena, facts, frames;
    // Page-locked: the bytes of the JPEGs, the frames, and a copy of `planes`.
    detail::GpuBytes<detail::FreePinned> staged, pinned, pinned_facts;
  };

  void release() noexcept {
    for (Place& place : places_) {
      if (place.stream != nullptr) (void)cudaStreamSynchronize(place.stream);
      if (place.state != nullptr) (void)nvjpegJpegStateDestroy(place.state);
    }
    if (handle_ != nullptr) (void)nvjpegDestroy(handle_);
    for (Place& place : places_) {
      if (place.stream != nullptr) (void)cudaStreamDestroy(place.stream);
      place.state = nullptr;
      place.stream = nullptr;
    }
    handle_ = nullptr;
  }

  /// Assigns every plane of every picture its address in one block of device memory.
  static void lay_out(Place& at, std::span<const JpegItem> items) {
    at.planes.assign(at.count, {});
    at.images.assign(at.count, {});
    std::vector<std::size_t> starts;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < at.count; ++i) {
      const PlainJpeg& jpeg = items[i].facts;
      detail::Planes& p = at.planes[i];
      p.width = jpeg.width;
      p.height = jpeg.height;
      p.components = jpeg.components;
      p.halved_x = jpeg.halved_x;
      p.halved_y = jpeg.halved_y;
      p.orientation = jpeg.orientation;
      p.chroma_width = (jpeg.width + jpeg.halved_x) >> jpeg.halved_x;
      p.chroma_height = (jpeg.height + jpeg.halved_y) >> jpeg.halved_y;
      for (int c = 0; c < jpeg.components; ++c) {
        const auto width = static_cast<std::size_t>(c == 0 ? p.width : p.chroma_width);
        const auto height = static_cast<std::size_t>(c == 0 ? p.height : p.chroma_height);
        const std::size_t pitch = (width + align - 1) / align * align;
        p.pitch[c] = static_cast<int>(pitch);
        starts.push_back(bytes);
        bytes += pitch * ((height + 15) / 16 * 16);  // decoders may write whole 16-row blocks
      }
    }
    std::uint8_t* const base = at.arena.at_least(bytes);
    auto start = starts.begin();
    for (std::size_t i = 0; i < at.count; ++i) {
      for (int c = 0; c < at.planes[i].components; ++c) {
        at.planes[i].plane[c] = base + *start;
        at.images[i].channel[c] = base + *start++;
        at.images[i].pitch[c] = static_cast<std::size_t>(at.planes[i].pitch[c]);
      }
    }
  }

  /// Has nvJPEG decode the batch into `arena`. False if it refuses.
  bool decode(Place& at, std::span<const JpegItem> items) {
    std::vector<const unsigned char*> data(at.count);
    std::vector<std::size_t> lengths(at.count);
    for (std::size_t i = 0; i < at.count; ++i) {
      data[i] = items[i].bytes.data();
      lengths[i] = items[i].bytes.size();
    }
    if (at.prepared_for != at.count) {
      constexpr int threads = 1;  // CPU threads of nvJPEG, used if there is no hardware decoder
      if (nvjpegDecodeBatchedInitialize(handle_, at.state, static_cast<int>(at.count), threads,
                                        NVJPEG_OUTPUT_YUV) != NVJPEG_STATUS_SUCCESS) {
        return false;
      }
      at.prepared_for = at.count;
    }
    if (nvjpegDecodeBatched(handle_, at.state, data.data(), lengths.data(), at.images.data(),
                            at.stream) == NVJPEG_STATUS_SUCCESS) {
      return true;
    }
    at.prepared_for = 0;
    return false;
  }

  /// Enqueues the kernel that makes the frames and the copy of the frames to page-locked memory.
  static void make_frames(Place& at) {
    const std::size_t facts = at.count * sizeof(detail::Planes);
    auto* const pinned_facts = reinterpret_cast<detail::Planes*>(at.pinned_facts.at_least(facts));
    std::copy(at.planes.begin(), at.planes.end(), pinned_facts);
    auto* const device_facts = reinterpret_cast<detail::Planes*>(at.facts.at_least(facts));
    detail::check_decoding(
        cudaMemcpyAsync(device_facts, pinned_facts, facts, cudaMemcpyHostToDevice, at.stream),
        "copying facts");
    const std::size_t bytes = at.count * at.shape.size();
    std::uint8_t* const frames = at.frames.at_least(bytes);
    detail::check_decoding(
        detail::launch_frames(device_facts, at.count, frames, at.shape, at.stream), "resizing");
    detail::check_decoding(cudaMemcpyAsync(at.pinned.at_least(bytes), frames, bytes,
                                           cudaMemcpyDeviceToHost, at.stream),
                           "copying frames");
  }

  int device_ = 0;
  nvjpegHandle_t handle_ = nullptr;
  bool hardware_ = false;
  std::array<Place, 2> places_;
};

}  // namespace pvm::inline v0::io
