// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The tracker: a frozen network, a readout of one object, and a decoder. It learns from labelled
/// frames and then says where the object is in others.

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
#include <pvm/readout/decoder.hpp>
#include <pvm/readout/examples.hpp>
#include <pvm/readout/presence.hpp>
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
};

/// Where a tracker sees the object.
struct Found {
  bool present = false;
  double confidence = 0;  ///< that the object is present: 0 to 1, 0.5 where it is undecided
  io::Box box{};          ///< in pixels of the network's frame; of zeros if the object is absent
};

/// Follows one object. Frames are those of the network, `frame_shape()`, in the order of a clip:
/// the network has a memory. With `pvm/io/mat.hpp`, a cv::Mat of any size is a frame as well.
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
  explicit Tracker(const io::Checkpoint& checkpoint, const TrackerOptions& options = {})
      : Tracker(checkpoint, AnyEngine::make<HostEngine<1>>(checkpoint.spec, 1, EngineOptions{}),
                options) {}

  /// The same on an engine of the program's choice, for a batch of 1.
  Tracker(const io::Checkpoint& checkpoint, AnyEngine engine, const TrackerOptions& options = {})
      : spec_(checkpoint.spec),
        options_(options),
        engine_(std::move(engine)),
        readout_(spec_, make_connectome(spec_), options.ridge),
        decoder_(spec_.layer_shapes.front(), spec_.input_block_size, options.decoder),
        presence_{options.decoder.contrast} {
    start_.weights = checkpoint.state.weights;
    heat_.resize(readout_.inputs().positions());
    reset();
  }

  [[nodiscard]] const Spec& spec() const noexcept { return spec_; }
  [[nodiscard]] const TrackerOptions& options() const noexcept { return options_; }
  [[nodiscard]] const readout::RidgeReadout& readout() const noexcept { return readout_; }
  /// The shape of the frames that it takes.
  [[nodiscard]] io::FrameShape frame_shape() const {
    return {spec_.frame_side(), spec_.frame_side(), spec_.input_channels};
  }

  /// Shows a frame and learns where the object is in it. A frame without a label only goes through
  /// the network. Throws Error (Fault::usage) for a frame of another size, and for a box that is
  /// empty, not a number, or outside of the frame.
  void learn(std::span<const std::uint8_t> frame, const io::Label& label) {
    check(frame);
    readout::check_label(label, spec_.frame_side());
    see(frame);
    if (label.state == io::LabelState::unlabelled) return;
    const bool present = label.state == io::LabelState::present;
    const bool held_out = holds_out(with_ + without_);
    if (!held_out) readout_.observe(hidden_, frame, label);
    if (options_.fit_presence && (options_.ridge.shared || held_out)) {
      examples_.offer(present, hidden_, frame);
    }
    ++(present ? with_ : without_);
    ready_ = false;
  }

  /// Shows a frame and says where the object is in it. Throws Error (Fault::usage) for a frame of
  /// another size, and if no frame that has the object has been learned.
  Found track(std::span<const std::uint8_t> frame) {
    check(frame);
    solve();
    see(frame);
    readout_.heat(hidden_, frame, heat_);
    const readout::Decoded decoded = decoder_.decode(heat_);
    return {decoded.present, presence_.confidence(decoded.contrast), decoded.box};
  }

  // The same for a picture of any size, which is resized, with boxes in its own pixels: a cv::Mat
  // with pvm/io/mat.hpp.

  template <class Picture>
  requires io::IsPicture<Picture>
  void learn(const Picture& picture, io::Label label) {
    const io::PictureSize size = resize(picture);
    learn(std::span<const std::uint8_t>(picture_),
          label.resized(size, {spec_.frame_side(), spec_.frame_side()}));
  }
  template <class Picture>
  requires io::IsPicture<Picture> Found track(const Picture& picture) {
    const io::PictureSize size = resize(picture);
    Found found = track(std::span<const std::uint8_t>(picture_));
    if (!found.present) return found;
    const io::Label label = io::Label::present(found.box);
    found.box = label.resized({spec_.frame_side(), spec_.frame_side()}, size).box;
    return found;
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
    if (with_ == 0) {
      throw Error(Fault::usage,
                  without_ == 0 ? "the tracker has learned from no labelled frame; give it some"
                                : "the tracker has learned from no frame that has the object, only "
                                  "from " +
                                      std::to_string(without_) + " that have not");
    }
    if (std::exchange(ready_, true)) return;
    readout_.solve();
    if (!options_.fit_presence) return;
    std::vector<readout::PresenceExample> contrasts;
    for (const readout::Example& example : examples_.all()) {
      readout_.heat(example.hidden, example.frame, heat_);
      contrasts.push_back({decoder_.decode(heat_).contrast, example.present});
    }
    presence_ = readout::fit_presence(std::move(contrasts), presence_, options_.miss);
    decoder_.options().contrast = presence_.threshold;
  }

  /// Lets the network run even if the readout does not read its hidden values, for `prediction`.
  void run_network_always() noexcept { always_ = true; }
  /// The network's prediction of the frame two steps ahead, [side][side][channels] in [0, 1]; 1/2
  /// everywhere if the network does not run.
  [[nodiscard]] std::vector<float> prediction() {
    std::vector<float> out(spec_.frame_size(), 0.5F);
    if (uses_network()) engine_.read_prediction(out);
    return out;
  }
  /// The heatmap of the last `track`, [cells][cells], and the same at the size of a frame.
  [[nodiscard]] std::span<const float> heat() const noexcept { return heat_; }
  [[nodiscard]] std::span<const float> large_heat() const noexcept { return decoder_.large(); }
  /// The number of frames learned that have the object, and of those that have not.
  [[nodiscard]] std::uint64_t frames_with() const noexcept { return with_; }
  [[nodiscard]] std::uint64_t frames_without() const noexcept { return without_; }

  /// Writes the network and the readout into one file, from which it can be loaded and also learn
  /// on, and which is a checkpoint of the network's weights as well. Throws Error (Fault::usage) if
  /// nothing has been learned, Fault::checkpoint if it cannot be written.
  void save(const std::filesystem::path& path) {
    solve();
    io::Checkpoint file;
    file.spec = spec_;
    file.state.weights = start_.weights;
    readout_.save(file.extras);
    const readout::DecoderOptions& decoder = decoder_.options();
    const std::pair<const char*, double> numbers[] = {
        {"readout.frames_with", static_cast<double>(with_)},
        {"readout.frames_without", static_cast<double>(without_)},
        {"readout.threshold", decoder.threshold},
        {"readout.growth", decoder.growth},
        {"readout.contrast", decoder.contrast},
        {"readout.least_area", decoder.least_area},
        {"readout.spread", presence_.spread},
        {"readout.miss", options_.miss},
        {"readout.fit_presence", options_.fit_presence ? 1 : 0}};
    for (const auto& [key, value] : numbers) file.extras.texts[key] = readout::exact_text(value);
    io::make_directories_of(path);
    io::save_checkpoint(path, file);
  }

  /// Reads what `save` has written. `backend`, `threads`: as in TrackerOptions. Throws Error
  /// (Fault::checkpoint) if the file is damaged, or is a checkpoint without a readout.
  static Tracker load(const std::filesystem::path& path,
                      BackendChoice backend = BackendChoice::host, int threads = 0) {
    const io::Checkpoint file = io::load_checkpoint(path);
    try {
      return Tracker(file, file.extras, backend, threads);
    } catch (const Error& error) {
      throw Error(error.fault(), "checkpoint " + quote(path.string()) + ": " + error.what());
    }
  }

 private:
  static TrackerOptions options_of(const io::Extras& extras, BackendChoice backend, int threads) {
    const auto number = [&extras](const char* key) { return readout::number_of(extras, key); };
    return {.ridge = readout::RidgeReadout::options_of(extras),
            .decoder = {number("readout.threshold"), number("readout.growth"),
                        number("readout.contrast"), number("readout.least_area")},
            .fit_presence = number("readout.fit_presence") != 0,
            .miss = number("readout.miss"),
            .backend = backend,
            .threads = threads};
  }
  Tracker(const io::Checkpoint& network, const io::Extras& extras, BackendChoice backend,
          int threads)
      : Tracker(network, options_of(extras, backend, threads)) {
    readout_.restore(extras);
    with_ = static_cast<std::uint64_t>(readout::number_of(extras, "readout.frames_with"));
    without_ = static_cast<std::uint64_t>(readout::number_of(extras, "readout.frames_without"));
    presence_.spread = readout::number_of(extras, "readout.spread");
    ready_ = true;
  }

  [[nodiscard]] bool uses_network() const noexcept {
    return options_.ridge.inputs.hidden || always_;
  }

  template <class Picture>
  io::PictureSize resize(const Picture& picture) {
    picture_.resize(spec_.frame_size());
    return io::AsFrame<Picture>::write(picture, frame_shape(), picture_);
  }

  /// Whether the readout does not learn from a labelled frame, so that the threshold of presence
  /// can be found by it: the last 32 of 256. A readout with weights for each position has so many
  /// that the frames it has learned from say nothing about others; a shared one needs none held
  /// out.
  [[nodiscard]] bool holds_out(std::uint64_t index) const noexcept {
    return options_.fit_presence && !options_.ridge.shared && index % 256 >= 224;
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
  readout::RidgeReadout readout_;
  readout::Decoder decoder_;
  readout::Presence presence_;
  readout::Examples examples_;
  std::vector<float> hidden_;  // after the last frame
  std::vector<float> heat_;
  std::vector<std::uint8_t> picture_;  // resized
  std::uint64_t with_ = 0, without_ = 0;
  bool ready_ = false;
  bool always_ = false;  // see run_network_always
};

}  // namespace pvm::inline v0
