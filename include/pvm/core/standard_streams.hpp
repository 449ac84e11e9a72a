// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// For programs: standard streams that are closed when the program starts.

#include <cerrno>

#if !defined(_WIN32)
#include <fcntl.h>
#include <unistd.h>
#endif

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// Opens those of the descriptors 0 to 2 that are closed on /dev/null. Call it first in main: a
/// file that the program opens would get a closed descriptor's number otherwise, and what is
/// printed would land in it. False if that is impossible.
inline bool open_standard_streams() noexcept {
#if !defined(_WIN32)
  for (int stream = 0; stream <= 2; ++stream) {
    if (::fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // open() takes the lowest free number, which is `stream`.
    if (::open("/dev/null", stream == 0 ? O_RDONLY : O_WRONLY) != stream) return false;
  }
#endif
  return true;
}

}  // namespace pvm::inline v0
