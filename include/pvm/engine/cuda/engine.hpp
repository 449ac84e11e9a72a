// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The engine that runs on an NVIDIA GPU. Include it from files that nvcc compiles.

#ifndef __CUDACC__
#error "pvm/engine/cuda is compiled by nvcc: name the file .cu, or use the host engine"
#endif

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/check.hpp>
#include <pvm/engine/cuda/coefficients.hpp>
#include <pvm/engine/cuda/compute_time.hpp>
#include <pvm/engine/cuda/device_facts.hpp>
#include <pvm/engine/cuda/frame_store.hpp>
#include <pvm/engine/cuda/network_constants.hpp>
#include <pvm/engine/cuda/planner.hpp>
#include <pvm/engine/cuda/step_launch.hpp>
#include <pvm/engine/cuda/weight_map.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// An Engine on the current CUDA device, fp32. `run` returns at once; frames go up on their own
/// stream while earlier ones are used. `Net`: a Network, whose hidden size is a constant in the
/// kernels and whose activation may be a type of the program (RunsOnGpu), or RuntimeNetwork.
template <int Batch = dynamic, class Net = RuntimeNetwork>
class CudaEngine {
  using Known = detail::ConstantsOf<Net>;
  using Launcher = detail::StepLauncher<Batch, Known>;

 public:
  /// `spec` must be valid; throws Error (usage, device, memory).
  explicit CudaEngine(const Spec& spec, int batch = Batch, const EngineOptions& options = {})
      : spec_(check_spec(spec)),
        options_(options),
        batch_(check_batch(batch)),
        device_(detail::describe_device()),
        net_(make_connectome(spec)),
        plan_(DeferralPlan::for_momentum(spec.momentum,
                                         std::max(1, device_.tuning.fold_period / batch_))),
        shape_(spec_, net_, plan_, batch_),
        planner_(spec_, net_, shape_, device_.multiprocessors, device_.shared_bytes, cache_bytes()),
        schedule_(spec),
        tables_(spec.layer_shapes.size(), plan_, share()),
        launcher_(net_.hidden, shape_.rows_per_tile, batch_ == 1, device_.multiprocessors,
                  planner_.shared_bytes) {
    check_sizes();
    require_memory();
    allocate();
    start_state();
    capture();
  }
  CudaEngine(const CudaEngine&) = delete;
  CudaEngine& operator=(const CudaEngine&) = delete;
  ~CudaEngine() {
    (void)cudaStreamSynchronize(upload_.get());
    (void)cudaStreamSynchronize(compute_.get());
    if (graph_ != nullptr) (void)cudaGraphExecDestroy(graph_);
  }

  [[nodiscard]] int batch() const noexcept { return batch_; }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] const Connectome& connectome() const noexcept { return net_; }
  [[nodiscard]] int block_steps() const noexcept { return device_.tuning.block_steps; }

  /// Room for `steps` (1 to block_steps()) frames of every sequence, in pinned memory. Waits until
  /// the block that was there has gone up.
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
    const std::size_t at = blocks_ % staging_.size();
    Staging& slot = staging_[at];
    const auto steps = count(block.steps);
    auto* index = reinterpret_cast<std::uint32_t*>(slot.index.get());
    index[0] = static_cast<std::uint32_t>(steps) |
               (block.squeezed.empty() ? 0U : detail::frames_are_floats);
    const std::size_t tables =
        tables_.write(step_, steps, mode == Mode::learn, schedule_, index + 1,
                      reinterpret_cast<float*>(slot.tables.get()));
    upload(at, block, tables);
    launch(at, block.steps);
    tally(block);
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
    detail::cuda_check(
        cudaMemsetAsync(score_.get(), 0, score_.size() * sizeof(double), compute_.get()),
        "clearing the score");
    return score;
  }

  /// W(step), reference order, `connectome().weights` floats.
  void read_weights(std::span<float> out) {
    materialise();
    map().export_weights(download(copy_), download(bias_copy_), out);
  }

  /// The prediction for two steps ahead, [batch][side][side][channels] in [0, 1].
  void read_prediction(std::span<float> out) {
    const std::vector<float> y = last_outputs();
    for (std::size_t b = 0; b < count(batch_); ++b) {
      for (std::size_t u = 0; u < patches(); ++u) {
        const float* from = y.data() + b * planner_.y_columns + planner_.output_start[u];
        for (std::size_t k = 0; k < patch_size(); ++k) {
          out[b * spec_.frame_size() + pixel(u, k)] = unsqueeze(from[k]);
        }
      }
    }
  }

  /// h of the last step, [batch][units][hidden].
  void read_hidden(std::span<float> out) {
    for (std::size_t b = 0; b < count(batch_); ++b) {
      download_part(past_, past_row(1, b) + shape_.raw(0),
                    out.subspan(b * shape_.values, shape_.values));
    }
  }

  /// y of the last step, [batch][outputs], unit by unit.
  void read_outputs(std::span<float> out) {
    const std::vector<float> y = last_outputs();
    visit_outputs([&](std::size_t tensor, std::size_t own, std::size_t n) {
      std::copy_n(y.data() + own, n, out.data() + tensor);
    });
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
    for (const DeferredRates& layer : tables_.layers()) {
      const auto saved = layer.save();
      state.coefficients.insert(state.coefficients.end(), saved.begin(), saved.end());
    }
    state.folded.resize(net_.weights);
    const std::vector<float> d1 = download(past_d1_);
    map().export_weights(download(arena_), d1, state.folded);
    save_past(state, d1);
    return state;
  }

  /// Continues from `state`: bit by bit if it is of this engine on a GPU like this one, else from
  /// its weights, its past and, where possible, its momentum. A state with weights only starts at
  /// its step with the past of a new run. Throws Error (Fault::checkpoint) if it does not fit.
  void restore(const EngineState& state) {
    synchronize();
    check_size("weights", state.weights.size(), net_.weights);
    if (!state.rates.empty()) check_size("rates", state.rates.size(), net_.layer_start.size() - 1);
    if (state.resumable()) check_past(state);
    tables_.clear();
    schedule_ = RateSchedule(spec_);
    if (!state.rates.empty()) schedule_.restore(state.rates);
    step_ = state.step;
    learned_ = false;
    bool same = false;
    if (state.resumable()) {
      same = state.layout == layout_name() && state.plan == plan_;
      if (same || state.dweights.empty()) restore_rates(state, same);
      learned_ = true;
    }
    start_state(same ? state.folded : state.weights, state.resumable() ? &state : nullptr);
    counted_ = {};
  }

  /// For how long the GPU has run steps, of those that have ended.
  [[nodiscard]] double device_seconds() { return compute_time_.seconds(); }

  [[nodiscard]] std::string description() const {
    return "CUDA engine: " + device_.name + ", " + std::to_string(device_.multiprocessors) +
           " multiprocessors, " + std::to_string(memory_needed() >> 20) + " MiB, " +
           std::to_string(planner_.resident_f4 >> 16) + " MiB of weights on the chip, " +
           (Launcher::constant_hidden != 0
                ? "kernels for " + std::to_string(Launcher::constant_hidden) + " hidden values, "
                : "") +
           "updates folded every " + std::to_string(plan_.period) + " steps, " +
           (options_.graph ? "captured" : "one launch a step");
  }
  /// Bytes of device memory the engine takes.
  [[nodiscard]] std::size_t memory_needed() const {
    const std::size_t b = count(batch_);
    const std::size_t floats = 2 * (planner_.arena_f4 * 4 + planner_.history_floats) +
                               ring() * b * shape_.row() + 2 * b * planner_.y_columns +
                               inner_size() + y_scratch_floats() * count(device_.multiprocessors) +
                               planner_.blobs.size() + planner_.blob_start.size() +
                               planner_.x_words.size() + score_size() * 2 +
                               layers() * (tables_.stride() + 1);
    const std::size_t staged = count(block_steps()) * b * (spec_.frame_size() + 1 + sizeof(void*)) +
                               4 * (index_words() + tables_room());
    return floats * sizeof(float) + staged * count(device_.tuning.blocks_ahead) +
           sizeof(detail::Cursor) + sizeof(unsigned int);
  }

 private:
  struct Staging {
    detail::PinnedBytes pixels, places, scored, index, tables;
    detail::Event uploaded, used;
  };

  [[nodiscard]] std::size_t cache_bytes() const { return device_.cache_bytes; }
  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  static const Spec& check_spec(const Spec& spec) {
    detail::check_own_activation<typename Known::Own>(spec);
    if (Known::hidden != 0 && spec.hidden() != Known::hidden) {
      throw Error(Fault::usage, "spec " + quote(spec.name) + " has " +
                                    std::to_string(spec.hidden()) +
                                    " hidden values and this engine was compiled for " +
                                    std::to_string(Known::hidden));
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
  [[nodiscard]] float share() const {  // of one sequence in the update
    return options_.reduce == Reduce::mean ? 1.0F / static_cast<float>(batch_) : 1.0F;
  }
  [[nodiscard]] std::size_t layers() const { return net_.layer_start.size() - 1; }
  /// Rows of the rings: the list, its lags, the frames converted ahead.
  [[nodiscard]] std::size_t ring() const { return count(plan_.terms) + 10; }
  /// Where the rows of step `step_ - back` start.
  [[nodiscard]] std::size_t ring_row(std::uint64_t back) const {
    return static_cast<std::size_t>((step_ + 2 * ring() - back) % ring());
  }
  [[nodiscard]] std::size_t past_row(std::uint64_t back, std::size_t b) const {
    return (ring_row(back) * count(batch_) + b) * shape_.row();
  }
  [[nodiscard]] std::size_t hidden_row() const { return count(batch_) * shape_.values; }
  [[nodiscard]] std::size_t patches() const { return net_.layer_start[1]; }
  [[nodiscard]] std::size_t patch_size() const { return count(net_.units[0].base); }
  [[nodiscard]] std::size_t inner_size() const {
    return 3 * count(batch_) * (net_.units.size() + patches() + 1) * count(shape_.list);
  }
  [[nodiscard]] std::size_t score_size() const {
    return count(device_.multiprocessors) * detail::step_threads * 3;
  }
  [[nodiscard]] std::size_t y_scratch_floats() const {  // of a multiprocessor
    return std::max<std::size_t>(4, planner_.y_floats);
  }
  [[nodiscard]] std::size_t tables_count() const { return (count(block_steps()) + 1) * layers(); }
  [[nodiscard]] std::size_t index_words() const { return 1 + tables_count(); }
  [[nodiscard]] std::size_t tables_room() const { return tables_count() * tables_.stride(); }
  [[nodiscard]] detail::WeightMap map() const { return {net_, shape_, planner_}; }
  /// Index in a frame of pixel k of patch u.
  [[nodiscard]] std::size_t pixel(std::size_t u, std::size_t k) const {
    const auto block = count(spec_.input_block_size);
    const auto channels = count(spec_.input_channels);
    const auto across = count(spec_.layer_shapes[0]);
    const std::size_t line = block * channels;
    const std::size_t row = u / across * block + k / line;
    return (row * across + u % across) * line + k % line;
  }
  [[nodiscard]] std::string layout_name() const {
    return "folds by panel on " + std::to_string(device_.multiprocessors) + " multiprocessors";
  }

  /// The kernel's offsets are 32 bits wide.
  void check_sizes() const {
    const std::size_t most =
        std::max({ring() * count(batch_) * shape_.row(), inner_size(), planner_.history_floats});
    if (most >> 31 != 0) {
      throw Error(Fault::usage,
                  "this batch and momentum are too large for the GPU engine; use a"
                  " smaller batch or the host backend");
    }
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

  template <class T>
  void put(detail::DeviceArray<T>& to, const std::vector<T>& from) {
    to = detail::DeviceArray<T>(std::max<std::size_t>(1, from.size()));
    if (from.empty()) return;
    detail::cuda_check(cudaMemcpyAsync(to.get(), from.data(), from.size() * sizeof(T),
                                       cudaMemcpyHostToDevice, compute_.get()),
                       "copying tables");
    synchronize();
  }
  template <class T>
  void fill(detail::DeviceArray<T>& to, const std::vector<T>& from) {
    detail::cuda_check(cudaMemcpyAsync(to.get(), from.data(), from.size() * sizeof(T),
                                       cudaMemcpyHostToDevice, compute_.get()),
                       "writing a state");
    synchronize();
  }
  template <class T>
  [[nodiscard]] std::vector<T> download(const detail::DeviceArray<T>& from) {
    std::vector<T> out(from.size());
    detail::cuda_check(cudaMemcpyAsync(out.data(), from.get(), out.size() * sizeof(T),
                                       cudaMemcpyDeviceToHost, compute_.get()),
                       "reading results");
    synchronize();
    return out;
  }
  void download_part(const detail::DeviceArray<float>& from, std::size_t at, std::span<float> out) {
    detail::cuda_check(cudaMemcpyAsync(out.data(), from.get() + at, out.size() * sizeof(float),
                                       cudaMemcpyDeviceToHost, compute_.get()),
                       "reading results");
    synchronize();
  }
  [[nodiscard]] std::vector<float> last_outputs() {
    const std::size_t row = count(batch_) * planner_.y_columns;
    std::vector<float> y(row);
    download_part(y_, static_cast<std::size_t>((step_ + 1) % 2) * row, y);
    return y;
  }

  void clear(const detail::DeviceArray<float>& floats) {
    detail::cuda_check(
        cudaMemsetAsync(floats.get(), 0, floats.size() * sizeof(float), compute_.get()),
        "clearing device memory");
  }
  void allocate() {
    const std::size_t b = count(batch_);
    put(blobs_, planner_.blobs);
    put(blob_start_, planner_.blob_start);
    put(words_, planner_.x_words);
    using Floats = detail::DeviceArray<float>;
    arena_ = Floats(planner_.arena_f4 * 4);
    copy_ = Floats(planner_.arena_f4 * 4);
    past_d1_ = Floats(planner_.history_floats);
    bias_copy_ = Floats(planner_.history_floats);
    clear(copy_);  // they are downloaded whole, with the padding that no kernel writes
    clear(bias_copy_);
    past_ = Floats(ring() * b * shape_.row());
    y_ = Floats(2 * b * planner_.y_columns);
    inner_ = Floats(inner_size());
    score_ = detail::DeviceArray<double>(score_size());
    y_scratch_ = Floats(y_scratch_floats() * count(device_.multiprocessors));
    cursor_ = detail::DeviceArray<detail::Cursor>(1);
    barrier_ = detail::DeviceArray<unsigned int>(1);
    const std::size_t slots = count(device_.tuning.blocks_ahead);
    pixels_ =
        detail::DeviceArray<std::uint8_t>(slots * count(block_steps()) * b * spec_.frame_size());
    places_ = detail::DeviceArray<const std::uint8_t*>(slots * count(block_steps()) * b);
    scored_ = detail::DeviceArray<std::uint8_t>(slots * count(block_steps()) * b);
    index_ = detail::DeviceArray<std::uint32_t>(slots * index_words());
    coefficients_ = Floats(slots * tables_room());
    now_index_ = detail::DeviceArray<std::uint32_t>(layers());
    now_tables_ = Floats(layers() * tables_.stride());
    for (std::size_t i = 0; i < slots; ++i) {
      staging_.push_back(
          {detail::PinnedBytes(count(block_steps()) * b * spec_.frame_size()),
           detail::PinnedBytes(count(block_steps()) * b * sizeof(const std::uint8_t*)),
           detail::PinnedBytes(count(block_steps()) * b), detail::PinnedBytes(index_words() * 4),
           detail::PinnedBytes(tables_room() * 4), detail::Event(), detail::Event()});
    }
  }

  [[nodiscard]] detail::StepArguments arguments(int most_steps) const {
    detail::StepArguments a{};
    a.hidden = net_.hidden;
    a.padded = shape_.padded;
    a.groups = shape_.groups;
    a.parts = shape_.parts;
    a.passes = shape_.passes;
    a.terms = plan_.terms;
    a.period = plan_.period;
    a.batch = batch_;
    a.list = shape_.list;
    a.history = shape_.history;
    a.history_rows = shape_.history_rows();
    a.chunks = shape_.chunks;
    a.ring = static_cast<int>(ring());
    a.units = static_cast<int>(net_.units.size());
    a.layers = static_cast<int>(layers());
    a.patches = static_cast<int>(patches());
    a.patch = static_cast<int>(patch_size());
    a.block_size = spec_.input_block_size;
    a.channels = spec_.input_channels;
    a.side = spec_.frame_side();
    a.past_row = static_cast<unsigned>(shape_.row());
    a.first_raw = static_cast<unsigned>(shape_.raw(0));
    a.first_d0 = static_cast<unsigned>(shape_.d0(0));
    a.first_pixel = static_cast<unsigned>(shape_.pixel(0));
    a.y_columns = static_cast<int>(planner_.y_columns);
    a.activation =
        spec_.activation == ActivationKind::logistic ? 2 : (spec_.true_derivative ? 1 : 0);
    a.sign_error = spec_.opt_abs_diff ? 1 : 0;
    a.staging = device_.tuning.blocks_ahead;
    a.block_steps = block_steps();
    a.table_stride = static_cast<int>(tables_.stride());
    a.most_steps = most_steps;
    a.by_list = detail::Divider(shape_.list);
    a.by_hidden = detail::Divider(net_.hidden);
    a.by_history_rows = detail::Divider(shape_.history_rows());
    a.by_chunks = detail::Divider(shape_.chunks);
    a.by_padded = detail::Divider(shape_.padded);
    a.by_batch = detail::Divider(batch_);
    a.by_parts = detail::Divider(shape_.parts);
    a.by_stage_row = detail::Divider(shape_.groups * 8);
    a.blobs = blobs_.get();
    a.blob_start = blob_start_.get();
    a.words = words_.get();
    a.arena = reinterpret_cast<float4*>(arena_.get());
    a.past_d1 = past_d1_.get();
    a.past = past_.get();
    a.y = y_.get();
    a.inner = inner_.get();
    a.score = score_.get();
    a.y_scratch = y_scratch_.get();
    a.y_scratch_floats = y_scratch_floats();
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
    const std::size_t rows = steps * count(batch_);
    const std::size_t room = count(block_steps()) * count(batch_);
    const cudaStream_t stream = upload_.get();
    detail::cuda_check(cudaStreamWaitEvent(stream, slot.used.get(), 0), "ordering an upload");
    const auto copy = [&](void* to, const void* from, std::size_t bytes) {
      detail::cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream),
                         "uploading frames");
    };
    if (block.squeezed.empty()) {
      auto** places = reinterpret_cast<const std::uint8_t**>(slot.places.get());
      store_.bring(block, rows, pixels_.get() + at * room * spec_.frame_size(), places);
      copy(places_.get() + at * room, places, rows * sizeof(*places));
    } else {
      copy(squeezed_.get() + at * room * spec_.frame_size(), block.squeezed.data(),
           rows * spec_.frame_size() * sizeof(float));
    }
    copy(scored_.get() + at * room, slot.scored.get(), rows);
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
    squeezed_ =
        detail::DeviceArray<float>(count(device_.tuning.blocks_ahead) * count(block_steps()) *
                                   count(batch_) * spec_.frame_size());
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

  void tally(const FrameBlock& block) {
    for (const std::uint8_t scored : block.scored) {
      if (scored != 0) counted_.pixels += spec_.frame_size();
    }
    counted_.outputs += count(block.steps) * count(batch_) * net_.outputs;
  }

  /// copy_ and bias_copy_ become W(step).
  void materialise() {
    std::vector<std::uint32_t> index(layers());
    std::vector<float> tables(layers() * tables_.stride());
    tables_.write_now(step_, index.data(), tables.data());
    fill(now_index_, index);
    fill(now_tables_, tables);
    launcher_.materialise(arguments(0), step_, now_index_.get(), now_tables_.get(),
                          reinterpret_cast<float4*>(copy_.get()), bias_copy_.get(), compute_.get());
  }

  /// Folds everything and forgets the momentum: Z = W(step), nothing listed.
  void settle() {
    if (!std::exchange(learned_, false)) return;
    materialise();
    detail::cuda_check(cudaMemcpyAsync(arena_.get(), copy_.get(), arena_.size() * sizeof(float),
                                       cudaMemcpyDeviceToDevice, compute_.get()),
                       "settling the weights");
    std::vector<float> d1 = download(past_d1_);
    map().copy_bias(download(bias_copy_), d1);
    fill(past_d1_, d1);
    tables_.clear();
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
    check_size("rates", state.rates.size(), layers());
    check_size("coefficients", state.coefficients.size(),
               layers() * terms * (4 + count(state.plan.period)));
    check_size("folded weights", state.folded.size(), net_.weights);
    check_size("hidden values", state.hidden.size(), (terms + 4) * hidden_row());
    check_size("squeezed values", state.squeezed.size(), (terms + 4) * hidden_row());
    check_size("frames", state.frames.size(), (terms + 4) * count(batch_) * spec_.frame_size());
    check_size("outputs", state.outputs.size(), 2 * count(batch_) * net_.outputs);
    check_size("hidden gradients", state.hidden_gradients.size(), terms * hidden_row());
    check_size("output gradients", state.output_gradients.size(),
               terms * count(batch_) * net_.outputs);
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

  void start_state() { start_state(std::vector<float>(net_.weights), nullptr); }

  /// Everything on the device as of step_: Z (reference order) and the past, of `state` or new.
  void start_state(const std::vector<float>& folded, const EngineState* state) {
    std::vector<float> arena(arena_.size());
    std::vector<float> d1(past_d1_.size());
    map().import_weights(folded, arena, d1);
    fill(arena_, arena);
    std::vector<float> past(past_.size(), 1.0F), y(y_.size(), 1.0F);
    for (std::size_t row = 0; row < past.size(); row += shape_.row()) {
      past[row + shape_.zero()] = 0.0F;
      std::fill_n(past.data() + row + shape_.d0(0), shape_.values, 0.0F);
    }
    for (std::size_t b = 0; b < count(batch_); ++b) {  // x(0) is made of c(h(-1))
      std::fill_n(past.data() + past_row(1, b), shape_.values, squeeze(1.0F));
    }
    if (state != nullptr) load_past(*state, past, y, d1);
    fill(past_, past);
    fill(y_, y);
    fill(past_d1_, d1);
    fill(inner_, std::vector<float>(inner_.size(), 1.0F));  // the bias' row stays so
    fill(score_, std::vector<double>(score_.size()));
    fill(cursor_, std::vector<detail::Cursor>{{step_, blocks_, 0, 0}});
    fill(barrier_, std::vector<unsigned int>{0});
    launcher_.restore_products(arguments(0), step_, compute_.get());
    synchronize();
    tables_.restart();
  }

  /// Calls visit(tensor offset, past offset, length) for the last `rows` rows of h, c(h) or d0.
  template <class Visit>
  void visit_hidden(std::size_t rows, std::size_t first, Visit visit) const {
    for (std::size_t back = 1; back <= rows; ++back) {
      for (std::size_t b = 0; b < count(batch_); ++b) {
        visit(((back - 1) * count(batch_) + b) * shape_.values, past_row(back, b) + first,
              shape_.values);
      }
    }
  }
  /// For a row of y: its pieces, unit by unit.
  template <class Visit>
  void visit_outputs(Visit visit) const {
    std::size_t at = 0;
    for (std::size_t b = 0; b < count(batch_); ++b) {
      for (std::size_t u = 0; u < net_.units.size(); ++u) {
        const auto n = count(net_.units[u].outputs);
        visit(at, b * planner_.y_columns + planner_.output_start[u], n);
        at += n;
      }
    }
  }
  /// Calls visit(tensor offset, past_d1 offset, length) for the listed d1 of `terms` steps.
  template <class Visit>
  void visit_d1(std::size_t terms, Visit visit) const {
    const auto rows = count(shape_.history);
    std::size_t at = 0;
    for (std::size_t age = 0; age < terms; ++age) {
      const auto m = static_cast<std::size_t>((step_ + 2 * rows - 1 - age) % rows);
      for (std::size_t b = 0; b < count(batch_); ++b) {
        for (std::size_t u = 0; u < net_.units.size(); ++u) {
          const auto n = count(net_.units[u].outputs);
          visit(at,
                planner_.history_start[u] + (m * count(batch_) + b) * planner_.history_stride[u],
                n);
          at += n;
        }
      }
    }
  }
  template <class Visit>
  void visit_frames(std::size_t rows, Visit visit) const {  // one pixel at a time
    const std::size_t frame = spec_.frame_size();
    for (std::size_t back = 1; back <= rows; ++back) {
      for (std::size_t b = 0; b < count(batch_); ++b) {
        const std::size_t tensor = ((back - 1) * count(batch_) + b) * frame;
        const std::size_t own = past_row(back, b) + shape_.pixel(0);
        for (std::size_t u = 0; u < patches(); ++u) {
          for (std::size_t k = 0; k < patch_size(); ++k) {
            visit(tensor + pixel(u, k), own + u * patch_size() + k);
          }
        }
      }
    }
  }

  void save_past(EngineState& state, const std::vector<float>& d1) {
    const auto terms = count(plan_.terms);
    const std::vector<float> past = download(past_);
    const auto copy = [](const std::vector<float>& own, std::vector<float>& tensor) {
      return [&](std::size_t to, std::size_t from, std::size_t n) {
        std::copy_n(own.data() + from, n, tensor.data() + to);
      };
    };
    state.hidden.resize((terms + 4) * hidden_row());
    state.squeezed.resize((terms + 4) * hidden_row());
    visit_hidden(terms + 4, shape_.raw(0), copy(past, state.hidden));
    visit_hidden(terms + 4, shape_.squeezed(0), copy(past, state.squeezed));
    state.frames.resize((terms + 4) * count(batch_) * spec_.frame_size());
    visit_frames(terms + 4,
                 [&](std::size_t to, std::size_t from) { state.frames[to] = past[from]; });
    state.hidden_gradients.resize(terms * hidden_row());
    visit_hidden(terms, shape_.d0(0), copy(past, state.hidden_gradients));
    const std::vector<float> y = download(y_);
    const std::size_t row = count(batch_) * net_.outputs;
    state.outputs.resize(2 * row);
    for (std::uint64_t back = 1; back <= 2; ++back) {
      const std::size_t own = y_row(back);
      visit_outputs([&](std::size_t to, std::size_t from, std::size_t n) {
        std::copy_n(y.data() + own + from, n, state.outputs.data() + (back - 1) * row + to);
      });
    }
    state.output_gradients.resize(terms * row);
    visit_d1(terms, [&](std::size_t to, std::size_t from, std::size_t n) {
      std::copy_n(d1.data() + from, n, state.output_gradients.data() + to);
    });
  }

  /// Where y of step `step_ - back` starts.
  [[nodiscard]] std::size_t y_row(std::uint64_t back) const {
    return static_cast<std::size_t>((step_ + 4 - back) % 2) * count(batch_) * planner_.y_columns;
  }

  void load_past(const EngineState& state, std::vector<float>& past, std::vector<float>& y,
                 std::vector<float>& d1) const {
    const auto terms = std::min(count(plan_.terms), count(state.plan.terms));
    const auto copy = [](const std::vector<float>& tensor, std::vector<float>& own) {
      return [&](std::size_t from, std::size_t to, std::size_t n) {
        std::copy_n(tensor.data() + from, n, own.data() + to);
      };
    };
    visit_hidden(terms + 4, shape_.raw(0), copy(state.hidden, past));
    visit_hidden(terms + 4, shape_.squeezed(0), copy(state.squeezed, past));
    visit_frames(terms + 4,
                 [&](std::size_t from, std::size_t to) { past[to] = state.frames[from]; });
    visit_hidden(terms, shape_.d0(0), copy(state.hidden_gradients, past));
    const std::size_t row = count(batch_) * net_.outputs;
    for (std::uint64_t back = 1; back <= 2; ++back) {
      const std::size_t own = y_row(back);
      visit_outputs([&](std::size_t from, std::size_t to, std::size_t n) {
        std::copy_n(state.outputs.data() + (back - 1) * row + from, n, y.data() + own + to);
      });
    }
    visit_d1(terms, [&](std::size_t from, std::size_t to, std::size_t n) {
      std::copy_n(state.output_gradients.data() + from, n, d1.data() + to);
    });
  }

  Spec spec_;
  EngineOptions options_;
  int batch_;
  detail::DeviceFacts device_;
  Connectome net_;
  DeferralPlan plan_;
  detail::StepShape shape_;
  detail::Planner planner_;
  RateSchedule schedule_;
  detail::CoefficientTables tables_;
  Launcher launcher_;
  detail::Stream compute_, upload_;
  detail::ComputeTime compute_time_;

  detail::DeviceArray<std::uint32_t> blobs_, blob_start_, words_;
  detail::DeviceArray<float> arena_, copy_;  // Z; W when somebody reads it
  detail::DeviceArray<float> past_d1_, bias_copy_;
  detail::DeviceArray<float> past_, y_, inner_, y_scratch_;
  detail::DeviceArray<double> score_;
  detail::DeviceArray<detail::Cursor> cursor_;
  detail::DeviceArray<unsigned int> barrier_;
  detail::DeviceArray<std::uint8_t> pixels_, scored_;
  detail::DeviceArray<const std::uint8_t*> places_;  // where each frame of a block lies
  detail::DeviceArray<float> squeezed_;
  detail::DeviceArray<std::uint32_t> index_, now_index_;
  detail::DeviceArray<float> coefficients_, now_tables_;
  std::vector<Staging> staging_;
  cudaGraphExec_t graph_ = nullptr;

  detail::DeviceFrameStore store_{spec_.frame_size(), upload_.get()};
  std::vector<std::uint32_t> stored_;
  Score counted_;
  std::uint64_t step_ = 0;
  std::uint64_t blocks_ = 0;
  bool learned_ = false;  // whether there may be gradients that are not in Z
};

}  // namespace pvm::inline v0
