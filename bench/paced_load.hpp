// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Cameras that hand their frames to a Predictor when they are taken, whether it is ready or not.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include <pvm/infer/predictor.hpp>

namespace pvm_bench {

struct PacedLoad {
  int streams = 1000;
  double frames_per_second = 30;  ///< of each stream
  double seconds = 5;
};

/// Prints what `load` gets of `predictor`: latencies from a frame's `submit` to its result, and how
/// many frames it had no room for. `frame`: what all cameras see.
inline void run_paced_load(pvm::Predictor& predictor, const PacedLoad& load,
                           const std::vector<std::uint8_t>& frame) {
  using Clock = std::chrono::steady_clock;
  constexpr int threads = 4;
  struct Share {
    std::vector<pvm::Stream> streams;
    std::vector<std::future<pvm::FrameResult>> results;
    std::uint64_t refused = 0;
  };
  std::vector<Share> shares(threads);
  for (int i = 0; i < load.streams; ++i) {
    shares[static_cast<std::size_t>(i % threads)].streams.push_back(predictor.open());
  }
  const auto warm = [&] {  // every stream has had a frame, and every size of a step its plan
    for (Share& share : shares) {
      for (pvm::Stream& stream : share.streams) {
        share.results.push_back(predictor.submit(stream, frame));
      }
    }
    for (Share& share : shares) {
      for (auto& result : share.results) result.get();
      share.results.clear();
    }
  };
  for (int i = 0; i < 3; ++i) warm();
  const auto begin = Clock::now();
  const std::chrono::duration<double> period(1 / load.frames_per_second);
  const auto run = [&](std::size_t t) {
    Share& share = shares[t];
    const auto rounds = static_cast<int>(load.seconds * load.frames_per_second);
    share.results.reserve(static_cast<std::size_t>(rounds) * share.streams.size());
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < share.streams.size(); ++i) {
        const double phase = static_cast<double>(i) / static_cast<double>(share.streams.size());
        std::this_thread::sleep_until(
            begin + std::chrono::duration_cast<Clock::duration>(period * (round + phase)));
        auto result = predictor.try_submit(share.streams[i], frame);
        if (result) {
          share.results.push_back(std::move(*result));
        } else {
          ++share.refused;
        }
      }
    }
  };
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < threads; ++t) all.emplace_back(run, t);
  for (std::thread& thread : all) thread.join();
  std::vector<double> latencies;
  std::uint64_t refused = 0;
  double batches = 0;
  for (Share& share : shares) {
    refused += share.refused;
    for (auto& future : share.results) {
      const pvm::FrameResult result = future.get();
      latencies.push_back(result.latency * 1e3);
      batches += 1.0 / result.batch;
    }
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::sort(latencies.begin(), latencies.end());
  std::printf(
      "{\"streams\": %d, \"fps\": %.0f, \"latency_ms\": [%.2f, %.2f, %.2f], "
      "\"refused\": %llu, \"frames_a_step\": %.1f}\n",
      load.streams, static_cast<double>(latencies.size()) / seconds,
      latencies[latencies.size() / 2], latencies[latencies.size() * 99 / 100], latencies.back(),
      static_cast<unsigned long long>(refused), static_cast<double>(latencies.size()) / batches);
}

}  // namespace pvm_bench
