// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The commands `pvm track` and `pvm evaluate`.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pvm/io/atomic_file.hpp>
#include <pvm/io/chart.hpp>
#include <pvm/io/film.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/original.hpp>
#include <pvm/pvm.hpp>
#include <pvm/readout/compare.hpp>
#include <pvm/readout/plot.hpp>
#include <pvm/readout/tracker.hpp>

namespace readout_commands {

/// The values of the options of both commands.
struct Options {
  std::string load, spec, file, out, save, film, readout = "colours", backend = "auto", json, plot;
  std::vector<std::string> train, test;
  std::int64_t frames = 0, seed = 0, threads = 0;
  bool quiet = false;
};

[[noreturn]] inline void refuse(const std::string& sentence) {
  throw pvm::Error(pvm::Fault::usage, sentence);
}

inline pvm::BackendChoice backend_of(const Options& o) {
  const std::map<std::string, pvm::BackendChoice> backends = {
      {"auto", pvm::BackendChoice::automatic},
      {"cuda", pvm::BackendChoice::cuda},
      {"host", pvm::BackendChoice::host}};
  const auto found = backends.find(o.backend);
  if (found == backends.end()) {
    refuse("--backend " + pvm::quote(o.backend) + " is unknown; allowed: auto, cuda, host");
  }
  return found->second;
}

inline pvm::TrackerOptions tracker_options(const Options& o) {
  pvm::TrackerOptions options;
  if (o.readout == "hidden") {
    options = pvm::readout::each_position(true, true);
  } else if (o.readout == "pixels") {
    options = pvm::readout::each_position(false, true);
  } else if (o.readout != "colours") {
    refuse("--readout " + pvm::quote(o.readout) + " is unknown; allowed: colours, hidden, pixels");
  }
  options.backend = backend_of(o);
  options.threads = static_cast<int>(o.threads);
  return options;
}

inline pvm::io::Checkpoint network_of(const Options& o) {
  if (o.load.empty()) refuse("there is no network; name a checkpoint with -L (see --help)");
  pvm::Spec spec;
  if (!o.spec.empty()) spec = pvm::load_spec(o.spec);
  auto network = pvm::io::load_any_checkpoint(o.load, o.spec.empty() ? nullptr : &spec);
  network.modes.clear();  // of the run: a tracker sees frames, whatever that did
  return network;
}

/// Reads the clips of all paths; a directory that holds clips counts for all of them.
inline std::vector<pvm::readout::Clip> read_clips(const std::vector<std::string>& paths,
                                                  const pvm::io::FrameShape& shape) {
  std::vector<pvm::readout::Clip> clips;
  for (const std::string& path : paths) {
    std::error_code ignored;
    std::vector<std::string> files = {path};
    if (std::filesystem::is_directory(path, ignored)) files = pvm::io::find_dataset(path, "");
    for (const std::string& file : files) {
      clips.push_back(pvm::readout::read_clip(pvm::io::open_source(file), shape));
    }
  }
  return clips;
}

/// Refuses outputs that are files that are read.
inline void check_output(const char* option, const std::string& output,
                         std::vector<std::string> inputs) {
  if (output.empty()) return;
  for (const std::string& input : inputs) {
    std::error_code ignored;
    if (input.empty() || !std::filesystem::equivalent(output, input, ignored)) continue;
    refuse(option + (" " + pvm::quote(output)) + " is a file that is read; choose another name");
  }
  if (const auto why = pvm::io::why_not_writable(output); !why.empty()) {
    refuse(option + (" " + pvm::quote(output)) + " cannot be written: " + why);
  }
}

inline std::vector<std::string> inputs_of(const Options& o) {
  std::vector<std::string> inputs = {o.load, o.spec, o.file};
  inputs.insert(inputs.end(), o.train.begin(), o.train.end());
  inputs.insert(inputs.end(), o.test.begin(), o.test.end());
  return inputs;
}

/// Lets `tracker` learn a frame; an error says which it was.
inline void learn_frame(pvm::Tracker& tracker, const pvm::readout::Clip& clip, std::size_t i) {
  try {
    tracker.learn(clip.frame(i), clip.labels[i]);
  } catch (const pvm::Error& error) {
    throw pvm::Error(error.fault(),
                     pvm::quote(clip.name) + ", frame " + std::to_string(i) + ": " + error.what());
  }
}

/// The tracker of `-L`: as it was saved, or a new one that learns from the clips of `--train`.
inline pvm::Tracker make_tracker(const Options& o) {
  pvm::io::Checkpoint network = network_of(o);
  if (o.train.empty()) {
    if (!o.spec.empty()) refuse("-S is for networks without a spec; a tracker's file has one");
    return pvm::Tracker::load(o.load, backend_of(o), static_cast<int>(o.threads));
  }
  pvm::Tracker tracker(network, tracker_options(o));
  std::size_t labelled = 0;
  for (const auto& clip : read_clips(o.train, tracker.frame_shape())) {
    tracker.reset();
    for (std::size_t i = 0; i < clip.size(); ++i) learn_frame(tracker, clip, i);
    labelled += clip.size() - clip.count(pvm::io::LabelState::unlabelled);
  }
  if (labelled == 0) {
    refuse(
        "no frame of --train has a label; a label file is a text file of x,y,w,h lines beside "
        "the pictures");
  }
  tracker.solve();
  if (!o.quiet) {
    std::printf("learned from %llu frames with the object and %llu without\n",
                static_cast<unsigned long long>(tracker.frames_with()),
                static_cast<unsigned long long>(tracker.frames_without()));
  }
  return tracker;
}

inline void describe_shared(CLI::App& app, Options& o) {
  app.add_option("-L,--load", o.load, "a tracker, or a checkpoint of a network (with --train)")
      ->type_name("FILE");
  app.add_option("-S,--spec", o.spec, "model spec, if the checkpoint of -L holds none")
      ->type_name("FILE");
  app.add_option("--train", o.train, "labelled clips to learn from: files, or directories of them")
      ->type_name("PATH");
  app.add_option("--backend", o.backend, "auto, cuda or host (default auto)")->type_name("NAME");
  app.add_option("--threads", o.threads, "threads of the host backend (default: one per core)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  app.add_flag("-q,--quiet", o.quiet, "print only what was asked for");
}

inline void describe_track(CLI::App& app, Options& o) {
  describe_shared(app, o);
  app.add_option("-f,--file", o.file, "the clip in which the object is looked for")
      ->type_name("PATH");
  app.add_option("--frames", o.frames, "how many frames (default: one pass)")->type_name("N");
  app.add_option("--readout", o.readout,
                 "what a new tracker reads: colours (default), hidden (and pixels), or pixels")
      ->type_name("NAME");
  app.add_option("-o,--out", o.out,
                 "write a line per frame: frame,present,confidence,x,y,w,h (in pixels of the clip)")
      ->type_name("FILE.csv");
  app.add_option("--export", o.film, "write a video: input and box, prediction, error, heatmap")
      ->type_name("FILE.mp4");
  app.add_option("--save", o.save, "save the tracker, for -L")->type_name("FILE");
  app.footer(R"(
Examples:
  pvm track -L run.safetensors --train clips/ --save ball.safetensors
      learn from labelled clips
  pvm track -L ball.safetensors -f video.avi --out boxes.csv --export seen.mp4
      find the object in another video)");
}

/// The lines of the CSV file of `track`.
class BoxLines {
 public:
  /// `side`: of the frame that the box is in; `picture`: the size of the picture that it was.
  void add(std::uint64_t frame, const pvm::Found& found, int side,
           const pvm::io::PictureSize& picture) {
    char line[160];
    if (found.present) {
      const auto label = pvm::io::Label::present(found.box);
      const pvm::io::Box box = picture ? label.resized({side, side}, picture).box : found.box;
      std::snprintf(line, sizeof line, "%llu,1,%.4f,%.2f,%.2f,%.2f,%.2f\n",
                    static_cast<unsigned long long>(frame), found.confidence,
                    static_cast<double>(box.x), static_cast<double>(box.y),
                    static_cast<double>(box.width), static_cast<double>(box.height));
    } else {
      std::snprintf(line, sizeof line, "%llu,0,%.4f,-1,-1,-1,-1\n",
                    static_cast<unsigned long long>(frame), found.confidence);
    }
    text_ += line;
  }
  void write(const std::string& path) const {
    pvm::io::make_directories_of(path);
    pvm::io::AtomicFile file(path);
    file.write(text_.data(), text_.size());
    file.commit(false);
  }

 private:
  std::string text_ = "frame,present,confidence,x,y,w,h\n";
};

/// Adds a picture to the film. The prediction shown is the one made two steps before.
class TrackFilm {
 public:
  explicit TrackFilm(const std::string& path) : film_(path) {}
  void add(pvm::Tracker& tracker, std::span<const std::uint8_t> frame, const pvm::Found& found,
           const pvm::io::Label& truth) {
    pvm::io::FilmContent content{tracker.frame_shape(), frame, {}, tracker.heat(), {}, {}, {}};
    shown_ = std::move(predictions_[0]);
    predictions_[0] = std::move(predictions_[1]);
    predictions_[1] = tracker.prediction();
    content.prediction = shown_;
    if (found.present) content.box = found.box;
    if (truth.state == pvm::io::LabelState::present) content.truth = truth.box;
    char words[48];
    std::snprintf(words, sizeof words, "confidence %.2f", found.confidence);
    content.words = words;
    film_.add(content);
  }
  void finish() { film_.finish(); }

 private:
  pvm::io::Film film_;
  std::vector<float> predictions_[2], shown_;
};

inline int track(const Options& o) {
  check_output("--out", o.out, inputs_of(o));
  check_output("--export", o.film, inputs_of(o));
  check_output("--save", o.save, {});
  if (o.frames < 0) refuse("--frames is " + std::to_string(o.frames) + "; allowed: 1 or more");
  if (o.file.empty() && o.save.empty()) {
    refuse("there is nothing to do; name a clip with -f, or a file for the tracker with --save");
  }
  std::optional<TrackFilm> film;
  if (!o.film.empty()) film.emplace(o.film);
  pvm::Tracker tracker = make_tracker(o);
  if (!o.save.empty()) tracker.save(o.save);
  if (film) tracker.run_network_always();
  if (o.file.empty()) return 0;
  auto source = pvm::io::open_source(o.file);
  const auto length =
      o.frames > 0 ? std::optional(static_cast<std::uint64_t>(o.frames)) : source.count_frames();
  if (!length) refuse(pvm::quote(o.file) + " never ends; say how many --frames");
  std::vector<std::uint8_t> frame(tracker.frame_shape().size());
  BoxLines lines;
  pvm::readout::TrackingScore score;
  std::uint64_t seen = 0, present = 0;
  for (; seen < *length; ++seen) {
    const auto info = source.next(tracker.frame_shape(), frame);
    if (o.frames == 0 && info.starts_sequence && seen > 0)
      break;  // unreadable frames were left out
    if (info.starts_sequence) tracker.prime(std::span<const std::uint8_t>(frame));
    const pvm::Found found = tracker.track(std::span<const std::uint8_t>(frame));
    present += found.present ? 1 : 0;
    lines.add(seen, found, tracker.frame_shape().width, info.picture);
    score.add(info.label, found.present ? std::optional(found.box) : std::nullopt,
              tracker.frame_shape().width);
    if (film) film->add(tracker, frame, found, info.label);
  }
  if (!o.out.empty()) lines.write(o.out);
  if (film) film->finish();
  if (!o.quiet) {
    std::printf("the object is in %llu of %llu frames\n", static_cast<unsigned long long>(present),
                static_cast<unsigned long long>(seen));
    if (score.frames() > 0) {
      std::printf("by the clip's labels: AUC %.3f, precision %.3f, presence %.3f, accuracy %.3f\n",
                  score.auc(), score.precision(), score.presence(), score.accuracy());
    }
  }
  return 0;
}

inline void describe_evaluate(CLI::App& app, Options& o) {
  describe_shared(app, o);
  app.add_option("--test", o.test, "labelled clips to test on: files, or directories of them")
      ->type_name("PATH");
  app.add_option("--seed", o.seed, "seed of the untrained network (default 0)")->type_name("N");
  app.add_option("--json", o.json, "write the table as JSON")->type_name("FILE.json");
  app.add_option("--plot", o.plot, "write the success curves as a picture")->type_name("FILE.png");
  app.footer(R"(
AUC: the mean over thresholds of the share of frames with the object whose overlap with the true box
is above the threshold; +-: its standard error over clips; precision: centres less than 10 pixels of
96 apart; presence: frames where it is right whether the object is there; true neg.: of the frames
without it; accuracy: the centre lies in the true box, or the object is rightly not seen.

Example:
  pvm evaluate -L run.safetensors --train train/ --test test/ --plot success.png)");
}

inline nlohmann::json json_of(std::span<const pvm::readout::Compared> rows) {
  auto all = nlohmann::json::array();
  for (const auto& row : rows) {
    all.push_back({{"tracker", row.name},
                   {"auc", row.score.auc()},
                   {"auc_standard_error", row.auc_error},
                   {"precision", row.score.precision()},
                   {"presence", row.score.presence()},
                   {"true_negative_rate", row.score.true_negative_rate()},
                   {"accuracy", row.score.accuracy()},
                   {"fit_seconds", row.fit_seconds},
                   {"frames_per_second", row.frames_per_second},
                   {"frames", row.score.frames()}});
  }
  return all;
}

inline int evaluate(const Options& o) {
  check_output("--json", o.json, inputs_of(o));
  check_output("--plot", o.plot, inputs_of(o));
  if (o.train.empty() || o.test.empty()) {
    refuse("an evaluation needs labelled clips to learn from (--train) and others (--test)");
  }
  const pvm::io::Checkpoint network = network_of(o);
  const pvm::io::FrameShape shape{network.spec.frame_side(), network.spec.frame_side(),
                                  network.spec.input_channels};
  const auto train = read_clips(o.train, shape);
  const auto test = read_clips(o.test, shape);
  std::size_t with = 0;
  for (const auto& clip : train) with += clip.count(pvm::io::LabelState::present);
  if (with == 0) refuse("no frame of --train has a label with the object in it");
  const auto progress = [&](const pvm::readout::Compared& row) {
    if (!o.quiet) std::fprintf(stderr, "%s: AUC %.3f\n", row.name.c_str(), row.score.auc());
  };
  const auto rows = pvm::readout::compare_readouts(network, train, test, backend_of(o),
                                                   static_cast<int>(o.threads),
                                                   static_cast<std::uint64_t>(o.seed), progress);
  std::fputs(pvm::readout::comparison_text(rows).c_str(), stdout);
  if (!o.json.empty()) {
    const std::string text = json_of(rows).dump(2) + "\n";
    pvm::io::AtomicFile file(o.json);
    file.write(text.data(), text.size());
    file.commit(false);
  }
  if (!o.plot.empty()) {
    pvm::io::write_png(o.plot, pvm::readout::draw_success(rows, "success on the test clips"));
  }
  return 0;
}

}  // namespace readout_commands
