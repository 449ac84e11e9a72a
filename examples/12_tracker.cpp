// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Learns where an object is from a labelled clip, and finds it in another. The same with the
/// command line: pvm track -L RUN.safetensors --train LABELLED -f FILE --out boxes.csv
///     12_tracker RUN.safetensors LABELLED FILE [STEPS]

#include <cstdio>
#include <exception>
#include <vector>

#include <pvm/io/open.hpp>
#include <pvm/pvm.hpp>
#include <pvm/readout/clips.hpp>
#include <pvm/readout/tracker.hpp>

#include "arguments.hpp"

int main(int argc, char** argv) try {
  const Arguments arguments{argc, argv, 3, 4, "12_tracker RUN.safetensors LABELLED FILE [STEPS]"};
  pvm::Tracker tracker{pvm::io::load_checkpoint(arguments[1])};
  const auto clip =
      pvm::readout::read_clip(pvm::io::open_source(arguments[2]), tracker.frame_shape());
  for (std::size_t i = 0; i < clip.size(); ++i) tracker.learn(clip.frame(i), clip.labels[i]);
  tracker.save("tracker.safetensors");

  auto frames = pvm::io::open_source(arguments[3]);
  std::vector<std::uint8_t> frame(tracker.frame_shape().size());
  const auto steps = arguments.steps(4, 100);
  for (std::uint64_t i = 0; i < steps; ++i) {
    frames.next(tracker.frame_shape(), frame);
    const pvm::Found found = tracker.track(frame);
    if (found.present) {
      std::printf("%4d: at %.0f,%.0f, %.0f x %.0f, confidence %.2f\n", static_cast<int>(i),
                  static_cast<double>(found.box.x), static_cast<double>(found.box.y),
                  static_cast<double>(found.box.width), static_cast<double>(found.box.height),
                  found.confidence);
    } else {
      std::printf("%4d: not there, confidence %.2f\n", static_cast<int>(i), 1 - found.confidence);
    }
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "12_tracker: %s\n", error.what());
  return 1;
}
