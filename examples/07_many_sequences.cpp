// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Many sequences at once: they share the weights, and nothing else.
///     07_many_sequences SPEC.json STEPS [FILE ...]

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>
#include <pvm/pvm.hpp>

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::fprintf(stderr, "usage: 07_many_sequences SPEC.json STEPS [FILE ...]\n");
    return 2;
  }
  pvm::set_log_sink(pvm::log_to_stderr);
  std::vector<pvm::io::Opener> files;  // zips, videos, directories of pictures
  for (int i = 3; i < argc; ++i) files.push_back(pvm::io::opener(argv[i]));
  if (files.empty()) files = {pvm::io::opener("synthetic:1"), pvm::io::opener("synthetic:2")};

  // Eight streams, whatever the number of files: see docs/data.md.
  pvm::Trainer<pvm::fp32, pvm::dynamic, pvm::RuntimeNetwork, pvm::host> trainer{
      pvm::load_spec(argv[1]), {.batch = 8, .reduce = pvm::Reduce::mean}};
  auto streams = pvm::io::deal(files, 8);
  const auto result = trainer.fit(streams, pvm::Steps{std::strtoull(argv[2], nullptr, 10)});
  std::printf("%llu steps of %d frames, %.0f frames/s\n",
              static_cast<unsigned long long>(result.step), trainer.batch(),
              static_cast<double>(result.step) * trainer.batch() / result.seconds);
} catch (const std::exception& error) {
  std::fprintf(stderr, "07_many_sequences: %s\n", error.what());
  return 1;
}
