// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What an engine that was compiled for certain sizes refuses.

#include <string>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::detail {

/// `batch`; throws Error (usage) for less than one sequence, or others than `Batch`.
template <int Batch>
int check_batch(int batch) {
  if (batch < 1 || (Batch != dynamic && batch != Batch)) {
    throw Error(Fault::usage,
                "a batch of " + std::to_string(batch) + " sequences is impossible here; " +
                    (Batch == dynamic ? std::string("it must be at least 1")
                                      : "this engine was compiled for " + std::to_string(Batch)));
  }
  return batch;
}

/// Throws Error (usage) for a spec of another number of hidden values. `Hidden`: 0 for any.
template <int Hidden>
void check_hidden(const Spec& spec) {
  if (Hidden == 0 || spec.hidden() == Hidden) return;
  throw Error(Fault::usage, "spec " + quote(spec.name) + " has " + std::to_string(spec.hidden()) +
                                " hidden values and this engine was compiled for " +
                                std::to_string(Hidden));
}

}  // namespace pvm::inline v0::detail
