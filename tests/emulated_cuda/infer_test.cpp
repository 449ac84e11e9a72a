// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The tests of frozen steps on a GPU, on the emulated device.

#include "../cuda_infer_test.cu"
