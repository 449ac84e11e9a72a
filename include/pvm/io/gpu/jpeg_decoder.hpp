// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Decodes many JPEGs at a time on an NVIDIA GPU with nvJPEG. For files that nvcc compiles, in
/// programs that link nvJPEG and say so by PVM_NVJPEG.

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
#include <pvm/io/gpu/device_bytes.hpp>
#include <pvm/io/gpu/picture_kernel.cuh>
#include <pvm/io/jpeg_batches.hpp>
#include <pvm/io/jpeg_header.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

/// Decodes batches of JPEGs on the device that was current when it was made. There are two places
/// for a batch. Of its functions one runs at a time, but that while one of the places is decoded
/// the other may be staged or waited for.
class GpuJpegDecoder {
 public:
  /// Throws Fault::device where there is no GPU or nvJPEG cannot use it.
  GpuJpegDecoder() {
    detail::check_decoding(cudaGetDevice(&device_), "looking for a GPU");
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

  /// Whether the GPU has a JPEG engine of its own.
  [[nodiscard]] bool hardware() const noexcept { return hardware_; }

  /// Copies the bytes of `items` to page-locked memory of a place, 0 or 1, and has `items` refer to
  /// it: from there the GPU's JPEG engine reads them half as fast again. Throws Fault::device.
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

  /// Decodes `items`, staged at `place`, and begins to make frames of `shape`. False where nvJPEG
  /// refuses one of them: then none is decoded. Throws Fault::device.
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

  /// The frames of a place's batch, [items][shape.size()]; valid until it is started again. Throws
  /// Fault::device.
  std::span<const std::uint8_t> wait(std::size_t place) {
    const Place& at = places_.at(place);
    detail::check_decoding(cudaStreamSynchronize(at.stream), "decoding a batch");
    return {at.pinned.get(), at.count * at.shape.size()};
  }

 private:
  static constexpr std::size_t align = 256;
  struct Image : nvjpegImage_t {};  // named: nvcc cannot make a vector of a struct without a name
  static_assert(sizeof(Image) == sizeof(nvjpegImage_t));

  struct Place {
    cudaStream_t stream = nullptr;
    nvjpegJpegState_t state = nullptr;
    std::size_t prepared_for = 0;  // items
    FrameShape shape{};
    std::size_t count = 0;
    std::vector<detail::Planes> planes;
    std::vector<Image> images;
    detail::GpuBytes<detail::FreeDevice> arena, facts, frames;
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

  /// Gives every plane of every picture its place in one piece of memory.
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

  bool decode(Place& at, std::span<const JpegItem> items) {
    std::vector<const unsigned char*> data(at.count);
    std::vector<std::size_t> lengths(at.count);
    for (std::size_t i = 0; i < at.count; ++i) {
      data[i] = items[i].bytes.data();
      lengths[i] = items[i].bytes.size();
    }
    if (at.prepared_for != at.count) {
      constexpr int threads = 1;  // of nvJPEG's own, where there is no engine
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
