// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Trains on a video at several places at once: four sequences share the weights.
///     02_video SPEC.json VIDEO [STEPS]

#include <cstdio>
#include <exception>

#include <pvm/io/deal.hpp>
#include <pvm/io/preview.hpp>
#include <pvm/io/video.hpp>
#include <pvm/pvm.hpp>

#include "arguments.hpp"

int main(int argc, char** argv) try {
  const Arguments arguments{argc, argv, 2, 3, "02_video SPEC.json VIDEO [STEPS]"};
  pvm::set_log_sink(pvm::log_to_stderr);
  pvm::Trainer<pvm::fp32, 4> trainer{pvm::load_spec(arguments[1])};

  // Four readers of one file, which begin a quarter of it apart. Each decodes ahead on its own
  // thread.
  auto open_video = [path = arguments[2]] { return pvm::io::AnySource(pvm::io::Video(path)); };
  auto streams = pvm::io::deal({open_video}, 4);

  trainer.fit(streams, pvm::Steps{arguments.steps(3, 10'000)}, pvm::Progress{},
              pvm::Metrics{"video_run.jsonl"}, pvm::io::Preview{"video_run.png"},
              pvm::Checkpoints{"video_run", 10'000});
} catch (const std::exception& error) {
  std::fprintf(stderr, "02_video: %s\n", error.what());
  return 1;
}
