// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The pictures of a zip or a directory, decoded on a GPU by nvJPEG.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/device/gpus.hpp>
#include <pvm/io/gpu/device_bytes.hpp>
#include <pvm/io/gpu/jpeg_decoder.hpp>
#include <pvm/io/image_list.hpp>
#include <pvm/io/jpeg_batches.hpp>
#include <pvm/io/picture_reader.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

/// A picture decoder (see CpuPictureDecoder for its interface) that uses the GPU that was current
/// when it was constructed. Its frames are within 2 grey levels of the CPU's. All files share one
/// nvJPEG decoder for each GPU.
class GpuPictureDecoder {
 public:
  static constexpr const char* id = "GPU ";
  static constexpr const char* stage_name = "decode and resize on the GPU";
  static constexpr std::size_t ahead = 4 * JpegBatches<GpuJpegDecoder>::batch;
  /// Enough for four batches: one whose frames are being made, one being decoded, one that is
  /// ready, and one being read.
  static std::size_t in_work(std::size_t /*threads*/) {
    return 4 * JpegBatches<GpuJpegDecoder>::batch;
  }

  /// Throws Fault::device if no GPU can decode.
  GpuPictureDecoder() : batches_(&of_current_gpu()) {}

  /// Warms the decoder up: nvJPEG takes some tenths of a second to decode its first batch.
  template <class Read>
  void prepare(std::size_t pictures, const Read& read) {
    batches_->warm_up(pictures, read);
  }
  void expect() noexcept { batches_->expect(); }
  template <class Done>
  void decode(std::vector<std::uint8_t>& bytes, const FrameShape& shape,
              std::span<std::uint8_t> pixels, Done done) noexcept {
    batches_->decode(bytes, shape, pixels, std::move(done));
  }

 private:
  /// The decoder of the current GPU, shared by all files. Decoders are never destroyed, because the
  /// CUDA driver may be shut down before the program's last destructors run.
  static JpegBatches<GpuJpegDecoder>& of_current_gpu() {
    static std::mutex mutex;
    static auto* const all = new std::map<int, std::unique_ptr<JpegBatches<GpuJpegDecoder>>>;
    int device = 0;
    detail::check_decoding(pvm::detail::gpu_of_thread(&device), "looking for a GPU");
    const std::lock_guard lock(mutex);
    auto& batches = (*all)[device];
    if (!batches) batches = std::make_unique<JpegBatches<GpuJpegDecoder>>();
    return *batches;
  }

  JpegBatches<GpuJpegDecoder>* batches_;
};

/// Delivers the frames that ImageList<Store> would, in the same order, within 2 grey levels of
/// them. The constructor throws as PictureReader's, and Fault::device if no GPU can decode. Model
/// of FrameSource.
template <FileStore Store>
using GpuPictures = PictureReader<Store, GpuPictureDecoder>;

}  // namespace pvm::inline v0::io
