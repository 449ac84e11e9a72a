// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// For how long a GPU has computed, without waiting for it.

#include <cuda_runtime.h>

#include <array>
#include <cstddef>

#include <pvm/engine/cuda/check.hpp>

namespace pvm::inline v0::detail {

/// Adds up the time between `begin` and `end` of pieces of work on one stream. The times are read
/// from events of the GPU once it has passed them: nothing is held up. Not for captured streams.
class ComputeTime {
 public:
  ComputeTime() {
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

  /// Before work is handed over. Engines have fewer pieces on their way than there are events; if
  /// not, this waits for the oldest.
  void begin(cudaStream_t stream) {
    if (count_ == pieces_.size()) {
      cuda_check(cudaEventSynchronize(pieces_[first_].ended), "running steps");
    }
    collect();
    cuda_check(cudaEventRecord(piece(count_).begun, stream), "timing steps");
  }
  /// Behind it.
  void end(cudaStream_t stream) {
    cuda_check(cudaEventRecord(piece(count_).ended, stream), "timing steps");
    ++count_;
  }

  /// Seconds of all pieces that have ended.
  [[nodiscard]] double seconds() {
    collect();
    return seconds_;
  }

 private:
  struct Piece {
    cudaEvent_t begun = nullptr, ended = nullptr;
  };

  [[nodiscard]] Piece& piece(std::size_t i) { return pieces_[(first_ + i) % pieces_.size()]; }

  /// Takes in the pieces that have ended since it was last called.
  void collect() {
    while (count_ > 0) {
      const cudaError_t state = cudaEventQuery(piece(0).ended);
      if (state == cudaErrorNotReady) {
        (void)cudaGetLastError();  // no failure, but kept like one
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

  std::array<Piece, 16> pieces_;  // a ring: count_ of them, from first_ on, are under way
  std::size_t first_ = 0, count_ = 0;
  double seconds_ = 0;
};

}  // namespace pvm::inline v0::detail
