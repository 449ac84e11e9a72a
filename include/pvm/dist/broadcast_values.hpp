// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Values of several types in one message from rank 0 to all others.

#include <pvm/dist/bytes.hpp>
#include <pvm/dist/communicator.hpp>

namespace pvm::inline v0::dist {

/// Makes these variables of all ranks those of rank 0.
template <Communicator C, class... T>
void broadcast_values(C& ranks, T&... values) {
  Bytes message;
  if (ranks.rank() == 0) (message.put(values), ...);
  broadcast_all(ranks, message.all);
  if (ranks.rank() != 0) (message.get(values), ...);
}

}  // namespace pvm::inline v0::dist
