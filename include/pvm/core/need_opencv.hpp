// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// For headers that need OpenCV: where it is missing the compiler's first words are a sentence.

#if !__has_include(<opencv2/core.hpp>)
#error "pvm reads pictures and videos with OpenCV, which is not found: install it (Debian: libopencv-dev), and link the CMake target pvm::io or compile with pkg-config --cflags --libs opencv4"
#endif
