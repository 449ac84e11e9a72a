// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Short trials of a run before it begins. A trial has an engine and sources of its own, so that
/// the run itself has the bits that it has without trials.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/clip.hpp>
#include <pvm/io/deal.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/train/precisions.hpp>
#include <pvm/train/trainer.hpp>
#include <pvm/train/trial_stop.hpp>

namespace pvm::inline v0 {

using Clips = std::vector<std::shared_ptr<const io::Clip>>;

/// The frames that trials see: of each file its first ones, at most `most` together, decoded once.
/// Files that cannot be read are left out. Throws Fault::source if none can be.
inline Clips read_trial_clips(const std::vector<io::Opener>& files, io::FrameShape shape,
                              std::size_t most = 2000) {
  constexpr std::size_t least_of_a_file = 50;
  const std::size_t used = std::min(files.size(), std::max<std::size_t>(1, most / least_of_a_file));
  Clips clips;
  std::optional<Error> failure;
  for (std::size_t i = 0; i < used; ++i) {
    try {
      io::AnySource source = files[i * files.size() / used]();
      clips.push_back(io::read_clip(source, shape, most / used));
    } catch (const Error& error) {
      if (error.fault() != Fault::source) throw;
      failure = error;
    }
  }
  if (clips.empty() && failure) throw *failure;
  if (clips.empty()) throw Error(Fault::usage, "trials need frames; name a source");
  return clips;
}

/// What a run is that trials are made of.
struct TrialRun {
  Spec spec;
  TrainerOptions options;  ///< the run's
  std::string precision = "fp32";
  Clips clips;
  const io::Checkpoint* start = nullptr;  ///< weights that it begins with, if it has some
  TrialStop* stop = nullptr;              ///< ends the trials, if somebody may want that
};

namespace detail {

/// Drops all messages during its lifetime: what an engine says of itself is of no interest in a
/// trial.
class QuietLog {
 public:
  QuietLog() : sink_(exchange({})) {}
  ~QuietLog() { exchange(std::move(sink_)); }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;

 private:
  static LogSink exchange(LogSink sink) {
    LogState& state = log_state();
    const std::lock_guard lock(state.mutex);
    std::swap(state.sink, sink);
    return sink;
  }

  LogSink sink_;
};

/// The streams of a batch that play the clips, as the run's play its files.
inline std::vector<io::AnySource> play(const Clips& clips, int batch) {
  std::vector<io::Opener> openers;
  for (const auto& clip : clips) {
    openers.push_back([clip]() -> io::AnySource { return io::ClipPlayer(clip); });
  }
  return io::deal(openers, static_cast<std::size_t>(batch));
}

/// Calls work(trainer, streams) with a trainer of `run` that learns at `rate` and its frames.
/// Throws what the trainer's constructor and `work` throw; io::Stopped if the run's `stop` asks for
/// an end.
template <class Backend, class Work>
void try_run(const TrialRun& run, double rate, Work&& work) {
  const QuietLog quiet;
  TrainerOptions options = run.options;
  options.mode = Mode::learn;
  with_precision(run.precision, [&]<class Precision>() {
    std::optional<Trainer<Precision, dynamic, RuntimeNetwork, Backend>> trainer;
    const Spec spec = at_constant_rate(run.spec, rate);
    if (run.start == nullptr) {
      trainer.emplace(spec, options);
    } else {
      io::Checkpoint start = *run.start;
      start.spec = spec;
      trainer.emplace(start, options);
    }
    auto streams = play(run.clips, options.batch);
    const TrialStop::Stops stops(run.stop, *trainer);
    work(static_cast<TrainerBase&>(*trainer), streams);
  });
  if (run.stop != nullptr && run.stop->requested()) throw io::Stopped{};
}

}  // namespace detail

}  // namespace pvm::inline v0
