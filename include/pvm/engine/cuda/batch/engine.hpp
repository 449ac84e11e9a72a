// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The engine for many sequences that share their weights, on the tensor cores of an NVIDIA GPU.
/// Include it from files that nvcc compiles.
///
/// Its parts: scheme.hpp chooses how steps are computed, plan.hpp makes the tables for that,
/// memory.hpp owns the device memory, past.hpp converts the history in it from and to checkpoints,
/// rates.hpp makes the tables of learning rates, upload.hpp uploads these and the frames,
/// kernels.hpp launches the kernels of a step, and steps.hpp runs the steps. This file combines
/// them into an Engine. (Several of them are the shards of a network in shards.hpp, which
/// exchange.cuh connects.)

#ifndef __CUDACC__
#error "pvm/engine/cuda is compiled by nvcc: name the file .cu, or use the host engine"
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/large_vector.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/compiled_for.hpp>
#include <pvm/engine/cuda/batch/exchange.cuh>
#include <pvm/engine/cuda/batch/kernels.hpp>
#include <pvm/engine/cuda/batch/memory.hpp>
#include <pvm/engine/cuda/batch/past.hpp>
#include <pvm/engine/cuda/batch/plan/plan.hpp>
#include <pvm/engine/cuda/batch/plan/scheme.hpp>
#include <pvm/engine/cuda/batch/plan/tables.hpp>
#include <pvm/engine/cuda/batch/rates.hpp>
#include <pvm/engine/cuda/batch/ring.hpp>
#include <pvm/engine/cuda/batch/steps.hpp>
#include <pvm/engine/cuda/batch/upload.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/device/memory.hpp>
#include <pvm/engine/cuda/numbers/network_constants.hpp>
#include <pvm/engine/cuda/numbers/precision.cuh>
#include <pvm/engine/cuda/run/engine_run.hpp>
#include <pvm/engine/cuda/run/staging.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/history.hpp>
#include <pvm/engine/memory_part.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/activation.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

/// An Engine on the current CUDA device for two or more sequences (one works, but is slow).
/// Products are computed in `Precision`; weights are fp32 and learn by `Rule`. If `Batch` is a
/// constant, only the kernels for it are compiled: in 16 bits a ninth of those for any batch.
/// `OwnActivation` is an activation type of the program (RunsOnGpu), or void for the library's
/// activation that the spec names. `run` returns at once; frames are uploaded on a stream of their
/// own while steps on earlier frames run.
template <class Precision = fp32, int Batch = dynamic, class Rule = Momentum,
          class OwnActivation = void>
class CudaBatchEngine : public detail::EngineRun {
  static_assert(LearningRuleType<Rule>);
  using Math = detail::MathOf<Precision, OwnActivation>;
  using Stored = typename Math::Stored;

 public:
  /// `spec` must be valid; throws Error (usage, device, memory).
  explicit CudaBatchEngine(const Spec& spec, int batch = Batch, const EngineOptions& options = {})
      : CudaBatchEngine(spec, batch, options, {0, SIZE_MAX}) {
    begin();
    say_what_padding_costs();
  }
  /// A shard of the network, which has these units, as far as they exist; `connect` is called next.
  CudaBatchEngine(const Spec& spec, int batch, const EngineOptions& options,
                  const detail::batch::Range& units)
      : EngineRun(check_spec(spec), detail::check_batch<Batch>(batch), options,
                  detail::describe_device(), true),
        scheme_(choose_scheme()),
        plan_(detail::batch::make_plan<Math, Batch>(
            spec_, net_, {units.first, std::min(units.end, net_.units.size())}, scheme_, device_)),
        rates_(layers(), scheme_.shape.terms, detail::batch::rate_kind<Rule>(scheme_.listed),
               scheme_.shape.sequence_weight, &rule_step<Rule>),
        memory_(scheme_, plan_, net_.hidden, rates_.size()),
        kernels_(scheme_, plan_, device_),
        steps_(scheme_, kernels_, memory_, rates_, streams_) {
    kernels_.require_shared_memory(device_);
    detail::require_memory(*this, " with a batch of " + std::to_string(batch_), "batch or spec");
    memory_.allocate(streams_);
    staging_.allocate(staging_sizes());
  }
  ~CudaBatchEngine() { stop(); }

  [[nodiscard]] std::uint64_t step() const noexcept { return steps_.step(); }

  void run(const FrameBlock& block, Mode mode) {
    open(block, mode);
    for_each_part(block.steps, is_idle(), [&](int first, int steps) {
      upload(block, first, steps);
      launch(steps);
    });
    end(block);
  }

  [[nodiscard]] Score take_score() { return EngineRun::take_score(memory_.score); }

  /// W(step) in reference order, `connectome().weights` floats.
  void read_weights(std::span<float> out) { export_weights(steps_.weights(), out); }

  /// The prediction for two steps ahead, [batch][side][side][channels] in [0, 1].
  void read_prediction(std::span<float> out) {
    steps_.make_outputs();
    const auto y = past().last_outputs();
    const std::size_t frame = spec_.frame_size();
    const std::size_t end = std::min(plan_.units.end, net_.layer_start[1]);
    for (std::size_t u = plan_.units.first; u < end; ++u) {
      for (std::size_t k = 0; k < count(net_.units[u].base); ++k) {
        const auto* row = y.data() + (plan_.output_start[u] + k) * count(scheme_.shape.padded);
        const std::size_t pixel = plan_.rows[plan_.input_start(u) + k] & detail::batch::row_mask;
        for (std::size_t b = 0; b < count(batch_); ++b) {
          out[b * frame + pixel] = unsqueeze(Stored::decode(row[b]));
        }
      }
    }
  }

  /// h of the last step, [batch][units][hidden].
  void read_hidden(std::span<float> out) { past().read_hidden(out); }

  /// y of the last step, [batch][outputs], unit by unit.
  void read_outputs(std::span<float> out) {
    steps_.make_outputs();
    past().read_outputs(out);
  }

  /// The state, for a checkpoint. Does not change what the run computes afterwards.
  [[nodiscard]] EngineState save() {
    EngineState state = begin_state(step());
    state.layout = scheme_.layout_name();
    state.plan = scheme_.deferral();
    state.coefficients = rates_.save();
    detail::resize_large(state.dweights, net_.weights * rule_floats());
    add_to(state);
    return state;
  }

  /// Continues from `state`: bit by bit if an engine with the same layout and deferral plan saved
  /// it, else from its weights and its past, with zero momentum. A state with weights only starts
  /// at its step with the past of a new run. Throws Error (Fault::checkpoint) if the state does not
  /// fit.
  void restore(const EngineState& state) {
    synchronize();
    check(state);
    rates_.clear();
    restart(state);
    learned_ = state.resumable();
    start_state(state.step, &state);
  }

  // -------------------------------------------------------------- for CudaBatchShardsEngine

  // A shard's read_ functions write what its own units have, and nothing else.

  /// Adds what this shard's units have to a state that another shard has saved.
  void add_to(EngineState& state) {
    read_weights(state.weights);
    export_weights(streams_.download(memory_.master.get(), plan_.master), state.folded);
    for (std::size_t k = 0; k < rule_floats(); ++k) {
      export_weights(streams_.download(rule_state(k), plan_.master),
                     std::span(state.dweights).subspan(k * net_.weights, net_.weights));
    }
    steps_.make_outputs();
    exchange_past(state, past());
  }
  /// The shard's side of the exchange with others, which its memory has to outlive.
  [[nodiscard]] detail::batch::Exchange exchange() const {
    return {memory_, spec_.feed_context_in_complex_layer, device_};
  }
  /// To be called once, when all shards have been made and before anything else: `all` are their
  /// sides of the exchange, of which this shard's is number `own`. They begin a run together.
  void connect(std::size_t own, const std::vector<detail::batch::Exchange>& all) {
    if (all.size() > 1) {
      exchange_ = all[own];
      exchange_->connect(own, all);
      steps_.exchange_by(*exchange_);
    }
    begin();
    if (own == 0) say_what_padding_costs();
  }
  /// The parts of `run`. Of each part of the block, `upload` comes before `launch`, which may be
  /// called for fewer steps at a time.
  void open(const FrameBlock& block, Mode mode) {
    if (mode == Mode::freeze) {
      drop_momentum();
    } else {
      learned_ = true;
    }
    write_tables(block.steps, mode);
    staging_.open();
  }
  void upload(const FrameBlock& block, int first, int steps) {
    const std::size_t frames = count(scheme_.shape.frames);
    const std::size_t frame_slot = detail::batch::ring_slot(step(), 0, frames) + count(first);
    if (!block.squeezed.empty()) staging_.make_room_for_floats();
    detail::batch::upload<Math>(staging_, streams_, part(block, first, steps), first, rates_.size(),
                                memory_.arguments(), frame_slot % frames,
                                memory_.persistence_errors.get());
  }
  void launch(int steps) {
    launch_timed([&](cudaStream_t) { steps_.launch(steps); });
  }
  void end(const FrameBlock& block) {
    close(block);
    steps_.advance(count(block.steps));
  }
  [[nodiscard]] bool is_idle() const { return detail::is_idle(streams_.compute()); }
  /// Calls visit(first step, steps) for the parts of a block of `steps` steps to upload and launch
  /// one after the other: on an idle device an eighth of the block first, so that steps begin
  /// early, then as many as are done.
  template <class Visit>
  static void for_each_part(int steps, bool idle, const Visit& visit) {
    for (int first = 0, n = 0; first < steps; first += n) {
      n = idle ? std::min(steps - first, std::max({1, steps / 8, first})) : steps;
      visit(first, n);
    }
  }
  /// Waits for all work, without exceptions.
  void stop() const noexcept { streams_.stop(); }

  [[nodiscard]] std::string description() const {
    const detail::batch::Shape& s = scheme_.shape;
    return "CUDA batch engine: " + device_.name + ", " + std::string(Precision::name) +
           " products on tensor cores, " + std::to_string(batch_) + " sequences in slices of " +
           std::to_string(s.slice) + ", " + std::to_string(memory_needed() >> 20) + " MiB, " +
           (scheme_.swept ? "weights swept once a step, " : "") +
           (scheme_.listed
                ? "last " + std::to_string(s.terms) + " gradients listed"
                : std::to_string(Rule::state) + " floats of the learning rule a weight") +
           ", " + (options_.graph ? "captured" : "launched step by step");
  }
  /// Bytes of device memory the engine takes.
  [[nodiscard]] std::size_t memory_needed() const {
    return memory_.bytes() + staging_sizes().bytes();
  }
  /// The same by purpose.
  [[nodiscard]] MemoryParts memory_parts() const {
    MemoryParts parts = memory_.parts();
    const detail::StagingSizes staged = staging_sizes();
    parts.push_back({"frames of the next steps", staged.frame_bytes()});
    parts.push_back({"tables of rates", staged.bytes() - staged.frame_bytes()});
    return parts;
  }

 private:
  /// Throws Error (usage) unless the spec names the activation and the learning rule that the
  /// kernels were compiled for.
  static const Spec& check_spec(const Spec& spec) {
    detail::check_own_activation<OwnActivation>(spec);
    const std::string rule(detail::own_name<Rule>());
    if (spec.learning_rule != rule) {
      throw Error(Fault::usage, "the spec's learning rule is '" + spec.learning_rule +
                                    "' and this engine was compiled for '" + rule + "'");
    }
    return spec;
  }
  [[nodiscard]] detail::batch::Scheme choose_scheme() const {
    return detail::batch::SchemeChooser<Math, Batch, Rule>(spec_, net_, batch_, options_.reduce,
                                                           device_)
        .choose();
  }
  [[nodiscard]] detail::StagingSizes staging_sizes() const {
    using detail::batch::Tuning;
    const int steps = Tuning::block_steps(scheme_.shape.padded);
    return {Tuning::staging_slots, steps, count(batch_),
            spec_.frame_size(),    0,     count(steps) * rates_.size()};
  }
  [[nodiscard]] std::size_t rule_floats() const { return count(scheme_.rule_floats); }
  /// The rule's float number `k` of every weight, in the master's order, in device memory.
  [[nodiscard]] float* rule_state(std::size_t k) const {
    return memory_.states.get() + k * plan_.master;
  }
  [[nodiscard]] detail::batch::Past<Math> past() const { return {memory_, streams_, step()}; }

  /// Begins a new run, unless a state is to be restored, and captures its steps.
  void begin() {
    if (!options_.restored_next) start_state(0, nullptr);
    if (options_.graph) steps_.capture();
  }

  /// Says so if more sequences would cost no time: tensor cores multiply by 16 of them at once, and
  /// with fewer a step waits for the weights.
  void say_what_padding_costs() const {
    constexpr int least = 16;
    if (batch_ >= least) return;
    log(Severity::info, "on the GPU a step takes as long for " + std::to_string(batch_) +
                            (batch_ == 1 ? " sequence of this network" : " sequences") +
                            " as for " + std::to_string(least) + ": take " + std::to_string(least) +
                            " or more" + (batch_ == 1 ? "" : ", or one sequence"));
  }

  // -------------------------------------------------------------- steps

  /// Writes the rate tables of the block's steps.
  void write_tables(int steps, Mode mode) {
    for (int i = 0; i < steps; ++i) {
      float* table = staging_.tables() + count(i) * rates_.size();
      rates_.write(step() + count(i), mode == Mode::learn, schedule_, table);
      if (i + scheme_.shape.terms >= steps) table[1] = 1;  // a checkpoint may need this step's d1
    }
  }

  /// Drops the momentum: W stays as it is and no gradient is listed any more.
  void drop_momentum() {
    if (!std::exchange(learned_, false)) return;
    if (scheme_.listed) {
      streams_.write(memory_.master.get(), steps_.weights());
      rates_.clear();
      steps_.forget_gradients();
    } else {
      if (rule_floats() > 0) streams_.clear(memory_.states, "forgetting the momentum");
      rates_.clear();
    }
  }

  // -------------------------------------------------------------- checkpoints

  void export_weights(const std::vector<float>& master, std::span<float> out) const {
    plan_.for_each_weight(
        [&](std::size_t reference, std::size_t own) { out[reference] = master[own]; });
  }
  [[nodiscard]] std::vector<float> import_weights(std::span<const float> weights) const {
    auto master = detail::large_vector<float>(plan_.master);
    plan_.for_each_weight(
        [&](std::size_t reference, std::size_t own) { master[own] = weights[reference]; });
    return master;
  }

  /// Whether a run continues from `state` bit by bit.
  [[nodiscard]] bool resumes_exactly(const EngineState& state) const {
    return state.resumable() && state.layout == scheme_.layout_name() &&
           state.plan == scheme_.deferral();
  }
  /// Saves the past to `state`, or loads it if `state` is const.
  template <class State>
  void exchange_past(State& state, const detail::batch::Past<Math>& past) const {
    detail::exchange_past(state, sizes(), scheme_.shape.terms,
                          [&](detail::History which, std::uint64_t back, auto row) {
                            past.exchange(which, back, row);
                          });
  }
  void check(const EngineState& state) const {
    detail::check_state(state, sizes());
    if (resumes_exactly(state) && !scheme_.listed) {
      detail::check_size("dweights", state.dweights.size(), net_.weights * rule_floats());
    }
  }
  /// Initialises device memory for a run that continues at `step`: from `state`, or, where it is
  /// null, as a new run with zero weights.
  void start_state(std::uint64_t step, const EngineState* state) {
    const bool same = state != nullptr && resumes_exactly(*state);
    if (same && !rates_.restore(state->coefficients)) {
      throw Error(Fault::checkpoint, "the checkpoint's coefficients do not fit its plan");
    }
    if (state != nullptr) {
      streams_.write(memory_.master.get(), import_weights(same ? state->folded : state->weights));
    }
    if (!same && rule_floats() > 0) streams_.clear(memory_.states);
    for (std::size_t k = 0; same && k < rule_floats(); ++k) {
      streams_.write(
          rule_state(k),
          import_weights(std::span(state->dweights).subspan(k * net_.weights, net_.weights)));
    }
    const detail::batch::Past<Math> past(memory_, streams_, step);
    past.start();
    if (state != nullptr && state->resumable()) exchange_past(*state, past);
    streams_.write(memory_.score.get(), std::vector<double>(memory_.score.size()));
    steps_.begin_at(step);
    synchronize();
  }

  detail::batch::Scheme scheme_;
  detail::batch::Plan plan_;
  detail::batch::RateTables rates_;
  detail::batch::Memory<Math> memory_;
  detail::batch::Kernels<Math, Batch, Rule> kernels_;
  detail::batch::Steps<Math, Batch, Rule> steps_;
  std::optional<detail::batch::Exchange> exchange_;  // of a shard
};

}  // namespace pvm::inline v0
