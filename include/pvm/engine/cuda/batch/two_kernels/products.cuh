// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The first of the two kernels of a step that is not swept: all products with the current weights
/// (forward.cuh, errors.cuh, outputs.cuh). They are independent of each other, and so its thread
/// blocks do not wait for one another.

#include <pvm/engine/cuda/batch/plan/sizes.hpp>
#include <pvm/engine/cuda/batch/two_kernels/errors.cuh>
#include <pvm/engine/cuda/batch/two_kernels/forward.cuh>
#include <pvm/engine/cuda/batch/two_kernels/outputs.cuh>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>

namespace pvm::inline v0::detail::batch {

/// Grid: (products from number `first` on, slices of the batch). If `advance`, the cursor is copied
/// to where the step's second kernel reads it.
template <class M, int Slice>
__global__ void __launch_bounds__(threads, 2)
    products_kernel(const __grid_constant__ Arguments a, unsigned int first, bool advance) {
  auto* shared = dynamic_shared<unsigned char>();
  __shared__ BlockState state;
  let_next_kernel_start();
  const Product p = a.products[first + blockIdx.x];
  wait_for_previous_kernel();
  if (threadIdx.x == 0) {
    state.cursor = a.step_start->cursor;
    if (advance && blockIdx.x == 0 && blockIdx.y == 0) *a.update_cursor = state.cursor;
  }
  __syncthreads();
  const bool older = p.kind == ProductKind::outputs;  // y of the step before is computed
  if (older && state.cursor.work_pending == 0) return;
  if (threadIdx.x < static_cast<unsigned>(RowArray::count)) {
    state.array_offsets[threadIdx.x] =
        array_offset<M>(a, static_cast<RowArray>(threadIdx.x), state.cursor, older ? 1 : 0, 0);
  }
  __syncthreads();
  switch (p.kind) {
    case ProductKind::forward:
      forward<M, Slice>(a, p, state, shared);
      break;
    case ProductKind::errors:
      errors<M, Slice>(a, p, state, shared);
      break;
    case ProductKind::outputs:
      outputs<M, Slice>(a, p, state, shared);
      break;
  }
}

/// Launches `products_kernel` for a batch of `Batch` sequences, or of a number known at run time
/// (`dynamic`).
template <class M, int Batch>
struct ProductsLauncher {
  int slice;   ///< sequences that a thread block works on
  bool early;  ///< whether the kernel may start while the one before it ends

  template <class What>
  void for_slice(What&& what) const {
    with_slice<M, Batch>(slice, what);
  }
  /// Shared memory of a thread block.
  [[nodiscard]] int shared_bytes() const {
    int bytes = 0;
    for_slice([&]<int Slice>() {
      bytes = product_shared_bytes<M, Slice>() + static_cast<int>(sizeof(BlockState));
    });
    return bytes;
  }
  /// Launches products `first` to `first + count - 1`.
  void operator()(const Arguments& a, unsigned int first, unsigned int count, bool advance,
                  cudaStream_t stream) const {
    for_slice([&]<int Slice>() {
      const dim3 grid(count, static_cast<unsigned int>(a.shape.padded / Slice));
      cuda_check(launch(products_kernel<M, Slice>,
                        {grid, threads, static_cast<std::size_t>(product_shared_bytes<M, Slice>()),
                         stream, early},
                        a, first, advance),
                 "launching the products kernel");
    });
  }
};

}  // namespace pvm::inline v0::detail::batch
