// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Replaces the library's instructions/shared_memory.cuh on the emulated device.

#include <cuda_runtime.h>

namespace pvm::inline v0::detail {

template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(emulated_cuda::block().shared());
}

inline void fence_async_proxy() {}

inline unsigned char* aligned_dynamic_shared() { return dynamic_shared<unsigned char>(); }

}  // namespace pvm::inline v0::detail
