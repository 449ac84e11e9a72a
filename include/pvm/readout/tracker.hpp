// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The tracker: a frozen network, and a readout and a decoder for each object. It learns from
/// labelled frames and then says where the objects are in others.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/io/as_frame.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/readout/class_mask.hpp>
#include <pvm/readout/decoder.hpp>
#include <pvm/readout/object.hpp>
#include <pvm/readout/ridge.hpp>

namespace pvm::inline v0 {

namespace readout {

/// The readout of a tracker that is not told otherwise: the colours of a patch and of those around
/// it, with one set of weights for all positions. docs/readout.md compares it with others.
inline RidgeOptions default_ridge() {
  return {.inputs = {.colours = true}, .shared = true, .penalty = 0.001};
}

}  // namespace readout

struct TrackerOptions {
  readout::RidgeOptions ridge = readout::default_ridge();
  /// A threshold a little above the original's: such heatmaps are wider than the object.
  readout::DecoderOptions decoder{.threshold = 0.56};
  /// Finds the threshold of presence from the labelled frames, if some have the object and some
  /// have not; else that of `decoder` is used.
  bool fit_presence = true;
  /// What it costs to miss the object where it is, in that search, if seeing it where it is not
  /// costs 1.
  double miss = 2;
  /// Where the network runs, among the backends that the program was built with.
  BackendChoice backend = BackendChoice::host;
  int threads = 0;  ///< of the host engine; 0: one per core. Changes no result
  /// The names of the objects, each of which has a readout of its own; 1 to 254.
  std::vector<std::string> objects = {"object"};
};

/// Where a tracker sees the object.
struct Found {
  bool present = false;
  double confidence = 0;  ///< that the object is present: 0 to 1, 0.5 where it is undecided
  io::Box box{};          ///< in pixels of the network's frame; of zeros if the object is absent
};

/// Follows one object, or several. Frames are those of the network, `frame_shape()`, in the order
/// of a clip: the network has a memory. With `pvm/io/mat.hpp`, a cv::Mat of any size is a frame as
/// well.
///
///     pvm::Tracker tracker{pvm::io::load_checkpoint("run.safetensors")};
///     for (...) tracker.learn(frame, label);
///     tracker.save("ball.safetensors");
///     pvm::Tracker ball = pvm::Tracker::load("ball.safetensors");
///     pvm::Found found = ball.track(frame);
class Tracker {
 public:
  /// A tracker that has learned nothing yet, on the network of `checkpoint`, of which only the
  /// weights are used. Throws Error as engines do, Fault::usage for impossible options.
  template <class Backend = DefaultBackend<RuntimeNetwork>>
  explicit Tracker(const io::Checkpoint& checkpoint, const TrackerOptions& options = {},
                   Backend = {})
      : Tracker(checkpoint, make_engine<Backend>(checkpoint.spec, options), options) {}

  /// The same on an engine of the program's choice, for a batch of 1.
  Tracker(const io::Checkpoint& checkpoint, AnyEngine engine, const TrackerOptions& options = {})
      : spec_(checkpoint.spec), options_(options), engine_(std::move(engine)) {
    check_names(options.objects);
    for (std::size_t k = 0; k < options.objects.size(); ++k) {
      objects_.emplace_back(spec_, net_,
                            readout::ObjectOptions{options.ridge, options.decoder,
                                                   options.fit_presence, options.miss});
    }
    start_.weights = checkpoint.state.weights;
    reset();
  }

  [[nodiscard]] const Spec& spec() const noexcept { return spec_; }
  [[nodiscard]] const TrackerOptions& options() const noexcept { return options_; }
  /// The readout of an object.
  [[nodiscard]] const readout::RidgeReadout& readout(std::size_t object = 0) const {
    return objects_.at(object).readout();
  }
  /// The names of the objects, and the number of the one with this name; throws Error
  /// (Fault::usage) if none has it.
  [[nodiscard]] const std::vector<std::string>& objects() const noexcept {
    return options_.objects;
  }
  [[nodiscard]] std::size_t object(const std::string& name) const {
    const auto found = std::find(objects().begin(), objects().end(), name);
    if (found != objects().end()) return static_cast<std::size_t>(found - objects().begin());
    throw Error(Fault::usage, "the tracker has no object " + quote(name));
  }
  /// The shape of the frames that it takes.
  [[nodiscard]] io::FrameShape frame_shape() const {
    return {spec_.frame_side(), spec_.frame_side(), spec_.input_channels};
  }

  /// Shows a frame and learns where the object is in it. A frame without a label only goes through
  /// the network. Throws Error (Fault::usage) for a frame of another size, and for a box that is
  /// empty, not a number, or outside of the frame.
  void learn(std::span<const std::uint8_t> frame, const io::Label& label) {
    learn_all(frame, std::span(&label, 1));
  }
  /// The same for several objects: a label for each, in their order, or for the first ones only. An
  /// object whose label is unlabelled learns nothing.
  void learn_all(std::span<const std::uint8_t> frame, std::span<const io::Label> labels) {
    check(frame);
    if (labels.size() > objects_.size()) {
      throw Error(Fault::usage, "there are " + std::to_string(labels.size()) +
                                    " labels and the tracker follows " +
                                    std::to_string(objects_.size()) +
                                    (objects_.size() == 1 ? " object" : " objects"));
    }
    for (const io::Label& label : labels) readout::check_label(label, spec_.frame_side());
    see(frame);
    for (std::size_t k = 0; k < labels.size(); ++k) objects_[k].learn(hidden_, frame, labels[k]);
  }
  /// The same where each pixel has a class: `classes` is [side][side], of numbers as in
  /// readout/class_mask.hpp; object k is class k + 1. A frame that is not known anywhere teaches
  /// nothing.
  void learn_classes(std::span<const std::uint8_t> frame, std::span<const std::uint8_t> classes) {
    check(frame);
    readout::check_classes(classes, spec_.frame_side(), objects_.size());
    see(frame);
    const auto unknown = [](std::uint8_t number) { return number == readout::unknown_class; };
    if (std::all_of(classes.begin(), classes.end(), unknown)) return;
    std::vector<float> cover(objects_.front().heat().size());
    for (std::size_t k = 0; k < objects_.size(); ++k) {
      readout::cover_class(classes, static_cast<std::uint8_t>(k + 1), cover,
                           spec_.layer_shapes.front());
      objects_[k].learn(hidden_, frame, std::span<const float>(cover));
    }
  }

  /// Shows a frame and says where the object is in it: the first one, if there are several. Throws
  /// Error (Fault::usage) for a frame of another size, and if no frame that has the object has been
  /// learned.
  Found track(std::span<const std::uint8_t> frame) { return track_all(frame).front(); }
  /// The same for all objects, in their order.
  std::vector<Found> track_all(std::span<const std::uint8_t> frame) {
    check(frame);
    solve();
    see(frame);
    std::vector<Found> all;
    for (readout::ObjectReadout& object : objects_) {
      const readout::Decoded decoded = object.decode(hidden_, frame);
      all.push_back({decoded.present, object.presence().confidence(decoded.contrast), decoded.box});
    }
    return all;
  }
  /// The class of each pixel of the last frame that was tracked, [side][side]: 0 for none, else 1
  /// for the first object and so on, by the largest of the heatmaps, which are first averaged over
  /// the cells at most `smoothing` away.
  [[nodiscard]] std::vector<std::uint8_t> classes(int smoothing = 0) const {
    std::vector<std::vector<float>> heats;
    for (const readout::ObjectReadout& object : objects_) {
      heats.emplace_back(object.heat().begin(), object.heat().end());
    }
    std::vector<std::uint8_t> out(
        static_cast<std::size_t>(spec_.frame_side() * spec_.frame_side()));
    readout::mask_classes(heats, spec_.layer_shapes.front(), spec_.input_block_size, smoothing,
                          out);
    return out;
  }

  // The same for a picture of any size, which is resized, with boxes in its own pixels: a cv::Mat
  // with pvm/io/mat.hpp.

  template <class Picture>
  requires io::IsPicture<Picture>
  void learn(const Picture& picture, const io::Label& label) {
    learn_all(picture, std::span(&label, 1));
  }
  template <class Picture>
  requires io::IsPicture<Picture>
  void learn_all(const Picture& picture, std::span<const io::Label> labels) {
    const io::PictureSize size = resize(picture);
    std::vector<io::Label> own(labels.begin(), labels.end());
    for (io::Label& label : own) label = label.resized(size, frame_size());
    learn_all(std::span<const std::uint8_t>(picture_), own);
  }
  template <class Picture>
  requires io::IsPicture<Picture> Found track(const Picture& picture) {
    return track_all(picture).front();
  }
  template <class Picture>
  requires io::IsPicture<Picture> std::vector<Found> track_all(const Picture& picture) {
    const io::PictureSize size = resize(picture);
    std::vector<Found> all = track_all(std::span<const std::uint8_t>(picture_));
    for (Found& found : all) {
      if (!found.present) continue;
      found.box = io::Label::present(found.box).resized(frame_size(), size).box;
    }
    return all;
  }
  template <class Picture>
  requires io::IsPicture<Picture>
  void prime(const Picture& picture) {
    resize(picture);
    prime(std::span<const std::uint8_t>(picture_));
  }

  /// Makes the network forget the frames it has seen, before a clip that has nothing to do with the
  /// one before it. What has been learned stays.
  void reset() {
    if (uses_network()) engine_.restore(start_);
  }

  /// Begins a clip: resets, and shows the first frame as often as the network has layers, so that
  /// the activity of all of them is that of this frame and not of a new run.
  void prime(std::span<const std::uint8_t> frame) {
    check(frame);
    reset();
    for (std::size_t l = 0; l < spec_.layer_shapes.size(); ++l) see(frame);
  }
  /// The same, and learns where the object is in this frame.
  void prime(std::span<const std::uint8_t> frame, const io::Label& label) {
    prime(frame);
    learn(frame, label);
  }

  /// Fits the readout and the threshold of presence to what has been learned (the threshold to what
  /// has been learned since loading, if that has both kinds of frames). `track` does it when
  /// needed.
  void solve() {
    for (std::size_t k = 0; k < objects_.size(); ++k) {
      objects_[k].solve(objects_.size() == 1 ? "the tracker"
                                             : "the tracker's object " + quote(objects()[k]));
    }
  }

  // For what tracks many frames at a time, as CudaTracking does.

  /// An object's readout and decoder, and the engine of the network.
  [[nodiscard]] readout::ObjectReadout& object_readout(std::size_t object) {
    return objects_.at(object);
  }
  [[nodiscard]] AnyEngine& engine() noexcept { return engine_; }

  /// Lets the network run even if the readout does not read its hidden values, for `prediction`.
  void run_network_always() noexcept { always_ = true; }
  /// The network's prediction of the frame two steps ahead, [side][side][channels] in [0, 1]; 1/2
  /// everywhere if the network does not run.
  [[nodiscard]] std::vector<float> prediction() {
    std::vector<float> out(spec_.frame_size(), 0.5F);
    if (uses_network()) engine_.read_prediction(out);
    return out;
  }
  /// An object's heatmap of the last `track`, [cells][cells], and the same at the size of a frame.
  [[nodiscard]] std::span<const float> heat(std::size_t object = 0) const {
    return objects_.at(object).heat();
  }
  [[nodiscard]] std::span<const float> large_heat(std::size_t object = 0) const {
    return objects_.at(object).large_heat();
  }
  /// The number of frames learned that have the object, and of those that have not.
  [[nodiscard]] std::uint64_t frames_with(std::size_t object = 0) const {
    return objects_.at(object).frames_with();
  }
  [[nodiscard]] std::uint64_t frames_without(std::size_t object = 0) const {
    return objects_.at(object).frames_without();
  }

  /// Writes the network and the readout into one file, from which it can be loaded and also learn
  /// on, and which is a checkpoint of the network's weights as well. Throws Error (Fault::usage) if
  /// nothing has been learned, Fault::checkpoint if it cannot be written.
  void save(const std::filesystem::path& path) {
    solve();
    io::Checkpoint file;
    file.spec = spec_;
    file.state.weights = start_.weights;
    for (std::size_t k = 0; k < objects_.size(); ++k) {
      objects_[k].save(file.extras, readout::ObjectReadout::end_of(k));
    }
    std::string names;
    for (const std::string& name : objects()) names += (names.empty() ? "" : ",") + name;
    file.extras.texts["readout.objects"] = names;
    io::make_directories_of(path);
    io::save_checkpoint(path, file);
  }

  /// Reads what `save` has written. `backend`, `threads`: as in TrackerOptions. Throws Error
  /// (Fault::checkpoint) if the file is damaged, or is a checkpoint without a readout.
  template <class Backend = DefaultBackend<RuntimeNetwork>>
  static Tracker load(const std::filesystem::path& path,
                      BackendChoice backend = BackendChoice::host, int threads = 0) {
    const io::Checkpoint file = io::load_checkpoint(path);
    try {
      const io::Extras first = readout::ObjectReadout::part_of(file.extras, {});
      const readout::ObjectOptions saved = readout::ObjectReadout::options_of(first);
      TrackerOptions options{saved.ridge, saved.decoder, saved.fit_presence,   saved.miss,
                             backend,     threads,       names_in(file.extras)};
      Tracker tracker(file, make_engine<Backend>(file.spec, options), options);
      tracker.restore(file.extras);
      return tracker;
    } catch (const Error& error) {
      throw Error(error.fault(), "checkpoint " + quote(path.string()) + ": " + error.what());
    }
  }

 private:
  /// The engine of the network. Where its hidden values are not read, a GPU is not tried for it
  /// unless that is asked for.
  template <class Backend>
  static AnyEngine make_engine(const Spec& spec, const TrackerOptions& options) {
    const EngineOptions engine{.threads = options.threads};
    const bool any = options.backend == BackendChoice::automatic && !options.ridge.inputs.hidden;
    return detail::make_engine<fp32, 1, RuntimeNetwork, Backend>(
        spec, 1, engine, any ? BackendChoice::host : options.backend);
  }
  static void check_names(const std::vector<std::string>& names) {
    if (names.empty() || names.size() > readout::most_classes) {
      throw Error(Fault::usage, "a tracker follows 1 to " + std::to_string(readout::most_classes) +
                                    " objects, not " + std::to_string(names.size()));
    }
    for (auto name = names.begin(); name != names.end(); ++name) {
      const bool plain = !name->empty() && name->find_first_of(",\n\r") == std::string::npos;
      if (plain && std::find(names.begin(), name, *name) == name) continue;
      throw Error(Fault::usage, "an object of a tracker cannot be called " + quote(*name) +
                                    ": names are not empty, have no comma, and are all different");
    }
  }
  /// The names of the objects in a file; one of an earlier version has a single one.
  static std::vector<std::string> names_in(const io::Extras& extras) {
    const auto found = extras.texts.find("readout.objects");
    if (found == extras.texts.end()) return TrackerOptions{}.objects;
    std::vector<std::string> names(1);
    for (const char c : found->second) {
      if (c == ',') {
        names.emplace_back();
      } else {
        names.back() += c;
      }
    }
    return names;
  }
  void restore(const io::Extras& extras) {
    objects_.clear();
    for (std::size_t k = 0; k < objects().size(); ++k) {
      const auto own = readout::ObjectReadout::part_of(extras, readout::ObjectReadout::end_of(k));
      objects_.emplace_back(spec_, net_, readout::ObjectReadout::options_of(own));
      objects_.back().restore(own);
    }
  }

  [[nodiscard]] bool uses_network() const noexcept {
    return options_.ridge.inputs.hidden || always_;
  }

  [[nodiscard]] io::PictureSize frame_size() const {
    return {spec_.frame_side(), spec_.frame_side()};
  }
  template <class Picture>
  io::PictureSize resize(const Picture& picture) {
    picture_.resize(spec_.frame_size());
    return io::AsFrame<Picture>::write(picture, frame_shape(), picture_);
  }

  void check(std::span<const std::uint8_t> frame) const {
    if (frame.size() == spec_.frame_size()) return;
    const std::string side = std::to_string(spec_.frame_side());
    throw Error(Fault::usage, "the frame has " + std::to_string(frame.size()) +
                                  " bytes and the tracker's frames have " +
                                  std::to_string(spec_.frame_size()) + ": " + side + " x " + side +
                                  " x " + std::to_string(spec_.input_channels));
  }

  /// Runs the network on a frame, if its hidden values are read at all.
  void see(std::span<const std::uint8_t> frame) {
    if (!uses_network()) return;
    const FrameBlock block = engine_.stage(1);
    std::copy(frame.begin(), frame.end(), block.pixels.begin());
    block.scored[0] = 0;
    engine_.run(block, Mode::freeze);
    hidden_.resize(net_.units.size() * static_cast<std::size_t>(net_.hidden));
    engine_.read_hidden(hidden_);
  }

  Spec spec_;
  TrackerOptions options_;
  Connectome net_ = make_connectome(spec_);
  AnyEngine engine_;
  EngineState start_;  // the network's weights
  std::vector<readout::ObjectReadout> objects_;
  std::vector<float> hidden_;          // after the last frame
  std::vector<std::uint8_t> picture_;  // resized
  bool always_ = false;                // see run_network_always
};

}  // namespace pvm::inline v0
