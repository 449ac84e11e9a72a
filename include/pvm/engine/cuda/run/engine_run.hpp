// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host side that all engines on a GPU have in common.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <pvm/core/large_vector.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/device/nvtx.hpp>
#include <pvm/engine/cuda/device/time.hpp>
#include <pvm/engine/cuda/run/score_sums.hpp>
#include <pvm/engine/cuda/run/staging.hpp>
#include <pvm/engine/cuda/run/streams.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/history.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::detail {

/// The base of an engine: its network, its streams, the staged blocks with the store of frames, the
/// schedule of rates, the score and the time of the steps. The spec must be valid.
class EngineRun {
 public:
  EngineRun(const EngineRun&) = delete;
  EngineRun& operator=(const EngineRun&) = delete;

  [[nodiscard]] int batch() const noexcept { return batch_; }
  [[nodiscard]] const Connectome& connectome() const noexcept { return net_; }
  [[nodiscard]] int block_steps() const noexcept { return staging_.sizes().block_steps; }

  /// Room for `steps` (1 to block_steps()) frames of every sequence, in pinned memory. Waits until
  /// the block that used this memory before has been uploaded; the memory still holds its contents.
  [[nodiscard]] FrameBlock stage(int steps) { return staging_.stage(steps); }

  /// The store of frames in device memory, see Engine and engine/cuda/run/frame_store.hpp.
  std::size_t reserve_frames(std::size_t budget, std::size_t frames) {
    if (budget == 0 || frames == 0) synchronize();  // steps may be reading frames that are freed
    return staging_.store().reserve(budget, frames);
  }
  void store_frames(std::size_t first, std::span<const std::uint8_t> pixels) {
    if (staging_.store().holds(first)) synchronize();
    staging_.store().put(first, pixels);
  }
  void read_frame(std::size_t index, std::span<std::uint8_t> pixels) const {
    staging_.store().get(index, pixels);
  }

  /// Bytes of device memory in which frames are stored.
  [[nodiscard]] std::size_t stored_bytes() const noexcept {
    return staging_.store().device_bytes();
  }

  /// See Engine. The rates are in the tables that blocks bring along, so no launch changes.
  void hold_rate(std::size_t layer, std::optional<float> rate) { schedule_.hold(layer, rate); }

  void synchronize() const { streams_.synchronize(); }

  /// Whether `synchronize`, `stage` and `store_frames` do not wait, or for copies alone.
  [[nodiscard]] bool is_done() const {
    return is_idle(streams_.upload()) && is_idle(streams_.compute());
  }
  [[nodiscard]] bool can_stage() const { return staging_.is_free(); }
  [[nodiscard]] bool can_store(std::size_t index) const {
    return is_idle(streams_.upload()) &&
           (!staging_.store().holds(index) || is_idle(streams_.compute()));
  }

  /// Seconds that the GPU has spent on steps, as far as these have finished.
  [[nodiscard]] double device_seconds() { return compute_time_.seconds(); }

 protected:
  /// `urgent_steps`: see RunStreams.
  EngineRun(const Spec& spec, int batch, const EngineOptions& options, const DeviceFacts& device,
            bool urgent_steps)
      : spec_(spec),
        options_(options),
        batch_(batch),
        device_(device),
        net_(make_connectome(spec)),
        schedule_(spec),
        streams_(urgent_steps),
        staging_(spec.frame_size(), streams_) {
    show_spans_to_profilers();
  }
  ~EngineRun() = default;

  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  [[nodiscard]] std::size_t layers() const { return net_.layer_start.size() - 1; }
  [[nodiscard]] StateSizes sizes() const { return {spec_, net_, batch_}; }

  /// Calls `launch`, which launches steps of the current block: after the upload that was ended
  /// last, and timed.
  template <class Launch>
  void launch_timed(Launch launch) {
    const cudaStream_t stream = streams_.compute();
    staging_.begin_steps();
    compute_time_.begin(stream);
    launch(stream);
    compute_time_.end(stream);
    staging_.end_steps();
  }
  /// To be called when all steps of the block have been launched.
  void close(const FrameBlock& block) {
    staging_.close();
    add_counts(counted_, block, spec_.frame_size(), count(batch_) * net_.outputs);
  }
  /// The score since the last call, of which the kernels have added up `sums`. Clears these.
  [[nodiscard]] Score take_score(const DeviceArray<double>& sums) {
    synchronize();
    Score score = std::exchange(counted_, {});
    add_sums(score, streams_.download(sums));
    streams_.clear(sums, "clearing the score");
    synchronize();  // kernels on both streams may add to it
    return score;
  }

  /// A state with what all engines save alike, and room for the weights.
  [[nodiscard]] EngineState begin_state(std::uint64_t step) const {
    EngineState state;
    state.step = step;
    state.batch = batch_;
    resize_large(state.weights, net_.weights);
    resize_large(state.folded, net_.weights);
    state.rates = schedule_.layers();
    return state;
  }
  /// Sets the schedule to that of `state`, and drops the score.
  void restart(const EngineState& state) {
    schedule_ = RateSchedule(spec_);
    if (!state.rates.empty()) schedule_.restore(state.rates, state.step);
    counted_ = {};
  }

  Spec spec_;
  EngineOptions options_;
  int batch_;
  DeviceFacts device_;
  Connectome net_;
  RateSchedule schedule_;
  RunStreams streams_;
  Staging staging_;
  bool learned_ = false;  // whether there may be gradients or momentum that the weights lack

 private:
  ComputeTime compute_time_;
  Score counted_;
};

}  // namespace pvm::inline v0::detail
