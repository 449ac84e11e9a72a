// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The frames that wait for a step, and which of them come next. Knows nothing of threads.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <future>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <pvm/infer/batch_policy.hpp>
#include <pvm/infer/forward.hpp>
#include <pvm/infer/gpu_values.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0 {

/// What the network makes of a frame.
struct FrameResult {
  std::uint64_t frame = 0;  ///< its number in the stream, from 0
  /// Of the frame two steps ahead, [side][side][channels] in [0, 1]; empty if not asked for.
  std::vector<float> prediction;
  std::vector<float> hidden;  ///< [units][hidden]; empty if not asked for
  GpuValues gpu_prediction;   ///< these two instead, with PredictorOptions::results_on_gpu
  GpuValues gpu_hidden;
  std::vector<float> heat;     ///< the readout's, square; empty without one
  double confidence = 0;       ///< that the readout's object is present: 0 to 1
  std::optional<io::Box> box;  ///< where it is, in pixels of the network's frame, if it is present
  double latency = 0;          ///< seconds from `submit` to this result
  int batch = 0;               ///< how many frames shared the step
};

namespace infer {

using Clock = std::chrono::steady_clock;

/// A frame that waits.
struct Waiting {
  std::vector<std::uint8_t> frame;
  Priority priority = Priority::normal;
  Clock::time_point since;
  std::uint64_t order = 0;  ///< in which frames came, of all streams
  std::promise<FrameResult> promise;
  ArrivingFrame gpu_frame{};                 ///< instead of `frame`, of one in the memory of a GPU
  GpuValues gpu_prediction{}, gpu_hidden{};  ///< room for results that stay there
};

/// A stream as the scheduler sees it.
struct StreamWork {
  StreamPast past;
  std::deque<Waiting> waiting;
  std::uint64_t frames = 0;  ///< frames that were submitted
  std::uint64_t done = 0;    ///< frames that have been in a step
  /// Where it stands in the FrameQueue.
  struct Place {
    Priority urgency = Priority::normal;
    std::uint64_t order = 0;
  };
  std::optional<Place> place;
  bool busy = false;                 ///< a frame of it is in the step that runs
  std::atomic<bool> closed = false;  ///< no frame will come any more
  std::exception_ptr broken;         ///< why its past is lost, if it is

  /// A frame cannot overtake another of its stream, so it lends its urgency to all before it.
  [[nodiscard]] Priority urgency() const {
    return std::max_element(
               waiting.begin(), waiting.end(),
               [](const Waiting& a, const Waiting& b) { return a.priority < b.priority; })
        ->priority;
  }
};

/// The streams that have a frame and are in no step, the next first: by urgency, then by age.
class FrameQueue {
 public:
  /// `stream` is ready, or no longer; or its urgency has changed.
  void update(StreamWork& stream) {
    if (stream.place) ready_.erase({*stream.place, &stream});
    stream.place.reset();
    if (stream.busy || stream.waiting.empty()) return;
    stream.place = {stream.urgency(), stream.waiting.front().order};
    ready_.insert({*stream.place, &stream});
  }

  [[nodiscard]] bool empty() const noexcept { return ready_.empty(); }

  /// The time at which a step should begin, as things are; nullopt if nothing waits. `streams`: how
  /// many streams are open.
  [[nodiscard]] std::optional<Clock::time_point> due(const BatchPolicy& policy,
                                                     std::size_t streams) const {
    if (ready_.empty()) return std::nullopt;
    const bool full = ready_.size() >= static_cast<std::size_t>(policy.most);
    const bool critical = ready_.begin()->place.urgency == Priority::critical;
    if (full || critical || ready_.size() >= streams) return Clock::time_point::min();
    Clock::time_point oldest = Clock::time_point::max();
    for (const Entry& entry : ready_) {
      oldest = std::min(oldest, entry.stream->waiting.front().since);
    }
    return oldest + policy.wait;
  }

  /// Takes the streams of the next step, at most `most`.
  std::vector<StreamWork*> take(std::size_t most) {
    std::vector<StreamWork*> taken;
    while (!ready_.empty() && taken.size() < most) {
      taken.push_back(ready_.begin()->stream);
      taken.back()->place.reset();
      ready_.erase(ready_.begin());
    }
    return taken;
  }

 private:
  struct Entry {
    StreamWork::Place place;
    StreamWork* stream;

    bool operator<(const Entry& other) const {
      if (place.urgency != other.place.urgency) return place.urgency > other.place.urgency;
      return place.order < other.place.order;
    }
  };

  std::set<Entry> ready_;
};

}  // namespace infer

}  // namespace pvm::inline v0
