// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Frames and results in the memory of a GPU, as a program sees them. Knows nothing of CUDA, so
/// that any file can include it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// A frame in the memory of a GPU, [side][side][channels] without gaps. It is not copied when it is
/// handed in: it must stay as it is until its result is there.
struct GpuFrame {
  std::span<const std::uint8_t> pixels;
  int device = 0;  ///< the GPU, by the number that CUDA gives it
  /// The cudaStream_t whose work so far writes the frame; null: CUDA's legacy default stream.
  void* stream = nullptr;
};

/// Floats in the memory of a GPU. They are written when a program gets them, so work on any stream
/// may read them. Their memory is used again when the last copy of this is gone: work that has been
/// given to the legacy default stream (or to one that synchronises with it) may still read them
/// then, but that of other streams must have ended.
struct GpuValues {
  std::shared_ptr<float> values;
  std::size_t count = 0;
  int device = 0;  ///< the GPU, by the number that CUDA gives it

  [[nodiscard]] bool empty() const noexcept { return count == 0; }
};

namespace infer {

/// A frame that steps can read when an event has happened.
struct ArrivingFrame {
  const std::uint8_t* pixels = nullptr;  ///< in the memory of the step's GPU; null: on the host
  std::shared_ptr<void> event;           ///< what GpuMemory has made of the frame's stream
};

/// The memory of the GPU that runs the steps of a Forward. Any thread may call all of it at any
/// time, whatever GPU is the thread's current one.
class GpuMemory {
 public:
  GpuMemory() = default;
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  virtual ~GpuMemory() = default;

  [[nodiscard]] virtual int device() const = 0;
  /// Notes when a frame that is in this memory can be read.
  [[nodiscard]] virtual ArrivingFrame arriving(const GpuFrame& frame) = 0;
  /// Copies a frame to the host, and waits for that.
  virtual void fetch(const ArrivingFrame& frame, std::span<std::uint8_t> to) = 0;
  /// Room for results. Throws Error (Fault::memory).
  [[nodiscard]] virtual GpuValues room(std::size_t count) = 0;
};

}  // namespace infer

}  // namespace pvm::inline v0
