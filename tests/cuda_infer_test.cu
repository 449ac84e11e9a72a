// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Frozen steps on a GPU, beside those on the host; frames and results in the GPU's memory.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/random.hpp>
#include <pvm/engine/host/team.hpp>
#include <pvm/infer/gpu/forward.hpp>
#include <pvm/infer/host_forward.hpp>
#include <pvm/infer/int8_forward.hpp>
#include <pvm/infer/quantize.hpp>
#include <pvm/infer/scheduler.hpp>
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

/// A program that has frames in the GPU's memory, and writes them at the last moment: by a kernel
/// on a stream of its own, which takes some time first.
__global__ void write_late(std::uint8_t* to, const std::uint8_t* from, int bytes) {
  for (const long long begin = clock64(); clock64() - begin < 2'000'000;) {
  }
  for (int i = 0; i < bytes; ++i) to[i] = from[i];
}

class Producer {
 public:
  /// Its frame begins `gap` bytes after an address that allocations have.
  explicit Producer(std::size_t bytes, std::size_t gap)
      : bytes_(bytes), gap_(gap), from_(bytes), to_(gap + bytes) {}

  pvm::GpuFrame write(const Frame& frame) {
    pvm::detail::cuda_check(cudaMemcpy(from_.get(), frame.data(), bytes_, cudaMemcpyHostToDevice),
                            "a test");
    pvm::detail::cuda_check(
        pvm::detail::launch(write_late, {dim3(1), 1, 0, stream_.get()}, to_.get() + gap_,
                            from_.get(), static_cast<int>(bytes_)),
        "a test");
    return {{to_.get() + gap_, bytes_}, 0, stream_.get()};
  }

 private:
  std::size_t bytes_, gap_;
  pvm::detail::DeviceArray<std::uint8_t> from_, to_;
  pvm::detail::Stream stream_;
};

std::vector<float> copied(const pvm::GpuValues& values) {
  std::vector<float> to(values.count);
  pvm::detail::cuda_check(
      cudaMemcpy(to.data(), values.values.get(), to.size() * sizeof(float), cudaMemcpyDeviceToHost),
      "a test");
  return to;
}

/// What is in the GPU's memory, of a stream.
struct Here {
  bool frame = false, hidden = false, prediction = false;
};

/// The results of streams of which `here` says what is in the GPU's memory, [step][stream].
std::vector<Result> results_here(Forward& forward, const pvm::Spec& spec,
                                 const std::vector<Here>& here, std::uint64_t steps) {
  const auto net = pvm::make_connectome(spec);
  const std::size_t hidden = net.units.size() * static_cast<std::size_t>(net.hidden);
  GpuMemory& memory = *forward.gpu_memory();
  std::vector<StreamPast> pasts;
  std::vector<std::unique_ptr<Producer>> producers;
  for (std::size_t s = 0; s < here.size(); ++s) {
    pasts.push_back(forward.begin());
    producers.push_back(std::make_unique<Producer>(spec.frame_size(), s % 3));
  }
  std::vector<Result> all;
  for (std::uint64_t t = 0; t < steps; ++t) {
    std::vector<Frame> frames;
    std::vector<Result> results(here.size());
    std::vector<Row> rows;
    std::vector<pvm::GpuValues> kept;
    for (std::size_t s = 0; s < here.size(); ++s) frames.push_back(frame_of(spec, s, t));
    for (std::size_t s = 0; s < here.size(); ++s) {
      Row row{&pasts[s], {}, {}, {}};
      row.frame = frames[s];
      if (here[s].frame) {
        row.frame = {};
        row.gpu_frame = memory.arriving(producers[s]->write(frames[s]));
      }
      const auto place = [&](bool on_gpu, std::vector<float>& values, std::size_t count,
                             std::span<float>& on_host, float*& there) {
        kept.push_back(on_gpu ? memory.room(count) : pvm::GpuValues{});
        if (on_gpu) {
          there = kept.back().values.get();
        } else {
          values.resize(count);
          on_host = values;
        }
      };
      place(here[s].hidden, results[s].hidden, hidden, row.hidden, row.gpu_hidden);
      place(here[s].prediction, results[s].prediction, spec.frame_size(), row.prediction,
            row.gpu_prediction);
      rows.push_back(row);
    }
    forward.step(rows);
    for (std::size_t s = 0; s < here.size(); ++s) {
      if (here[s].hidden) results[s].hidden = copied(kept[2 * s]);
      if (here[s].prediction) results[s].prediction = copied(kept[2 * s + 1]);
      all.push_back(std::move(results[s]));
    }
  }
  for (StreamPast& past : pasts) forward.forget(past);
  return all;
}

/// The sentence of the Error that `work` throws; empty if it throws none.
std::string refusal_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const pvm::Error& error) {
    return error.what();
  }
  return {};
}
bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

/// A scheduler with streams on the GPU, or on the host.
std::shared_ptr<Scheduler> a_scheduler(const pvm::io::Checkpoint& network, bool on_gpu,
                                       const pvm::PredictorOptions& options) {
  return Scheduler::make(network.spec, network.extras, options,
                         [&](pvm::Team& team) -> std::unique_ptr<Forward> {
                           const std::span<const float> weights = network.state.weights;
                           if (!on_gpu) {
                             return std::make_unique<HostForward>(network.spec, weights, team);
                           }
                           using Made = gpu::GpuForward<gpu::SixteenBits<pvm::fp16>>;
                           return std::make_unique<Made>(network.spec, gpu::rows_of(weights), team,
                                                         Made::Options{4, 0});
                         });
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

TEST_CASE("GPU prediction: frames and results in the GPU's memory", "[gpu]") {
  if (skipped()) return;
#if defined(PVM_EMULATED_CUDA)
  emulated_cuda::Facts overlapping = emulated_cuda::facts;
  overlapping.overlap = true;  // or a frame would be there whether anybody waits for it or not
  const emulated_cuda::Different different(overlapping);
#endif
  const Here host, gpu{true, true, true};
  const std::vector<std::vector<Here>> mixes = {
      {gpu},
      {{true, false, false}},
      {{false, true, true}},
      {{false, false, true}},
      {gpu, gpu, gpu},
      {gpu, host, {true, false, false}, {false, true, false}, {false, false, true}, host},
  };
  for (const pvm::Spec& spec :
       {pvm::load_spec(PVM_MODEL_ZOO "/tiny.json"), pvm_test::random_spec(5)}) {
    const auto network = network_of(spec);
    const std::span<const float> weights = network.state.weights;
    const auto forward = on_gpu<gpu::SixteenBits<pvm::fp16>>(spec, weights, 6);
    for (const auto& mix : mixes) {
      INFO(mix.size() << " streams of " << spec.name);
      const auto expected = results_here(*forward, spec, std::vector<Here>(mix.size(), host), 3);
      CHECK(results_here(*forward, spec, mix, 3) == expected);
    }
  }
}

TEST_CASE("GPU prediction: the memory of results is used again, and outlives all else", "[gpu]") {
  if (skipped()) return;
  pvm::GpuValues kept;
  {
    gpu::Exchange memory;
    const pvm::GpuValues first = memory.room(5);
    const float* const place = first.values.get();
    pvm::GpuValues second = memory.room(5);
    CHECK(second.values.get() != place);
    CHECK(second.device == memory.device());
    const float* const freed = second.values.get();
    second = {};
    pvm::detail::cuda_check(cudaDeviceSynchronize(), "a test");
    CHECK(memory.room(6).values.get() != freed);
    kept = memory.room(5);
    CHECK(kept.values.get() == freed);
    const std::vector<float> values = {1, 2, 3, 4, 5};
    pvm::detail::cuda_check(cudaMemcpy(kept.values.get(), values.data(),
                                       values.size() * sizeof(float), cudaMemcpyHostToDevice),
                            "a test");
  }
  CHECK(copied(kept) == std::vector<float>{1, 2, 3, 4, 5});
}

TEST_CASE("GPU prediction: a scheduler takes frames of the GPU, and leaves results there",
          "[gpu]") {
  if (skipped()) return;
  const auto network = network_of(pvm::load_spec(PVM_MODEL_ZOO "/tiny.json"));
  const pvm::Spec& spec = network.spec;
  pvm::PredictorOptions options;
  options.hidden = true;
  options.threads = 2;
  const auto normal = a_scheduler(network, true, options);
  options.results_on_gpu = true;
  const auto there = a_scheduler(network, true, options);
  const auto a = normal->open(), b = there->open(), c = normal->open();
  Producer producer(spec.frame_size(), 1);
  for (std::uint64_t t = 0; t < 4; ++t) {
    const Frame frame = frame_of(spec, 0, t);
    const auto expected = normal->predict(*a, std::span(frame), pvm::Priority::normal);
    const pvm::GpuFrame on_gpu = producer.write(frame);
    // Frames of both kinds may be on their way at once.
    auto first = there->submit(*b, on_gpu, pvm::Priority::normal);
    auto second = normal->try_submit(*c, on_gpu, pvm::Priority::critical);
    const auto stays = first.get();
    CHECK(copied(stays.gpu_prediction) == expected.prediction);
    CHECK(copied(stays.gpu_hidden) == expected.hidden);
    CHECK((stays.prediction.empty() && stays.hidden.empty() && stays.frame == t));
    REQUIRE(second.has_value());
    const auto comes = second->get();
    CHECK(comes.prediction == expected.prediction);
    CHECK(comes.gpu_prediction.empty());
  }
}

TEST_CASE("GPU prediction: frames in other memory are refused", "[gpu]") {
  if (skipped()) return;
  const auto network = network_of(pvm::load_spec(PVM_MODEL_ZOO "/tiny.json"));
  pvm::PredictorOptions options;
  options.threads = 1;
  const auto host = a_scheduler(network, false, options), gpu = a_scheduler(network, true, options);
  const auto on_host = host->open(), on_gpu = gpu->open();
  Producer producer(network.spec.frame_size(), 0);
  pvm::GpuFrame frame = producer.write(frame_of(network.spec, 0, 0));
  const auto refused = [&](Scheduler& scheduler, StreamWork& stream) {
    return refusal_of([&] { scheduler.predict(stream, frame, pvm::Priority::normal); });
  };
  CHECK(refused(*gpu, *on_gpu).empty());
  CHECK(contains(refused(*host, *on_host), "GPU 0 and the predictor reads frames of host memory"));
  frame.device = 7;
  CHECK(contains(refused(*gpu, *on_gpu), "GPU 7 and the predictor is on GPU 0"));
  frame = {frame.pixels.first(5)};
  CHECK(contains(refused(*gpu, *on_gpu), "the frame has 5 bytes"));
  options.results_on_gpu = true;
  CHECK(contains(refusal_of([&] { a_scheduler(network, false, options); }),
                 "results stay on a GPU if it predicts in bf16 or fp16"));
}
