// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The engine for many sequences that share their weights, on an NVIDIA GPU's tensor cores.
/// Include it from files that nvcc compiles.

#ifndef __CUDACC__
#error "pvm/engine/cuda is compiled by nvcc: name the file .cu, or use the host engine"
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/batch/frames.cuh>
#include <pvm/engine/cuda/batch/persistence.cuh>
#include <pvm/engine/cuda/batch/plan.hpp>
#include <pvm/engine/cuda/batch/products.cuh>
#include <pvm/engine/cuda/batch/rates.hpp>
#include <pvm/engine/cuda/batch/sizes.hpp>
#include <pvm/engine/cuda/batch/sweep.cuh>
#include <pvm/engine/cuda/batch/sweep_order.cuh>
#include <pvm/engine/cuda/batch/sweep_outputs.cuh>
#include <pvm/engine/cuda/batch/update.cuh>
#include <pvm/engine/cuda/check.hpp>
#include <pvm/engine/cuda/compute_time.hpp>
#include <pvm/engine/cuda/frame_store.hpp>
#include <pvm/engine/cuda/network_constants.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

namespace detail::batch {

/// Facts of the current device.
struct Device {
  std::string name;
  int multiprocessors = 0;
  int shared_bytes = 0;   ///< that a block of threads may have
  bool overlaps = false;  ///< 9.0 and later: a kernel can start while the one before it ends, and
                          ///< bulk copies

  static Device current() {
    int id = 0;
    cuda_check(cudaGetDevice(&id), "asking for the device");
    cudaDeviceProp properties{};
    cuda_check(cudaGetDeviceProperties(&properties, id), "describing the device");
    return {properties.name, properties.multiProcessorCount,
            static_cast<int>(properties.sharedMemPerBlockOptin), properties.major >= 9};
  }
};

/// Choices that depend on sizes; all numbers that were tuned are here.
struct Tuning {
  static constexpr int graph_steps = 16;      ///< steps of the longer graph
  static constexpr int staged_frames = 8192;  ///< of all sequences, in a block
  static constexpr int blocks_ahead = 2;      ///< of frames
  /// Listing a gradient costs reading its rows again, an array of momenta 8 bytes a weight:
  /// listing pays while the rows of the gradients beyond the first are at most so many bytes.
  static constexpr int most_listed_bytes = 256;

  static int block_steps(int padded) {
    return std::clamp(staged_frames / padded, 8, detail::batch::most_block_steps);
  }
  /// Rows of a part of a forward product: about two parts for every block of threads that runs at
  /// once, and whole stages of any slice.
  static int part_rows(std::size_t rows, int multiprocessors) {
    const auto even = static_cast<int>(rows / static_cast<std::size_t>(multiprocessors));
    return std::clamp((even + 63) / 64 * 64, 256, most_part_rows);
  }
};

}  // namespace detail::batch

/// An Engine on the current CUDA device for 2 and more sequences (1 works, and is slow). Products
/// run in `Precision`, weights are kept and learn in fp32 by `Rule`. `Batch`: where it is known,
/// only its kernels are compiled, a ninth of those of any batch in 16 bits. `OwnActivation`: a type
/// of the program's own that runs on GPUs, or void: the library's that the spec asks for. `run`
/// returns at once; frames go up on their own stream while earlier ones are used.
template <class Precision = fp32, int Batch = dynamic, class Rule = Momentum,
          class OwnActivation = void>
class CudaBatchEngine {
  static_assert(LearningRuleType<Rule>);
  using Math = detail::batch::MathOf<Precision, OwnActivation>;
  using Word = typename Math::Word;
  using Kept = typename Math::Kept;
  using KeptType = typename Kept::Type;
  using Tuning = detail::batch::Tuning;
  static constexpr bool half = sizeof(Word) == 2;
  using Sweeping = detail::batch::SweepLauncher<Math, Batch>;
  static constexpr bool counts_updates = detail::batch::counts_updates<Rule>;
  template <class T>
  using Array = detail::DeviceArray<T>;

 public:
  /// `spec` must be valid; throws Error (usage, device, memory).
  explicit CudaBatchEngine(const Spec& spec, int batch = Batch, const EngineOptions& options = {})
      : spec_(check_spec(spec)),
        options_(options),
        batch_(check_batch(batch)),
        device_(detail::batch::Device::current()),
        net_(make_connectome(spec)),
        shape_(make_shape()),
        plan_(spec_, net_, Math::block,
              Tuning::part_rows(input_rows(), device_.multiprocessors) / Math::block, sweep_plan()),
        schedule_(spec),
        rates_(layers(), shape_.terms, rate_kind(), shape_.share),
        products_{shape_.slice, device_.overlaps},
        sweep_{shape_.padded, device_.overlaps},
        update_{update_bytes(), listed_, device_.multiprocessors, device_.overlaps, plan_.columns} {
    shape_.columns = plan_.columns;
    shape_.table = static_cast<int>(rates_.size());
    require_shared_memory();
    require_memory();
    allocate();
    products_.prepare();
    update_.prepare();
    if constexpr (half) {
      if (swept()) sweep_.prepare();
    }
    start_state(nullptr);
    one_step_ = capture(1);
    more_steps_ = capture(Tuning::graph_steps);
  }
  CudaBatchEngine(const CudaBatchEngine&) = delete;
  CudaBatchEngine& operator=(const CudaBatchEngine&) = delete;
  ~CudaBatchEngine() {
    (void)cudaStreamSynchronize(upload_.get());
    (void)cudaStreamSynchronize(compute_.get());
    if (one_step_ != nullptr) (void)cudaGraphExecDestroy(one_step_);
    if (more_steps_ != nullptr) (void)cudaGraphExecDestroy(more_steps_);
  }

  [[nodiscard]] int batch() const noexcept { return batch_; }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] const Connectome& connectome() const noexcept { return net_; }
  [[nodiscard]] int block_steps() const noexcept { return Tuning::block_steps(shape_.padded); }

  /// Room for `steps` (1 to block_steps()) frames of every sequence, in pinned memory. Waits until
  /// the block that was there has gone up; what it held is still there.
  [[nodiscard]] FrameBlock stage(int steps) {
    if (steps < 1 || steps > block_steps()) {
      throw Error(Fault::usage, "a block of " + std::to_string(steps) +
                                    " steps is impossible; allowed: 1 to " +
                                    std::to_string(block_steps()));
    }
    Staging& slot = staging_[blocks_ % staging_.size()];
    detail::cuda_check(cudaEventSynchronize(slot.uploaded.get()), "waiting for an upload");
    const std::size_t rows = count(steps) * count(batch_);
    stored_.assign(store_.capacity() > 0 ? rows : 0, not_stored);
    return {steps,
            {slot.pixels.get(), rows * spec_.frame_size()},
            {slot.scored.get(), rows},
            {},
            stored_};
  }

  /// Frames in device memory, see Engine and engine/cuda/frame_store.hpp.
  std::size_t reserve_frames(std::size_t budget, std::size_t frames) {
    if (budget == 0 || frames == 0) synchronize();  // steps may be reading what goes
    return store_.reserve(budget, frames);
  }
  void store_frames(std::size_t first, std::span<const std::uint8_t> pixels) {
    if (store_.holds(first)) synchronize();
    store_.put(first, pixels);
  }
  void read_frame(std::size_t index, std::span<std::uint8_t> pixels) const {
    store_.get(index, pixels);
  }

  void run(const FrameBlock& block, Mode mode) {
    if (mode == Mode::freeze) {
      settle();
    } else {
      learned_ = true;
    }
    Staging& slot = staging_[blocks_ % staging_.size()];
    auto* tables = reinterpret_cast<float*>(slot.tables.get());
    for (std::size_t i = 0; i < count(block.steps); ++i) {
      float* table = tables + i * rates_.size();
      rates_.write(step_ + i, mode == Mode::learn, schedule_, table);
      if (i + count(shape_.terms) >= count(block.steps)) table[1] = 1;  // d1 may be asked for
    }
    detail::cuda_check(cudaStreamWaitEvent(upload_.get(), slot.used.get(), 0),
                       "ordering an upload");
    const bool idle = detail::is_idle(compute_.get());
    for (int first = 0, steps = 0; first < block.steps; first += steps) {
      steps = idle ? first_steps(block.steps, first) : block.steps;
      upload(slot, part(block, first, steps), first);
      launch(slot, steps);
    }
    tally(block);
    owed_ = swept();
    step_ += count(block.steps);
    ++blocks_;
  }

  void synchronize() {
    for (const detail::Stream* stream : {&upload_, &compute_}) {
      detail::cuda_check(cudaStreamSynchronize(stream->get()), "running steps");
    }
  }

  [[nodiscard]] Score take_score() {
    synchronize();
    const std::vector<double> sums = download(score_.get(), score_.size());
    Score score = std::exchange(counted_, {});
    for (std::size_t i = 0; i < sums.size(); i += 3) {
      score.prediction += sums[i];
      score.persistence += sums[i + 1];
      score.loss += sums[i + 2];
    }
    detail::cuda_check(
        cudaMemsetAsync(score_.get(), 0, score_.size() * sizeof(double), compute_.get()),
        "clearing the score");
    synchronize();  // both streams add to it
    return score;
  }

  /// W(step), reference order, `connectome().weights` floats.
  void read_weights(std::span<float> out) { export_weights(materialise(), out); }

  /// The prediction for two steps ahead, [batch][side][side][channels] in [0, 1].
  void read_prediction(std::span<float> out) {
    const std::vector<KeptType> y = last_outputs();
    const std::size_t frame = spec_.frame_size();
    for (std::size_t u = 0; u < net_.layer_start[1]; ++u) {
      for (std::size_t k = 0; k < count(net_.units[u].base); ++k) {
        const KeptType* row = y.data() + (plan_.output_start[u] + k) * count(shape_.padded);
        const std::size_t pixel = plan_.rows[plan_.input_start(u) + k] & detail::batch::row_mask;
        for (std::size_t b = 0; b < count(batch_); ++b) {
          out[b * frame + pixel] = unsqueeze(Kept::decode(row[b]));
        }
      }
    }
  }

  /// h of the last step, [batch][units][hidden].
  void read_hidden(std::span<float> out) {
    const std::size_t values = count(shape_.hidden);
    const auto kept = hidden_rows<KeptType>(kept_.get(), 1);
    from_rows(kept, values, out, [](KeptType v) { return Kept::decode(v); });
  }

  /// y of the last step, [batch][outputs], units one by one.
  void read_outputs(std::span<float> out) {
    from_rows(last_outputs(), net_.outputs, out, [](KeptType v) { return Kept::decode(v); });
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
    state.plan = deferral();
    for (std::size_t l = 0; l < layers(); ++l) {
      auto saved = rates_.layers()[l].save();
      if (counts_updates)
        saved.front() = static_cast<double>(rates_.updates()[l]);  // none deferred
      state.coefficients.insert(state.coefficients.end(), saved.begin(), saved.end());
    }
    state.folded.resize(net_.weights);
    export_weights(download(master_.get(), plan_.master), state.folded);
    if (!listed_) {
      state.dweights.resize(net_.weights * Rule::state);
      for (int k = 0; k < Rule::state; ++k) {
        export_weights(download(states_.get() + count(k) * plan_.master, plan_.master),
                       std::span(state.dweights).subspan(count(k) * net_.weights, net_.weights));
      }
    }
    save_past(state);
    return state;
  }

  /// Continues from `state`: bit by bit if it is of this engine, else from its weights and its
  /// past, with the momentum started anew. A state with weights only starts at its step with the
  /// past of a new run. Throws Error (Fault::checkpoint) if it does not fit.
  void restore(const EngineState& state) {
    synchronize();
    check_size("weights", state.weights.size(), net_.weights);
    if (!state.rates.empty()) check_size("rates", state.rates.size(), layers());
    if (state.resumable()) check_past(state);
    rates_.clear();
    schedule_ = RateSchedule(spec_);
    if (!state.rates.empty()) schedule_.restore(state.rates);
    step_ = state.step;
    counted_ = {};
    learned_ = state.resumable();
    start_state(&state);
  }

  /// For how long the GPU has run steps, of those that have ended.
  [[nodiscard]] double device_seconds() { return compute_time_.seconds(); }

  [[nodiscard]] std::string description() const {
    return "CUDA batch engine: " + device_.name + ", " + std::string(Precision::name) +
           " products on tensor cores, " + std::to_string(batch_) + " sequences in slices of " +
           std::to_string(shape_.slice) + ", " + std::to_string(memory_needed() >> 20) + " MiB, " +
           (swept() ? "weights swept once a step, " : "") +
           (listed_ ? "last " + std::to_string(shape_.terms) + " gradients listed"
                    : std::to_string(Rule::state) + " floats of the learning rule a weight") +
           ", " + (options_.graph ? "captured" : "launched step by step");
  }
  /// Bytes of device memory the engine takes.
  [[nodiscard]] std::size_t memory_needed() const {
    const std::size_t row = count(shape_.padded) * sizeof(Word);
    const std::size_t hidden = count(shape_.hidden) * row;
    const std::size_t outputs = count(shape_.outputs) * row;
    const std::size_t frames = Tuning::blocks_ahead * count(block_steps()) * count(batch_);
    const std::size_t tables =
        count(shape_.frames) + 1 + Tuning::blocks_ahead * count(block_steps());
    using namespace detail::batch;
    return 4 * plan_.master * (2 + (listed_ ? 0 : Rule::state)) + 4 * work_words() +
           3 * count(shape_.ring) * hidden + count(shape_.frames) * count(shape_.pixels) * row +
           row + count(shape_.terms) * (hidden + outputs) + y_slots * outputs +
           4 * (scratch_floats() + missed_places()) +
           frames * (spec_.frame_size() + 1 + sizeof(void*)) + 4 * tables * rates_.size() +
           count(shape_.frames) * count(shape_.padded) +
           4 * (plan_.rows.size() + plan_.sweep.size() + plan_.sweep_starts.size()) +
           sizeof(Tile) * plan_.tiles.size() + sizeof(Product) * plan_.products.size() +
           4 * plan_.counters * slices() + 24 * score_places() + sizeof(StepStart) * step_starts() +
           2 * sizeof(Cursor);
  }

 private:
  struct Staging {
    detail::PinnedBytes pixels, places, scored, tables;
    Array<std::uint8_t> pixels_up, scored_up;
    Array<const std::uint8_t*> places_up;  // where each frame lies
    Array<float> tables_up, squeezed_up;
    detail::Event uploaded, used;
  };

  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  /// The kernels know the activation and the rule they were compiled for.
  static const Spec& check_spec(const Spec& spec) {
    detail::check_own_activation<OwnActivation>(spec);
    const std::string rule = detail::own_name<Rule>();
    if (spec.learning_rule != rule) {
      throw Error(Fault::usage, "the spec's learning rule is '" + spec.learning_rule +
                                    "' and this engine was compiled for '" + rule + "'");
    }
    return spec;
  }
  static int check_batch(int batch) {
    if (batch < 1 || (Batch != dynamic && batch != Batch)) {
      throw Error(Fault::usage,
                  "a batch of " + std::to_string(batch) + " sequences is impossible here; " +
                      (Batch == dynamic ? std::string("it must be at least 1")
                                        : "this engine was compiled for " + std::to_string(Batch)));
    }
    return batch;
  }
  [[nodiscard]] std::size_t layers() const { return net_.layer_start.size() - 1; }
  [[nodiscard]] std::size_t input_rows() const {
    std::size_t rows = 0;
    for (const Unit& unit : net_.units) rows += count(unit.inputs);
    return rows;
  }
  [[nodiscard]] detail::batch::RateKind rate_kind() const {
    using Kind = detail::batch::RateKind;
    if (listed_) return Kind::listed;
    return counts_updates ? Kind::counted : Kind::plain;
  }
  [[nodiscard]] DeferralPlan deferral() const { return {1, shape_.terms}; }
  [[nodiscard]] std::string layout_name() const {
    return listed_ ? "folds every step" : "rule's array";
  }

  [[nodiscard]] detail::batch::Shape make_shape() {
    detail::batch::Shape s{};
    s.batch = batch_;
    const int terms = detail::batch::terms_for(spec_.momentum, Math::epsilon);
    const bool listable = std::is_same_v<Rule, Momentum> && terms <= detail::batch::most_terms;
    const int whole = detail::batch::swept_size(batch_);
    swept_ = listable && whole >= batch_ && sweeps(whole);
    s.slice = swept_ ? whole : detail::batch::choose_slice(batch_, 128 * Math::most_tiles);
    s.padded = (batch_ + s.slice - 1) / s.slice * s.slice;
    const int more = (terms - 1) * s.padded * static_cast<int>(sizeof(Word));
    listed_ = swept_ || (listable && more <= Tuning::most_listed_bytes);
    s.terms = listed_ ? terms : 1;
    if (swept_) s.terms = std::max(s.terms, 2);  // it reads d0 while it makes the next
    s.ring = s.terms + 5;
    s.frames = 2 * Tuning::block_steps(s.padded) + s.terms + 6;
    s.hidden = static_cast<int>(net_.units.size()) * net_.hidden;
    s.pixels = static_cast<int>(spec_.frame_size());
    s.outputs = static_cast<int>(net_.outputs);
    s.layers = static_cast<int>(layers());
    s.activation =
        spec_.activation == ActivationKind::logistic ? 2 : (spec_.true_derivative ? 1 : 0);
    s.sign_error = spec_.opt_abs_diff ? 1 : 0;
    s.share = options_.reduce == Reduce::mean ? 1.0F / static_cast<float>(batch_) : 1.0F;
    return s;
  }

  /// Whether one pass over the weights can make a step: engine/cuda/batch/sweep.cuh.
  [[nodiscard]] bool sweeps(int padded) const {
    if constexpr (half) {
      const double rate = std::max({spec_.initial_learning_rate, spec_.intermediate_learning_rate,
                                    spec_.final_learning_rate}) *
                          (options_.reduce == Reduce::sum ? batch_ : 1);
      int columns = net_.hidden;
      for (const Unit& unit : net_.units) columns = std::max(columns, unit.representation);
      return device_.overlaps && columns <= detail::batch::panel_width &&
             layers() <= count(detail::batch::most_swept_layers) &&
             Sweeping{padded, false}.shared_bytes() <= device_.shared_bytes &&
             detail::batch::youngest_suffices(spec_.momentum, rate, Math::epsilon);
    }
    return false;
  }
  [[nodiscard]] bool swept() const noexcept { return swept_; }
  /// Of what a step begins with: of a sweep, each block of threads has its own.
  [[nodiscard]] std::size_t step_starts() const {
    return swept() ? plan_.sweep_starts.size() - 1 : 1;
  }
  [[nodiscard]] detail::batch::Plan::Sweep sweep_plan() const {
    if (!swept()) return {};
    const unsigned int each = Sweeping{shape_.padded, false}.blocks_each();
    return {shape_.padded, static_cast<unsigned>(device_.multiprocessors) * each};
  }

  /// Bytes of a row that the update kernel works on at a time: a row is a whole number of them.
  [[nodiscard]] int update_bytes() const {
    const int row = shape_.padded * static_cast<int>(sizeof(Word));
    return row % 128 == 0 ? 128 : row % 64 == 0 ? 64 : 32;
  }
  [[nodiscard]] std::size_t slices() const { return count(shape_.padded / shape_.slice); }
  [[nodiscard]] std::size_t work_words() const {
    if (swept()) return detail::batch::y_slots * swept_words();
    return (plan_.w0_blocks + 2 * plan_.w1_blocks) * detail::batch::block_words;
  }
  /// Of W1's copies of a step.
  [[nodiscard]] std::size_t swept_words() const { return plan_.copies * detail::batch::copy_words; }
  /// Places of the score, of three sums each.
  [[nodiscard]] std::size_t score_places() const {
    if (!swept()) return plan_.scores * slices();
    // every warp that computes has its own
    return (plan_.sweep_starts.size() - 1) * count(detail::batch::sweep_warps);
  }
  /// Of what repeating the frames of a block misses; not swept, that is scored where errors are
  /// made.
  [[nodiscard]] std::size_t missed_places() const {
    using namespace detail::batch;
    return swept() ? count(block_steps()) * tiles_along(shape_) * tiles_across(shape_) : 0;
  }
  [[nodiscard]] std::size_t scratch_floats() const {
    if (swept()) return plan_.scratch * detail::batch::sweep_part_floats(shape_.padded);
    return plan_.scratch * detail::batch::panel_width * count(shape_.padded);
  }
  [[nodiscard]] std::size_t hidden_row_words() const {
    return count(shape_.hidden) * count(shape_.padded);
  }
  [[nodiscard]] std::size_t output_words() const {
    return count(shape_.outputs) * count(shape_.padded);
  }
  [[nodiscard]] std::size_t frame_words() const {
    return count(shape_.pixels) * count(shape_.padded);
  }

  void require_shared_memory() const {
    const int need = std::max(products_.shared_bytes(), update_.shared_bytes());
    if (need <= device_.shared_bytes) return;
    throw Error(Fault::device, "batches need " + std::to_string(need >> 10) +
                                   " KiB of shared memory a block, and " + device_.name + " has " +
                                   std::to_string(device_.shared_bytes >> 10) +
                                   "; use one sequence, or the host backend");
  }

  void require_memory() const {
    std::size_t free = 0, all = 0;
    detail::cuda_check(cudaMemGetInfo(&free, &all), "asking for free memory");
    const std::size_t need = memory_needed();
    if (need <= free) return;
    throw Error(Fault::memory, "this network needs " + std::to_string(need >> 20) +
                                   " MiB of device memory with a batch of " +
                                   std::to_string(batch_) + " and " + std::to_string(free >> 20) +
                                   " MiB are free; use a smaller batch or spec, or the host"
                                   " backend");
  }

  void allocate() {
    put(rows_, plan_.rows);
    put(product_table_, plan_.products);
    put(tiles_, plan_.tiles);
    if (swept()) {
      put(sweep_tiles_, plan_.sweep);
      put(sweep_starts_, plan_.sweep_starts);
    }
    master_ = zeros<float>(plan_.master);
    copy_ = zeros<float>(plan_.master);
    states_ = zeros<float>(listed_ ? 0 : plan_.master * Rule::state);
    work_ = zeros<std::uint32_t>(work_words());
    const std::size_t hidden = count(shape_.ring) * hidden_row_words();
    kept_ = zeros<KeptType>(hidden);
    const std::size_t d0 = count(shape_.terms) * hidden_row_words();
    const std::size_t d1 = count(shape_.terms) * output_words();
    const std::size_t frames_words = count(shape_.frames) * frame_words();
    const std::size_t ones = count(shape_.padded);
    arena_ = zeros<Word>(2 * hidden + frames_words + ones + d0 + d1);
    squeezed_ = arena_.get();
    raw_ = squeezed_ + hidden;
    pixels_ = raw_ + hidden;
    ones_ = pixels_ + frames_words;
    d0_ = ones_ + ones;
    d1_ = d0_ + d0;
    write(ones_, std::vector<Word>(ones, Math::operand(1.0F)));
    y_ = zeros<KeptType>(detail::batch::y_slots * output_words());
    tables_ = zeros<float>(count(shape_.frames) * rates_.size());
    now_table_ = zeros<float>(rates_.size());
    scored_ = zeros<std::uint8_t>(count(shape_.frames) * count(shape_.padded));
    missed_ = zeros<float>(missed_places());
    scratch_ = zeros<float>(scratch_floats());
    counters_ = zeros<unsigned int>(plan_.counters * slices());
    score_ = zeros<double>(score_places() * 3);
    step_start_ = zeros<detail::batch::StepStart>(step_starts());
    cursors_ = zeros<detail::batch::Cursor>(2);
    const std::size_t frames = count(block_steps()) * count(batch_);
    const std::size_t table = count(block_steps()) * rates_.size();
    for (int i = 0; i < Tuning::blocks_ahead; ++i) {
      Staging s{detail::PinnedBytes(frames * spec_.frame_size()),
                detail::PinnedBytes(frames * sizeof(const std::uint8_t*)),
                detail::PinnedBytes(frames),
                detail::PinnedBytes(table * sizeof(float)),
                zeros<std::uint8_t>(frames * spec_.frame_size()),
                zeros<std::uint8_t>(frames),
                zeros<const std::uint8_t*>(frames),
                zeros<float>(table),
                Array<float>(),
                detail::Event(),
                detail::Event()};
      staging_.push_back(std::move(s));
    }
  }

  /// What the kernels work on.
  [[nodiscard]] detail::batch::Arguments arguments() const {
    const auto bytes = [](auto* p) { return reinterpret_cast<unsigned char*>(p); };
    detail::batch::Arguments a{};
    a.shape = shape_;
    a.products = product_table_.get();
    a.tiles = tiles_.get();
    a.tile_count = static_cast<unsigned int>(plan_.tiles.size());
    a.sweep = bytes(sweep_tiles_.get());
    a.sweep_starts = sweep_starts_.get();
    a.sum_rows = net_.hidden;
    a.rows = rows_.get();
    a.master = master_.get();
    a.states = states_.get();
    a.weights = plan_.master;
    a.work = work_.get();
    a.flip = swept() ? swept_words() : plan_.w1_blocks * detail::batch::block_words;
    a.copy = copy_.get();
    a.arena = bytes(arena_.get());
    a.squeezed = bytes(squeezed_);
    a.raw = bytes(raw_);
    a.kept = bytes(kept_.get());
    a.pixels = bytes(pixels_);
    a.ones = bytes(ones_);
    a.d0 = bytes(d0_);
    a.d1 = bytes(d1_);
    a.y = bytes(y_.get());
    a.tables = tables_.get();
    a.scored = scored_.get();
    a.scratch = scratch_.get();
    a.scratch_slice = plan_.scratch * detail::batch::panel_width * count(shape_.slice);
    a.counters = counters_.get();
    a.counter_slice = static_cast<unsigned int>(plan_.counters);
    a.score = score_.get();
    a.score_slice = static_cast<unsigned int>(plan_.scores);
    a.first = step_start_.get();
    a.second = cursors_.get();
    return a;
  }

  /// One step: all products with W(step), then the updates to W(step + 1). Swept, what the step
  /// before left to learn comes with the products.
  void launch_step() {
    if (swept()) return sweep(detail::batch::Task::learn);
    const detail::batch::Arguments a = arguments();
    products_(a, 0, static_cast<unsigned int>(plan_.products.size()), true, compute_.get());
    update_(a, detail::batch::Task::learn, compute_.get());
  }

  void sweep(detail::batch::Task task) {
    if constexpr (half) {
      const auto blocks = static_cast<unsigned int>(plan_.sweep_starts.size() - 1);
      sweep_(arguments(), task, blocks, compute_.get());
    }
  }

  /// Captures steps once; everything that changes from step to step is on the device.
  [[nodiscard]] cudaGraphExec_t capture(int steps) {
    if (!options_.graph) return nullptr;
    detail::cuda_check(cudaStreamBeginCapture(compute_.get(), cudaStreamCaptureModeThreadLocal),
                       "capturing a step");
    for (int i = 0; i < steps; ++i) launch_step();
    cudaGraph_t graph = nullptr;
    detail::cuda_check(cudaStreamEndCapture(compute_.get(), &graph), "capturing a step");
    cudaGraphExec_t made = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&made, graph, 0);
    (void)cudaGraphDestroy(graph);
    detail::cuda_check(status, "making a graph");
    detail::cuda_check(cudaGraphUpload(made, compute_.get()), "uploading a graph");
    return made;
  }

  /// How many steps follow the first `done` of a block that an idle device waits for: they begin as
  /// soon as an eighth of their frames is there.
  static int first_steps(int steps, int done) {
    return std::min(steps - done, std::max({1, steps / 8, done}));
  }
  [[nodiscard]] FrameBlock part(const FrameBlock& block, int first, int steps) const {
    const std::size_t row = count(first) * count(batch_), rows = count(steps) * count(batch_);
    const auto of = [&](auto all, std::size_t each) {
      return all.empty() ? all : all.subspan(row * each, rows * each);
    };
    return {steps, of(block.pixels, spec_.frame_size()), of(block.scored, 1),
            of(block.squeezed, spec_.frame_size()), of(block.stored, 1)};
  }

  /// `block` begins `first` steps from now, in the slot too.
  void upload(Staging& slot, const FrameBlock& block, int first) {
    const std::size_t row = count(first) * count(batch_);
    const std::size_t frames = count(block.steps) * count(batch_);
    const cudaStream_t stream = upload_.get();
    const auto copy = [&](auto& to, const auto* from, std::size_t at, std::size_t n) {
      detail::cuda_check(
          cudaMemcpyAsync(to.get() + at, from, n * sizeof(*from), cudaMemcpyHostToDevice, stream),
          "uploading frames");
    };
    const std::size_t values = spec_.frame_size();
    if (block.squeezed.empty()) {
      auto** places = reinterpret_cast<const std::uint8_t**>(slot.places.get()) + row;
      store_.bring(block, frames, slot.pixels_up.get() + row * values, places);
      copy(slot.places_up, places, row, frames);
    } else {
      if (slot.squeezed_up.size() == 0) {
        slot.squeezed_up = Array<float>(count(block_steps()) * count(batch_) * values);
      }
      copy(slot.squeezed_up, block.squeezed.data(), row * values, frames * values);
      detail::cuda_check(cudaStreamSynchronize(stream), "uploading frames");  // the caller's memory
    }
    const std::size_t rates = count(first) * rates_.size();
    copy(slot.scored_up, slot.scored.get() + row, row, frames);
    copy(slot.tables_up, reinterpret_cast<const float*>(slot.tables.get()) + rates, rates,
         count(block.steps) * rates_.size());
    const std::size_t place = ring_slot(0, shape_.frames) + count(first);
    const detail::batch::Uploaded uploaded{
        slot.places_up.get() + row,
        block.squeezed.empty() ? nullptr : slot.squeezed_up.get() + row * values,
        slot.scored_up.get() + row,
        slot.tables_up.get() + rates,
        static_cast<std::uint32_t>(place % count(shape_.frames)),
        swept() ? missed_.get() : nullptr};
    detail::batch::convert_frames<Math>(arguments(), uploaded, block.steps, stream);
    detail::cuda_check(cudaEventRecord(slot.uploaded.get(), stream), "ordering an upload");
    detail::batch::score_persistence(arguments(), uploaded, block.steps, stream);
  }

  void launch(Staging& slot, int steps) {
    const cudaStream_t stream = compute_.get();
    detail::cuda_check(cudaStreamWaitEvent(stream, slot.uploaded.get(), 0), "ordering a step");
    compute_time_.begin(stream);
    for (int left = steps; left > 0;) {
      if (!options_.graph) {
        launch_step();
        --left;
        continue;
      }
      const bool many = left >= Tuning::graph_steps;
      detail::cuda_check(cudaGraphLaunch(many ? more_steps_ : one_step_, stream),
                         "launching a graph");
      left -= many ? Tuning::graph_steps : 1;
    }
    compute_time_.end(stream);
    detail::cuda_check(cudaEventRecord(slot.used.get(), stream), "ordering a step");
  }

  void tally(const FrameBlock& block) {
    for (const std::uint8_t scored : block.scored) {
      if (scored != 0) counted_.pixels += spec_.frame_size();
    }
    counted_.outputs += count(block.steps) * count(batch_) * net_.outputs;
  }

  /// How many of the last two y this run has made itself; the others a checkpoint gave, or they are
  /// a new run's past.
  [[nodiscard]] int made_outputs() const {
    return static_cast<int>(std::min<std::uint64_t>(2, step_ - start_));
  }
  /// The cursor `back` steps ago, with nothing owed.
  [[nodiscard]] detail::batch::Cursor cursor(std::uint64_t back) const {
    const auto at = [&](int ring) { return static_cast<std::uint32_t>(ring_slot(back, ring)); };
    return {step_ - back,
            0,
            0,
            0,
            at(shape_.ring),
            at(shape_.frames),
            at(shape_.terms),
            at(detail::batch::y_slots),
            static_cast<std::uint32_t>(2 - made_outputs())};
  }
  /// Arguments for tasks outside of steps: a table and a cursor as of the last step.
  [[nodiscard]] detail::batch::Arguments arguments_now() {
    std::vector<float> table(rates_.size());
    rates_.write_now(step_ - 1, table.data());
    write(now_table_.get(), table);
    write(cursors_.get() + 1, std::vector<detail::batch::Cursor>{cursor(1)});
    detail::batch::Arguments a = arguments();
    a.now_table = now_table_.get();
    a.second = cursors_.get() + 1;
    return a;
  }
  /// After a sweep W0 has not learned the last step's gradients yet: now it does.
  void catch_up() {
    if (!std::exchange(owed_, false)) return;
    sweep(detail::batch::Task::settle);
    write_cursors();
  }
  void write_cursors() {
    const detail::batch::Arguments a = arguments();
    detail::batch::StepStart start{cursor(0), {}};
    for (int i = 0; i < detail::batch::start_places; ++i) {
      start.places[i] = detail::batch::start_place<Math>(a, start.cursor, i);
    }
    if (swept()) {  // no sums are of the next step
      const int other = detail::batch::sum_mark(start.cursor.step) != 0 ? 0 : 0xff;
      detail::cuda_check(
          cudaMemsetAsync(scratch_.get(), other, scratch_.size() * sizeof(float), compute_.get()),
          "clearing sums");
    }
    write(step_start_.get(), std::vector(step_starts(), start));
    write(cursors_.get(), std::vector{start.cursor});
  }
  /// A sweep reads the rates of the step before.
  void write_last_table() {
    if (!swept()) return;
    std::vector<float> table(rates_.size());
    rates_.write_now(step_ - 1, table.data());
    write(tables_.get() + ring_slot(1, shape_.frames) * rates_.size(), table);
  }
  /// W(step) in the master's order.
  [[nodiscard]] std::vector<float> materialise() {
    catch_up();
    detail::batch::Arguments a = arguments_now();
    if (swept()) {  // the update kernel knows one order
      detail::cuda_check(cudaMemcpyAsync(copy_.get(), master_.get(), plan_.master * sizeof(float),
                                         cudaMemcpyDeviceToDevice, compute_.get()),
                         "copying weights");
      a.master = copy_.get();
      detail::batch::reorder(a, copy_.get(), false, compute_.get());
    }
    update_(a, detail::batch::Task::read, compute_.get());
    if (swept()) detail::batch::reorder(a, copy_.get(), true, compute_.get());
    return download(copy_.get(), plan_.master);
  }
  void publish() {
    using detail::batch::Task;
    if (!swept()) return update_(arguments_now(), Task::publish, compute_.get());
    sweep(Task::publish);
    synchronize();  // another sweep would read masters while this one stores them
  }

  /// The momentum is forgotten: W stays as it is and nothing is listed.
  void settle() {
    if (!std::exchange(learned_, false)) return;
    if (listed_) {
      write(master_.get(), materialise());
      rates_.clear();
      write_last_table();
      if (swept()) publish();
    } else if (states_.size() > 0) {
      detail::cuda_check(
          cudaMemsetAsync(states_.get(), 0, states_.size() * sizeof(float), compute_.get()),
          "forgetting the momentum");
    }
    if (!listed_) rates_.clear();
  }

  /// Makes y of the last step, and a sweep, which makes it when it is two steps old, also that of
  /// the one before.
  void make_outputs() {
    if constexpr (half) {
      if (swept()) {
        const auto tiles = static_cast<unsigned int>(plan_.sweep_starts.back());
        for (int back = 1; back <= made_outputs(); ++back) {
          detail::batch::make_swept_outputs<Math, Batch>(arguments(), back, tiles, compute_.get());
        }
        return;
      }
    }
    const auto first = static_cast<unsigned int>(plan_.first_output);
    products_(arguments(), first, static_cast<unsigned int>(plan_.products.size()) - first, false,
              compute_.get());
  }
  /// y of the last step, [outputs][Bp].
  [[nodiscard]] std::vector<KeptType> last_outputs() {
    make_outputs();
    return download(y_.get() + ring_slot(1, detail::batch::y_slots) * output_words(),
                    output_words());
  }

  // Copies between here and the device; all wait.

  template <class T>
  [[nodiscard]] Array<T> zeros(std::size_t n) {
    Array<T> out(std::max<std::size_t>(1, n));
    detail::cuda_check(cudaMemsetAsync(out.get(), 0, out.size() * sizeof(T), compute_.get()),
                       "clearing memory");
    if (n == 0) return Array<T>();
    return out;
  }
  template <class T>
  void write(T* to, const std::vector<T>& from) {
    detail::cuda_check(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(T),
                                       cudaMemcpyHostToDevice, compute_.get()),
                       "writing a state");
    synchronize();
  }
  template <class T>
  void put(Array<T>& to, const std::vector<T>& from) {
    to = Array<T>(from.size());
    write(to.get(), from);
  }
  template <class T>
  [[nodiscard]] std::vector<T> download(const T* from, std::size_t n) {
    std::vector<T> out(n);
    detail::cuda_check(
        cudaMemcpyAsync(out.data(), from, n * sizeof(T), cudaMemcpyDeviceToHost, compute_.get()),
        "reading results");
    synchronize();
    return out;
  }
  void export_weights(const std::vector<float>& master, std::span<float> out) const {
    plan_.for_each_weight(
        [&](std::size_t reference, std::size_t own) { out[reference] = master[own]; });
  }
  [[nodiscard]] std::vector<float> import_weights(std::span<const float> weights) const {
    std::vector<float> master(plan_.master);
    plan_.for_each_weight(
        [&](std::size_t reference, std::size_t own) { master[own] = weights[reference]; });
    return master;
  }

  // Rows [n][Bp] to and from a tensor [batch][n].

  template <class T, class Decode>
  void from_rows(const std::vector<T>& rows, std::size_t n, std::span<float> out,
                 Decode decode) const {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t b = 0; b < count(batch_); ++b) {
        out[b * n + i] = decode(rows[i * count(shape_.padded) + b]);
      }
    }
  }
  template <class T, class Encode>
  [[nodiscard]] std::vector<T> to_rows(std::span<const float> tensor, std::size_t n,
                                       Encode encode) const {
    std::vector<T> rows(n * count(shape_.padded), encode(0.0F));
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t b = 0; b < count(batch_); ++b) {
        rows[i * count(shape_.padded) + b] = encode(tensor[b * n + i]);
      }
    }
    return rows;
  }
  /// Slot of step `step_ - back`.
  [[nodiscard]] std::size_t ring_slot(std::uint64_t back, int ring) const {
    return static_cast<std::size_t>((step_ + 64 * count(ring) - back) % count(ring));
  }
  template <class T>
  [[nodiscard]] std::vector<T> hidden_rows(const T* ring, std::uint64_t back) {
    return download(ring + ring_slot(back, shape_.ring) * hidden_row_words(), hidden_row_words());
  }

  /// Visits the pieces of a state's past, newest first: what(tensor, length, device memory, kind).
  template <class Visit>
  void visit_past(std::size_t terms, Visit&& visit) const {
    const auto hidden = count(shape_.hidden);
    for (std::size_t age = 0; age < terms + 4; ++age) {
      const std::size_t at = ring_slot(age + 1, shape_.ring) * hidden_row_words();
      visit.hidden(age, hidden, at);
      visit.frame(age, count(shape_.pixels), ring_slot(age + 1, shape_.frames) * frame_words());
    }
    for (std::size_t age = 0; age < 2; ++age) {
      visit.outputs(age, net_.outputs, ring_slot(age + 1, detail::batch::y_slots) * output_words());
    }
    for (std::size_t age = 0; age < terms; ++age) {
      const std::size_t at = ring_slot(age + 1, shape_.terms);
      visit.gradients(age, hidden, at * hidden_row_words(), net_.outputs, at * output_words());
    }
  }
  template <class T>
  static auto piece(T& tensor, std::size_t age, std::size_t each) {
    return std::span(tensor).subspan(age * each, each);
  }

  struct SavePast {
    CudaBatchEngine& e;
    EngineState& s;
    void read(std::vector<float>& to, std::size_t age, std::size_t n, const Word* from,
              std::size_t words) {
      const std::size_t each = n * count(e.batch_);
      e.from_rows(e.download(from, words), n, piece(to, age, each), Math::value);
    }
    void hidden(std::size_t age, std::size_t n, std::size_t at) {
      const std::size_t each = n * count(e.batch_);
      e.from_rows(e.download(e.kept_.get() + at, e.hidden_row_words()), n,
                  piece(s.hidden, age, each), Kept::decode);
      read(s.squeezed, age, n, e.squeezed_ + at, e.hidden_row_words());
    }
    void frame(std::size_t age, std::size_t n, std::size_t at) {
      read(s.frames, age, n, e.pixels_ + at, e.frame_words());
    }
    void outputs(std::size_t age, std::size_t n, std::size_t at) {
      e.from_rows(e.download(e.y_.get() + at, e.output_words()), n,
                  piece(s.outputs, age, n * count(e.batch_)), Kept::decode);
    }
    void gradients(std::size_t age, std::size_t n0, std::size_t at0, std::size_t n1,
                   std::size_t at1) {
      read(s.hidden_gradients, age, n0, e.d0_ + at0, e.hidden_row_words());
      read(s.output_gradients, age, n1, e.d1_ + at1, e.output_words());
    }
  };
  struct LoadPast {
    CudaBatchEngine& e;
    const EngineState& s;
    void write(Word* to, const std::vector<float>& from, std::size_t age, std::size_t n) {
      e.write(to,
              e.template to_rows<Word>(piece(from, age, n * count(e.batch_)), n, Math::operand));
    }
    void hidden(std::size_t age, std::size_t n, std::size_t at) {
      const auto h = piece(s.hidden, age, n * count(e.batch_));
      e.write(e.kept_.get() + at, e.template to_rows<KeptType>(h, n, Kept::encode));
      e.write(e.raw_ + at, e.template to_rows<Word>(h, n, [](float v) {
        return Math::operand(Kept::decode(Kept::encode(v)));
      }));
      write(e.squeezed_ + at, s.squeezed, age, n);
    }
    void frame(std::size_t age, std::size_t n, std::size_t at) {
      write(e.pixels_ + at, s.frames, age, n);
    }
    void outputs(std::size_t age, std::size_t n, std::size_t at) {
      e.write(e.y_.get() + at, e.template to_rows<KeptType>(
                                   piece(s.outputs, age, n * count(e.batch_)), n, Kept::encode));
    }
    void gradients(std::size_t age, std::size_t n0, std::size_t at0, std::size_t n1,
                   std::size_t at1) {
      write(e.d0_ + at0, s.hidden_gradients, age, n0);
      write(e.d1_ + at1, s.output_gradients, age, n1);
    }
  };

  void save_past(EngineState& state) {
    make_outputs();
    const std::size_t terms = count(shape_.terms);
    const std::size_t hidden = count(batch_) * count(shape_.hidden);
    const std::size_t outputs = count(batch_) * net_.outputs;
    state.hidden.resize((terms + 4) * hidden);
    state.squeezed.resize((terms + 4) * hidden);
    state.frames.resize((terms + 4) * count(batch_) * spec_.frame_size());
    state.outputs.resize(2 * outputs);
    state.hidden_gradients.resize(terms * hidden);
    state.output_gradients.resize(terms * outputs);
    visit_past(terms, SavePast{*this, state});
  }

  static void check_size(const char* what, std::size_t size, std::size_t expected) {
    if (size == expected) return;
    throw Error(Fault::checkpoint, "the checkpoint's " + std::string(what) + " are " +
                                       std::to_string(size) + " numbers and this network needs " +
                                       std::to_string(expected) + ": they are another spec's");
  }
  void check_past(const EngineState& state) const {
    if (state.batch != batch_) {
      throw Error(Fault::checkpoint, "the checkpoint is of " + std::to_string(state.batch) +
                                         " sequences and this run has " + std::to_string(batch_));
    }
    if (state.plan.period < 1 || state.plan.terms < state.plan.period ||
        state.plan.terms > 1 << 20) {
      throw Error(Fault::checkpoint, "the checkpoint's plan of deferred updates is impossible");
    }
    const std::size_t terms = count(state.plan.terms);
    const std::size_t hidden = count(batch_) * count(shape_.hidden);
    const std::size_t outputs = count(batch_) * net_.outputs;
    check_size("rates", state.rates.size(), layers());
    check_size("coefficients", state.coefficients.size(),
               layers() * terms * (4 + count(state.plan.period)));
    check_size("folded weights", state.folded.size(), net_.weights);
    check_size("hidden values", state.hidden.size(), (terms + 4) * hidden);
    check_size("squeezed values", state.squeezed.size(), (terms + 4) * hidden);
    check_size("frames", state.frames.size(), (terms + 4) * count(batch_) * spec_.frame_size());
    check_size("outputs", state.outputs.size(), 2 * outputs);
    check_size("hidden gradients", state.hidden_gradients.size(), terms * hidden);
    check_size("output gradients", state.output_gradients.size(), terms * outputs);
    if (own(state) && !listed_) {
      check_size("dweights", state.dweights.size(), net_.weights * Rule::state);
    }
  }
  [[nodiscard]] bool own(const EngineState& state) const {
    return state.resumable() && state.layout == layout_name() && state.plan == deferral();
  }
  void restore_rates(const EngineState& state) {
    const std::size_t each = state.coefficients.size() / layers();
    for (std::size_t l = 0; l < layers(); ++l) {
      const auto from = state.coefficients.begin() + static_cast<std::ptrdiff_t>(l * each);
      std::vector<double> saved(from, from + static_cast<std::ptrdiff_t>(each));
      if (counts_updates) {
        const double updates = std::max(0.0, std::exchange(saved.front(), 0.0));
        rates_.updates()[l] = static_cast<std::uint64_t>(updates);
      }
      if (!rates_.layers()[l].restore(saved)) {
        throw Error(Fault::checkpoint, "the checkpoint's coefficients do not fit its plan");
      }
    }
  }

  /// Everything on the device as of step_: of `state`, or new with zero weights.
  void start_state(const EngineState* state) {
    const bool same = state != nullptr && own(*state);
    if (same) restore_rates(*state);
    start_ = step_;
    if (state != nullptr)
      write(master_.get(), import_weights(same ? state->folded : state->weights));
    for (std::size_t k = 0; k < (listed_ ? 0 : Rule::state); ++k) {
      const auto rule = same ? import_weights(piece(state->dweights, k, net_.weights))
                             : std::vector<float>(plan_.master);
      write(states_.get() + k * plan_.master, rule);
    }
    start_past();
    if (state != nullptr && state->resumable()) {
      visit_past(count(std::min(shape_.terms, state->plan.terms)), LoadPast{*this, *state});
    }
    write(score_.get(), std::vector<double>(score_.size()));
    write_cursors();
    owed_ = false;
    write_last_table();
    publish();
    synchronize();
  }
  /// The past of a new run: all ones, but the hidden values that x(0) squeezes are c(1).
  void start_past() {
    const std::size_t hidden = count(shape_.ring) * hidden_row_words();
    std::vector<Word> ones(hidden, Math::operand(1.0F));
    write(raw_, ones);
    std::fill_n(ones.data() + ring_slot(1, shape_.ring) * hidden_row_words(), hidden_row_words(),
                Math::operand(squeeze(1.0F)));
    write(squeezed_, ones);
    write(kept_.get(), std::vector<KeptType>(hidden, Kept::encode(1.0F)));
    write(pixels_, std::vector<Word>(count(shape_.frames) * frame_words(), Math::operand(1.0F)));
    write(y_.get(), std::vector<KeptType>(y_.size(), Kept::encode(1.0F)));
    write(d0_, std::vector<Word>(count(shape_.terms) * hidden_row_words()));
    write(d1_, std::vector<Word>(count(shape_.terms) * output_words()));
  }

  Spec spec_;
  EngineOptions options_;
  int batch_;
  detail::batch::Device device_;
  Connectome net_;
  bool listed_ = false;
  bool swept_ = false;
  detail::batch::Shape shape_;
  detail::batch::Plan plan_;
  RateSchedule schedule_;
  detail::batch::RateTables rates_;
  detail::batch::ProductsLauncher<Math, Batch> products_;
  Sweeping sweep_;
  detail::batch::UpdateLauncher<Math, Rule> update_;
  detail::Stream compute_{true};  // a step does not wait while frames to come are made rows
  detail::Stream upload_;
  detail::ComputeTime compute_time_;

  Array<std::uint32_t> rows_, work_, sweep_tiles_, sweep_starts_;
  Array<detail::batch::Product> product_table_;
  Array<detail::batch::Tile> tiles_;
  Array<float> master_, states_, copy_;
  Array<Word> arena_;  // all rows that are gathered:
  Word *squeezed_ = nullptr, *raw_ = nullptr, *pixels_ = nullptr, *ones_ = nullptr, *d0_ = nullptr,
       *d1_ = nullptr;
  Array<KeptType> kept_, y_;
  Array<float> tables_, now_table_, scratch_;
  Array<std::uint8_t> scored_;
  Array<float> missed_;
  Array<unsigned int> counters_;
  Array<double> score_;
  Array<detail::batch::StepStart> step_start_;
  Array<detail::batch::Cursor> cursors_;  // one of the run, one for tasks outside of steps
  std::vector<Staging> staging_;
  cudaGraphExec_t one_step_ = nullptr;
  cudaGraphExec_t more_steps_ = nullptr;

  detail::DeviceFrameStore store_{spec_.frame_size(), upload_.get()};
  std::vector<std::uint32_t> stored_;
  Score counted_;
  std::uint64_t step_ = 0;
  std::uint64_t start_ = 0;  // the first step of the run, or since a state was restored
  std::uint64_t blocks_ = 0;
  bool learned_ = false;  // whether there may be momentum
  bool owed_ = false;     // whether W0 has still to learn from the last step
};

}  // namespace pvm::inline v0
