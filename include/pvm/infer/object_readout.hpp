// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The readout that a tracker's file holds, frozen: where the object is in a frame.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/readout/decoder.hpp>
#include <pvm/readout/object.hpp>
#include <pvm/readout/presence.hpp>
#include <pvm/readout/readout.hpp>
#include <pvm/readout/ridge.hpp>

namespace pvm::inline v0::infer {

/// What pvm::Tracker::save has written of the readout (the first object's, if there are several),
/// without what only learning needs. It finds what the tracker finds, bit by bit. One thread at a
/// time; a copy for each further thread.
class ObjectReadout {
 public:
  /// Where the object is.
  struct Seen {
    double confidence = 0;       ///< that the object is present: 0 to 1
    std::optional<io::Box> box;  ///< in pixels of the network's frame, if it is present
  };

  /// Throws Error (Fault::checkpoint) if `extras` hold no tracker's readout of this network.
  ObjectReadout(const Spec& spec, const io::Extras& extras)
      : readout_(spec, make_connectome(spec), readout::RidgeReadout::options_of(extras)),
        decoder_(spec.layer_shapes.front(), spec.input_block_size,
                 readout::ObjectReadout::options_of(extras).decoder),
        presence_{decoder_.options().contrast, readout::number_of(extras, "readout.spread")} {
    readout_.restore(extras);
    readout_.freeze();
  }

  /// Whether it reads hidden values.
  [[nodiscard]] bool reads_hidden() const noexcept { return readout_.reads_hidden(); }
  /// Positions of the heatmap.
  [[nodiscard]] std::size_t positions() const noexcept { return readout_.inputs().positions(); }

  /// Writes the heatmap, [cells][cells], and says where the object is in it. `hidden`: as a Row's;
  /// may be empty if none are read.
  Seen see(std::span<const float> hidden, std::span<const std::uint8_t> frame,
           std::span<float> heat) {
    readout_.heat(hidden, frame, heat);
    const readout::Decoded decoded = decoder_.decode(heat);
    Seen seen{presence_.confidence(decoded.contrast), {}};
    if (decoded.present) seen.box = decoded.box;
    return seen;
  }

 private:
  readout::RidgeReadout readout_;
  readout::Decoder decoder_;
  readout::Presence presence_;
};

}  // namespace pvm::inline v0::infer
