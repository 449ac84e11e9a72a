// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The instructions that CUDA C++ has no name for, and nothing else: every line of PTX is in these
/// files, so that others of the same paths (tests/emulated_cuda) can stand in where there is no
/// GPU.

#include <pvm/engine/cuda/instructions/arithmetic.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/group_products.cuh>
#include <pvm/engine/cuda/instructions/matrices.cuh>
#include <pvm/engine/cuda/instructions/memory.cuh>
#include <pvm/engine/cuda/instructions/registers.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>
