// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tracking on a GPU, for `pvm track`.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <pvm/engine/choose.hpp>
#include <pvm/io/source.hpp>
#include <pvm/readout/tracker.hpp>

namespace readout_commands {

/// Tracks many frames at a time, where a GPU can be used; else it takes none. Its body is in a file
/// of its own (pvm_tracking.cpp), the only one of the program that nvcc compiles.
class ManyFrames {
 public:
  using Use = std::function<void(const std::vector<pvm::Found>&, const pvm::io::FrameInfo&)>;

  /// `use`: called for every frame that was taken, in order. `tracker` must outlive the object.
  ManyFrames(pvm::Tracker& tracker, pvm::BackendChoice backend, Use use);
  ~ManyFrames();
  ManyFrames(const ManyFrames&) = delete;
  ManyFrames& operator=(const ManyFrames&) = delete;

  /// Whether the frame was taken.
  bool take(const std::vector<std::uint8_t>& frame, const pvm::io::FrameInfo& info);
  /// Tracks the frames that were taken and not tracked yet.
  void flush();

 private:
  struct OnGpu;
  std::unique_ptr<OnGpu> gpu_;  // null: no frames are taken
};

}  // namespace readout_commands
