// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// `pvm quantize`, in a file of its own, which nvcc need not compile.

#include "pvm_quantize.hpp"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include <pvm/core/error.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/infer/frozen_file.hpp>
#include <pvm/infer/quantize.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/original.hpp>
#include <pvm/model/json.hpp>

namespace quantize_command {

namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw pvm::Error(pvm::Fault::usage, sentence);
}

/// Before anything is computed: the output must not take the place of what is read, or of any other
/// file than one of this command's.
void check_output(const Options& o) {
  std::error_code ignored;
  for (const auto& [option, input] :
       {std::pair{"-L", &o.load}, {"-i", &o.input}, {"-S", &o.spec}}) {
    if (!std::filesystem::equivalent(*input, o.out, ignored)) continue;
    refuse(std::string("-o would take the place of the file of ") + option);
  }
  const std::string where = "-o " + pvm::quote(o.out);
  if (const auto why = pvm::io::why_not_writable(o.out); !why.empty()) {
    refuse(where + " cannot be written: " + why + "; choose another place");
  }
  if (std::filesystem::exists(o.out, ignored) && !pvm::is_frozen(o.out)) {
    refuse(where + " exists and is no file of pvm quantize; choose another name");
  }
}

}  // namespace

int quantize(const Options& o) {
  const auto require = [](const std::string& value, const char* sentence) {
    if (value.empty()) refuse(sentence);
  };
  require(o.load, "there is no network; name a checkpoint with -L (see --help)");
  require(o.input, "there is no clip to find scales from; name one with -i (see --help)");
  require(o.out, "there is no file to write; name one with -o (see --help)");
  check_output(o);
  std::optional<pvm::Spec> spec;
  if (!o.spec.empty()) spec = pvm::load_spec(o.spec);
  const auto checkpoint = pvm::io::load_any_network(o.load, spec ? &*spec : nullptr);
  auto clip = pvm::io::open_source(o.input, pvm::io::Decode::cpu);
  const pvm::io::FrameShape shape{checkpoint.spec.frame_side(), checkpoint.spec.frame_side(),
                                  checkpoint.spec.input_channels};
  const auto network =
      pvm::quantize(checkpoint, [&](std::span<std::uint8_t> frame) { clip.next(shape, frame); },
                    {.format = o.to == "fp8" ? pvm::FrozenFormat::fp8 : pvm::FrozenFormat::int8,
                     .frames = static_cast<std::uint64_t>(o.frames),
                     .samples = static_cast<int>(o.samples)});
  pvm::io::make_directories_of(o.out);
  pvm::save_frozen(o.out, network);
  if (!o.quiet) {
    std::printf("%s: %s in %s, %.1f MB of weights where fp32 has %.1f\n",
                pvm::printable(o.out).c_str(), pvm::printable(network.spec.name).c_str(),
                o.to.c_str(), static_cast<double>(network.values.size()) * 1e-6,
                static_cast<double>(network.values.size()) * 4e-6);
  }
  return 0;
}

}  // namespace quantize_command
