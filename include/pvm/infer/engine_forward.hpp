// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Steps of a frozen network on any engine, for example one on a GPU.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/infer/forward.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::infer {

/// Gives the sequences of an engine's batch to streams. An engine steps all of its sequences at
/// once, so the pasts of the streams of a step are in the engine, and those of all others are
/// parked in host memory. As long as the same streams come, step after step, nothing moves; for
/// others the engine's state is saved and restored, which takes as long as that of a checkpoint. So
/// this is for streams in lockstep: a few cameras, or one.
class EngineForward final : public Forward {
 public:
  /// `weights`: in reference order. Throws what engines throw.
  EngineForward(const Spec& spec, std::span<const float> weights, AnyEngine engine)
      : engine_(std::move(engine)),
        engine_text_(engine_.description()),
        batch_(static_cast<std::size_t>(engine_.batch())),
        frame_(spec.frame_size()),
        seats_(batch_) {
    const Connectome net = make_connectome(spec);
    hidden_ = net.units.size() * static_cast<std::size_t>(net.hidden);
    EngineState start;
    start.batch = engine_.batch();
    start.weights.assign(weights.begin(), weights.end());
    engine_.restore(start);
    predictions_.resize(batch_ * frame_);
    hiddens_.resize(batch_ * hidden_);
  }

  [[nodiscard]] StreamPast begin() const override {
    StreamPast past{HugeArray(past_floats()), 0};
    const auto ones = past.values.all();
    std::fill(ones.begin(), ones.end(), 1.0F);
    const auto last = ones.subspan(hidden_, hidden_);  // squeezed, of the step before
    std::fill(last.begin(), last.end(), squeeze(1.0F));
    return past;
  }
  [[nodiscard]] std::size_t past_bytes() const override { return past_floats() * sizeof(float); }
  [[nodiscard]] std::size_t most_rows() const override { return batch_; }

  using Forward::step;
  void step(std::span<const Row> rows) override {
    seat(rows);
    const FrameBlock block = engine_.stage(1);
    for (std::size_t b = 0; b < batch_; ++b) {
      block.scored[b] = 0;
      const auto to = block.pixels.subspan(b * frame_, frame_);
      if (const Row* row = row_of(rows, seats_[b])) {
        std::copy(row->frame.begin(), row->frame.end(), to.begin());
      } else {
        std::fill(to.begin(), to.end(), std::uint8_t{0});
      }
    }
    engine_.run(block, Mode::freeze);
    deliver(rows);
    for (const Row& row : rows) ++row.past->step;
  }

  void forget(StreamPast& past) override {
    std::replace(seats_.begin(), seats_.end(), &past, static_cast<StreamPast*>(nullptr));
  }
  [[nodiscard]] std::string description() const override {
    return "up to " + std::to_string(batch_) + " streams at a time on the " + engine_text_;
  }

 private:
  // A past: [hidden | squeezed | squeezed of the step before that | frame], in reference order.
  [[nodiscard]] std::size_t past_floats() const noexcept { return 3 * hidden_ + frame_; }

  [[nodiscard]] static const Row* row_of(std::span<const Row> rows, const StreamPast* past) {
    for (const Row& row : rows) {
      if (row.past == past) return &row;
    }
    return nullptr;
  }
  [[nodiscard]] bool seated(const StreamPast* past) const {
    return std::find(seats_.begin(), seats_.end(), past) != seats_.end();
  }

  /// Makes the streams of `rows` those in the engine.
  void seat(std::span<const Row> rows) {
    const bool all_seated =
        std::all_of(rows.begin(), rows.end(), [this](const Row& row) { return seated(row.past); });
    const bool others = std::any_of(seats_.begin(), seats_.end(), [&](const StreamPast* past) {
      return past != nullptr && row_of(rows, past) == nullptr;
    });
    if (all_seated && !others) return;
    EngineState state = engine_.save();
    for (std::size_t b = 0; b < batch_; ++b) {
      if (seats_[b] == nullptr || row_of(rows, seats_[b]) != nullptr) continue;
      exchange(state, b, *seats_[b], [](float& in_engine, float& parked) { parked = in_engine; });
      seats_[b] = nullptr;
    }
    for (const Row& row : rows) {
      if (seated(row.past)) continue;
      const auto free = std::find(seats_.begin(), seats_.end(), nullptr);
      *free = row.past;
      exchange(state, static_cast<std::size_t>(free - seats_.begin()), *row.past,
               [](float& in_engine, float& parked) { in_engine = parked; });
    }
    engine_.restore(state);
  }

  /// Calls move(value in `state`, value of `past`) for all values of sequence `b`.
  template <class Move>
  void exchange(EngineState& state, std::size_t b, StreamPast& past, Move move) const {
    float* parked = past.values.data();
    const auto part = [&](std::vector<float>& history, std::size_t back, std::size_t each) {
      float* from = history.data() + ((back - 1) * batch_ + b) * each;
      for (std::size_t i = 0; i < each; ++i) move(from[i], *parked++);
    };
    part(state.hidden, 1, hidden_);
    part(state.squeezed, 1, hidden_);
    part(state.squeezed, 2, hidden_);
    part(state.frames, 1, frame_);
  }

  void deliver(std::span<const Row> rows) {
    const auto asks = [&](auto part) {
      return std::any_of(rows.begin(), rows.end(),
                         [&](const Row& row) { return !(row.*part).empty(); });
    };
    if (asks(&Row::prediction)) engine_.read_prediction(predictions_);
    if (asks(&Row::hidden)) engine_.read_hidden(hiddens_);
    for (std::size_t b = 0; b < batch_; ++b) {
      const Row* row = row_of(rows, seats_[b]);
      if (row == nullptr) continue;
      std::copy_n(predictions_.data() + b * frame_, row->prediction.size(), row->prediction.data());
      std::copy_n(hiddens_.data() + b * hidden_, row->hidden.size(), row->hidden.data());
    }
    if (!asks(&Row::prediction) && !asks(&Row::hidden)) engine_.synchronize();
  }

  AnyEngine engine_;
  std::string engine_text_;
  std::size_t batch_, frame_;
  std::size_t hidden_ = 0;          // hidden values of a stream
  std::vector<StreamPast*> seats_;  // [batch]: whose past is in that sequence; null: no one's
  std::vector<float> predictions_, hiddens_;
};

}  // namespace pvm::inline v0::infer
