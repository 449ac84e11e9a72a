// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The tests of CudaGeneralEngine, on the emulated device.

#include "../cuda_general_test.cu"
