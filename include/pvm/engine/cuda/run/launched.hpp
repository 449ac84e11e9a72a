// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The common base of the engines that train one sequence and run a whole block of steps in one
/// kernel launch: the tables of coefficients, the captured launch, and checkpoints.

#include <cuda_runtime.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/device/graph.hpp>
#include <pvm/engine/cuda/device/memory.hpp>
#include <pvm/engine/cuda/numbers/network_constants.hpp>
#include <pvm/engine/cuda/run/coefficients.hpp>
#include <pvm/engine/cuda/run/cursor.hpp>
#include <pvm/engine/cuda/run/engine_run.hpp>
#include <pvm/engine/cuda/run/staging.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/follower.hpp>
#include <pvm/engine/history.hpp>
#include <pvm/engine/memory_part.hpp>
#include <pvm/engine/settled_weights.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::detail {

/// The base (CRTP) of an engine `Self`, which must provide
///     void launch_steps(int most, cudaStream_t)   launches up to `most` steps of the staged block
///     void fold_everything()                      sets the folded weights Z to W(step)
///     std::string layout_name()                   EngineState::layout: states of the same layout
///                                                 continue bit by bit
///     void read_weights(std::span<float>)
///     void find_hidden(FollowedSteps&)            says where h of the last steps is
///     void exchange(own, History, back, row)      exchanges a row of a history with `own`, its
///                                                 arrays of the past on the host
///     void start_state(const std::vector<float>& folded, const EngineState* past)
///                                                 initialises device memory with Z in reference
///                                                 order and this past; null: that of a new run
/// The spec must be valid. Throws Error (device, memory).
template <class Self>
class LaunchedEngine : public EngineRun {
 public:
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }

  void run(const FrameBlock& block, Mode mode) {
    send(block, mode);
    run_sent(block);
  }
  /// The two parts of `run`, of which only the second one launches steps.
  void send(const FrameBlock& block, Mode mode) {
    if (mode == Mode::freeze) {
      settle();
    } else {
      learned_ = true;
    }
    const auto steps = count(block.steps);
    staging_.index()[0] =
        static_cast<std::uint32_t>(steps) | (block.squeezed.empty() ? 0U : frames_are_floats);
    const std::size_t tables = tables_.write(step_, steps, mode == Mode::learn, schedule_,
                                             staging_.index() + 1, staging_.tables());
    upload(block, tables);
  }
  void run_sent(const FrameBlock& block) {
    launch(block.steps);
    close(block);
    step_ += count(block.steps);
  }

  [[nodiscard]] Score take_score() { return EngineRun::take_score(score_); }

  /// Lets `follower` work behind the steps; null: nobody. A launch then runs no more steps than h
  /// is kept of, since a kernel that runs steps leaves no room for another one beside it.
  void follow(StepFollower* follower) {
    synchronize();
    follower_ = follower;
    if (follower_ != nullptr) {
      if (begin_.size() == 0) begin_ = Array<Cursor>(1);
      follower_->prepare(followed_steps());
    }
    capture();
  }

  /// Device memory by purpose, `memory_needed()` in sum. Engines that know more hide it.
  [[nodiscard]] MemoryParts memory_parts() const {
    return with_staging({{"weights and the past", self().memory_needed() - staging_bytes()}});
  }

  /// Continues from `state`: bit by bit if an engine with the same layout saved it (this engine, on
  /// a GPU like this one), else from its weights, its past and, where possible, its momentum. A
  /// state with weights only starts at its step with the past of a new run. Throws Error
  /// (Fault::checkpoint) if the state does not fit.
  void restore(const EngineState& state) {
    synchronize();
    check(state);
    tables_.clear();
    restart(state);
    step_ = state.step;
    learned_ = false;
    if (state.resumable()) {
      resume(state);
    } else {
      self().start_state(state.weights, nullptr);
    }
    tables_.restart();
  }
  /// Throws what `restore` throws if the state does not fit, and changes nothing.
  void check(const EngineState& state) const {
    check_state(state, sizes());
    self().check_weights(state.resumable() ? state.folded : state.weights);
  }

 protected:
  template <class T>
  using Array = DeviceArray<T>;

  /// Throws Error (usage) if the engine cannot hold these weights. Engines with a limit hide it.
  static void check_weights(const std::vector<float>& /*weights*/) {}

  LaunchedEngine(const Spec& spec, const EngineOptions& options, const DeviceFacts& device,
                 const DeferralPlans& plans)
      : EngineRun(spec, 1, options, device, false),
        plans_(plans),
        tables_(spec.layer_shapes.size(), plans) {}
  ~LaunchedEngine() = default;

  /// Waits for all work. A destructor of `Self` must call this first: steps may still be using its
  /// memory.
  void stop() const noexcept { streams_.stop(); }

  [[nodiscard]] std::size_t patches() const { return net_.layer_start[1]; }
  [[nodiscard]] std::size_t patch_size() const { return count(net_.units[0].base); }
  /// Number of hidden values of a step.
  [[nodiscard]] std::size_t hidden_row() const { return net_.units.size() * count(net_.hidden); }
  /// Index in a frame of value k (row, column, channel) of the patch of unit u.
  [[nodiscard]] std::size_t pixel(std::size_t u, std::size_t k) const {
    const auto block = count(spec_.input_block_size);
    const auto across = count(spec_.layer_shapes[0]);
    const std::size_t line = block * count(spec_.input_channels);
    const std::size_t row = u / across * block + k / line;
    return (row * across + u % across) * line + k % line;
  }

  // -------------------------------------------------------------- memory

  /// Bytes of device memory that this base allocates, without the score.
  [[nodiscard]] std::size_t staging_bytes() const {
    return staging_sizes().bytes() + 4 * layers() * (tables_.stride() + 1) + sizeof(Cursor) +
           barriers * sizeof(unsigned int);
  }
  /// `parts`, and those that this base allocates.
  [[nodiscard]] MemoryParts with_staging(MemoryParts parts) const {
    const std::size_t frames = staging_sizes().frame_bytes();
    parts.push_back({"frames of the next steps", frames});
    parts.push_back({"tables of rates", staging_bytes() - frames});
    return parts;
  }
  void require_memory() const { detail::require_memory(self(), "", "spec"); }
  /// Allocates the memory of this base. `scores`: number of score sums, in groups of prediction,
  /// persistence and loss.
  void allocate_staging(std::size_t scores) {
    staging_.allocate(staging_sizes());
    score_ = Array<double>(scores);
    cursor_ = Array<Cursor>(1);
    barrier_ = Array<unsigned int>(barriers);
    now_index_ = Array<std::uint32_t>(layers());
    now_tables_ = Array<float>(layers() * tables_.stride());
  }

  // -------------------------------------------------------------- launches

  /// Fills in those kernel arguments that describe the network and the staged blocks. `Arguments`
  /// is the argument struct of the kernels of `Self`.
  template <class Arguments>
  void describe(Arguments& a, int most_steps) const {
    a.units = static_cast<int>(net_.units.size());
    a.layers = static_cast<int>(layers());
    a.patches = static_cast<int>(patches());
    a.patch = static_cast<int>(patch_size());
    a.block_size = spec_.input_block_size;
    a.channels = spec_.input_channels;
    a.side = spec_.frame_side();
    a.activation = activation_number(spec_);
    a.sign_error = spec_.opt_abs_diff ? 1 : 0;
    a.staging = staging_.sizes().slots;
    a.block_steps = block_steps();
    a.table_stride = static_cast<int>(tables_.stride());
    a.most_steps = most_steps;
    a.score = score_.get();
    a.cursor = cursor_.get();
    a.barrier = barrier_.get();
    a.frames = staging_.device_frames();
    a.squeezed = staging_.device_floats();
    a.scored = staging_.device_scored();
    a.index = staging_.device_index();
    a.coefficients = staging_.device_tables();
  }

  /// Captures the launch of a block in a graph. It can be replayed because everything that changes
  /// from block to block is in device memory.
  void capture() {
    if (!options_.graph) return;
    const cudaStream_t stream = streams_.compute();
    graph_.capture(stream, [&] {
      follower_ == nullptr ? self().launch_steps(INT_MAX, stream) : launch_followed(stream);
    });
  }

  /// Writes the position of the run to device memory, and clears the barriers and the score.
  void set_cursor() {
    streams_.write(cursor_, std::vector<Cursor>{{step_, staging_.blocks(), 0, 0}});
    streams_.write(barrier_, std::vector<unsigned int>(barriers));
    streams_.clear(score_);
  }
  /// Writes the coefficient tables of W(step) to `now_index_` and `now_tables_`.
  void write_tables_now() {
    std::vector<std::uint32_t> index(layers());
    std::vector<float> tables(layers() * tables_.stride());
    tables_.write_now(step_, index.data(), tables.data());
    streams_.write(now_index_, index);
    streams_.write(now_tables_, tables);
  }

  // -------------------------------------------------------------- checkpoints

  /// A state without the values of the folded weights and without the past.
  [[nodiscard]] EngineState save_run() {
    EngineState state = begin_state(step_);
    self().read_weights(state.weights);
    state.layout = self().layout_name();
    state.plan = plans_.w0;
    if (plans_.w1 != plans_.w0) state.plan1 = plans_.w1;
    const auto save_rates = [&](std::size_t part, std::vector<double>& to) {
      for (const DeferredRates& layer : tables_.layers(part)) {
        const auto saved = layer.save();
        to.insert(to.end(), saved.begin(), saved.end());
      }
    };
    save_rates(0, state.coefficients);
    if (state.plan1) save_rates(1, state.coefficients1);
    return state;
  }

  /// Saves the past in `own` to `state`, or loads it if `state` is const.
  template <class State, class Arrays>
  void exchange_past(State& state, Arrays& own) const {
    detail::exchange_past(state, sizes(), plans_.w0.terms,
                          [&](History which, std::uint64_t back, auto row) {
                            self().exchange(own, which, back, row);
                          });
  }

  /// Length of `barrier_`: counters in device memory, see the kernels' arguments.
  static constexpr std::size_t barriers = 3;

  DeferralPlans plans_;
  CoefficientTables tables_;
  Array<double> score_;
  Array<std::uint32_t> now_index_;
  Array<float> now_tables_;
  std::uint64_t step_ = 0;

 private:
  [[nodiscard]] Self& self() noexcept { return static_cast<Self&>(*this); }
  [[nodiscard]] const Self& self() const noexcept { return static_cast<const Self&>(*this); }
  [[nodiscard]] StagingSizes staging_sizes() const {
    const CudaTuning& tuning = device_.tuning;
    const std::size_t tables = (count(tuning.block_steps) + 1) * layers();
    return {tuning.staging_slots, tuning.block_steps, 1,
            spec_.frame_size(),   1 + tables,         tables * tables_.stride()};
  }

  [[nodiscard]] FollowedSteps followed_steps() const {
    FollowedSteps steps;
    steps.begin = begin_.get();
    steps.end = cursor_.get();
    steps.frames = staging_.device_frames();
    steps.slots = staging_.sizes().slots;
    steps.block_steps = block_steps();
    self().find_hidden(steps);
    steps.most_steps = std::min(steps.hidden_rows, steps.block_steps);
    return steps;
  }
  /// Launches a part of a block, and behind it what follows it.
  void launch_followed(cudaStream_t stream) {
    const FollowedSteps steps = followed_steps();
    cuda_check(cudaMemcpyAsync(begin_.get(), cursor_.get(), sizeof(Cursor),
                               cudaMemcpyDeviceToDevice, stream),
               "launching a step");
    self().launch_steps(steps.most_steps, stream);
    follower_->launch(steps, stream);
  }

  /// Uploads the block. `tables`: number of its coefficient tables.
  void upload(const FrameBlock& block, std::size_t tables) {
    if (follower_ != nullptr && !block.squeezed.empty()) {
      throw Error(Fault::usage, "what follows steps on a GPU reads frames of 8 bits only");
    }
    if (!block.squeezed.empty() && staging_.make_room_for_floats()) {
      synchronize();
      capture();  // the arguments of the launch have changed
    }
    staging_.open();
    staging_.send_frames(block);
    staging_.send_index(1 + (count(block.steps) + 1) * layers());
    staging_.send_tables(0, tables * tables_.stride());
    if (follower_ != nullptr) {
      follower_->upload(staging_.slot(), block.steps, streams_.upload());
    }
    staging_.end_upload();
  }
  /// Launches the `steps` steps of the block, after its upload.
  void launch(int steps) {
    launch_timed([&](cudaStream_t stream) {
      if (follower_ != nullptr) return launch_parts(steps, stream);
      if (options_.graph) return graph_.launch(stream);
      for (int i = 0; i < steps; ++i) self().launch_steps(1, stream);
    });
  }
  void launch_parts(int steps, cudaStream_t stream) {
    const int most = followed_steps().most_steps;
    for (int done = 0; done < steps; done += most) {
      options_.graph ? graph_.launch(stream) : launch_followed(stream);
    }
    follower_->end_block(stream);
  }
  /// Folds everything and drops the momentum: no gradient is listed any more.
  void settle() {
    if (!std::exchange(learned_, false)) return;
    self().fold_everything();
    tables_.clear();
  }

  void resume(const EngineState& state) {
    learned_ = true;
    if (state.layout == self().layout_name() && state.plans() == plans_ &&
        same_momenta(state, spec_)) {
      restore_rates(state);
      self().start_state(state.folded, &state);
    } else if (state.dweights.empty()) {
      rebase_rates(state);
      self().start_state(settled_weights(state, spec_, net_, 1, plans_), &state);
    } else {  // saved with a momentum array: W holds all gradients, the momentum starts from zero
      self().start_state(state.weights, &state);
    }
  }
  /// Calls take(layer, its part of `saved`) for every layer; throws Error (checkpoint) if one call
  /// returns false.
  template <class Take>
  void for_each_layer_of(const std::vector<double>& saved, Take take) const {
    const std::size_t each = saved.size() / layers();
    for (std::size_t l = 0; l < layers(); ++l) {
      const auto from = saved.begin() + static_cast<std::ptrdiff_t>(l * each);
      if (!take(l, std::vector<double>(from, from + static_cast<std::ptrdiff_t>(each)))) {
        throw Error(Fault::checkpoint, "the checkpoint's coefficients do not fit its plan");
      }
    }
  }
  void restore_rates(const EngineState& state) {
    for (std::size_t part = 0; part < tables_.parts(); ++part) {
      for_each_layer_of(part == 0 ? state.coefficients : state.coefficients1,
                        [&](std::size_t l, const std::vector<double>& saved) {
                          return tables_.layers(part)[l].restore(saved);
                        });
    }
  }
  /// Takes over the coefficients of another engine's state. Those of W0 serve for W1, too: both are
  /// made of the same rates.
  void rebase_rates(const EngineState& state) {
    const std::vector<float> momenta = next_momenta(spec_, state.step);
    for (std::size_t part = 0; part < tables_.parts(); ++part) {
      for_each_layer_of(state.coefficients, [&](std::size_t l, const std::vector<double>& saved) {
        return tables_.layers(part)[l].rebase(saved, state.plan, state.step, momenta[l]);
      });
    }
  }

  Array<Cursor> cursor_;
  Array<unsigned int> barrier_;
  Graph graph_;
  StepFollower* follower_ = nullptr;
  Array<Cursor> begin_;  // the cursor before the part that is followed
};

}  // namespace pvm::inline v0::detail
