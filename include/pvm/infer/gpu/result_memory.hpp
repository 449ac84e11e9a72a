// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Device memory for results that a program keeps as long as it likes.

#include <cuda_runtime.h>

#include <cstddef>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/devices.hpp>

namespace pvm::inline v0::infer::gpu {

/// Takes memory from CUDA once, and uses it again for later results: CUDA's own functions for that
/// wait for the whole GPU. It lives as long as any of its results does. Any thread may use it.
class ResultMemory : public std::enable_shared_from_this<ResultMemory> {
 public:
  explicit ResultMemory(int device) : device_(device) {}

  /// Room for `count` floats, until the last copy of the pointer is gone. Throws Error (memory).
  std::shared_ptr<float> take(std::size_t count) {
    const detail::OnDevice on(device_);
    std::shared_ptr<Piece> piece = free_piece(count);
    if (!piece) piece = std::make_shared<Piece>(count);
    return {piece->values.get(),
            [owner = shared_from_this(), piece](float*) { owner->give_back(piece); }};
  }

 private:
  struct Piece {
    explicit Piece(std::size_t count) : values(count) {}
    detail::DeviceArray<float> values;
    detail::Event released;
  };

  /// The piece of that size that was given back first, if nothing reads it any more.
  std::shared_ptr<Piece> free_piece(std::size_t count) {
    const std::scoped_lock lock(mutex_);
    auto& pieces = free_[count];
    if (pieces.empty() || !detail::is_over(pieces.front()->released.get())) return nullptr;
    auto piece = std::move(pieces.front());
    pieces.pop_front();
    return piece;
  }

  /// What a program did with the values on the legacy default stream may still be running.
  void give_back(const std::shared_ptr<Piece>& piece) noexcept {
    try {
      const detail::OnDevice on(device_);
      detail::cuda_check(cudaEventRecord(piece->released.get(), nullptr), "noting a reader's end");
      const std::scoped_lock lock(mutex_);
      free_[piece->values.size()].push_back(piece);
    } catch (const std::exception&) {  // then CUDA gets it back, which waits for all readers
    }
  }

  int device_;
  std::mutex mutex_;
  std::map<std::size_t, std::deque<std::shared_ptr<Piece>>> free_;  // by their number of floats
};

}  // namespace pvm::inline v0::infer::gpu
