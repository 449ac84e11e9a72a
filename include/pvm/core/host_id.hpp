// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which host this process runs on, for processes that ask whether they are on the same one.

#include <fstream>
#include <string>

#include <unistd.h>

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// The same for all processes of a host until it is started anew, and another one on every other
/// host: Linux's number of the start, else the host's name. (Containers of one host have names of
/// their own.)
inline std::string host_id() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  if (!text.empty()) return text;
  char name[256] = "";
  static_cast<void>(::gethostname(name, sizeof name - 1));
  return name;
}

}  // namespace pvm::inline v0
