// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: what is to be read ahead is no source

#include <pvm/io/prefetch.hpp>

struct NoFrames {
  void next() {}
};

void read_ahead() { pvm::io::Prefetch frames{NoFrames{}}; }
