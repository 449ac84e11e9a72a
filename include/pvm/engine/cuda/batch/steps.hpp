// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Runs the steps of a run one after the other, and between steps computes what is asked for:
/// weights and outputs.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/batch/exchange.cuh>
#include <pvm/engine/cuda/batch/kernels.hpp>
#include <pvm/engine/cuda/batch/memory.hpp>
#include <pvm/engine/cuda/batch/plan/scheme.hpp>
#include <pvm/engine/cuda/batch/plan/tables.hpp>
#include <pvm/engine/cuda/batch/rates.hpp>
#include <pvm/engine/cuda/batch/ring.hpp>
#include <pvm/engine/cuda/batch/tuning.hpp>
#include <pvm/engine/cuda/device/graph.hpp>
#include <pvm/engine/cuda/run/streams.hpp>

namespace pvm::inline v0::detail::batch {

/// The position of a run, on the host and in `memory`, and the launches that advance it. Before
/// steps are launched, `upload` must have sent their frames and tables into the rings.
template <class M, int Batch, class Rule>
class Steps {
 public:
  Steps(const Scheme& scheme, const Kernels<M, Batch, Rule>& kernels, const Memory<M>& memory,
        const RateTables& rates, const RunStreams& streams)
      : scheme_(scheme), kernels_(kernels), memory_(memory), rates_(rates), streams_(streams) {}

  /// From now on `exchange`, which must outlive this, follows every step of a shard.
  void exchange_by(const Exchange& exchange) { exchange_ = &exchange; }

  /// The next step to launch: the number of steps done, those before a restart included.
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }

  /// Starts the run at `step`. The masters and the past in `memory` must be those of that step.
  void begin_at(std::uint64_t step) {
    step_ = start_ = step;
    write_cursors();
    if (exchange_ != nullptr) streams_.write(memory_.arrived, exchange_->arrived_before(step));
    w0_update_pending_ = false;
    write_last_table();
    write_copies();
  }
  /// To be called when the masters have been replaced by W(step), so that no gradient is listed any
  /// more. The update kernel's working copies are copies of W already; a sweep's are renewed.
  void forget_gradients() const {
    write_last_table();
    if (scheme_.swept) write_copies();
  }

  /// Captures graphs of one and of Tuning::graph_steps steps. They can be replayed because
  /// everything that changes from step to step is in device memory. If this is not called,
  /// `launch` launches the kernels one by one.
  void capture() {
    capture(one_step_, 1);
    capture(more_steps_, Tuning::graph_steps);
    captured_ = true;
  }
  void launch(int steps) const {
    const cudaStream_t stream = streams_.compute();
    for (int left = steps; left > 0;) {
      if (!captured_) {
        launch_step(stream);
        --left;
        continue;
      }
      const bool many = left >= Tuning::graph_steps;
      (many ? more_steps_ : one_step_).launch(stream);
      left -= many ? Tuning::graph_steps : 1;
    }
  }
  /// To be called after `steps` steps have been launched.
  void advance(std::uint64_t steps) {
    step_ += steps;
    w0_update_pending_ = scheme_.swept;
  }

  /// W(step) in the master's order.
  [[nodiscard]] std::vector<float> weights() {
    catch_up();
    kernels_.read(arguments_now(), streams_.compute());
    return streams_.download(memory_.weights_out.get(), memory_.weights_out.size());
  }
  /// Computes y of the last step. A sweep computes y two steps late and does not store it: there,
  /// also computes y of the step before the last.
  void make_outputs() const {
    kernels_.outputs(memory_.arguments(), made_outputs(), streams_.compute());
  }

 private:
  void capture(Graph& graph, int steps) {
    const cudaStream_t stream = streams_.compute();
    graph.capture(stream, [&] {
      for (int i = 0; i < steps; ++i) launch_step(stream);
    });
  }
  void launch_step(cudaStream_t stream) const {
    kernels_.step(memory_.arguments(), stream);
    if (exchange_ != nullptr) exchange_->launch(stream);
  }

  /// How many of the last two steps this run has made itself; y of earlier steps is in `memory`,
  /// from a checkpoint or as the past of a new run.
  [[nodiscard]] int made_outputs() const {
    return static_cast<int>(std::min<std::uint64_t>(2, step_ - start_));
  }
  /// The cursor `back` steps ago, with `work_pending` 0.
  [[nodiscard]] StepCursor cursor(std::uint64_t back) const {
    const Shape& s = scheme_.shape;
    const auto at = [&](int slots) {
      return static_cast<std::uint32_t>(ring_slot(step_, back, static_cast<std::size_t>(slots)));
    };
    return {step_ - back,
            0,
            0,
            0,
            at(s.ring),
            at(s.frames),
            at(s.terms),
            at(y_slots),
            static_cast<std::uint32_t>(2 - made_outputs())};
  }
  void write_cursors() {
    const Arguments a = memory_.arguments();
    StepStart start{cursor(0), {}};
    for (int i = 0; i < array_offset_count; ++i)
      start.array_offsets[i] = step_start_offset<M>(a, start.cursor, i);
    if (scheme_.swept) {  // give all partial sums the tag that the next step does not wait for
      const int other = step_tag(start.cursor.step) != 0 ? 0 : 0xff;
      streams_.clear(memory_.scratch, "clearing sums", other);
    }
    streams_.write(memory_.step_start.get(), std::vector(memory_.step_starts(), start));
    streams_.write(memory_.cursors.get(), std::vector{start.cursor});
  }

  /// The table for reading W after the last step.
  [[nodiscard]] std::vector<float> table_now() const {
    std::vector<float> table(rates_.size());
    rates_.write_now(step_ - 1, table.data());
    return table;
  }
  /// A sweep also reads the table of the step before: puts one into its slot that adds nothing to
  /// the master.
  void write_last_table() const {
    if (!scheme_.swept) return;
    const auto frames = static_cast<std::size_t>(scheme_.shape.frames);
    streams_.write(memory_.tables.get() + ring_slot(step_, 1, frames) * rates_.size(), table_now());
  }
  /// Arguments for tasks between steps: with a table and a cursor of the last step.
  [[nodiscard]] Arguments arguments_now() const {
    streams_.write(memory_.table_override.get(), table_now());
    streams_.write(memory_.cursors.get() + 1, std::vector{cursor(1)});
    Arguments a = memory_.arguments();
    a.table_override = memory_.table_override.get();
    a.update_cursor = memory_.cursors.get() + 1;
    return a;
  }

  /// After a sweep, W0 lacks the last step's update: makes it now.
  void catch_up() {
    if (!std::exchange(w0_update_pending_, false)) return;
    kernels_.update_w0(memory_.arguments(), streams_.compute());
    write_cursors();
  }
  /// Writes the working copies of the current W.
  void write_copies() const {
    if (!scheme_.swept) return kernels_.write_copies(arguments_now(), streams_.compute());
    kernels_.write_copies(memory_.arguments(), streams_.compute());
    streams_.synchronize();  // a next sweep could load masters while this one still stores them
  }

  const Scheme& scheme_;
  const Kernels<M, Batch, Rule>& kernels_;
  const Memory<M>& memory_;
  const RateTables& rates_;
  const RunStreams& streams_;
  const Exchange* exchange_ = nullptr;  // of a shard
  Graph one_step_, more_steps_;
  bool captured_ = false;
  std::uint64_t step_ = 0;
  std::uint64_t start_ = 0;  // the step at which the run began, or last continued from a state
  bool w0_update_pending_ = false;  // whether W0 still lacks the last step's update
};

}  // namespace pvm::inline v0::detail::batch
