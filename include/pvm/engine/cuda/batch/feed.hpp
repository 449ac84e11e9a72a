// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Uploads blocks of frames, with the rate tables of their steps, and converts the frames into
/// rows, while the steps of earlier blocks run.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/batch/frames.cuh>
#include <pvm/engine/cuda/batch/persistence.cuh>
#include <pvm/engine/cuda/batch/plan/tables.hpp>
#include <pvm/engine/cuda/batch/tuning.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/run/frame_store.hpp>
#include <pvm/engine/cuda/run/streams.hpp>
#include <pvm/engine/engine.hpp>

namespace pvm::inline v0::detail::batch {

/// A ring buffer of staging slots, each with pinned host memory for a block and device memory of
/// the same size. The calls for a block are: `stage`, after which the caller fills the block and
/// `tables`; `open`; then, for each part of the block, `upload`, `begin_steps`, the launches of the
/// steps and `end_steps`; finally `close`.
template <class M>
class Feed {
  template <class T>
  using Array = DeviceArray<T>;

 public:
  /// `table`: floats of a step's rate table. Allocates nothing yet.
  Feed(const Shape& shape, std::size_t table, const RunStreams& streams)
      : batch_(count(shape.batch)),
        frame_size_(count(shape.pixels)),
        table_(table),
        block_steps_(Tuning::block_steps(shape.padded)),
        streams_(streams),
        store_(frame_size_, streams.upload()) {}

  [[nodiscard]] int block_steps() const noexcept { return block_steps_; }
  [[nodiscard]] DeviceFrameStore& store() noexcept { return store_; }
  [[nodiscard]] const DeviceFrameStore& store() const noexcept { return store_; }

  /// Bytes of device memory that `allocate` takes. Memory for frames as floats is not included: it
  /// is allocated when the first such frames are uploaded.
  [[nodiscard]] std::size_t bytes() const {
    const std::size_t frame = frame_size_ + 1 + sizeof(void*);
    return Tuning::staging_slots * (most_frames() * frame + most_tables() * sizeof(float));
  }
  void allocate() {
    slots_.reserve(Tuning::staging_slots);
    for (int i = 0; i < Tuning::staging_slots; ++i) slots_.push_back(make_slot());
  }

  /// Room for a block of `steps` steps, in the current slot. Waits until the slot's last block has
  /// been uploaded.
  [[nodiscard]] FrameBlock stage(int steps) {
    if (steps < 1 || steps > block_steps()) {
      throw Error(Fault::usage, "a block of " + std::to_string(steps) +
                                    " steps is impossible; allowed: 1 to " +
                                    std::to_string(block_steps()));
    }
    cuda_check(cudaEventSynchronize(slot().uploaded.get()), "waiting for an upload");
    const std::size_t frames = count(steps) * batch_;
    stored_.assign(store_.capacity() > 0 ? frames : 0, not_stored);
    return {steps,
            {slot().pixels.get(), frames * frame_size_},
            {slot().scored.get(), frames},
            {},
            stored_};
  }
  /// The rate tables of the staged block, [steps][table].
  [[nodiscard]] float* tables() { return reinterpret_cast<float*>(slot().tables.get()); }

  /// Makes the upload stream wait until the steps of the slot's last block have ended.
  void open() const {
    cuda_check(cudaStreamWaitEvent(streams_.upload(), slot().used.get(), 0), "ordering an upload");
  }
  /// Uploads `steps` steps of the block, from step `first` on, and converts their frames into rows,
  /// in the ring of frames from slot `frame_slot` on. If `persistence_errors` is not null (in a
  /// sweep), it receives the errors of repeating the frames, which are also added to the score.
  void upload(const FrameBlock& block, int first, int steps, const Arguments& a,
              std::size_t frame_slot, float* persistence_errors) {
    const FrameBlock some = part(block, first, steps);
    send_frames(some, count(first) * batch_);
    send(slot().scored_up, slot().scored.get(), count(first) * batch_, count(steps) * batch_);
    send(slot().tables_up, tables(), count(first) * table_, count(steps) * table_);
    const Uploaded uploaded = where(first, !some.squeezed.empty(), frame_slot, persistence_errors);
    convert_frames<M>(a, uploaded, steps, streams_.upload());
    cuda_check(cudaEventRecord(slot().uploaded.get(), streams_.upload()), "ordering an upload");
    score_persistence(a, uploaded, steps, streams_.upload());
  }
  /// Makes the compute stream wait until the rows of the part that was uploaded last are ready.
  void begin_steps() const {
    cuda_check(cudaStreamWaitEvent(streams_.compute(), slot().uploaded.get(), 0),
               "ordering a step");
  }
  /// Records that the steps launched so far use the slot.
  void end_steps() const {
    cuda_check(cudaEventRecord(slot().used.get(), streams_.compute()), "ordering a step");
  }
  /// Moves on to the next slot.
  void close() { ++blocks_; }

 private:
  /// A staging slot. `*_up` are the device copies of the pinned arrays. Events: the part of the
  /// block that was uploaded last is in the rings; the steps that read the slot have ended.
  struct Slot {
    PinnedBytes pixels, addresses, scored, tables;
    Array<std::uint8_t> pixels_up, scored_up;
    Array<const std::uint8_t*> addresses_up;  // [steps][batch] device addresses of the frames
    Array<float> tables_up, squeezed_up;
    Event uploaded, used;
  };

  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  [[nodiscard]] std::size_t most_frames() const { return count(block_steps_) * batch_; }
  [[nodiscard]] std::size_t most_tables() const { return count(block_steps_) * table_; }
  [[nodiscard]] Slot& slot() { return slots_[blocks_ % slots_.size()]; }
  [[nodiscard]] const Slot& slot() const { return slots_[blocks_ % slots_.size()]; }

  [[nodiscard]] Slot make_slot() const {
    const std::size_t frames = most_frames();
    Slot made{PinnedBytes(frames * frame_size_),
              PinnedBytes(frames * sizeof(const std::uint8_t*)),
              PinnedBytes(frames),
              PinnedBytes(most_tables() * sizeof(float)),
              {},
              {},
              {},
              {},
              {},
              Event(),
              Event()};
    streams_.allocate_zeros(made.pixels_up, frames * frame_size_);
    streams_.allocate_zeros(made.scored_up, frames);
    streams_.allocate_zeros(made.addresses_up, frames);
    streams_.allocate_zeros(made.tables_up, most_tables());
    return made;
  }

  /// Uploads `n` elements, from index `at` on, to the same indices of `to`.
  template <class T>
  void send(Array<T>& to, const T* from, std::size_t at, std::size_t n) const {
    cuda_check(cudaMemcpyAsync(to.get() + at, from + at, n * sizeof(T), cudaMemcpyHostToDevice,
                               streams_.upload()),
               "uploading frames");
  }
  /// Uploads the frames of `block`, whose first one is frame `first` of the slot.
  void send_frames(const FrameBlock& block, std::size_t first) {
    if (!block.squeezed.empty()) return send_squeezed(block, first);
    const std::size_t frames = count(block.steps) * batch_;
    auto** addresses = reinterpret_cast<const std::uint8_t**>(slot().addresses.get());
    store_.locate_or_upload(block, frames, slot().pixels_up.get() + first * frame_size_,
                            addresses + first);
    send(slot().addresses_up, addresses, first, frames);
  }
  /// The same for frames as floats. Waits for the copy: the caller may free their memory as soon as
  /// `run` returns.
  void send_squeezed(const FrameBlock& block, std::size_t first) {
    Array<float>& to = slot().squeezed_up;
    if (to.size() == 0) to = Array<float>(most_frames() * frame_size_);
    cuda_check(cudaMemcpyAsync(to.get() + first * frame_size_, block.squeezed.data(),
                               block.squeezed.size() * sizeof(float), cudaMemcpyHostToDevice,
                               streams_.upload()),
               "uploading frames");
    cuda_check(cudaStreamSynchronize(streams_.upload()), "uploading frames");
  }
  /// Describes, for the kernels, where the slot's steps from `first` on are on the device.
  [[nodiscard]] Uploaded where(int first, bool squeezed, std::size_t frame_slot,
                               float* persistence_errors) const {
    const std::size_t row = count(first) * batch_;
    return {slot().addresses_up.get() + row,
            squeezed ? slot().squeezed_up.get() + row * frame_size_ : nullptr,
            slot().scored_up.get() + row,
            slot().tables_up.get() + count(first) * table_,
            static_cast<std::uint32_t>(frame_slot),
            persistence_errors};
  }

  std::size_t batch_, frame_size_, table_;
  int block_steps_;
  const RunStreams& streams_;
  std::vector<Slot> slots_;
  DeviceFrameStore store_;
  std::vector<std::uint32_t> stored_;
  std::uint64_t blocks_ = 0;  // closed so far
};

}  // namespace pvm::inline v0::detail::batch
