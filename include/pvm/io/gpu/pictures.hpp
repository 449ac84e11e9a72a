// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The pictures of a zip or a directory, decoded on a GPU.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <pvm/io/gpu/device_bytes.hpp>
#include <pvm/io/gpu/jpeg_decoder.hpp>
#include <pvm/io/image_list.hpp>
#include <pvm/io/jpeg_batches.hpp>
#include <pvm/io/picture_reader.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

/// Makes frames of pictures on the GPU that was current when it was made, within 2 grey levels of
/// the CPU's. All files share one nvJPEG decoder for each GPU. See CpuPictureDecoder.
class GpuPictureDecoder {
 public:
  static constexpr const char* id = "GPU ";
  static constexpr const char* stage_name = "decode and resize on the GPU";
  static constexpr std::size_t ahead = 4 * JpegBatches<GpuJpegDecoder>::batch;
  /// A batch that becomes frames, one that is decoded, one that is ready, and one that is read.
  static std::size_t in_work(std::size_t /*threads*/) {
    return 4 * JpegBatches<GpuJpegDecoder>::batch;
  }

  /// Throws Fault::device where no GPU can decode.
  GpuPictureDecoder() : batches_(&of_current_gpu()) {}

  /// nvJPEG takes some tenths of a second until its first batch is decoded.
  template <class Read>
  void prepare(std::size_t pictures, const Read& read) {
    batches_->try_out(pictures, read);
  }
  void expect() noexcept { batches_->expect(); }
  template <class Done>
  void decode(std::vector<std::uint8_t>& bytes, const FrameShape& shape,
              std::span<std::uint8_t> pixels, Done done) noexcept {
    batches_->decode(bytes, shape, pixels, std::move(done));
  }

 private:
  /// They are never given back: the driver may be gone before the program's last destructors.
  static JpegBatches<GpuJpegDecoder>& of_current_gpu() {
    static std::mutex mutex;
    static auto* const all = new std::map<int, std::unique_ptr<JpegBatches<GpuJpegDecoder>>>;
    int device = 0;
    detail::check_decoding(cudaGetDevice(&device), "looking for a GPU");
    const std::lock_guard lock(mutex);
    auto& batches = (*all)[device];
    if (!batches) batches = std::make_unique<JpegBatches<GpuJpegDecoder>>();
    return *batches;
  }

  JpegBatches<GpuJpegDecoder>* batches_;
};

/// Hands on what ImageList<Store> would, in the same order, within 2 grey levels of it. Model of
/// FrameSource.
template <FileStore Store>
using GpuPictures = PictureReader<Store, GpuPictureDecoder>;

}  // namespace pvm::inline v0::io
