// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The common base of the engines that run a whole block of steps in one kernel launch: upload of
/// frames and rates, the captured launch, the score, and checkpoints.

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
#include <pvm/engine/cuda/device/time.hpp>
#include <pvm/engine/cuda/numbers/network_constants.hpp>
#include <pvm/engine/cuda/run/coefficients.hpp>
#include <pvm/engine/cuda/run/cursor.hpp>
#include <pvm/engine/cuda/run/frame_store.hpp>
#include <pvm/engine/cuda/run/score_sums.hpp>
#include <pvm/engine/cuda/run/state_sizes.hpp>
#include <pvm/engine/engine.hpp>
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
///     void start_state(const std::vector<float>& folded, const EngineState* past)
///                                                 initialises device memory with Z in reference
///                                                 order and this past; null: that of a new run
/// The spec must be valid. Throws Error (device, memory).
template <class Self>
class LaunchedEngine {
 public:
  LaunchedEngine(const LaunchedEngine&) = delete;
  LaunchedEngine& operator=(const LaunchedEngine&) = delete;

  [[nodiscard]] int batch() const noexcept { return batch_; }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] const Connectome& connectome() const noexcept { return net_; }
  [[nodiscard]] int block_steps() const noexcept { return device_.tuning.block_steps; }

  /// Room for `steps` (1 to block_steps()) frames of every sequence, in pinned memory. Waits until
  /// the block that used this memory before has been uploaded.
  [[nodiscard]] FrameBlock stage(int steps) {
    if (steps < 1 || steps > block_steps()) {
      throw Error(Fault::usage, "a block of " + std::to_string(steps) +
                                    " steps is impossible; allowed: 1 to " +
                                    std::to_string(block_steps()));
    }
    Staging& slot = staging_[blocks_ % staging_.size()];
    cuda_check(cudaEventSynchronize(slot.uploaded.get()), "waiting for an upload");
    const std::size_t rows = count(steps) * count(batch_);
    stored_.assign(store_.capacity() > 0 ? rows : 0, not_stored);
    return {steps,
            {slot.pixels.get(), rows * spec_.frame_size()},
            {slot.scored.get(), rows},
            {},
            stored_};
  }

  /// The store of frames in device memory, see Engine and engine/cuda/run/frame_store.hpp.
  std::size_t reserve_frames(std::size_t budget, std::size_t frames) {
    if (budget == 0 || frames == 0) synchronize();  // steps may be reading frames that are freed
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
    index[0] =
        static_cast<std::uint32_t>(steps) | (block.squeezed.empty() ? 0U : frames_are_floats);
    const std::size_t tables =
        tables_.write(step_, steps, mode == Mode::learn, schedule_, index + 1,
                      reinterpret_cast<float*>(slot.tables.get()));
    upload(at, block, tables);
    launch(at, block.steps);
    add_counts(counted_, block, spec_.frame_size(), count(batch_) * net_.outputs);
    step_ += steps;
    ++blocks_;
  }

  void synchronize() { cuda_check(cudaStreamSynchronize(compute_.get()), "running steps"); }

  [[nodiscard]] Score take_score() {
    const std::vector<double> sums = download(score_);
    Score score = std::exchange(counted_, {});
    add_sums(score, sums);
    clear(score_);
    return score;
  }

  /// Continues from `state`: bit by bit if an engine with the same layout saved it (this engine, on
  /// a GPU like this one), else from its weights, its past and, where possible, its momentum. A
  /// state with weights only starts at its step with the past of a new run. Throws Error
  /// (Fault::checkpoint) if the state does not fit.
  void restore(const EngineState& state) {
    synchronize();
    check_state(state, state_sizes());
    self().check_weights(state.resumable() ? state.folded : state.weights);
    tables_.clear();
    schedule_ = RateSchedule(spec_);
    if (!state.rates.empty()) schedule_.restore(state.rates, state.step);
    step_ = state.step;
    learned_ = false;
    if (state.resumable()) {
      resume(state);
    } else {
      self().start_state(state.weights, nullptr);
    }
    tables_.restart();
    counted_ = {};
  }

  /// Seconds that the GPU has spent on steps, as far as these have finished.
  [[nodiscard]] double device_seconds() { return compute_time_.seconds(); }

 protected:
  template <class T>
  using Array = DeviceArray<T>;

  /// Throws Error (usage) if the engine cannot hold these weights. Engines with a limit hide it.
  static void check_weights(const std::vector<float>& /*weights*/) {}

  LaunchedEngine(const Spec& spec, int batch, const EngineOptions& options,
                 const DeviceFacts& device, const DeferralPlans& plans)
      : spec_(spec),
        options_(options),
        batch_(batch),
        device_(device),
        net_(make_connectome(spec)),
        plans_(plans),
        share_(options.reduce == Reduce::mean ? 1.0F / static_cast<float>(batch) : 1.0F),
        schedule_(spec),
        tables_(spec.layer_shapes.size(), plans, share_) {}
  ~LaunchedEngine() = default;

  /// Waits for all work. A destructor of `Self` must call this first: steps may still be using its
  /// memory.
  void stop() noexcept {
    (void)cudaStreamSynchronize(upload_.get());
    (void)cudaStreamSynchronize(compute_.get());
  }

  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  [[nodiscard]] std::size_t layers() const { return net_.layer_start.size() - 1; }
  [[nodiscard]] std::size_t patches() const { return net_.layer_start[1]; }
  [[nodiscard]] std::size_t patch_size() const { return count(net_.units[0].base); }
  /// Number of hidden values of a step, all sequences.
  [[nodiscard]] std::size_t hidden_row() const {
    return count(batch_) * net_.units.size() * count(net_.hidden);
  }
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
    const std::size_t b = count(batch_);
    const std::size_t staged = count(block_steps()) * b * (spec_.frame_size() + 1 + sizeof(void*)) +
                               4 * (index_words() + tables_room());
    return staged * count(device_.tuning.staging_slots) + 4 * layers() * (tables_.stride() + 1) +
           sizeof(Cursor) + barriers * sizeof(unsigned int);
  }
  void require_memory(std::size_t need, const std::string& with) const {
    detail::require_memory(need, with, batch_ > 1 ? "batch or spec" : "spec");
  }
  /// Allocates the memory of this base. `scores`: number of score sums, in groups of prediction,
  /// persistence and loss.
  void allocate_staging(std::size_t scores) {
    const std::size_t b = count(batch_);
    const std::size_t slots = count(device_.tuning.staging_slots);
    const std::size_t rows = count(block_steps()) * b;
    score_ = Array<double>(scores);
    cursor_ = Array<Cursor>(1);
    barrier_ = Array<unsigned int>(barriers);
    pixels_ = Array<std::uint8_t>(slots * rows * spec_.frame_size());
    frame_addresses_ = Array<const std::uint8_t*>(slots * rows);
    scored_ = Array<std::uint8_t>(slots * rows);
    index_ = Array<std::uint32_t>(slots * index_words());
    coefficients_ = Array<float>(slots * tables_room());
    now_index_ = Array<std::uint32_t>(layers());
    now_tables_ = Array<float>(layers() * tables_.stride());
    for (std::size_t i = 0; i < slots; ++i) {
      staging_.push_back({PinnedBytes(rows * spec_.frame_size()),
                          PinnedBytes(rows * sizeof(const std::uint8_t*)), PinnedBytes(rows),
                          PinnedBytes(index_words() * 4), PinnedBytes(tables_room() * 4), Event(),
                          Event()});
    }
  }
  template <class T>
  void allocate_and_fill(Array<T>& to, const std::vector<T>& from) {
    to = Array<T>(std::max<std::size_t>(1, from.size()));
    if (!from.empty()) fill(to, from);
  }
  template <class T>
  void fill(Array<T>& to, const std::vector<T>& from) {
    cuda_check(cudaMemcpyAsync(to.get(), from.data(), from.size() * sizeof(T),
                               cudaMemcpyHostToDevice, compute_.get()),
               "writing a state");
    synchronize();
  }
  template <class T>
  [[nodiscard]] std::vector<T> download(const Array<T>& from) {
    std::vector<T> out(from.size());
    cuda_check(cudaMemcpyAsync(out.data(), from.get(), out.size() * sizeof(T),
                               cudaMemcpyDeviceToHost, compute_.get()),
               "reading results");
    synchronize();
    return out;
  }
  template <class T>
  void copy(Array<T>& to, const Array<T>& from) {
    cuda_check(cudaMemcpyAsync(to.get(), from.get(), from.size() * sizeof(T),
                               cudaMemcpyDeviceToDevice, compute_.get()),
               "copying a state");
  }
  template <class T>
  void clear(const Array<T>& values) {
    cuda_check(cudaMemsetAsync(values.get(), 0, values.size() * sizeof(T), compute_.get()),
               "clearing device memory");
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
    a.staging = device_.tuning.staging_slots;
    a.block_steps = block_steps();
    a.table_stride = static_cast<int>(tables_.stride());
    a.most_steps = most_steps;
    a.score = score_.get();
    a.cursor = cursor_.get();
    a.barrier = barrier_.get();
    a.frames = frame_addresses_.get();
    a.squeezed = squeezed_.get();
    a.scored = scored_.get();
    a.index = index_.get();
    a.coefficients = coefficients_.get();
  }

  /// Captures the launch of a block in a graph. It can be replayed because everything that changes
  /// from block to block is in device memory.
  void capture() {
    if (!options_.graph) return;
    graph_.capture(compute_.get(), [&] { self().launch_steps(INT_MAX, compute_.get()); });
  }

  /// Writes the position of the run to device memory, and clears the barriers and the score.
  void set_cursor() {
    fill(cursor_, std::vector<Cursor>{{step_, blocks_, 0, 0}});
    fill(barrier_, std::vector<unsigned int>(barriers));
    clear(score_);
  }
  /// Writes the coefficient tables of W(step) to `now_index_` and `now_tables_`.
  void write_tables_now() {
    std::vector<std::uint32_t> index(layers());
    std::vector<float> tables(layers() * tables_.stride());
    tables_.write_now(step_, index.data(), tables.data());
    fill(now_index_, index);
    fill(now_tables_, tables);
  }

  // -------------------------------------------------------------- checkpoints

  /// A state without the folded weights and the past.
  [[nodiscard]] EngineState save_run() {
    EngineState state;
    state.step = step_;
    state.batch = batch_;
    state.weights.resize(net_.weights);
    self().read_weights(state.weights);
    state.rates = schedule_.layers();
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

  /// Length of `barrier_`: counters in device memory, see the kernels' arguments.
  static constexpr std::size_t barriers = 3;

  Spec spec_;
  EngineOptions options_;
  int batch_;
  DeviceFacts device_;
  Connectome net_;
  DeferralPlans plans_;
  float share_;  // factor of one sequence's gradient in the update
  RateSchedule schedule_;
  CoefficientTables tables_;
  Stream compute_, upload_;
  Array<double> score_;
  Array<std::uint32_t> now_index_;
  Array<float> now_tables_;
  std::uint64_t step_ = 0;

 private:
  /// The host side of a staging slot. Events: the upload of its block has ended; the steps of its
  /// block have ended.
  struct Staging {
    PinnedBytes pixels, frame_addresses, scored, index, tables;
    Event uploaded, used;
  };

  [[nodiscard]] Self& self() noexcept { return static_cast<Self&>(*this); }
  /// Most coefficient tables of a block, words of its table index, floats of its tables.
  [[nodiscard]] std::size_t tables_count() const { return (count(block_steps()) + 1) * layers(); }
  [[nodiscard]] std::size_t index_words() const { return 1 + tables_count(); }
  [[nodiscard]] std::size_t tables_room() const { return tables_count() * tables_.stride(); }

  /// Uploads the block to staging slot `at`. `tables`: number of its coefficient tables.
  void upload(std::size_t at, const FrameBlock& block, std::size_t tables) {
    Staging& slot = staging_[at];
    const auto steps = count(block.steps);
    if (!block.squeezed.empty()) allocate_squeezed();
    const std::size_t rows = steps * count(batch_);
    const std::size_t room = count(block_steps()) * count(batch_);
    const cudaStream_t stream = upload_.get();
    cuda_check(cudaStreamWaitEvent(stream, slot.used.get(), 0), "ordering an upload");
    const auto send = [&](void* to, const void* from, std::size_t bytes) {
      cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream),
                 "uploading frames");
    };
    if (block.squeezed.empty()) {
      auto** addresses = reinterpret_cast<const std::uint8_t**>(slot.frame_addresses.get());
      store_.locate_or_upload(block, rows, pixels_.get() + at * room * spec_.frame_size(),
                              addresses);
      send(frame_addresses_.get() + at * room, addresses, rows * sizeof(*addresses));
    } else {
      send(squeezed_.get() + at * room * spec_.frame_size(), block.squeezed.data(),
           rows * spec_.frame_size() * sizeof(float));
    }
    send(scored_.get() + at * room, slot.scored.get(), rows);
    send(index_.get() + at * index_words(), slot.index.get(), 4 * (1 + (steps + 1) * layers()));
    send(coefficients_.get() + at * tables_room(), slot.tables.get(),
         4 * tables * tables_.stride());
    cuda_check(cudaEventRecord(slot.uploaded.get(), stream), "ordering an upload");
    // The caller may free the memory of floats as soon as `run` returns.
    if (!block.squeezed.empty()) cuda_check(cudaStreamSynchronize(stream), "uploading frames");
  }
  /// Allocates memory for frames as floats, when the first such block is uploaded. Captures the
  /// launch again, because its arguments have changed.
  void allocate_squeezed() {
    if (squeezed_.size() != 0) return;
    synchronize();
    squeezed_ = Array<float>(count(device_.tuning.staging_slots) * count(block_steps()) *
                             count(batch_) * spec_.frame_size());
    capture();
  }
  /// Launches the `steps` steps of the block in staging slot `at`, after its upload.
  void launch(std::size_t at, int steps) {
    Staging& slot = staging_[at];
    const cudaStream_t stream = compute_.get();
    cuda_check(cudaStreamWaitEvent(stream, slot.uploaded.get(), 0), "ordering a step");
    compute_time_.begin(stream);
    if (options_.graph) {
      graph_.launch(stream);
    } else {
      for (int i = 0; i < steps; ++i) self().launch_steps(1, stream);
    }
    compute_time_.end(stream);
    cuda_check(cudaEventRecord(slot.used.get(), stream), "ordering a step");
  }
  /// Folds everything and drops the momentum: no gradient is listed any more.
  void settle() {
    if (!std::exchange(learned_, false)) return;
    self().fold_everything();
    tables_.clear();
  }

  [[nodiscard]] StateSizes state_sizes() const {
    const std::size_t b = count(batch_);
    return {batch_, layers(), net_.weights, hidden_row(), b * spec_.frame_size(), b * net_.outputs};
  }
  void resume(const EngineState& state) {
    learned_ = true;
    if (state.layout == self().layout_name() && state.plans() == plans_ &&
        same_momenta(state, spec_)) {
      restore_rates(state);
      self().start_state(state.folded, &state);
    } else if (state.dweights.empty()) {
      rebase_rates(state);
      self().start_state(settled_weights(state, spec_, net_, share_, plans_), &state);
    } else {  // saved with a momentum array: W holds all gradients, the momentum starts from zero
      self().start_state(state.weights, &state);
    }
  }
  /// Calls take(layer, its share of `saved`) for every layer; throws Error (checkpoint) if one call
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

  ComputeTime compute_time_;
  Array<Cursor> cursor_;
  Array<unsigned int> barrier_;
  Array<std::uint8_t> pixels_, scored_;
  Array<const std::uint8_t*> frame_addresses_;  // device address of each frame of the blocks
  Array<float> squeezed_, coefficients_;
  Array<std::uint32_t> index_;
  std::vector<Staging> staging_;
  Graph graph_;

  DeviceFrameStore store_{spec_.frame_size(), upload_.get()};
  std::vector<std::uint32_t> stored_;
  Score counted_;
  std::uint64_t blocks_ = 0;
  bool learned_ = false;  // whether there may be gradients that are not folded completely
};

}  // namespace pvm::inline v0::detail
