// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The command `pvm quantize`.

#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

namespace quantize_command {

struct Options {
  std::string load, spec, input, out, to = "int8";
  std::int64_t frames = 500, samples = 64;
  bool quiet = false;
};

inline void describe(CLI::App& app, Options& o) {
  app.add_option("-L,--load", o.load, "a checkpoint, or a tracker's file")->type_name("FILE");
  app.add_option("-S,--spec", o.spec, "model spec, if the checkpoint of -L holds none")
      ->type_name("FILE");
  app.add_option("-i,--input", o.input, "a clip like those that it will see: as pvm -f")
      ->type_name("PATH");
  app.add_option("-o,--out", o.out, "the file to write")->type_name("FILE.safetensors");
  app.add_option("--to", o.to, "int8 (default) or fp8")
      ->check(CLI::IsMember({"int8", "fp8"}))
      ->type_name("NAME");
  app.add_option("--frames", o.frames, "frames of the clip that are used (default 500)")
      ->check(CLI::Range(8, 1'000'000))
      ->type_name("N");
  app.add_option("--samples", o.samples, "of which so many are looked at closely (default 64)")
      ->check(CLI::Range(1, 10'000))
      ->type_name("N");
  app.add_flag("-q,--quiet", o.quiet, "only warnings and errors");
  app.footer(R"(
Example:
  pvm quantize -L ball.safetensors -i video.avi -o ball_int8.safetensors
  pvm serve -L ball_int8.safetensors)");
}

/// Writes a network for prediction only, with weights of one byte.
int quantize(const Options& o);

}  // namespace quantize_command
