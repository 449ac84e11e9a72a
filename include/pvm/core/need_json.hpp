// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// For headers that need nlohmann_json: where it is missing the compiler's first words are a sentence.

#if !__has_include(<nlohmann/json.hpp>)
#error "pvm reads specs and checkpoints with nlohmann_json, which is not found: install it (Debian: nlohmann-json3-dev), and link the CMake target pvm::io"
#endif
