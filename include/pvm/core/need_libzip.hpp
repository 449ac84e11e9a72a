// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// For headers that need libzip: where it is missing the compiler's first words are a sentence.

#if !__has_include(<zip.h>)
#error "pvm reads zips with libzip, which is not found: install it (Debian: libzip-dev), and link the CMake target pvm::io or compile with pkg-config --cflags --libs libzip"
#endif
