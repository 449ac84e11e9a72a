// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The engine that runs on the CPU: the readable reference of what a step computes.

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/large_vector.hpp>
#include <pvm/core/parallel.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/compiled_for.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/current_weights.hpp>
#include <pvm/engine/host/frame_store.hpp>
#include <pvm/engine/host/host_activation.hpp>
#include <pvm/engine/host/host_network.hpp>
#include <pvm/engine/host/host_rule.hpp>
#include <pvm/engine/host/inner_products.hpp>
#include <pvm/engine/host/layer_rates.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/past.hpp>
#include <pvm/engine/host/past_products.hpp>
#include <pvm/engine/host/scratch.hpp>
#include <pvm/engine/host/shared_units.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/engine/host/step_inputs.hpp>
#include <pvm/engine/host/team.hpp>
#include <pvm/engine/host/unit_portions.hpp>
#include <pvm/engine/host/unit_step.hpp>
#include <pvm/engine/host/update_scheme.hpp>
#include <pvm/engine/host/weight_layout.hpp>
#include <pvm/engine/host/weight_store.hpp>
#include <pvm/engine/settled_weights.hpp>
#include <pvm/engine/unit_exchange.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// An Engine that uses threads and vector instructions. Results do not depend on the number of
/// threads: one thread computes all of a unit's step, and the units of one step do not depend on
/// each other.
///
/// `Precision`: fp32, bf16 or fp16. With bf16 and fp16 the products read a 16-bit working copy of
/// the weights; sums and everything else are fp32, and updates enter fp32 weights. `Net`: a
/// Network, whose sizes are compile-time constants and whose activation and rule may be types of
/// the program, or RuntimeNetwork.
template <int Batch = dynamic, class Precision = fp32, class Net = RuntimeNetwork>
class HostEngine {
  static_assert(PrecisionTag<Precision>,
                "pvm: a precision is pvm::fp32, pvm::tf32, pvm::bf16 or pvm::fp16");
  static_assert(!std::same_as<Precision, tf32>,
                "pvm: tf32 exists on GPUs only; on the host take pvm::fp32 or pvm::bf16");
  static_assert(NetworkType<Net>, "pvm: a network is a pvm::Network<...> or pvm::RuntimeNetwork");

  using Weights = WeightStore<Precision>;
  using Step = UnitStep<Precision, Net::hidden>;
  static constexpr bool full_precision = std::same_as<Precision, fp32>;
  /// The outputs of so many eighths of the units are computed while hidden values are exchanged.
  static constexpr std::size_t split_eighths = 1;

 public:
  /// `spec` must be valid. Throws Error: usage if the batch or the hidden size is not that of the
  /// template arguments, spec if this type has no activation or rule of the spec's name, memory.
  explicit HostEngine(const Spec& spec, int batch = Batch, const EngineOptions& options = {})
      : spec_(with_schedule_of_rule(spec)),
        options_(options),
        batch_(detail::check_batch<Batch>(batch)),
        activation_(own_activation_of<typename Net::activation>(spec)),
        rule_(rule_of<typename Net::rule>(spec)),
        net_(make_network(spec, options.exchange)),
        layout_(net_, Weights::group),
        scheme_(UpdateScheme::of<Precision>(spec_, batch_, options.reduce)),
        rates_(spec_, scheme_, rule_),
        store_(spec.frame_size()),
        team_(options.threads > 0
                  ? options.threads
                  : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))),
        portions_(layout_, net_.units.size(), static_cast<std::size_t>(team_.size()),
                  options.exchange != nullptr ? options.exchange->first() : 0,
                  options.exchange != nullptr ? options.exchange->end() : net_.units.size()) {
    if (options.exchange != nullptr)
      portions_.split(options.exchange->seconds.empty() ? split_eighths : 0);
    require_memory(memory_needed(), "this network");
    // The momentum array (fp32 only) lies behind the weights in the same array; the state of a rule
    // has arrays of its own.
    weights_ = Weights(layout_.size() * (scheme_.momentum_array() ? 2 : 1));
    if (scheme_.by_rule) rule_state_ = HugeArray(layout_.size() * state_arrays());
    past_ = std::make_unique<Past>(spec_, net_, layout_, batch_, scheme_.plan.terms);
    const std::size_t units = net_.units.size();
    const std::size_t terms = past_->terms();
    const std::size_t b = past_->batch();
    if (!scheme_.immediate) {  // only listed gradients need them; they grow with the batch's square
      squeezed_products_ = InnerProducts(units, terms, b);
      raw_products_ = InnerProducts(units, terms, b);
      patch_products_ = InnerProducts(past_->patches(), terms, b);
    }
    score_.resize(units);
    network_ = std::make_unique<HostNetwork>(
        HostNetwork{spec_, net_, layout_, *past_, squeezed_products_, raw_products_,
                    patch_products_, scheme_.plan, scheme_.momentum_array() ? layout_.size() : 0,
                    score_, activation_, scheme_.by_rule ? rule_ : HostRule{}, rule_state_});
    for (int i = 0; i < team_.size(); ++i) scratch_.emplace_back(*network_);
    if (options.exchange != nullptr) shared_.emplace(*network_, *options.exchange);
    restore_products(*network_, step_);
  }
  HostEngine(const HostEngine&) = delete;
  HostEngine& operator=(const HostEngine&) = delete;

  [[nodiscard]] int batch() const noexcept { return batch_; }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] const Connectome& connectome() const noexcept { return net_; }
  /// A sensible length of a block: steps that take a fraction of a second on two cores. Longer
  /// blocks only delay what the caller sees and when it can stop a run.
  [[nodiscard]] int block_steps() const noexcept {
    constexpr std::size_t weights = std::size_t{1} << 29;  // weights times sequences in a block
    const std::size_t steps = weights / (net_.weights * static_cast<std::size_t>(batch_));
    return static_cast<int>(std::clamp<std::size_t>(steps, 1, 32));
  }

  /// Room for `steps` frames of every sequence. It is valid until the next call.
  [[nodiscard]] FrameBlock stage(int steps) {
    const std::size_t rows = static_cast<std::size_t>(steps) * static_cast<std::size_t>(batch_);
    pixels_.resize(rows * spec_.frame_size());
    scored_.assign(rows, 0);
    stored_.assign(store_.capacity() > 0 ? rows : 0, not_stored);
    return {steps, pixels_, scored_, {}, stored_};
  }

  /// The store of decoded frames is in ordinary memory, and steps read frames in place. See Engine.
  std::size_t reserve_frames(std::size_t budget, std::size_t frames) {
    return store_.reserve(budget, frames);
  }
  void store_frames(std::size_t first, std::span<const std::uint8_t> pixels) {
    store_.put(first, pixels);
  }
  void read_frame(std::size_t index, std::span<std::uint8_t> pixels) const {
    store_.get(index, pixels);
  }

  /// Runs the block's steps. Freezing first settles the listed gradients, so that dW is 0 if
  /// learning continues later.
  void run(const FrameBlock& block, Mode mode) {
    if (mode == Mode::freeze) {
      settle();
    } else {
      learned_ = true;
    }
    run_steps(block, mode);
    step_ += static_cast<std::size_t>(block.steps);
  }

  void hold_rate(std::size_t layer, std::optional<float> rate) { rates_.hold(layer, rate); }

  void synchronize() noexcept {}

  [[nodiscard]] Score take_score() {
    Score sum;
    for (Score& score : score_) sum += std::exchange(score, {});
    return sum;
  }

  /// The scores of all units since the score was last taken, one by one.
  void take_unit_scores(std::span<Score> out) {
    for (std::size_t u = 0; u < score_.size(); ++u) out[u] = std::exchange(score_[u], {});
  }

  /// W(step), reference order, `connectome().weights` floats.
  void read_weights(std::span<float> out) { export_weights(out, {}); }

  /// The prediction for two steps ahead, [batch][side][side][channels] in [0, 1].
  void read_prediction(std::span<float> out) {
    for (std::size_t b = 0; b < past_->batch(); ++b) {
      for (std::size_t u = 0; u < past_->patches(); ++u) {
        if (!net_.units[u].is_here()) continue;
        const float* y = past_->y(step_ + 2, b, u);  // of the last step
        float* frame = out.data() + b * spec_.frame_size();
        for (std::size_t k = 0; k < past_->patch_size(); ++k) {
          frame[past_->pixel(u, k)] = unsqueeze(y[k]);
        }
      }
    }
  }

  /// h of the last step, [batch][units][hidden].
  void read_hidden(std::span<float> out) {
    float* to = out.data();
    for (std::size_t b = 0; b < past_->batch(); ++b) {
      for (std::size_t u = 0; u < net_.units.size(); ++u) {
        to = std::copy_n(past_->raw(past_->slot(step_, 1), b, u), past_->hidden(), to);
      }
    }
  }

  /// y of the last step, [batch][outputs], unit by unit.
  void read_outputs(std::span<float> out) {
    float* to = out.data();
    for (std::size_t b = 0; b < past_->batch(); ++b) {
      for (std::size_t u = 0; u < net_.units.size(); ++u) {
        to = std::copy_n(past_->y(step_ + 2, b, u), net_.units[u].outputs, to);
      }
    }
  }

  /// Everything, for a checkpoint. Does not disturb the run.
  [[nodiscard]] EngineState save() {
    EngineState state;
    state.step = step_;
    state.batch = batch_;
    detail::resize_large(state.weights, net_.weights);
    detail::resize_large(state.folded, net_.weights);
    export_weights(state.weights, state.folded);
    rates_.save(state);
    state.layout = scheme_.layout_name<Precision>(spec_);
    state.plan = scheme_.plan;
    detail::resize_large(state.dweights, state_arrays() * net_.weights);
    for (std::size_t k = 0; k < state_arrays(); ++k) {
      layout_.export_weights(state_array(k),
                             std::span(state.dweights).subspan(k * net_.weights, net_.weights));
    }
    exchange_past(state);
    return state;
  }

  /// Continues from `state`: bit by bit if an engine of the same layout, plan and momenta has saved
  /// it, else from its weights, its past and, where possible, its momentum. A state that has only
  /// weights starts at its step with the past of a new run. Throws Error (Fault::checkpoint) if the
  /// batch or the sizes do not fit.
  void restore(const EngineState& state) {
    check(state);
    forget_gradients();
    step_ = state.step;
    past_->reset(step_);
    rates_.restore_schedule(state);
    learned_ = false;
    if (state.resumable()) {
      resume(state);
    } else {
      set_weights(state.weights);
    }
    restore_products(*network_, step_);
    std::fill(score_.begin(), score_.end(), Score{});
  }

  [[nodiscard]] std::string description() const {
    return "host engine: " + std::to_string(team_.size()) + " threads, " + simd::isa_name() + ", " +
           (scheme_.by_rule ? "rule " + spec_.learning_rule + " at every step"
            : scheme_.immediate
                ? "momentum array"
                : "updates folded every " + std::to_string(scheme_.plan.period) + " steps") +
           (full_precision ? "" : ", products in " + std::string(Precision::name));
  }
  /// Bytes of weights and of learning state that a learning step reads and writes, on average.
  [[nodiscard]] std::size_t bytes_per_step() const noexcept {
    if (scheme_.by_rule) {
      return net_.weights *
             (Weights::bytes + Weights::fold_bytes + 2 * sizeof(float) * state_arrays());
    }
    if (scheme_.immediate) return 4 * net_.weights * sizeof(float);
    return net_.weights * Weights::bytes +
           net_.weights * Weights::fold_bytes / static_cast<std::size_t>(scheme_.plan.period);
  }
  /// Bytes of memory that the engine allocates, approximately.
  [[nodiscard]] std::size_t memory_needed() const {
    const std::size_t rows = static_cast<std::size_t>(batch_) * sizeof(float) *
                             (static_cast<std::size_t>(scheme_.plan.terms) + 5);
    const std::size_t past =
        rows * (3 * net_.units.size() * simd::padded(static_cast<std::size_t>(net_.hidden)) +
                2 * net_.outputs + 2 * spec_.frame_size());
    const std::size_t products =
        scheme_.immediate
            ? 0
            : static_cast<std::size_t>(scheme_.plan.terms) * static_cast<std::size_t>(batch_) *
                  static_cast<std::size_t>(batch_) * 9 * net_.units.size() * sizeof(float);
    constexpr std::size_t each = std::same_as<Precision, fp16> ? 6 : 4;
    return layout_.size() * (each + sizeof(float) * state_arrays()) + past + products +
           static_cast<std::size_t>(team_.size()) * scratch_needed();
  }

 private:
  /// Bytes of a thread's scratch memory, approximately: some three rows of each kind for every
  /// sequence.
  [[nodiscard]] std::size_t scratch_needed() const {
    int row = 0;
    for (const Unit& unit : net_.units)
      row = std::max(row, unit.inputs + unit.outputs + unit.representation);
    return 3 * static_cast<std::size_t>(row) * sizeof(float) * static_cast<std::size_t>(batch_) *
           static_cast<std::size_t>(scheme_.plan.terms);
  }

  /// The hidden size of a Network is a constant in the code, so the spec must have the same.
  static Connectome make_network(const Spec& spec, const UnitExchange* exchange) {
    detail::check_hidden<Net::hidden == dynamic ? 0 : Net::hidden>(spec);
    if (exchange == nullptr) return make_connectome(spec);
    return part_of(make_connectome(spec), exchange->first(), exchange->end());
  }

  /// How many arrays of the length of the weights learning keeps besides them.
  [[nodiscard]] std::size_t state_arrays() const {
    return scheme_.by_rule            ? static_cast<std::size_t>(rule_.state)
           : scheme_.momentum_array() ? 1
                                      : 0;
  }
  [[nodiscard]] std::span<float> state_array(std::size_t k) {
    if constexpr (full_precision) {
      if (scheme_.momentum_array()) return {weights_.data() + layout_.size(), layout_.size()};
    }
    return rule_state_.all().subspan(k * layout_.size(), layout_.size());
  }
  /// Clears all learning state besides the weights.
  void forget_gradients() {
    for (std::size_t k = 0; k < state_arrays(); ++k) {
      std::fill(state_array(k).begin(), state_array(k).end(), 0.0F);
    }
    rates_.forget_gradients();
  }

  /// Calls visit(u, room, scratch) for every unit, on several threads. `room` is for the unit's
  /// weights in the engine's layout, as floats; it holds what the thread's last visit has left.
  template <class Visit>
  void visit_units(const Visit& visit) {
    std::atomic<std::size_t> next = 0;
    detail::in_parallel(scratch_.size(), layout_.size(), [&](std::size_t thread) {
      HugeArray room(layout_.largest_unit());
      const std::size_t units = net_.units.size();
      for (std::size_t u = next.fetch_add(1); u < units; u = next.fetch_add(1)) {
        if (!net_.units[u].is_here()) continue;
        visit(u, room.all().first(layout_.size_of(u)), scratch_[thread]);
      }
    });
  }
  void set_weights(std::span<const float> reference) {
    visit_units([&](std::size_t u, std::span<float> own, Scratch&) {
      std::fill(own.begin(), own.end(), 0.0F);
      layout_.import_unit(u, reference, own);
      store_weights(weights_, layout_[u].w0, own);
    });
  }
  /// Calls visit(u, z, add) for every unit: `z` are its stored weights in the engine's layout, and
  /// add() turns them into W(step).
  template <class Visit>
  void visit_weights(const Visit& visit) {
    const StepRates rates = rates_.now();
    const float* velocity = scheme_.momentum_array() ? state_array(0).data() : nullptr;
    visit_units([&](std::size_t u, std::span<float> z, Scratch& scratch) {
      load_weights(weights_, layout_[u].w0, z);
      visit(u, z, [&] {
        CurrentWeights(*network_, scratch, rates, step_).add_to(z.data(), u, velocity);
      });
    });
  }
  /// Writes W(step) and, unless it is empty, Z in reference order.
  void export_weights(std::span<float> now, std::span<float> folded) {
    visit_weights([&](std::size_t u, std::span<float> z, const auto& add) {
      if (!folded.empty()) layout_.export_unit(u, z, folded);
      add();
      layout_.export_unit(u, z, now);
    });
  }

  void run_steps(const FrameBlock& block, Mode mode);

  /// Fills `frames_`: the pixels of each frame of the block, in the store or in the block.
  void locate_frames(const FrameBlock& block) {
    const std::size_t rows =
        static_cast<std::size_t>(block.steps) * static_cast<std::size_t>(batch_);
    frames_.resize(rows);
    for (std::size_t row = 0; row < rows; ++row) {
      const bool stored = !block.stored.empty() && block.stored[row] != not_stored;
      frames_[row] =
          stored ? store_.frame(block.stored[row]) : block.pixels.data() + row * spec_.frame_size();
    }
  }

  /// Sets Z = W(step), with no gradients listed and no momentum.
  void settle() {
    if (!std::exchange(learned_, false)) return;
    visit_weights([&](std::size_t u, std::span<float> z, const auto& add) {
      add();
      store_weights(weights_, layout_[u].w0, z);
    });
    forget_gradients();
    past_->forget_gradients();
  }

  [[nodiscard]] detail::StateSizes sizes() const { return {spec_, net_, batch_}; }
  /// Saves the past to `state`, or loads it if `state` is const.
  template <class State>
  void exchange_past(State& state) {
    detail::exchange_past(state, sizes(), scheme_.plan.terms,
                          [&](detail::History which, std::size_t back, auto row) {
                            past_->exchange(step_, which, back, row);
                          });
  }

  /// Throws Error (checkpoint) if `state` does not fit, before the engine takes over any of it.
  void check(const EngineState& state) const {
    detail::check_state(state, sizes());
    if (state.resumable() && resumes_exactly(state)) {
      detail::check_size("dweights", state.dweights.size(), state_arrays() * net_.weights);
    }
  }
  /// Whether a run continues from `state` bit by bit.
  [[nodiscard]] bool resumes_exactly(const EngineState& state) const {
    return state.layout == scheme_.layout_name<Precision>(spec_) && state.plan == scheme_.plan &&
           (scheme_.immediate || detail::same_momenta(state, spec_));
  }

  void resume(const EngineState& state) {
    exchange_past(state);
    learned_ = true;
    if (resumes_exactly(state)) {
      set_weights(state.folded);
      for (std::size_t k = 0; k < state_arrays(); ++k) {
        layout_.import_weights(std::span(state.dweights).subspan(k * net_.weights, net_.weights),
                               state_array(k));
      }
      rates_.restore(state);
    } else if (scheme_.immediate || !state.dweights.empty()) {
      set_weights(state.weights);
      past_->forget_gradients();  // W(step) contains them already; the momentum starts at 0
    } else {
      rates_.rebase(state);
      set_weights(
          detail::settled_weights(state, spec_, net_, scheme_.sequence_weight, scheme_.plan));
    }
  }

  Spec spec_;
  EngineOptions options_;
  int batch_;
  const HostActivation* activation_;  // the program's own, or null: the spec's keys decide
  HostRule rule_;
  Connectome net_;
  WeightLayout layout_;
  UpdateScheme scheme_;
  LayerRates rates_;
  Weights weights_;       // Z; behind it dW, if there is a momentum array
  HugeArray rule_state_;  // [rule_.state][layout_.size()]
  std::unique_ptr<Past> past_;
  InnerProducts squeezed_products_, raw_products_, patch_products_;
  std::vector<Score> score_;
  std::unique_ptr<HostNetwork> network_;
  std::vector<Scratch> scratch_;  // [thread]
  FrameStore store_;
  std::optional<SharedUnits> shared_;  // with an exchange
  std::vector<std::uint8_t> pixels_, scored_;
  std::vector<std::uint32_t> stored_;
  std::vector<const std::uint8_t*> frames_;  // of the current block, [steps][batch]
  std::uint64_t step_ = 0;
  bool learned_ = false;  // whether there may be gradients that Z does not contain
  Team team_;
  UnitPortions portions_;
};

// Defined outside the class and so not inline: pvm::compiled then holds the code of the engine's
// large part (pvm::compiled).
template <int Batch, class Precision, class Net>
void HostEngine<Batch, Precision, Net>::run_steps(const FrameBlock& block, Mode mode) {
  const auto steps = static_cast<std::size_t>(block.steps);
  const auto batch = static_cast<std::size_t>(batch_);
  const std::vector<StepRates>& rates = rates_.begin_block(step_, steps, mode);
  portions_.begin_block(steps);
  locate_frames(block);
  UnitExchange* const exchange = options_.exchange;
  bool alone = false;  // whether other engines were lost; written and read between barriers
  auto work = [&](int member) {
    Step unit_step(*network_, weights_, scratch_[static_cast<std::size_t>(member)]);
    for (std::size_t i = 0; i < steps && !alone; ++i) {
      const std::size_t start = i * batch * spec_.frame_size();
      const StepFrames frames{frames_.data() + i * batch,
                              block.squeezed.empty() ? nullptr : block.squeezed.data() + start,
                              block.scored.data() + i * batch};
      StepUnits<Step> units{unit_step, portions_, static_cast<std::size_t>(member),
                            i,         step_ + i, frames,
                            rates[i],  mode,      exchange};
      simd::for_best_isa(units);
      team_.barrier();
      if (exchange == nullptr) continue;
      // What others send is needed in the next step only: meanwhile the outputs of some units are
      // computed, which need nothing of this step but their own hidden values.
      if (member == 0) shared_->send(step_ + i);
      units.outputs_only = true;
      simd::for_best_isa(units);
      if (member == 0) alone = !exchange->finish();
      team_.barrier();
      if (!alone) {
        simd::for_best_isa(TakeUnits{*shared_, step_ + i, static_cast<std::size_t>(member),
                                     static_cast<std::size_t>(team_.size())});
      }
      team_.barrier();
    }
  };
  team_.run(work);
  if (alone) exchange->check();
}

}  // namespace pvm::inline v0
