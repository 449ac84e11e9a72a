// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Work that is captured once and launched as a whole.

#include <cuda_runtime.h>

#include <utility>

#include <pvm/engine/cuda/check.hpp>

namespace pvm::inline v0::detail {

/// A CUDA graph of launches on one stream. What changes from launch to launch has to be on the
/// device: arguments are captured too.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { drop(); }

  /// Captures what work() hands to `stream`, in place of what was captured before.
  template <class Work>
  void capture(cudaStream_t stream, Work&& work) {
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
               "capturing a step");
    cudaGraph_t graph = nullptr;
    try {
      work();
    } catch (...) {  // a stream that went on capturing would refuse even to be waited for
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
