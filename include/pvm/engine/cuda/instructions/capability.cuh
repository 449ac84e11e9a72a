// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Stops the compilation for GPUs that are too old for these instructions.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error \
    "pvm's kernels need compute capability 8.0 or later: compile for that of your GPU, by nvcc -arch=native or CMake's -DCMAKE_CUDA_ARCHITECTURES=native"
#endif
