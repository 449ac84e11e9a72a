// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernels of a scheme, and the order in which they make a step.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/batch/plan/plan.hpp>
#include <pvm/engine/cuda/batch/plan/scheme.hpp>
#include <pvm/engine/cuda/batch/sweep/kernel.cuh>
#include <pvm/engine/cuda/batch/sweep/order.cuh>
#include <pvm/engine/cuda/batch/sweep/outputs.cuh>
#include <pvm/engine/cuda/batch/two_kernels/products.cuh>
#include <pvm/engine/cuda/batch/two_kernels/update.cuh>
#include <pvm/engine/cuda/device/facts.hpp>

namespace pvm::inline v0::detail::batch {

/// Launches the kernels. It holds no state of the run: the kernels find the position of the run in
/// device memory. `stream` is the compute stream in all functions.
template <class M, int Batch, class Rule>
class Kernels {
  /// Only products in 16 bits can be swept.
  static constexpr bool half = sizeof(typename M::Word) == 2;

 public:
  Kernels(const Scheme& scheme, const Plan& plan, const DeviceFacts& device)
      : scheme_(scheme),
        plan_(plan),
        products_launcher_{scheme.shape.slice, device.is_hopper_or_later},
        sweep_launcher_{scheme.shape.padded, device.is_hopper_or_later},
        update_launcher_{128, scheme.listed, device.multiprocessors, device.is_hopper_or_later,
                         plan.columns} {
    const int row = scheme.shape.padded * static_cast<int>(sizeof(typename M::Word));
    update_launcher_.choose_bytes(row, device.shared_bytes);
  }

  /// Throws Error (device) if a thread block cannot have as much shared memory as the kernels need.
  void require_shared_memory(const DeviceFacts& device) const {
    const auto need = static_cast<std::size_t>(
        std::max(products_launcher_.shared_bytes(), update_launcher_.shared_bytes()));
    if (need <= device.shared_bytes) return;
    throw Error(Fault::device, "the batched engine needs " + std::to_string(need >> 10) +
                                   " KiB of shared memory a thread block for this network and "
                                   "learning rule, and " +
                                   device.name + " has " +
                                   std::to_string(device.shared_bytes >> 10) +
                                   "; use the host backend");
  }

  /// One step: all products with W(step), then the update to W(step + 1). A sweep instead updates
  /// W0 with the gradient of the step before and multiplies in the same pass.
  void step(const Arguments& a, cudaStream_t stream) const {
    if (scheme_.swept) return sweep(a, Task::learn, stream);
    products_launcher_(a, 0, all_products(), true, stream);
    update_launcher_(a, Task::learn, stream);
  }
  /// After a sweep: updates W0 with the last step's gradient, which the next sweep would do.
  void update_w0(const Arguments& a, cudaStream_t stream) const {
    sweep(a, Task::update_w0, stream);
  }
  /// Writes the working copies of the current W.
  void write_copies(const Arguments& a, cudaStream_t stream) const {
    if (scheme_.swept) return sweep(a, Task::write_copies, stream);
    update_launcher_(a, Task::write_copies, stream);
  }
  /// Writes W to `a.weights_out`, in the master's order.
  void read(Arguments a, cudaStream_t stream) const {
    if (scheme_.swept) {  // the update kernel does not know the order of a swept W0
      cuda_check(cudaMemcpyAsync(a.weights_out, a.master, a.weight_count * sizeof(float),
                                 cudaMemcpyDeviceToDevice, stream),
                 "copying weights");
      a.master = a.weights_out;
      reorder(a, a.weights_out, false, stream);
    }
    update_launcher_(a, Task::read, stream);
    if (scheme_.swept) reorder(a, a.weights_out, true, stream);
  }
  /// Computes y of the last step. In a sweep, which computes y two steps late and does not store
  /// it, computes y of the last `made` steps (0 to 2).
  void outputs(const Arguments& a, int made, cudaStream_t stream) const {
    if constexpr (half) {
      if (scheme_.swept) {
        const auto tiles = static_cast<unsigned int>(plan_.sweep_starts.back());
        for (int back = 1; back <= made; ++back) {
          make_swept_outputs<M, Batch>(a, back, tiles, stream);
        }
        return;
      }
    }
    const auto first = static_cast<unsigned int>(plan_.first_output);
    products_launcher_(a, first, all_products() - first, false, stream);
  }

 private:
  [[nodiscard]] unsigned int all_products() const {
    return static_cast<unsigned int>(plan_.products.size());
  }
  void sweep(const Arguments& a, Task task, cudaStream_t stream) const {
    if constexpr (half) {
      const auto blocks = static_cast<unsigned int>(plan_.sweep_starts.size() - 1);
      sweep_launcher_(a, task, blocks, stream);
    }
  }

  const Scheme& scheme_;
  const Plan& plan_;
  ProductsLauncher<M, Batch> products_launcher_;
  SweepLauncher<M, Batch> sweep_launcher_;
  UpdateLauncher<M, Rule> update_launcher_;
};

}  // namespace pvm::inline v0::detail::batch
