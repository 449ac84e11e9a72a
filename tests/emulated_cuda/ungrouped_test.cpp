// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Batches without wgmma (matrix products of four warps), on the emulated device. Only programs that
// are compiled for Hopper alone use wgmma; here it is turned off by PVM_EMULATED_GROUPS.

#include "../catch.hpp"

#include <pvm/engine/cuda/batch/engine.hpp>

#include "../engine_suite.hpp"
#include "../rounding_suite.hpp"

TEST_CASE("Batches without products of four warps stay within their rounding") {
  pvm_test::batches_are_rounded<pvm::CudaBatchEngine<pvm::bf16>, pvm::bf16>();
}
