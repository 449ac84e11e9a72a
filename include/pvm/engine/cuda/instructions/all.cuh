// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Functions for the PTX instructions that CUDA C++ has no name for, and nothing else. All PTX of
/// the library is in these files, so that files with the same paths in tests/emulated_cuda can
/// replace them where there is no GPU.

#include <pvm/engine/cuda/instructions/arithmetic.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/group_products.cuh>
#include <pvm/engine/cuda/instructions/matrices.cuh>
#include <pvm/engine/cuda/instructions/memory.cuh>
#include <pvm/engine/cuda/instructions/registers.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>
