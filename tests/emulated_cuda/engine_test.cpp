// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The tests of CudaEngine, on the emulated device.

#include "../cuda_engine_test.cu"
