// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The steps of a run one after the other, and what is made between two of them when somebody asks.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/batch/kernels.hpp>
#include <pvm/engine/cuda/batch/memory.hpp>
#include <pvm/engine/cuda/batch/rates.hpp>
#include <pvm/engine/cuda/batch/ring.hpp>
#include <pvm/engine/cuda/batch/run_streams.hpp>
#include <pvm/engine/cuda/batch/scheme.hpp>
#include <pvm/engine/cuda/batch/tables.hpp>
#include <pvm/engine/cuda/batch/tuning.hpp>
#include <pvm/engine/cuda/graph.hpp>

namespace pvm::inline v0::detail::batch {

/// Where a run stands, here and in `memory`, and the launches that move it on. A step's frames and
/// table have to be in their slots.
template <class M, int Batch, class Rule>
class Steps {
 public:
  Steps(const Scheme& scheme, const Kernels<M, Batch, Rule>& kernels, const Memory<M>& memory,
        const RateTables& rates, const RunStreams& streams)
      : scheme_(scheme), kernels_(kernels), memory_(memory), rates_(rates), streams_(streams) {}

  /// Steps done.
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }

  /// The run goes on at `step`, where masters and past are as of it.
  void begin_at(std::uint64_t step) {
    step_ = start_ = step;
    write_cursors();
    owed_ = false;
    write_last_table();
    publish();
  }
  /// The masters have become W(step) and no gradient is listed any more. The update kernel's
  /// working copies are of W already.
  void forget_gradients() const {
    write_last_table();
    if (scheme_.swept) publish();
  }

  /// Captures steps once; everything that changes from step to step is on the device. Without, they
  /// are launched kernel by kernel.
  void capture() {
    capture(one_step_, 1);
    capture(more_steps_, Tuning::graph_steps);
    captured_ = true;
  }
  void launch(int steps) const {
    const cudaStream_t stream = streams_.compute();
    for (int left = steps; left > 0;) {
      if (!captured_) {
        kernels_.step(memory_.arguments(), stream);
        --left;
        continue;
      }
      const bool many = left >= Tuning::graph_steps;
      (many ? more_steps_ : one_step_).launch(stream);
      left -= many ? Tuning::graph_steps : 1;
    }
  }
  /// So many have been launched.
  void advance(std::uint64_t steps) {
    step_ += steps;
    owed_ = scheme_.swept;
  }

  /// W(step) in the master's order.
  [[nodiscard]] std::vector<float> weights() {
    catch_up();
    kernels_.read(arguments_now(), streams_.compute());
    return streams_.download(memory_.copy.get(), memory_.copy.size());
  }
  /// Makes y of the last step, and a sweep, which makes it when it is two steps old, also that of
  /// the one before.
  void make_outputs() const {
    kernels_.outputs(memory_.arguments(), made_outputs(), streams_.compute());
  }

 private:
  void capture(Graph& graph, int steps) {
    const cudaStream_t stream = streams_.compute();
    graph.capture(stream, [&] {
      for (int i = 0; i < steps; ++i) kernels_.step(memory_.arguments(), stream);
    });
  }

  /// How many of the last two y this run has made itself; the others a checkpoint gave, or they are
  /// a new run's past.
  [[nodiscard]] int made_outputs() const {
    return static_cast<int>(std::min<std::uint64_t>(2, step_ - start_));
  }
  /// The cursor `back` steps ago, with nothing owed.
  [[nodiscard]] Cursor cursor(std::uint64_t back) const {
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
    for (int i = 0; i < start_places; ++i) start.places[i] = start_place<M>(a, start.cursor, i);
    if (scheme_.swept) {  // no sums are of the next step
      const int other = sum_mark(start.cursor.step) != 0 ? 0 : 0xff;
      streams_.clear(memory_.scratch, "clearing sums", other);
    }
    streams_.write(memory_.step_start.get(), std::vector(memory_.step_starts(), start));
    streams_.write(memory_.cursors.get(), std::vector{start.cursor});
  }

  /// What reads W after the last step.
  [[nodiscard]] std::vector<float> table_now() const {
    std::vector<float> table(rates_.size());
    rates_.write_now(step_ - 1, table.data());
    return table;
  }
  /// A sweep reads the rates of the step before.
  void write_last_table() const {
    if (!scheme_.swept) return;
    const auto frames = static_cast<std::size_t>(scheme_.shape.frames);
    streams_.write(memory_.tables.get() + ring_slot(step_, 1, frames) * rates_.size(), table_now());
  }
  /// Arguments for tasks outside of steps: a table and a cursor as of the last step.
  [[nodiscard]] Arguments arguments_now() const {
    streams_.write(memory_.now_table.get(), table_now());
    streams_.write(memory_.cursors.get() + 1, std::vector{cursor(1)});
    Arguments a = memory_.arguments();
    a.now_table = memory_.now_table.get();
    a.second = memory_.cursors.get() + 1;
    return a;
  }

  /// After a sweep W0 has not learned the last step's gradients yet: now it does.
  void catch_up() {
    if (!std::exchange(owed_, false)) return;
    kernels_.settle(memory_.arguments(), streams_.compute());
    write_cursors();
  }
  void publish() const {
    if (!scheme_.swept) return kernels_.publish(arguments_now(), streams_.compute());
    kernels_.publish(memory_.arguments(), streams_.compute());
    streams_.synchronize();  // another sweep would read masters while this one stores them
  }

  const Scheme& scheme_;
  const Kernels<M, Batch, Rule>& kernels_;
  const Memory<M>& memory_;
  const RateTables& rates_;
  const RunStreams& streams_;
  Graph one_step_, more_steps_;
  bool captured_ = false;
  std::uint64_t step_ = 0;
  std::uint64_t start_ = 0;  // the first step of the run, or since a state was restored
  bool owed_ = false;        // whether W0 has still to learn from the last step
};

}  // namespace pvm::inline v0::detail::batch
