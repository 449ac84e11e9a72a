// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The tests of CudaGeneralEngine, on the emulated device.

#include "../cuda_general_test.cu"

TEMPLATE_TEST_CASE("general: items that shared memory has no room for pass through a window", "",
                   pvm::fp32, pvm::bf16) {
  using pvm::detail::general::Planner, pvm::detail::general::Program;
  using Stored = pvm::detail::general::Stored<TestType>;
  pvm::Spec spec = tiny();
  spec.hidden_block_size = GENERATE(9, 16);  // tiles of seven rows, and of eight in whole groups
  spec.layer_shapes = {spec.hidden_block_size == 9 ? 3 : 2, 1};
  const auto net = pvm::make_connectome(spec);
  const pvm::detail::general::StepShape shape(
      spec, net, pvm::DeferralPlan::for_momentum(spec.momentum, 15, 20), Stored{});
  const auto windowed = [&](std::size_t shared) {
    const auto plan = Planner::make(spec, net, shape, 1, shared, 0);
    return reinterpret_cast<const Program*>(plan.blobs.data())->windowed != 0;
  };
  const auto weights = [&](std::size_t shared) {
    const emulated_cuda::Different device({.multiprocessors = 1, .shared = shared});
    pvm::CudaGeneralEngine<TestType> engine(spec, 1);
    engine.restore(weights_only(engine, start_weights(spec)));
    run(engine, spec, 20);
    return engine.save().weights;
  };
  std::size_t shared = 256 << 10;  // so that all items have room
  REQUIRE_FALSE(windowed(shared));
  const auto expected = weights(shared);
  while (!windowed(shared)) shared -= 1 << 10;
  CAPTURE(spec.hidden_block_size, shared);
  CHECK(weights(shared) == expected);
}
