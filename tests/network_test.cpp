// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Networks as types: they give the same Spec as a file, and training gives the same bits.

#include <cstdint>
#include <filesystem>
#include <vector>

#include <pvm/io/synthetic.hpp>
#include <pvm/pvm.hpp>

#include "catch.hpp"
#include "temp_dir.hpp"
#include "train_helpers.hpp"

namespace {

using Small = pvm::Network<pvm::Input<60, 3, 5>, pvm::Layers<12, 8, 6, 4, 2, 1>, pvm::Hidden<7>,
                           pvm::FanIn<2>, pvm::Lateral<2>, pvm::Feedback<2>, pvm::TopToAll>;

/// model_zoo/tiny.json, in another order of the parts.
using Tiny = pvm::Network<pvm::TopToAll, pvm::LayerDelay<5>, pvm::Layers<4, 2, 1>, pvm::Hidden<4>,
                          pvm::Input<12, 3, 3>>;

/// Every part, with values that are nobody's default.
using All = pvm::Network<pvm::Input<20, 1, 4>, pvm::Layers<5, 4, 3>, pvm::Hidden<5>,
                         pvm::FanIn<3, 1.5>, pvm::Lateral<1>, pvm::Feedback<1>, pvm::ExcludeSelf,
                         pvm::TopToAll, pvm::FeedContext, pvm::Activation<pvm::PolynomialTrue>,
                         pvm::SignOfError, pvm::LearningRule<pvm::Adam>, pvm::LearningRate<0.25>,
                         pvm::MomentumFactor<0.5>, pvm::LayerDelay<3>, pvm::FinalRate<40, 0.125>,
                         pvm::IntermediateRate<60, 0.0625>, pvm::RunLength<99>>;

#if !defined(__clang__)  // whose libstdc++ 12 has no constant strings
static_assert(Small::spec().layer_shapes.size() == 6, "a network's spec is a constant");
static_assert(All::spec().learning_rule == "adam");
#endif
static_assert(Small::hidden == 49 && All::frame_side == 20 && All::channels == 1);

pvm::Spec zoo(const char* file) {
  return pvm::load_spec(std::filesystem::path(PVM_MODEL_ZOO) / file);
}

pvm::Spec named(pvm::Spec spec, const std::string& name) {
  spec.name = name;
  return spec;
}

}  // namespace

TEST_CASE("A network of parts is the spec of the file with its values", "[network]") {
  CHECK(named(Small::spec(), "small") == zoo("small.json"));
  CHECK(named(pvm::Network<pvm::TopToAll>::spec(), "small") == zoo("small.json"));
  const auto all = All::spec();
  CHECK(pvm::parse_spec(pvm::to_json_text(all), "all") == named(all, "unnamed"));
  const auto expected = pvm::parse_spec(R"({"layer_shapes": [5, 4, 3], "input_block_size": 4,
      "input_channels": 1, "hidden_block_size": 5, "fan_in_square_size": 3, "fan_in_radius": 1.5,
      "lateral_radius": 1, "context_exclude_self": 1, "last_layer_context_to_all": 1,
      "feed_context_in_complex_layer": 1, "polynomial": 1, "true_derivative": 1, "opt_abs_diff": 1,
      "learning_rule": "adam", "initial_learning_rate": 0.25, "momentum": 0.5,
      "delay_each_layer_learning": 3, "delay_final_learning_rate": 40, "final_learning_rate": 0.125,
      "delay_intermediate_learning_rate": 60, "intermediate_learning_rate": 0.0625, "steps": 99})",
                                        "all");
  CHECK(named(all, "unnamed") == expected);
  using Other = pvm::Network<pvm::Activation<pvm::Logistic>, pvm::LearningRule<pvm::Sgd>>;
  CHECK(Other::spec().activation == pvm::ActivationKind::logistic);
  CHECK(Other::spec().learning_rule == "sgd");
}

TEST_CASE("A network as a type and as a spec train the same bits", "[network]") {
  const auto train = [](auto& trainer) {
    pvm::io::Synthetic frames;
    trainer.fit(frames, pvm::Steps{700});
    return trainer.weights();
  };
  CHECK(named(Tiny::spec(), "tiny") == zoo("tiny.json"));
  pvm::Trainer<pvm::fp32, 1, Tiny, pvm::host> typed;
  pvm::Trainer<pvm::fp32, 1, pvm::RuntimeNetwork, pvm::host> read{zoo("tiny.json")};
  CHECK(train(typed) == train(read));
  pvm::Trainer<pvm::bf16, 1, Tiny, pvm::host> typed_bf16;
  pvm::Trainer<pvm::bf16, 1, pvm::RuntimeNetwork, pvm::host> read_bf16{zoo("tiny.json")};
  CHECK(train(typed_bf16) == train(read_bf16));
}

TEST_CASE("A network as a type continues checkpoints of its own kind only", "[network]") {
  pvm::Trainer<pvm::fp32, 1, Tiny, pvm::host> first;
  pvm::io::Synthetic frames;
  first.fit(frames, pvm::Steps{40});
  const auto checkpoint = first.checkpoint();
  pvm::Trainer<pvm::fp32, 1, Tiny, pvm::host> second{checkpoint};
  pvm::io::Synthetic same;
  second.fit(same, pvm::Steps{60});
  first.fit(frames, pvm::Steps{60});
  CHECK(second.weights() == first.weights());

  using Other =
      pvm::Network<pvm::TopToAll, pvm::Layers<4, 2>, pvm::Input<12, 3, 3>, pvm::Hidden<4>>;
  pvm::Trainer<pvm::fp32, 1, pvm::RuntimeNetwork, pvm::host> other{Other::spec()};
  const auto refused = train_test::error_of(
      [&] { pvm::Trainer<pvm::fp32, 1, Tiny, pvm::host> wrong{other.checkpoint()}; });
  CHECK(train_test::contains(refused, "layer_shapes"));
}
