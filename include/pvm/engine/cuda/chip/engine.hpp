// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The engine for one sequence whose 16-bit weights stay on the GPU's multiprocessors. Include it
/// from files that nvcc compiles.

#ifndef __CUDACC__
#error "pvm/engine/cuda is compiled by nvcc: name the file .cu, or use the host engine"
#endif

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/check.hpp>
#include <pvm/engine/cuda/chip/launcher.hpp>
#include <pvm/engine/cuda/chip/plan.hpp>
#include <pvm/engine/cuda/coefficients.hpp>
#include <pvm/engine/cuda/compute_time.hpp>
#include <pvm/engine/cuda/frame_store.hpp>
#include <pvm/engine/cuda/weight_map.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// An Engine for one sequence on the current CUDA device, bf16 or fp16, for units of `Hidden`
/// hidden values. `run` returns at once; frames go up on their own stream while earlier ones are
/// used. Weights are rounded to 16 bits, values keep 16 bits of mantissa, sums are fp32.
template <class Precision, int Hidden = 49>
class CudaChipEngine {
  using Plan = detail::chip::Plan<Hidden>;
  using Words = detail::chip::Split<Precision>;

 public:
  /// Whether this engine can run `spec` on the current device; if not, `why` says what is in the
  /// way, in half a sentence.
  static bool fits(const Spec& spec, std::string& why) {
    const detail::DeviceFacts device = detail::describe_device();
    return Plan::fits(spec, make_connectome(spec), device.multiprocessors, device.shared_bytes,
                      why);
  }

  /// `spec` must be valid, the batch is 1; throws Error (usage, device, memory).
  explicit CudaChipEngine(const Spec& spec, int batch = 1, const EngineOptions& options = {})
      : spec_(check_fit(spec, batch)),
        options_(options),
        device_(detail::describe_device()),
        net_(make_connectome(spec)),
        deferral_(detail::chip::deferral<Hidden>(spec.momentum)),
        plan_(net_, deferral_, device_.multiprocessors, device_.shared_bytes),
        schedule_(spec),
        tables_(spec.layer_shapes.size(), deferral_, 1.0F),
        launcher_(device_.multiprocessors, plan_.shared_words * 4) {
    require_memory();
    allocate();
    start_state(std::vector<float>(net_.weights), nullptr);
    capture();
  }
  CudaChipEngine(const CudaChipEngine&) = delete;
  CudaChipEngine& operator=(const CudaChipEngine&) = delete;
  ~CudaChipEngine() {
    (void)cudaStreamSynchronize(upload_.get());
    (void)cudaStreamSynchronize(compute_.get());
    if (graph_ != nullptr) (void)cudaGraphExecDestroy(graph_);
  }

  [[nodiscard]] int batch() const noexcept { return 1; }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] const Connectome& connectome() const noexcept { return net_; }
  [[nodiscard]] int block_steps() const noexcept { return device_.tuning.block_steps; }

  /// Room for `steps` (1 to block_steps()) frames, in pinned memory. Waits until the block that
  /// was there has gone up.
  [[nodiscard]] FrameBlock stage(int steps) {
    if (steps < 1 || steps > block_steps()) {
      throw Error(Fault::usage, "a block of " + std::to_string(steps) +
                                    " steps is impossible; allowed: 1 to " +
                                    std::to_string(block_steps()));
    }
    Staging& slot = staging_[blocks_ % staging_.size()];
    detail::cuda_check(cudaEventSynchronize(slot.uploaded.get()), "waiting for an upload");
    const std::size_t rows = count(steps);
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
    const std::size_t at = blocks_ % staging_.size();
    Staging& slot = staging_[at];
    const auto steps = count(block.steps);
    auto* index = reinterpret_cast<std::uint32_t*>(slot.index.get());
    index[0] = static_cast<std::uint32_t>(steps) |
               (block.squeezed.empty() ? 0U : detail::chip::floats_staged);
    const std::size_t tables =
        tables_.write(step_, steps, mode == Mode::learn, schedule_, index + 1,
                      reinterpret_cast<float*>(slot.tables.get()));
    upload(at, block, tables);
    launch(at, block.steps);
    for (const std::uint8_t scored : block.scored) {
      if (scored != 0) counted_.pixels += spec_.frame_size();
    }
    counted_.outputs += steps * net_.outputs;
    step_ += steps;
    ++blocks_;
  }

  void synchronize() { detail::cuda_check(cudaStreamSynchronize(compute_.get()), "running steps"); }

  [[nodiscard]] Score take_score() {
    const std::vector<double> sums = download(score_);
    Score score = std::exchange(counted_, {});
    for (std::size_t i = 0; i < sums.size(); i += 3) {
      score.prediction += sums[i];
      score.persistence += sums[i + 1];
      score.loss += sums[i + 2];
    }
    clear(score_);
    return score;
  }

  /// W(step), reference order, `connectome().weights` floats.
  void read_weights(std::span<float> out) {
    materialise();
    to_reference(download(weights_now_), out);
  }
  /// The prediction for two steps ahead, [side][side][channels] in [0, 1].
  void read_prediction(std::span<float> out) {
    const std::vector<float> y = last_outputs();
    for (std::size_t u = 0; u < patches(); ++u) {
      for (std::size_t k = 0; k < patch_size(); ++k) {
        out[pixel(u, k)] = unsqueeze(y[plan_.output_start[u] + k]);
      }
    }
  }
  /// h of the last step, [units][hidden].
  void read_hidden(std::span<float> out) {
    const std::vector<float> hidden = download(hidden_);
    std::copy_n(hidden.data() + ring_row(1) * hidden_row(), hidden_row(), out.data());
  }
  /// y of the last step, [outputs], unit by unit.
  void read_outputs(std::span<float> out) {
    const std::vector<float> y = last_outputs();
    visit_outputs([&](std::size_t own, std::size_t tensor) { out[tensor] = y[own]; });
  }

  /// Everything, for a checkpoint. Does not disturb the run.
  [[nodiscard]] EngineState save() {
    EngineState state;
    state.step = step_;
    state.batch = 1;
    state.weights.resize(net_.weights);
    read_weights(state.weights);
    state.rates = schedule_.layers();
    state.layout = layout_name();
    state.plan = deferral_;
    for (const DeferredRates& layer : tables_.layers()) {
      const auto saved = layer.save();
      state.coefficients.insert(state.coefficients.end(), saved.begin(), saved.end());
    }
    state.folded.resize(net_.weights);
    to_reference(download(master_), state.folded);
    save_past(state);
    return state;
  }

  /// Continues from `state`: bit by bit if it is of this engine on a GPU like this one, else from
  /// its weights, its past and, where possible, its momentum. A state with weights only starts at
  /// its step with the past of a new run. Throws Error (Fault::checkpoint) if it does not fit.
  void restore(const EngineState& state) {
    synchronize();
    check_size("weights", state.weights.size(), net_.weights);
    if (!state.rates.empty()) check_size("rates", state.rates.size(), layers());
    if (state.resumable()) check_past(state);
    tables_.clear();
    schedule_ = RateSchedule(spec_);
    if (!state.rates.empty()) schedule_.restore(state.rates);
    step_ = state.step;
    learned_ = false;
    bool same = false;
    if (state.resumable()) {
      same = state.layout == layout_name() && state.plan == deferral_;
      if (same || state.dweights.empty()) restore_rates(state, same);
      learned_ = true;
    }
    start_state(same ? state.folded : state.weights, state.resumable() ? &state : nullptr);
    counted_ = {};
  }

  /// For how long the GPU has run steps, of those that have ended.
  [[nodiscard]] double device_seconds() { return compute_time_.seconds(); }

  [[nodiscard]] std::string description() const {
    const std::size_t on_chip = plan_.held + plan_.shared;
    return "CUDA engine, weights on the chip: " + device_.name + ", " +
           std::to_string(device_.multiprocessors) + " multiprocessors, " +
           std::to_string(memory_needed() >> 20) + " MiB, " + std::string(Precision::name) + ", " +
           std::to_string(100 * on_chip / std::max<std::size_t>(1, on_chip + plan_.streamed)) +
           " % of W0 and all of W1 on the chip, updates folded every " +
           std::to_string(deferral_.period) + " steps, " +
           (options_.graph ? "captured" : "one launch a step");
  }
  /// Bytes of device memory the engine takes.
  [[nodiscard]] std::size_t memory_needed() const {
    using namespace detail::chip;
    const std::size_t words =
        2 * plan_.weight_floats() + copy_words() + count(ring) * (plan_.row_words + hidden_row()) +
        count(history) * (hidden_row() + plan_.outputs) + 2 * plan_.outputs + score_size() * 2 +
        plan_.programs.size() + plan_.program_start.size() + plan_.column_list.size() +
        layers() * (tables_.stride() + 1);
    const std::size_t staged = count(block_steps()) * (spec_.frame_size() + 1 + sizeof(void*)) +
                               4 * (index_words() + tables_room());
    return words * 4 + staged * count(device_.tuning.blocks_ahead) + sizeof(ChipCursor) + 12;
  }

 private:
  struct Staging {
    detail::PinnedBytes pixels, places, scored, index, tables;
    detail::Event uploaded, used;
  };
  template <class T>
  using Array = detail::DeviceArray<T>;

  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  static const Spec& check_fit(const Spec& spec, int batch) {
    std::string why;
    if (batch != 1) why = "a batch has more than one sequence";
    if (batch == 1 && fits(spec, why)) return spec;
    throw Error(Fault::usage, "the weights of this network cannot stay on the chip: " + why +
                                  "; use the engine for batches");
  }
  [[nodiscard]] std::size_t layers() const { return net_.layer_start.size() - 1; }
  [[nodiscard]] std::size_t hidden_row() const { return net_.units.size() * count(Hidden); }
  [[nodiscard]] std::size_t patches() const { return net_.layer_start[1]; }
  [[nodiscard]] std::size_t patch_size() const { return count(net_.units[0].base); }
  [[nodiscard]] std::size_t copy_words() const {
    return plan_.streamed == 0 ? 4 : plan_.blocks * detail::chip::Sizes<Hidden>::block_words;
  }
  [[nodiscard]] std::size_t score_size() const {
    return count(device_.multiprocessors) * detail::chip::warps * 3;
  }
  [[nodiscard]] std::size_t tables_count() const { return (count(block_steps()) + 1) * layers(); }
  [[nodiscard]] std::size_t index_words() const { return 1 + tables_count(); }
  [[nodiscard]] std::size_t tables_room() const { return tables_count() * tables_.stride(); }
  /// Row of step `step_ - back` in the rings of device memory.
  [[nodiscard]] std::size_t ring_row(std::uint64_t back) const {
    return static_cast<std::size_t>((step_ + 2 * detail::chip::ring - back) % detail::chip::ring);
  }
  [[nodiscard]] std::size_t history_row(std::uint64_t back) const {
    return static_cast<std::size_t>((step_ + 2 * detail::chip::history - back) %
                                    detail::chip::history);
  }
  /// Index in a frame of pixel k of patch u.
  [[nodiscard]] std::size_t pixel(std::size_t u, std::size_t k) const {
    const auto block = count(spec_.input_block_size);
    const auto across = count(spec_.layer_shapes[0]);
    const std::size_t line = block * count(spec_.input_channels);
    const std::size_t row = u / across * block + k / line;
    return (row * across + u % across) * line + k % line;
  }
  [[nodiscard]] std::string layout_name() const {
    return "on the chip, " + std::string(Precision::name) + ", " +
           std::to_string(device_.multiprocessors) + " multiprocessors";
  }

  void require_memory() const {
    std::size_t free = 0, all = 0;
    detail::cuda_check(cudaMemGetInfo(&free, &all), "asking for free memory");
    const std::size_t need = memory_needed();
    if (need <= free) return;
    throw Error(Fault::memory, "this network needs " + std::to_string(need >> 20) +
                                   " MiB of device memory and " + std::to_string(free >> 20) +
                                   " MiB are free; use a smaller spec, or the host backend");
  }

  template <class T>
  void fill(Array<T>& to, const std::vector<T>& from) {
    detail::cuda_check(cudaMemcpyAsync(to.get(), from.data(), from.size() * sizeof(T),
                                       cudaMemcpyHostToDevice, compute_.get()),
                       "writing a state");
    synchronize();
  }
  template <class T>
  void put(Array<T>& to, const std::vector<T>& from) {
    to = Array<T>(std::max<std::size_t>(1, from.size()));
    if (!from.empty()) fill(to, from);
  }
  template <class T>
  [[nodiscard]] std::vector<T> download(const Array<T>& from) {
    std::vector<T> out(from.size());
    detail::cuda_check(cudaMemcpyAsync(out.data(), from.get(), out.size() * sizeof(T),
                                       cudaMemcpyDeviceToHost, compute_.get()),
                       "reading results");
    synchronize();
    return out;
  }
  template <class T>
  void clear(const Array<T>& values) {
    detail::cuda_check(cudaMemsetAsync(values.get(), 0, values.size() * sizeof(T), compute_.get()),
                       "clearing device memory");
  }
  [[nodiscard]] std::vector<float> last_outputs() {
    const std::vector<float> y = download(y_);
    const auto from = y.begin() + static_cast<std::ptrdiff_t>((step_ + 1) % 2 * plan_.outputs);
    return {from, from + static_cast<std::ptrdiff_t>(plan_.outputs)};
  }

  void allocate() {
    using namespace detail::chip;
    put(programs_, plan_.programs);
    put(program_start_, plan_.program_start);
    put(column_list_, plan_.column_list);
    master_ = Array<float>(plan_.weight_floats());
    weights_now_ = Array<float>(plan_.weight_floats());
    clear(weights_now_);  // it is downloaded whole, with the padding that no kernel writes
    copy_ = Array<std::uint32_t>(copy_words());
    past_ = Array<std::uint32_t>(count(ring) * plan_.row_words);
    hidden_ = Array<float>(count(ring) * hidden_row());
    d0_ = Array<float>(count(history) * hidden_row());
    d1_ = Array<float>(count(history) * plan_.outputs);
    y_ = Array<float>(2 * plan_.outputs);
    score_ = Array<double>(score_size());
    cursor_ = Array<ChipCursor>(1);
    barrier_ = Array<unsigned int>(3);
    const std::size_t slots = count(device_.tuning.blocks_ahead);
    const std::size_t steps = count(block_steps());
    pixels_ = Array<std::uint8_t>(slots * steps * spec_.frame_size());
    places_ = Array<const std::uint8_t*>(slots * steps);
    scored_ = Array<std::uint8_t>(slots * steps);
    index_ = Array<std::uint32_t>(slots * index_words());
    coefficients_ = Array<float>(slots * tables_room());
    now_index_ = Array<std::uint32_t>(layers());
    now_tables_ = Array<float>(layers() * tables_.stride());
    for (std::size_t i = 0; i < slots; ++i) {
      staging_.push_back({detail::PinnedBytes(steps * spec_.frame_size()),
                          detail::PinnedBytes(steps * sizeof(const std::uint8_t*)),
                          detail::PinnedBytes(steps), detail::PinnedBytes(index_words() * 4),
                          detail::PinnedBytes(tables_room() * 4), detail::Event(),
                          detail::Event()});
    }
  }

  [[nodiscard]] detail::chip::ChipArguments arguments(int most_steps) const {
    detail::chip::ChipArguments a{};
    a.areas = plan_.areas;
    a.units = static_cast<int>(net_.units.size());
    a.layers = static_cast<int>(layers());
    a.patches = static_cast<int>(patches());
    a.patch = static_cast<int>(patch_size());
    a.block_size = spec_.input_block_size;
    a.channels = spec_.input_channels;
    a.side = spec_.frame_side();
    a.period = deferral_.period;
    a.row_words = static_cast<unsigned>(plan_.row_words);
    a.first_patch = static_cast<unsigned>(plan_.first_patch);
    a.patch_record = static_cast<unsigned>(plan_.patch_record);
    a.zero = static_cast<unsigned>(plan_.zero);
    a.hidden_row = static_cast<unsigned>(hidden_row());
    a.output_row = static_cast<unsigned>(plan_.outputs);
    a.activation =
        spec_.activation == ActivationKind::logistic ? 2 : (spec_.true_derivative ? 1 : 0);
    a.sign_error = spec_.opt_abs_diff ? 1 : 0;
    a.staging = device_.tuning.blocks_ahead;
    a.block_steps = block_steps();
    a.table_stride = static_cast<int>(tables_.stride());
    a.most_steps = most_steps;
    a.programs = programs_.get();
    a.program_start = program_start_.get();
    a.column_list = column_list_.get();
    a.master = master_.get();
    a.first_wide = plan_.first_wide();
    a.copy = copy_.get();
    a.past = past_.get();
    a.hidden = hidden_.get();
    a.d0 = d0_.get();
    a.d1 = d1_.get();
    a.y = y_.get();
    a.score = score_.get();
    a.cursor = cursor_.get();
    a.barrier = barrier_.get();
    a.frames = places_.get();
    a.squeezed = squeezed_.get();
    a.scored = scored_.get();
    a.index = index_.get();
    a.coefficients = coefficients_.get();
    return a;
  }

  /// Captures the launch once; everything that changes is on the device.
  void capture() {
    if (!options_.graph) return;
    detail::cuda_check(cudaStreamBeginCapture(compute_.get(), cudaStreamCaptureModeThreadLocal),
                       "capturing a step");
    launcher_.steps(arguments(INT_MAX), compute_.get());
    cudaGraph_t graph = nullptr;
    detail::cuda_check(cudaStreamEndCapture(compute_.get(), &graph), "capturing a step");
    if (graph_ != nullptr) (void)cudaGraphExecDestroy(std::exchange(graph_, nullptr));
    const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
    (void)cudaGraphDestroy(graph);
    detail::cuda_check(made, "making a graph");
    detail::cuda_check(cudaGraphUpload(graph_, compute_.get()), "uploading a graph");
  }

  void upload(std::size_t at, const FrameBlock& block, std::size_t tables) {
    Staging& slot = staging_[at];
    const auto steps = count(block.steps);
    if (!block.squeezed.empty()) open_squeezed();
    const std::size_t room = count(block_steps());
    const cudaStream_t stream = upload_.get();
    detail::cuda_check(cudaStreamWaitEvent(stream, slot.used.get(), 0), "ordering an upload");
    const auto copy = [&](void* to, const void* from, std::size_t bytes) {
      detail::cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream),
                         "uploading frames");
    };
    if (block.squeezed.empty()) {
      auto** places = reinterpret_cast<const std::uint8_t**>(slot.places.get());
      store_.bring(block, steps, pixels_.get() + at * room * spec_.frame_size(), places);
      copy(places_.get() + at * room, places, steps * sizeof(*places));
    } else {
      copy(squeezed_.get() + at * room * spec_.frame_size(), block.squeezed.data(),
           steps * spec_.frame_size() * sizeof(float));
    }
    copy(scored_.get() + at * room, slot.scored.get(), steps);
    copy(index_.get() + at * index_words(), slot.index.get(), 4 * (1 + (steps + 1) * layers()));
    copy(coefficients_.get() + at * tables_room(), slot.tables.get(),
         4 * tables * tables_.stride());
    detail::cuda_check(cudaEventRecord(slot.uploaded.get(), stream), "ordering an upload");
    // Floats lie in memory of the caller's that may be gone when this returns.
    if (!block.squeezed.empty()) {
      detail::cuda_check(cudaStreamSynchronize(stream), "uploading frames");
    }
  }
  /// Room for frames as floats, taken when the first ones come. The launch is captured again, as
  /// its arguments have changed.
  void open_squeezed() {
    if (squeezed_.size() != 0) return;
    synchronize();
    squeezed_ = Array<float>(count(device_.tuning.blocks_ahead) * count(block_steps()) *
                             spec_.frame_size());
    capture();
  }

  void launch(std::size_t at, int steps) {
    Staging& slot = staging_[at];
    const cudaStream_t stream = compute_.get();
    detail::cuda_check(cudaStreamWaitEvent(stream, slot.uploaded.get(), 0), "ordering a step");
    compute_time_.begin(stream);
    if (options_.graph) {
      detail::cuda_check(cudaGraphLaunch(graph_, stream), "launching a graph");
    } else {
      for (int i = 0; i < steps; ++i) launcher_.steps(arguments(1), stream);
    }
    compute_time_.end(stream);
    detail::cuda_check(cudaEventRecord(slot.used.get(), stream), "ordering a step");
  }

  /// weights_now_ becomes W(step).
  void materialise() {
    std::vector<std::uint32_t> index(layers());
    std::vector<float> tables(layers() * tables_.stride());
    tables_.write_now(step_, index.data(), tables.data());
    fill(now_index_, index);
    fill(now_tables_, tables);
    launcher_.materialise(arguments(0), step_, now_index_.get(), now_tables_.get(),
                          weights_now_.get(), compute_.get());
  }
  /// Folds everything and forgets the momentum: nothing is listed.
  void settle() {
    if (!std::exchange(learned_, false)) return;
    materialise();
    detail::cuda_check(
        cudaMemcpyAsync(master_.get(), weights_now_.get(), master_.size() * sizeof(float),
                        cudaMemcpyDeviceToDevice, compute_.get()),
        "settling the weights");
    tables_.clear();
  }
  void to_reference(const std::vector<float>& own, std::span<float> out) const {
    plan_.visit_weights([&](std::size_t at, std::size_t reference) { out[reference] = own[at]; });
  }

  static void check_size(const char* what, std::size_t size, std::size_t expected) {
    if (size == expected) return;
    throw Error(Fault::checkpoint, "the checkpoint's " + std::string(what) + " are " +
                                       std::to_string(size) + " numbers and this network needs " +
                                       std::to_string(expected) + ": they are another spec's");
  }
  void check_past(const EngineState& state) const {
    if (state.batch != 1) {
      throw Error(Fault::checkpoint, "the checkpoint is of " + std::to_string(state.batch) +
                                         " sequences and this run has 1");
    }
    if (state.plan.period < 1 || state.plan.terms < state.plan.period ||
        state.plan.terms > 1 << 20) {
      throw Error(Fault::checkpoint, "the checkpoint's plan of deferred updates is impossible");
    }
    const std::size_t terms = count(state.plan.terms);
    check_size("rates", state.rates.size(), layers());
    check_size("coefficients", state.coefficients.size(),
               layers() * terms * (4 + count(state.plan.period)));
    check_size("folded weights", state.folded.size(), net_.weights);
    check_size("hidden values", state.hidden.size(), (terms + 4) * hidden_row());
    check_size("squeezed values", state.squeezed.size(), (terms + 4) * hidden_row());
    check_size("frames", state.frames.size(), (terms + 4) * spec_.frame_size());
    check_size("outputs", state.outputs.size(), 2 * net_.outputs);
    check_size("hidden gradients", state.hidden_gradients.size(), terms * hidden_row());
    check_size("output gradients", state.output_gradients.size(), terms * net_.outputs);
  }
  void restore_rates(const EngineState& state, bool same) {
    const std::size_t each = state.coefficients.size() / layers();
    for (std::size_t l = 0; l < layers(); ++l) {
      const auto from = state.coefficients.begin() + static_cast<std::ptrdiff_t>(l * each);
      const std::vector<double> saved(from, from + static_cast<std::ptrdiff_t>(each));
      DeferredRates& rates = tables_.layers()[l];
      if (!(same ? rates.restore(saved) : rates.rebase(saved, state.plan, state.step))) {
        throw Error(Fault::checkpoint, "the checkpoint's coefficients do not fit its plan");
      }
    }
  }

  /// Everything on the device as of step_: the masters (reference order) and the past, of `state`
  /// or new.
  void start_state(const std::vector<float>& folded, const EngineState* state) {
    using namespace detail::chip;
    std::vector<float> master(master_.size());
    plan_.visit_weights(
        [&](std::size_t at, std::size_t reference) { master[at] = folded[reference]; });
    fill(master_, master);
    std::vector<std::uint32_t> past(past_.size());
    for (std::size_t row = 0; row < count(ring); ++row) {
      std::uint32_t* words = past.data() + row * plan_.row_words;
      // x(0) is made of c(h(-1)), the listed past of ones.
      const float value = row == ring_row(1) ? squeeze(1.0F) : 1.0F;
      visit_records([&](std::size_t at, std::size_t) { words[at] = Words::pack(value); });
      visit_patches([&](std::size_t at, std::size_t) { words[at] = Words::pack(1.0F); });
      words[plan_.zero + 1] = Words::pack(1.0F);
    }
    std::vector<float> hidden(hidden_.size(), 1.0F), d0(d0_.size()), d1(d1_.size()),
        y(y_.size(), 1.0F);
    if (state != nullptr) load_past(*state, past, hidden, d0, d1, y);
    fill(past_, past);
    fill(hidden_, hidden);
    fill(d0_, d0);
    fill(d1_, d1);
    fill(y_, y);
    clear(score_);
    fill(cursor_, std::vector<ChipCursor>{{step_, blocks_, 0, 0}});
    fill(barrier_, std::vector<unsigned int>{0, 0, 0});
    launcher_.restore_products(arguments(0), step_, compute_.get());
    synchronize();
    tables_.restart();
  }

  /// Calls visit(word in a row of the past, index among all hidden values).
  template <class Visit>
  void visit_records(Visit visit) const {
    for (std::size_t u = 0; u < net_.units.size(); ++u) {
      for (std::size_t i = 0; i < count(Hidden); ++i) {
        visit(u * detail::chip::Sizes<Hidden>::record + i, u * count(Hidden) + i);
      }
    }
  }
  /// Calls visit(word in a row of the past, index in a frame).
  template <class Visit>
  void visit_patches(Visit visit) const {
    for (std::size_t u = 0; u < patches(); ++u) {
      for (std::size_t k = 0; k < patch_size(); ++k) {
        visit(plan_.first_patch + u * plan_.patch_record + k, pixel(u, k));
      }
    }
  }
  /// Calls visit(own index, index in reference order) for the outputs of a step.
  template <class Visit>
  void visit_outputs(Visit visit) const {
    std::size_t at = 0;
    for (std::size_t u = 0; u < net_.units.size(); ++u) {
      const auto base = count(net_.units[u].base);
      for (std::size_t o = 0; o < 2 * base; ++o) {
        visit(plan_.output_start[u] + (o < base ? o : plan_.padded(u) + o - base), at++);
      }
    }
  }

  void save_past(EngineState& state) {
    const auto terms = count(deferral_.terms);
    const std::vector<std::uint32_t> past = download(past_);
    const std::vector<float> hidden = download(hidden_), d0 = download(d0_), d1 = download(d1_),
                             y = download(y_);
    const std::size_t values = hidden_row(), frame = spec_.frame_size();
    state.hidden.resize((terms + 4) * values);
    state.squeezed.resize((terms + 4) * values);
    state.frames.resize((terms + 4) * frame);
    for (std::size_t k = 0; k < terms + 4; ++k) {
      const std::size_t row = ring_row(k + 1);
      const std::uint32_t* words = past.data() + row * plan_.row_words;
      std::copy_n(hidden.data() + row * values, values, state.hidden.data() + k * values);
      visit_records([&](std::size_t at, std::size_t i) {
        state.squeezed[k * values + i] = Words::unpack(words[at]);
      });
      visit_patches([&](std::size_t at, std::size_t i) {
        state.frames[k * frame + i] = Words::unpack(words[at]);
      });
    }
    state.hidden_gradients.resize(terms * values);
    state.output_gradients.resize(terms * net_.outputs);
    for (std::size_t k = 0; k < terms; ++k) {
      const std::size_t row = history_row(k + 1);
      std::copy_n(d0.data() + row * values, values, state.hidden_gradients.data() + k * values);
      visit_outputs([&](std::size_t own, std::size_t i) {
        state.output_gradients[k * net_.outputs + i] = d1[row * plan_.outputs + own];
      });
    }
    state.outputs.resize(2 * net_.outputs);
    for (std::uint64_t back = 1; back <= 2; ++back) {
      visit_outputs([&](std::size_t own, std::size_t i) {
        state.outputs[(back - 1) * net_.outputs + i] = y[(step_ + back) % 2 * plan_.outputs + own];
      });
    }
  }
  void load_past(const EngineState& state, std::vector<std::uint32_t>& past,
                 std::vector<float>& hidden, std::vector<float>& d0, std::vector<float>& d1,
                 std::vector<float>& y) const {
    const auto terms = std::min(count(deferral_.terms), count(state.plan.terms));
    const std::size_t values = hidden_row(), frame = spec_.frame_size();
    for (std::size_t k = 0; k < terms + 4; ++k) {
      const std::size_t row = ring_row(k + 1);
      std::uint32_t* words = past.data() + row * plan_.row_words;
      std::copy_n(state.hidden.data() + k * values, values, hidden.data() + row * values);
      visit_records([&](std::size_t at, std::size_t i) {
        words[at] = Words::pack(state.squeezed[k * values + i]);
      });
      visit_patches([&](std::size_t at, std::size_t i) {
        words[at] = Words::pack(state.frames[k * frame + i]);
      });
    }
    for (std::size_t k = 0; k < terms; ++k) {
      const std::size_t row = history_row(k + 1);
      std::copy_n(state.hidden_gradients.data() + k * values, values, d0.data() + row * values);
      visit_outputs([&](std::size_t own, std::size_t i) {
        d1[row * plan_.outputs + own] = state.output_gradients[k * net_.outputs + i];
      });
    }
    for (std::uint64_t back = 1; back <= 2; ++back) {
      visit_outputs([&](std::size_t own, std::size_t i) {
        y[(step_ + back) % 2 * plan_.outputs + own] = state.outputs[(back - 1) * net_.outputs + i];
      });
    }
  }

  Spec spec_;
  EngineOptions options_;
  detail::DeviceFacts device_;
  Connectome net_;
  DeferralPlan deferral_;
  Plan plan_;
  RateSchedule schedule_;
  detail::CoefficientTables tables_;
  detail::chip::ChipLauncher<Precision, Hidden> launcher_;
  detail::Stream compute_, upload_;
  detail::ComputeTime compute_time_;

  Array<std::uint32_t> programs_, program_start_, column_list_;
  Array<float> master_, weights_now_;  // fp32 weights without the listed gradients; W when read
  Array<std::uint32_t> copy_, past_;
  Array<float> hidden_, d0_, d1_, y_;
  Array<double> score_;
  Array<detail::chip::ChipCursor> cursor_;
  Array<unsigned int> barrier_;
  Array<std::uint8_t> pixels_, scored_;
  Array<const std::uint8_t*> places_;  // where each frame of a block lies
  Array<float> squeezed_;
  Array<std::uint32_t> index_, now_index_;
  Array<float> coefficients_, now_tables_;
  std::vector<Staging> staging_;
  cudaGraphExec_t graph_ = nullptr;

  detail::DeviceFrameStore store_{spec_.frame_size(), upload_.get()};
  std::vector<std::uint32_t> stored_;
  Score counted_;
  std::uint64_t step_ = 0;
  std::uint64_t blocks_ = 0;
  bool learned_ = false;  // whether there may be gradients that are not in the masters
};

}  // namespace pvm::inline v0
