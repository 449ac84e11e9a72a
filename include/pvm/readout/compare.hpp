// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Compares trackers on labelled clips: a tracker beside what any tracker must beat.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/initial_weights.hpp>
#include <pvm/readout/clips.hpp>
#include <pvm/readout/measures.hpp>
#include <pvm/readout/tracker.hpp>

namespace pvm::inline v0::readout {

/// A row of a comparison.
struct Compared {
  std::string name;
  TrackingScore score;     ///< of all test clips together
  double auc_error = 0;    ///< standard error of the AUC over the clips that have the object
  double fit_seconds = 0;  ///< to learn from the training clips, the network's steps included
  double frames_per_second = 0;
};

/// A tracker for a comparison: `begin` is called for each clip, then `track` for each of its
/// frames.
struct Contestant {
  std::function<void(const Clip&)> begin;
  std::function<std::optional<io::Box>(const Clip&, std::size_t)> track;
};

/// Runs `contestant` on the test clips.
inline Compared run_contestant(const std::string& name, std::span<const Clip> test,
                               const Contestant& contestant) {
  Compared row;
  row.name = name;
  std::vector<double> of_clips;
  std::size_t frames = 0;
  const auto started = std::chrono::steady_clock::now();
  for (const Clip& clip : test) {
    TrackingScore score;
    if (contestant.begin) contestant.begin(clip);
    for (std::size_t i = 0; i < clip.size(); ++i) {
      score.add(clip.labels[i], contestant.track(clip, i), clip.shape.width);
    }
    frames += clip.size();
    if (score.present() > 0) of_clips.push_back(score.auc());
    row.score += score;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  row.frames_per_second = static_cast<double>(frames) / std::max(1e-9, seconds.count());
  double mean = 0, squares = 0;
  const auto n = static_cast<double>(of_clips.size());
  for (const double auc : of_clips) mean += auc / n;
  for (const double auc : of_clips) squares += (auc - mean) * (auc - mean);
  if (n > 1) row.auc_error = std::sqrt(squares / (n - 1) / n);
  return row;
}

/// Lets a tracker learn from the training clips, and runs it on the test clips.
inline Compared run_tracker(const std::string& name, Tracker& tracker, std::span<const Clip> train,
                            std::span<const Clip> test) {
  const auto started = std::chrono::steady_clock::now();
  for (const Clip& clip : train) {
    tracker.reset();
    for (std::size_t i = 0; i < clip.size(); ++i) {
      try {
        tracker.learn(clip.frame(i), clip.labels[i]);
      } catch (const Error& error) {  // a wrong label: say whose
        throw Error(error.fault(),
                    quote(clip.name) + ", frame " + std::to_string(i) + ": " + error.what());
      }
    }
  }
  tracker.solve();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  Compared row = run_contestant(name, test,
                                {[&](const Clip&) { tracker.reset(); },
                                 [&](const Clip& clip, std::size_t i) -> std::optional<io::Box> {
                                   const Found found = tracker.track(clip.frame(i));
                                   return found.present ? std::optional(found.box) : std::nullopt;
                                 }});
  row.fit_seconds = train.empty() ? 0 : seconds.count();
  return row;
}

/// The trackers that look at no picture: the first true box for ever, a box of a fifth of the
/// frame's sides in its centre, and the median box of the training clips.
inline std::vector<Compared> run_null_trackers(std::span<const Clip> train,
                                               std::span<const Clip> test) {
  const auto always = [&](const char* name, const std::optional<io::Box>& box) {
    return run_contestant(name, test, {{}, [&](const Clip&, std::size_t) { return box; }});
  };
  std::optional<io::Box> first;
  std::vector<Compared> rows;
  rows.push_back(run_contestant("null: the first box", test,
                                {[&](const Clip&) { first.reset(); },
                                 [&](const Clip& clip, std::size_t i) {
                                   const io::Label& label = clip.labels[i];
                                   if (!first && label.state == io::LabelState::present)
                                     first = label.box;
                                   return first;
                                 }}));
  const auto side = static_cast<float>(test.empty() ? 0 : test.front().shape.width);
  rows.push_back(always("null: a box in the centre",
                        io::Box{0.4F * side, 0.4F * side, 0.2F * side, 0.2F * side}));
  std::vector<float> numbers[4];
  for (const Clip& clip : train) {
    for (const io::Label& label : clip.labels) {
      if (label.state != io::LabelState::present) continue;
      const float box[] = {label.box.x, label.box.y, label.box.width, label.box.height};
      for (int k = 0; k < 4; ++k) numbers[k].push_back(box[k]);
    }
  }
  if (numbers[0].empty()) return rows;
  float median[4];
  for (int k = 0; k < 4; ++k) {
    const auto middle = numbers[k].begin() + static_cast<std::ptrdiff_t>(numbers[k].size() / 2);
    std::nth_element(numbers[k].begin(), middle, numbers[k].end());
    median[k] = *middle;
  }
  rows.push_back(
      always("null: the median training box", io::Box{median[0], median[1], median[2], median[3]}));
  return rows;
}

/// The ridge readout that has weights for each position.
inline TrackerOptions each_position(bool hidden, bool pixels) {
  TrackerOptions options;
  options.ridge = {{.hidden = hidden, .pixels = pixels}, false, 0.1};
  return options;
}

/// The weights of a network of this spec that has learned nothing: those of a new run.
inline io::Checkpoint untrained(const Spec& spec, std::uint64_t seed) {
  io::Checkpoint start;
  start.spec = spec;
  start.state.weights = initial_weights(make_connectome(spec).weights, seed);
  return start;
}

/// Compares the readouts on `network`, all trained on the same clips. `seed`: of the untrained
/// network. `each`: called with each row when it is known. Throws Error (Fault::usage) if there are
/// no test clips, or no training clip has the object.
inline std::vector<Compared> compare_readouts(
    const io::Checkpoint& network, std::span<const Clip> train, std::span<const Clip> test,
    BackendChoice backend = BackendChoice::host, int threads = 0, std::uint64_t seed = 0,
    const std::function<void(const Compared&)>& each = {}) {
  std::size_t labelled = 0;
  for (const Clip& clip : test) labelled += clip.size() - clip.count(io::LabelState::unlabelled);
  if (labelled == 0) throw Error(Fault::usage, "no frame of the test clips has a label");
  std::vector<Compared> rows;
  const auto add = [&](Compared row) {
    if (each) each(row);
    rows.push_back(std::move(row));
  };
  for (Compared& row : run_null_trackers(train, test)) add(std::move(row));
  const auto readout = [&](const char* name, const io::Checkpoint& of, TrackerOptions options) {
    options.backend = backend;
    options.threads = threads;
    Tracker tracker(of, options);
    add(run_tracker(name, tracker, train, test));
  };
  TrackerOptions shared_pixels;
  shared_pixels.ridge = {{.pixels = true}, true, 0.001};
  const io::Checkpoint start = untrained(network.spec, seed);
  readout("pixels, weights for each position", network, each_position(false, true));
  readout("pixels, shared weights", network, shared_pixels);
  readout("hidden values", network, each_position(true, false));
  readout("hidden values + pixels", network, each_position(true, true));
  readout("the same, network untrained", start, each_position(true, true));
  readout("colours, shared weights (the default)", network, {});
  return rows;
}

/// The rows as a table of text.
inline std::string comparison_text(std::span<const Compared> rows) {
  std::string text =
      "tracker                                  AUC  +-     precision  presence  true neg.  "
      "accuracy  "
      " fit s  frames/s\n";
  for (const Compared& row : rows) {
    char line[200];
    std::snprintf(line, sizeof line, "%-38s %.3f %.3f %10.3f %9.3f %10.3f %9.3f %7.2f %9.0f\n",
                  row.name.c_str(), row.score.auc(), row.auc_error, row.score.precision(),
                  row.score.presence(), row.score.true_negative_rate(), row.score.accuracy(),
                  row.fit_seconds, row.frames_per_second);
    text += line;
  }
  return text;
}

}  // namespace pvm::inline v0::readout
