// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Keeps what a program prints out of its files.

#include <cerrno>
#include <string>
#include <system_error>

#if !defined(_WIN32)
#include <fcntl.h>
#endif

#include <pvm/core/error.hpp>

namespace pvm::inline v0 {

/// Opens those of the descriptors 0, 1 and 2 on /dev/null that the program was started without (as
/// `program >&-` does). Otherwise the next file that the program opens gets such a number, and what
/// is printed or logged ends in that file. Call it at the beginning of `main`. Throws Error
/// (Fault::usage) if there is no /dev/null.
inline void open_standard_streams() {
#if !defined(_WIN32)
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", O_RDWR | O_NOCTTY) == descriptor) continue;  // it takes the lowest
    throw Error(Fault::usage, "standard streams are closed and /dev/null cannot be opened: " +
                                  std::generic_category().message(errno) +
                                  "; start the program with all three");
  }
#endif
}

}  // namespace pvm::inline v0
