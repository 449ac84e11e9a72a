// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Replaces the library's instructions/registers.cuh on the emulated device.

#include <cuda_runtime.h>

namespace pvm::inline v0::detail {

template <int>
void keep_branches_apart(float (&)[4]) {}
inline const unsigned char* keep_in_one_register(const unsigned char* sum) { return sum; }
inline void clear_in_place(float (&v)[4]) { v[0] = v[1] = v[2] = v[3] = 0; }
template <int Count>
void compute_here(float (&)[Count]) {}
template <int>
void take_registers() {}
template <int>
void release_registers() {}

}  // namespace pvm::inline v0::detail
