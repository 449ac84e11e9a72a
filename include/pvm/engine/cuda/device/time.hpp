// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Measures for how long a GPU has computed, without waiting for it.

#include <cuda_runtime.h>

#include <array>
#include <cstddef>

#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/imagined.hpp>

namespace pvm::inline v0::detail {

/// Adds up the time between `begin` and `end` of pieces of work on one stream. The times come from
/// CUDA events and are read once these have completed, so that nothing is held up. Not for use
/// while a stream is being captured.
class ComputeTime {
 public:
  ComputeTime() {
    if (imagined_gpu() != nullptr) return;
    for (Piece& piece : pieces_) {
      cuda_check(cudaEventCreate(&piece.begun), "making an event");
      cuda_check(cudaEventCreate(&piece.ended), "making an event");
    }
  }
  ComputeTime(const ComputeTime&) = delete;
  ComputeTime& operator=(const ComputeTime&) = delete;
  ~ComputeTime() {
    for (const Piece& piece : pieces_) {
      if (piece.begun != nullptr) (void)cudaEventDestroy(piece.begun);
      if (piece.ended != nullptr) (void)cudaEventDestroy(piece.ended);
    }
  }

  /// To be called before a piece of work is launched. Waits for the oldest piece if all events are
  /// in use; engines have fewer pieces in flight.
  void begin(cudaStream_t stream) {
    if (count_ == pieces_.size()) {
      cuda_check(cudaEventSynchronize(pieces_[first_].ended), "running steps");
    }
    collect();
    cuda_check(cudaEventRecord(piece(count_).begun, stream), "timing steps");
  }
  /// To be called after the piece has been launched.
  void end(cudaStream_t stream) {
    cuda_check(cudaEventRecord(piece(count_).ended, stream), "timing steps");
    ++count_;
  }

  /// Seconds of all pieces that have finished.
  [[nodiscard]] double seconds() {
    collect();
    return seconds_;
  }

 private:
  struct Piece {
    cudaEvent_t begun = nullptr, ended = nullptr;
  };

  [[nodiscard]] Piece& piece(std::size_t i) { return pieces_[(first_ + i) % pieces_.size()]; }

  /// Adds the times of the pieces that have finished since the last call.
  void collect() {
    while (count_ > 0) {
      const cudaError_t state = cudaEventQuery(piece(0).ended);
      if (state == cudaErrorNotReady) {
        (void)cudaGetLastError();  // not a failure, but CUDA records it as the last error
        return;
      }
      float milliseconds = 0;
      cuda_check(state, "running steps");
      cuda_check(cudaEventElapsedTime(&milliseconds, piece(0).begun, piece(0).ended),
                 "timing steps");
      seconds_ += 1e-3 * static_cast<double>(milliseconds);
      first_ = (first_ + 1) % pieces_.size();
      --count_;
    }
  }

  std::array<Piece, 16> pieces_;  // ring buffer: count_ pieces, from first_ on, are in flight
  std::size_t first_ = 0, count_ = 0;
  double seconds_ = 0;
};

}  // namespace pvm::inline v0::detail
