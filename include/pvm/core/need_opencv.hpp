// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Included by headers that need OpenCV: if it is not installed, the first compile error is a
/// sentence that says what to do.

#if !__has_include(<opencv2/core.hpp>)
#error \
    "pvm reads pictures and videos with OpenCV, which is not found: install it (Debian: libopencv-dev), and link the CMake target pvm::io or compile with pkg-config --cflags --libs opencv4"
#endif
