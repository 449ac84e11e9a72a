// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a tracker knows about one object: a readout, a decoder, and the threshold of presence.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/readout/decoder.hpp>
#include <pvm/readout/examples.hpp>
#include <pvm/readout/presence.hpp>
#include <pvm/readout/ridge.hpp>

namespace pvm::inline v0::readout {

/// How an object is learned, and found.
struct ObjectOptions {
  RidgeOptions ridge{};
  DecoderOptions decoder{};
  bool fit_presence = true;  ///< see TrackerOptions
  double miss = 2;           ///< likewise
};

/// One object of a tracker. Frames and hidden values are those of the tracker's network.
class ObjectReadout {
 public:
  ObjectReadout(const Spec& spec, const Connectome& net, const ObjectOptions& options)
      : options_(options),
        readout_(spec, net, options.ridge),
        decoder_(spec.layer_shapes.front(), spec.input_block_size, options.decoder),
        presence_{options.decoder.contrast} {
    heat_.resize(readout_.inputs().positions());
  }

  [[nodiscard]] const RidgeReadout& readout() const noexcept { return readout_; }
  [[nodiscard]] RidgeReadout& readout() noexcept { return readout_; }
  [[nodiscard]] const Decoder& decoder() const noexcept { return decoder_; }
  [[nodiscard]] const ObjectOptions& options() const noexcept { return options_; }
  [[nodiscard]] const Presence& presence() const noexcept { return presence_; }
  /// The number of frames learned that have the object, and of those that have not.
  [[nodiscard]] std::uint64_t frames_with() const noexcept { return with_; }
  [[nodiscard]] std::uint64_t frames_without() const noexcept { return without_; }

  /// Learns where the object is; nothing from an unlabelled frame.
  void learn(std::span<const float> hidden, std::span<const std::uint8_t> frame,
             const io::Label& label) {
    if (label.state == io::LabelState::unlabelled) return;
    learn(hidden, frame, label.state == io::LabelState::present,
          [&] { readout_.observe(hidden, frame, label); });
  }
  /// The same from the share of each cell that the object covers, [cells][cells].
  void learn(std::span<const float> hidden, std::span<const std::uint8_t> frame,
             std::span<const float> cover) {
    bool present = false;
    for (const float share : cover) present = present || share > 0;
    learn(hidden, frame, present, [&] { readout_.learn(hidden, frame, cover); });
  }

  /// Fits the readout and the threshold of presence to what has been learned. Throws Error
  /// (Fault::usage) if that has no frame with the object; `who` says whose it is, as in "the
  /// tracker".
  void solve(const std::string& who) {
    if (with_ == 0) {
      throw Error(Fault::usage, without_ == 0
                                    ? who + " has learned from no labelled frame; give it some"
                                    : who +
                                          " has learned from no frame that has the object, only "
                                          "from " +
                                          std::to_string(without_) + " that have not");
    }
    if (std::exchange(ready_, true)) return;
    readout_.solve();
    if (!options_.fit_presence) return;
    std::vector<PresenceExample> contrasts;
    for (const Example& example : examples_.all()) {
      contrasts.push_back({decode(example.hidden, example.frame).contrast, example.present});
    }
    presence_ = fit_presence(std::move(contrasts), presence_, options_.miss);
    decoder_.options().contrast = presence_.threshold;
  }

  /// Where the object is in a frame; `solve` must have been called.
  Decoded decode(std::span<const float> hidden, std::span<const std::uint8_t> frame) {
    readout_.heat(hidden, frame, heat_);
    return decoder_.decode(heat_);
  }
  /// The heatmap of the last `decode`, [cells][cells], and the same at the size of a frame.
  [[nodiscard]] std::span<const float> heat() const noexcept { return heat_; }
  [[nodiscard]] std::span<const float> large_heat() const noexcept { return decoder_.large(); }

  /// Adds everything to `extras`; `end` is put behind all names, to tell objects apart. `solve`
  /// must have been called.
  void save(io::Extras& extras, const std::string& end) {
    io::Extras own;
    readout_.save(own);
    const DecoderOptions& decoder = decoder_.options();
    const std::pair<const char*, double> numbers[] = {
        {"readout.frames_with", static_cast<double>(with_)},
        {"readout.frames_without", static_cast<double>(without_)},
        {"readout.threshold", decoder.threshold},
        {"readout.growth", decoder.growth},
        {"readout.contrast", decoder.contrast},
        {"readout.least_area", decoder.least_area},
        {"readout.smoothing", decoder.smoothing},
        {"readout.spread", presence_.spread},
        {"readout.miss", options_.miss},
        {"readout.fit_presence", options_.fit_presence ? 1 : 0}};
    for (const auto& [key, value] : numbers) own.texts[key] = exact_text(value);
    rename(own.texts, extras.texts, [&](const std::string& name) { return name + end; });
    rename(own.floats, extras.floats, [&](const std::string& name) { return name + end; });
    rename(own.doubles, extras.doubles, [&](const std::string& name) { return name + end; });
  }
  /// The part of `extras` that `save` has added with this `end`, under the names without it.
  static io::Extras part_of(const io::Extras& extras, const std::string& end) {
    const auto without = [&](const std::string& name) -> std::string {
      const std::size_t mark = name.find(object_mark);
      const std::string_view there =
          mark == std::string::npos ? std::string_view{} : std::string_view(name).substr(mark);
      return there == end ? name.substr(0, mark) : std::string{};
    };
    io::Extras own;
    rename(extras.texts, own.texts, without);
    rename(extras.floats, own.floats, without);
    rename(extras.doubles, own.doubles, without);
    return own;
  }
  /// The end of the names of object `k`: none for the first one.
  static std::string end_of(std::size_t k) {
    return k == 0 ? std::string{} : object_mark + std::to_string(k);
  }
  /// The options with which the object in `own` was learned. Throws Error (Fault::checkpoint).
  static ObjectOptions options_of(const io::Extras& own) {
    const auto number = [&own](const char* key) { return number_of(own, key); };
    ObjectOptions options{RidgeReadout::options_of(own),
                          {},
                          number("readout.fit_presence") != 0,
                          number("readout.miss")};
    options.decoder.threshold = number("readout.threshold");
    options.decoder.growth = number("readout.growth");
    options.decoder.contrast = number("readout.contrast");
    options.decoder.least_area = number("readout.least_area");
    if (own.texts.contains("readout.smoothing")) {  // which files of earlier versions lack
      options.decoder.smoothing = static_cast<int>(number("readout.smoothing"));
    }
    return options;
  }
  void restore(const io::Extras& own) {
    readout_.restore(own);
    with_ = static_cast<std::uint64_t>(number_of(own, "readout.frames_with"));
    without_ = static_cast<std::uint64_t>(number_of(own, "readout.frames_without"));
    presence_.spread = number_of(own, "readout.spread");
    ready_ = true;
  }

 private:
  static constexpr char object_mark = '#';

  template <class Map, class Name>
  static void rename(const Map& from, Map& to, Name name) {
    for (const auto& [key, value] : from) {
      const std::string now = name(key);
      if (!now.empty()) to[now] = value;
    }
  }

  template <class Observe>
  void learn(std::span<const float> hidden, std::span<const std::uint8_t> frame, bool present,
             Observe observe) {
    const bool held_out = holds_out(with_ + without_);
    if (!held_out) observe();
    if (options_.fit_presence && (options_.ridge.shared || held_out)) {
      examples_.offer(present, hidden, frame);
    }
    ++(present ? with_ : without_);
    ready_ = false;
  }
  /// Whether the readout does not learn from a labelled frame, so that the threshold of presence
  /// can be found by it: the last 32 of 256. A readout with weights for each position has so many
  /// that the frames it has learned from say nothing about others; a shared one needs none held
  /// out.
  [[nodiscard]] bool holds_out(std::uint64_t index) const noexcept {
    return options_.fit_presence && !options_.ridge.shared && index % 256 >= 224;
  }

  ObjectOptions options_;
  RidgeReadout readout_;
  Decoder decoder_;
  Presence presence_;
  Examples examples_;
  std::vector<float> heat_;
  std::uint64_t with_ = 0, without_ = 0;
  bool ready_ = false;
};

}  // namespace pvm::inline v0::readout
