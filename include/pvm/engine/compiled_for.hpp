// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Checks of an engine that was compiled for certain sizes.

#include <string>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::detail {

/// Returns `batch`. Throws Error (usage) if it is less than 1, or not `Batch` (unless that is
/// `dynamic`).
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

/// Throws Error (usage) unless `batch` is 1, for an engine of one sequence.
inline void check_one_sequence(int batch) {
  if (batch == 1) return;
  throw Error(Fault::usage, "a batch of " + std::to_string(batch) +
                                " sequences is impossible here: this engine runs one sequence;"
                                " use CudaBatchEngine or the host engine for more");
}

/// Throws Error (usage) if the spec has another number of hidden values than `Hidden`; 0 allows
/// any.
template <int Hidden>
void check_hidden(const Spec& spec) {
  if (Hidden == 0 || spec.hidden() == Hidden) return;
  throw Error(Fault::usage, "spec " + quote(spec.name) + " has " + std::to_string(spec.hidden()) +
                                " hidden values and this engine was compiled for " +
                                std::to_string(Hidden));
}

}  // namespace pvm::inline v0::detail
