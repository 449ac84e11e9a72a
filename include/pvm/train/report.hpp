// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reports where the time of a run went, from the file to the step.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <pvm/io/usage.hpp>

namespace pvm::inline v0 {

/// The times and counts of one `fit`. All times are seconds of wall time, except the stages'
/// `busy`, which is summed over threads.
struct Report {
  double seconds = 0;                    ///< duration of the whole `fit`
  double engine = 0;                     ///< spent in the engine; with a GPU, waiting for it
  std::optional<double> gpu{};           ///< the GPU's time for steps by its own clock, if any
  double waiting = 0;                    ///< spent waiting for frames from sources
  double other = 0;                      ///< spent in callbacks and copying frames into blocks
  std::uint64_t frames = 0;              ///< number of frames of all sequences
  std::uint64_t replayed = 0;            ///< how many of them came from the engine's store
  std::vector<io::StageUsage> stages{};  ///< the sources' stages, in the order frames pass them

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

}  // namespace detail

/// One sentence that names the bottleneck of the run and what would relieve it.
inline std::string bottleneck(const Report& report) {
  const std::string engine = detail::percent(report.engine_share());
  const std::string waiting = detail::percent(report.share(report.waiting));
  if (report.waiting <= 0.05 * report.seconds || report.waiting < report.other) {
    if (report.other > std::max(report.engine, report.waiting)) {
      return "The bottleneck is what happens beside the steps (" +
             detail::percent(report.share(report.other)) +
             " of the time): save, measure and draw less often.";
    }
    return "The bottleneck is the engine, which computed " + engine +
           " of the time: a faster device or a smaller network would help, faster decoding would "
           "not.";
  }
  const io::StageUsage* const stage = detail::busiest_stage(report);
  const std::string name = stage == nullptr ? "the source" : "the stage '" + stage->name + "'";
  std::string cure = "a source that gives its frames faster";
  if (stage != nullptr && stage->threads > 1) {
    cure = "more cores, smaller pictures or decoding on a GPU";
  } else if (stage != nullptr) {
    cure = std::string(stage->name == "read" ? "a faster disk, " : "") +
           "frames that are easier to decode, or several files side by side (a batch)";
  }
  // False if no frames are kept, or there was no second pass.
  const bool replays = report.replayed > 0;
  return "The bottleneck is " + name + ": the engine waited for it " + waiting + " of the time; " +
         cure + " would help" +
         (replays ? ", and so would a longer run, or a larger frame cache if not all frames fit."
                  : ".");
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
  std::snprintf(line, sizeof line,
                "%.1f frames/s from end to end, %llu of %llu frames from the frame cache; the "
                "%s computed %s of %.1f s\n",
                report.rate(), static_cast<unsigned long long>(report.replayed),
                static_cast<unsigned long long>(report.frames), report.gpu ? "GPU" : "engine",
                detail::percent(report.engine_share()).c_str(), report.seconds);
  return text + line + bottleneck(report) + "\n";
}

}  // namespace pvm::inline v0
