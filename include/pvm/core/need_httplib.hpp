// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Included by headers that need cpp-httplib: if it is not installed, the first compile error is a
/// sentence that says what to do.

#if !__has_include(<httplib.h>)
#error \
    "pvm serves its live page and predictions with cpp-httplib, which is not found: install it (Debian: libcpp-httplib-dev), and compile with pkg-config --cflags --libs cpp-httplib"
#endif
