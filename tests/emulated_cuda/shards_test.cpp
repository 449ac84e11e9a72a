// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The tests of CudaShardsEngine, on emulated devices.

#include "../cuda_shards_test.cu"
