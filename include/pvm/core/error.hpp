// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The library's only exception type: a stable id and a sentence that says what to do.

#include <stdexcept>
#include <string>

#include <pvm/core/config.hpp>
#include <pvm/core/printable.hpp>

namespace pvm::inline v0 {

/// The kind of a failure. The values are stable: scripts may rely on them.
enum class Fault : int {
  usage = 1,       ///< an argument that no run could work with
  spec = 2,        ///< a model spec that is wrong
  source = 3,      ///< frames that cannot be read
  checkpoint = 4,  ///< a checkpoint that cannot be read or written
  device = 5,      ///< a GPU that is missing, too small or lost
  memory = 6,      ///< not enough memory for what was asked
  rank = 7,        ///< another process of the run that was lost, or that differs from this one
};

/// Thrown for every failure that the library reports. `what()` is one sentence on one line: what
/// went wrong, where, and what to do. Whatever text from outside is in it, it is `printable`.
class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& sentence)
      : std::runtime_error(printable(sentence)), fault_(fault) {}

  [[nodiscard]] Fault fault() const noexcept { return fault_; }

 private:
  Fault fault_;
};

}  // namespace pvm::inline v0
