// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Predicts what a network that ranks share needs and how fast it runs, from bytes, bandwidths and
/// latencies. Nothing is allocated for the network and nothing runs, so that any size can be asked
/// for.
///     bench_forecast SPEC [--layers 64,32,...] [--machine NAME] [--ranks 1,2,...] [--json]
/// docs/ranks.md has the model, what its constants were measured by, and where it was checked.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <pvm/core/error.hpp>
#include <pvm/dist/partition.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/json.hpp>

namespace {

/// How ranks are connected. Times in seconds, rates in bytes per second.
struct Network {
  int near;  ///< so many ranks are connected by the near network
  double near_rate, near_latency;
  double far_rate, far_latency;
  double per_message;  ///< time of a message to one more rank
};

/// A rank's machine.
struct Machine {
  const char* name;
  const char* what;
  double weight_bytes;  ///< bytes of a weight that a step reads
  double folds;         ///< and further bytes for folds, as a share of these
  double memory;        ///< rate of streaming weights
  double cached;        ///< bytes of streamed weights that a cache holds from step to step
  double chip;          ///< bytes of weights that fit on the chip: then none is streamed
  double chip_rate;     ///< rate of reading these
  double chain;         ///< a step's time that no number of ranks shortens
  double overlap;       ///< share of the pass that runs while messages are on their way
  double records;       ///< bytes sent for each byte of hidden values, as floats
  Network network;
};

/// An H200 with one sequence in bf16, fitted to today's rates of small, med and large
/// (docs/performance.md). A unit's record is 352 bytes, for 49 values with inner products and tags.
constexpr Machine h200(const char* name, const char* what, const Network& network) {
  return {.name = name,
          .what = what,
          .weight_bytes = 2,
          .folds = 0,
          .memory = 2.76e12,
          .cached = 30e6,
          .chip = 40e6,
          .chip_rate = 30e12,
          .chain = 6.5e-6,
          .overlap = 1.0 / 16,
          .records = 352.0 / 196,
          .network = network};
}

const Machine machines[] = {
    // Two GPUs copy 396 GB/s, and a piece is 0.71 us on its way, 0.32 us longer than within a GPU.
    // The latency is fitted to small, classic and med on two GPUs: what their steps take longer.
    h200("nvlink", "H200s in one NVLink network, bf16",
         {.near = 1 << 20,
          .near_rate = 396e9,
          .near_latency = 1e-6,
          .far_rate = 396e9,
          .far_latency = 1e-6,
          .per_message = 0.05e-6}),
    h200("ethernet", "8 H200s a host, 400 Gb/s Ethernet for each GPU, bf16",
         {.near = 8,
          .near_rate = 396e9,
          .near_latency = 1e-6,
          .far_rate = 50e9,
          .far_latency = 8e-6,
          .per_message = 0.3e-6}),
    // One core of an AMD EPYC (Zen 5), fp32, small.
    {.name = "host",
     .what = "one core a rank, shared memory, fp32",
     .weight_bytes = 4,
     .folds = 0.125,
     .memory = 20e9,
     .cached = 0,
     .chip = 0,
     .chip_rate = 1,
     .chain = 0,
     .overlap = 0,
     .records = 1,
     .network = {.near = 1 << 20,
                 .near_rate = 10e9,
                 .near_latency = 30e-6,
                 .far_rate = 10e9,
                 .far_latency = 30e-6,
                 .per_message = 5e-6}},
};

struct Forecast {
  int ranks = 0;
  double weights = 0;  ///< bytes of the heaviest rank's weights, as a step reads them
  double sent = 0;     ///< bytes that a rank receives in a step
  double pass = 0, exchange = 0, step = 0;  ///< seconds
};

Forecast forecast(const pvm::Connectome& net, const Machine& machine, int ranks) {
  const auto costs = pvm::dist::costs_of_units(net, 0);
  const auto starts = pvm::dist::balanced_ranges(costs, static_cast<std::size_t>(ranks));
  double most = 0;
  for (std::size_t r = 0; r + 1 < starts.size(); ++r) {
    double sum = 0;
    for (std::size_t u = starts[r]; u < starts[r + 1]; ++u) sum += costs[u];
    most = std::max(most, sum);
  }
  Forecast f;
  f.ranks = ranks;
  f.weights = most * machine.weight_bytes;
  const double streamed = std::max(0.0, f.weights * (1 + machine.folds) - machine.cached);
  f.pass = f.weights <= machine.chip ? f.weights / machine.chip_rate : streamed / machine.memory;
  const double all = static_cast<double>(net.units.size()) * net.hidden * sizeof(float);
  f.sent = all * machine.records * (ranks - 1) / ranks;
  if (ranks > 1) {
    const bool is_near = ranks <= machine.network.near;
    const double rate = is_near ? machine.network.near_rate : machine.network.far_rate;
    const double latency = is_near ? machine.network.near_latency : machine.network.far_latency;
    // Ranks of one host pass on to each other what comes from others.
    const double messages =
        is_near ? ranks - 1 : ranks / machine.network.near + machine.network.near - 2;
    f.exchange = latency + messages * machine.network.per_message + f.sent / rate;
  }
  f.step = machine.chain + f.pass + std::max(0.0, f.exchange - machine.overlap * f.pass);
  return f;
}

std::vector<int> numbers(const std::string& text, const char* option) {
  std::vector<int> all;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    const bool digits = !word.empty() && word.size() < 8 &&
                        word.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || std::stoi(word) < 1) {
      throw pvm::Error(pvm::Fault::usage, std::string(option) + " " + pvm::quote(text) +
                                              " is no list of numbers from 1 on, with commas");
    }
    all.push_back(std::stoi(word));
    at = end + 1;
  }
  return all;
}

void print_needs(const pvm::Spec& spec, const pvm::Connectome& net) {
  const double weights = static_cast<double>(net.weights);
  const double hidden = static_cast<double>(net.units.size()) * net.hidden * sizeof(float);
  std::printf("%s: %zu units, %.4g weights, frames of %d x %d x %d\n", spec.name.c_str(),
              net.units.size(), weights, spec.frame_side(), spec.frame_side(), spec.input_channels);
  std::printf("weights: %.4g GB in fp32; in bf16 %.4g GB are read in a step\n", weights * 4e-9,
              weights * 2e-9);
  std::printf("exchange: %.4g MB a step; frames: %.4g MB a step\n", hidden * 1e-6,
              static_cast<double>(spec.frame_size()) * 1e-6);
  std::printf("a checkpoint: %.4g GB\n", weights * 8e-9);
  std::printf(
      "GPUs with 141 GB for the fp32 weights: %.0f; to hold bf16 weights on the chips: %.0f\n",
      std::ceil(weights * 4 / 120e9), std::ceil(weights * 2 / 40e6));
}

int run(const std::string& path, const std::string& layers, const std::string& only,
        const std::string& ranks, bool json) {
  pvm::Spec spec = pvm::load_spec(path);
  // Not checked as a spec's are: engines refuse a network of this size, and none is made here.
  if (!layers.empty()) spec.layer_shapes = numbers(layers, "--layers");
  pvm::detail::check_sizes(spec, pvm::detail::SpecCheck("--layers"));
  if (pvm::detail::weight_bound(spec) > 1e12) {
    throw pvm::Error(pvm::Fault::usage, "a network of more than 1e12 weights is not foreseen");
  }
  const pvm::Connectome net = pvm::make_connectome(spec);
  if (!json) print_needs(spec, net);
  bool known = only.empty();
  for (const Machine& machine : machines) {
    if (!only.empty() && only != machine.name) continue;
    known = true;
    if (!json) {
      std::printf("\n%s\n ranks  weights MB  pass us  exchange us  step us  frames/s\n",
                  machine.what);
    }
    for (const int n : numbers(ranks, "--ranks")) {
      if (static_cast<std::size_t>(n) > net.units.size()) break;
      const Forecast f = forecast(net, machine, n);
      if (json) {
        std::printf(
            "{\"spec\":\"%s\",\"machine\":\"%s\",\"ranks\":%d,\"step_us\":%.3f,"
            "\"frames_per_second\":%.1f}\n",
            spec.name.c_str(), machine.name, n, f.step * 1e6, 1 / f.step);
      } else {
        std::printf("%6d %11.1f %8.1f %12.1f %8.1f %9.0f\n", n, f.weights * 1e-6, f.pass * 1e6,
                    f.exchange * 1e6, f.step * 1e6, 1 / f.step);
      }
    }
  }
  if (known) return 0;
  throw pvm::Error(pvm::Fault::usage,
                   "there is no machine " + pvm::quote(only) + "; nvlink, ethernet or host");
}

}  // namespace

int main(int argc, char** argv) {
  std::string spec, layers, machine, ranks = "1,2,4,6,8,16,32,64,128,256,512,1000";
  bool json = false;
  CLI::App app{"Predicts what a network needs that ranks share, and how fast it runs.",
               "bench_forecast"};
  app.add_option("spec", spec, "model spec")->required();
  app.add_option("--layers", layers, "other sides of the spec's layers, from the first on");
  app.add_option("--machine", machine, "nvlink, ethernet or host (default: all)");
  app.add_option("--ranks", ranks, "numbers of ranks");
  app.add_flag("--json", json, "print a JSON line for each number of ranks");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(spec, layers, machine, ranks, json);
  } catch (const pvm::Error& error) {
    std::fprintf(stderr, "bench_forecast: %s\n", error.what());
    return 2;
  }
}
