// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The oldest GPUs that have the instructions: whoever compiles for others is told so.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error \
    "pvm's kernels need compute capability 8.0 or later: compile for that of your GPU, by nvcc -arch=native or CMake's -DCMAKE_CUDA_ARCHITECTURES=native"
#endif
