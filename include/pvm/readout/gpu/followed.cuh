// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the kernels that follow a network's steps have in common: where they find a step's hidden
/// values, its frame, and what the host says about it.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/run/cursor.hpp>
#include <pvm/engine/follower.hpp>

namespace pvm::inline v0::readout::gpu {

using pvm::detail::cuda_check;
using pvm::detail::DeviceArray;

/// The number of steps to follow.
__device__ inline int followed_count(const FollowedSteps& s) {
  return static_cast<int>(s.end->step - s.begin->step);
}
/// The index of step `i` of them in arrays [slots][block_steps].
__device__ inline std::size_t followed_row(const FollowedSteps& s, int i) {
  const auto slot = static_cast<std::size_t>(s.begin->block % static_cast<unsigned>(s.slots));
  return slot * static_cast<std::size_t>(s.block_steps) + s.begin->frame + static_cast<unsigned>(i);
}
__device__ inline const float* followed_hidden(const FollowedSteps& s, int i) {
  const unsigned long long step = s.begin->step + static_cast<unsigned>(i);
  return s.hidden +
         static_cast<std::size_t>(step % static_cast<unsigned>(s.hidden_rows)) * s.hidden_stride;
}
__device__ inline const std::uint8_t* followed_frame(const FollowedSteps& s, int i) {
  return s.frames[followed_row(s, i)];
}

/// A record for every step of the staged blocks, [slots][block_steps], each of `each` values of
/// type T: in pinned memory, and in device memory. Those that `expect` is not told are empty.
template <class T>
class StepRecords {
 public:
  void prepare(const FollowedSteps& steps, std::size_t each) {
    each_ = each;
    block_ = static_cast<std::size_t>(steps.block_steps) * each;
    const std::size_t all = static_cast<std::size_t>(steps.slots) * block_;
    pinned_ = pvm::detail::PinnedBytes(all * sizeof(T));
    device_ = DeviceArray<T>(all);
  }
  /// Clears the records of the next block, of `steps` steps, and returns them to be filled.
  std::span<T> expect(std::size_t steps) {
    next_.assign(steps * each_, T{});
    return next_;
  }
  void upload(std::size_t slot, int steps, cudaStream_t stream) {
    next_.resize(static_cast<std::size_t>(steps) * each_);
    T* from = reinterpret_cast<T*>(pinned_.get()) + slot * block_;
    std::copy(next_.begin(), next_.end(), from);
    cuda_check(cudaMemcpyAsync(device_.get() + slot * block_, from, next_.size() * sizeof(T),
                               cudaMemcpyHostToDevice, stream),
               "uploading labels");
    next_.clear();
  }
  [[nodiscard]] const T* device() const noexcept { return device_.get(); }

 private:
  std::size_t each_ = 0, block_ = 0;
  pvm::detail::PinnedBytes pinned_;
  DeviceArray<T> device_;
  std::vector<T> next_;
};

/// Copies between host and device, for states, while nothing runs. Whole arrays.
template <class T>
void write(const DeviceArray<T>& to, std::span<const T> from) {
  if (from.empty()) return;
  cuda_check(cudaMemcpy(to.get(), from.data(), from.size_bytes(), cudaMemcpyHostToDevice),
             "writing a readout");
}
template <class T>
DeviceArray<T> upload(std::span<T> from) = delete;  // say std::span<const T>
template <class T>
DeviceArray<T> upload(std::span<const T> from) {
  DeviceArray<T> to(std::max<std::size_t>(1, from.size()));
  write(to, from);
  return to;
}
template <class T>
std::vector<T> download(const T* from, std::size_t count) {
  std::vector<T> to(count);
  if (count == 0) return to;
  cuda_check(cudaMemcpy(to.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost),
             "reading a readout");
  return to;
}
/// Waits for everything that runs on the device.
inline void wait_for_device() { cuda_check(cudaDeviceSynchronize(), "waiting for a readout"); }

/// Steps that no engine on the device has made: their hidden values and frames are copied to it,
/// and they are followed like others.
class OwnSteps {
 public:
  /// `hidden`, `frame`: values and bytes of a step, of which there are at most `most`.
  void prepare(std::size_t hidden, std::size_t frame, int most = 1) {
    most_ = most;
    hidden_each_ = hidden;
    hidden_ = DeviceArray<float>(static_cast<std::size_t>(most) * hidden);
    frames_ = DeviceArray<std::uint8_t>(static_cast<std::size_t>(most) * frame);
    std::vector<const std::uint8_t*> at;
    for (int i = 0; i < most; ++i) {
      at.push_back(frames_.get() + static_cast<std::size_t>(i) * frame);
    }
    addresses_ = upload(std::span<const std::uint8_t* const>(at));
    cursors_ = DeviceArray<pvm::detail::Cursor>(2);
  }
  /// Nothing may be running that reads them.
  void write(int steps, std::span<const float> hidden, std::span<const std::uint8_t> frames) {
    gpu::write(hidden_, hidden);
    gpu::write(frames_, frames);
    const pvm::detail::Cursor ends[] = {{0, 0, 0, 0}, {static_cast<unsigned>(steps), 0, 0, 0}};
    gpu::write(cursors_, std::span<const pvm::detail::Cursor>(ends));
  }
  [[nodiscard]] FollowedSteps steps() const {
    FollowedSteps s;
    s.begin = cursors_.get();
    s.end = cursors_.get() + 1;
    s.most_steps = s.hidden_rows = s.block_steps = most_;
    s.slots = 1;
    s.hidden = hidden_.get();
    s.hidden_stride = hidden_each_;
    s.frames = addresses_.get();
    return s;
  }

 private:
  int most_ = 1;
  std::size_t hidden_each_ = 0;
  DeviceArray<float> hidden_;
  DeviceArray<std::uint8_t> frames_;
  DeviceArray<const std::uint8_t*> addresses_;
  DeviceArray<pvm::detail::Cursor> cursors_;
};

}  // namespace pvm::inline v0::readout::gpu
