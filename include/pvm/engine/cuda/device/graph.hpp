// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Work on a stream that is captured once and then launched as a whole.

#include <cuda_runtime.h>

#include <utility>

#include <pvm/engine/cuda/device/check.hpp>

namespace pvm::inline v0::detail {

/// A CUDA graph of launches on one stream. Kernel arguments are captured by value: whatever changes
/// from launch to launch must be in device memory.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { drop(); }

  /// Captures what work() launches on `stream`, and replaces what was captured before.
  template <class Work>
  void capture(cudaStream_t stream, Work&& work) {
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
               "capturing a step");
    cudaGraph_t graph = nullptr;
    try {
      work();
    } catch (...) {  // end the capture: a stream that is capturing cannot even be waited for
      if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) (void)cudaGraphDestroy(graph);
      (void)cudaGetLastError();
      throw;
    }
    cuda_check(cudaStreamEndCapture(stream, &graph), "capturing a step");
    drop();
    const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
    (void)cudaGraphDestroy(graph);
    cuda_check(made, "making a graph");
    cuda_check(cudaGraphUpload(graph_, stream), "uploading a graph");
  }
  void launch(cudaStream_t stream) const {
    cuda_check(cudaGraphLaunch(graph_, stream), "launching a graph");
  }

 private:
  void drop() noexcept {
    if (graph_ != nullptr) (void)cudaGraphExecDestroy(std::exchange(graph_, nullptr));
  }

  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace pvm::inline v0::detail
