// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The engine that runs on the processor: the readable reference of what a step computes.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/frame_store.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/past.hpp>
#include <pvm/engine/host/past_state.hpp>
#include <pvm/engine/host/team.hpp>
#include <pvm/engine/host/unit_step.hpp>
#include <pvm/engine/host/weight_layout.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0 {

/// An Engine on threads and vectors, fp32. Results do not depend on the number of threads: a unit's
/// step is one thread's work, and units of one step do not depend on each other.
///
/// Small batches defer their updates (unit/deferred.hpp). Batches of more than 4, and momenta that
/// outlive the list, use a momentum array instead: there the pass over the weights is bound by
/// arithmetic, or the list would cost more than the array.
template <int Batch = dynamic>
class HostEngine {
 public:
  /// `spec` must be valid; throws Error (usage, memory).
  explicit HostEngine(const Spec& spec, int batch = Batch, const EngineOptions& options = {})
      : spec_(spec),
        options_(options),
        batch_(check_batch(batch)),
        net_(make_connectome(spec)),
        layout_(net_),
        plan_(choose_plan()),
        schedule_(spec),
        store_(spec.frame_size()),
        team_(options.threads > 0
                  ? options.threads
                  : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))) {
    require_memory(memory_needed(), "this network");
    weights_ = HugeArray(layout_.size() * (dense_ ? 2 : 1));
    past_ = std::make_unique<Past>(spec_, net_, batch_, plan_.terms);
    const std::size_t units = net_.units.size();
    const auto terms = static_cast<std::size_t>(plan_.terms);
    const auto b = static_cast<std::size_t>(batch_);
    squeezed_grams_ = Grams(units, terms, b);
    raw_grams_ = Grams(units, terms, b);
    patch_grams_ = Grams(past_->patches(), terms, b);
    deferred_.assign(spec.layer_shapes.size(), DeferredRates(plan_));
    score_.resize(units);
    network_ = std::make_unique<HostNetwork>(
        HostNetwork{spec_, net_, layout_, weights_, *past_, squeezed_grams_, raw_grams_,
                    patch_grams_, plan_, dense_ ? layout_.size() : 0, score_});
    for (int i = 0; i < team_.size(); ++i) scratch_.emplace_back(*network_);
    simd::for_best_isa(MultiplyPast{*network_, step_});
  }
  HostEngine(const HostEngine&) = delete;
  HostEngine& operator=(const HostEngine&) = delete;

  [[nodiscard]] int batch() const noexcept { return batch_; }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] const Connectome& connectome() const noexcept { return net_; }
  /// Steps worth handing over at once; more only delays what the caller sees.
  [[nodiscard]] int block_steps() const noexcept { return 32; }

  /// Room for `steps` frames of every sequence; valid until the next call.
  [[nodiscard]] FrameBlock stage(int steps) {
    const std::size_t rows = static_cast<std::size_t>(steps) * static_cast<std::size_t>(batch_);
    pixels_.resize(rows * spec_.frame_size());
    scored_.assign(rows, 0);
    stored_.assign(store_.capacity() > 0 ? rows : 0, not_stored);
    return {steps, pixels_, scored_, {}, stored_};
  }

  /// Frames in plain memory; steps read them where they are. See Engine.
  std::size_t reserve_frames(std::size_t budget, std::size_t frames) {
    return store_.reserve(budget, frames);
  }
  void store_frames(std::size_t first, std::span<const std::uint8_t> pixels) {
    store_.put(first, pixels);
  }
  void read_frame(std::size_t index, std::span<std::uint8_t> pixels) const {
    store_.get(index, pixels);
  }

  /// Runs the block's steps. Freezing ends what is listed: dW is 0 when learning goes on later.
  void run(const FrameBlock& block, Mode mode) {
    if (mode == Mode::freeze) {
      settle();
    } else {
      learned_ = true;
    }
    const auto steps = static_cast<std::size_t>(block.steps);
    prepare_rates(steps, mode);
    run_steps(block, mode);
    step_ += steps;
  }

  void synchronize() noexcept {}

  [[nodiscard]] Score take_score() {
    Score sum;
    for (Score& score : score_) sum += std::exchange(score, {});
    return sum;
  }

  /// W(step), reference order, `connectome().weights` floats.
  void read_weights(std::span<float> out) {
    HugeArray now = materialise();
    layout_.export_weights(now.all(), out);
  }

  /// The prediction for two steps ahead, [batch][side][side][channels] in [0, 1].
  void read_prediction(std::span<float> out) {
    for (std::size_t b = 0; b < past_->batch(); ++b) {
      for (std::size_t u = 0; u < past_->patches(); ++u) {
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
    state.weights.resize(net_.weights);
    read_weights(state.weights);
    state.rates = schedule_.layers();
    state.layout = layout_name();
    state.plan = plan_;
    for (const DeferredRates& layer : deferred_) {
      const auto saved = layer.save();
      state.coefficients.insert(state.coefficients.end(), saved.begin(), saved.end());
    }
    state.folded.resize(net_.weights);
    layout_.export_weights(weights_.all(), state.folded);
    if (dense_) {
      state.dweights.resize(net_.weights);
      layout_.export_weights(weights_.all().subspan(layout_.size()), state.dweights);
    }
    visit_past(*past_, net_, spec_, step_, state, PastExport{});
    return state;
  }

  /// Continues from `state`: bit by bit if it is this engine's, else from its weights, its past
  /// and, where possible, its momentum. A state with weights only starts at its step with the past
  /// of a new run. Throws Error (Fault::checkpoint) if the sizes are another network's.
  void restore(const EngineState& state) {
    check_size("weights", state.weights.size(), net_.weights);
    std::fill(weights_.all().begin(), weights_.all().end(), 0.0F);
    layout_.import_weights(state.weights, weights_.all());
    deferred_.assign(deferred_.size(), DeferredRates(plan_));
    past_->reset();
    step_ = state.step;
    schedule_ = RateSchedule(spec_);
    if (!state.rates.empty()) {
      check_size("rates", state.rates.size(), deferred_.size());
      schedule_.restore(state.rates);
    }
    learned_ = false;
    if (state.resumable()) resume(state);
    simd::for_best_isa(MultiplyPast{*network_, step_});
    std::fill(score_.begin(), score_.end(), Score{});
  }

  [[nodiscard]] std::string description() const {
    return "host engine: " + std::to_string(team_.size()) + " threads, " + simd::isa_name() + ", " +
           (dense_ ? "momentum array"
                   : "updates folded every " + std::to_string(plan_.period) + " steps");
  }
  /// Bytes of weights that a learning step has to move: all are read, and some are written.
  [[nodiscard]] std::size_t bytes_per_step() const noexcept {
    const std::size_t once = net_.weights * sizeof(float);
    return dense_ ? 4 * once : once + once / static_cast<std::size_t>(plan_.period);
  }
  /// Bytes of memory the engine takes.
  [[nodiscard]] std::size_t memory_needed() const {
    const std::size_t rows = static_cast<std::size_t>(batch_) * sizeof(float) *
                             (static_cast<std::size_t>(plan_.terms) + 5);
    const std::size_t past =
        rows * (3 * net_.units.size() * simd::padded(static_cast<std::size_t>(net_.hidden)) +
                2 * net_.outputs + 2 * spec_.frame_size());
    const std::size_t grams = static_cast<std::size_t>(plan_.terms) *
                              static_cast<std::size_t>(batch_) * static_cast<std::size_t>(batch_) *
                              9 * net_.units.size() * sizeof(float);
    return layout_.size() * sizeof(float) * (dense_ ? 2 : 1) + past + grams;
  }

 private:
  static int check_batch(int batch) {
    if (batch < 1 || (Batch != dynamic && batch != Batch)) {
      throw Error(Fault::usage,
                  "a batch of " + std::to_string(batch) + " sequences is impossible here; " +
                      (Batch == dynamic ? std::string("it must be at least 1")
                                        : "this engine was compiled for " + std::to_string(Batch)));
    }
    return batch;
  }

  DeferralPlan choose_plan() {
    const DeferralPlan plan = DeferralPlan::for_momentum(spec_.momentum, std::max(1, 8 / batch_));
    dense_ = batch_ > 4 || !plan.fits();
    return dense_ ? DeferralPlan{1, 1} : plan;
  }

  [[nodiscard]] float share() const {  // of one sequence in the update
    return options_.reduce == Reduce::mean ? 1.0F / static_cast<float>(batch_) : 1.0F;
  }

  /// The coefficients of the next steps, computed ahead for the whole block.
  void prepare_rates(std::size_t steps, Mode mode) {
    rates_.resize(steps);
    for (std::size_t i = 0; i < steps; ++i) {
      const std::uint64_t t = step_ + i;
      if (mode == Mode::freeze) {  // the rates follow the step counter all the same
        write_rates(rates_[i]);
        schedule_.begin_step(t);
        continue;
      }
      for (DeferredRates& layer : deferred_) layer.begin_step(t);
      write_rates(rates_[i]);
      schedule_.begin_step(t);
      for (std::size_t l = 0; l < deferred_.size(); ++l) {
        deferred_[l].end_step(t, schedule_.layers()[l]);
      }
    }
  }

  /// The rates of the update that is still to be folded are those of the step before.
  void write_rates(StepRates& out) const {
    const std::size_t layers = deferred_.size();
    const auto terms = static_cast<std::size_t>(plan_.terms);
    const auto period = static_cast<std::size_t>(plan_.period);
    out.weight.assign(layers * period * terms, 0.0F);
    out.fold.resize(layers * terms);
    out.folds.resize(layers);
    out.momentum.resize(layers);
    for (std::size_t l = 0; l < layers; ++l) {
      const Rates last = schedule_.layers()[l];
      out.momentum[l] = last.momentum;
      if (dense_) {
        out.fold[l] = share() * last.learning_rate;
        out.folds[l] = last.learning_rate != 0.0F || last.momentum != 0.0F;
        continue;
      }
      out.folds[l] = deferred_[l].any_fold();
      for (std::size_t s = 0; s < terms; ++s) {
        out.fold[l * terms + s] = share() * deferred_[l].fold(s);
        for (std::size_t p = 0; p < period; ++p) {
          out.weight[(l * period + p) * terms + s] = share() * deferred_[l].weight(p, s);
        }
      }
    }
  }

  void run_steps(const FrameBlock& block, Mode mode) {
    const auto steps = static_cast<std::size_t>(block.steps);
    const auto batch = static_cast<std::size_t>(batch_);
    std::vector<std::atomic<std::size_t>> next(steps);
    locate_frames(block);
    auto work = [&](int member) {
      UnitStep unit_step(*network_, scratch_[static_cast<std::size_t>(member)]);
      for (std::size_t i = 0; i < steps; ++i) {
        const std::size_t start = i * batch * spec_.frame_size();
        const StepFrames frames{frames_.data() + i * batch,
                                block.squeezed.empty() ? nullptr : block.squeezed.data() + start,
                                block.scored.data() + i * batch};
        simd::for_best_isa(
            StepUnits{unit_step, next[i], net_.units.size(), step_ + i, frames, rates_[i], mode});
        team_.meet();
      }
    };
    team_.run(work);
  }

  /// Where each frame of the block is.
  void locate_frames(const FrameBlock& block) {
    const std::size_t rows =
        static_cast<std::size_t>(block.steps) * static_cast<std::size_t>(batch_);
    frames_.resize(rows);
    for (std::size_t row = 0; row < rows; ++row) {
      const bool stored = !block.stored.empty() && block.stored[row] != not_stored;
      frames_[row] = stored ? store_.frame(block.stored[row])
                            : block.pixels.data() + row * spec_.frame_size();
    }
  }

  /// W(step) in the engine's layout.
  [[nodiscard]] HugeArray materialise() {
    StepRates rates;
    write_rates(rates);
    HugeArray out(layout_.size());
    std::copy_n(weights_.data(), layout_.size(), out.data());
    const auto terms = static_cast<std::size_t>(plan_.terms);
    const auto period = static_cast<std::size_t>(plan_.period);
    const auto b = static_cast<std::size_t>(batch_);
    for (std::size_t u = 0; u < net_.units.size(); ++u) {
      const auto layer = static_cast<std::size_t>(net_.units[u].layer);
      if (dense_) add_velocity(out, u, rates.momentum[layer]);
      for (std::size_t slot = 0; slot < terms; ++slot) {
        const float w =
            dense_ ? rates.fold[layer] : rates.weight[(layer * period + u % period) * terms + slot];
        const auto age = static_cast<std::size_t>((step_ + terms - 1 - slot) % terms);
        for (std::size_t c = 0; c < b && w != 0.0F; ++c) add_gradient(out, u, slot, age, c, w);
      }
    }
    return out;
  }

  void add_velocity(HugeArray& out, std::size_t u, float momentum) const {
    layout_.for_each_weight_of(u, [&](std::size_t, std::size_t own) {
      out.data()[own] += momentum * weights_.data()[layout_.size() + own];
    });
  }

  /// out += w * gradient of the unit in `slot`, sequence `c`.
  void add_gradient(HugeArray& out, std::size_t u, std::size_t slot, std::size_t age, std::size_t c,
                    float w) {
    const UnitWeights& at = layout_[u];
    Scratch& s = scratch_.front();
    past_->gather_input(step_, 3 + age, c, u, s.x.data());
    const float* d0 = past_->d0(slot, c, u);
    for (std::size_t i = 0; i < past_->hidden(); ++i) {
      add_row(out.data() + at.w0, past_->hidden(), at.w0_columns, i, w * d0[i], s.x.data());
    }
    past_->gather_representation(step_, 3 + age, c, u, s.r.data());
    const auto rows = static_cast<std::size_t>(net_.units[u].representation);
    const float* d1 = past_->d1(slot, c, u);
    for (std::size_t i = 0; i < rows; ++i) {
      add_row(out.data() + at.w1, rows, at.w1_columns, i, w * s.r.data()[i], d1);
    }
  }

  /// Row r of a tiled matrix += factor * x.
  static void add_row(float* matrix, std::size_t rows, std::size_t columns, std::size_t r,
                      float factor, const float* x) {
    for (std::size_t c = 0; c < columns; c += simd::width) {
      simd::at(matrix + simd::tiled_index(rows, columns, r, c)) += factor * simd::at(x + c);
    }
  }

  /// Folds everything and forgets the momentum: Z = W(step), nothing listed.
  void settle() {
    if (!std::exchange(learned_, false)) return;
    adopt(materialise());
    deferred_.assign(deferred_.size(), DeferredRates(plan_));
    past_->forget_gradients();
  }

  void adopt(const HugeArray& weights) {
    std::fill(weights_.all().begin(), weights_.all().end(), 0.0F);
    std::copy_n(weights.data(), layout_.size(), weights_.data());
  }

  [[nodiscard]] std::string layout_name() const {
    return dense_ ? "momentum array" : "folds by unit";
  }

  static void check_size(const char* what, std::size_t size, std::size_t expected) {
    if (size == expected) return;
    throw Error(Fault::checkpoint, "the checkpoint's " + std::string(what) + " are " +
                                       std::to_string(size) + " numbers and this network has " +
                                       std::to_string(expected) + ": they are another spec's");
  }

  void resume(const EngineState& state) {
    if (state.batch != batch_) {
      throw Error(Fault::checkpoint, "the checkpoint is of " + std::to_string(state.batch) +
                                         " sequences and this run has " + std::to_string(batch_));
    }
    check_past(state, net_, spec_);
    visit_past(*past_, net_, spec_, step_, state, PastImport{});
    learned_ = true;
    if (state.layout == layout_name() && state.plan == plan_) {
      layout_.import_weights(state.folded, weights_.all());
      if (dense_) {
        check_size("dweights", state.dweights.size(), net_.weights);
        layout_.import_weights(state.dweights, weights_.all().subspan(layout_.size()));
      }
      restore_rates(state, true);
    } else if (dense_ || !state.dweights.empty()) {
      past_->forget_gradients();  // the weights hold them already; the momentum starts anew
    } else {
      restore_rates(state, false);
    }
  }

  void restore_rates(const EngineState& state, bool same_layout) {
    const std::size_t each = state.coefficients.size() / deferred_.size();
    for (std::size_t l = 0; l < deferred_.size(); ++l) {
      const auto from = state.coefficients.begin() + static_cast<std::ptrdiff_t>(l * each);
      const std::vector<double> saved(from, from + static_cast<std::ptrdiff_t>(each));
      const bool fits = same_layout ? deferred_[l].restore(saved)
                                    : deferred_[l].rebase(saved, state.plan, state.step);
      if (!fits) {
        throw Error(Fault::checkpoint, "the checkpoint's coefficients do not fit its plan");
      }
    }
  }

  Spec spec_;
  EngineOptions options_;
  int batch_;
  Connectome net_;
  WeightLayout layout_;
  bool dense_ = false;
  DeferralPlan plan_;
  RateSchedule schedule_;
  std::vector<DeferredRates> deferred_;  // by layer
  HugeArray weights_;                    // Z, then dW if there is a momentum array
  std::unique_ptr<Past> past_;
  Grams squeezed_grams_, raw_grams_, patch_grams_;
  std::vector<Score> score_;
  std::unique_ptr<HostNetwork> network_;
  std::vector<Scratch> scratch_;  // by member of the team
  std::vector<StepRates> rates_;  // of the block's steps
  FrameStore store_;
  std::vector<std::uint8_t> pixels_, scored_;
  std::vector<std::uint32_t> stored_;
  std::vector<const std::uint8_t*> frames_;  // of the block in hand, [steps][batch]
  std::uint64_t step_ = 0;
  bool learned_ = false;  // whether there may be gradients that are not in Z
  Team team_;
};

}  // namespace pvm::inline v0
