// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The commands `pvm track` and `pvm evaluate`.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "pvm_segments.hpp"
#include "pvm_tracking.hpp"

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
  std::string names, classes, truth;
  std::vector<std::string> train, test, objects, segments;
  std::int64_t frames = 0, seed = 0, threads = 0, smoothing = 0;
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
    refuse(option + (" " + pvm::quote(output)) + " cannot be written: " + why +
           "; choose another place");
  }
}

/// Refuses a file for the tracker that would take the place of something else than a tracker: of a
/// run, above all, which could not go on.
inline void check_tracker(const Options& o) {
  check_output("--save", o.save, {o.spec, o.file, o.truth});
  std::error_code ignored;
  if (o.save.empty() || !std::filesystem::exists(o.save, ignored)) return;
  const auto refuse_file = [&](const std::string& why) {
    refuse("--save " + pvm::quote(o.save) + " exists and " + why + "; choose another name");
  };
  if (!pvm::io::is_checkpoint(o.save)) refuse_file("is no file of a tracker");
  if (pvm::io::SafetensorsReader(o.save).has("rates")) refuse_file("is a run that can go on");
}

constexpr const char* object_form = "NAME=PATH, as in ball=clips/ball/";
constexpr const char* segments_form = "CLIP=PICTURES, a clip and a directory of its class pictures";

inline std::vector<std::string> inputs_of(const Options& o) {
  std::vector<std::string> inputs = {o.load, o.spec, o.file};
  inputs.insert(inputs.end(), o.train.begin(), o.train.end());
  inputs.insert(inputs.end(), o.test.begin(), o.test.end());
  inputs.push_back(o.truth);
  for (const auto& pair : o.objects)
    inputs.push_back(two_sides("--object", pair, object_form).second);
  for (const auto& pair : o.segments) {
    const auto [clip, pictures] = two_sides("--segments", pair, segments_form);
    inputs.push_back(clip);
    inputs.push_back(pictures);
  }
  return inputs;
}

/// Lets `tracker` learn a frame of which one object is labelled; an error says which it was.
inline void learn_frame(pvm::Tracker& tracker, const pvm::readout::Clip& clip, std::size_t i,
                        std::size_t object) {
  try {
    std::vector<pvm::io::Label> labels(object + 1);
    labels.back() = clip.labels[i];
    tracker.learn_all(clip.frame(i), labels);
  } catch (const pvm::Error& error) {
    throw pvm::Error(error.fault(),
                     pvm::quote(clip.name) + ", frame " + std::to_string(i) + ": " + error.what());
  }
}

/// Lets `tracker` learn one of its objects from clips.
inline void learn_clips(pvm::Tracker& tracker, const std::vector<std::string>& paths,
                        const std::string& option, std::size_t object) {
  std::size_t labelled = 0;
  for (const auto& clip : read_clips(paths, tracker.frame_shape())) {
    tracker.reset();
    for (std::size_t i = 0; i < clip.size(); ++i) learn_frame(tracker, clip, i, object);
    labelled += clip.size() - clip.count(pvm::io::LabelState::unlabelled);
  }
  if (labelled > 0) return;
  refuse("no frame of " + option + " has a label; a label file is a text file of x,y,w,h lines " +
         "beside the pictures");
}

/// A tracker of the objects of `--object`, in the order in which they are named first.
inline pvm::Tracker learn_objects(const Options& o, const pvm::io::Checkpoint& network) {
  pvm::TrackerOptions options = tracker_options(o);
  options.objects.clear();
  std::vector<std::vector<std::string>> clips;
  for (const std::string& pair : o.objects) {
    const auto [name, path] = two_sides("--object", pair, object_form);
    const auto at = std::find(options.objects.begin(), options.objects.end(), name);
    const auto k = static_cast<std::size_t>(at - options.objects.begin());
    if (at == options.objects.end()) {
      options.objects.push_back(name);
      clips.emplace_back();
    }
    clips[k].push_back(path);
  }
  pvm::Tracker tracker(network, options);
  for (std::size_t k = 0; k < clips.size(); ++k) {
    learn_clips(tracker, clips[k], "--object " + pvm::quote(options.objects[k]), k);
  }
  return tracker;
}

/// A tracker of the classes of `--segments`.
inline pvm::Tracker learn_segments(const Options& o, const pvm::io::Checkpoint& network) {
  pvm::TrackerOptions options = tracker_options(o);
  const pvm::io::FrameShape shape{network.spec.frame_side(), network.spec.frame_side(),
                                  network.spec.input_channels};
  std::vector<pvm::readout::Clip> clips;
  std::vector<Segments> pictures;
  std::size_t classes = 0;
  for (const std::string& pair : o.segments) {
    const auto [clip, directory] = two_sides("--segments", pair, segments_form);
    clips.push_back(pvm::readout::read_clip(pvm::io::open_source(clip), shape));
    pictures.push_back(read_segments(directory, shape.width));
    classes = std::max(classes, pictures.back().classes());
    if (clips.back().size() == pictures.back().size()) continue;
    refuse("--segments " + pvm::quote(pair) + ": the clip has " +
           std::to_string(clips.back().size()) + " frames and there are " +
           std::to_string(pictures.back().size()) + " pictures of classes");
  }
  if (classes == 0) refuse("no picture of --segments has a class");
  options.objects.clear();
  for (std::size_t from = 0; from <= o.names.size() && !o.names.empty();) {
    const std::size_t end = std::min(o.names.find(',', from), o.names.size());
    options.objects.push_back(o.names.substr(from, end - from));
    from = end + 1;
  }
  for (std::size_t k = 1; o.names.empty() && k <= classes; ++k) {
    options.objects.push_back(std::to_string(k));
  }
  if (options.objects.size() < classes) {
    refuse("--names has " + std::to_string(options.objects.size()) + " names and there are " +
           std::to_string(classes) + " classes");
  }
  pvm::Tracker tracker(network, options);
  for (std::size_t k = 0; k < clips.size(); ++k) {
    tracker.reset();
    for (std::size_t i = 0; i < clips[k].size(); ++i) {
      tracker.learn_classes(clips[k].frame(i), pictures[k].picture(i));
    }
  }
  return tracker;
}

/// The tracker of `-L`: as it was saved, or a new one that learns from clips.
inline pvm::Tracker make_tracker(const Options& o) {
  const int ways =
      (o.train.empty() ? 0 : 1) + (o.objects.empty() ? 0 : 1) + (o.segments.empty() ? 0 : 1);
  if (ways > 1) refuse("--train, --object and --segments cannot be combined; take one of them");
  if (!o.names.empty() && o.segments.empty()) refuse("--names is for --segments");
  pvm::io::Checkpoint network = network_of(o);
  if (ways == 0) {
    if (!o.spec.empty()) refuse("-S is for networks without a spec; a tracker's file has one");
    return pvm::Tracker::load(o.load, backend_of(o), static_cast<int>(o.threads));
  }
  pvm::Tracker tracker = !o.objects.empty()    ? learn_objects(o, network)
                         : !o.segments.empty() ? learn_segments(o, network)
                                               : pvm::Tracker(network, tracker_options(o));
  if (!o.train.empty()) learn_clips(tracker, o.train, "--train", 0);
  tracker.solve();
  for (std::size_t k = 0; k < tracker.objects().size() && !o.quiet; ++k) {
    const std::string name = tracker.objects().size() > 1 ? tracker.objects()[k] + ": " : "";
    std::printf("%slearned from %llu frames with the object and %llu without\n",
                pvm::printable(name).c_str(),
                static_cast<unsigned long long>(tracker.frames_with(k)),
                static_cast<unsigned long long>(tracker.frames_without(k)));
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
                 "write a line per frame: frame,present,confidence,x,y,w,h (in pixels of the clip);"
                 " of several objects one for each, with its name behind the frame")
      ->type_name("FILE.csv");
  app.add_option("--object", o.objects,
                 "learn several objects: labelled clips of one of them, as NAME=PATH; repeatable")
      ->type_name("NAME=PATH");
  app.add_option(
         "--segments", o.segments,
         "learn classes from a clip and a directory of grey pictures of class numbers, 0 for"
         " none and 255 for unknown, as CLIP=PICTURES; repeatable")
      ->type_name("CLIP=PICTURES");
  app.add_option("--names", o.names, "names of the classes of --segments, with commas between")
      ->type_name("LIST");
  app.add_option("--classes", o.classes,
                 "write the class of each pixel of each frame as a NumPy file")
      ->type_name("FILE.npy");
  app.add_option("--smoothing", o.smoothing,
                 "for --classes and --truth, average heatmaps over patches so far away (default 0)")
      ->check(CLI::Range(0, 64))
      ->type_name("N");
  app.add_option("--truth", o.truth,
                 "a directory of pictures of class numbers of the clip of -f: print the overlap")
      ->type_name("PICTURES");
  app.add_option("--export", o.film, "write a video: input and box, prediction, error, heatmap")
      ->type_name("FILE.mp4");
  app.add_option("--save", o.save, "save the tracker, for -L")->type_name("FILE");
  app.footer(R"(
Examples:
  pvm track -L run.safetensors --train clips/ --save ball.safetensors
      learn from labelled clips
  pvm track -L ball.safetensors -f video.avi --out boxes.csv --export seen.mp4
      find the object in another video
  pvm track -L run.safetensors --object ball=clips/balls/ --object cup=cup.zip \\
      -f video.avi --out boxes.csv
      find two objects)");
}

/// The lines of the CSV file of `track`.
class BoxLines {
 public:
  /// `objects`: their names, which are written if there are several.
  explicit BoxLines(const std::vector<std::string>& objects) : objects_(objects) {
    text_ = several() ? "frame,object,present,confidence,x,y,w,h\n"
                      : "frame,present,confidence,x,y,w,h\n";
  }
  /// `side`: of the frame that the boxes are in; `picture`: the size of the picture that it was.
  void add(std::uint64_t frame, const std::vector<pvm::Found>& all, int side,
           const pvm::io::PictureSize& picture) {
    for (std::size_t k = 0; k < all.size(); ++k) {
      text_ += std::to_string(frame) + (several() ? "," + objects_[k] : "");
      char line[160];
      if (all[k].present) {
        const auto label = pvm::io::Label::present(all[k].box);
        const pvm::io::Box box = picture ? label.resized({side, side}, picture).box : all[k].box;
        std::snprintf(line, sizeof line, ",1,%.4f,%.2f,%.2f,%.2f,%.2f\n", all[k].confidence,
                      static_cast<double>(box.x), static_cast<double>(box.y),
                      static_cast<double>(box.width), static_cast<double>(box.height));
      } else {
        std::snprintf(line, sizeof line, ",0,%.4f,-1,-1,-1,-1\n", all[k].confidence);
      }
      text_ += line;
    }
  }
  void write(const std::string& path) const {
    pvm::io::make_directories_of(path);
    pvm::io::AtomicFile file(path);
    file.write(text_.data(), text_.size());
    file.commit(false);
  }

 private:
  [[nodiscard]] bool several() const { return objects_.size() > 1; }

  std::vector<std::string> objects_;
  std::string text_;
};

/// Adds a picture to the film. The prediction shown is the one made two steps before.
class TrackFilm {
 public:
  explicit TrackFilm(const std::string& path) : film_(path) {}
  void add(pvm::Tracker& tracker, std::span<const std::uint8_t> frame,
           const std::vector<pvm::Found>& all, const pvm::io::Label& truth) {
    const std::vector<float> heat = largest_heat(tracker);
    pvm::io::FilmContent content{tracker.frame_shape(), frame, {}, heat, {}, {}, {}, {}};
    shown_ = std::move(predictions_[0]);
    predictions_[0] = std::move(predictions_[1]);
    predictions_[1] = tracker.prediction();
    content.prediction = shown_;
    if (all.front().present) content.box = all.front().box;
    for (std::size_t k = 1; k < all.size(); ++k) {
      if (all[k].present) content.others.push_back(all[k].box);
    }
    if (truth.state == pvm::io::LabelState::present) content.truth = truth.box;
    char words[48];
    std::snprintf(words, sizeof words, "confidence %.2f", all.front().confidence);
    content.words = words;
    film_.add(content);
  }
  void finish() { film_.finish(); }

 private:
  /// At each place that of the object with the largest heat.
  static std::vector<float> largest_heat(const pvm::Tracker& tracker) {
    std::vector<float> heat(tracker.heat().begin(), tracker.heat().end());
    for (std::size_t k = 1; k < tracker.objects().size(); ++k) {
      const auto other = tracker.heat(k);
      for (std::size_t p = 0; p < heat.size(); ++p) heat[p] = std::max(heat[p], other[p]);
    }
    return heat;
  }

  pvm::io::Film film_;
  std::vector<float> predictions_[2], shown_;
};

inline int track(const Options& o) {
  check_output("--out", o.out, inputs_of(o));
  check_output("--export", o.film, inputs_of(o));
  check_tracker(o);
  check_output("--classes", o.classes, inputs_of(o));
  if (o.file.empty() && !(o.classes.empty() && o.truth.empty())) {
    refuse("--classes and --truth are about the clip of -f, and there is none");
  }
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
  const int side = tracker.frame_shape().width;
  BoxLines lines(tracker.objects());
  pvm::readout::TrackingScore score;
  pvm::readout::ClassScore class_score(tracker.objects().size());
  std::optional<ClassFile> classes;
  if (!o.classes.empty()) classes.emplace(o.classes, side);
  Segments truth;
  if (!o.truth.empty()) truth = read_segments(o.truth, side);
  if (truth.side > 0 && truth.size() < *length) {
    refuse("--truth " + pvm::quote(o.truth) + " has " + std::to_string(truth.size()) +
           " pictures, fewer than the clip has frames");
  }
  for (std::size_t i = 0; truth.side > 0 && i < truth.size(); ++i) {
    pvm::readout::check_classes(truth.picture(i), side, tracker.objects().size());
  }
  std::uint64_t seen = 0;
  std::vector<std::uint64_t> present(tracker.objects().size());
  const auto use = [&](const std::vector<pvm::Found>& all, const pvm::io::FrameInfo& info) {
    for (std::size_t k = 0; k < all.size(); ++k) present[k] += all[k].present ? 1 : 0;
    lines.add(seen++, all, side, info.picture);
    if (all.size() > 1) return;
    score.add(info.label, all[0].present ? std::optional(all[0].box) : std::nullopt, side);
  };
  const bool one_by_one = film || classes || truth.side > 0;  // they show each frame's heatmaps
  ManyFrames many(tracker, one_by_one ? pvm::BackendChoice::host : backend_of(o), use);
  for (std::uint64_t i = 0; i < *length; ++i) {
    const auto info = source.next(tracker.frame_shape(), frame);
    if (o.frames == 0 && info.starts_sequence && i > 0) break;  // unreadable frames were left out
    if (info.starts_sequence) {
      many.flush();
      tracker.prime(std::span<const std::uint8_t>(frame));
    }
    if (many.take(frame, info)) continue;
    const auto all = tracker.track_all(std::span<const std::uint8_t>(frame));
    if (film) film->add(tracker, frame, all, info.label);
    if (classes || truth.side > 0) {
      const auto found = tracker.classes(static_cast<int>(o.smoothing));
      if (classes) classes->add(found);
      if (truth.side > 0) class_score.add(found, truth.picture(static_cast<std::size_t>(i)));
    }
    use(all, info);
  }
  many.flush();
  if (!o.out.empty()) lines.write(o.out);
  if (film) film->finish();
  if (classes) classes->finish();
  for (std::size_t k = 0; k < present.size() && !o.quiet; ++k) {
    const std::string name =
        present.size() > 1 ? pvm::printable(tracker.objects()[k]) : std::string("the object");
    std::printf("%s is in %llu of %llu frames\n", name.c_str(),
                static_cast<unsigned long long>(present[k]), static_cast<unsigned long long>(seen));
  }
  if (truth.side > 0) {
    for (std::size_t k = 0; k < present.size(); ++k) {
      std::printf("overlap of %s: %.3f\n", pvm::printable(tracker.objects()[k]).c_str(),
                  class_score.overlap(k));
    }
    std::printf("mean overlap: %.3f\n", class_score.mean());
  }
  if (!o.quiet) {
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
  if (!o.plot.empty()) pvm::io::require_png_name(o.plot);
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
    pvm::io::make_directories_of(o.json);
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
