// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The tests of CudaChipEngine and CudaStreamEngine, on the emulated device.

#include "../cuda_units_test.cu"
