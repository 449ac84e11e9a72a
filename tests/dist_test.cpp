// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Tests of networks that several ranks share: the same bits as in one process, whatever the number
// of ranks, in every direction that a state can take. The ranks are threads here.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/dist/communicator.hpp>
#include <pvm/dist/gpus_of_ranks.hpp>
#include <pvm/dist/group.hpp>
#include <pvm/dist/lifeline.hpp>
#include <pvm/dist/partition.hpp>
#include <pvm/dist/ranks_by.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/other_ranks.hpp>

#include "catch.hpp"
#include "engine_cases.hpp"
#include "group_of_threads.hpp"
#include "seen.hpp"
#include "thread_ranks.hpp"

namespace {

using pvm_test::check_same;
using pvm_test::fill;
using pvm_test::Group;
using pvm_test::look_at;
using pvm_test::Post;
using pvm_test::run_steps;
using pvm_test::Seen;
using pvm_test::some_weights;
using pvm_test::start_from;
using pvm_test::ThreadRank;
using pvm_test::with_marked_ranks;
using pvm_test::with_ranks;

/// An engine of one process, as a Trainer has it.
pvm::AnyEngine alone(const pvm::Spec& spec, int batch, const std::string& precision) {
  pvm::EngineOptions options;
  options.threads = 1;
  return pvm::dist::detail::make_host(spec, batch, precision, options);
}
pvm::AnyEngine shared(Group& group, const pvm::Spec& spec, int batch, const std::string& precision,
                      int threads = 1) {
  pvm::EngineOptions options;
  options.threads = threads;
  return group.make(spec, batch, precision, options, pvm::BackendChoice::host);
}

/// Runs a network in one process and by `ranks` ranks, and checks that nothing differs.
void check_ranks(const pvm::Spec& spec, int ranks, int batch, const std::string& precision,
                 int threads = 1) {
  CAPTURE(spec.name, ranks, batch, precision, threads);
  const auto start = start_from(some_weights(pvm::make_connectome(spec).weights), batch);
  auto one = alone(spec, batch, precision);
  one.restore(start);
  run_steps(one, spec, 45);
  const Seen expected = look_at(one, spec);
  with_ranks(ranks, [&](Group& group) {
    auto many = shared(group, spec, batch, precision, threads);
    many.restore(start);
    run_steps(many, spec, 45, 5);
    check_same(look_at(many, spec), expected);
  });
}

}  // namespace

TEST_CASE("ranges of units are as balanced as ranges can be", "[dist]") {
  using pvm::dist::balanced_ranges;
  const auto heaviest = [](const std::vector<double>& costs, std::size_t ranks) {
    const auto starts = balanced_ranges(costs, ranks);
    REQUIRE(starts.size() == ranks + 1);
    CHECK(starts.front() == 0);
    CHECK(starts.back() == costs.size());
    double most = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      REQUIRE(starts[r] < starts[r + 1]);
      most = std::max(
          most, std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(starts[r]),
                                costs.begin() + static_cast<std::ptrdiff_t>(starts[r + 1]), 0.0));
    }
    return most;
  };
  CHECK(heaviest({1, 1, 1, 1}, 2) == 2);
  CHECK(heaviest({4, 1, 1, 1, 1}, 2) == 4);
  CHECK(heaviest({1, 1, 1, 1, 4}, 2) == 4);
  CHECK(heaviest({1, 9, 1}, 3) == 9);
  CHECK(heaviest({5, 1, 1, 1, 1, 1}, 3) == 5);
  CHECK(heaviest({2, 2, 2, 2, 2}, 2) == 6);
  CHECK(heaviest({0, 0, 0}, 3) == 0);
  CHECK(heaviest({3}, 1) == 3);
  std::vector<double> many(265, 1.0);
  many.back() = 20;
  CHECK(heaviest(many, 8) == 36);
}

TEST_CASE("what a unit costs besides its weights is measured", "[dist]") {
  using pvm::dist::measured_each;
  const auto net = pvm::make_connectome(pvm_test::tiny_spec());
  const std::size_t units = net.units.size();
  const std::vector<std::size_t> starts = {0, units / 2, units};
  const auto weights = pvm::dist::weights_of_units(net);
  std::vector<float> seconds;
  for (std::size_t u = 0; u < units; ++u)
    seconds.push_back(static_cast<float>(1e-9 * (weights[u] + 2'500.0)));
  CHECK(measured_each(net, seconds, starts, 1) == Approx(2'500).epsilon(0.01));
  CHECK(measured_each(net, std::vector<float>(units), starts, 77) == 77);
  const std::vector<float> all_the_same(units, 1e-6F);  // says that weights cost nothing
  CHECK(measured_each(net, all_the_same, starts, 77) <= 100'000);
  CHECK(pvm::dist::usual_time({1, 3, 2}) == Approx(1.5));
  CHECK(pvm::dist::usual_time({5}) == 5);
  CHECK(pvm::dist::usual_time({}) == 0);
  CHECK(pvm::dist::costs_of_units(net, 10)[3] == weights[3] + 10);
}

TEST_CASE("any number of ranks gives the bits of one process", "[dist]") {
  for (const auto& spec : pvm_test::odd_specs()) {
    const auto units = static_cast<int>(pvm::make_connectome(spec).units.size());
    if (units < 2) continue;
    check_ranks(spec, std::min(2, units), 1, "fp32");
    check_ranks(spec, std::min(5, units), 1, "fp32");
  }
  check_ranks(pvm_test::tiny_spec(), 1, 1, "fp32");
  check_ranks(pvm_test::tiny_spec(), 21, 1, "fp32");
}

TEST_CASE("ranks share batches, precisions, rules and threads, too", "[dist]") {
  auto spec = pvm_test::tiny_spec();
  spec.delay_each_layer_learning = 3;
  for (const int batch : {3, 6}) {
    check_ranks(spec, 3, batch, "fp32");
    check_ranks(spec, 2, batch, "bf16");
  }
  check_ranks(spec, 3, 1, "bf16");
  check_ranks(spec, 3, 1, "fp16");
  check_ranks(spec, 2, 1, "fp32", 3);
  spec.learning_rule = "adam";
  check_ranks(spec, 3, 1, "fp32");
  spec.learning_rule = "sgd";
  check_ranks(spec, 3, 2, "fp32");
}

TEST_CASE("a run goes on with any number of ranks, frozen or not", "[dist]") {
  for (const double momentum : {0.1, 0.95}) {
    auto spec = pvm_test::tiny_spec();
    spec.delay_each_layer_learning = 3;
    spec.momentum = momentum;
    auto one = alone(spec, 1, "fp32");
    one.restore(start_from(some_weights(pvm::make_connectome(spec).weights)));
    run_steps(one, spec, 60);
    run_steps(one, spec, 5, 7, pvm::Mode::freeze);
    run_steps(one, spec, 20);
    const Seen expected = look_at(one, spec);

    // Three ranks, then one process, then two ranks, then four.
    pvm::EngineState state = start_from(some_weights(pvm::make_connectome(spec).weights));
    pvm::Score score;
    const auto go_on = [&](auto& engine, std::uint64_t steps, pvm::Mode mode) {
      engine.restore(state);
      run_steps(engine, spec, steps, 4, mode);
      score = engine.take_score();
      state = engine.save();
    };
    const auto go_on_with = [&](int ranks, std::uint64_t steps, pvm::Mode mode) {
      with_ranks(ranks, [&](Group& group) {
        auto engine = shared(group, spec, 1, "fp32");
        go_on(engine, steps, mode);
      });
    };
    go_on_with(3, 33, pvm::Mode::learn);
    auto between = alone(spec, 1, "fp32");
    go_on(between, 27, pvm::Mode::learn);
    go_on_with(2, 5, pvm::Mode::freeze);
    go_on_with(4, 20, pvm::Mode::learn);
    CHECK(state.weights == expected.state.weights);
    CHECK(state.folded == expected.state.folded);
    CHECK(state.dweights == expected.state.dweights);
    CHECK(state.hidden == expected.state.hidden);
    CHECK(state.frames == expected.state.frames);
    CHECK(state.output_gradients == expected.state.output_gradients);
    CHECK(score.outputs > 0);
  }
}

TEST_CASE("ranks take over the state of an engine that folds in another order", "[dist]") {
  auto spec = pvm_test::tiny_spec();
  spec.delay_each_layer_learning = 3;
  auto other = alone(spec, 1, "bf16");
  other.restore(start_from(some_weights(pvm::make_connectome(spec).weights)));
  run_steps(other, spec, 60);
  const pvm::EngineState state = other.save();
  auto one = alone(spec, 1, "fp32");
  one.restore(state);
  run_steps(one, spec, 30);
  const Seen expected = look_at(one, spec);
  with_ranks(3, [&](Group& group) {
    auto many = shared(group, spec, 1, "fp32");
    many.restore(state);
    run_steps(many, spec, 30);
    check_same(look_at(many, spec), expected);
  });
}

TEST_CASE("frames from the store, and squeezed ones, reach all ranks", "[dist]") {
  auto spec = pvm_test::tiny_spec();
  spec.delay_each_layer_learning = 3;
  const std::size_t frame = spec.frame_size();
  const auto start = start_from(some_weights(pvm::make_connectome(spec).weights));
  const auto run = [&](auto& engine) {
    engine.restore(start);
    REQUIRE(engine.reserve_frames(1 << 24, 10) >= 10);
    std::vector<std::uint8_t> pixels(frame);
    for (std::size_t i = 0; i < 10; ++i) {
      for (std::size_t k = 0; k < frame; ++k) pixels[k] = pvm_test::some_pixel(k, i, 7);
      engine.store_frames(i, pixels);
    }
    for (int n = 0; n < 5; ++n) {
      auto block = engine.stage(6);
      fill(block, engine.step(), 1, frame);
      for (std::uint32_t i = 0; i < 6; i += 2) block.stored[i] = (i + 3) % 10;
      engine.run(block, pvm::Mode::learn);
    }
    std::vector<float> squeezed(3 * frame);
    for (std::size_t k = 0; k < squeezed.size(); ++k)
      squeezed[k] = 0.1F + 0.8F * static_cast<float>(k % 1000) / 1000.0F;
    auto block = engine.stage(3);
    fill(block, engine.step(), 1, frame);
    block.squeezed = squeezed;
    engine.run(block, pvm::Mode::learn);
    return look_at(engine, spec);
  };
  auto one = alone(spec, 1, "fp32");
  const Seen expected = run(one);
  with_ranks(3, [&](Group& group) {
    auto many = shared(group, spec, 1, "fp32");
    check_same(run(many), expected);
  });
}

TEST_CASE("all ranks hold the rate that a run is given", "[dist]") {
  auto spec = pvm_test::tiny_spec();
  spec.delay_each_layer_learning = 3;
  const auto start = start_from(some_weights(pvm::make_connectome(spec).weights));
  const auto run = [&](auto& engine) {
    engine.restore(start);
    run_steps(engine, spec, 20);
    for (std::size_t layer = 0; layer < spec.layer_shapes.size(); ++layer)
      engine.hold_rate(layer, 0.02F);
    run_steps(engine, spec, 20);
    engine.hold_rate(0, std::nullopt);
    run_steps(engine, spec, 20);
    return look_at(engine, spec);
  };
  auto one = alone(spec, 1, "fp32");
  const Seen expected = run(one);
  with_ranks(3, [&](Group& group) {
    auto many = shared(group, spec, 1, "fp32");
    check_same(run(many), expected);
  });
}

TEST_CASE("what cannot be shared is refused on rank 0, and the ranks go on", "[dist]") {
  const auto spec = pvm_test::tiny_spec();
  with_ranks(3, [&](Group& group) {
    auto one_unit = spec;
    one_unit.layer_shapes = {1};
    CHECK_THROWS_AS(shared(group, one_unit, 1, "fp32"), pvm::Error);
    CHECK_THROWS_AS(shared(group, spec, 1, "tf32"), pvm::Error);
    auto engine = shared(group, spec, 1, "fp32");
    auto state = start_from(some_weights(pvm::make_connectome(spec).weights));
    engine.restore(state);
    run_steps(engine, spec, 10);
    const auto weights = pvm_test::weights_of(engine, spec);
    state.weights.pop_back();
    CHECK_THROWS_AS(engine.restore(state), pvm::Error);
    CHECK(pvm_test::weights_of(engine, spec) == weights);
  });
}

TEST_CASE("a rank with another file is found", "[dist]") {
  const auto mark = [](int rank, const std::string& path) {
    if (path == "missing") return rank == 1 ? std::string() : std::string("here");
    return path == "other" && rank == 2 ? std::string("mine") : std::string("same");
  };
  const auto of_rank_0 = [&](const std::string& path) { return mark(0, path); };
  with_marked_ranks(
      4,
      [&](Group& group) {
        CHECK_NOTHROW(group.compare_files({"same", "missing"}, of_rank_0));
        std::string sentence;
        try {
          group.compare_files({"same", "other"}, of_rank_0);
        } catch (const pvm::Error& error) {
          sentence = error.what();
          CHECK(error.fault() == pvm::Fault::rank);
        }
        CHECK(sentence.find("rank 2 has another file 'other'") != std::string::npos);
      },
      mark);
}

TEST_CASE("ranks on GPUs have different ones, unless one is named for all", "[dist]") {
  using pvm::dist::detail::number_of_gpu;
  CHECK(number_of_gpu({}, 4, 2, 3) == 2);
  CHECK(number_of_gpu({}, 1, 0, 1) == 0);
  CHECK(number_of_gpu({5}, 8, 1, 2) == 5);
  CHECK(number_of_gpu({5, 3}, 8, 1, 2) == 3);
  CHECK_THROWS_AS(number_of_gpu({}, 2, 0, 3), pvm::Error);
  CHECK_THROWS_AS(number_of_gpu({0, 1}, 8, 2, 3), pvm::Error);
}

TEST_CASE("what one rank fails of, all ranks say; what each has, rank 0 gets", "[dist]") {
  Post post(3);
  std::vector<std::string> said(3);
  std::vector<float> whole;
  std::vector<std::thread> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r] {
      ThreadRank rank(post, r);
      pvm::dist::RanksBy<ThreadRank> all(rank);
      pvm::detail::on_all_ranks(all, [] {});
      std::string& own = said[static_cast<std::size_t>(r)];
      try {
        pvm::detail::on_all_ranks(all, [&] {
          if (r > 0) throw pvm::Error(pvm::Fault::memory, "full, as of " + std::to_string(r));
        });
      } catch (const pvm::Error& error) {
        if (error.fault() == pvm::Fault::memory) own = error.what();
      }
      std::vector<float> values((std::size_t{1} << 20) + 5);
      for (auto i = static_cast<std::size_t>(r); i < values.size(); i += 3) {
        values[i] = -static_cast<float>(i);
      }
      pvm::detail::merge_ranks(all, std::span(values));
      if (r == 0) whole = values;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(said == std::vector<std::string>(3, "rank 1: full, as of 1"));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) wrong += whole[i] != -static_cast<float>(i);
  CHECK(wrong == 0);
  CHECK(whole.size() == (std::size_t{1} << 20) + 5);
}

namespace {

/// Calls act(rank, lifeline, pulse) on `size` ranks with lifelines. Returns what each rank says
/// when the run is lost; "-": it was not.
template <class Act>
std::vector<std::string> live(int size, bool waiting, Act act) {
  pvm::dist::Patience patience;
  patience.beat = 0.02;
  patience.silence = 1;
  patience.standstill = 0.3;
  Post post(size);
  std::vector<std::string> said(static_cast<std::size_t>(size), "-");
  std::mutex mutex;
  std::vector<std::thread> ranks;
  for (int r = 0; r < size; ++r) {
    ranks.emplace_back([&, r] {
      ThreadRank rank(post, r);
      pvm::dist::Pulse pulse;
      pulse.waiting = waiting;
      const auto lost = [&](const std::string& sentence) {
        const std::lock_guard lock(mutex);
        said[static_cast<std::size_t>(r)] = sentence;
      };
      pvm::dist::Lifeline lifeline(rank, "here", pulse, lost, patience);
      act(r, lifeline, pulse);
      int over = 0;  // all stay until rank 0 has seen enough
      rank.broadcast(pvm::dist::bytes_of(over));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return said;
}

void wait_until_lost(pvm::dist::Lifeline& lifeline) {
  for (int i = 0; i < 200 && !lifeline.is_lost(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace

TEST_CASE("ranks that live are not lost", "[dist]") {
  const auto said = live(3, false, [](int, auto& lifeline, auto&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    CHECK(!lifeline.is_lost());
    CHECK_NOTHROW(lifeline.check());
  });
  CHECK(said == std::vector<std::string>(3, "-"));
  // All wait for each other most of the time, and get something.
  const auto busy = live(2, true, [](int rank, auto&, auto& pulse) {
    for (int i = 0; i < 70; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (rank == 1) ++pulse.served;
    }
  });
  CHECK(busy == std::vector<std::string>(2, "-"));
}

TEST_CASE("a network that stands still ends the run on all ranks", "[dist]") {
  const auto said = live(3, true, [](int rank, auto& lifeline, auto&) {
    wait_until_lost(lifeline);
    CHECK(lifeline.is_lost());
    if (rank == 0) CHECK_THROWS_AS(lifeline.check(), pvm::Error);
  });
  CHECK(said[0].find("the network between them stands still") != std::string::npos);
  CHECK(said[1].empty());  // rank 0 has said it
  CHECK(said[2].empty());
}

TEST_CASE("what a rank fails of is said by rank 0", "[dist]") {
  const auto said = live(3, false, [](int rank, auto& lifeline, auto&) {
    if (rank == 2) return lifeline.fail("it has no memory");
    wait_until_lost(lifeline);
    CHECK(lifeline.is_lost());
  });
  CHECK(said[0] == "rank 2: it has no memory");
  CHECK(said[1].empty());
}
