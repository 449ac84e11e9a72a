// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// bf16 and fp16 on the host: what is stored, and the error of products and of whole runs compared
// with fp32. The bounds follow from the mantissas: rounding to nearest has a relative error of at
// most u = 2^-8 for bf16 (8 bits) and 2^-11 for fp16 (11 bits; below 2^-14 the absolute error is at
// most 2^-25).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <pvm/engine/host/engine.hpp>
#include <pvm/pvm.hpp>

#include "catch.hpp"
#include "engine_cases.hpp"
#include "train_helpers.hpp"

using pvm_test::run_steps;
using pvm_test::some_weights;
using pvm_test::start_from;
using pvm_test::weights_of;

namespace {

template <class Precision>
constexpr double unit_roundoff = std::is_same_v<Precision, pvm::bf16> ? 0x1p-8 : 0x1p-11;
template <class Precision>
constexpr double smallest_step = std::is_same_v<Precision, pvm::bf16> ? 0 : 0x1p-25;

/// One group of weights of every size that occurs.
std::vector<float> numbers() {
  std::vector<float> out = {0.0F,     -0.0F,          1.0F,           -1.0F,
                            0.015F,   1.0F + 0x1p-8F, 1.0F + 0x1p-9F, 1.0F + 0x1p-11F,
                            65504.0F, -65504.0F,      0x1p-14F,       0x1p-24F,
                            0x1p-25F, 0x1.8p-25F,     0x1.ffcp-15F,   -0x1.234p-20F};
  std::uint32_t seed = 7;
  while (out.size() < 4096) {
    seed = seed * 1664525U + 1013904223U;
    const float fraction = static_cast<float>(seed >> 8) / 16777216.0F - 0.5F;
    out.push_back(std::ldexp(fraction, static_cast<int>(seed % 35U) - 20));
  }
  return out;
}

template <class Precision>
std::vector<float> copy_of(const pvm::WeightStore<Precision>& store, std::size_t size) {
  std::vector<float> out(size);
  for (std::size_t i = 0; i < size; i += pvm::simd::half_group) {
    const auto pair = pvm::simd::HalfFormat<Precision>::widen(store.copy() + i);
    std::memcpy(out.data() + i, &pair, sizeof pair);
  }
  return out;
}

template <class Precision>
void check_store() {
  const auto values = numbers();
  pvm::WeightStore<Precision> store(values.size());
  pvm::HugeArray in(values.size()), out(values.size());
  std::copy(values.begin(), values.end(), in.data());
  pvm::store_weights(store, 0, in.all());
  pvm::load_weights(store, 0, out.all());
  CHECK(std::memcmp(in.data(), out.data(), values.size() * sizeof(float)) == 0);  // masters
  const auto copy = copy_of(store, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    INFO(i << ": " << values[i] << " is kept as " << copy[i]);
    const double allowed =
        std::max(unit_roundoff<Precision> * std::abs(double{values[i]}), smallest_step<Precision>);
    CHECK(std::abs(double{copy[i]} - double{values[i]}) <= allowed);
    CHECK(std::signbit(copy[i]) == std::signbit(values[i]));
  }
}

/// A pass over rows x columns of given weights by the kernel for `isa`, against doubles.
template <class Precision, pvm::simd::Isa isa>
void check_kernel(std::size_t rows, std::size_t columns, std::size_t batch) {
  INFO("vectors " << static_cast<int>(isa) << ", " << rows << " x " << columns << ", " << batch);
  const std::size_t size = rows * columns;
  const auto w = some_weights(size, 3);
  const auto inputs = some_weights(batch * columns, 5);
  const auto factors = some_weights(batch * rows, 9);
  pvm::WeightStore<Precision> store(size);
  pvm::HugeArray tiled(size), x(batch * columns), y(batch * columns), q(batch * rows),
      dot(batch * rows);
  const auto index = [&](std::size_t r, std::size_t c) {
    return pvm::simd::tiled_index(rows, columns, r, c, pvm::simd::half_group);
  };
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) tiled.data()[index(r, c)] = w[r * columns + c];
  }
  pvm::store_weights(store, 0, tiled.all());
  std::copy(inputs.begin(), inputs.end(), x.data());
  std::copy(factors.begin(), factors.end(), q.data());
  pvm::simd::Prefetcher prefetcher;
  pvm::simd::HalfPass pass;
  pass.tiled = store.copy();
  pass.rows = rows;
  pass.columns = columns;
  pass.batch = batch;
  pass.x = x.data();
  pass.dot = dot.data();
  pass.dot_stride = rows;
  pass.y = y.data();
  pass.q = q.data();
  pass.q_stride = rows;
  pass.prefetcher = &prefetcher;
  pvm::HostKernel<Precision, isa>::template run<true>(pass);

  // Each product is off by the rounding of w and, where a kernel rounds x too, of x; fp32 sums add
  // at most (terms) 2^-24 of the sum of sizes.
  const double u = unit_roundoff<Precision>;
  const double each = 2 * u + u * u;
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t r = 0; r < rows; ++r) {
      double exact = 0, sizes = 0;
      for (std::size_t c = 0; c < columns; ++c) {
        const double product = double{w[r * columns + c]} * double{inputs[b * columns + c]};
        exact += product;
        sizes += std::abs(product) + smallest_step<Precision> / u;
      }
      const double allowed = (each + static_cast<double>(columns) * 0x1p-24) * sizes;
      REQUIRE(std::abs(double{dot.data()[b * rows + r]} - exact) <= allowed);
    }
    for (std::size_t c = 0; c < columns; ++c) {
      double exact = 0, sizes = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        const double product = double{w[r * columns + c]} * double{factors[b * rows + r]};
        exact += product;
        sizes += std::abs(product) + smallest_step<Precision> / u;
      }
      const double allowed = (u + static_cast<double>(rows) * 0x1p-24) * sizes;
      REQUIRE(std::abs(double{y.data()[b * columns + c]} - exact) <= allowed);
    }
  }
}

template <class Precision, pvm::simd::Isa isa>
void check_kernels() {
  if (pvm::simd::best_isa() < isa) return;
  check_kernel<Precision, isa>(49, 320, 1);
  check_kernel<Precision, isa>(50, 64, 3);
  check_kernel<Precision, isa>(1, 32, 1);
}

template <class Precision>
void check_all_kernels() {
  using pvm::simd::Isa;
  check_kernels<Precision, Isa::baseline>();
#if defined(__x86_64__)
  check_kernels<Precision, Isa::avx2>();
  check_kernels<Precision, Isa::avx512>();
  check_kernels<Precision, Isa::avx512_bf16>();
#endif
}

template <class Precision>
using EngineIn = pvm::HostEngine<pvm::dynamic, Precision>;

struct Run {
  std::vector<float> hidden, prediction, weights;
};

template <class Precision>
Run run_in(const pvm::Spec& spec, int batch, std::uint64_t steps) {
  EngineIn<Precision> engine(spec, batch);
  const auto& net = engine.connectome();
  engine.restore(start_from(some_weights(net.weights), batch));
  run_steps(engine, spec, steps);
  const auto b = static_cast<std::size_t>(batch);
  Run run;
  run.hidden.resize(b * net.units.size() * static_cast<std::size_t>(net.hidden));
  run.prediction.resize(b * spec.frame_size());
  engine.read_hidden(run.hidden);
  engine.read_prediction(run.prediction);
  run.weights = weights_of(engine, spec);
  return run;
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = a.size() == b.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(double{a[i]} - double{b[i]});
    largest = std::max(largest, std::isfinite(d) ? d : 1e9);
  }
  return largest;
}

/// The first step from given weights: a hidden value is f of a sum of `inputs` products, f' is at
/// most 1/2, weights are at most 0.015 and inputs at most 1.
template <class Precision>
void check_first_step(const pvm::Spec& spec) {
  const auto exact = run_in<pvm::fp32>(spec, 1, 1);
  const auto rounded = run_in<Precision>(spec, 1, 1);
  int inputs = 0;
  for (const auto& unit : pvm::make_connectome(spec).units) inputs = std::max(inputs, unit.inputs);
  const double u = unit_roundoff<Precision>;
  CHECK(difference(rounded.hidden, exact.hidden) <= 0.5 * inputs * 0.015 * (2 * u + u * u) + 1e-6);
}

template <class Precision>
void check_resume(const pvm::Spec& spec, int batch) {
  INFO(spec.name << ", batch " << batch);
  const auto start = start_from(some_weights(pvm::make_connectome(spec).weights), batch);
  EngineIn<Precision> straight(spec, batch);
  straight.restore(start);
  run_steps(straight, spec, 75);
  EngineIn<Precision> first(spec, batch);
  first.restore(start);
  run_steps(first, spec, 38);
  EngineIn<Precision> second(spec, batch);
  second.restore(first.save());
  run_steps(second, spec, 37);
  CHECK(weights_of(second, spec) == weights_of(straight, spec));
  CHECK(second.save().folded == straight.save().folded);
}

}  // namespace

TEST_CASE("A 16-bit copy is the weight rounded to nearest, and the master is exact",
          "[precision]") {
  check_store<pvm::bf16>();
  check_store<pvm::fp16>();
}

TEST_CASE("What is too large for fp16 is its largest number", "[precision]") {
  pvm::WeightStore<pvm::fp16> store(32);
  pvm::HugeArray in(32);
  in.data()[0] = 65519.0F;
  in.data()[1] = 65520.0F;
  in.data()[2] = -1e30F;
  in.data()[31] = std::numeric_limits<float>::infinity();
  pvm::store_weights(store, 0, in.all());
  const auto copy = copy_of(store, 32);
  CHECK(copy[0] == 65504.0F);
  CHECK(copy[1] == 65504.0F);
  CHECK(copy[2] == -65504.0F);
  CHECK(copy[31] == 65504.0F);
}

TEST_CASE("Every kernel's products are within the mantissa's bound", "[precision]") {
  check_all_kernels<pvm::bf16>();
  check_all_kernels<pvm::fp16>();
}

TEST_CASE("A step below fp32 is within the mantissa's bound of fp32's", "[precision]") {
  for (const auto& spec : pvm_test::odd_specs()) {
    INFO(spec.name);
    check_first_step<pvm::bf16>(spec);
    check_first_step<pvm::fp16>(spec);
  }
}

TEST_CASE("Below fp32 a network learns what it learns in fp32", "[precision]") {
  const auto spec = pvm_test::tiny_spec();
  for (const int batch : {1, 3, 6}) {
    INFO("batch " << batch);
    const auto exact = run_in<pvm::fp32>(spec, batch, 400);
    const auto start = some_weights(pvm::make_connectome(spec).weights);
    const double learned = difference(exact.weights, start);
    // The rounding of a product moves an error, and so a gradient, by a few u of itself.
    const double few = 16;
    const auto bf16 = run_in<pvm::bf16>(spec, batch, 400);
    const auto fp16 = run_in<pvm::fp16>(spec, batch, 400);
    CHECK(difference(bf16.weights, exact.weights) <= few * unit_roundoff<pvm::bf16> * learned);
    CHECK(difference(fp16.weights, exact.weights) <= few * unit_roundoff<pvm::fp16> * learned);
    CHECK(difference(bf16.prediction, exact.prediction) <= few * unit_roundoff<pvm::bf16>);
    CHECK(difference(fp16.prediction, exact.prediction) <= few * unit_roundoff<pvm::fp16>);
  }
}

TEST_CASE("Below fp32 small updates are not lost", "[precision]") {
  auto spec = pvm_test::tiny_spec();
  spec.delay_each_layer_learning = 1;
  spec.initial_learning_rate = 1e-6;  // an update is far below the copy's last bit
  const auto start = some_weights(pvm::make_connectome(spec).weights);
  const auto exact = run_in<pvm::fp32>(spec, 1, 300);
  const auto rounded = run_in<pvm::bf16>(spec, 1, 300);
  const double learned = difference(exact.weights, start);
  REQUIRE(learned > 0);
  REQUIRE(learned < 0.015 * unit_roundoff<pvm::bf16>);
  CHECK(difference(rounded.weights, exact.weights) < 0.1 * learned);
}

TEST_CASE("Below fp32 a restored run continues bit by bit", "[precision]") {
  for (const auto& spec : pvm_test::odd_specs()) {
    check_resume<pvm::bf16>(spec, 1);
    check_resume<pvm::fp16>(spec, 2);
    check_resume<pvm::bf16>(spec, 5);
  }
}

TEST_CASE("Below fp32 the number of threads changes no bit", "[precision]") {
  const auto spec = pvm_test::odd_specs().back();
  const auto start = start_from(some_weights(pvm::make_connectome(spec).weights));
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 5}) {
    pvm::EngineOptions options;
    options.threads = threads;
    EngineIn<pvm::bf16> engine(spec, 1, options);
    engine.restore(start);
    run_steps(engine, spec, 100, threads);
    results.push_back(weights_of(engine, spec));
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
}

/// A longer list of gradients takes W over exactly. For a shorter one (fp32 folds more often than
/// bf16), W is split into a folded part and at most seven listed gradients: 14 sums of weights
/// below 2^-6, each of which is rounded by up to 2^-31.
TEST_CASE("A run goes on in another precision from the fp32 weights", "[precision]") {
  const auto spec = pvm_test::tiny_spec();
  EngineIn<pvm::fp32> full(spec, 1);
  full.restore(start_from(some_weights(pvm::make_connectome(spec).weights)));
  run_steps(full, spec, 50);
  EngineIn<pvm::bf16> half(spec, 1);
  half.restore(full.save());
  CHECK(half.step() == 50);
  CHECK(weights_of(half, spec) == full.save().weights);
  run_steps(half, spec, 50);
  full.restore(half.save());
  CHECK(difference(weights_of(full, spec), half.save().weights) < 14 * 0x1p-31);
}
