// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Trains on many sequences at once, which share the weights and nothing else.
///     07_many_sequences SPEC.json STEPS [FILE ...]

#include <cstdio>
#include <exception>
#include <vector>

#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>
#include <pvm/pvm.hpp>

#include "arguments.hpp"

int main(int argc, char** argv) try {
  const Arguments arguments{argc, argv, 2, 1000, "07_many_sequences SPEC.json STEPS [FILE ...]"};
  pvm::set_log_sink(pvm::log_to_stderr);
  std::vector<pvm::io::Opener> files;  // zips, videos, directories of pictures
  for (int i = 3; i <= arguments.count(); ++i) files.push_back(pvm::io::opener(arguments[i]));
  if (files.empty()) files = {pvm::io::opener("synthetic:1"), pvm::io::opener("synthetic:2")};

  // Eight streams, whatever the number of files: see docs/data.md.
  pvm::Trainer<pvm::fp32, pvm::dynamic, pvm::RuntimeNetwork, pvm::host> trainer{
      pvm::load_spec(arguments[1]), {.batch = 8, .reduce = pvm::Reduce::mean}};
  auto streams = pvm::io::deal(files, 8);
  const auto result = trainer.fit(streams, pvm::Steps{arguments.steps(2, 0)});
  std::printf("%llu steps of %d frames, %.0f frames/s\n",
              static_cast<unsigned long long>(result.step), trainer.batch(),
              static_cast<double>(result.step) * trainer.batch() / result.seconds);
} catch (const std::exception& error) {
  std::fprintf(stderr, "07_many_sequences: %s\n", error.what());
  return 1;
}
