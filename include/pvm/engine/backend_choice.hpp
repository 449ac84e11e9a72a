// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Backends as values.

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// Backends as values, for programs that choose at run time. `automatic`: the GPU if one can be
/// used, else the CPU.
enum class BackendChoice { automatic, cuda, host };

}  // namespace pvm::inline v0
