// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The two streams of a run, and copies between host and device on them.

#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include <pvm/engine/cuda/device/check.hpp>

namespace pvm::inline v0::detail {

/// Steps run on the compute stream; frames are uploaded and converted into rows on the upload
/// stream. `write` and `download` copy on the compute stream and then wait for both streams: when
/// they return, no work is in flight.
class RunStreams {
 public:
  [[nodiscard]] cudaStream_t compute() const noexcept { return compute_.get(); }
  [[nodiscard]] cudaStream_t upload() const noexcept { return upload_.get(); }

  void synchronize() const {
    for (const cudaStream_t stream : {upload(), compute()}) {
      cuda_check(cudaStreamSynchronize(stream), "running steps");
    }
  }
  /// The same without exceptions, for a destructor.
  void stop() const noexcept {
    (void)cudaStreamSynchronize(upload());
    (void)cudaStreamSynchronize(compute());
  }

  template <class T>
  void write(T* to, const std::vector<T>& from) const {
    cuda_check(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice,
                               compute()),
               "writing a state");
    synchronize();
  }
  template <class T>
  [[nodiscard]] std::vector<T> download(const T* from, std::size_t n) const {
    std::vector<T> out(n);
    cuda_check(cudaMemcpyAsync(out.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost, compute()),
               "reading results");
    synchronize();
    return out;
  }

  /// Allocates `to` with the contents of `from`.
  template <class T>
  void allocate(DeviceArray<T>& to, const std::vector<T>& from) const {
    to = DeviceArray<T>(from.size());
    write(to.get(), from);
  }
  /// Allocates `to` with `n` zeros. They are written asynchronously, on the compute stream.
  template <class T>
  void allocate_zeros(DeviceArray<T>& to, std::size_t n) const {
    to = DeviceArray<T>(n);
    if (n > 0) clear(to, "clearing memory");
  }
  /// Sets all bytes of the array to `byte`, asynchronously, on the compute stream.
  template <class T>
  void clear(const DeviceArray<T>& array, const char* doing, int byte = 0) const {
    cuda_check(cudaMemsetAsync(array.get(), byte, array.size() * sizeof(T), compute()), doing);
  }

 private:
  detail::Stream compute_{true};  // high priority: steps go before the conversion of later frames
  detail::Stream upload_;
};

}  // namespace pvm::inline v0::detail
