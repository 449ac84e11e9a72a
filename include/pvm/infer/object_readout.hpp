// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The readout that a file holds, frozen: where the object is in a frame.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/core/error.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/readout/decoder.hpp>
#include <pvm/readout/mlp.hpp>
#include <pvm/readout/object.hpp>
#include <pvm/readout/presence.hpp>
#include <pvm/readout/readout.hpp>
#include <pvm/readout/ridge.hpp>

namespace pvm::inline v0::infer {

/// What pvm::Tracker::save has written of the readout (the first object's, if there are several),
/// or what a checkpoint holds of a readout that learned beside the network: a ridge, or the
/// original's networks. It finds what they find, bit by bit. One thread at a time; a copy for each
/// further thread.
class ObjectReadout {
 public:
  /// Where the object is.
  struct Seen {
    double confidence = 0;       ///< that the object is present: 0 to 1
    std::optional<io::Box> box;  ///< in pixels of the network's frame, if it is present
  };

  /// Throws Error (Fault::checkpoint) if `extras` hold no readout of this network.
  ObjectReadout(const Spec& spec, const io::Extras& extras)
      : readout_(made(spec, extras)),
        scale_(static_cast<float>(spec.frame_side()) / static_cast<float>(heat_side(spec))),
        decoder_(heat_side(spec), is_ridge() ? spec.input_block_size : 1, decoder_of(extras)) {
    presence_.threshold = decoder_.options().contrast;
    if (extras.texts.contains("readout.spread")) {
      presence_.spread = readout::number_of(extras, "readout.spread");
    }
  }

  /// Whether it reads hidden values.
  [[nodiscard]] bool reads_hidden() const noexcept {
    return std::visit([](const auto& readout) { return readout.reads_hidden(); }, readout_);
  }
  /// Values of the heatmap.
  [[nodiscard]] std::size_t heat_values() const noexcept {
    const auto side = static_cast<std::size_t>(
        std::visit([](const auto& readout) { return readout.heat_side(); }, readout_));
    return side * side;
  }

  /// Writes to the heatmap what can be known of a frame before its hidden values are there, for
  /// `see`.
  void look(std::span<const std::uint8_t> frame, std::span<float> heat) {
    if (auto* ridge = std::get_if<readout::RidgeReadout>(&readout_)) {
      ridge->heat_of_frame(frame, heat);
    }
  }
  /// Completes the heatmap of `look`, row by row, and says where the object is in it. `hidden`: as
  /// a Row's; may be empty if none are read.
  Seen see(std::span<const float> hidden, std::span<const std::uint8_t> frame,
           std::span<float> heat) {
    if (const auto* ridge = std::get_if<readout::RidgeReadout>(&readout_)) {
      ridge->add_hidden(hidden, heat);
    } else {
      std::get<readout::MlpReadout>(readout_).heat(hidden, frame, heat);
    }
    const readout::Decoded decoded = decoder_.decode(heat);
    Seen seen{presence_.confidence(decoded.contrast), {}};
    if (decoded.present) {
      const io::Box& box = decoded.box;
      seen.box = is_ridge() ? box
                            : io::Box{box.x * scale_, box.y * scale_, box.width * scale_,
                                      box.height * scale_};
    }
    return seen;
  }

 private:
  using Any = std::variant<readout::RidgeReadout, readout::MlpReadout>;

  static Any made(const Spec& spec, const io::Extras& extras) {
    const Connectome net = make_connectome(spec);
    if (readout::text_of(extras, "readout") == "ridge") {
      readout::RidgeReadout ridge(spec, net, readout::RidgeReadout::options_of(extras));
      ridge.restore(extras);
      ridge.freeze();
      return ridge;
    }
    const auto whole = [&](const char* key) {
      const double number = readout::number_of(extras, key);
      if (number >= 0 && number <= 1e6) return static_cast<int>(number);
      throw Error(Fault::checkpoint, "the file's readout has an impossible " + quote(key));
    };
    readout::MlpReadout mlp(spec, net,
                            {.representation = whole("readout.representation"),
                             .layers = whole("readout.layers"),
                             .block = whole("readout.block"),
                             .multiplier = readout::number_of(extras, "readout.multiplier")});
    mlp.restore(extras);
    return mlp;
  }

  /// The decoder's options in a tracker's file; the usual ones for a readout without a tracker.
  static readout::DecoderOptions decoder_of(const io::Extras& extras) {
    if (!extras.texts.contains("readout.threshold")) return {};
    return readout::ObjectReadout::options_of(extras).decoder;
  }

  [[nodiscard]] bool is_ridge() const noexcept {
    return std::holds_alternative<readout::RidgeReadout>(readout_);
  }
  /// Cells of a heatmap's side, as the decoder sees it.
  [[nodiscard]] int heat_side(const Spec& spec) const {
    if (is_ridge()) return spec.layer_shapes.front();
    return std::get<readout::MlpReadout>(readout_).heat_side();
  }

  Any readout_;
  float scale_;  // from pixels of the heatmap to those of the frame
  readout::Decoder decoder_;
  readout::Presence presence_;
};

}  // namespace pvm::inline v0::infer
