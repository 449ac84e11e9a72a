// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Work that follows an engine's steps on its device, and reads there what they have computed.

#include <cstddef>
#include <cstdint>

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

namespace detail {

struct Cursor;  // engine/cuda/run/cursor.hpp

}  // namespace detail

/// Where kernels find the steps that they follow: those from `begin->step` to `end->step`, at most
/// `most_steps`. All pointers are to device memory. It stays the same from part to part, so it may
/// be captured in a graph.
struct FollowedSteps {
  const detail::Cursor* begin = nullptr;  ///< the run's position before the steps
  const detail::Cursor* end = nullptr;    ///< and behind them
  int most_steps = 0;
  /// h of step t at (t % hidden_rows) * hidden_stride: [units][hidden]
  const float* hidden = nullptr;
  std::size_t hidden_stride = 0;  ///< in floats
  int hidden_rows = 0;
  /// [slots][block_steps]: the address of each frame. That of step begin->step + i is in slot
  /// begin->block % slots, at begin->frame + i.
  const std::uint8_t* const* frames = nullptr;
  int slots = 0;
  int block_steps = 0;
};

/// What follows the steps of an engine of one sequence. Blocks of steps are run in parts of at most
/// FollowedSteps::most_steps, and `launch` is called once, to be captured behind a part. Streams
/// are cudaStream_t, which only files know that nvcc compiles.
class StepFollower {
 public:
  /// Called before everything else: takes memory.
  virtual void prepare(const FollowedSteps& steps) = 0;
  /// Uploads what the kernels need to know of the `steps` steps of the block in `slot`. The slot's
  /// block before has been uploaded, and its steps have ended.
  virtual void upload(std::size_t slot, int steps, void* stream) = 0;
  /// Launches the kernels for a part.
  virtual void launch(const FollowedSteps& steps, void* stream) = 0;
  /// Called when all parts of a block have been launched.
  virtual void end_block(void* stream) = 0;

 protected:
  StepFollower() = default;
  StepFollower(const StepFollower&) = default;
  StepFollower(StepFollower&&) = default;
  StepFollower& operator=(const StepFollower&) = default;
  StepFollower& operator=(StepFollower&&) = default;
  ~StepFollower() = default;
};

}  // namespace pvm::inline v0
