// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The way of blocks of frames to the device.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/run/frame_store.hpp>
#include <pvm/engine/cuda/run/streams.hpp>
#include <pvm/engine/engine.hpp>

namespace pvm::inline v0::detail {

/// How much is staged.
struct StagingSizes {
  int slots = 0;           ///< blocks that are staged at a time
  int block_steps = 0;     ///< most steps of a block
  std::size_t batch = 1;   ///< sequences
  std::size_t frame = 0;   ///< values of a frame
  std::size_t index = 0;   ///< words that tell which table a step uses, of a block
  std::size_t tables = 0;  ///< floats of rates or coefficients, of a block

  /// Frames of a block, at most.
  [[nodiscard]] std::size_t frames() const { return static_cast<std::size_t>(block_steps) * batch; }
  /// Bytes of device memory. Memory for frames as floats is not included: it is allocated when the
  /// first such frames are uploaded.
  [[nodiscard]] std::size_t bytes() const {
    return frame_bytes() + static_cast<std::size_t>(slots) * 4 * (index + tables);
  }
  /// Those of them that are for frames.
  [[nodiscard]] std::size_t frame_bytes() const {
    return static_cast<std::size_t>(slots) * frames() * (frame + 1 + sizeof(void*));
  }
};

/// An array of every staged block: [slots][each] in pinned host memory, which the caller fills, and
/// the same in device memory.
template <class T>
class StagedArray {
 public:
  StagedArray() = default;
  /// The device memory is zeros. They are written asynchronously, on the compute stream.
  StagedArray(int slots, std::size_t each, const RunStreams& streams)
      : each_(each), host_(static_cast<std::size_t>(slots) * each * sizeof(T)) {
    streams.allocate_zeros(device_, static_cast<std::size_t>(slots) * each);
  }

  [[nodiscard]] T* host(std::size_t slot) const {
    return reinterpret_cast<T*>(host_.get()) + slot * each_;
  }
  [[nodiscard]] T* device(std::size_t slot = 0) const { return device_.get() + slot * each_; }
  /// Uploads `n` elements of a slot, from its element `first` on.
  void send(std::size_t slot, std::size_t first, std::size_t n, cudaStream_t stream) const {
    cuda_check(cudaMemcpyAsync(device(slot) + first, host(slot) + first, n * sizeof(T),
                               cudaMemcpyHostToDevice, stream),
               "uploading frames");
  }

 private:
  std::size_t each_ = 0;
  PinnedBytes host_;
  DeviceArray<T> device_;
};

/// A ring buffer of staging slots, and the store of frames. The calls for a block are: `stage`,
/// after which the caller fills the block, `index()` and `tables()`; `open`; then, for the whole
/// block or for each part of it, `send_frames` and the like, `end_upload`, `begin_steps`, the
/// launches of the steps and `end_steps`; finally `close`.
class Staging {
 public:
  Staging(std::size_t frame_size, const RunStreams& streams)
      : streams_(streams), store_(frame_size, streams.upload()) {}

  void allocate(const StagingSizes& sizes) {
    sizes_ = sizes;
    pixels_ = {sizes.slots, sizes.frames() * sizes.frame, streams_};
    addresses_ = {sizes.slots, sizes.frames(), streams_};
    scored_ = {sizes.slots, sizes.frames(), streams_};
    index_ = {sizes.slots, sizes.index, streams_};
    tables_ = {sizes.slots, sizes.tables, streams_};
    events_ = std::vector<Events>(static_cast<std::size_t>(sizes.slots));
  }
  [[nodiscard]] const StagingSizes& sizes() const noexcept { return sizes_; }
  [[nodiscard]] DeviceFrameStore& store() noexcept { return store_; }
  [[nodiscard]] const DeviceFrameStore& store() const noexcept { return store_; }

  /// Whether `stage` does not wait.
  [[nodiscard]] bool is_free() const { return is_over(events().uploaded.get()); }
  /// Room for a block of `steps` steps, in the current slot. Waits until the slot's last block has
  /// been uploaded; the memory still holds its contents.
  [[nodiscard]] FrameBlock stage(int steps) {
    if (steps < 1 || steps > sizes_.block_steps) {
      throw Error(Fault::usage, "a block of " + std::to_string(steps) +
                                    " steps is impossible; allowed: 1 to " +
                                    std::to_string(sizes_.block_steps));
    }
    cuda_check(cudaEventSynchronize(events().uploaded.get()), "waiting for an upload");
    const std::size_t frames = rows(steps);
    stored_.assign(store_.capacity() > 0 ? frames : 0, not_stored);
    return {steps,
            {pixels_.host(slot()), frames * sizes_.frame},
            {scored_.host(slot()), frames},
            {},
            stored_};
  }

  /// The number of blocks that are closed, and the current slot.
  [[nodiscard]] std::uint64_t blocks() const noexcept { return blocks_; }
  [[nodiscard]] std::size_t slot() const noexcept { return blocks_ % events_.size(); }
  /// What the caller fills besides the block, in the current slot.
  [[nodiscard]] std::uint32_t* index() const { return index_.host(slot()); }
  [[nodiscard]] float* tables() const { return tables_.host(slot()); }

  /// The arrays in device memory: those of slot 0, behind which those of the other slots follow.
  [[nodiscard]] const std::uint8_t* const* device_frames() const { return addresses_.device(); }
  [[nodiscard]] const float* device_floats() const { return floats_.get(); }
  [[nodiscard]] const std::uint8_t* device_scored() const { return scored_.device(); }
  [[nodiscard]] const std::uint32_t* device_index() const { return index_.device(); }
  [[nodiscard]] const float* device_tables() const { return tables_.device(); }

  /// Makes the upload stream wait until the steps of the slot's last block have ended.
  void open() const {
    cuda_check(cudaStreamWaitEvent(streams_.upload(), events().used.get(), 0),
               "ordering an upload");
  }
  /// Allocates memory for frames as floats, before the first block of these is uploaded. Returns
  /// whether it has done so.
  bool make_room_for_floats() {
    if (floats_.size() != 0) return false;
    floats_ =
        DeviceArray<float>(static_cast<std::size_t>(sizes_.slots) * sizes_.frames() * sizes_.frame);
    return true;
  }
  /// Uploads the frames of `block`, and which of them are scored. `first`: the step of the staged
  /// block at which `block`, a part of it, begins. For frames as floats, make_room_for_floats()
  /// must have been called; the function waits for their upload, because the caller may free their
  /// memory as soon as `run` returns.
  void send_frames(const FrameBlock& block, int first = 0) const {
    const std::size_t at = rows(first), frames = rows(block.steps);
    if (block.squeezed.empty()) {
      store_.locate_or_upload(block, frames, pixels_.device(slot()) + at * sizes_.frame,
                              addresses_.host(slot()) + at);
      addresses_.send(slot(), at, frames, streams_.upload());
    } else {
      float* const to = floats_.get() + (slot() * sizes_.frames() + at) * sizes_.frame;
      cuda_check(cudaMemcpyAsync(to, block.squeezed.data(), frames * sizes_.frame * sizeof(float),
                                 cudaMemcpyHostToDevice, streams_.upload()),
                 "uploading frames");
      cuda_check(cudaStreamSynchronize(streams_.upload()), "uploading frames");
    }
    scored_.send(slot(), at, frames, streams_.upload());
  }
  void send_index(std::size_t words) const { index_.send(slot(), 0, words, streams_.upload()); }
  void send_tables(std::size_t first, std::size_t floats) const {
    tables_.send(slot(), first, floats, streams_.upload());
  }
  /// Records that the block, or a part of it, is on the device once the upload stream gets here.
  void end_upload() const {
    cuda_check(cudaEventRecord(events().uploaded.get(), streams_.upload()), "ordering an upload");
  }
  /// Makes the compute stream wait for the upload that was ended last.
  void begin_steps() const {
    cuda_check(cudaStreamWaitEvent(streams_.compute(), events().uploaded.get(), 0),
               "ordering a step");
  }
  /// Records that the steps launched so far use the slot.
  void end_steps() const {
    cuda_check(cudaEventRecord(events().used.get(), streams_.compute()), "ordering a step");
  }
  /// Moves on to the next slot.
  void close() { ++blocks_; }

 private:
  /// The part of the slot's block that was uploaded last is on the device; the steps that read the
  /// slot have ended.
  struct Events {
    Event uploaded, used;
  };

  [[nodiscard]] const Events& events() const { return events_[slot()]; }
  [[nodiscard]] std::size_t rows(int steps) const {
    return static_cast<std::size_t>(steps) * sizes_.batch;
  }

  const RunStreams& streams_;
  StagingSizes sizes_;
  StagedArray<std::uint8_t> pixels_, scored_;
  StagedArray<const std::uint8_t*> addresses_;  // device address of each frame of the blocks
  StagedArray<std::uint32_t> index_;
  StagedArray<float> tables_;
  DeviceArray<float> floats_;  // frames as floats
  std::vector<Events> events_;
  DeviceFrameStore store_;
  std::vector<std::uint32_t> stored_;
  std::uint64_t blocks_ = 0;
};

}  // namespace pvm::inline v0::detail
