// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A store of decoded frames in device memory, from which steps read them without an upload.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/memory.hpp>
#include <pvm/engine/device_plan.hpp>
#include <pvm/engine/engine.hpp>

namespace pvm::inline v0::detail {

/// Frames of one size, by index. Frames for which device memory has no room are stored in pinned
/// host memory and uploaded with the blocks that use them. The store grows in chunks, so that
/// frames never move.
class DeviceFrameStore {
 public:
  /// Copies go through `stream`.
  DeviceFrameStore(std::size_t frame_bytes, cudaStream_t stream)
      : frame_bytes_(frame_bytes), stream_(stream) {}

  /// See Engine. `share_of_free_memory` means half of the free device memory.
  std::size_t reserve(std::size_t budget, std::size_t frames) {
    if (frames == 0 || budget == 0) {
      chunks_.clear();
      capacity_ = stored_end_ = budget_ = most_ = 0;
      return 0;
    }
    if (budget_ == 0) {
      budget_ = budget == share_of_free_memory ? free_memory() / 2 : budget;
      most_ = std::min(budget_ / frame_bytes_, static_cast<std::size_t>(not_stored));
    }
    const std::size_t wanted = std::min(frames, most_);
    while (capacity_ < wanted && grow()) {
    }
    return capacity_;
  }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// Bytes of device memory that it has.
  [[nodiscard]] std::size_t device_bytes() const noexcept {
    std::size_t sum = 0;
    for (const Chunk& chunk : chunks_) sum += chunk.device.size();
    return sum;
  }
  /// Whether the index may have a frame already, which steps may be reading.
  [[nodiscard]] bool holds(std::size_t index) const noexcept { return index < stored_end_; }

  void put(std::size_t first, std::span<const std::uint8_t> pixels) {
    const std::size_t end = first + pixels.size() / frame_bytes_;
    for (std::size_t i = first; i < end;) {
      const std::size_t together = std::min(end - i, per_chunk() - i % per_chunk());
      copy(at(i), pixels.data() + (i - first) * frame_bytes_, cudaMemcpyDefault, together);
      i += together;
    }
    wait();
    stored_end_ = std::max(stored_end_, end);
  }
  void get(std::size_t index, std::span<std::uint8_t> pixels) const {
    copy(pixels.data(), at(index), cudaMemcpyDefault);
    wait();
  }

  /// Writes to `addresses`, for each of the first `rows` frames of the block, its device address:
  /// in this store if its frame is in device memory here, else in `area`, [rows][frame_bytes] of
  /// device memory, to which this function uploads it (asynchronously).
  void locate_or_upload(const FrameBlock& block, std::size_t rows, std::uint8_t* area,
                        const std::uint8_t** addresses) const {
    std::size_t first = 0, end = 0;  // consecutive rows that are to be uploaded in one copy
    const auto send = [&] {
      if (first == end) return;
      copy(area + first * frame_bytes_, block.pixels.data() + first * frame_bytes_,
           cudaMemcpyHostToDevice, end - first);
    };
    for (std::size_t row = 0; row < rows; ++row) {
      const bool stored = !block.stored.empty() && block.stored[row] != not_stored;
      const std::uint8_t* frame = stored ? at(block.stored[row]) : nullptr;
      if (stored && on_device(block.stored[row])) {
        addresses[row] = frame;
        continue;
      }
      if (stored) std::copy_n(frame, frame_bytes_, block.pixels.data() + row * frame_bytes_);
      addresses[row] = area + row * frame_bytes_;
      if (end != row) {
        send();
        first = row;
      }
      end = row + 1;
    }
    send();
  }

 private:
  /// Device memory that is left free for others.
  static constexpr std::size_t spare_bytes = std::size_t{256} << 20;

  struct Chunk {
    DeviceArray<std::uint8_t> device;
    PinnedBytes host;

    [[nodiscard]] std::uint8_t* get() const noexcept {
      return device.size() > 0 ? device.get() : host.get();
    }
  };

  [[nodiscard]] std::size_t per_chunk() const noexcept {
    return std::max<std::size_t>(1, frame_piece_bytes / frame_bytes_);
  }
  /// Adds a chunk. Returns false if neither device nor host memory is left.
  bool grow() {
    const std::size_t frames = std::min(per_chunk(), most_ - capacity_);
    const std::size_t bytes = frames * frame_bytes_;
    try {
      Chunk chunk;
      if (free_memory() >= bytes + spare_bytes) {
        chunk.device = DeviceArray<std::uint8_t>(bytes);
      } else {
        chunk.host = PinnedBytes(bytes);
      }
      chunks_.push_back(std::move(chunk));
    } catch (const Error&) {  // the store stays as large as it is
      return false;
    }
    capacity_ += frames;
    return true;
  }

  [[nodiscard]] std::uint8_t* at(std::size_t index) const noexcept {
    return chunks_[index / per_chunk()].get() + index % per_chunk() * frame_bytes_;
  }
  [[nodiscard]] bool on_device(std::size_t index) const noexcept {
    return chunks_[index / per_chunk()].device.size() > 0;
  }
  void copy(void* to, const void* from, cudaMemcpyKind kind, std::size_t frames = 1) const {
    cuda_check(cudaMemcpyAsync(to, from, frames * frame_bytes_, kind, stream_), "moving frames");
  }
  void wait() const { cuda_check(cudaStreamSynchronize(stream_), "moving frames"); }

  std::size_t frame_bytes_;
  cudaStream_t stream_;
  std::size_t budget_ = 0;      // bytes; 0 until the first `reserve`
  std::size_t most_ = 0;        // most frames within the budget
  std::size_t capacity_ = 0;    // frames there is room for
  std::size_t stored_end_ = 0;  // end of the indices that have been stored
  std::vector<Chunk> chunks_;
};

}  // namespace pvm::inline v0::detail
