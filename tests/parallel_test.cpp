// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Work on large arrays by several threads, and the weights of a new run, which are made so.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <pvm/core/large_vector.hpp>
#include <pvm/core/parallel.hpp>
#include <pvm/core/random.hpp>
#include <pvm/model/initial_weights.hpp>

#include "catch.hpp"

namespace {

constexpr std::size_t large = 3'000'001;  // enough for several threads

}  // namespace

TEST_CASE("Every item is worked on once, and the first failure is thrown", "[core]") {
  for (const std::size_t values : {std::size_t{1}, large}) {  // alone, and by several threads
    std::vector<std::atomic<int>> times(100);
    pvm::detail::in_parallel(100, values, [&](std::size_t i) { ++times[i]; });
    CHECK(std::all_of(times.begin(), times.end(), [](const auto& n) { return n == 1; }));

    std::atomic<int> calls = 0;
    std::string what;
    try {
      pvm::detail::in_parallel(100, values, [&](std::size_t i) {
        ++calls;
        if (i % 30 == 29) throw std::runtime_error(std::to_string(i));
      });
    } catch (const std::runtime_error& error) {
      what = error.what();
    }
    CHECK(what == "29");
    CHECK(calls == 100);
  }
  pvm::detail::in_parallel(0, large, [](std::size_t) { FAIL("there is no item"); });
}

TEST_CASE("Ranges are whole, and cover all", "[core]") {
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{7}, large}) {
    std::vector<std::uint8_t> times(n);
    std::atomic<bool> whole = true;
    pvm::detail::in_parallel_ranges(n, 8, [&](std::size_t begin, std::size_t end) {
      if (begin % 8 != 0 || (end % 8 != 0 && end != n)) whole = false;
      for (std::size_t i = begin; i < end; ++i) ++times[i];
    });
    CHECK(whole);
    CHECK(std::all_of(times.begin(), times.end(), [](int t) { return t == 1; }));
  }
}

TEST_CASE("A large vector starts as zeros and keeps what it has", "[core]") {
  auto values = pvm::detail::large_vector<float>(large);
  CHECK(values.size() == large);
  CHECK(std::count(values.begin(), values.end(), 0.0F) == large);
  values.back() = 5;
  pvm::detail::resize_large(values, 4 * large);
  CHECK(values.size() == 4 * large);
  CHECK(values[large - 1] == 5);
  CHECK(values.back() == 0);
}

TEST_CASE("Random numbers are the same one by one and four at a time", "[core]") {
  for (const std::uint64_t first : {0, 1, 2, 3, 4, 1'000'003}) {
    for (const std::size_t n : {0, 1, 2, 3, 4, 5, 17}) {
      std::vector<float> filled(n);
      pvm::fill_uniform(11, first, filled);
      for (std::size_t i = 0; i < n; ++i) CHECK(filled[i] == pvm::uniform(11, first + i));
    }
  }
}

TEST_CASE("The first weights are a function of the seed and the index", "[core]") {
  const std::uint64_t seed = (std::uint64_t{1} << 40) + 3;
  const std::vector<float> weights = pvm::initial_weights(large, seed);
  REQUIRE(weights.size() == large);
  std::size_t others = 0;
  for (std::size_t i = 0; i < large; ++i) {
    if (weights[i] != 0.03F * (pvm::uniform(seed, i) - 0.5F)) ++others;
  }
  CHECK(others == 0);
  CHECK(pvm::initial_weights(10, seed) == std::vector(weights.begin(), weights.begin() + 10));
}
