// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One type for all engines, so that the code that uses them is compiled once and the backend can
/// be chosen at run time. There is one virtual call per block of steps, whose cost is negligible.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <pvm/core/error.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/follower.hpp>

namespace pvm::inline v0 {

/// Owns an engine of any type. It is movable, and satisfies Engine itself.
class AnyEngine {
 public:
  /// Constructs an `E` from `arguments` in place, because engines need not be movable.
  template <Engine E, class... Arguments>
  static AnyEngine make(Arguments&&... arguments) {
    return AnyEngine(std::make_unique<Held<E>>(std::forward<Arguments>(arguments)...));
  }

  FrameBlock stage(int steps) { return held_->stage(steps); }
  [[nodiscard]] int block_steps() { return held_->block_steps(); }
  void run(const FrameBlock& block, Mode mode) { held_->run(block, mode); }
  void hold_rate(std::size_t layer, std::optional<float> rate) { held_->hold_rate(layer, rate); }
  void synchronize() { held_->synchronize(); }
  [[nodiscard]] std::uint64_t step() { return held_->step(); }
  [[nodiscard]] int batch() { return held_->batch(); }
  Score take_score() { return held_->take_score(); }
  /// The score of every unit, of an engine that can tell.
  void take_unit_scores(std::span<Score> out) { held_->take_unit_scores(out); }
  void read_weights(std::span<float> out) { held_->read_weights(out); }
  void read_prediction(std::span<float> out) { held_->read_prediction(out); }
  void read_hidden(std::span<float> out) { held_->read_hidden(out); }
  void read_outputs(std::span<float> out) { held_->read_outputs(out); }
  [[nodiscard]] EngineState save() { return held_->save(); }
  void restore(const EngineState& state) { held_->restore(state); }
  [[nodiscard]] std::string description() { return held_->description(); }
  /// The seconds for which a device has computed; nullopt if the engine uses none or does not say.
  [[nodiscard]] std::optional<double> device_seconds() { return held_->device_seconds(); }
  /// Bytes of a device's memory that the engine has taken, those of stored frames included; 0 if
  /// it uses none.
  [[nodiscard]] std::size_t device_memory() { return held_->device_memory(); }
  /// Lets `follower` work behind the steps on the engine's device; null: nobody. False if the
  /// engine has no place for it.
  bool follow(StepFollower* follower) { return held_->follow(follower); }
  std::size_t reserve_frames(std::size_t budget, std::size_t frames) {
    return held_->reserve_frames(budget, frames);
  }
  void store_frames(std::size_t first, std::span<const std::uint8_t> pixels) {
    held_->store_frames(first, pixels);
  }
  void read_frame(std::size_t index, std::span<std::uint8_t> pixels) {
    held_->read_frame(index, pixels);
  }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual FrameBlock stage(int steps) = 0;
    virtual int block_steps() = 0;
    virtual void run(const FrameBlock& block, Mode mode) = 0;
    virtual void hold_rate(std::size_t layer, std::optional<float> rate) = 0;
    virtual void synchronize() = 0;
    virtual std::uint64_t step() = 0;
    virtual int batch() = 0;
    virtual Score take_score() = 0;
    virtual void take_unit_scores(std::span<Score> out) = 0;
    virtual void read_weights(std::span<float> out) = 0;
    virtual void read_prediction(std::span<float> out) = 0;
    virtual void read_hidden(std::span<float> out) = 0;
    virtual void read_outputs(std::span<float> out) = 0;
    virtual EngineState save() = 0;
    virtual void restore(const EngineState& state) = 0;
    virtual std::string description() = 0;
    virtual std::optional<double> device_seconds() = 0;
    virtual std::size_t device_memory() = 0;
    virtual bool follow(StepFollower* follower) = 0;
    virtual std::size_t reserve_frames(std::size_t budget, std::size_t frames) = 0;
    virtual void store_frames(std::size_t first, std::span<const std::uint8_t> pixels) = 0;
    virtual void read_frame(std::size_t index, std::span<std::uint8_t> pixels) = 0;
  };

  template <Engine E>
  struct Held final : Base {
    template <class... Arguments>
    explicit Held(Arguments&&... arguments) : engine(std::forward<Arguments>(arguments)...) {}

    FrameBlock stage(int steps) override { return engine.stage(steps); }
    int block_steps() override { return engine.block_steps(); }
    void run(const FrameBlock& block, Mode mode) override { engine.run(block, mode); }
    void hold_rate(std::size_t layer, std::optional<float> rate) override {
      engine.hold_rate(layer, rate);
    }
    void synchronize() override { engine.synchronize(); }
    std::uint64_t step() override { return engine.step(); }
    int batch() override { return engine.batch(); }
    Score take_score() override { return engine.take_score(); }
    void take_unit_scores(std::span<Score> out) override {
      if constexpr (requires { engine.take_unit_scores(out); }) {
        engine.take_unit_scores(out);
      } else {
        throw Error(Fault::usage, "this engine has no scores of single units");
      }
    }
    void read_weights(std::span<float> out) override { engine.read_weights(out); }
    void read_prediction(std::span<float> out) override { engine.read_prediction(out); }
    void read_hidden(std::span<float> out) override { engine.read_hidden(out); }
    void read_outputs(std::span<float> out) override { engine.read_outputs(out); }
    EngineState save() override { return engine.save(); }
    void restore(const EngineState& state) override { engine.restore(state); }
    std::string description() override { return engine.description(); }
    std::optional<double> device_seconds() override {
      if constexpr (requires { engine.device_seconds(); }) {
        return engine.device_seconds();
      } else {
        return std::nullopt;
      }
    }
    std::size_t device_memory() override {
      if constexpr (requires { engine.memory_needed() + engine.stored_bytes(); }) {
        return engine.memory_needed() + engine.stored_bytes();
      } else {
        return 0;
      }
    }
    bool follow(StepFollower* follower) override {
      if constexpr (requires { engine.follow(follower); }) {
        engine.follow(follower);
        return true;
      } else {
        return false;
      }
    }
    std::size_t reserve_frames(std::size_t budget, std::size_t frames) override {
      return engine.reserve_frames(budget, frames);
    }
    void store_frames(std::size_t first, std::span<const std::uint8_t> pixels) override {
      engine.store_frames(first, pixels);
    }
    void read_frame(std::size_t index, std::span<std::uint8_t> pixels) override {
      engine.read_frame(index, pixels);
    }

    E engine;
  };

  explicit AnyEngine(std::unique_ptr<Base> held) : held_(std::move(held)) {}

  std::unique_ptr<Base> held_;
};

static_assert(Engine<AnyEngine>);

}  // namespace pvm::inline v0
