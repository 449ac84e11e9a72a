// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The engines for one sequence that deal whole units to the GPU's multiprocessors:
/// CudaResidentEngine, whose weights stay in registers and shared memory as far as there is room,
/// and CudaStreamedEngine, which streams all weights in every step. Include it from files that nvcc
/// compiles.

#ifndef __CUDACC__
#error "pvm/engine/cuda is compiled by nvcc: name the file .cu, or use the host engine"
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/compiled_for.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/device/opened_memory.hpp>
#include <pvm/engine/cuda/device/sides.cuh>
#include <pvm/engine/cuda/numbers/network_constants.hpp>
#include <pvm/engine/cuda/run/launched.hpp>
#include <pvm/engine/cuda/units/carrier.hpp>
#include <pvm/engine/cuda/units/launcher.hpp>
#include <pvm/engine/cuda/units/plan/plan.hpp>
#include <pvm/engine/cuda/units/weights/stored_weights.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/follower.hpp>
#include <pvm/engine/history.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// An Engine for one sequence on the current CUDA device, in fp32, bf16 or fp16, for units of
/// `Hidden` hidden values, or of fewer, which are padded (Sizes::pads). `run` returns before the
/// steps are done; frames are copied to the device on a stream of their own while earlier ones are
/// used. In 16 bits products read rounded weights, values keep 16 bits of mantissa or more, and
/// accumulators are fp32. Where bf16 weights all stream, all but those of remainder rows are at
/// most 127.75 (numbers/packed.hpp): `restore` throws Error (usage) if one is larger. `Own` is an
/// activation type of the program (RunsOnGpu), or void for the library's that the spec names.
template <class Precision, int Hidden, detail::units::Home home, class Own = void>
class CudaUnitsEngine
    : public detail::LaunchedEngine<CudaUnitsEngine<Precision, Hidden, home, Own>> {
  using Base = detail::LaunchedEngine<CudaUnitsEngine>;
  using Sizes = detail::units::Sizes<Precision, Hidden, home>;
  using Words = detail::Split<Precision>;
  static constexpr detail::units::Home whole = detail::units::whole_of(home);
  using Stored = detail::units::StoredWeights<Precision, Hidden, whole>;
  friend Base;
  static_assert(detail::CudaTuning{}.block_steps <= detail::units::launch_steps);

 public:
  using precision = Precision;
  using Plan = detail::units::Plan<Precision, Hidden, whole>;
  /// Hidden values of a unit, padding included.
  static constexpr int padded_hidden = Hidden;
  /// Whether every step streams all weights.
  static constexpr bool streams = Sizes::streams;
  /// Whether it is for networks whose outputs read the context.
  static constexpr bool reads_context = Sizes::reads_context;
  /// Whether its lists are longer than those of other engines.
  static constexpr bool long_lists = Sizes::long_lists;
  /// Whether the activation is the library's.
  static constexpr bool library_activation = std::is_void_v<Own>;
  /// The same engine for units with another number of hidden values.
  template <int Other>
  using with_hidden = CudaUnitsEngine<Precision, Other, home, Own>;
  /// One of the shards that share a network of this engine (CudaShardsEngine).
  using shard = CudaUnitsEngine<Precision, Hidden, detail::units::shard_of(home), Own>;

  /// The plan of `spec` on the current device. If this engine cannot run it, the result is empty,
  /// and `why` gives the reason in half a sentence.
  static std::optional<Plan> plan(const Spec& spec, std::string& why) {
    if (spec.own_activation != detail::known_activation<Own>()) {
      why = "its activation is another than that for which the kernels are compiled";
      return std::nullopt;
    }
    const detail::DeviceFacts device = detail::describe_device();
    return Plan::make(spec, make_connectome(spec), device.multiprocessors, device.shared_bytes,
                      why);
  }

  /// `spec` must be valid and `batch` 1. Throws Error (usage, device, memory).
  explicit CudaUnitsEngine(const Spec& spec, int batch = 1, const EngineOptions& options = {})
      : CudaUnitsEngine(spec, plan_or_throw(spec, batch), options) {}

  /// `plan` must be that of `spec` on the current device. Throws Error (device, memory).
  CudaUnitsEngine(const Spec& spec, Plan plan, const EngineOptions& options)
      : Base(spec, options, detail::describe_device(),
             detail::units::deferral<Precision, Hidden, home>()),
        plan_(std::move(plan)),
        launcher_(plan_.thread_blocks(), plan_.shared_words * 4) {
    detail::check_own_activation<Own>(spec);
    if constexpr (Sizes::in_slots) find_sides();
    this->require_memory();
    allocate();
    if constexpr (Sizes::shards) return;  // `connect` is called next
    if (!options.restored_next) start_state(std::vector<float>(net_.weights), nullptr);
    this->capture();
  }

  ~CudaUnitsEngine() { this->stop(); }

  /// W(step) in reference order, `connectome().weights` floats.
  void read_weights(std::span<float> out) {
    materialise();
    to_reference(streams_.download(weights_now_), out);
  }
  /// The prediction of the frame two steps ahead, [side][side][channels] in [0, 1].
  void read_prediction(std::span<float> out) {
    const std::vector<float> y = last_outputs();
    for (std::size_t u = 0; u < this->patches(); ++u) {
      if (!plan_.has(u)) continue;
      for (std::size_t k = 0; k < this->patch_size(); ++k) {
        out[this->pixel(u, k)] = unsqueeze(y[plan_.output_start[u] + k]);
      }
    }
  }
  /// h of the last step, [units][hidden].
  void read_hidden(std::span<float> out) {
    const float* const row = hidden_.get() + ring_row(1) * hidden_row();
    const std::vector<float> hidden = streams_.download(row, hidden_row());
    visit_hidden([&](std::size_t i) { out[i] = hidden[i]; });
  }
  /// y of the last step, [outputs], unit by unit.
  void read_outputs(std::span<float> out) {
    const std::vector<float> y = last_outputs();
    visit_outputs([&](std::size_t own, std::size_t tensor) { out[tensor] = y[own]; });
  }

  /// The whole state, for a checkpoint. It does not change how the run continues.
  [[nodiscard]] EngineState save() {
    EngineState state = this->save_run();
    save_past(state);
    return state;
  }

  // -------------------------------------------------------------- for CudaShardsEngine

  // A shard's read_ functions write what its own units have, and nothing else.

  using Base::stop;

  /// Adds what this shard's units have to the state that another shard has saved.
  void add_to(EngineState& state) {
    read_weights(state.weights);
    save_past(state);
  }
  /// This shard's ring of records and its counters of begun steps, in whole pages if other ranks
  /// open them.
  [[nodiscard]] const detail::DeviceArray<std::uint32_t>& past() const noexcept { return past_; }
  [[nodiscard]] const detail::DeviceArray<unsigned int>& begun() const noexcept { return begun_; }
  [[nodiscard]] int thread_blocks() const { return plan_.thread_blocks(); }
  [[nodiscard]] detail::units::OwnRecords records() const {
    const detail::units::Arguments a = arguments(0);
    detail::units::OwnRecords own{a.cursor, a.past, a.row_words, Sizes::record, {}};
    for (std::uint32_t u = 0; u < net_.units.size(); ++u) {
      if (plan_.has(u)) own.units.push_back(u);
    }
    return own;
  }
  /// One of the next two is to be called once, when all shards have been made and before anything
  /// else. Peers are written to by the steps themselves.
  void connect(const detail::units::Peers& peers) {
    peers_ = peers;
    this->capture();
  }
  /// A launch has one step, and behind it `carrier` tells the other shards. (Eagerly: a graph of
  /// NCCL's work is not tried.)
  void connect(const detail::units::RecordCarrier& carrier) {
    options_.graph = false;
    carrier_ = &carrier;
    peers_.thread_blocks = static_cast<unsigned>(plan_.thread_blocks());
  }
  /// The ring of records as it is on the device, [ring][row].
  [[nodiscard]] std::vector<std::uint32_t> read_past() const { return streams_.download(past_); }
  void write_past(const std::vector<std::uint32_t>& words) const { streams_.write(past_, words); }
  /// Sets what such an array has of units of other shards to zeros.
  void clear_past_of_others(std::vector<std::uint32_t>& past) const {
    const auto clear = [&](std::size_t first, std::size_t words) {
      for (std::size_t row = 0; row < count(Sizes::ring); ++row, first += plan_.row_words) {
        std::fill_n(past.begin() + static_cast<std::ptrdiff_t>(first), words, 0U);
      }
    };
    for (std::size_t u = 0; u < net_.units.size(); ++u) {
      if (plan_.has(u)) continue;
      clear(u * Sizes::record, Sizes::record);
      if (u < this->patches())
        clear(plan_.first_patch + u * plan_.patch_record, plan_.patch_record);
    }
  }

  /// A line for the log: the device, the memory, and where the weights are.
  [[nodiscard]] std::string description() const {
    const auto percent = [](std::size_t there, std::size_t of_all) {
      return std::to_string(100 * there / std::max<std::size_t>(1, of_all)) + " % of W";
    };
    std::string there = "all weights streamed";
    if (Sizes::reads_context) there += ", those of outputs that read the context beside W0";
    if (!Sizes::streams) {
      there = percent(plan_.held + plan_.shared, plan_.blocks) + "0 and " +
              percent(plan_.w1_blocks - plan_.w1_streamed, plan_.w1_blocks) + "1 on the chip";
    }
    if (sides_.known() && plan_.streamed + plan_.w1_streamed > 0) {
      there += Sizes::streams ? "" : ", the rest streamed";
      there += ", each from its side of the L2 cache";
    }
    return std::string("CUDA engine, whole units: ") + device_.name + ", " +
           std::to_string(device_.multiprocessors) + " multiprocessors, " +
           std::to_string(memory_needed() >> 20) + " MiB, " + std::string(Precision::name) + ", " +
           there + ", updates folded every " + std::to_string(Sizes::period) + " steps" +
           (Sizes::two_plans ? " (W1: " + std::to_string(Sizes::w1_period) + ")" : "") + ", " +
           (options_.graph ? "captured" : "one launch a step");
  }
#if defined(PVM_TIMELINE)
  /// What the warps did in some steps of the last launches (timeline.hpp).
  [[nodiscard]] detail::units::TimelineRecord read_timeline() {
    this->synchronize();
    return {streams_.download(marks_), streams_.download(clocks_), streams_.download(sms_),
            Sizes::warps, timeline_steps};
  }
#endif
  /// The bytes of device memory that the engine takes.
  [[nodiscard]] std::size_t memory_needed() const {
    using namespace detail::units;
    const std::size_t words =
        2 * stored_words() + list_words() + area_words() +
        lent<std::uint32_t>(count(Sizes::ring) * plan_.row_words) +
        count(Sizes::ring) * hidden_row() + count(Sizes::history) * (hidden_row() + plan_.outputs) +
        2 * plan_.outputs + plan_.programs.size() + plan_.program_start.size() +
        lent<unsigned int>(detail::units::rounds) + 2 * plan_.program_start.size() + 2;
    return words * 4 + score_size() * sizeof(double) + this->staging_bytes();
  }
  /// The same by purpose.
  [[nodiscard]] MemoryParts memory_parts() const {
    using namespace detail::units;
    const std::size_t weights = stored_words() * 4, units = (list_words() + area_words()) * 4;
    const std::size_t rows = count(Sizes::ring) * (plan_.row_words + hidden_row()) +
                             count(Sizes::history) * (hidden_row() + plan_.outputs) +
                             2 * plan_.outputs;
    const std::size_t known = 2 * weights + units + rows * 4;
    return this->with_staging(
        {{Sizes::fp32_weights ? "weights" : "weights, high and low halves", weights},
         {"weights to be read", weights},
         {"past of activity and gradients", rows * 4},
         {"lists of gradients and units' own data", units},
         {"plan and scores", memory_needed() - this->staging_bytes() - known}});
  }

 private:
  template <class T>
  using Array = detail::DeviceArray<T>;
  using Base::count, Base::hidden_row, Base::plans_, Base::net_, Base::spec_, Base::options_,
      Base::device_, Base::tables_, Base::streams_, Base::step_;

  static Plan plan_or_throw(const Spec& spec, int batch) {
    detail::check_one_sequence(batch);
    std::string why;
    std::optional<Plan> made = plan(spec, why);
    if (made) return std::move(*made);
    throw Error(Fault::usage,
                "this network cannot be run by whole units: " + why + "; use another engine");
  }
  /// Refuses weights that packed tiles cannot hold. (What training would make larger stays at the
  /// limit.) Remainder rows have no limit, so every checkpoint of this engine is accepted.
  void check_weights(const std::vector<float>& weights) const {
    if constexpr (Sizes::packed) {
      constexpr float most = detail::PackedHalves::largest;
      plan_.for_each_weight([&](std::size_t reference, std::size_t at) {
        const float weight = weights[reference];
        if (at / Sizes::weights_per_word >= plan_.first_remainder() || std::abs(weight) <= most)
          return;
        throw Error(Fault::usage, "a weight is " + std::to_string(weight) +
                                      ", and in bf16 a network of this size has weights up to " +
                                      std::to_string(most) + "; use fp16 or fp32");
      });
    }
  }
  /// Words of all weights; 16-bit weights include their low halves.
  [[nodiscard]] std::size_t stored_words() const {
    if constexpr (Sizes::in_slots) return plan_.slot_pairs(sides_).end * detail::pair_words;
    return plan_.weight_words() * Stored::stored_per_word;
  }
  /// Words of W1's lists and of the units' areas, where all is streamed. Else shared memory holds
  /// them, and the arrays in device memory are unused. (So are the lists where slots have them.)
  [[nodiscard]] std::size_t list_words() const {
    return std::max<std::size_t>(4, plan_.list_words);
  }
  [[nodiscard]] std::size_t area_words() const {
    const std::size_t sums = plan_.output_groups * count(Sizes::multipliers) * count(Sizes::values);
    return Sizes::streams ? net_.units.size() * Sizes::unit_words + sums : 4;
  }
  /// The size of an array of `n` elements that other ranks open, if there are any.
  template <class T>
  [[nodiscard]] std::size_t lent(std::size_t n) const {
    return options_.ranks != nullptr ? detail::in_whole_pages<T>(n) : n;
  }
  /// Three sums for each warp of each thread block.
  [[nodiscard]] std::size_t score_size() const {
    return count(plan_.thread_blocks()) * count(Sizes::warps) * 3;
  }
  /// The row of step `step_` - `back` in the device's rings of `ring` rows (past, hidden values).
  [[nodiscard]] std::size_t ring_row(std::uint64_t back) const {
    return static_cast<std::size_t>((step_ + 2 * Sizes::ring - back) % Sizes::ring);
  }
  /// The row of step `step_` - `back` in the device's rings of `history` rows (d0, d1).
  [[nodiscard]] std::size_t history_row(std::uint64_t back) const {
    return static_cast<std::size_t>((step_ + 2 * Sizes::history - back) % Sizes::history);
  }
  /// The index in `y_` at which y of step `step_` - `back` starts.
  [[nodiscard]] std::size_t y_row(std::uint64_t back) const {
    return static_cast<std::size_t>((step_ + back) % 2) * plan_.outputs;
  }
  /// Identifies the layout whose states this engine continues bit by bit. Each kind of step has a
  /// name of its own, because the kinds fold and add up in different orders.
  [[nodiscard]] std::string layout_name() const {
    const std::string pipelined = Sizes::packed ? "pipelined, packed, " : "pipelined, ";
    const std::string context = Sizes::reads_context ? "context, " : "";
    const std::string lists = Sizes::long_lists ? ", long lists" : "";
    const std::string streamed = context + (Sizes::pipelined ? pipelined : "streamed units, ");
    const std::string how =
        Sizes::streams ? streamed
                       : (Sizes::specialised ? "by roles, " : "on the chip" + lists + ", ");
    return how + std::string(Precision::name) + ", " + std::to_string(plan_.multiprocessors) +
           " multiprocessors";
  }
  /// y of the last step, all outputs in the order of the plan.
  [[nodiscard]] std::vector<float> last_outputs() {
    return streams_.download(y_.get() + y_row(1), plan_.outputs);
  }

  /// Finds the sides of SMs (half of them each, where the GPU is not there), and deals the programs
  /// to them.
  void find_sides() {
    const auto programs = count(plan_.thread_blocks());
    if (detail::imagined_gpu() != nullptr) return sides_.deal_programs(programs, 1, 2);
    cache_.emplace(device_.multiprocessors, device_.shared_bytes, streams_.compute());
    if (cache_->known()) {
      sides_.deal_programs(programs, cache_->first_sms(), cache_->of_sms().size());
    } else {
      sides_.deal_programs(programs, 1, 2);
    }
  }
  /// Gives each block a slot on its program's side of the L2 cache, if sides are known.
  void place_in_slots() {
    streams_.clear(weights_);  // measuring its sides reads it
    sides_.of_pairs = cache_->of_pairs(weights_.get(), plan_.slot_pairs(sides_).end);
    plan_.place_in_slots(sides_);
    streams_.allocate(order_, sides_.order());
    if (sides_.known()) streams_.allocate(sides_of_sms_, cache_->of_sms());
  }

  void allocate() {
    using namespace detail::units;
    this->allocate_staging(score_size());
    weights_ = Array<std::uint32_t>(stored_words());
    weights_now_ = Array<std::uint32_t>(stored_words());
    if constexpr (Sizes::in_slots) place_in_slots();
    streams_.allocate(programs_, plan_.programs);
    streams_.allocate(program_start_, plan_.program_start);
    taken_ = Array<unsigned int>(2);
    streams_.clear(taken_);
    streams_.clear(
        weights_now_);  // no kernel writes the padding, which is downloaded with the rest
    lists_ = Array<std::uint32_t>(list_words());
    unit_areas_ = Array<std::uint32_t>(area_words());
    streams_.clear(unit_areas_);  // writing factors reads some words behind a unit's last row
    past_ = Array<std::uint32_t>(lent<std::uint32_t>(count(Sizes::ring) * plan_.row_words));
    hidden_ = Array<float>(count(Sizes::ring) * hidden_row());
    d0_ = Array<float>(count(Sizes::history) * hidden_row());
    d1_ = Array<float>(count(Sizes::history) * plan_.outputs);
    y_ = Array<float>(2 * plan_.outputs);
    begun_ = Array<unsigned int>(lent<unsigned int>(detail::units::rounds));
#if defined(PVM_TIMELINE)
    const auto blocks = count(plan_.thread_blocks());
    marks_ = Array<unsigned long long>(blocks * count(Sizes::warps) * timeline_steps * part_count);
    clocks_ = Array<unsigned long long>(4 * blocks);
    sms_ = Array<std::uint32_t>(blocks);
    streams_.clear(marks_);
    streams_.clear(clocks_);
    streams_.clear(sms_);
#endif
  }
  /// Arguments::begun as if all thread blocks had begun all steps before `step_`: entry i counts
  /// the steps i, i + rounds and so on.
  [[nodiscard]] std::vector<unsigned int> begun_so_far() const {
    constexpr std::uint64_t rounds = detail::units::rounds;
    std::vector<unsigned int> begun;
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const std::uint64_t times = (step_ + rounds - 1 - i) / rounds;
      begun.push_back(static_cast<unsigned>(times) * counting_thread_blocks());
    }
    return begun;
  }

  /// The number of thread blocks that count the steps which they begin.
  [[nodiscard]] unsigned int counting_thread_blocks() const {
    return Sizes::shards ? peers_.thread_blocks : static_cast<unsigned>(plan_.thread_blocks());
  }

  [[nodiscard]] detail::units::Arguments arguments(int most_steps) const {
    detail::units::Arguments a{};
    this->describe(a, most_steps);
    a.areas = plan_.areas;
    a.second_part = static_cast<int>(tables_.second_part());
    a.row_words = static_cast<unsigned>(plan_.row_words);
    a.first_patch = static_cast<unsigned>(plan_.first_patch);
    a.patch_record = static_cast<unsigned>(plan_.patch_record);
    a.patch_row = static_cast<unsigned>(plan_.patch_row);
    a.patch_products = static_cast<unsigned>(plan_.patch_products);
    a.used = static_cast<int>(used());
    a.used_pieces = (a.used + 2) / 3;
    a.pieces_inverse = ((1U << 31) - 1) / static_cast<unsigned>(a.used_pieces) + 1;
    a.hidden_row = static_cast<unsigned>(hidden_row());
    a.output_row = static_cast<unsigned>(plan_.outputs);
    a.programs = programs_.get();
    a.program_start = program_start_.get();
    a.sides = sides_.known() ? sides_of_sms_.get() : nullptr;
    a.order = order_.get();
    a.taken = taken_.get();
    a.weights = weights_.get();
    a.w1 = plan_.first_w1();
    a.remainder = plan_.first_remainder();
    a.w1_remainder = plan_.first_w1_remainder();
    a.low_halves = plan_.weight_words();
    if constexpr (streams) {
      const auto pairs = plan_.slot_pairs(sides_);
      a.w1_low_halves = (pairs.w1_low_halves - pairs.w1) * detail::pair_words;
    }
    a.lists = lists_.get();
    a.unit_areas = unit_areas_.get();
    a.begun = begun_.get();
    a.past = past_.get();
    a.hidden = hidden_.get();
    a.d0 = d0_.get();
    a.d1 = d1_.get();
    a.y = y_.get();
#if defined(PVM_TIMELINE)
    a.timeline = {marks_.get(), clocks_.get(), sms_.get(), timeline_first, timeline_steps};
#endif
    a.peers = peers_;
    return a;
  }
  /// Where h is that a follower may read.
  void find_hidden(FollowedSteps& steps) const {
    steps.hidden = hidden_.get();
    steps.hidden_stride = hidden_row();
    steps.hidden_rows = Sizes::ring;
  }
  /// Launches up to `most` steps of the staged block of frames.
  void launch_steps(int most, cudaStream_t stream) const {
    launcher_.steps(arguments(most), stream);
    if (carrier_ != nullptr) carrier_->carry(stream);
  }

  /// Computes W(step) into `weights_now_`.
  void materialise() {
    this->write_tables_now();
    launcher_.materialise(arguments(0), step_, this->now_index_.get(), this->now_tables_.get(),
                          weights_now_.get(), streams_.compute());
  }
  /// Makes W(step) the stored weights: all listed gradients are then in them.
  void fold_everything() {
    materialise();
    streams_.copy(weights_, weights_now_);
  }
  /// Converts downloaded weights to fp32 in reference order.
  void to_reference(std::vector<std::uint32_t> words, std::span<float> out) const {
    const Stored own(plan_, std::move(words));
    plan_.for_each_weight(
        [&](std::size_t reference, std::size_t at) { out[reference] = own.get(at); });
  }

  /// Sets everything on the device for a run that continues at `step_`: the stored weights from
  /// `folded` (reference order) and the past from `state`, or that of a new run (ones) if null.
  void start_state(const std::vector<float>& folded, const EngineState* state) {
    using namespace detail::units;
    Stored weights(plan_);
    plan_.for_each_weight(
        [&](std::size_t reference, std::size_t at) { weights.put(at, folded[reference]); });
    streams_.write(weights_, std::move(weights).words(weights_.size()));
    PastArrays own{std::vector<std::uint32_t>(past_.size()),
                   std::vector<float>(hidden_.size(), 1.0F), std::vector<float>(d0_.size()),
                   std::vector<float>(d1_.size()), std::vector<float>(y_.size(), 1.0F)};
    for (std::size_t row = 0; row < count(Sizes::ring); ++row) {
      std::uint32_t* words = own.past.data() + row * plan_.row_words;
      // Before step 0 all of x is 1, and so is every row of the past but the last: x(step_) itself
      // is made of c(h(step_ - 1)), with h = 1.
      const float value = row == ring_row(1) ? squeeze(1.0F) : 1.0F;
      visit_records(true, [&](std::size_t at, std::size_t) { words[at] = Words::pack(value); });
      visit_patches(true, [&](std::size_t at, std::size_t) { words[at] = Words::pack(1.0F); });
      words[plan_.one] = Words::pack(1.0F);
      // The tags of the units' records, as if each row had been sent in its step: the number of the
      // step after it. A piece is three values and the tag.
      const std::size_t back = (step_ + 2 * Sizes::ring - 1 - row) % Sizes::ring;
      for (std::size_t at = 3; at < plan_.first_patch; at += 4) {
        words[at] = static_cast<std::uint32_t>(step_ - back);
      }
    }
    if (state != nullptr) this->exchange_past(*state, own);
    streams_.write(past_, own.past);
    streams_.write(hidden_, own.hidden);
    streams_.write(d0_, own.d0);
    streams_.write(d1_, own.d1);
    streams_.write(y_, own.y);
    this->set_cursor();
    streams_.write(begun_, begun_so_far());
    launcher_.restore_products(arguments(0), step_, streams_.compute());
    this->synchronize();
  }

  /// Hidden values that a unit has; the rest of `Hidden` is padding.
  [[nodiscard]] std::size_t used() const { return count(net_.hidden); }
  /// The word of value i in a record of pieces (three values and a tag).
  static std::size_t place_of_value(std::size_t i) {
    return detail::units::in_pieces(static_cast<std::uint32_t>(i));
  }
  /// Calls visit(index among all hidden values) for those of the plan's units.
  template <class Visit>
  void visit_hidden(Visit visit) const {
    for (std::size_t u = 0; u < net_.units.size(); ++u) {
      if (!plan_.has(u)) continue;
      for (std::size_t i = 0; i < used(); ++i) visit(u * used() + i);
    }
  }
  /// Calls visit(word in a row of the past, index among all hidden values), for the plan's units
  /// or, if `all`, for all units.
  template <class Visit>
  void visit_records(bool all, Visit visit) const {
    for (std::size_t u = 0; u < net_.units.size(); ++u) {
      if (!all && !plan_.has(u)) continue;
      for (std::size_t i = 0; i < used(); ++i) {
        visit(u * Sizes::record + place_of_value(i), u * used() + i);
      }
    }
  }
  /// Calls visit(word in a row of the past, index in a frame), likewise.
  template <class Visit>
  void visit_patches(bool all, Visit visit) const {
    for (std::size_t u = 0; u < this->patches(); ++u) {
      if (!all && !plan_.has(u)) continue;
      for (std::size_t k = 0; k < this->patch_size(); ++k) {
        visit(plan_.first_patch + u * plan_.patch_record + place_of_value(k), this->pixel(u, k));
      }
    }
  }
  /// Calls visit(index in the plan's order, index in reference order) for the outputs that the
  /// plan's units have in a step.
  template <class Visit>
  void visit_outputs(Visit visit) const {
    std::size_t at = 0;
    for (std::size_t u = 0; u < net_.units.size(); ++u) {
      const auto base = count(net_.units[u].base);
      for (std::size_t o = 0; o < 2 * base && plan_.has(u); ++o) {
        visit(plan_.output_start[u] + (o < base ? o : plan_.padded(u) + o - base), at + o);
      }
      at += 2 * base;
    }
  }

  /// The arrays that hold the past, on the host.
  struct PastArrays {
    std::vector<std::uint32_t> past;
    std::vector<float> hidden, d0, d1, y;
  };
  void save_past(EngineState& state) {
    to_reference(streams_.download(weights_), state.folded);
    PastArrays past{streams_.download(past_), streams_.download(hidden_), streams_.download(d0_),
                    streams_.download(d1_), streams_.download(y_)};
    this->exchange_past(state, past);
  }
  /// Exchanges a row of a history with `own`, see detail::exchange_past. Records are loaded of all
  /// units, because a shard's units read those of others.
  template <class Row>
  void exchange(PastArrays& own, detail::History which, std::uint64_t back, Row row) const {
    using detail::History, detail::exchange_value;
    constexpr bool loads = std::is_const_v<typename Row::element_type>;
    std::uint32_t* const words = own.past.data() + ring_row(back) * plan_.row_words;
    const auto word = [&](std::size_t at, std::size_t i) {
      exchange_value<PackedWords>(row[i], words[at]);
    };
    const auto hidden = [&](float* from) {
      visit_hidden([&](std::size_t i) { exchange_value(row[i], from[i]); });
    };
    const auto outputs = [&](float* from) {
      visit_outputs([&](std::size_t at, std::size_t i) { exchange_value(row[i], from[at]); });
    };
    switch (which) {
      case History::hidden:
        return hidden(own.hidden.data() + ring_row(back) * hidden_row());
      case History::squeezed:
        return visit_records(loads, word);
      case History::frames:
        return visit_patches(loads, word);
      case History::outputs:
        return outputs(own.y.data() + y_row(back));
      case History::hidden_gradients:
        return hidden(own.d0.data() + history_row(back) * hidden_row());
      case History::output_gradients:
        return outputs(own.d1.data() + history_row(back) * plan_.outputs);
    }
  }
  struct PackedWords {
    static std::uint32_t encode(float value) { return Words::pack(value); }
    static float decode(std::uint32_t own) { return Words::unpack(own); }
  };

  Plan plan_;
  detail::units::Launcher<Precision, Hidden, home, Own> launcher_;
  Array<std::uint32_t> programs_, program_start_;
  Array<std::uint32_t> weights_, weights_now_;  // stored weights; W(step), see materialise()
  Array<std::uint32_t> lists_, unit_areas_, past_;
  Array<float> hidden_, d0_, d1_, y_;
  Array<unsigned int> begun_, taken_;
  // If `shards`:
  detail::units::Peers peers_{};
  const detail::units::RecordCarrier* carrier_ = nullptr;
  // If `in_slots`:
  std::optional<detail::CacheSides> cache_;
  detail::units::Sides sides_;
  Array<std::uint8_t> sides_of_sms_;
  Array<std::uint32_t> order_;
#if defined(PVM_TIMELINE)
  /// Recorded steps of each launch. The first ones are left out, because warps do not begin a
  /// launch together.
  static constexpr int timeline_first = 16, timeline_steps = 8;
  Array<unsigned long long> marks_, clocks_;
  Array<std::uint32_t> sms_;
#endif
};

/// The engine for networks whose weights stay on the chip, as far as there is room.
template <class Precision, int Hidden = 49, class Own = void>
using CudaResidentEngine = CudaUnitsEngine<Precision, Hidden, detail::units::Home::resident, Own>;
/// The engine for networks that are too large for the chip: every step streams all weights.
template <class Precision, int Hidden = 49, class Own = void>
using CudaStreamedEngine = CudaUnitsEngine<Precision, Hidden, detail::units::Home::streamed, Own>;

/// The same for networks whose outputs read the context (`feed_context_in_complex_layer`). Not for
/// fp32.
template <class Precision, int Hidden = 49, class Own = void>
using CudaContextEngine =
    CudaUnitsEngine<Precision, Hidden, detail::units::Home::streamed_context, Own>;

/// CudaResidentEngine in fp32 for a momentum of up to 0.5, which other engines of whole units
/// cannot list for as long as it lives.
template <class Precision = fp32, int Hidden = 49, class Own = void>
using CudaLongListEngine =
    CudaUnitsEngine<Precision, Hidden, detail::units::Home::resident_long_lists, Own>;

}  // namespace pvm::inline v0
