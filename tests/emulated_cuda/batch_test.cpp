// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The tests of CudaBatchEngine, on the emulated device.

#include "../cuda_batch_test.cu"
