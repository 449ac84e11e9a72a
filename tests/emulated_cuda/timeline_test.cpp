// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// What a program that records timelines (PVM_TIMELINE) is told about the warps of a step.

#include "catch.hpp"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/units/engine.hpp>

#include "rounding_suite.hpp"

namespace units = pvm::detail::units;
using pvm_test::hidden_49;
using units::Part;

TEST_CASE("timeline: marks are put into the order of time, on the clock of all SMs") {
  units::TimelineRecord record;
  record.warps = 2;
  record.steps = 1;
  record.sms = {7, 3};
  // SM 7: a cycle is 2 ns; SM 3: its clock is at 1,000,000, and it begins 50 ns later.
  record.clocks = {100, 5000, 600, 6000, 1000000, 5050, 1000500, 6050};
  record.marks.resize(2 * 2 * units::part_count);
  const auto put = [&](std::size_t warp, Part part, unsigned long long clock) {
    record.marks[warp * units::part_count + static_cast<std::size_t>(part)] = clock;
  };
  put(0, Part::wait_inputs, 110);
  put(0, Part::forward, 130);
  put(0, Part::errors, 170);
  put(3, Part::gather, 1000010);
  put(3, Part::hidden, 1000000);
  const auto pieces = units::pieces_of(record);
  REQUIRE(pieces.size() == 3);  // a warp's last mark has no end
  CHECK(pieces[0].part == Part::wait_inputs);
  CHECK(pieces[0].begin == 20);
  CHECK(pieces[0].end == 60);
  CHECK(pieces[1].part == Part::forward);
  CHECK(pieces[1].end == 140);
  CHECK(pieces[1].sm == 7);
  CHECK(pieces[2].part == Part::hidden);
  CHECK(pieces[2].begin == 50);
  CHECK(pieces[2].end == 70);
  CHECK(pieces[2].sm == 3);
  CHECK(pieces[2].warp == 1);
}

/// Runs a launch, and checks what each warp is said to have done in each step but the last recorded.
template <class Engine>
std::map<int, std::set<Part>> parts_of_warps(const pvm::Spec& spec) {
  Engine engine(spec, 1, {});
  pvm::EngineState start;
  start.weights.assign(engine.connectome().weights, 0.01F);
  engine.restore(start);
  const pvm::FrameBlock block = engine.stage(40);
  std::fill(block.pixels.begin(), block.pixels.end(), std::uint8_t{90});
  std::fill(block.scored.begin(), block.scored.end(), std::uint8_t{1});
  engine.run(block, pvm::Mode::learn);
  const units::TimelineRecord record = engine.read_timeline();
  const auto pieces = units::pieces_of(record);
  std::map<std::tuple<unsigned, unsigned, int>, std::set<Part>> parts;
  std::map<std::pair<unsigned, unsigned>, double> ended;
  for (const units::TimelinePiece& piece : pieces) {
    REQUIRE(piece.end >= piece.begin);
    double& end = ended[{piece.thread_block, piece.warp}];
    REQUIRE(piece.begin >= end);  // one after the other
    end = piece.end;
    parts[{piece.thread_block, piece.warp, piece.step}].insert(piece.part);
  }
  REQUIRE(ended.size() == record.sms.size() * static_cast<std::size_t>(record.warps));
  std::map<int, std::set<Part>> of_warps;
  for (const auto& [where, did] : parts) {
    const auto [thread_block, warp, step] = where;
    of_warps[static_cast<int>(warp)].insert(did.begin(), did.end());
  }
  return of_warps;
}

TEST_CASE("timeline: each role does its parts") {
  const auto has = [](const std::set<Part>& parts, std::initializer_list<Part> which) {
    return std::all_of(which.begin(), which.end(), [&](Part p) { return parts.contains(p); });
  };
  emulated_cuda::facts.multiprocessors = 12;  // so that the network's units fit them
  SECTION("weights on the chip, 16 bits") {
    const auto parts = parts_of_warps<pvm::CudaResidentEngine<pvm::bf16>>(hidden_49());
    CHECK(has(parts.at(0), {Part::wait_inputs, Part::forward, Part::errors, Part::learn}));
    CHECK(has(parts.at(8), {Part::hidden, Part::gradient, Part::wait_sums}));
    CHECK(has(parts.at(11), {Part::gather, Part::listed}));
    CHECK(has(parts.at(12), {Part::factors, Part::fold_w0, Part::fold_w1}));
    CHECK_FALSE(has(parts.at(0), {Part::gather}));
  }
  SECTION("weights streamed, 16 bits") {
    const auto parts = parts_of_warps<pvm::CudaStreamedEngine<pvm::bf16>>(hidden_49());
    CHECK(has(parts.at(0), {Part::wait_inputs, Part::forward, Part::learn, Part::fold_w1}));
    CHECK(has(parts.at(8), {Part::errors, Part::hidden, Part::gather, Part::gradient}));
  }
}
