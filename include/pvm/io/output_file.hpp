// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Looks at the file that something will be written to at the end of a run, before the run begins.

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <pvm/core/error.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/io/atomic_file.hpp>

namespace pvm::inline v0::io {

namespace detail {

/// Whether a file is empty, or its text begins as a JSON object.
inline bool may_be_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  char first = 0;
  return !(file >> first) || first == '{';
}

}  // namespace detail

/// Throws Error (Fault::usage) if a JSON file cannot be written to `path`, or if a file is there
/// that is none and would be lost. `what` begins the message: "the trace".
inline void require_json_output(const std::filesystem::path& path, const std::string& what) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Fault::usage, what + " cannot be written to " + quote(path.string()) + ": " + why);
  };
  if (const auto why = why_not_writable(path); !why.empty()) refuse(why + "; choose another place");
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !detail::may_be_json(path)) {
    refuse("it exists and holds something else; choose another name");
  }
}

}  // namespace pvm::inline v0::io
