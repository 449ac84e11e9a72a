// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Device memory that several processes of a host use: one of them has it, and the others open it.

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <utility>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/check.hpp>

namespace pvm::inline v0::detail {

/// `count` elements, rounded up such that their allocation shares its pages with no other one: what
/// is opened is whole pages, and begins where they do.
template <class T>
constexpr std::size_t in_whole_pages(std::size_t count) {
  constexpr std::size_t page = (std::size_t{2} << 20) / sizeof(T);
  return (count + page - 1) / page * page;
}

/// By which another process opens `memory`, of a whole number of pages.
template <class T>
cudaIpcMemHandle_t handle_of(const DeviceArray<T>& memory) {
  cudaIpcMemHandle_t handle{};
  cuda_check(cudaIpcGetMemHandle(&handle, memory.get()), "lending memory to another process");
  return handle;
}

/// Memory of another process, open on the current GPU while this object lives. Must be destroyed
/// before the other process frees the memory.
template <class T>
class OpenedMemory {
 public:
  OpenedMemory() = default;
  explicit OpenedMemory(const cudaIpcMemHandle_t& handle) {
    const cudaError_t fault = cudaIpcOpenMemHandle(&data_, handle, cudaIpcMemLazyEnablePeerAccess);
    if (fault == cudaSuccess) return;
    (void)cudaGetLastError();
    throw Error(Fault::device,
                std::string("the memory of another process's GPU cannot be opened (") +
                    cudaGetErrorName(fault) +
                    "); containers of one host must share its IPC and PID namespaces");
  }
  OpenedMemory(OpenedMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  OpenedMemory& operator=(OpenedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~OpenedMemory() {
    if (data_ != nullptr) (void)cudaIpcCloseMemHandle(data_);
  }

  [[nodiscard]] T* get() const noexcept { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace pvm::inline v0::detail
