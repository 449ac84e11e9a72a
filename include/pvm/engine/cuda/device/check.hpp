// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Converts CUDA's status codes into the library's exceptions; owners of device memory, pinned
/// memory, streams and events; and a test whether there is a GPU at all.

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <utility>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/imagined.hpp>

namespace pvm::inline v0::detail {

/// Whether a process cannot use the GPU any more after this error.
inline bool loses_gpu(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

/// One sentence for a CUDA failure: what was being done, the error, and what to do about it.
inline std::string cuda_sentence(cudaError_t error, const char* doing) {
  const std::string what = std::string("CUDA, ") + doing + ": ";
  switch (error) {
    case cudaErrorNoDevice:
      return what + "no NVIDIA GPU is visible; use the host backend or check CUDA_VISIBLE_DEVICES";
    case cudaErrorInsufficientDriver:
      return what +
             "the NVIDIA driver is missing or too old for this program; install a newer one"
             " or use the host backend";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return what +
             "this program has no kernels for this GPU; build it with the GPU's"
             " architecture (CMAKE_CUDA_ARCHITECTURES) or use the host backend";
    case cudaErrorMemoryAllocation:
      return what + "out of device memory; use a smaller model or batch, or free the GPU";
    default:
      return what + cudaGetErrorName(error) + " (" + cudaGetErrorString(error) + "); " +
             (loses_gpu(error)
                  ? "the GPU is lost to this process, restart it from the last checkpoint"
                  : "use the host backend, and please report it if other programs can use the "
                    "GPU");
  }
}

/// Throws Error (memory or device) unless `error` is cudaSuccess. `doing`: what was being done.
inline void cuda_check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // clears the error, or a later call would report it
  const bool memory = error == cudaErrorMemoryAllocation;
  throw Error(memory ? Fault::memory : Fault::device, cuda_sentence(error, doing));
}

/// Owns `count` elements of device memory, uninitialised.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t count) : count_(count) {
    if (count > 0) cuda_check(cudaMalloc(&data_, count * sizeof(T)), "taking device memory");
  }
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~DeviceArray() {
    if (data_ != nullptr) (void)cudaFree(data_);
  }

  [[nodiscard]] T* get() const noexcept { return static_cast<T*>(data_); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  void* data_ = nullptr;
  std::size_t count_ = 0;
};

/// Owns page-locked host memory.
class PinnedBytes {
 public:
  PinnedBytes() = default;
  explicit PinnedBytes(std::size_t bytes) {
    cuda_check(cudaMallocHost(&data_, bytes > 0 ? bytes : 1), "taking pinned host memory");
  }
  PinnedBytes(PinnedBytes&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  PinnedBytes& operator=(PinnedBytes&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~PinnedBytes() {
    if (data_ != nullptr) (void)cudaFreeHost(data_);
  }
  [[nodiscard]] unsigned char* get() const noexcept { return static_cast<unsigned char*>(data_); }

 private:
  void* data_ = nullptr;
};

/// A stream that does not synchronise with the default stream.
class Stream {
 public:
  /// `urgent`: with the highest priority, so that its thread blocks are scheduled first.
  explicit Stream(bool urgent = false) {
    if (imagined_gpu() != nullptr) return;
    int least = 0, greatest = 0;
    cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
    cuda_check(
        cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, urgent ? greatest : least),
        "making a stream");
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Whether `status`, the answer of a stream or an event, says that its work has finished.
inline bool has_finished(cudaError_t status, const char* doing) {
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();  // not a failure, but CUDA records it as the last error
    return false;
  }
  cuda_check(status, doing);
  return true;
}
/// Whether all work in `stream` has finished.
inline bool is_idle(cudaStream_t stream) {
  return has_finished(cudaStreamQuery(stream), "asking whether steps are running");
}
/// Whether all work before `event` has finished. True if it was never recorded.
inline bool is_over(cudaEvent_t event) {
  return has_finished(cudaEventQuery(event), "asking whether an upload has ended");
}

/// An event without timing.
class Event {
 public:
  Event() {
    if (imagined_gpu() != nullptr) return;
    cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
  }
  [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace pvm::inline v0::detail

namespace pvm::inline v0 {

/// Whether there is a GPU that this program can run on. If not, `why` (if given) receives the
/// reason as a sentence. Never throws.
inline bool cuda_available(std::string* why = nullptr) {
  int devices = 0;
  cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices == 0) error = cudaErrorNoDevice;
  if (error == cudaSuccess) error = cudaFree(nullptr);  // creates the context, or fails
  if (error == cudaSuccess) return true;
  (void)cudaGetLastError();
  if (why != nullptr) *why = detail::cuda_sentence(error, "looking for a GPU");
  return false;
}

}  // namespace pvm::inline v0
