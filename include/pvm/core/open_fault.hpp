// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Says why a file cannot be opened, for messages: streams and libraries do not tell.

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#if !defined(_WIN32)
#include <fcntl.h>
#include <unistd.h>
#endif

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// A failure to open something, as the end of a sentence. `code`: the value of `errno`.
inline std::string open_fault(int code) {
  if (code == EMFILE) {
    return "there are too many open files in this program; raise the limit (ulimit -n)";
  }
  if (code == ENFILE) return "there are too many open files on this machine; close some programs";
  const std::string message = std::generic_category().message(code);
  return code == EACCES || code == EPERM ? message + "; check its permissions" : message;
}

/// Why the file or directory `path` cannot be opened for reading; empty if it can.
inline std::string why_not_readable(const std::filesystem::path& path) {
#if !defined(_WIN32)
  const int handle = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (handle < 0) return open_fault(errno);
  ::close(handle);
#endif
  return {};
}

}  // namespace pvm::inline v0
