// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Included by headers that need libzip: if it is not installed, the first compile error is a
/// sentence that says what to do.

#if !__has_include(<zip.h>)
#error \
    "pvm reads zips with libzip, which is not found: install it (Debian: libzip-dev), and link the CMake target pvm::io or compile with pkg-config --cflags --libs libzip"
#endif
