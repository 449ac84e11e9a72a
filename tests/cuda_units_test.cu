// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Compares CudaResidentEngine, CudaStreamedEngine and CudaContextEngine, the engines for one
// sequence that keep the weights of whole units on the chip or stream them, with the plain double
// reference within their rounding, with the host engine, and with themselves: captured, eager,
// resumed.

#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include <pvm/engine/cuda/units/engine.hpp>
#include <pvm/engine/host/engine.hpp>

#include "rounding_suite.hpp"

using pvm_test::check_scores;
using pvm_test::check_small;
using pvm_test::distance;
using pvm_test::doubles;
using pvm_test::hidden_49;
using pvm_test::largest_difference;
using pvm_test::require_rounded;
using pvm_test::run_steps;
using pvm_test::skipped;
using pvm_test::some_weights;
using pvm_test::start_from;
using pvm_test::steps_of;
using pvm_test::weights_of;

namespace {

namespace units = pvm::detail::units;

#if defined(PVM_EMULATED_CUDA)
/// Sets the number of SMs of the emulated device: the fewer, the more of a network's weights are
/// streamed.
class Multiprocessors {
 public:
  explicit Multiprocessors(int count)
      : before_(std::exchange(emulated_cuda::facts.multiprocessors, count)) {}
  ~Multiprocessors() { emulated_cuda::facts.multiprocessors = before_; }

 private:
  int before_;
};
#else
struct Multiprocessors {
  explicit Multiprocessors(int) {}
};
#endif

/// A spec with rates so high that a gradient listed with a wrong age, or folded twice, causes
/// errors larger than rounding.
pvm::Spec quick() {
  auto spec = hidden_49();
  spec.initial_learning_rate = 0.02;
  return spec;
}
pvm::Spec with_36() {
  auto spec = quick();
  spec.name = "hidden 36";
  spec.hidden_block_size = 6;
  return spec;
}
/// Units of another size.
pvm::Spec with_units_of(int block_size) {
  auto spec = quick();
  spec.name = "hidden " + std::to_string(block_size * block_size);
  spec.hidden_block_size = block_size;
  return spec;
}
/// `spec` as engines of type `E` run it: with outputs that read the context, if they are for such.
template <class E>
pvm::Spec fed(pvm::Spec spec) {
  spec.feed_context_in_complex_layer = E::reads_context;
  return spec;
}
pvm::Spec logistic() {
  auto spec = quick();
  spec.name = "logistic, no momentum";
  spec.activation = pvm::ActivationKind::logistic;
  spec.momentum = 0;
  return spec;
}
/// The logistic activation, as if a program had written it.
struct OwnLogistic : pvm::Logistic {
  static constexpr const char* name = "own logistic";
  static constexpr bool on_gpu = true;
};
/// A spec with one layer, which learns from the start and with the true derivative.
pvm::Spec one_layer(double momentum) {
  auto spec = quick();
  spec.name = "one layer";
  spec.momentum = momentum;
  spec.true_derivative = true;
  spec.layer_shapes = {3};
  spec.last_layer_context_to_all = false;
  spec.delay_each_layer_learning = 1;
  return spec;
}

}  // namespace

/// Visits weights of all magnitudes and both signs, near and halfway between 16-bit numbers.
template <class Visit>
void visit_sizes(Visit visit) {
  for (float size = 0x1p-30F; size < 8; size *= 2) {
    for (int step = 0; step < 4096; ++step) {
      const float weight = size * (1 + static_cast<float>(step) / 4096 + 0x1.8p-20F);
      visit(weight);
      visit(-weight);
      visit(size * (1 + static_cast<float>(step) / 4096));  // also exactly halfway between two
    }
  }
  visit(0.0F);
}

TEST_CASE("units: the halves of bf16 weights are the weights") {
  using Halves = pvm::detail::Halves<pvm::bf16>;
  using Math = pvm::detail::Math<pvm::bf16>;
  bool exact = true, nearest = true;
  visit_sizes([&](float weight) {
    const auto words = Halves::split({weight, -weight});
    const auto back = Halves::join(words);
    exact = exact && back.first == weight && back.second == -weight;
    const float rounded = Math::value(static_cast<std::uint16_t>(words.high & 0xffffU));
    const float best = Math::value(Math::operand(weight));
    nearest = nearest && std::abs(rounded - weight) <= std::abs(best - weight);
  });
  CHECK(exact);
  CHECK(nearest);
}

TEST_CASE("units: the halves of packed bf16 weights fit 12 bits and are the weights") {
  using Packed = pvm::detail::PackedHalves;
  using Math = pvm::detail::Math<pvm::bf16>;
  bool scaled = true, fits = true, close = true, same_again = true, nearest = true;
  visit_sizes([&](float weight) {
    const float stored = Packed::stored(weight);
    // Exact from 2^-8 on; below that there are multiples of 2^-31.
    const bool subnormal = std::abs(weight) < 0x1p-8F;
    scaled = scaled && stored == weight * Packed::unit;
    close = close && std::abs(Packed::weight(stored) - weight) <= (subnormal ? 0x1p-32F : 0);
    const auto words = Packed::split({stored, -stored});
    fits = fits && (words.high & 0x78007800U) == 0;
    const auto back = Packed::join(words);
    same_again = same_again && back.first == stored && back.second == -stored;
    // The high half is the nearest bf16, or below 2^-8 the nearest multiple of 2^-15.
    const float rounded =
        Packed::weight(Math::value(static_cast<std::uint16_t>(words.high & 0xffffU)));
    const float half_a_step = subnormal ? 0x1p-16F : std::abs(weight) * 0x1p-8F;
    nearest = nearest && std::abs(rounded - weight) <= half_a_step;
  });
  CHECK(scaled);
  CHECK(close);
  CHECK(fits);
  CHECK(same_again);
  CHECK(nearest);
  const float beyond = 200 * Packed::unit;  // what a fold may make
  const auto limited = Packed::split({beyond, -1e30F});
  CHECK((limited.high & 0x78007800U) == 0);
  CHECK(Packed::weight(Packed::join(limited).first) == Packed::largest);
  CHECK(Packed::weight(Packed::join(limited).second) == -Packed::largest);
  CHECK(Packed::stored(-200) == -Packed::largest * Packed::unit);
}

#if defined(__SSE2__)
TEST_CASE("units: packed weights are the same in programs that flush subnormal numbers to 0") {
  using Packed = pvm::detail::PackedHalves;
  const auto weights_back = [] {
    std::vector<float> back;
    visit_sizes([&](float weight) {
      const float stored = Packed::stored(weight);
      back.push_back(Packed::weight(Packed::join(Packed::split({stored, stored})).first));
    });
    return back;
  };
  const auto exact = weights_back();
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | 0x8040U);  // flush results, and take operands as 0
  const auto flushed = weights_back();
  _mm_setcsr(mode);
  CHECK(flushed == exact);
}
#endif

TEMPLATE_TEST_CASE_SIG("units: packed tiles are the tiles", "", ((int pairs), pairs), 3, 4) {
  std::vector<std::uint32_t> tiles(pairs * 128), back(tiles.size());
  std::uint32_t random = 1;
  for (auto& word : tiles) {
    random = random * 1664525U + 1013904223U;
    word = random & 0x87ff87ffU;
  }
  std::vector<std::uint32_t> packed(tiles.size() / 4 * 3);
  pvm::detail::pack_block<pairs>(tiles.data(), packed.data());
  pvm::detail::unpack_block<pairs>(packed.data(), back.data());
  CHECK(back == tiles);
}

/// Calls visit(side of the program, first line, lines) for each slot of each block of a network.
template <class Precision, int Hidden, units::Home home, class Visit>
void each_slot(std::type_identity<pvm::CudaUnitsEngine<Precision, Hidden, home>> /*engine*/,
               const units::Sides& sides, Visit visit) {
  using S = units::Sizes<Precision, Hidden, home>;
  const pvm::Spec spec =
      fed<pvm::CudaUnitsEngine<Precision, Hidden, home>>(with_units_of(Hidden == 49   ? 7
                                                                       : Hidden == 64 ? 8
                                                                                      : 10));
  std::string why;
  auto made = units::Plan<Precision, Hidden, home>::make(
      spec, pvm::make_connectome(spec), 6 / S::thread_blocks_per_sm, std::size_t{227} << 10, why);
  INFO(why);
  REQUIRE(made);
  auto& plan = *made;
  REQUIRE(sides.of_programs.size() == plan.program_blocks.size());
  REQUIRE(plan.slot_pairs(sides).end <= sides.of_pairs.size());
  plan.place_in_slots(sides);
  std::size_t first_block = 0;
  const auto slot = [&](std::uint32_t line, int words, std::size_t program) {
    visit(sides.of_programs[program], line, static_cast<std::uint32_t>((words + 31) / 32));
  };
  for (std::size_t m = 0; m < plan.program_start.size(); ++m) {
    const std::uint32_t* words = &plan.programs[plan.program_start[m]];
    units::Program p;
    std::memcpy(&p, words, sizeof p);
    CHECK(p.number == m);
    for (std::size_t k = 0; k < plan.program_blocks[m]; ++k) {
      const units::SlotLines lines = plan.slots[first_block++];
      slot(lines.high, S::block_words + (S::fp32_weights ? S::remainder_words : 0), m);
      if (!S::fp32_weights) slot(lines.low, S::unpacked_words + S::remainder_words, m);
    }
    for (std::size_t k = 0; k < plan.program_w1_blocks[m]; ++k) {
      units::W1Block block;
      std::memcpy(&block, words + (p.w1_blocks - p.start) + k * sizeof block / 4, sizeof block);
      const int beside = S::lists_in_slots ? S::list_words : S::w1_remainder_words;
      if constexpr (!S::streams) {
        slot(block.block, S::block_words + beside, m);
        continue;
      }
      const units::SlotLines lines = plan.slots[plan.blocks + block.block];
      CHECK((block.where & ~units::low_is_odd) == lines.high);
      slot(lines.high, S::block_words + beside, m);
      if (!S::fp32_weights) slot(lines.low, S::unpacked_words + 2 * S::w1_remainder_words, m);
    }
  }
}

TEMPLATE_TEST_CASE("units: slots are on the side of their program, and apart", "",
                   pvm::CudaStreamedEngine<pvm::bf16>, pvm::CudaStreamedEngine<pvm::fp16>,
                   pvm::CudaStreamedEngine<pvm::fp32>, pvm::CudaResidentEngine<pvm::fp32>,
                   pvm::CudaContextEngine<pvm::bf16>, (pvm::CudaStreamedEngine<pvm::bf16, 64>),
                   (pvm::CudaStreamedEngine<pvm::bf16, 100>)) {
  std::mt19937 random(7);
  for (const std::size_t first : {1, 2, 3, 5}) {
    units::Sides sides;
    sides.deal_programs(6, first, 6);
    CHECK(std::count(sides.of_programs.begin(), sides.of_programs.end(), 0) ==
          static_cast<std::ptrdiff_t>(first));
    for (int k = 0; k < 9000; ++k) sides.of_pairs.push_back(random() & 1U);
    auto order = sides.order();
    // Thread blocks of side 0 take them from the first one on, those of side 1 from the last one.
    for (std::size_t n = 0; n < order.size(); ++n) {
      CHECK(sides.of_programs[order[n]] == (n < first ? 0 : 1));
    }
    std::sort(order.begin(), order.end());
    for (std::size_t n = 0; n < order.size(); ++n) CHECK(order[n] == n);

    std::vector<int> taken(sides.of_pairs.size() * 2 * units::chunk_lines);
    bool on_side = true, apart = true, in_chunk = true;
    each_slot(std::type_identity<TestType>{}, sides,
              [&](unsigned side, std::uint32_t line, std::uint32_t lines) {
                const std::size_t chunk = line / units::chunk_lines;
                on_side = on_side && (sides.of_pairs[chunk / 2] ^ (chunk & 1U)) == side;
                in_chunk = in_chunk && (line + lines - 1) / units::chunk_lines == chunk;
                for (std::uint32_t i = line; i < line + lines; ++i) {
                  apart = apart && taken.at(i)++ == 0;
                }
              });
    CHECK(on_side);
    CHECK(in_chunk);
    CHECK(apart);
  }
}

TEST_CASE("units: the sides of the L2 cache are measured", "[gpu]") {
  if (skipped()) return;
  const auto device = pvm::detail::describe_device();
  const pvm::detail::CacheSides sides(device.multiprocessors, device.shared_bytes, nullptr);
  constexpr std::size_t pairs = 2000;
  const pvm::detail::DeviceArray<std::uint32_t> memory(pairs * pvm::detail::pair_words);
  REQUIRE(cudaMemset(memory.get(), 0x5a, memory.size() * 4) == cudaSuccess);
  const auto of_pairs = sides.of_pairs(memory.get(), pairs);
  CHECK(sides.of_pairs(memory.get(), pairs) == of_pairs);
  CHECK(of_pairs.size() == (sides.known() ? pairs : 0));
  std::vector<std::uint32_t> words(memory.size());
  REQUIRE(cudaMemcpy(words.data(), memory.get(), words.size() * 4, cudaMemcpyDeviceToHost) ==
          cudaSuccess);
  CHECK(std::count(words.begin(), words.end(), 0x5a5a5a5aU) ==
        static_cast<std::ptrdiff_t>(words.size()));
  if (!sides.known()) return;  // a GPU whose L2 cache has one side
  CHECK(sides.of_sms().size() == static_cast<std::size_t>(device.multiprocessors));
  CHECK(std::count(sides.of_sms().begin(), sides.of_sms().end(), 0) ==
        static_cast<std::ptrdiff_t>(sides.first_sms()));
  // Either side has about half of the memory. (Which chunk of a pair is first, varies.)
  const auto ones = std::count(of_pairs.begin(), of_pairs.end(), 1);
  CHECK(ones > static_cast<std::ptrdiff_t>(pairs) / 4);
  CHECK(ones < static_cast<std::ptrdiff_t>(pairs) * 3 / 4);
}

TEST_CASE("units: weights that do not fit 12 bits are refused", "[gpu]") {
  if (skipped()) return;
  const Multiprocessors sixteen(16);
  const auto spec = quick();
  pvm::CudaStreamedEngine<pvm::bf16> engine(spec);
  auto start = start_from(some_weights(pvm::make_connectome(spec).weights), 1);
  start.step = 3;
  start.weights[5] = 127.5F;
  engine.restore(start);
  CHECK(weights_of(engine, spec)[5] == 127.5F);
  const auto& first = engine.connectome().units.front();
  start.weights[first.w0 + 48 * static_cast<std::size_t>(first.inputs)] = 300;  // not in a tile
  engine.restore(start);
  start.step = 9;
  start.weights[7] = -128;
  CHECK_THROWS_AS(engine.restore(start), pvm::Error);
  CHECK(engine.save().step == 3);  // nothing has changed
}

TEST_CASE("units: the halves of fp16 weights are the weights to a unit in the last place") {
  using Halves = pvm::detail::Halves<pvm::fp16>;
  bool close = true, same_again = true, rounded = true;
  visit_sizes([&](float weight) {
    const auto words = Halves::split({weight, -weight});
    const auto back = Halves::join(words);
    const float bound = std::max(0x1p-36F, std::abs(weight) * 0x1p-23F);
    close = close && std::abs(back.first - weight) <= bound && back.second == -back.first;
    const auto again = Halves::split(back);
    const bool same_half = ((again.high ^ words.high) & 0xffffU) == 0;
    same_again = same_again && same_half && Halves::join(again).first == back.first;
    rounded = rounded && (words.high & 0xffffU) == pvm::detail::Math<pvm::fp16>::operand(weight);
  });
  CHECK(close);
  CHECK(same_again);
  CHECK(rounded);
  const auto largest = Halves::join(Halves::split({70000, -1e9F}));
  CHECK((largest.first >= 65504 && largest.first < 65536));
  CHECK((largest.second <= -65504 && largest.second > -65536));
}

TEMPLATE_TEST_CASE("units: updates of small rates are as exact as those of large ones", "[gpu]",
                   pvm::CudaResidentEngine<pvm::bf16>, pvm::CudaResidentEngine<pvm::fp16>,
                   pvm::CudaStreamedEngine<pvm::bf16>, pvm::CudaStreamedEngine<pvm::fp16>) {
  if (skipped()) return;
  const Multiprocessors sixteen(16);
  auto spec = quick();
  spec.initial_learning_rate = 1e-5;  // times d0 it is below the smallest number of fp16
  spec.delay_each_layer_learning = 1;
  const auto start = some_weights(pvm::make_connectome(spec).weights);
  const auto moves = [&]<class E>() {
    E engine(spec);
    engine.restore(start_from(start, 1));
    run_steps(engine, spec, 40);
    auto moved = weights_of(engine, spec);
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] -= start[i];
    return moved;
  };
  const auto exact = moves.template operator()<pvm::HostEngine<1, pvm::fp32>>();
  const auto rounded = moves.template operator()<TestType>();
  double missed = 0, all = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    missed += std::pow(rounded[i] - exact[i], 2);
    all += std::pow(exact[i], 2);
  }
  CHECK(std::sqrt(missed / all) < 0x1p-6);
}

TEMPLATE_TEST_CASE("units: weights beyond the range of fp16 stay numbers", "[gpu]",
                   pvm::CudaResidentEngine<pvm::fp16>, pvm::CudaStreamedEngine<pvm::fp16>) {
  if (skipped()) return;
  const Multiprocessors sixteen(16);
  pvm_test::large_weights_stay_finite<TestType>(quick(), 1);
}

TEMPLATE_TEST_CASE("units: runs stay within the rounding of the weights", "[gpu]",
                   pvm::CudaResidentEngine<pvm::bf16>, pvm::CudaResidentEngine<pvm::fp16>,
                   pvm::CudaStreamedEngine<pvm::bf16>, pvm::CudaStreamedEngine<pvm::fp16>) {
  if (skipped()) return;
  const Multiprocessors some(TestType::streams ? 1 : 16);  // 1: an SM has more units than warps
  using E = TestType;
  constexpr bool coarse = std::is_same_v<typename E::precision, pvm::bf16>;
  const double unit = coarse ? 0x1p-9 : 0x1p-12;
  const int steps =
      steps_of(60, 30);  // all units fold more than once, all ring buffers wrap around
  require_rounded(distance<E>(quick(), 1, steps), quick(), steps, unit);
  require_rounded(distance<typename E::template with_hidden<36>>(with_36(), 1, steps), with_36(),
                  steps, unit);
  if (pvm_test::emulated && !coarse) return;
  require_rounded(distance<E>(logistic(), 1, steps_of(60, 16)), logistic(), steps_of(60, 16), unit);
  auto long_lived = one_layer(0.5);
  long_lived.context_exclude_self = true;
  require_rounded(distance<E>(long_lived, 1, steps), long_lived, steps, unit);
}

TEMPLATE_TEST_CASE_SIG("units: larger units stream", "[gpu]", ((int block_size), block_size), 8,
                       10) {
  if (skipped()) return;
  const Multiprocessors some(3);
  using E = pvm::CudaStreamedEngine<pvm::bf16, block_size * block_size>;
  const auto spec = with_units_of(block_size);
  const int steps = steps_of(60, 30);
  require_rounded(distance<E>(spec, 1, steps), spec, steps, 0x1p-9);
  pvm_test::same_bits<E>(1, spec);
}

TEMPLATE_TEST_CASE("units: fewer hidden values are padded", "[gpu]",
                   (pvm::CudaResidentEngine<pvm::bf16, 36>),
                   (pvm::CudaResidentEngine<pvm::fp32, 36>),
                   (pvm::CudaStreamedEngine<pvm::bf16, 100>)
                       PVM_TYPES_ON_GPU((pvm::CudaResidentEngine<pvm::fp16, 36>))) {
  if (skipped()) return;
  using E = TestType;
  const Multiprocessors some(E::streams ? 3 : 16);
  for (const int block_size : E::streams ? std::vector{9, 4} : std::vector{1, 3, 4, 5}) {
    auto spec = with_units_of(block_size);
    const int steps = steps_of(60, 30);
    INFO(spec.name);
    if constexpr (std::is_same_v<typename E::precision, pvm::fp32>) {
      check_small(distance<E>(spec, 1, steps));
    } else {
      const bool coarse = std::is_same_v<typename E::precision, pvm::bf16>;
      require_rounded(distance<E>(spec, 1, steps), spec, steps, coarse ? 0x1p-9 : 0x1p-12);
    }
    pvm_test::same_bits<E>(1, spec);
  }
}

TEMPLATE_TEST_CASE(
    "units: outputs that read the context stream beside W0", "[gpu]",
    pvm::CudaContextEngine<pvm::bf16> PVM_TYPES_ON_GPU(pvm::CudaContextEngine<pvm::fp16>)) {
  if (skipped()) return;
  using E = TestType;
  const double unit = std::is_same_v<typename E::precision, pvm::bf16> ? 0x1p-9 : 0x1p-12;
  const auto follows = [&](const pvm::Spec& spec) {
    const int steps = steps_of(60, 30);
    require_rounded(distance<E>(fed<E>(spec), 1, steps), fed<E>(spec), steps, unit);
  };
  {
    const Multiprocessors one(1);  // it has more groups of outputs than there are phases
    auto fewer_units = quick();
    fewer_units.layer_shapes = {3, 2};
    follows(fewer_units);
  }
  const Multiprocessors some(3);
  // Outputs learn from what their own hidden values were before the first step.
  require_rounded(distance<E>(fed<E>(quick()), 1, 3), fed<E>(quick()), 3, unit);
  auto repeated_sources = quick();
  repeated_sources.send_context_two_layers_back = true;
  repeated_sources.context_exclude_self = true;
  follows(repeated_sources);
  auto momentum_comes_late = quick();
  momentum_comes_late.delay_each_layer_learning = 11;
  momentum_comes_late.delay_final_learning_rate = 2;
  momentum_comes_late.final_learning_rate = momentum_comes_late.initial_learning_rate;
  momentum_comes_late.momentum = 0.3;
  follows(momentum_comes_late);
  auto no_context = one_layer(0.1);
  no_context.layer_shapes = {1};
  no_context.context_exclude_self = true;
  follows(no_context);
}

TEMPLATE_TEST_CASE("units: fp32 follows the reference", "[gpu]", pvm::CudaResidentEngine<pvm::fp32>,
                   pvm::CudaStreamedEngine<pvm::fp32>) {
  if (skipped()) return;
  const Multiprocessors some(TestType::streams ? 1 : 16);
  using E = TestType;
  const int steps = steps_of(60, 30);
  check_small(distance<E>(quick(), 1, steps));
  check_small(distance<typename E::template with_hidden<36>>(with_36(), 1, steps));
  for (const int channels : {1, 2, 4}) {
    auto spec = quick();
    spec.input_channels = channels;
    check_small(distance<E>(spec, 1, steps_of(30, 16)));
  }
  auto sign_of_error = logistic();
  sign_of_error.opt_abs_diff = true;
  sign_of_error.initial_learning_rate = 0.0005;
  check_small(distance<E>(sign_of_error, 1, steps_of(30, 16)));
  auto rates_switch = one_layer(0.3);
  rates_switch.delay_intermediate_learning_rate = 13;
  rates_switch.intermediate_learning_rate = 0.004;
  check_small(distance<E>(rates_switch, 1, steps));
  auto momentum_comes_late = quick();
  momentum_comes_late.delay_each_layer_learning = 11;
  momentum_comes_late.delay_final_learning_rate = 2;
  momentum_comes_late.final_learning_rate = momentum_comes_late.initial_learning_rate;
  momentum_comes_late.momentum = 0.3;
  check_small(distance<E>(momentum_comes_late, 1, steps));
}

TEMPLATE_TEST_CASE("units: an activation of the program's own is called", "[gpu]",
                   (pvm::CudaResidentEngine<pvm::fp32, 36, OwnLogistic>)
                       PVM_TYPES_ON_GPU((pvm::CudaResidentEngine<pvm::bf16, 49, OwnLogistic>))) {
  if (skipped()) return;
  using Own = TestType;
  using Library = pvm::CudaResidentEngine<typename Own::precision, Own::padded_hidden>;
  const Multiprocessors sixteen(16);
  pvm::Spec of_library = logistic(), own = logistic();
  of_library.hidden_block_size = own.hidden_block_size = Own::padded_hidden == 49 ? 7 : 5;
  own.own_activation = OwnLogistic::name;
  const auto trained = [](auto engine, const pvm::Spec& spec) {
    engine->restore(start_from(some_weights(engine->connectome().weights), 1));
    run_steps(*engine, spec, 30, 5);
    return weights_of(*engine, spec);
  };
  CHECK(trained(std::make_unique<Own>(own), own) ==
        trained(std::make_unique<Library>(of_library), of_library));
  std::string why;
  CHECK(!Library::plan(own, why));
  CHECK(!Own::plan(of_library, why));
  CHECK(why == "its activation is another than that for which the kernels are compiled");
}

TEST_CASE("units: long lists hold a momentum of 0.5", "[gpu]") {
  if (skipped()) return;
  const Multiprocessors sixteen(16);
  using E = pvm::CudaLongListEngine<>;
  const int steps = steps_of(60, 40);
  auto spec = hidden_49();
  spec.momentum = 0.5;
  check_small(distance<E>(spec, 1, steps));
  auto one = one_layer(0.5);
  one.initial_learning_rate = 0.01;
  one.context_exclude_self = true;
  check_small(distance<E>(one, 1, steps));
  auto momentum_comes_late = spec;
  momentum_comes_late.delay_each_layer_learning = 11;
  momentum_comes_late.delay_final_learning_rate = 2;
  momentum_comes_late.final_learning_rate = momentum_comes_late.initial_learning_rate;
  check_small(distance<E>(momentum_comes_late, 1, steps));
  pvm_test::same_bits<E>(1, spec);
  pvm_test::momentum_of_another_spec_counts<E>(spec, 1, 0.5, 0.1);
  pvm_test::momentum_of_another_spec_counts<E>(spec, 1, 0.1, 0.5);
  std::string why;
  spec.momentum = 0.6;
  CHECK(!E::plan(spec, why));
  CHECK(why == "its momentum lives too long");
}

TEMPLATE_TEST_CASE("units: fp32 follows the reference on networks drawn at random", "[gpu]",
                   pvm::CudaResidentEngine<pvm::fp32>, pvm::CudaStreamedEngine<pvm::fp32>) {
  if (skipped()) return;
  const Multiprocessors some(TestType::streams ? 1 : 16);
  pvm_test::random_networks_follow<TestType>(1, steps_of(40, 5), 1, 7);
}

TEMPLATE_TEST_CASE("units: captured, eager and resumed runs have the same bits", "[gpu]",
                   pvm::CudaResidentEngine<pvm::bf16>, pvm::CudaResidentEngine<pvm::fp32>,
                   pvm::CudaStreamedEngine<pvm::bf16>, pvm::CudaContextEngine<pvm::bf16>,
                   pvm::CudaStreamedEngine<pvm::fp32> PVM_TYPES_ON_GPU(
                       pvm::CudaResidentEngine<pvm::fp16>, pvm::CudaStreamedEngine<pvm::fp16>,
                       pvm::CudaContextEngine<pvm::fp16>)) {
  if (skipped()) return;
  const Multiprocessors sixteen(16);
  pvm_test::same_bits<TestType>(1, fed<TestType>(hidden_49()));
}

TEMPLATE_TEST_CASE("units: a state goes on at the rates of another spec", "[gpu]",
                   pvm::CudaResidentEngine<pvm::fp32>,
                   pvm::CudaStreamedEngine<pvm::bf16> PVM_TYPES_ON_GPU(
                       pvm::CudaResidentEngine<pvm::bf16>, pvm::CudaStreamedEngine<pvm::fp32>,
                       pvm::CudaContextEngine<pvm::bf16>)) {
  if (skipped()) return;
  const Multiprocessors sixteen(16);
  pvm_test::rates_of_another_spec_count<TestType>(fed<TestType>(quick()), 1);
}

TEMPLATE_TEST_CASE("units: a state goes on with the momentum of another spec", "[gpu]",
                   pvm::CudaResidentEngine<pvm::fp32>, pvm::CudaStreamedEngine<pvm::fp32>) {
  if (skipped()) return;
  const Multiprocessors sixteen(16);
  pvm_test::momentum_of_another_spec_counts<TestType>(quick(), 1, 0.2, 0.05);
  pvm_test::momentum_of_another_spec_counts<TestType>(quick(), 1, 0.05, 0.2);
}

TEMPLATE_TEST_CASE("units: two engines share a GPU", "[gpu]", pvm::CudaResidentEngine<pvm::bf16>,
                   pvm::CudaStreamedEngine<pvm::bf16>) {
  if (skipped()) return;
  const Multiprocessors sixteen(16);
  pvm_test::engines_live_side_by_side<TestType>(quick(), one_layer(0.1));
  pvm_test::engines_live_side_by_side<TestType>(one_layer(0.1), quick());
}

TEMPLATE_TEST_CASE("units: a run starts at any step", "[gpu]", pvm::CudaResidentEngine<pvm::fp32>,
                   pvm::CudaStreamedEngine<pvm::fp32>) {
  if (skipped()) return;
  const Multiprocessors sixteen(16);
  pvm_test::starts_anywhere<TestType>(quick(), 1);
}

#if defined(PVM_EMULATED_CUDA)
TEMPLATE_TEST_CASE("units: the sides of the L2 cache do not matter", "[gpu]",
                   pvm::CudaStreamedEngine<pvm::bf16>, pvm::CudaStreamedEngine<pvm::fp16>,
                   pvm::CudaStreamedEngine<pvm::fp32>, pvm::CudaResidentEngine<pvm::fp32>) {
  const bool streams =
      std::is_same_v<TestType, pvm::CudaStreamedEngine<typename TestType::precision>>;
  const Multiprocessors some(streams ? 3 : 12);
  const auto trained = [](bool sides) {
    emulated_cuda::facts.sides = sides;
    TestType engine(quick());
    emulated_cuda::facts.sides = true;
    INFO(engine.description());
    CHECK((engine.description().find("its side of the L2 cache") != std::string::npos) == sides);
    engine.restore(start_from(some_weights(engine.connectome().weights), 1));
    run_steps(engine, quick(), 14, 5);
    return weights_of(engine, quick());
  };
  CHECK(trained(true) == trained(false));
}

TEMPLATE_TEST_CASE("units: where the weights are does not matter", "[gpu]", pvm::bf16, pvm::fp32) {
  const auto trained = [](int multiprocessors, bool streams) {
    const Multiprocessors some(multiprocessors);
    pvm::CudaResidentEngine<TestType> engine(quick());
    INFO(engine.description());
    CHECK((engine.description().find("100 % of W0") == std::string::npos) == streams);
    engine.restore(start_from(some_weights(engine.connectome().weights), 1));
    run_steps(engine, quick(), 14, 5);
    return weights_of(engine, quick());
  };
  // Partial sums are added in another order, so at most a weight is rounded the other way.
  constexpr bool exact = std::is_same_v<TestType, pvm::fp32>;
  const auto apart = trained(16, exact);  // in fp32 some weights are streamed even with 16 SMs
  CHECK(largest_difference(apart, doubles(trained(exact ? 12 : 9, true))) < (exact ? 1e-6 : 1e-4));
  // More SMs than the network has units: some have nothing to do.
  CHECK(largest_difference(apart, doubles(trained(200, false))) < (exact ? 1e-6 : 1e-4));
}
#else
TEMPLATE_TEST_CASE("units: they have over 11,240 steps and all rate switches", "[gpu]",
                   pvm::CudaResidentEngine<pvm::bf16>, pvm::CudaResidentEngine<pvm::fp32>,
                   pvm::CudaStreamedEngine<pvm::bf16>, pvm::CudaStreamedEngine<pvm::fp32>,
                   pvm::CudaContextEngine<pvm::bf16>) {
  if (skipped()) return;
  pvm_test::same_bits<TestType>(1, fed<TestType>(hidden_49()), 40);
}
TEST_CASE("units: small.json stays within the rounding of the weights", "[gpu]") {
  if (skipped()) return;
  auto spec = hidden_49();
  spec.name = "small";
  spec.layer_shapes = {12, 8, 6, 4, 2, 1};
  spec.input_block_size = 5;
  spec.delay_each_layer_learning = 1;
  // On smaller GPUs as many of its upper layers as fit.
  std::string why;
  while (!pvm::CudaResidentEngine<pvm::fp32>::plan(spec, why) ||
         !pvm::CudaResidentEngine<pvm::bf16>::plan(spec, why)) {
    spec.layer_shapes.erase(spec.layer_shapes.begin());
  }
  require_rounded(distance<pvm::CudaResidentEngine<pvm::bf16>>(spec, 1, 12), spec, 12, 0x1p-9);
  require_rounded(distance<pvm::CudaResidentEngine<pvm::fp16>>(spec, 1, 12), spec, 12, 0x1p-12);
  check_small(distance<pvm::CudaResidentEngine<pvm::fp32>>(spec, 1, 40));
  require_rounded(distance<pvm::CudaStreamedEngine<pvm::bf16>>(spec, 1, 12), spec, 12, 0x1p-9);
  check_small(distance<pvm::CudaStreamedEngine<pvm::fp32>>(spec, 1, 40));
}
#endif

TEMPLATE_TEST_CASE("units: scores, predictions and frames are the host engine's", "[gpu]",
                   pvm::CudaResidentEngine<pvm::fp32>,
                   pvm::CudaStreamedEngine<pvm::bf16> PVM_TYPES_ON_GPU(
                       pvm::CudaResidentEngine<pvm::fp16>, pvm::CudaStreamedEngine<pvm::fp32>)) {
  if (skipped()) return;
  const Multiprocessors sixteen(16);
  const auto spec = hidden_49();
  const auto start = some_weights(pvm::make_connectome(spec).weights);
  pvm::HostEngine<> host(spec, 1);
  TestType gpu(spec, 1), floats(spec, 1);
  host.restore(start_from(start, 1));
  gpu.restore(start_from(start, 1));
  floats.restore(start_from(start, 1));
  run_steps(host, spec, 21);
  run_steps(gpu, spec, 21);
  check_scores(host.take_score(), gpu.take_score(), 1e-3, 1e-4);
  CHECK(gpu.take_score().loss == 0);
  std::vector<float> p(spec.frame_size()), q(p.size());
  host.read_prediction(p);
  gpu.read_prediction(q);
  CHECK(largest_difference(q, doubles(p)) < 1e-3);
  for (int done = 0; done < 21; done += 7) {
    auto block = floats.stage(7);
    pvm_test::fill(block, floats.step(), 1, spec.frame_size());
    std::vector<float> values;
    for (const auto pixel : block.pixels) {
      values.push_back(pvm::squeeze_pixel(static_cast<float>(pixel)));
    }
    std::fill(block.pixels.begin(), block.pixels.end(), std::uint8_t{0});
    block.squeezed = values;
    floats.run(block, pvm::Mode::learn);
  }
  CHECK(weights_of(floats, spec) == weights_of(gpu, spec));
}

TEMPLATE_TEST_CASE("units: a frozen network does not change, another engine's run goes on", "[gpu]",
                   pvm::CudaResidentEngine<pvm::fp32>, pvm::CudaContextEngine<pvm::bf16>,
                   pvm::CudaStreamedEngine<pvm::bf16> PVM_TYPES_ON_GPU(
                       pvm::CudaResidentEngine<pvm::bf16>, pvm::CudaStreamedEngine<pvm::fp32>)) {
  if (skipped()) return;
  const Multiprocessors sixteen(16);
  const auto spec = fed<TestType>(hidden_49());
  TestType engine(spec);
  pvm::HostEngine<> host(spec, 1);
  host.restore(start_from(some_weights(engine.connectome().weights), 1));
  run_steps(host, spec, 12);
  engine.restore(host.save());
  CHECK(largest_difference(weights_of(engine, spec), doubles(weights_of(host, spec))) < 1e-6);
  run_steps(host, spec, 6);
  run_steps(engine, spec, 6);
  const double bound = std::is_same_v<typename TestType::precision, pvm::fp32> ? 2e-6 : 2e-5;
  CHECK(largest_difference(weights_of(engine, spec), doubles(weights_of(host, spec))) < bound);
  const auto before = weights_of(engine, spec);
  run_steps(engine, spec, 9, 4, pvm::Mode::freeze);
  CHECK(weights_of(engine, spec) == before);
  CHECK(engine.step() == 27);
  run_steps(engine, spec, 5);
  CHECK(weights_of(engine, spec) != before);
}

TEST_CASE("units: networks that do not fit are refused in a sentence", "[gpu]") {
  if (skipped()) return;
  const Multiprocessors sixteen(16);
  using E = pvm::CudaResidentEngine<pvm::bf16>;
  const auto refusal = [](const pvm::Spec& spec, int batch = 1) {
    try {
      const E engine(spec, batch);
    } catch (const pvm::Error& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  CHECK(refusal(hidden_49()) == "not refused");
  CHECK(refusal(hidden_49(), 2).find("this engine runs one sequence") != std::string::npos);
  CHECK(refusal(pvm_test::tiny_spec()).find("49 hidden values") != std::string::npos);
  auto spec = hidden_49();
  spec.momentum = 0.9;
  CHECK(refusal(spec).find("momentum") != std::string::npos);
  spec = hidden_49();
  spec.feed_context_in_complex_layer = true;
  CHECK(refusal(spec).find("its outputs are fed the context") != std::string::npos);
  std::string why;
  CHECK(!pvm::CudaContextEngine<pvm::bf16>::plan(hidden_49(), why));
  CHECK(why == "its outputs are not fed the context");
  spec = hidden_49();
  spec.input_block_size = 40;
  CHECK(refusal(spec).find("do not fit a multiprocessor") != std::string::npos);
  spec = hidden_49();
  spec.layer_shapes.assign(256, 1);
  CHECK(refusal(spec).find("more than 255 layers") != std::string::npos);
  E engine(hidden_49());
  CHECK_THROWS_AS(engine.stage(0), pvm::Error);
  CHECK_THROWS_AS(engine.stage(engine.block_steps() + 1), pvm::Error);
  CHECK_THROWS_AS(engine.restore(start_from(std::vector<float>(3), 1)), pvm::Error);
}
