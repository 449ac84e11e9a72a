// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The tests of CudaResidentEngine and CudaStreamedEngine, and of their shards, in one process and
// in ranks, on the emulated device. In one file, because they have the same kernels.

#include "../cuda_units_test.cu"

#include "../cuda_shards_test.cu"

#include "ranks_cases.hpp"
