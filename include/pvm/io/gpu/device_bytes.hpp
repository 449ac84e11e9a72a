// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the decoders on a GPU share: failures in a sentence, and memory that frees itself.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include <pvm/core/error.hpp>

namespace pvm::inline v0::io::detail {

inline void check_decoding(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  throw Error(Fault::device, std::string("decoding on the GPU failed, ") + doing + ": " +
                                 cudaGetErrorString(error) + "; use --decode cpu");
}

/// A stream whose kernels go before those of training, which keep a GPU busy without a gap.
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

/// Bytes that grow as they are asked for, with so many to spare; what was in them is lost.
template <class Free>
class GpuBytes {
 public:
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
