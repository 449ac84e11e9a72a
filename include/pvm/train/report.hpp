// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reports where the time of a run went, from the file to the step.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <pvm/core/trace.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0 {

/// What a callback has done.
struct CallbackUsage {
  std::string name;         ///< of its type
  std::uint64_t calls = 0;  ///< of all its functions
  double seconds = 0;
};

/// The times and counts of one `fit`: the sums of the spans that a trace shows (see
/// core/trace.hpp). All times are seconds of wall time, except the stages'
/// `busy`, which is summed over threads.
struct Report {
  double seconds = 0;           ///< duration of the whole `fit`
  double engine = 0;            ///< spent in the engine; with a GPU, waiting for it
  std::optional<double> gpu{};  ///< the GPU's time for steps by its own clock, if any
  double engine_start = 0;      ///< ... in the engine's first block of steps
  double waiting = 0;           ///< spent waiting for frames from sources
  double starting = 0;          ///< ... until the first step's frames were there
  double source_bound = 0;      ///< duration of the blocks that waited for a noticeable time
  double other = 0;             ///< spent in callbacks and copying frames into blocks
  std::size_t peak_memory = 0;  ///< most bytes of the program in main memory at once
  std::uint64_t frames = 0;     ///< number of frames of all sequences
  std::uint64_t replayed = 0;   ///< how many of them came from the engine's store
  std::vector<io::StageUsage> stages{};    ///< the sources' stages, in the order frames pass them
  std::vector<CallbackUsage> callbacks{};  ///< in the order in which `fit` calls them

  /// Frames per second over the whole `fit`.
  [[nodiscard]] double rate() const {
    return seconds > 0 ? static_cast<double>(frames) / seconds : 0;
  }
  /// The fraction of the time during which the engine computed, 0 to 1.
  [[nodiscard]] double engine_share() const { return share(gpu.value_or(engine)); }
  /// `part` seconds as a fraction of the whole time, 0 to 1.
  [[nodiscard]] double share(double part) const {
    return seconds > 0 ? std::min(1.0, part / seconds) : 0;
  }
};

namespace detail {

inline std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
  return text;
}

/// The stage whose threads were busiest; null if the sources report no stages.
inline const io::StageUsage* busiest_stage(const Report& report) {
  const auto load = [](const io::StageUsage& stage) {
    return stage.busy / static_cast<double>(std::max<std::size_t>(1, stage.threads));
  };
  const auto most = std::max_element(
      report.stages.begin(), report.stages.end(),
      [&](const io::StageUsage& a, const io::StageUsage& b) { return load(a) < load(b); });
  return most == report.stages.end() || most->busy <= 0 ? nullptr : &*most;
}

/// The callback that took most of the time; null if there was none.
inline const CallbackUsage* slowest_callback(const Report& report) {
  const auto most = std::max_element(
      report.callbacks.begin(), report.callbacks.end(),
      [](const CallbackUsage& a, const CallbackUsage& b) { return a.seconds < b.seconds; });
  return most == report.callbacks.end() ? nullptr : &*most;
}

inline std::string source_is_bottleneck(const Report& report, const std::string& waiting) {
  const io::StageUsage* const stage = busiest_stage(report);
  const std::string name = stage == nullptr ? "the source" : "the stage '" + stage->name + "'";
  const double work =
      stage == nullptr
          ? 0
          : stage->busy / static_cast<double>(std::max<std::size_t>(1, stage->threads));
  if (stage != nullptr && work < 0.5 * (report.waiting - report.starting)) {
    return "The bottleneck is a lack of cores: the engine waited for frames " + waiting +
           " of the time, and " + name +
           ", the busiest, worked for less than half of that; fewer " +
           "programs beside this one, or fewer threads of the engine, would help.";
  }
  std::string cure = "a source that gives its frames faster";
  if (stage != nullptr && stage->threads > 1) {
    cure = "more cores, smaller pictures or decoding on a GPU";
  } else if (stage != nullptr) {
    cure = std::string(stage->name.starts_with("read") ? "a faster disk, " : "") +
           "frames that are easier to decode, or several files side by side (a batch)";
  }
  // False if no frames are kept, or there was no second pass.
  const bool replays = report.replayed > 0;
  return "The bottleneck is " + name + ": the engine waited for it " + waiting + " of the time; " +
         cure + " would help" +
         (replays ? ", and so would a longer run, or a larger frame cache if not all frames fit."
                  : ".");
}

}  // namespace detail

/// One sentence that names the bottleneck of the run and what would relieve it.
inline std::string bottleneck(const Report& report) {
  if (report.frames == 0) return "There is no bottleneck to name: no step was run.";
  const std::string engine = detail::percent(report.engine_share());
  const std::string waiting = detail::percent(report.share(report.waiting));
  constexpr double noticeable = 0.05, nearly_all = 0.9;
  // What later steps waited; and all steps that did. A source that is too slow keeps them waiting
  // all the time, however short each wait is; one whose frames are kept does so only in a first
  // pass.
  const double later = std::max(0.0, report.waiting - report.starting);
  const double by_source = std::max(later, report.source_bound);
  const double by_engine =
      std::max(0.0, report.seconds - report.starting - report.other - by_source);
  const double start = report.starting + (report.gpu ? report.engine_start : 0);
  const bool gpu_is_busy = report.gpu && report.engine_share() > nearly_all;
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, report.seconds < 1 ? "%.3f s" : "%.1f s", report.seconds);
  if (start > std::max({by_source, by_engine, report.other})) {
    return "The bottleneck is the start: " + detail::percent(report.share(start)) + " of the " +
           seconds + " went by until the first frames were there" +
           (report.gpu ? " and the GPU had begun" : "") + "; a longer run would say more.";
  }
  if (!gpu_is_busy && later > noticeable * report.seconds && by_source > by_engine &&
      by_source >= report.other) {
    return detail::source_is_bottleneck(report, waiting);
  }
  if (report.other > std::max(by_engine, by_source)) {
    const CallbackUsage* const most = detail::slowest_callback(report);
    const std::string name = most != nullptr && most->seconds > 0.5 * report.other
                                 ? ", above all " + most->name + " (" +
                                       detail::percent(report.share(most->seconds)) + ")"
                                 : "";
    return "The bottleneck is what happens beside the steps (" +
           detail::percent(report.share(report.other)) + " of the time)" + name +
           ": save, measure and draw less often.";
  }
  return "The bottleneck is the engine, which computed " + engine +
         " of the time: a faster device or a smaller network would help, faster decoding would "
         "not.";
}

/// The report as several lines of text: a table of the stages, the rate and the bottleneck.
inline std::string report_text(const Report& report) {
  std::string text;
  char line[200];
  std::snprintf(line, sizeof line, "%-20s %10s %10s %10s %8s %12s\n", "stage", "frames", "busy s",
                "waited s", "threads", "queue");
  text += line;
  for (const auto& stage : report.stages) {
    char queue[32] = "-";
    if (stage.capacity > 0) {
      std::snprintf(queue, sizeof queue, "%.1f of %zu",
                    stage.queued / static_cast<double>(std::max<std::uint64_t>(1, stage.frames)),
                    stage.capacity);
    }
    std::snprintf(line, sizeof line, "%-20s %10llu %10.2f %10.2f %8zu %12s\n", stage.name.c_str(),
                  static_cast<unsigned long long>(stage.frames), stage.busy, stage.waiting,
                  stage.threads, queue);
    text += line;
  }
  std::snprintf(line, sizeof line, "%-20s %10llu %10.2f %10.2f %8s %12s\n", "engine",
                static_cast<unsigned long long>(report.frames), report.engine, report.waiting, "-",
                "-");
  text += line;
  for (const CallbackUsage& callback : report.callbacks) {
    constexpr double shown = 0.005;  // of the time
    if (callback.seconds < shown * report.seconds) continue;
    std::snprintf(line, sizeof line, "%-20.60s %10s %10.2f %10s %8s %12s\n", callback.name.c_str(),
                  "-", callback.seconds, "-", "-", "-");
    text += line;
  }
  std::snprintf(line, sizeof line,
                "%.1f frames/s from end to end, %llu of %llu frames from the frame cache; the "
                "%s computed %s of %.*f s\n",
                report.rate(), static_cast<unsigned long long>(report.replayed),
                static_cast<unsigned long long>(report.frames), report.gpu ? "GPU" : "engine",
                detail::percent(report.engine_share()).c_str(), report.seconds < 1 ? 3 : 1,
                report.seconds);
  return text + line + bottleneck(report) + "\n";
}

/// The report as a JSON object: all its numbers, and the sentence.
inline std::string report_json(const Report& report) {
  std::string text = "{";
  const auto key = [&text](const char* name) {
    if (text.back() != '{' && text.back() != '[') text += ", ";
    text += "\"" + std::string(name) + "\": ";
  };
  const auto number = [&](const char* name, double value) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.9g", std::isfinite(value) ? value : 0.0);
    key(name);
    text += digits;
  };
  const auto count = [&](const char* name, std::uint64_t value) {
    key(name);
    text += std::to_string(value);
  };
  const auto words = [&](const char* name, const std::string& value) {
    key(name);
    text += trace::detail::json_string(value);
  };
  const auto begin = [&text] { text += text.back() == '[' ? "{" : ", {"; };
  number("seconds", report.seconds);
  count("frames", report.frames);
  count("replayed", report.replayed);
  number("frames_per_second", report.rate());
  number("engine", report.engine);
  number("engine_start", report.engine_start);
  if (report.gpu) number("gpu", *report.gpu);
  number("engine_share", report.engine_share());
  number("waiting", report.waiting);
  number("starting", report.starting);
  number("source_bound", report.source_bound);
  number("other", report.other);
  count("peak_memory", report.peak_memory);
  key("stages");
  text += '[';
  for (const io::StageUsage& stage : report.stages) {
    begin();
    words("name", stage.name);
    count("frames", stage.frames);
    number("busy", stage.busy);
    number("waiting", stage.waiting);
    count("threads", stage.threads);
    number("queue", stage.queued / static_cast<double>(std::max<std::uint64_t>(1, stage.frames)));
    count("capacity", stage.capacity);
    text += '}';
  }
  text += ']';
  key("callbacks");
  text += '[';
  for (const CallbackUsage& callback : report.callbacks) {
    begin();
    words("name", callback.name);
    count("calls", callback.calls);
    number("seconds", callback.seconds);
    text += '}';
  }
  text += ']';
  words("bottleneck", bottleneck(report));
  return text + "}";
}

}  // namespace pvm::inline v0
