// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The single source of the library's version; CMakeLists.txt reads these three lines.
#define PVM_VERSION_MAJOR 0
#define PVM_VERSION_MINOR 1
#define PVM_VERSION_PATCH 0

#include <string>

namespace pvm::inline v0 {

/// The library's version, as `0.1.0`.
inline std::string version_text() {
  return std::to_string(PVM_VERSION_MAJOR) + "." + std::to_string(PVM_VERSION_MINOR) + "." +
         std::to_string(PVM_VERSION_PATCH);
}

}  // namespace pvm::inline v0
