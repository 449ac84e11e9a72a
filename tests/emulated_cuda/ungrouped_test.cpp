// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Programs that are not compiled for Hopper alone have no products of four warps: batches without
// them, on the emulated device.

#include "../catch.hpp"

#include <pvm/engine/cuda/batch/engine.hpp>

#include "../engine_suite.hpp"
#include "../rounding_suite.hpp"

TEST_CASE("Batches without products of four warps stay within their rounding") {
  pvm_test::batches_are_rounded<pvm::CudaBatchEngine<pvm::bf16>, pvm::bf16>();
}
