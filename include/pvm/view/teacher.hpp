// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Learns from the labels that people draw on the pictures of a run. Needs OpenCV and libzip.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/write_zip.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/readout/decoder.hpp>
#include <pvm/readout/presence.hpp>
#include <pvm/readout/ridge.hpp>
#include <pvm/readout/tracker.hpp>

namespace pvm::inline v0::view {

/// The readout of a `Tracker` by default, one that reads colours, which knows an object from a few
/// labels. It remembers the frames that were shown, so that a label may come later.
class Teacher {
 public:
  Teacher(const Spec& spec, const Connectome& net)
      : side_(spec.frame_side()),
        channels_(spec.input_channels),
        untaught_(spec, net, readout::default_ridge()),
        readout_(untaught_),
        decoder_(spec.layer_shapes.front(), spec.input_block_size, TrackerOptions{}.decoder),
        presence_{decoder_.options().contrast},
        heat_(readout_.inputs().positions()) {}

  /// What it sees in a frame.
  struct Seen {
    std::span<const float> heat;  ///< [heat_side][heat_side]
    std::optional<io::Box> box;   ///< in pixels of the frame, if the object is there
    double confidence = 0;
  };

  /// Remembers the frame that is shown after `step` steps. The oldest of 600 is forgotten.
  void remember(std::uint64_t step, std::span<const std::uint8_t> frame) {
    constexpr std::size_t most = 600;  // 20 s at 30 pictures a second
    if (!shown_.empty() && shown_.back().step == step) return;
    if (shown_.size() == most) shown_.pop_front();
    shown_.push_back({step, {frame.begin(), frame.end()}});
  }

  /// Learns the label of the frame that was shown after `step` steps; a second label of a frame
  /// takes the place of the first. Throws Error (Fault::usage) if the frame was not shown or is
  /// forgotten, or the box is not possible.
  void learn(std::uint64_t step, const io::Label& label) {
    readout::check_label(label, side_);
    const auto labelled = labelled_.find(step);
    if (labelled == labelled_.end()) {
      const auto shown = std::find_if(shown_.begin(), shown_.end(),
                                      [step](const Shown& one) { return one.step == step; });
      if (shown == shown_.end()) {
        throw Error(Fault::usage, "the picture of step " + std::to_string(step) +
                                      " was not shown, or too long ago; label a newer one");
      }
      labelled_[step] = {shown->frame, label};
      observe(labelled_[step]);
    } else {
      labelled->second.label = label;
      readout_ = untaught_;
      for (const auto& [of, one] : labelled_) observe(one);
    }
    fit_presence();
  }

  /// The number of labelled frames that have the object, or have not.
  [[nodiscard]] std::size_t count(io::LabelState state) const {
    return static_cast<std::size_t>(
        std::count_if(labelled_.begin(), labelled_.end(),
                      [state](const auto& one) { return one.second.label.state == state; }));
  }
  /// Whether it can tell where the object is.
  [[nodiscard]] bool knows() const { return count(io::LabelState::present) > 0; }
  [[nodiscard]] int heat_side() const noexcept { return readout_.heat_side(); }

  /// Looks for the object in a frame. The result is valid until the next call.
  Seen look(std::span<const std::uint8_t> frame) {
    readout_.heat({}, frame, heat_);
    const readout::Decoded decoded = decoder_.decode(heat_);
    Seen seen{heat_, std::nullopt, presence_.confidence(decoded.contrast)};
    if (decoded.present) seen.box = decoded.box;
    return seen;
  }

  /// Writes the labelled frames, in the order of their steps, as a zip in the published layout.
  /// Throws Error (Fault::usage) if there are none.
  void save(const std::filesystem::path& path) const {
    if (labelled_.empty()) {
      throw Error(Fault::usage, "no frame has been labelled; draw a box first");
    }
    Labels source{labelled_};
    io::write_published_zip(path, source, {side_, side_, channels_}, labelled_.size());
  }

 private:
  using RidgeReadout = readout::RidgeReadout;

  struct Shown {
    std::uint64_t step;
    std::vector<std::uint8_t> frame;
  };
  struct Labelled {
    std::vector<std::uint8_t> frame;
    io::Label label;
  };

  /// The labelled frames as a source.
  struct Labels {
    const std::map<std::uint64_t, Labelled>& all;
    std::map<std::uint64_t, Labelled>::const_iterator at = all.begin();

    io::FrameInfo next(io::FrameShape, std::span<std::uint8_t> pixels) {
      std::copy(at->second.frame.begin(), at->second.frame.end(), pixels.begin());
      const bool first = at == all.begin();
      const io::Label label = at->second.label;
      if (++at == all.end()) at = all.begin();
      return {first, label};
    }
    [[nodiscard]] io::Position position() const {
      return {0, static_cast<std::uint64_t>(std::distance(all.begin(), at)), 0};
    }
    void seek(const io::Position&) {}
    [[nodiscard]] std::optional<std::uint64_t> length() const { return all.size(); }
    [[nodiscard]] std::uint64_t skipped() const { return 0; }
    [[nodiscard]] std::string name() const { return "labels"; }
  };

  void observe(const Labelled& one) {
    constexpr int turns = 4;  // a shared readout learns a quarter of a frame's positions at a time
    for (int i = 0; i < turns; ++i) readout_.observe({}, one.frame, one.label);
  }
  /// Finds the contrast that tells present from absent, if there are labels of both kinds.
  void fit_presence() {
    constexpr std::size_t most = 64;  // the newest, so that an answer takes milliseconds
    if (!knows()) return;
    std::vector<readout::PresenceExample> contrasts;
    for (auto i = labelled_.rbegin(); i != labelled_.rend() && contrasts.size() < most; ++i) {
      readout_.heat({}, i->second.frame, heat_);
      contrasts.push_back(
          {decoder_.decode(heat_).contrast, i->second.label.state == io::LabelState::present});
    }
    const TrackerOptions usual;
    presence_ = readout::fit_presence(std::move(contrasts),
                                      readout::Presence{usual.decoder.contrast}, usual.miss);
    decoder_.options().contrast = presence_.threshold;
  }

  int side_, channels_;
  RidgeReadout untaught_, readout_;
  readout::Decoder decoder_;
  readout::Presence presence_;
  std::vector<float> heat_;
  std::deque<Shown> shown_;
  std::map<std::uint64_t, Labelled> labelled_;  // by step
};

}  // namespace pvm::inline v0::view
