// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A store of decoded frames in ordinary memory, for engines whose steps read them there.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/memory.hpp>

namespace pvm::inline v0 {

/// Frames of one size, by index. It grows in chunks, so that frames never move. Memory into which
/// no frame was put yet is not initialised, so the system only reserves it.
class FrameStore {
 public:
  explicit FrameStore(std::size_t frame_bytes) : frame_bytes_(frame_bytes) {}

  /// See Engine::reserve_frames. `share_of_free_memory` means a quarter of the free memory.
  std::size_t reserve(std::size_t budget, std::size_t frames) {
    if (frames == 0 || budget == 0) {
      chunks_.clear();
      budget_ = 0;
      return 0;
    }
    if (budget_ == 0) budget_ = budget == share_of_free_memory ? available_memory() / 4 : budget;
    const std::size_t most = std::min(budget_ / frame_bytes_, static_cast<std::size_t>(not_stored));
    most_ = most;
    const std::size_t wanted = std::min(frames, most);
    try {
      while (chunks_.size() * per_chunk() < wanted) {
        chunks_.emplace_back(new std::uint8_t[per_chunk() * frame_bytes_]);
      }
    } catch (const std::bad_alloc&) {  // the chunks that there are suffice
    }
    return capacity();
  }

  [[nodiscard]] std::size_t capacity() const noexcept {
    return std::min(chunks_.size() * per_chunk(), most_);
  }

  void put(std::size_t first, std::span<const std::uint8_t> pixels) noexcept {
    for (std::size_t i = 0; i * frame_bytes_ < pixels.size(); ++i) {
      std::copy_n(pixels.data() + i * frame_bytes_, frame_bytes_, at(first + i));
    }
  }
  void get(std::size_t index, std::span<std::uint8_t> pixels) const noexcept {
    std::copy_n(frame(index), frame_bytes_, pixels.data());
  }
  /// Copies those frames of a block that are stored into its pixels, for engines that read only the
  /// pixels.
  void fill(const FrameBlock& block) const noexcept {
    for (std::size_t row = 0; row < block.stored.size(); ++row) {
      if (block.stored[row] == not_stored) continue;
      get(block.stored[row], block.pixels.subspan(row * frame_bytes_, frame_bytes_));
    }
  }
  [[nodiscard]] const std::uint8_t* frame(std::size_t index) const noexcept {
    return chunks_[index / per_chunk()].get() + index % per_chunk() * frame_bytes_;
  }

 private:
  [[nodiscard]] std::size_t per_chunk() const noexcept {
    constexpr std::size_t chunk_bytes = std::size_t{8} << 20;
    return std::max<std::size_t>(1, chunk_bytes / frame_bytes_);
  }
  [[nodiscard]] std::uint8_t* at(std::size_t index) noexcept {
    return chunks_[index / per_chunk()].get() + index % per_chunk() * frame_bytes_;
  }

  std::size_t frame_bytes_;
  std::size_t budget_ = 0;  // bytes; 0 while nothing is reserved: the next reserve() sets it
  std::size_t most_ = 0;    // frames that the budget allows
  std::vector<std::unique_ptr<std::uint8_t[]>> chunks_;
};

}  // namespace pvm::inline v0
