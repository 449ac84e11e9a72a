// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Puts a load on `pvm serve`: streams of JPEG pictures, each from a client of its own.
///     pvm serve -L run.safetensors
///     bench_serve_load --port 8090 --token TOKEN [--streams 200] [--rate 10] [--seconds 60]
///
/// Prints a JSON line: how many frames were sent, answered and refused (by status 429), how many
/// were lost (no answer, another status, or a wrong number of a frame), the rate, and the latency
/// as clients see it (median and 99th percentile). Exits with 1 if a frame was lost.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <httplib.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <opencv2/imgcodecs.hpp>

#include <pvm/core/error.hpp>
#include <pvm/io/synthetic.hpp>

#include "command_line.hpp"

namespace {

using Clock = std::chrono::steady_clock;

struct Load {
  int port = 8090, streams = 200;
  double rate = 10, seconds = 60;
  std::string token;
  int side = 96;
};

struct Counts {
  std::uint64_t sent = 0, answered = 0, refused = 0, lost = 0;
  std::vector<double> latencies;  // in ms
  std::string why;                // the first frame was lost
};

void lose(Counts& counts, const httplib::Result& result) {
  if (counts.lost++ > 0) return;
  counts.why = result ? "status " + std::to_string(result->status) + ": " + result->body
                      : httplib::to_string(result.error());
}

std::vector<std::string> pictures(const Load& load) {
  pvm::io::Synthetic source({.seed = 1, .frames = 1000});
  const pvm::io::FrameShape shape{load.side, load.side, 3};
  std::vector<std::uint8_t> pixels(shape.size());
  std::vector<std::string> files;
  for (int i = 0; i < 50; ++i) {
    source.next(shape, pixels);
    std::vector<std::uint8_t> file;
    cv::imencode(".jpg", cv::Mat(load.side, load.side, CV_8UC3, pixels.data()), file);
    files.emplace_back(file.begin(), file.end());
  }
  return files;
}

void send(const Load& load, int number, const std::vector<std::string>& files, Counts& counts) {
  httplib::Client client("127.0.0.1", load.port);
  client.set_keep_alive(true);
  client.set_tcp_nodelay(true);
  client.set_read_timeout(30);
  client.set_default_headers({{"Authorization", "Bearer " + load.token}});
  const std::string path =
      "/streams/load-" + std::to_string(::getpid()) + "-" + std::to_string(number);
  if (const auto opened = client.Put(path.c_str()); !opened || opened->status != 201) {
    return lose(counts, opened);
  }
  const auto begin = Clock::now();
  const auto at = [&](double seconds) {
    return begin +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  const double offset = static_cast<double>(number) / load.streams / load.rate;
  for (std::uint64_t t = 0; Clock::now() < at(load.seconds); ++t) {
    std::this_thread::sleep_until(at(offset + static_cast<double>(t) / load.rate));
    const auto start = Clock::now();
    ++counts.sent;
    const auto result =
        client.Post((path + "/frames").c_str(), files[t % files.size()], "image/jpeg");
    counts.latencies.push_back(std::chrono::duration<double>(Clock::now() - start).count() * 1e3);
    if (result && result->status == 429) {
      ++counts.refused;
    } else if (!result || result->status != 200 ||
               nlohmann::json::parse(result->body)["frame"] != counts.answered++) {
      lose(counts, result);
    }
  }
  client.Delete(path.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  Load load;
  CLI::App app{"Puts a load on pvm serve.", "bench_serve_load"};
  app.add_option("--port", load.port, "of the server on this machine");
  app.add_option("--token", load.token, "that the server has printed")->required();
  app.add_option("--streams", load.streams, "how many")->check(CLI::Range(1, 4096));
  app.add_option("--rate", load.rate, "frames a second of each stream")
      ->check(CLI::Range(0.01, 10'000.0));
  app.add_option("--seconds", load.seconds, "how long")->check(CLI::Range(0.1, 1e6));
  app.add_option("--side", load.side, "of the pictures")->check(CLI::Range(8, 4096));
  return pvm_bench::run_app(app, argc, argv, [&] {
    const auto files = pictures(load);
    std::vector<Counts> counts(static_cast<std::size_t>(load.streams));
    std::vector<std::thread> threads;
    for (int i = 0; i < load.streams; ++i) {
      threads.emplace_back([&, i] { send(load, i, files, counts[static_cast<std::size_t>(i)]); });
    }
    for (std::thread& thread : threads) thread.join();
    Counts all;
    std::string why;
    for (const Counts& one : counts) {
      if (why.empty()) why = one.why;
      all.sent += one.sent;
      all.answered += one.answered;
      all.refused += one.refused;
      all.lost += one.lost;
      all.latencies.insert(all.latencies.end(), one.latencies.begin(), one.latencies.end());
    }
    std::sort(all.latencies.begin(), all.latencies.end());
    const auto share = [&](double part) {
      if (all.latencies.empty()) return 0.0;
      return all.latencies[static_cast<std::size_t>(part *
                                                    static_cast<double>(all.latencies.size() - 1))];
    };
    std::printf(
        "{\"streams\": %d, \"sent\": %llu, \"answered\": %llu, \"refused\": %llu, \"lost\": %llu, "
        "\"fps\": %.0f, \"latency_ms\": [%.2f, %.2f]}\n",
        load.streams, static_cast<unsigned long long>(all.sent),
        static_cast<unsigned long long>(all.answered), static_cast<unsigned long long>(all.refused),
        static_cast<unsigned long long>(all.lost), static_cast<double>(all.answered) / load.seconds,
        share(0.5), share(0.99));
    if (all.lost > 0) {
      throw pvm::Error(pvm::Fault::source,
                       std::to_string(all.lost) + " frames or streams were lost; one by " + why);
    }
  });
}
