// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The part of a trainer that does not depend on its engine's type: the loop that takes frames from
/// sources, runs steps on them and calls the callbacks.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/trace.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/io/as_frame.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/usage.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/readout/readout.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/command.hpp>
#include <pvm/train/modes.hpp>
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

/// The name of a callback's type without namespaces; of an `Optionally<C>` that of C.
std::string type_name(const std::type_info& type);

/// A callback of any type, so that the loop that calls callbacks is compiled once.
class AnyCallback {
 public:
  virtual void begin(const Moment& moment) = 0;
  virtual std::uint64_t next(std::uint64_t step) = 0;
  virtual void at(const Moment& moment) = 0;
  virtual void idle(const Moment& moment) = 0;
  virtual bool before_last(const Moment& moment) = 0;
  virtual void end(const Moment& moment) = 0;
  /// The name of its type, for reports and traces; lives as long as the program.
  virtual const std::string& name() const = 0;

 protected:
  ~AnyCallback() = default;
};

template <class C>
class CallbackOf final : public AnyCallback {
 public:
  explicit CallbackOf(C& callback) : callback_(callback) {}

  void begin(const Moment& moment) override {
    if constexpr (requires { callback_.begin(moment); }) callback_.begin(moment);
  }
  std::uint64_t next(std::uint64_t step) override { return callback_.next(step); }
  void at(const Moment& moment) override { callback_.at(moment); }
  void idle(const Moment& moment) override {
    if constexpr (requires { callback_.idle(moment); }) callback_.idle(moment);
  }
  bool before_last(const Moment& moment) override {
    if constexpr (requires { callback_.before_last(moment); }) {
      return callback_.before_last(moment);
    } else {
      return false;
    }
  }
  void end(const Moment& moment) override {
    if constexpr (requires { callback_.end(moment); }) callback_.end(moment);
  }
  const std::string& name() const override {
    static const std::string type = type_name(typeid(C));
    return type;
  }

 private:
  C& callback_;
};

/// A callback of a `fit`, the step at which it will be called next, and the score since its last
/// call.
struct ScheduledCallback {
  AnyCallback* callback;
  std::uint64_t due = never;
  Score score{};
  double seconds = 0;       ///< for which it has been called
  std::uint64_t calls = 0;  ///< how often
};

}  // namespace detail

class Feed;

/// A run: an engine, its spec, and the run's position in each source. Base class of every
/// `Trainer`, and what callbacks see (`Moment::trainer`). Except for `request_stop`, its functions
/// must be called by one thread at a time; those that read results wait for steps that are still
/// running.
class TrainerBase {
 public:
  /// What a `step` of the program's own has given. Valid until the next step.
  class Stepped {
   public:
    /// The frames predicted for two steps ahead, [batch][side][side][channels] in [0, 1]. Waits for
    /// the step, and copies them when first asked for.
    [[nodiscard]] std::span<const float> prediction();
    /// The score since it was last asked for, or taken by a `fit`. Waits for the step.
    [[nodiscard]] Score score();

   private:
    friend class TrainerBase;
    explicit Stepped(TrainerBase& trainer) : trainer_(&trainer) {}
    TrainerBase* trainer_;
    bool read_ = false;
  };

  TrainerBase(const TrainerBase&) = delete;
  TrainerBase& operator=(const TrainerBase&) = delete;

  [[nodiscard]] const Spec& spec() const noexcept { return spec_; }
  [[nodiscard]] std::uint64_t step() { return engine_.step(); }
  [[nodiscard]] int batch() { return engine_.batch(); }
  /// Whether weights can change: false if the run is frozen or all its learning rates are 0.
  [[nodiscard]] bool learns() const noexcept {
    const auto held = std::count_if(modes_.rates.begin(), modes_.rates.end(),
                                    [](const auto& rate) { return rate.value_or(0) != 0; });
    if (held > 0) return mode() == Mode::learn;
    const bool later = spec_.delay_final_learning_rate && spec_.final_learning_rate != 0;
    const bool between =
        spec_.delay_intermediate_learning_rate && spec_.intermediate_learning_rate != 0;
    return mode() == Mode::learn && (spec_.initial_learning_rate != 0 || later || between);
  }
  /// One line for logs: which engine runs on which device.
  [[nodiscard]] std::string description() { return engine_.description(); }
  /// Bytes of a GPU's memory that the run has taken; 0 on the host. What CUDA itself takes there is
  /// not counted.
  [[nodiscard]] std::size_t device_memory() { return engine_.device_memory(); }
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
  [[nodiscard]] std::span<const std::uint8_t> last_frame() { return last_frames(1); }
  /// The newest frame of every sequence, [batch][side][side][channels], likewise.
  [[nodiscard]] std::span<const std::uint8_t> last_frames() { return last_frames(batch()); }
  /// The label of that frame.
  [[nodiscard]] const io::Label& last_label() const noexcept { return last_label_; }

  /// What was chosen by trials before the run, as one line ("batch 16, precision bf16"); empty:
  /// nothing. Checkpoints hold it.
  [[nodiscard]] const std::string& chosen() const noexcept { return chosen_; }
  void note_choice(std::string chosen) { chosen_ = std::move(chosen); }

  /// The run's place in each stream: the frames that come next. Empty before the first `fit`.
  [[nodiscard]] const std::vector<io::StreamState>& places() const noexcept { return streams_; }

  /// Where the time of the most recent completed `fit` went.
  [[nodiscard]] const Report& report() const noexcept { return report_; }

  /// Where the time of the current `fit` has gone so far; for callbacks.
  [[nodiscard]] Report report_so_far(const Moment& moment) const;

  /// Everything a later run needs to continue with bit-identical results. Call it between `fit`s or
  /// in a callback.
  [[nodiscard]] io::Checkpoint checkpoint();

  /// Replaces the state of this run by that of `checkpoint`; the next `fit` continues with the
  /// frame after the checkpoint's last one. Throws Error (Fault::checkpoint) if the checkpoint is
  /// of another network or batch.
  void restore(const io::Checkpoint& checkpoint);

  /// Saves a checkpoint to `path`, of which missing directories are created. Throws Error
  /// (Fault::checkpoint) if that fails.
  void save(const std::filesystem::path& path);

  // A loop of the program's own, instead of `fit`.

  /// Runs the next steps on frames that the program has: [steps][batch][side][side][channels]. Many
  /// frames at a time cost less, above all on a GPU, where results are waited for; the bits are the
  /// same. `label`: of the last frame (of a batch of 1), for the attached readout.
  ///
  /// Throws Error (Fault::usage) if the frames are not a whole number of steps, or if there is a
  /// label and nothing that learns from it.
  Stepped step(std::span<const std::uint8_t> frames, const io::Label& label = {});
  /// The same for a picture of any size, which is resized, with its label in its own pixels: a
  /// cv::Mat with pvm/io/mat.hpp. Needs a batch of 1.
  template <class Picture>
  requires io::IsPicture<Picture> Stepped step(const Picture& picture, io::Label label = {}) {
    picture_.resize(frame_shape().size());
    const io::PictureSize size =
        io::AsFrame<Picture>::write(picture, frame_shape(), std::span(picture_));
    return step(std::span<const std::uint8_t>(picture_),
                label.resized(size, {frame_shape().width, frame_shape().height}));
  }
  /// The next `step` begins a new sequence: its frame does not follow the one before, so that the
  /// predictions made for it are not scored.
  void start_sequence() noexcept { starts_sequence_ = true; }

  /// Lets `readout` learn beside the network (or on a frozen one): from the labels of `step`, and
  /// in a `fit` from those of the source, where steps then run one by one, unless the readout is on
  /// the GPU on which an engine for one sequence runs. It goes into checkpoints, and `restore`
  /// continues it if the checkpoint has one. Needs a batch of 1. Null: none, which must be said
  /// before an attached readout is destroyed, if steps are to follow.
  void attach(readout::Readout* readout);

  // Modes (docs/model.md): what the network sees, whether it learns, at which rates.

  /// The modes that the run is in.
  [[nodiscard]] const Modes& modes() const noexcept { return modes_; }
  /// Obeys a command before the next step. Throws Error (Fault::usage) if this run has no such
  /// sequence or layer, the rectangle is not within the frame, or a source is to be moved outside
  /// of a `fit`.
  void command(const Command& command);
  /// Obeys it right before step `step`, which must not have been run: what is saved after `step`
  /// steps does not contain it. Throws as `command` does, except that sources are not looked at.
  void command_at(std::uint64_t step, const Command& command);
  /// Hands over a command from any thread; the current `fit`, or the next one, obeys it before the
  /// next block of steps, at once if it is paused. What cannot be obeyed is logged.
  void post(const Command& command);
  /// Whether the run is paused: `fit` waits for a command that lets it go on.
  [[nodiscard]] bool paused() const noexcept { return allowed_ == std::uint64_t{0}; }

  /// A command that was obeyed, and the step that followed it.
  struct Obeyed {
    std::uint64_t step = 0;
    std::string command;
  };
  /// The commands that were obeyed so far, the oldest first; of more than 10,000 the latest.
  [[nodiscard]] const std::deque<Obeyed>& obeyed() const noexcept { return obeyed_; }
  /// How many commands were obeyed so far.
  [[nodiscard]] std::uint64_t commands() const noexcept { return commands_; }

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
  /// If the `end` of one callback fails, the others' are called all the same.
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
              Options options);
  ~TrainerBase() = default;

  /// Starts a new run at step 0: weights 0.03 (u - 0.5), u uniform in [0, 1).
  void start_new();

 private:
  static void take_target(std::uint64_t&, const auto&) {}
  static void take_target(std::uint64_t& target, const Steps& steps) { target = steps.count; }

  template <class S, class... C>
  FitResult fit_streams(std::span<S> streams, C&... callbacks) {
    std::uint64_t target = spec_.steps;
    (take_target(target, callbacks), ...);
    std::vector<io::AnySource> sources;
    for (S& stream : streams) sources.push_back(io::AnySource::refer(stream));
    return schedule(sources, target, detail::CallbackOf<C>(callbacks)...);
  }
  template <class... C>
  FitResult schedule(std::span<io::AnySource> streams, std::uint64_t target, C... callbacks) {
    std::vector<detail::ScheduledCallback> scheduled;
    (scheduled.push_back({&callbacks}), ...);
    return loop(streams, target, scheduled);
  }

  using Callbacks = std::span<detail::ScheduledCallback>;

  /// Runs blocks of steps up to the next step at which a callback is due, and calls it there.
  FitResult loop(std::span<io::AnySource> streams, std::uint64_t target, Callbacks callbacks);
  /// Runs two more steps when a run is cut short, if a callback wants to show their prediction.
  /// Frames that are not there within `patience` seconds are not waited for.
  void run_last_steps(Feed& feed, Callbacks callbacks, Moment& moment, double patience);
  /// Waits for the engine, and takes the score since the previous call.
  Score take_score();
  [[nodiscard]] Report make_report(const Feed& feed, const Moment& moment,
                                   Callbacks callbacks) const;
  /// Records how much memory is used and how many frames are ready, if a trace is on; not too
  /// often.
  void count_for_trace(const Feed& feed);
  /// Determines the run's place in each stream at the beginning of a `fit`. After `restore`, seeks
  /// to the place in the checkpoint, unless the source has another name than the checkpoint's.
  /// Otherwise the run continues where it was, unless the source has been moved since the previous
  /// `fit`.
  void find_places(std::span<io::AnySource> streams);
  /// Runs a block of 1 to `most` steps, limited by the engine's `block_steps` and by the frames
  /// that the sources deliver in time (see `Feed::fill`).
  void run_block(Feed& feed, std::uint64_t most);
  /// Lets the attached readout learn from the last frame. Throws Error (Fault::usage) if the batch
  /// is not 1.
  void teach(const io::Label& label);
  /// How the next step runs.
  [[nodiscard]] Mode mode() const noexcept {
    if (!modes_.frozen) return options_.mode;
    return *modes_.frozen ? Mode::freeze : Mode::learn;
  }
  /// What commands change: to be put back if the step that they were given for is not run.
  struct BeforeCommands {
    Modes modes;
    std::vector<io::StreamState> streams;
    std::multimap<std::uint64_t, Command> waiting;
    std::deque<Obeyed> obeyed;
    std::uint64_t commands = 0;
  };
  /// The state before the commands that are due now; nothing if none is.
  [[nodiscard]] std::optional<BeforeCommands> before_commands();
  void put_back(const BeforeCommands& before);
  void set_modes(Modes modes);
  void obey(const Command& command);
  /// Moves the sequences that `command` names to their next files, or to where they begin.
  void move_sources(const Command& command);
  /// Obeys the commands that were given for the next step, and returns how many of at most `most`
  /// steps can be run before something else is to be done.
  std::uint64_t obey_due(std::uint64_t most);
  /// Obeys the posted commands.
  void obey_posted();
  void wait_while_paused(Callbacks callbacks, Moment moment);
  /// Puts into the block what the network is to see instead of the frames. Behind changed frames a
  /// sequence counts its frames anew, so that no prediction is scored on them or made of them.
  void change_frames(const FrameBlock& block, std::vector<io::StreamState>& states);
  /// The predicted frames of all sequences for step `step`, the next one.
  std::span<const std::uint8_t> predicted_for(std::uint64_t step);
  /// Keeps what the outputs `y` of all units predict for step `step`.
  void keep_predicted(std::uint64_t step, std::span<const float> outputs);
  /// Runs a block whose frames are there and have these labels, in the present modes, and lets the
  /// attached readout learn from it.
  void run_filled(const FrameBlock& block, std::vector<io::StreamState>& states,
                  std::span<const io::Label> labels);
  /// The newest frames of the first `sequences` sequences, of which those in the store are read.
  std::span<const std::uint8_t> last_frames(int sequences);
  /// Keeps the frames of the last step of `block`, or their indices in the store.
  void note_last_frames(const FrameBlock& block);
  /// Copies the last frames from the store to last_frames_, as far as they are there.
  void keep_last_frames();

  using StreamState = io::StreamState;

  Spec spec_;
  Connectome net_;
  AnyEngine engine_;
  std::string precision_;
  std::uint64_t seed_;
  std::string chosen_;
  Options options_;
  std::vector<StreamState> streams_;         // the run's places, one for each sequence
  std::vector<io::Position> end_positions_;  // the sources' positions at the end of the last `fit`
  std::vector<std::uint8_t> last_frames_;    // see `last_frames`
  std::vector<std::uint8_t> picture_;        // of a `step`, resized
  std::vector<float> predicted_;             // see `Stepped::prediction`
  bool starts_sequence_ = false;             // see `start_sequence`
  readout::Readout* readout_ = nullptr;      // see `attach`
  bool readout_follows_ = false;             // it is told labels before the steps run
  std::vector<std::uint32_t> last_stored_;   // their indices in the store, or not_stored
  io::Label last_label_;
  Modes modes_;
  std::multimap<std::uint64_t, Command> waiting_;  // by step, see `command_at`
  std::deque<Obeyed> obeyed_;
  std::uint64_t commands_ = 0;
  std::optional<std::uint64_t> allowed_;  // steps until the run pauses; none: it does not
  Feed* feed_ = nullptr;                  // of the current `fit`
  struct Predicted {
    std::uint64_t step = ~std::uint64_t{0};
    std::vector<std::uint8_t> frames;  // [batch][side][side][channels]
  };
  Predicted predicted_for_[2];  // by step modulo 2; kept while a sequence dreams
  std::vector<float> outputs_;  // of all units
  std::mutex post_mutex_;
  std::condition_variable posted_some_;
  std::vector<Command> posted_;
  std::atomic<bool> any_posted_ = false;
  Report report_;
  double engine_seconds_ = 0;  // seconds in the engine during the current `fit`
  double first_block_ = -1;    // those of them in its first block
  double source_bound_ = 0;    // seconds of blocks that waited for frames
  std::chrono::steady_clock::time_point counted_{};  // see `count_for_trace`
  std::optional<double> gpu_before_;                 // seconds that the GPU had computed before it
  bool resumed_ = false;  // streams_ come from a checkpoint, and the sources have not sought yet
  std::atomic<bool> stop_ = false;
};

}  // namespace pvm::inline v0

#if !defined(PVM_COMPILED)
#include <pvm/train/trainer_base-inl.hpp>
#endif
