// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a rank has of a network, on a CPU or on a GPU: the operations for which all ranks come
/// together.

#include <cstddef>
#include <cstdint>
#include <span>

#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/engine.hpp>

namespace pvm::inline v0::dist {

/// All functions but `engine` must be called by all ranks, in the same order. What they return or
/// read is complete on rank 0; the other ranks give empty spans and states.
class Share {
 public:
  Share() = default;
  virtual ~Share() = default;
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;

  /// The engine of this rank's units.
  [[nodiscard]] virtual AnyEngine& engine() = 0;

  /// Before a block runs: rank 0 sends what the others need of its frames, and these receive it as
  /// a block of their own engine. `squeezed`: whether the frames are floats.
  virtual void send(const FrameBlock& block) = 0;
  [[nodiscard]] virtual FrameBlock receive(int steps, bool squeezed) = 0;

  /// The functions of an Engine.
  [[nodiscard]] virtual EngineState save() = 0;
  virtual void restore(EngineState state) = 0;
  [[nodiscard]] virtual Score take_score() = 0;
  virtual void read_weights(std::span<float> out) = 0;
  virtual void read_outputs(std::span<float> out) = 0;
  virtual void read_prediction(std::span<float> out) = 0;
  virtual void read_hidden(std::span<float> out) = 0;
  virtual std::size_t reserve_frames(std::size_t budget, std::size_t frames) = 0;
  /// `frames`: how many there are in `pixels`.
  virtual void store_frames(std::size_t first, std::size_t frames,
                            std::span<const std::uint8_t> pixels) = 0;
};

}  // namespace pvm::inline v0::dist
