// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The tests of CudaBatchEngine and of its shards, on the emulated device. In one file, because they
// have the same kernels.

#include "../cuda_batch_test.cu"

#include "../cuda_batch_shards_test.cu"
