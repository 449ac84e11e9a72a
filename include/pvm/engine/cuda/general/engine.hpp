// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The general engine on an NVIDIA GPU, with the kernels in engine/cuda/general. Include it from
/// files that nvcc compiles.

#ifndef __CUDACC__
#error "pvm/engine/cuda is compiled by nvcc: name the file .cu, or use the host engine"
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/large_vector.hpp>
#include <pvm/engine/compiled_for.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/general/arguments.hpp>
#include <pvm/engine/cuda/general/launch.hpp>
#include <pvm/engine/cuda/general/plan/planner.hpp>
#include <pvm/engine/cuda/general/plan/weight_map.hpp>
#include <pvm/engine/cuda/general/shape.hpp>
#include <pvm/engine/cuda/general/tuning.hpp>
#include <pvm/engine/cuda/numbers/network_constants.hpp>
#include <pvm/engine/cuda/run/launched.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/follower.hpp>
#include <pvm/engine/history.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// An Engine for one sequence on the current CUDA device, in fp32, bf16 or fp16. In 16 bits
/// products read weights and listed errors rounded to 16 bits; all else is fp32. `run` returns at
/// once; frames are uploaded on a stream of their own while steps on earlier frames run. `Net`: a
/// Network, whose hidden size is a constant in the kernels and whose activation may be a type of
/// the program (RunsOnGpu), or RuntimeNetwork.
template <class Precision = fp32, class Net = RuntimeNetwork>
class CudaGeneralEngine : public detail::LaunchedEngine<CudaGeneralEngine<Precision, Net>> {
  using Base = detail::LaunchedEngine<CudaGeneralEngine>;
  friend Base;
  using Known = detail::ConstantsOf<Net>;
  using Launcher = detail::general::StepLauncher<Precision, Known>;
  using Stored = detail::general::Stored<Precision>;
  static constexpr bool two_halves = Stored::two_halves;

 public:
  using precision = Precision;
  /// Whether the list of gradients that the spec's momentum needs is one that this engine is made
  /// for: up to a momentum of 0.95 in fp32, 0.98 in 16 bits.
  [[nodiscard]] static bool can_list(const Spec& spec) {
    return deferral(spec, 1).terms <= detail::general::most_terms;
  }
  /// `spec` must be valid and `batch` 1. Throws Error (usage, device, memory).
  explicit CudaGeneralEngine(const Spec& spec, int batch = 1, const EngineOptions& options = {})
      : CudaGeneralEngine(check_spec(spec, batch), options, detail::describe_device()) {}

  ~CudaGeneralEngine() { this->stop(); }

  /// W(step) in reference order, `connectome().weights` floats.
  void read_weights(std::span<float> out) {
    materialise();
    map().export_weights(streams_.download(copy_), streams_.download(bias_copy_), out);
  }

  /// The prediction for two steps ahead, [side][side][channels] in [0, 1].
  void read_prediction(std::span<float> out) {
    const std::vector<float> y = last_outputs();
    for (std::size_t u = 0; u < patches(); ++u) {
      const float* from = y.data() + plan_.output_start[u];
      for (std::size_t k = 0; k < patch_size(); ++k) out[pixel(u, k)] = unsqueeze(from[k]);
    }
  }

  /// h of the last step, [units][hidden].
  void read_hidden(std::span<float> out) {
    download_part(past_, past_row(1) + shape_.raw(0), out.first(shape_.values));
  }

  /// y of the last step, [outputs], unit by unit.
  void read_outputs(std::span<float> out) {
    const std::vector<float> y = last_outputs();
    visit_outputs([&](std::size_t u, std::size_t at, std::size_t n) {
      std::copy_n(y.data() + plan_.output_start[u], n, out.data() + at);
    });
  }

  /// The state, for a checkpoint. Does not change what the run computes afterwards.
  [[nodiscard]] EngineState save() {
    EngineState state = this->save_run();
    PastArrays past{streams_.download(past_), streams_.download(y_), streams_.download(past_d1_)};
    map().export_weights(streams_.download(arena_), past.d1, state.folded);
    this->exchange_past(state, past);
    return state;
  }

  [[nodiscard]] std::string description() const {
    return "CUDA engine: " + device_.name + ", " + std::to_string(device_.multiprocessors) +
           " multiprocessors, " + std::to_string(memory_needed() >> 20) + " MiB, " +
           std::string(Precision::name) + ", " +
           std::to_string(plan_.resident_f4 * sizeof(typename Stored::Four) >> 20) +
           " MiB of weights on the chip, " +
           (Launcher::constant_hidden != 0
                ? "kernels for " + std::to_string(Launcher::constant_hidden) + " hidden values, "
                : "") +
           "updates folded every " + std::to_string(plans_.w0.period) + " steps, " +
           (options_.graph ? "captured" : "one launch a step");
  }
  /// Bytes of device memory the engine takes.
  [[nodiscard]] std::size_t memory_needed() const {
    const std::size_t floats =
        2 * (plan_.arena_f4 * 4 + plan_.history_floats) + listed_floats() + ring() * shape_.row() +
        2 * plan_.y_columns + inner_size() + y_scratch_floats() * count(device_.multiprocessors) +
        plan_.blobs.size() + plan_.blob_start.size() + plan_.source_words.size() + score_size() * 2;
    return floats * sizeof(float) + this->staging_bytes();
  }

 private:
  using Base::count, Base::layers, Base::patches, Base::patch_size, Base::hidden_row, Base::pixel,
      Base::spec_, Base::options_, Base::device_, Base::net_, Base::plans_, Base::tables_,
      Base::streams_, Base::step_;
  template <class T>
  using Array = detail::DeviceArray<T>;

  CudaGeneralEngine(const Spec& spec, const EngineOptions& options,
                    const detail::DeviceFacts& device)
      : Base(spec, options, device, deferral(spec, device.tuning.fold_period)),
        shape_(spec_, net_, plans_.w0, Stored{}),
        plan_(detail::general::Planner::make(spec_, net_, shape_, device_.multiprocessors,
                                             device_.shared_bytes, device_.cache_bytes)),
        launcher_(net_.hidden, shape_.rows_per_tile, device_.multiprocessors, plan_.shared_bytes) {
    check_sizes();
    this->require_memory();
    allocate();
    if (!options.restored_next) start_state(std::vector<float>(net_.weights), nullptr);
    this->capture();
  }

  /// Of a momentum that decays slowly the last part is left out: what is less than 2^-20 of an
  /// update, or of 16-bit weights, which do not show it, 2^-8.
  static DeferralPlan deferral(const Spec& spec, int fold_period) {
    return DeferralPlan::for_momentum(spec.momentum, fold_period, two_halves ? 8 : 20);
  }
  static const Spec& check_spec(const Spec& spec, int batch) {
    detail::check_one_sequence(batch);
    detail::check_own_activation<typename Known::Own>(spec);
    detail::check_hidden<Known::hidden>(spec);
    return spec;
  }
  /// Slots of the rings: the listed gradients, the steps that their factors lag behind, and the
  /// frames that are converted ahead.
  [[nodiscard]] std::size_t ring() const { return count(plans_.w0.terms) + 10; }
  /// Ring slot of step `step_ - back`.
  [[nodiscard]] std::size_t ring_row(std::uint64_t back) const {
    return static_cast<std::size_t>((step_ + 2 * ring() - back) % ring());
  }
  /// Index in `past_` at which step `step_ - back` starts.
  [[nodiscard]] std::size_t past_row(std::uint64_t back) const {
    return ring_row(back) * shape_.row();
  }
  /// Index in y_ at which y of step `step_ - back` starts.
  [[nodiscard]] std::size_t y_row(std::uint64_t back) const {
    return static_cast<std::size_t>((step_ + 4 - back) % 2) * plan_.y_columns;
  }
  /// Row of step `step_ - back` in the ring of listed d1.
  [[nodiscard]] std::size_t history_row(std::uint64_t back) const {
    const auto rows = count(shape_.history);
    return static_cast<std::size_t>((step_ + 2 * rows - back) % rows);
  }
  [[nodiscard]] std::size_t inner_size() const {
    return 3 * (net_.units.size() + patches() + 1) * count(shape_.terms);
  }
  [[nodiscard]] std::size_t score_size() const {
    return count(device_.multiprocessors * shape_.warps * 32) * 3;
  }
  [[nodiscard]] std::size_t listed_floats() const {
    return two_halves ? (plan_.history_floats + 1) / 2 : 0;
  }
  /// The second half of an array that is laid out like the arena.
  static void* low_halves_of(const Array<float>& arena) {
    return two_halves ? arena.get() + arena.size() / 2 : nullptr;
  }
  [[nodiscard]] std::size_t y_scratch_floats() const {  // for each SM
    return std::max<std::size_t>(4, plan_.y_floats);
  }
  [[nodiscard]] detail::general::WeightMap<Precision> map() const { return {net_, shape_, plan_}; }
  [[nodiscard]] std::string layout_name() const {
    return "folds by panel, balanced, on " + std::to_string(device_.multiprocessors) +
           " multiprocessors" + (two_halves ? ", " + std::string(Precision::name) : "") +
           (shape_.warps == 14 ? "" : ", by " + std::to_string(shape_.warps) + " warps");
  }

  /// Throws Error (usage) where an offset would not fit into the kernel's 32 bits.
  void check_sizes() const {
    const std::size_t most = std::max({ring() * shape_.row(), inner_size(), plan_.history_floats});
    if (most >> 31 != 0) {
      throw Error(Fault::usage,
                  "this network with this momentum is too large for the GPU engine; use a smaller"
                  " momentum or the host backend");
    }
  }

  void download_part(const detail::DeviceArray<float>& from, std::size_t at, std::span<float> out) {
    detail::cuda_check(cudaMemcpyAsync(out.data(), from.get() + at, out.size() * sizeof(float),
                                       cudaMemcpyDeviceToHost, streams_.compute()),
                       "reading results");
    this->synchronize();
  }
  [[nodiscard]] std::vector<float> last_outputs() {
    std::vector<float> y(plan_.y_columns);
    download_part(y_, y_row(1), y);
    return y;
  }

  void allocate() {
    this->allocate_staging(score_size());
    streams_.allocate(blobs_, plan_.blobs);
    streams_.allocate(blob_start_, plan_.blob_start);
    streams_.allocate(source_words_, plan_.source_words);
    using Floats = Array<float>;
    arena_ = Floats(plan_.arena_f4 * 4);
    copy_ = Floats(plan_.arena_f4 * 4);
    past_d1_ = Floats(plan_.history_floats);
    bias_copy_ = Floats(plan_.history_floats);
    if (two_halves) listed_ = Floats(listed_floats());
    streams_.clear(copy_);  // downloaded as a whole, with padding that no kernel writes
    streams_.clear(bias_copy_);
    past_ = Floats(ring() * shape_.row());
    y_ = Floats(2 * plan_.y_columns);
    inner_ = Floats(inner_size());
    y_scratch_ = Floats(y_scratch_floats() * count(device_.multiprocessors));
  }

  [[nodiscard]] detail::general::StepArguments arguments(int most_steps) const {
    using detail::general::Divider;
    detail::general::StepArguments a{};
    this->describe(a, most_steps);
    a.hidden = net_.hidden;
    a.padded = shape_.padded;
    a.groups = shape_.groups;
    a.parts = shape_.parts;
    a.rounds = shape_.rounds;
    a.terms = plans_.w0.terms;
    a.period = plans_.w0.period;
    a.history = shape_.history;
    a.history_rows = shape_.history_rows();
    a.sections = shape_.sections;
    a.ring = static_cast<int>(ring());
    a.past_row = static_cast<unsigned>(shape_.row());
    a.first_raw = static_cast<unsigned>(shape_.raw(0));
    a.first_d0 = static_cast<unsigned>(shape_.d0(0));
    a.first_pixel = static_cast<unsigned>(shape_.pixel(0));
    a.y_columns = static_cast<int>(plan_.y_columns);
    a.by_terms = Divider(shape_.terms);
    a.by_hidden = Divider(net_.hidden);
    a.by_history_rows = Divider(shape_.history_rows());
    a.by_sections = Divider(shape_.sections);
    a.by_padded = Divider(shape_.padded);
    a.by_parts = Divider(shape_.parts);
    a.by_row_factors = Divider(shape_.groups * 8);
    a.blobs = blobs_.get();
    a.blob_start = blob_start_.get();
    a.source_words = source_words_.get();
    a.arena = arena_.get();
    a.low_halves = low_halves_of(arena_);
    a.listed = two_halves ? listed_.get() : past_d1_.get();
    a.past_d1 = past_d1_.get();
    a.past = past_.get();
    a.y = y_.get();
    a.inner = inner_.get();
    a.y_scratch = y_scratch_.get();
    a.y_scratch_floats = y_scratch_floats();
    return a;
  }

  /// Where h is that a follower may read.
  void find_hidden(FollowedSteps& steps) const {
    steps.hidden = past_.get() + shape_.raw(0);
    steps.hidden_stride = shape_.row();
    steps.hidden_rows = static_cast<int>(ring());
  }
  void launch_steps(int most, cudaStream_t stream) const {
    launcher_.steps(arguments(most), stream);
  }

  /// Writes W(step) to copy_ and bias_copy_.
  void materialise() {
    this->write_tables_now();
    launcher_.materialise(arguments(0), step_, this->now_index_.get(), this->now_tables_.get(),
                          copy_.get(), low_halves_of(copy_), bias_copy_.get(), streams_.compute());
  }

  /// Sets Z to W(step).
  void fold_everything() {
    materialise();
    streams_.copy(arena_, copy_);
    std::vector<float> d1 = streams_.download(past_d1_);
    map().copy_bias(streams_.download(bias_copy_), d1);
    streams_.write(past_d1_, d1);
    round_listed();
  }
  void round_listed() const {
    launcher_.round_listed(arguments(0), plan_.history_floats / 4, streams_.compute());
  }

  /// Initialises device memory for a run that continues at step_, with Z (reference order) and the
  /// past of `state`; null: of a new run.
  void start_state(const std::vector<float>& folded, const EngineState* state) {
    auto arena = detail::large_vector<float>(arena_.size());
    PastArrays own{std::vector<float>(past_.size(), 1.0F), std::vector<float>(y_.size(), 1.0F),
                   std::vector<float>(past_d1_.size())};
    map().import_weights(folded, arena, own.d1);
    streams_.write(arena_, arena);
    for (std::size_t row = 0; row < own.past.size(); row += shape_.row()) {
      own.past[row + shape_.zero()] = 0.0F;
      std::fill_n(own.past.data() + row + shape_.d0(0), shape_.values, 0.0F);
    }
    // x(0) contains c(h(-1)).
    std::fill_n(own.past.data() + past_row(1), shape_.values, squeeze(1.0F));
    if (state != nullptr) this->exchange_past(*state, own);
    streams_.write(past_, own.past);
    streams_.write(y_, own.y);
    streams_.write(past_d1_, own.d1);
    streams_.write(inner_, std::vector<float>(inner_.size(), 1.0F));  // the row of the bias stays 1
    this->set_cursor();
    round_listed();
    launcher_.restore_products(arguments(0), step_, streams_.compute());
    this->synchronize();
  }

  /// The arrays that hold the past, on the host.
  struct PastArrays {
    std::vector<float> past, y, d1;  // contents of past_, y_ and past_d1_
  };
  /// Exchanges a row of a history with `own`, see detail::exchange_past.
  template <class Row>
  void exchange(PastArrays& own, detail::History which, std::uint64_t back, Row row) const {
    using detail::History, detail::exchange_values;
    float* const past = own.past.data() + past_row(back);
    switch (which) {
      case History::hidden:
        return exchange_values(row, past + shape_.raw(0));
      case History::squeezed:
        return exchange_values(row, past + shape_.squeezed(0));
      case History::hidden_gradients:
        return exchange_values(row, past + shape_.d0(0));
      case History::frames:
        for (std::size_t u = 0; u < patches(); ++u) {
          for (std::size_t k = 0; k < patch_size(); ++k) {
            detail::exchange_value(row[pixel(u, k)], past[shape_.pixel(u * patch_size() + k)]);
          }
        }
        return;
      case History::outputs:
        return visit_outputs([&](std::size_t u, std::size_t at, std::size_t n) {
          exchange_values(row.subspan(at, n), own.y.data() + y_row(back) + plan_.output_start[u]);
        });
      case History::output_gradients:
        return visit_outputs([&](std::size_t u, std::size_t at, std::size_t n) {
          exchange_values(row.subspan(at, n), own.d1.data() + plan_.history_start[u] +
                                                  history_row(back) * plan_.history_stride[u]);
        });
    }
  }
  /// Calls visit(unit, index of its first output in reference order, number of its outputs).
  template <class Visit>
  void visit_outputs(Visit visit) const {
    std::size_t at = 0;
    for (std::size_t u = 0; u < net_.units.size(); ++u) {
      const auto n = count(net_.units[u].outputs);
      visit(u, at, n);
      at += n;
    }
  }

  detail::general::StepShape shape_;
  detail::general::Plan plan_;
  Launcher launcher_;
  Array<std::uint32_t> blobs_, blob_start_, source_words_;
  Array<float> arena_, copy_;         // Z; W after `materialise`
  Array<float> past_d1_, bias_copy_;  // listed d1 and biases of Z; biases of W
  Array<float> listed_;               // the former in 16 bits, as pairs
  Array<float> past_, y_, inner_, y_scratch_;
};

}  // namespace pvm::inline v0
