// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the decoders on a GPU share: error checks, streams, and memory that frees itself.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include <pvm/core/error.hpp>

namespace pvm::inline v0::io::detail {

/// Throws Fault::device with a sentence about what was being done if `error` is one, and clears the
/// runtime's last error.
inline void check_decoding(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  throw Error(Fault::device, std::string("decoding on the GPU failed, ") + doing + ": " +
                                 cudaGetErrorString(error) + "; use --decode cpu");
}

/// A stream of the highest priority: otherwise decoding would wait for training, whose kernels keep
/// a GPU busy without a gap. Throws Fault::device.
inline cudaStream_t make_decoding_stream() {
  int least = 0, most = 0;
  check_decoding(cudaDeviceGetStreamPriorityRange(&least, &most), "making a stream");
  cudaStream_t stream = nullptr;
  check_decoding(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, most),
                 "making a stream");
  return stream;
}

struct FreeDevice {
  void operator()(std::uint8_t* p) const noexcept { (void)cudaFree(p); }
};
struct FreePinned {
  void operator()(std::uint8_t* p) const noexcept { (void)cudaFreeHost(p); }
};

/// A buffer that is reallocated when more bytes are needed; its content is lost then. `Free`
/// chooses device memory (FreeDevice) or page-locked host memory (FreePinned).
template <class Free>
class GpuBytes {
 public:
  /// A buffer of at least `bytes` bytes; if it must be reallocated, with `spare` bytes more. Throws
  /// Fault::device if there is no memory.
  std::uint8_t* at_least(std::size_t bytes, std::size_t spare = 0) {
    if (bytes <= size_) return data_.get();
    bytes += spare;
    data_.reset();
    size_ = 0;
    void* fresh = nullptr;
    if constexpr (std::is_same_v<Free, FreeDevice>) {
      check_decoding(cudaMalloc(&fresh, bytes), "taking device memory");
    } else {
      check_decoding(cudaMallocHost(&fresh, bytes), "taking pinned memory");
    }
    data_.reset(static_cast<std::uint8_t*>(fresh));
    size_ = bytes;
    return data_.get();
  }
  [[nodiscard]] std::uint8_t* get() const noexcept { return data_.get(); }

 private:
  std::unique_ptr<std::uint8_t, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace pvm::inline v0::io::detail
