// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The part of a trainer that does not depend on its engine's type: the loop that takes frames from
/// sources, runs steps on them and calls the callbacks.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/random.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/usage.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/feed.hpp>
#include <pvm/train/report.hpp>

namespace pvm::inline v0 {

/// The result of a `fit`.
struct FitResult {
  std::uint64_t step = 0;     ///< the step counter: steps done, those before `fit` included
  bool cut_short = false;     ///< `request_stop` was called before the target was reached
  double seconds = 0;         ///< wall time
  std::uint64_t skipped = 0;  ///< number of unreadable frames met, each counted once
};

namespace detail {

template <class C>
concept CallbackArgument = Callback<std::remove_reference_t<C>>;

template <class S>
concept Source = io::FrameSource<std::remove_reference_t<S>>;

template <class R>
concept StreamRange = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    io::FrameSource<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

/// A callback of a `fit`, the step at which it will be called next, and the score since its last
/// call.
template <class C>
struct ScheduledCallback {
  C& callback;
  std::uint64_t due = never;
  Score score{};
};

/// The last component of a path, even if it ends in a slash.
inline std::string file_name_of(const std::string& name) {
  const std::filesystem::path path = name;
  const auto last = path.has_filename() ? path.filename() : path.parent_path().filename();
  return last.empty() ? name : last.string();
}

}  // namespace detail

/// A run: an engine, its spec, and the run's position in each source. Base class of every
/// `Trainer`, and what callbacks see (`Moment::trainer`). Except for `request_stop`, its functions
/// must be called by one thread at a time; those that read results wait for steps that are still
/// running.
class TrainerBase {
 public:
  TrainerBase(const TrainerBase&) = delete;
  TrainerBase& operator=(const TrainerBase&) = delete;

  [[nodiscard]] const Spec& spec() const noexcept { return spec_; }
  [[nodiscard]] std::uint64_t step() { return engine_.step(); }
  [[nodiscard]] int batch() { return engine_.batch(); }
  /// Whether weights can change: false if the run is frozen or all its learning rates are 0.
  [[nodiscard]] bool learns() const noexcept {
    const bool later = spec_.delay_final_learning_rate && spec_.final_learning_rate != 0;
    const bool between =
        spec_.delay_intermediate_learning_rate && spec_.intermediate_learning_rate != 0;
    return options_.mode == Mode::learn && (spec_.initial_learning_rate != 0 || later || between);
  }
  /// One line for logs: which engine runs on which device.
  [[nodiscard]] std::string description() { return engine_.description(); }
  /// The shape of the frames that the network sees.
  [[nodiscard]] io::FrameShape frame_shape() const {
    return {spec_.frame_side(), spec_.frame_side(), spec_.input_channels};
  }
  [[nodiscard]] const Connectome& connectome() const noexcept { return net_; }

  /// All weights, in reference order.
  [[nodiscard]] std::vector<float> weights() {
    std::vector<float> out(net_.weights);
    engine_.read_weights(out);
    return out;
  }
  /// The frames predicted for two steps ahead, [batch][side][side][channels] in [0, 1].
  [[nodiscard]] std::vector<float> prediction() {
    std::vector<float> out(frame_shape().size() * static_cast<std::size_t>(batch()));
    engine_.read_prediction(out);
    return out;
  }
  /// The hidden values of the last step, [batch][units][hidden] in [0, 1].
  [[nodiscard]] std::vector<float> hidden() {
    std::vector<float> out(net_.units.size() * static_cast<std::size_t>(net_.hidden * batch()));
    engine_.read_hidden(out);
    return out;
  }
  /// The newest frame of the batch's first sequence, [side][side][channels]; empty before the first
  /// step. Valid until the next step.
  [[nodiscard]] std::span<const std::uint8_t> last_frame() {
    if (last_stored_ != not_stored) {
      last_frame_.resize(frame_shape().size());
      engine_.read_frame(last_stored_, last_frame_);
    }
    return last_frame_;
  }
  /// The label of that frame.
  [[nodiscard]] const io::Label& last_label() const noexcept { return last_label_; }

  /// Where the time of the most recent completed `fit` went.
  [[nodiscard]] const Report& report() const noexcept { return report_; }

  /// Everything a later run needs to continue with bit-identical results. Call it between `fit`s or
  /// in a callback.
  [[nodiscard]] io::Checkpoint checkpoint() {
    auto streams = streams_;
    streams.resize(static_cast<std::size_t>(batch()));  // empty before the first `fit`
    return {spec_, engine_.save(), std::move(streams), precision_, options_.reduce, seed_};
  }

  /// Replaces the state of this run by that of `checkpoint`; the next `fit` continues with the
  /// frame after the checkpoint's last one. Throws Error (Fault::checkpoint) if the checkpoint is
  /// of another network or batch.
  void restore(const io::Checkpoint& checkpoint) {
    const EngineState& state = checkpoint.state;
    if (io::detail::network_of(checkpoint.spec) != io::detail::network_of(spec_)) {
      throw Error(Fault::checkpoint, "the checkpoint is of spec " + quote(checkpoint.spec.name) +
                                         ", which differs from this run's in '" +
                                         io::detail::differing_key(checkpoint.spec, spec_) + "'");
    }
    if (state.resumable() && state.batch != batch()) {
      throw Error(Fault::checkpoint, "the checkpoint is of " + std::to_string(state.batch) +
                                         (state.batch == 1 ? " sequence" : " sequences") +
                                         " and this run has " + std::to_string(batch()) +
                                         "; continue with a batch of " +
                                         std::to_string(state.batch));
    }
    engine_.restore(state);
    streams_ = checkpoint.streams;
    resumed_ = state.resumable();
    if (resumed_) seed_ = checkpoint.seed;
  }

  /// Makes the current `fit` return after the current block of steps; if none is running, the next
  /// one returns without a step. It only sets a flag, so it may be called from a signal handler and
  /// from any thread.
  void request_stop() noexcept { stop_.store(true); }

  /// Trains on the frames of `source` (or only runs the network on them, see `Mode`) until the step
  /// counter reaches its target: that of a `Steps` argument, else the spec's `steps`. Calls the
  /// callbacks in the order given. Needs a batch of 1.
  ///
  /// Throws Error: Fault::usage if the number of sources is not the batch or a callback asks for a
  /// step that is not ahead; what the source, the engine and the callbacks throw. If a source fails
  /// in the middle of a run, the callbacks' `end` is called first, so that a checkpoint is saved.
  template <detail::Source S, detail::CallbackArgument... C>
  FitResult fit(S&& source, C&&... callbacks) {
    return fit_streams(std::span<std::remove_cvref_t<S>>(&source, 1), callbacks...);
  }

  /// The same for a batch: `streams` is a contiguous range with one source for every sequence, as
  /// `io::deal` makes them.
  template <detail::StreamRange R, detail::CallbackArgument... C>
  FitResult fit(R&& streams, C&&... callbacks) {
    using S = std::ranges::range_value_t<R>;
    return fit_streams(std::span<S>(std::ranges::data(streams), std::ranges::size(streams)),
                       callbacks...);
  }

 protected:
  struct Options {
    Reduce reduce = Reduce::mean;
    Mode mode = Mode::learn;
    std::size_t cache_bytes = share_of_free_memory;
  };

  TrainerBase(const Spec& spec, AnyEngine engine, std::string precision, std::uint64_t seed,
              Options options)
      : spec_(spec),
        net_(make_connectome(spec)),
        engine_(std::move(engine)),
        precision_(std::move(precision)),
        seed_(seed),
        options_(options) {}
  ~TrainerBase() = default;

  /// Starts a new run at step 0: weights 0.03 (u - 0.5), u uniform in [0, 1).
  void start_new() {
    EngineState state;
    state.batch = batch();
    state.weights.resize(net_.weights);
    for (std::size_t i = 0; i < net_.weights; ++i) {
      state.weights[i] = 0.03F * (uniform(seed_, i) - 0.5F);
    }
    engine_.restore(state);
  }

 private:
  using Clock = std::chrono::steady_clock;

  static void take_target(std::uint64_t&, const auto&) {}
  static void take_target(std::uint64_t& target, const Steps& steps) { target = steps.count; }

  template <class S, class... C>
  FitResult fit_streams(std::span<S> streams, C&... callbacks) {
    if (streams.size() != static_cast<std::size_t>(batch())) {
      throw Error(Fault::usage, "a batch of " + std::to_string(batch()) +
                                    " needs as many streams, " + "but fit was given " +
                                    std::to_string(streams.size()) + "; io::deal makes them");
    }
    std::uint64_t target = spec_.steps;
    (take_target(target, callbacks), ...);
    std::tuple scheduled{detail::ScheduledCallback<C>{callbacks}...};
    return std::apply([&](auto&... each) { return loop(streams, target, each...); }, scheduled);
  }

  /// Runs blocks of steps up to the next step at which a callback is due, and calls it there.
  template <class S, class... W>
  FitResult loop(std::span<S> streams, std::uint64_t target, W&... scheduled) {
    const ClearStopRequest clear_stop_request{stop_};
    find_places(streams);
    const RecordPositions record_positions{streams, end_positions_};
    keep_last_frame();  // because Feed empties the store
    Feed<S> feed(streams, frame_shape(), engine_, options_.cache_bytes);
    const auto started = Clock::now();
    Moment moment{*this, step(), step(), target};
    const auto update_moment = [&] {
      moment.step = step();
      moment.seconds = std::chrono::duration<double>(Clock::now() - started).count();
    };
    (begin(scheduled, moment), ...);
    engine_seconds_ = 0;
    gpu_before_ = engine_.device_seconds();
    try {
      while (moment.step < target && !stop_.load()) {
        const std::uint64_t event = std::min({target, scheduled.due...});
        run_block(feed, event - moment.step);
        update_moment();
        if (moment.step == event) {
          const Score score = take_score();
          update_moment();  // again, because take_score has waited for the engine
          (call(scheduled, moment, score), ...);
        }
      }
    } catch (...) {
      // If a source has failed, end the run properly first, so that callbacks can save what has
      // been learned.
      if (!feed.source_failed() || moment.step == moment.begin) throw;
      moment.cut_short = true;
      const Score score = take_score();
      make_report(feed, moment);
      (end(scheduled, moment, score), ...);
      throw;
    }
    const Score score = take_score();
    update_moment();
    make_report(feed, moment);
    moment.cut_short = moment.step < target;
    (end(scheduled, moment, score), ...);
    return {moment.step, moment.cut_short, moment.seconds, feed.skipped()};
  }

  /// Waits for the engine, and takes the score since the previous call.
  Score take_score() {
    io::Stopwatch watch;
    const Score score = engine_.take_score();
    engine_seconds_ += watch.lap();
    return score;
  }

  template <class S>
  void make_report(const Feed<S>& feed, const Moment& moment) {
    report_ = {};
    feed.add_to(report_);
    report_.seconds = moment.seconds;
    report_.engine = engine_seconds_;
    if (const auto now = engine_.device_seconds()) report_.gpu = *now - gpu_before_.value_or(0);
    report_.frames = (moment.step - moment.begin) * static_cast<std::uint64_t>(batch());
    report_.other = std::max(0.0, report_.seconds - report_.engine - report_.waiting);
  }

  template <class C>
  static void begin(detail::ScheduledCallback<C>& scheduled, const Moment& moment) {
    if constexpr (requires { scheduled.callback.begin(moment); }) scheduled.callback.begin(moment);
    scheduled.due = next_due(scheduled.callback, moment.step);
  }

  /// The next step at which the callback wants to be called. Throws Fault::usage if that step is
  /// not ahead, since the run would never reach it.
  template <class C>
  static std::uint64_t next_due(C& callback, std::uint64_t step) {
    const std::uint64_t at = callback.next(step);
    if (at > step) return at;
    throw Error(Fault::usage, "a callback's next(" + std::to_string(step) + ") is " +
                                  std::to_string(at) +
                                  "; it must be a later step, or pvm::never for none");
  }

  /// Adds `score` to the callback's, and calls it if it is due.
  template <class C>
  static void call(detail::ScheduledCallback<C>& scheduled, Moment moment, const Score& score) {
    scheduled.score += score;
    if (scheduled.due != moment.step) return;
    moment.score = std::exchange(scheduled.score, {});
    scheduled.callback.at(moment);
    scheduled.due = next_due(scheduled.callback, moment.step);
  }

  template <class C>
  static void end(detail::ScheduledCallback<C>& scheduled, Moment moment, const Score& score) {
    if constexpr (requires { scheduled.callback.end(moment); }) {
      moment.score = scheduled.score;
      moment.score += score;
      scheduled.callback.end(moment);
    }
  }

  /// Determines the run's place in each stream at the beginning of a `fit`. After `restore`, seeks
  /// to the place in the checkpoint, unless the source has another name than the checkpoint's.
  /// Otherwise the run continues where it was, unless the source has been moved since the previous
  /// `fit`.
  template <class S>
  void find_places(std::span<S> streams) {
    streams_.resize(streams.size());
    for (std::size_t b = 0; b < streams.size(); ++b) {
      StreamState& state = streams_[b];
      const auto source = io::detail::as_saved(detail::file_name_of(streams[b].name()));
      if (state.source != source) {
        if (resumed_ && !state.source.empty()) {  // empty: the checkpoint's run had no frames yet
          log(Severity::warning, "the checkpoint's frames came from " + quote(state.source) + "; " +
                                     quote(source) + " is read from its beginning");
        }
        state = {streams[b].position(), 0, source};
      } else if (resumed_) {
        streams[b].seek(state.position);
      } else if (b >= end_positions_.size() || streams[b].position() != end_positions_[b]) {
        state.position = streams[b].position();  // the program has moved the source
        state.frames_since_start = 0;
      }
    }
    resumed_ = false;
  }

  /// Records at the end of a `fit` the positions of the sources, which differ from the run's places
  /// if frames came from the store.
  template <class S>
  struct RecordPositions {
    std::span<S> streams;
    std::vector<io::Position>& end_positions;

    ~RecordPositions() {
      try {
        end_positions.clear();
        for (const S& source : streams) end_positions.push_back(source.position());
      } catch (...) {  // no position: the sources count as moved
        end_positions.clear();
      }
    }
  };

  /// Clears the stop request at the end of a `fit`, however it ends, so that it does not stop the
  /// next one.
  struct ClearStopRequest {
    std::atomic<bool>& stop;
    ~ClearStopRequest() { stop.store(false); }
  };

  /// Runs a block of 1 to `most` steps, limited by the engine's `block_steps` and by the frames
  /// that the sources deliver in time (see `Feed::fill`).
  template <class S>
  void run_block(Feed<S>& feed, std::uint64_t most) {
    const auto limit = static_cast<std::uint64_t>(engine_.block_steps());
    io::Stopwatch watch;
    const FrameBlock room = engine_.stage(static_cast<int>(std::min(most, limit)));
    engine_seconds_ += watch.lap();
    auto states = streams_;
    const FrameBlock block = part(room, 0, feed.fill(room, states));
    note_last_frame(block);
    last_label_ = feed.labels()[block.scored.size() - static_cast<std::size_t>(batch())];
    watch.lap();
    engine_.run(block, options_.mode);
    engine_seconds_ += watch.lap();
    streams_ = std::move(states);
  }

  /// Keeps the first sequence's frame of the last step of `block`, or its index in the store.
  void note_last_frame(const FrameBlock& block) {
    const std::size_t row = block.scored.size() - static_cast<std::size_t>(batch());
    last_stored_ = block.stored.empty() ? not_stored : block.stored[row];
    if (last_stored_ != not_stored) return;
    const std::size_t size = frame_shape().size();
    const auto last = block.pixels.subspan(row * size, size);
    last_frame_.assign(last.begin(), last.end());
  }

  /// Copies the last frame from the store to last_frame_, if it is there.
  void keep_last_frame() {
    static_cast<void>(last_frame());
    last_stored_ = not_stored;
  }

  using StreamState = io::StreamState;

  Spec spec_;
  Connectome net_;
  AnyEngine engine_;
  std::string precision_;
  std::uint64_t seed_;
  Options options_;
  std::vector<StreamState> streams_;         // the run's places, one for each sequence
  std::vector<io::Position> end_positions_;  // the sources' positions at the end of the last `fit`
  std::vector<std::uint8_t> last_frame_;     // see `last_frame`
  std::uint32_t last_stored_ = not_stored;   // the last frame's index in the store, if it is there
  io::Label last_label_;
  Report report_;
  double engine_seconds_ = 0;         // seconds in the engine during the current `fit`
  std::optional<double> gpu_before_;  // seconds that the GPU had computed before it
  bool resumed_ = false;  // streams_ come from a checkpoint, and the sources have not sought yet
  std::atomic<bool> stop_ = false;
};

}  // namespace pvm::inline v0
