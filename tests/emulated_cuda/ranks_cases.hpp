// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tests of ranks that share a network on GPUs, one each. They are threads here, which the emulated
// device takes for processes: the bits are those of as many shards in one process, whatever is
// called.

#include "../catch.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <pvm/core/log.hpp>
#include <pvm/dist/group.hpp>
#include <pvm/dist/ranks_by.hpp>
#include <pvm/engine/cuda/device/gpus.hpp>
#include <pvm/engine/cuda/units/shards.hpp>

#include "../group_of_threads.hpp"
#include "../rounding_suite.hpp"

namespace gpu_ranks_test {

using pvm::BackendChoice;
using pvm_test::check_same;
using pvm_test::fill;
using pvm_test::Group;
using pvm_test::hidden_49;
using pvm_test::look_at;
using pvm_test::Post;
using pvm_test::run_steps;
using pvm_test::same_state;
using pvm_test::Seen;
using pvm_test::some_weights;
using pvm_test::start_from;
using pvm_test::ThreadRank;
using pvm_test::weights_of;
using pvm_test::with_ranks;

using Resident = pvm::CudaResidentEngine<pvm::bf16>;
using Streamed = pvm::CudaStreamedEngine<pvm::fp32>;

/// So many emulated GPUs, whose launches overlap, with 16 multiprocessors in all.
struct Machine : emulated_cuda::Different {
  explicit Machine(int devices)
      : Different([&] {
          emulated_cuda::Facts facts;
          facts.devices = devices;
          facts.multiprocessors = 16 / devices;
          facts.overlap = true;
          return facts;
        }()) {}
};

/// Rates so high that a gradient listed with a wrong age shows.
pvm::Spec quick() {
  auto spec = hidden_49();
  spec.initial_learning_rate = 0.02;
  return spec;
}
pvm::EngineState beginning(const pvm::Spec& spec) {
  return start_from(some_weights(pvm::make_connectome(spec).weights), 1);
}

template <class E>
pvm::AnyEngine make_shards(const pvm::Spec& spec, int batch, const pvm::EngineOptions& options) {
  return pvm::AnyEngine::make<pvm::CudaShardsEngine<E>>(spec, batch, options);
}
/// A program whose only GPU engines are of type E.
template <class E>
const pvm::detail::GpuEngines* gpus(std::string_view) {
  static constexpr pvm::detail::GpuEngines all{pvm::cuda_available, make_shards<E>,
                                               pvm::detail::list_gpus, pvm::detail::choose_gpu,
                                               nullptr};
  return &all;
}
/// A program without any.
const pvm::detail::GpuEngines* no_gpus(std::string_view) { return nullptr; }

template <class E, class Work>
void with_gpu_ranks(int size, Work work) {
  with_ranks(size, work, pvm::dist::GpusOf(gpus<E>));
}
pvm::AnyEngine shared(Group& group, const pvm::Spec& spec, pvm::EngineOptions options = {},
                      BackendChoice wanted = BackendChoice::cuda, int batch = 1) {
  options.threads = 1;
  return group.make(spec, batch, "fp32", options, wanted);
}
/// The same network over two shards of this process.
template <class E>
pvm::AnyEngine two_shards(const pvm::Spec& spec) {
  pvm::EngineOptions options;
  options.devices = {0, 1};
  return make_shards<E>(spec, 1, options);
}

/// Learns, is frozen for a while, and learns at other rates.
template <class Engine>
Seen trained(Engine& engine, const pvm::Spec& spec) {
  engine.restore(beginning(spec));
  run_steps(engine, spec, 23, 5);
  run_steps(engine, spec, 6, 4, pvm::Mode::freeze);
  engine.hold_rate(1, 0.004F);
  run_steps(engine, spec, 15);
  engine.hold_rate(1, std::nullopt);
  run_steps(engine, spec, 4);
  return look_at(engine, spec);
}

TEMPLATE_TEST_CASE("GPU ranks: the bits are those of shards of one process, captured and eager", "",
                   Resident, Streamed) {
  const auto spec = quick();
  const Machine two(2);
  const Seen expected = [&] {
    auto engine = two_shards<TestType>(spec);
    return trained(engine, spec);
  }();
  for (const bool graph : {true, false}) {
    CAPTURE(graph);
    with_gpu_ranks<TestType>(2, [&](Group& group) {
      pvm::EngineOptions options;
      options.graph = graph;
      auto engine = shared(group, spec, options);
      check_same(trained(engine, spec), expected);
      CHECK(engine.description().find("2 ranks, each a shard of 2 shards, here on GPU 0") == 0);
      CHECK(engine.device_seconds().value_or(0) > 0);
    });
  }
}

TEMPLATE_TEST_CASE("GPU ranks: the bits are the same if NCCL carries the records", "", Resident,
                   Streamed) {
  const auto spec = quick();
  const Machine two(2);
  const Seen expected = [&] {
    auto engine = two_shards<TestType>(spec);
    return trained(engine, spec);
  }();
  emulated_cuda::facts.peers = false;
  with_gpu_ranks<TestType>(2, [&](Group& group) {
    auto engine = shared(group, spec);
    check_same(trained(engine, spec), expected);
    CHECK(engine.description().find("records carried by NCCL") != std::string::npos);
  });
}

TEST_CASE("GPU ranks: a run goes on with any number of them, and on one GPU") {
  const auto spec = quick();
  const Machine one(1);
  Resident whole(spec);
  whole.restore(beginning(spec));
  run_steps(whole, spec, 40);
  const auto expected = whole.save();
  auto state = beginning(spec);
  const auto go_on = [&](auto& engine) {
    engine.restore(state);
    run_steps(engine, spec, 10, 4);
    state = engine.save();
  };
  const auto go_on_with = [&](int ranks) {
    const Machine machine(ranks);
    with_gpu_ranks<Resident>(ranks, [&](Group& group) {
      auto engine = shared(group, spec);
      go_on(engine);
    });
  };
  go_on_with(2);
  Resident between(spec);
  go_on(between);
  go_on_with(4);
  go_on_with(1);
  same_state(expected, state);
}

TEST_CASE("GPU ranks: frames from the stores, and squeezed ones, reach all") {
  const auto spec = quick();
  const std::size_t frame = spec.frame_size();
  const Machine two(2);
  const auto run = [&](auto& engine) {
    engine.restore(beginning(spec));
    REQUIRE(engine.reserve_frames(1 << 24, 10) >= 10);
    std::vector<std::uint8_t> pixels(frame), back(frame);
    for (std::size_t i = 0; i < 10; ++i) {
      for (std::size_t k = 0; k < frame; ++k) pixels[k] = pvm_test::some_pixel(k, i, 7);
      engine.store_frames(i, pixels);
    }
    engine.read_frame(9, back);
    CHECK(back == pixels);
    for (int n = 0; n < 3; ++n) {
      auto block = engine.stage(6);
      fill(block, engine.step(), 1, frame);
      for (const std::uint32_t i : {0U, 1U, 4U}) block.stored[i] = (i + 3) % 10;
      engine.run(block, pvm::Mode::learn);
    }
    auto block = engine.stage(5);
    fill(block, engine.step(), 1, frame);
    for (auto& index : block.stored) index = 2;
    engine.run(block, pvm::Mode::learn);
    std::vector<float> squeezed(3 * frame);
    for (std::size_t k = 0; k < squeezed.size(); ++k)
      squeezed[k] = 0.1F + 0.8F * static_cast<float>(k % 1000) / 1000.0F;
    block = engine.stage(3);
    fill(block, engine.step(), 1, frame);
    block.squeezed = squeezed;
    engine.run(block, pvm::Mode::learn);
    engine.reserve_frames(0, 0);
    return look_at(engine, spec);
  };
  auto engine = two_shards<Resident>(spec);
  const Seen expected = run(engine);
  with_gpu_ranks<Resident>(2, [&](Group& group) {
    auto ranks = shared(group, spec);
    check_same(run(ranks), expected);
  });
}

/// What rank 0 says if ranks are refused; "not refused".
std::string refusal(int ranks, const pvm::Spec& spec, const pvm::EngineOptions& options = {},
                    BackendChoice wanted = BackendChoice::cuda, int batch = 1,
                    pvm::dist::GpusOf of = gpus<Resident>) {
  std::string said = "not refused";
  with_ranks(
      ranks,
      [&](Group& group) {
        try {
          auto engine = shared(group, spec, options, wanted, batch);
        } catch (const pvm::Error& error) {
          said = error.what();
          CHECK(!group.broken());
        }
      },
      of);
  return said;
}

TEST_CASE("GPU ranks: what is impossible is refused in a sentence, and the ranks go on") {
  const auto says = [](const std::string& text, const char* what) {
    INFO(text);
    return text.find(what) != std::string::npos;
  };
  const auto spec = quick();
  const Machine two(2);
  CHECK(says(refusal(3, spec), "there are 3 ranks on a host and 2 GPUs that each of them sees"));
  pvm::EngineOptions options;
  options.devices = {1};
  CHECK(refusal(2, spec, options) == "not refused");
  CHECK(refusal(2, spec, options, BackendChoice::automatic) == "not refused");
  CHECK(says(refusal(2, spec, options, BackendChoice::host), "the run is to be on the host"));
  options.devices = {1, 0};
  CHECK(refusal(2, spec, options) == "not refused");
  options.devices = {7};
  CHECK(says(refusal(2, spec, options), "there is no GPU 7; there are 0: emulated, 1: emulated"));
  options.devices = {1, 7};
  CHECK(says(refusal(2, spec, options), "rank 1: there is no GPU 7"));
  options.devices = {};
  options.shards = 2;
  CHECK(says(refusal(2, spec, options), "each rank has one shard"));
  CHECK(says(refusal(2, spec, {}, BackendChoice::cuda, 2), "this engine runs one sequence"));
  auto other = spec;
  other.momentum = 0.9;
  CHECK(says(refusal(2, other), "cannot be divided into shards: "));
  other = spec;
  other.layer_shapes = {1};
  CHECK(says(refusal(2, other), "fewer units than there are shards"));
  CHECK(says(refusal(2, spec, {}, BackendChoice::cuda, 1, no_gpus), "built without CUDA"));
  emulated_cuda::facts.lends = false;  // NCCL carries the records
  CHECK(refusal(2, spec) == "not refused");
  emulated_cuda::facts.lends = true;
  emulated_cuda::facts.found = cudaErrorNoDevice;
  CHECK(says(refusal(2, spec), "no NVIDIA GPU is visible"));
  emulated_cuda::facts.found = cudaSuccess;
  emulated_cuda::facts.memory = std::size_t{20} << 20;
  CHECK(says(refusal(2, spec), "device memory"));
  CHECK(emulated_cuda::Memory::get().used() == 0);  // also where only one rank has failed
}

TEST_CASE("GPU ranks: memory that cannot be opened is said") {
  emulated_cuda::facts.lends = false;
  std::string said;
  try {
    const pvm::detail::OpenedMemory<int> memory(cudaIpcMemHandle_t{});
  } catch (const pvm::Error& error) {
    said = error.what();
  }
  CHECK(said.find("the memory of another process's GPU cannot be opened (") == 0);
  emulated_cuda::facts.lends = true;
}

TEST_CASE("GPU ranks: two on one GPU have the bits of two shards of it") {
  const auto spec = quick();
  const Machine two(2);
  pvm::EngineOptions options;
  options.devices = {1};
  options.shards = 2;
  const Seen expected = [&] {
    auto engine = make_shards<Resident>(spec, 1, options);
    return trained(engine, spec);
  }();
  options.shards = 0;
  with_gpu_ranks<Resident>(2, [&](Group& group) {
    auto engine = shared(group, spec, options);
    check_same(trained(engine, spec), expected);
  });
}

TEST_CASE("GPU ranks: the automatic choice is the host where GPUs cannot be, and says why") {
  const Machine two(2);
  const auto spec = quick();
  std::string said;  // of what has to do with CPUs
  pvm::set_log_sink([&](pvm::Severity, const std::string& text) {
    if (text.find("CPU") != std::string::npos) said += text;
  });
  const auto engine_of = [&](int ranks, int batch, pvm::dist::GpusOf of) {
    said.clear();
    std::string description;
    with_ranks(
        ranks,
        [&](Group& group) {
          auto engine = shared(group, spec, {}, BackendChoice::automatic, batch);
          engine.restore(start_from(some_weights(pvm::make_connectome(spec).weights), batch));
          run_steps(engine, spec, 2);
          description = engine.description();
        },
        of);
    INFO(description);
    CHECK((description.find("CUDA") == std::string::npos) ==
          (description.find("each a host") != std::string::npos));
    return description.find("CUDA") != std::string::npos ? "gpu" : "host";
  };
  CHECK(engine_of(2, 1, gpus<Resident>) == std::string("gpu"));
  CHECK(said.empty());
  CHECK(engine_of(2, 1, no_gpus) == std::string("host"));
  CHECK(said.empty());
  CHECK(engine_of(3, 1, gpus<Resident>) == std::string("host"));
  CHECK(said.find("the ranks compute on their CPUs: there are 3 ranks on a host") == 0);
  CHECK(engine_of(2, 2, gpus<Resident>) == std::string("host"));
  CHECK(said.find("the ranks compute on their CPUs: a batch of 2 sequences is impossible") == 0);
  pvm::set_log_sink({});
}

TEST_CASE("GPU ranks: a checkpoint that does not fit changes nothing") {
  const auto spec = quick();
  const Machine two(2);
  with_gpu_ranks<Resident>(2, [&](Group& group) {
    auto engine = shared(group, spec);
    engine.restore(beginning(spec));
    run_steps(engine, spec, 9);
    const auto before = weights_of(engine, spec);
    CHECK_THROWS_AS(engine.restore(start_from(std::vector<float>(3), 1)), pvm::Error);
    CHECK(!group.broken());
    CHECK(weights_of(engine, spec) == before);
    run_steps(engine, spec, 3);
    CHECK(engine.step() == 12);
  });
}

/// Rank `number` of two, which are lost when rank 1 has run a block less than rank 0. Whether it
/// notices.
bool notices(Post& post, int number) {
  ThreadRank rank(post, number);
  pvm::dist::RanksBy<ThreadRank> all(rank);
  static_cast<void>(cudaSetDevice(number));
  pvm::EngineOptions options;
  options.ranks = &all;
  const auto spec = quick();
  pvm::CudaShardsEngine<Resident> engine(spec, 1, options);
  engine.restore(beginning(spec));
  run_steps(engine, spec, 5);
  if (number == 1) {
    engine.synchronize();
    post.lose();
    return true;
  }
  try {
    run_steps(engine, spec, 5);
    engine.synchronize();  // its steps wait for those of rank 1
  } catch (const pvm::Error& error) {
    return error.fault() == pvm::Fault::rank;
  }
  return false;
}

TEST_CASE("GPU ranks: who waits for a lost rank's steps notices") {
  const Machine two(2);
  const pid_t child = ::fork();  // its steps never end
  if (child == 0) {
    ::alarm(120);
    Post post(2);
    std::thread other([&] { static_cast<void>(notices(post, 1)); });
    const bool noticed = notices(post, 0);
    ::_exit(noticed ? 7 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}

}  // namespace gpu_ranks_test
