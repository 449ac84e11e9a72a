// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The tests of the readouts on a GPU, on the emulated device.

#include "../cuda_readout_test.cu"
