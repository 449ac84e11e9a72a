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

TEMPLATE_TEST_CASE(
    "general: tall units in rounds, in one column part and in two, follow the reference", "",
    pvm::fp32, pvm::bf16) {
  pvm::Spec spec = tiny();
  spec.hidden_block_size = GENERATE(12, 14);
  spec.layer_shapes = {2, 1};
  const emulated_cuda::Different device({.multiprocessors = 3});
  const auto differences = pvm_test::distance<pvm::CudaGeneralEngine<TestType>>(spec, 1, 20);
  if (std::is_same_v<TestType, pvm::fp32>) {
    pvm_test::check_small(differences);
  } else {
    pvm_test::require_rounded(differences, spec, 20, 0x1p-9);
  }
}

TEST_CASE("general: a panel's cover leaves few warps idle") {
  using pvm::detail::general::cover_panel;
  const auto is = [](pvm::detail::general::PanelCover cover, int parts, int rounds) {
    return cover.parts == parts && cover.rounds == rounds;
  };
  CHECK(is(cover_panel(7, 14), 2, 1));
  CHECK(is(cover_panel(3, 16), 5, 1));
  CHECK(is(cover_panel(16, 16), 1, 1));
  CHECK(is(cover_panel(17, 16), 2, 3));  // three of twice the columns instead of two
  CHECK(is(cover_panel(21, 14), 2, 3));
  CHECK(is(cover_panel(25, 16), 1, 2));  // four would be the same
}
