// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The two streams of a run, and copies between host and device on them.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <pvm/core/large_vector.hpp>
#include <pvm/engine/cuda/device/check.hpp>

namespace pvm::inline v0::detail {

/// Steps run on the compute stream; frames are uploaded and converted into rows on the upload
/// stream. `write` and `download` copy on the compute stream and then wait for both streams: when
/// they return, no work is in flight.
class RunStreams {
 public:
  /// `urgent_steps`: the compute stream has the highest priority, so that steps go before the
  /// conversion of later frames.
  explicit RunStreams(bool urgent_steps) : compute_(urgent_steps) {}

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
  void write(const DeviceArray<T>& to, const std::vector<T>& from) const {
    write(to.get(), from);
  }
  template <class T>
  [[nodiscard]] std::vector<T> download(const T* from, std::size_t n) const {
    std::vector<T> out = large_vector<T>(n);
    cuda_check(cudaMemcpyAsync(out.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost, compute()),
               "reading results");
    synchronize();
    return out;
  }

  template <class T>
  [[nodiscard]] std::vector<T> download(const DeviceArray<T>& from) const {
    return download(from.get(), from.size());
  }
  /// Copies between arrays of one size, asynchronously, on the compute stream.
  template <class T>
  void copy(const DeviceArray<T>& to, const DeviceArray<T>& from) const {
    cuda_check(cudaMemcpyAsync(to.get(), from.get(), from.size() * sizeof(T),
                               cudaMemcpyDeviceToDevice, compute()),
               "copying a state");
  }

  /// Allocates `to` with the contents of `from`, and one element at least.
  template <class T>
  void allocate(DeviceArray<T>& to, const std::vector<T>& from) const {
    to = DeviceArray<T>(std::max<std::size_t>(1, from.size()));
    write(to.get(), from);
  }
  /// Allocates `to` with `n` zeros. They are written asynchronously, on the compute stream.
  template <class T>
  void allocate_zeros(DeviceArray<T>& to, std::size_t n) const {
    to = DeviceArray<T>(n);
    if (n > 0) clear(to);
  }
  /// Sets all bytes of the array to `byte`, asynchronously, on the compute stream.
  template <class T>
  void clear(const DeviceArray<T>& array, const char* doing = "clearing device memory",
             int byte = 0) const {
    cuda_check(cudaMemsetAsync(array.get(), byte, array.size() * sizeof(T), compute()), doing);
  }

 private:
  Stream compute_, upload_;
};

}  // namespace pvm::inline v0::detail
