// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The emulated device for the Python module: frozen steps, in place of those of pvm::compiled, and
// device memory for the tests. A library of its own, because it compiles the same headers for
// another CUDA; only what is marked here can be seen from outside.

#include <cstddef>

#include <pvm/infer/gpu/make_forward.hpp>
#include <pvm/infer/gpu_forwards.hpp>

#define PVM_SEEN __attribute__((visibility("default")))

namespace pvm::inline v0 {

PVM_SEEN const infer::GpuForwards* infer::gpu_forwards_in_library() {
  static constexpr GpuForwards all{cuda_available, gpu::of_bytes, gpu::of_weights};
  return &all;
}

}  // namespace pvm::inline v0

extern "C" PVM_SEEN void* pvm_emulated_take(std::size_t bytes) {
  void* at = nullptr;
  (void)cudaMalloc(&at, bytes);
  return at;
}
