// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Frozen steps on a GPU, beside those on the host.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/random.hpp>
#include <pvm/engine/host/team.hpp>
#include <pvm/infer/gpu/forward.hpp>
#include <pvm/infer/host_forward.hpp>
#include <pvm/infer/int8_forward.hpp>
#include <pvm/infer/quantize.hpp>
#include <pvm/model/json.hpp>

#include "catch.hpp"
#include "random_spec.hpp"

namespace {

using namespace pvm::infer;

/// Whether there is no GPU. Asked only once: a GPU that is lost during the tests is a failure, not
/// a reason to skip.
bool skipped() {
  static std::string why;
  static const bool there = pvm::cuda_available(&why);
  if (!there) std::printf("SKIPPED: %s\n", why.c_str());
  return !there;
}

using Frame = std::vector<std::uint8_t>;

struct Result {
  std::vector<float> hidden, prediction;
  bool operator==(const Result&) const = default;
};

Frame frame_of(const pvm::Spec& spec, std::uint64_t stream, std::uint64_t t) {
  Frame frame(spec.frame_size());
  for (std::size_t i = 0; i < frame.size(); ++i) {
    frame[i] = static_cast<std::uint8_t>(256 * pvm::uniform(1000 * stream + t, i));
  }
  return frame;
}

pvm::io::Checkpoint network_of(const pvm::Spec& spec) {
  pvm::io::Checkpoint network;
  network.spec = spec;
  network.state.weights.resize(pvm::make_connectome(spec).weights);
  for (std::size_t i = 0; i < network.state.weights.size(); ++i) {
    network.state.weights[i] = 0.6F * (pvm::uniform(1, i) - 0.5F);
  }
  return network;
}

pvm::FrozenNetwork frozen_of(const pvm::io::Checkpoint& network, pvm::FrozenFormat format) {
  std::uint64_t t = 0;
  return pvm::quantize(network,
                       [&](std::span<std::uint8_t> to) {
                         std::ranges::copy(frame_of(network.spec, 9, t++), to.begin());
                       },
                       {.format = format, .frames = 24, .samples = 8});
}

/// The results of `steps` frames of each of `streams` streams, [step][stream], whose steps are made
/// of up to `together` streams. Every third stream joins a step later.
std::vector<Result> results_of(Forward& forward, const pvm::Spec& spec, std::uint64_t streams,
                               std::uint64_t steps, std::size_t together) {
  const auto net = pvm::make_connectome(spec);
  const std::size_t hidden = net.units.size() * static_cast<std::size_t>(net.hidden);
  std::vector<StreamPast> pasts;
  for (std::uint64_t s = 0; s < streams; ++s) pasts.push_back(forward.begin());
  std::vector<Result> all(streams * steps);
  for (std::uint64_t t = 0; t < steps; ++t) {
    std::vector<Frame> frames;
    std::vector<Row> rows;
    for (std::uint64_t s = 0; s < streams; ++s) frames.push_back(frame_of(spec, s, t));
    for (std::uint64_t s = 0; s < streams; ++s) {
      if (t == 0 && s % 3 == 2) continue;
      Result& result = all[t * streams + s];
      result = {std::vector<float>(hidden), std::vector<float>(spec.frame_size())};
      rows.push_back({&pasts[s], frames[s], result.prediction, result.hidden});
    }
    for (std::size_t r = 0; r < rows.size(); r += together) {
      forward.step(std::span(rows).subspan(r, std::min(together, rows.size() - r)));
    }
  }
  for (StreamPast& past : pasts) forward.forget(past);
  return all;
}

double distance(const std::vector<Result>& a, const std::vector<Result>& b, std::size_t from) {
  double squares = 0, count = 0;
  for (std::size_t i = from; i < a.size(); ++i) {
    for (const auto part : {&Result::hidden, &Result::prediction}) {
      for (std::size_t k = 0; k < (a[i].*part).size(); ++k) {
        const double error = static_cast<double>((a[i].*part)[k]) - (b[i].*part)[k];
        squares += error * error;
      }
      count += static_cast<double>((a[i].*part).size());
    }
  }
  return std::sqrt(squares / count);
}

pvm::Team& a_team() {
  static pvm::Team team(2);
  return team;
}

template <class Format, class Network>
std::unique_ptr<Forward> on_gpu(const pvm::Spec& spec, const Network& network, std::size_t rows,
                                std::size_t slots = 0) {
  return std::make_unique<gpu::GpuForward<Format>>(
      spec, gpu::rows_of(network), a_team(),
      typename gpu::GpuForward<Format>::Options{rows, slots});
}

std::vector<pvm::Spec> some_specs() {
  std::vector<pvm::Spec> specs = {pvm::load_spec(PVM_MODEL_ZOO "/tiny.json")};
  for (const std::uint64_t seed : {1, 4, 5, 7}) specs.push_back(pvm_test::random_spec(seed));
  return specs;
}

/// Counts floats whose polynomial is not what a division gives: of every 1,009th below 2^125.
__global__ void compare_polynomials(unsigned* different) {
  unsigned count = 0;
  for (std::uint64_t i = threadIdx.x; i < (1ULL << 32) / 1009; i += blockDim.x) {
    union {
      unsigned bits;
      float value;
    } a{static_cast<unsigned>(1009 * i)};
    if (!(std::fabs(a.value) < 0x1p125F)) continue;
    if (gpu::polynomial(a.value) != pvm::Polynomial::value(a.value)) ++count;
  }
  different[threadIdx.x] = count;
}

}  // namespace

TEST_CASE("GPU prediction: the polynomial without a division has its bits", "[gpu]") {
  if (skipped()) return;
  constexpr int threads = 256;
  const pvm::detail::DeviceArray<unsigned> different(threads);
  REQUIRE(pvm::detail::launch(compare_polynomials, {dim3(1), threads}, different.get()) ==
          cudaSuccess);
  std::vector<unsigned> counts(threads, 1);
  REQUIRE(cudaMemcpy(counts.data(), different.get(), threads * sizeof(unsigned),
                     cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(std::ranges::count(counts, 0U) == threads);
}

TEST_CASE("GPU prediction: int8 has the sums of the host", "[gpu]") {
  if (skipped()) return;
  for (const pvm::Spec& spec : some_specs()) {
    INFO(pvm::to_json_text(spec));
    const auto network = frozen_of(network_of(spec), pvm::FrozenFormat::int8);
    Int8Forward host(network, a_team());
    const auto expected = results_of(host, spec, 3, 4, 3);
    const auto forward = on_gpu<gpu::Int8>(spec, network, 3);
    const auto results = results_of(*forward, spec, 3, 4, 3);
    if (spec.activation == pvm::ActivationKind::polynomial) {
      CHECK(results == expected);
    } else {  // the logistic function is another program there
      CHECK(distance(results, expected, 0) < 1e-3);
    }
  }
}

TEST_CASE("GPU prediction: 16 bits and fp8 are near the host's fp32", "[gpu]") {
  if (skipped()) return;
  for (const pvm::Spec& spec : some_specs()) {
    INFO(pvm::to_json_text(spec));
    const auto network = network_of(spec);
    const std::span<const float> weights = network.state.weights;
    const auto check = [&](std::span<const float> of_host, Forward& forward, double most) {
      INFO(forward.description());
      HostForward host(spec, of_host, a_team());
      // Ones are not squeezed in the past of a new stream of the host.
      CHECK(distance(results_of(forward, spec, 3, 6, 3), results_of(host, spec, 3, 6, 3), 12) <
            most);
    };
    check(weights, *on_gpu<gpu::SixteenBits<pvm::fp16>>(spec, weights, 3), 1e-3);
    check(weights, *on_gpu<gpu::SixteenBits<pvm::bf16>>(spec, weights, 3), 8e-3);
    const auto frozen = frozen_of(network, pvm::FrozenFormat::fp8);
    check(widened(frozen), *on_gpu<gpu::Fp8>(spec, frozen, 3), 1e-3);
  }
}

TEST_CASE("GPU prediction: who shares a step changes nothing", "[gpu]") {
  if (skipped()) return;
  const pvm::Spec spec = pvm::load_spec(PVM_MODEL_ZOO "/tiny.json");
  const auto network = network_of(spec);
  const std::span<const float> weights = network.state.weights;
  constexpr std::uint64_t streams = 70, steps = 3;
  const auto alone = on_gpu<gpu::SixteenBits<pvm::fp16>>(spec, weights, 5, 5);  // most are parked
  const auto expected = results_of(*alone, spec, streams, steps, 5);
  const auto together = on_gpu<gpu::SixteenBits<pvm::fp16>>(spec, weights, streams);
  CHECK(results_of(*together, spec, streams, steps, streams) == expected);
  CHECK(results_of(*together, spec, streams, steps, 1) == expected);

  const auto bytes = frozen_of(network, pvm::FrozenFormat::int8);
  Int8Forward host(bytes, a_team());
  const auto in_int8 = on_gpu<gpu::Int8>(spec, bytes, streams);
  CHECK(results_of(*in_int8, spec, streams, steps, streams) ==
        results_of(host, spec, streams, steps, streams));
  const auto floats = frozen_of(network, pvm::FrozenFormat::fp8);
  const auto in_fp8 = on_gpu<gpu::Fp8>(spec, floats, streams);
  CHECK(results_of(*in_fp8, spec, streams, steps, streams) ==
        results_of(*in_fp8, spec, streams, steps, 9));
}

TEST_CASE("GPU prediction: units of several items, streams of several thread blocks", "[gpu]") {
  if (skipped()) return;
  pvm::Spec spec = pvm_test::random_spec(1, 8);  // 64 hidden values
  spec.activation = pvm::ActivationKind::polynomial;
  const auto network = network_of(spec);
  constexpr std::uint64_t streams = 150, steps = 2;
  const auto bytes = frozen_of(network, pvm::FrozenFormat::int8);
  Int8Forward host(bytes, a_team());
  const auto in_int8 = on_gpu<gpu::Int8>(spec, bytes, streams);
  CHECK(results_of(*in_int8, spec, streams, steps, streams) ==
        results_of(host, spec, streams, steps, streams));
  const std::span<const float> weights = network.state.weights;
  const auto in_bf16 = on_gpu<gpu::SixteenBits<pvm::bf16>>(spec, weights, streams);
  CHECK(results_of(*in_bf16, spec, streams, steps, streams) ==
        results_of(*in_bf16, spec, streams, steps, 9));
}

TEST_CASE("GPU prediction: what is impossible is said", "[gpu]") {
  if (skipped()) return;
  pvm::Spec spec = pvm::load_spec(PVM_MODEL_ZOO "/tiny.json");
  const auto network = network_of(spec);
  const std::span<const float> weights = network.state.weights;
  CHECK_THROWS_AS(on_gpu<gpu::SixteenBits<pvm::fp16>>(spec, weights, 8, 3), pvm::Error);
  spec.own_activation = "mine";
  CHECK_THROWS_AS(on_gpu<gpu::SixteenBits<pvm::fp16>>(spec, weights, 8), pvm::Error);
}
