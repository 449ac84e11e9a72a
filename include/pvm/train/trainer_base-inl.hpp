// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The bodies of trainer_base.hpp: the loop of `fit`, and what it shares with checkpoints.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <typeinfo>
#include <utility>
#include <vector>

#if defined(__GNUG__)
#include <cxxabi.h>
#endif

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/memory.hpp>
#include <pvm/core/trace.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/file_mark.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/usage.hpp>
#include <pvm/model/initial_weights.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/feed.hpp>
#include <pvm/train/report.hpp>
#include <pvm/train/trainer_base.hpp>
#include <pvm/train/trainer_modes-inl.hpp>

namespace pvm::inline v0 {

namespace detail {

/// The last component of a path, even if it ends in a slash.
inline std::string file_name_of(const std::string& name) {
  const std::filesystem::path path = name;
  const auto last = path.has_filename() ? path.filename() : path.parent_path().filename();
  return last.empty() ? name : last.string();
}

/// The next step at which the callback wants to be called. Throws Fault::usage if that step is not
/// ahead, since the run would never reach it.
inline std::uint64_t next_due(AnyCallback& callback, std::uint64_t step) {
  const std::uint64_t at = callback.next(step);
  if (at > step) return at;
  throw Error(Fault::usage, "a callback's next(" + std::to_string(step) + ") is " +
                                std::to_string(at) +
                                "; it must be a later step, or pvm::never for none");
}

PVM_INLINE std::string type_name(const std::type_info& type) {
  std::string name = type.name();
#if defined(__GNUG__)
  int fault = 0;
  char* const readable = abi::__cxa_demangle(type.name(), nullptr, nullptr, &fault);
  if (readable != nullptr) name = readable;
  std::free(readable);
#endif
  const std::size_t optional = name.find("Optionally<");
  if (optional != std::string::npos) {
    name = name.substr(name.find('<', optional) + 1);
    name = name.substr(0, name.rfind('>'));
  }
  const std::size_t arguments = name.find('<');
  const std::size_t colons = name.rfind("::", arguments);
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

/// Calls a function of a callback, and measures how long it takes.
template <class Call>
void measured(ScheduledCallback& scheduled, const Call& call) {
  trace::Span span(scheduled.callback->name().c_str());
  struct Add {  // also if it throws
    ScheduledCallback& to;
    trace::Span& span;
    ~Add() {
      to.seconds += span.end();
      ++to.calls;
    }
  } const add{scheduled, span};
  call();
}

inline void begin(std::span<ScheduledCallback> callbacks, const Moment& moment) {
  for (ScheduledCallback& scheduled : callbacks) {
    measured(scheduled, [&] { scheduled.callback->begin(moment); });
    scheduled.due = next_due(*scheduled.callback, moment.step);
  }
}

/// Adds `score` to that of each callback, and calls those that are due.
inline void call(std::span<ScheduledCallback> callbacks, Moment moment, const Score& score) {
  for (ScheduledCallback& scheduled : callbacks) {
    scheduled.score += score;
    if (scheduled.due != moment.step) continue;
    moment.score = std::exchange(scheduled.score, {});
    measured(scheduled, [&] { scheduled.callback->at(moment); });
    scheduled.due = next_due(*scheduled.callback, moment.step);
  }
}

/// Ends all callbacks, also if one of them fails: then throws the first failure.
inline void end(std::span<ScheduledCallback> callbacks, Moment moment, const Score& score) {
  std::exception_ptr failure;
  for (ScheduledCallback& scheduled : callbacks) {
    moment.score = scheduled.score;
    moment.score += score;
    try {
      measured(scheduled, [&] { scheduled.callback->end(moment); });
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// The first step at which a callback is due, at most `target`.
inline std::uint64_t next_event(std::span<const ScheduledCallback> callbacks,
                                std::uint64_t target) {
  for (const ScheduledCallback& scheduled : callbacks) target = std::min(target, scheduled.due);
  return target;
}

/// Records at the end of a `fit` the positions of the sources, which differ from the run's places
/// if frames came from the store.
struct RecordPositions {
  std::span<io::AnySource> streams;
  std::vector<io::Position>& end_positions;

  ~RecordPositions() {
    try {
      end_positions.clear();
      for (const io::AnySource& source : streams) end_positions.push_back(source.position());
    } catch (...) {  // no position: the sources count as moved
      end_positions.clear();
    }
  }
};

/// Lets sources stop waiting for frames during a `fit`, when it is asked to stop.
struct StopWaiting {
  StopWaiting(std::span<io::AnySource> sources, const std::atomic<bool>& asked) : streams(sources) {
    for (io::AnySource& source : streams) io::stop_when(source, &asked);
  }
  ~StopWaiting() {
    for (io::AnySource& source : streams) io::stop_when(source, nullptr);
  }
  StopWaiting(const StopWaiting&) = delete;
  StopWaiting& operator=(const StopWaiting&) = delete;

  std::span<io::AnySource> streams;
};

/// The Feed of the current `fit`, as long as there is one.
struct FeedOfFit {
  Feed*& place;
  FeedOfFit(Feed*& where, Feed& feed) : place(where) { place = &feed; }
  ~FeedOfFit() { place = nullptr; }
  FeedOfFit(const FeedOfFit&) = delete;
  FeedOfFit& operator=(const FeedOfFit&) = delete;
};

/// Sets a flag after some seconds, unless this object has been destroyed by then.
class SetLater {
 public:
  SetLater(std::atomic<bool>& flag, double seconds)
      : thread_([this, &flag, seconds] {
          std::unique_lock lock(mutex_);
          const auto wait = std::chrono::duration<double>(seconds);
          if (!over_.wait_for(lock, wait, [this] { return is_over_; })) flag.store(true);
        }) {}
  ~SetLater() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  SetLater(const SetLater&) = delete;
  SetLater& operator=(const SetLater&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;  // last, because it uses the others
};

/// Clears the stop request at the end of a `fit`, however it ends, so that it does not stop the
/// next one.
struct ClearStopRequest {
  std::atomic<bool>& stop;
  ~ClearStopRequest() { stop.store(false); }
};

}  // namespace detail

PVM_INLINE TrainerBase::TrainerBase(const Spec& spec, AnyEngine engine, std::string precision,
                                    std::uint64_t seed, Options options)
    : spec_(spec),
      net_(make_connectome(spec)),
      engine_(std::move(engine)),
      precision_(std::move(precision)),
      seed_(seed),
      options_(options) {
  modes_.sequences.resize(static_cast<std::size_t>(engine_.batch()));
  modes_.rates.resize(spec_.layer_shapes.size());
}

PVM_INLINE io::Checkpoint TrainerBase::checkpoint() {
  const trace::Span span("read the engine's state");
  auto streams = streams_;
  streams.resize(static_cast<std::size_t>(batch()));  // empty before the first `fit`
  io::Checkpoint all{spec_, engine_.save(), std::move(streams), precision_, options_.reduce, seed_};
  if (readout_ != nullptr) readout_->save(all.extras);
  all.modes = modes_.text();
  all.chosen = chosen_;
  return all;
}

PVM_INLINE void TrainerBase::restore(const io::Checkpoint& checkpoint) {
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
                                       "; continue with a batch of " + std::to_string(state.batch));
  }
  if (readout_ != nullptr && !checkpoint.extras.empty()) readout_->restore(checkpoint.extras);
  Modes modes{.sequences = std::vector<SequenceMode>(modes_.sequences.size()),
              .rates = std::vector<std::optional<float>>(modes_.rates.size())};
  if (state.resumable() && !checkpoint.modes.empty()) {
    try {
      modes.obey_all(checkpoint.modes, spec_.frame_side());
    } catch (const Error& error) {
      throw Error(Fault::checkpoint,
                  std::string("the checkpoint's modes are wrong: ") + error.what());
    }
    if (options_.mode == Mode::freeze) modes.frozen.reset();
    log(Severity::info, "the checkpoint's run was in these modes, and this one goes on in them: " +
                            checkpoint.modes);
  }
  engine_.restore(state);
  set_modes(std::move(modes));
  for (Predicted& predicted : predicted_for_) predicted = {};
  streams_ = checkpoint.streams;
  resumed_ = state.resumable();
  if (resumed_) seed_ = checkpoint.seed;
  chosen_ = checkpoint.chosen;
}

PVM_INLINE void TrainerBase::save(const std::filesystem::path& path) {
  io::make_directories_of(path);
  io::save_checkpoint(path, checkpoint());
}

PVM_INLINE std::span<const float> TrainerBase::Stepped::prediction() {
  std::vector<float>& predicted = trainer_->predicted_;
  if (!std::exchange(read_, true)) {
    predicted.resize(trainer_->frame_shape().size() * static_cast<std::size_t>(trainer_->batch()));
    trainer_->engine_.read_prediction(predicted);
  }
  return predicted;
}

PVM_INLINE Score TrainerBase::Stepped::score() { return trainer_->engine_.take_score(); }

PVM_INLINE TrainerBase::Stepped TrainerBase::step(std::span<const std::uint8_t> frames,
                                                  const io::Label& label) {
  const std::size_t size = frame_shape().size();
  const auto each = size * static_cast<std::size_t>(batch());
  if (frames.empty() || frames.size() % each != 0) {
    throw Error(Fault::usage, "step was given " + std::to_string(frames.size()) +
                                  " bytes, and a step takes " + std::to_string(each) + ": " +
                                  std::to_string(batch()) + " x " +
                                  std::to_string(spec_.frame_side()) + " x " +
                                  std::to_string(spec_.frame_side()) + " x " +
                                  std::to_string(spec_.input_channels));
  }
  const bool labelled = label.state != io::LabelState::unlabelled;
  if (labelled && readout_ == nullptr) {
    throw Error(Fault::usage,
                "step was given a label and nothing learns from it; attach a readout first");
  }
  // Frames of the program's own have no source. The first ones after those of a source, or of a
  // checkpoint with a source, begin a sequence.
  streams_.resize(static_cast<std::size_t>(batch()));
  for (StreamState& stream : streams_) {
    if (starts_sequence_ || !stream.source.empty()) stream = {};
  }
  starts_sequence_ = false;
  resumed_ = false;
  end_positions_.clear();
  for (std::size_t done = 0; done < frames.size();) {
    const std::size_t left = (frames.size() - done) / each;
    const auto limit = static_cast<std::uint64_t>(engine_.block_steps());
    const std::uint64_t most = obey_due(std::min<std::uint64_t>(left, limit));
    const FrameBlock block = engine_.stage(static_cast<int>(most));
    std::copy_n(frames.begin() + static_cast<std::ptrdiff_t>(done), block.pixels.size(),
                block.pixels.begin());
    for (std::size_t row = 0; row < block.scored.size(); ++row) {
      StreamState& stream = streams_[row % streams_.size()];
      block.scored[row] = stream.frames_since_start++ >= 2 ? 1 : 0;
    }
    done += block.pixels.size();
    std::vector<io::Label> labels(block.scored.size());
    if (done == frames.size()) labels[labels.size() - streams_.size()] = label;
    run_filled(block, streams_, labels);
  }
  return Stepped(*this);
}

PVM_INLINE void TrainerBase::attach(readout::Readout* readout) {
  if (readout_follows_) engine_.follow(nullptr);
  readout_ = readout;
  readout_follows_ = readout != nullptr && readout->follow(engine_);
}

PVM_INLINE void TrainerBase::start_new() {
  EngineState state;
  state.batch = batch();
  state.weights = initial_weights(net_.weights, seed_);
  engine_.restore(state);
}

PVM_INLINE FitResult TrainerBase::loop(std::span<io::AnySource> streams, std::uint64_t target,
                                       Callbacks callbacks) {
  if (streams.size() != static_cast<std::size_t>(batch())) {
    throw Error(Fault::usage, "a batch of " + std::to_string(batch()) + " needs as many streams, " +
                                  "but fit was given " + std::to_string(streams.size()) +
                                  "; io::deal makes them");
  }
  const detail::ClearStopRequest clear_stop_request{stop_};
  find_places(streams);
  const detail::RecordPositions record_positions{streams, end_positions_};
  const detail::StopWaiting stop_waiting{streams, stop_};
  keep_last_frames();  // because Feed empties the store
  Feed feed(streams, frame_shape(), engine_, options_.cache_bytes);
  const detail::FeedOfFit feed_of_fit(feed_, feed);
  const auto started = std::chrono::steady_clock::now();
  Moment moment{*this, step(), step(), target};
  const auto update_moment = [&] {
    moment.step = step();
    moment.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  };
  detail::begin(callbacks, moment);
  engine_seconds_ = source_bound_ = 0;
  first_block_ = -1;
  gpu_before_ = engine_.device_seconds();
  try {
    while (moment.step < target && !stop_.load()) {
      obey_posted();
      wait_while_paused(callbacks, moment);
      if (stop_.load()) break;
      const std::uint64_t event = detail::next_event(callbacks, target);
      const std::uint64_t before = moment.step;
      run_block(feed, std::min(event - before, allowed_.value_or(never)));
      update_moment();
      if (allowed_) *allowed_ -= std::min(*allowed_, moment.step - before);
      if (moment.step == event) {
        const Score score = take_score();
        update_moment();  // again, because take_score has waited for the engine
        detail::call(callbacks, moment, score);
      }
    }
    if (moment.step < target) run_last_steps(feed, callbacks, moment, 0.5);
  } catch (...) {
    // If a source has failed, end the run properly first, so that callbacks can save what has
    // been learned.
    if (!feed.source_failed() || moment.step == moment.begin) throw;
    moment.cut_short = true;
    const Score score = take_score();
    report_ = make_report(feed, moment, callbacks);
    detail::end(callbacks, moment, score);
    throw;
  }
  const Score score = take_score();
  update_moment();
  report_ = make_report(feed, moment, callbacks);
  moment.cut_short = moment.step < target;
  detail::end(callbacks, moment, score);
  const FitResult result{moment.step, moment.cut_short, moment.seconds, feed.skipped()};
  update_moment();
  report_ =
      make_report(feed, moment, callbacks);  // again, because callbacks may have saved for long
  return result;
}

PVM_INLINE void TrainerBase::run_last_steps(Feed& feed, Callbacks callbacks, Moment& moment,
                                            double patience) {
  bool wanted = false;
  for (detail::ScheduledCallback& scheduled : callbacks) {
    if (scheduled.callback->before_last(moment)) wanted = true;
  }
  if (!wanted) return;
  allowed_.reset();
  stop_.store(false);  // else sources would not wait at all
  const detail::SetLater ask_again(stop_, patience);
  const std::uint64_t end = std::min(moment.target, moment.step + 2);
  while (moment.step < end && !stop_.load()) {
    run_block(feed, end - moment.step);
    moment.step = step();
  }
  stop_.store(true);
}

PVM_INLINE Score TrainerBase::take_score() {
  trace::Span span("wait for the engine");
  const Score score = engine_.take_score();
  engine_seconds_ += span.end();
  return score;
}

PVM_INLINE Report TrainerBase::make_report(const Feed& feed, const Moment& moment,
                                           Callbacks callbacks) const {
  Report report;
  feed.add_to(report);
  report.seconds = moment.seconds;
  report.engine = engine_seconds_;
  if (const auto now = moment.trainer.engine_.device_seconds()) {
    report.gpu = *now - gpu_before_.value_or(0);
  }
  report.frames = (moment.step - moment.begin) * static_cast<std::uint64_t>(moment.trainer.batch());
  report.peak_memory = peak_resident_bytes();
  report.engine_start = std::max(0.0, first_block_);
  report.source_bound = source_bound_;
  for (const detail::ScheduledCallback& scheduled : callbacks) {
    if (scheduled.calls == 0) continue;
    report.callbacks.push_back({scheduled.callback->name(), scheduled.calls, scheduled.seconds});
  }
  report.other = std::max(0.0, report.seconds - report.engine - report.waiting);
  return report;
}

PVM_INLINE Report TrainerBase::report_so_far(const Moment& moment) const {
  return feed_ == nullptr ? report_ : make_report(*feed_, moment, {});
}

PVM_INLINE void TrainerBase::find_places(std::span<io::AnySource> streams) {
  streams_.resize(streams.size());
  std::map<std::string, std::string> marks;  // many streams may read one file
  std::set<std::string> said;                // files whose change has been logged
  const auto marks_of = [&marks](const std::vector<std::string>& files) {
    std::vector<std::string> all;
    for (const std::string& file : files) {
      const auto [mark, is_new] = marks.try_emplace(file);
      if (is_new) mark->second = io::file_mark(file);
      all.push_back(mark->second);
    }
    return io::join_marks(all);
  };
  for (std::size_t b = 0; b < streams.size(); ++b) {
    StreamState& state = streams_[b];
    const auto source = io::detail::as_saved(detail::file_name_of(streams[b].name()));
    const std::vector<std::string> files = io::files(streams[b]);
    const std::string mark = marks_of(files);
    if (state.source != source) {
      if (resumed_ && !state.source.empty()) {  // empty: the checkpoint's run had no frames yet
        log(Severity::warning, "the checkpoint's frames came from " + quote(state.source) + "; " +
                                   quote(source) + " is read from its beginning");
      }
      state = {streams[b].position(), 0, source, mark};
    } else if (resumed_) {
      for (const std::size_t i : io::differing_marks(state.mark, mark)) {
        if (!said.insert(files[i]).second) continue;
        log(Severity::warning,
            quote(detail::file_name_of(files[i])) + " is not the file that the checkpoint's run " +
                "read, though it has its name; the run goes on at the same place in it");
      }
      state.mark = mark;
      streams[b].seek(state.position);
    } else if (b >= end_positions_.size() || streams[b].position() != end_positions_[b]) {
      state.position = streams[b].position();  // the program has moved the source
      state.frames_since_start = 0;
    }
  }
  resumed_ = false;
}

PVM_INLINE void TrainerBase::run_block(Feed& feed, std::uint64_t most) {
  const auto limit = static_cast<std::uint64_t>(engine_.block_steps());
  const std::optional<BeforeCommands> before = before_commands();
  most = obey_due(most);
  if (paused()) return;
  if (feed.memory_is_short()) {
    keep_last_frames();
    feed.give_way();
  }
  trace::Span staging("wait for room");
  const bool one_by_one = readout_ != nullptr && !readout_follows_;
  const auto longest = one_by_one ? 1 : limit;  // it learns from every frame
  const FrameBlock room = engine_.stage(static_cast<int>(std::min(most, longest)));
  constexpr double short_time = 20e-6;
  const double staged = staging.end(short_time);
  engine_seconds_ += staged;
  auto states = streams_;
  const double waited_before = first_block_ < 0 ? 0 : feed.waiting();
  const int steps = feed.fill(room, states);
  if (steps == 0) {  // asked to stop
    if (before) put_back(*before);
    return;
  }
  const FrameBlock block = part(room, 0, steps);
  trace::Span running("steps", "steps", steps);
  for (const std::uint64_t flow : feed.flows()) trace::pass_flow(flow, true);
  run_filled(block, states, feed.labels().first(block.scored.size()));
  const double ran = running.end();
  engine_seconds_ += ran;
  const double waited = feed.waiting() - (first_block_ < 0 ? feed.starting() : waited_before);
  constexpr double noticeable = 0.05;  // of the block's time
  if (waited > noticeable * (waited + staged + ran)) source_bound_ += waited + staged + ran;
  if (first_block_ < 0) first_block_ = ran;
  count_for_trace(feed);
  streams_ = std::move(states);
}

PVM_INLINE void TrainerBase::count_for_trace(const Feed& feed) {
  if (!trace::on()) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - counted_ < std::chrono::milliseconds(10)) return;
  counted_ = now;
  trace::counter("frames read ahead", static_cast<double>(trace::frames_ready()));
  trace::counter("frame cache (MB)", static_cast<double>(feed.cached_bytes()) / 1e6);
  trace::counter("resident memory (MB)", static_cast<double>(resident_bytes()) / 1e6);
  if (const std::size_t bytes = engine_.device_memory(); bytes > 0) {
    trace::counter("GPU memory (MB)", static_cast<double>(bytes) / 1e6);
  }
}

PVM_INLINE void TrainerBase::teach(const io::Label& label) {
  const bool dreams = modes_.sequences.front().sight == Sight::dream;
  if (label.state == io::LabelState::unlabelled || dreams) return;
  if (batch() != 1) {
    throw Error(Fault::usage, "there is a label and a batch of " + std::to_string(batch()) +
                                  "; a readout learns from a batch of 1");
  }
  readout_->at_step(step() - 1);
  readout_->observe(hidden(), last_frame(), label);
}

PVM_INLINE std::span<const std::uint8_t> TrainerBase::last_frames(int sequences) {
  if (last_frames_.empty()) return {};
  const std::size_t size = frame_shape().size();
  const std::span all(last_frames_.data(), size * static_cast<std::size_t>(sequences));
  for (std::size_t b = 0; b < static_cast<std::size_t>(sequences); ++b) {
    if (last_stored_[b] == not_stored) continue;
    engine_.read_frame(last_stored_[b], all.subspan(b * size, size));
  }
  return all;
}

PVM_INLINE void TrainerBase::note_last_frames(const FrameBlock& block) {
  const auto sequences = static_cast<std::size_t>(batch());
  const std::size_t first = block.scored.size() - sequences;
  const std::size_t size = frame_shape().size();
  last_frames_.resize(sequences * size);
  last_stored_.assign(sequences, not_stored);
  for (std::size_t b = 0; b < sequences; ++b) {
    if (!block.stored.empty()) last_stored_[b] = block.stored[first + b];
    if (last_stored_[b] != not_stored) continue;
    std::copy_n(block.pixels.data() + (first + b) * size, size, last_frames_.data() + b * size);
  }
}

PVM_INLINE void TrainerBase::keep_last_frames() {
  static_cast<void>(last_frames());
  std::fill(last_stored_.begin(), last_stored_.end(), not_stored);
}

}  // namespace pvm::inline v0
