// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Included by headers that need nlohmann_json: if it is not installed, the first compile error is
/// a sentence that says what to do.

#if !__has_include(<nlohmann/json.hpp>)
#error \
    "pvm reads specs and checkpoints with nlohmann_json, which is not found: install it (Debian: nlohmann-json3-dev), and link the CMake target pvm::io"
#endif
