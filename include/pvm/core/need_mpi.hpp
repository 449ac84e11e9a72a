// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Included by headers that need MPI: if it is not installed, the first compile error is a sentence
/// that says what to do.

#if !__has_include(<mpi.h>)
#error \
    "pvm shares networks among processes by MPI, which is not found: install it (Debian: libopenmpi-dev), and link the CMake target MPI::MPI_CXX or compile with mpicxx"
#endif
