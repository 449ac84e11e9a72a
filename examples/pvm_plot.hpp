// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The command `pvm plot`.

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/io/chart.hpp>
#include <pvm/train/learning_curves.hpp>

namespace plot_command {

struct Options {
  std::vector<std::string> files;
  std::string out;
  bool quiet = false;
};

inline void describe(CLI::App& app, Options& o) {
  app.add_option("METRICS", o.files, "files of --metrics, one for each run")->type_name("FILE");
  app.add_option("-o,--out", o.out, "write the picture here")->type_name("FILE.png");
  app.add_flag("-q,--quiet", o.quiet, "only warnings and errors");
  app.footer(R"(
PSNR of the predictions (thick) and of repeating the frame of two steps before (thin), over steps
and over seconds of training, in one colour for each run.

Example:
  pvm plot runs/*.jsonl -o curves.png)");
}

inline int plot(const Options& o) {
  const auto refuse = [](const std::string& sentence) {
    throw pvm::Error(pvm::Fault::usage, sentence);
  };
  if (o.files.empty()) refuse("there is nothing to draw; name files of --metrics");
  if (o.out.empty()) refuse("name the picture to write with -o FILE.png");
  std::vector<pvm::LearningCurve> runs;
  for (const std::string& file : o.files) {
    std::error_code ignored;
    if (std::filesystem::equivalent(file, o.out, ignored)) {
      refuse("-o " + pvm::quote(o.out) + " is a file that is read; choose another name");
    }
    runs.push_back(pvm::read_learning_curve(file));
  }
  pvm::io::write_png(o.out, pvm::draw_learning_curves(runs));
  if (!o.quiet) std::printf("picture: %s\n", pvm::printable(o.out).c_str());
  return 0;
}

}  // namespace plot_command
