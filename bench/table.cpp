// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Prints the table of docs/performance.md: the rate of training steps of every published network,
/// and of `small` with one key changed, in every precision, on the host or on a GPU.
///     bench_table [--backend host|cuda] [--precision fp32,bf16] [--batch 1,16] [--only
///     small,large]
///                 [--seconds 2] [--limit 60] [--json OUT]
///                 [--spec FILE ...] [--devices 0,1] [--shards 2] [--no-graph]
///
/// "G weights/s" are steps a second times the weights of the network, in 10^9. "of the bound" is
/// their share of what memory allows: the bandwidth measured on this machine, by reading an array
/// as large as the weights (host) or copying within the device's memory (GPU), divided by the bytes
/// of a weight that products read, 4 or 2. Networks that stay in a cache or on the chip may have
/// more than 100 %. Each entry is measured in a process of its own, which is ended at the limit, so
/// that no entry takes the others with it.

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/core/random.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/initial_weights.hpp>
#include <pvm/model/json.hpp>

#include "command_line.hpp"
#include "read_bandwidth.hpp"

#if defined(PVM_BENCH_CUDA)
#include <pvm/engine/cuda/device/check.hpp>
#endif

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Choices {
  std::string backend = "auto", json, zoo = PVM_MODEL_ZOO;
  std::vector<std::string> precisions, only, specs;
  std::vector<int> batches{1}, devices;
  int shards = 0;
  bool eager = false;
  double seconds = 2, limit = 60;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A row of the table.
struct Network {
  std::string name;
  pvm::Spec spec;
  std::vector<std::string> also{};  ///< other specs of the zoo that differ in their rates only
};

/// What the speed of `spec` depends on: everything but its name, the number of steps and when which
/// rate is in force. Of the rates the largest counts, which decides how batches compute.
pvm::Spec what_counts(pvm::Spec spec) {
  const pvm::Spec other;
  spec.name = other.name;
  spec.steps = other.steps;
  spec.initial_learning_rate = std::max(
      {spec.initial_learning_rate, spec.final_learning_rate, spec.intermediate_learning_rate});
  spec.delay_each_layer_learning = other.delay_each_layer_learning;
  spec.delay_intermediate_learning_rate = other.delay_intermediate_learning_rate;
  spec.intermediate_learning_rate = other.intermediate_learning_rate;
  spec.delay_final_learning_rate = other.delay_final_learning_rate;
  spec.final_learning_rate = other.final_learning_rate;
  return spec;
}

/// The networks of the model zoo, smallest first, and `small` with one key changed.
std::vector<Network> all_networks(const std::filesystem::path& zoo) {
  std::vector<std::pair<std::size_t, pvm::Spec>> specs;
  for (const auto& entry : std::filesystem::directory_iterator(zoo)) {
    if (entry.path().extension() != ".json") continue;
    const pvm::Spec spec = pvm::load_spec(entry.path());
    specs.emplace_back(pvm::make_connectome(spec).weights, spec);
  }
  std::sort(specs.begin(), specs.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second.name) < std::pair(b.first, b.second.name);
  });
  std::vector<Network> all;
  for (const auto& entry : specs) {
    const pvm::Spec& spec = entry.second;
    const auto same = std::find_if(all.begin(), all.end(), [&](const Network& network) {
      return what_counts(network.spec) == what_counts(spec);
    });
    if (same == all.end()) {
      all.push_back({spec.name, spec});
    } else {
      same->also.push_back(spec.name);
    }
  }
  const pvm::Spec small = pvm::load_spec(zoo / "small.json");
  const auto add = [&](const std::string& change, const std::function<void(pvm::Spec&)>& make) {
    all.push_back({"small with " + change, small});
    make(all.back().spec);
  };
  for (const int side : {1, 3, 5, 6, 8, 9, 10, 12, 16}) {
    const std::string sides = std::to_string(side) + " x " + std::to_string(side);
    add(sides + " hidden values", [&](pvm::Spec& spec) { spec.hidden_block_size = side; });
  }
  add("momentum 0.5", [](pvm::Spec& spec) { spec.momentum = 0.5; });
  add("momentum 0.9", [](pvm::Spec& spec) { spec.momentum = 0.9; });
  add("outputs that read the context",
      [](pvm::Spec& spec) { spec.feed_context_in_complex_layer = true; });
  for (Network& network : all) network.spec.delay_each_layer_learning = 1;  // all layers learn
  return all;
}

/// The networks that the command line names, or all of the table.
std::vector<Network> networks(const Choices& choices) {
  if (!choices.specs.empty()) {
    std::vector<Network> named;
    for (const std::string& file : choices.specs) {
      const pvm::Spec spec = pvm::load_spec(file);
      named.push_back({spec.name, spec});
      named.back().spec.delay_each_layer_learning = 1;
    }
    return named;
  }
  std::vector<Network> all = all_networks(choices.zoo);
  if (choices.only.empty()) return all;
  std::vector<Network> chosen;
  for (const std::string& name : choices.only) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Network& network) {
      const auto& also = network.also;
      return network.name == name || std::find(also.begin(), also.end(), name) != also.end();
    });
    if (found == all.end()) {
      throw pvm::Error(pvm::Fault::usage,
                       "there is no network " + pvm::quote(name) + " in the table");
    }
    chosen.push_back(*found);
  }
  return chosen;
}

template <class Precision>
pvm::AnyEngine engine_in(const pvm::Spec& spec, int batch, pvm::BackendChoice backend,
                         const Choices& choices) {
  pvm::EngineOptions options;
  options.restored_next = true;
  options.graph = !choices.eager;
  options.devices = choices.devices;
  options.shards = choices.shards;
  return pvm::detail::make_engine<Precision, pvm::dynamic, pvm::RuntimeNetwork, pvm::automatic>(
      spec, batch, options, backend);
}

pvm::BackendChoice backend_of(const std::string& name) {
  return name == "cuda" ? pvm::BackendChoice::cuda : pvm::BackendChoice::host;
}

pvm::AnyEngine make_engine(const pvm::Spec& spec, const std::string& precision, int batch,
                           pvm::BackendChoice backend, const Choices& choices) {
  if (precision == "tf32") return engine_in<pvm::tf32>(spec, batch, backend, choices);
  if (precision == "bf16") return engine_in<pvm::bf16>(spec, batch, backend, choices);
  if (precision == "fp16") return engine_in<pvm::fp16>(spec, batch, backend, choices);
  return engine_in<pvm::fp32>(spec, batch, backend, choices);
}

/// Whether this program can use a GPU. To be called in a process of its own.
bool has_gpu() {
  const auto* gpu =
      pvm::detail::gpu_engines<pvm::fp32, pvm::dynamic, pvm::RuntimeNetwork, pvm::automatic>();
  return gpu != nullptr && gpu->available(nullptr);
}

/// Bytes per second of the memory that holds the weights; nothing if it cannot be measured here.
std::optional<double> bandwidth(pvm::BackendChoice backend, std::size_t weight_bytes) {
  if (backend == pvm::BackendChoice::host) {
    constexpr std::size_t least = std::size_t{8} << 20;  // less is a matter of caches and threads
    if (weight_bytes < least) return std::nullopt;
    return pvm_bench::read_bandwidth(weight_bytes / sizeof(float), 4, 5);
  }
#if defined(PVM_BENCH_CUDA)
  constexpr std::size_t bytes = std::size_t{1} << 30;
  const pvm::detail::DeviceArray<std::uint8_t> from(bytes), to(bytes);
  const pvm::detail::Stream stream;
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    pvm::detail::cuda_check(
        cudaMemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice, stream.get()),
        "copying");
    pvm::detail::cuda_check(cudaStreamSynchronize(stream.get()), "copying");
    best = std::max(best, 2.0 * bytes / seconds_since(start));  // each byte is read and written
  }
  return best;
#else
  return std::nullopt;
#endif
}

/// Runs whole blocks of steps until `seconds` seconds have passed, and returns how many steps there
/// were in a second.
double steps_per_second(pvm::AnyEngine& engine, double seconds) {
  const auto start = Clock::now();
  std::uint64_t steps = 0;
  while (seconds_since(start) < seconds) {
    const pvm::FrameBlock block = engine.stage(engine.block_steps());
    // Some pixels of each frame change. More would be the host's time, not the engine's, in batches.
    for (std::size_t i = 0; i < block.pixels.size(); i += 1024) {
      block.pixels[i] = static_cast<std::uint8_t>(17 * (steps + i / 1024));
    }
    std::fill(block.scored.begin(), block.scored.end(), std::uint8_t{1});
    engine.run(block, pvm::Mode::learn);
    steps += static_cast<std::uint64_t>(block.steps);
  }
  engine.synchronize();
  return static_cast<double>(steps) / seconds_since(start);
}

/// Measures one entry.
Json measure(const pvm::Spec& spec, const std::string& precision, int batch,
             const Choices& choices) {
  const auto start = Clock::now();
  const pvm::BackendChoice backend = backend_of(choices.backend);
  const double seconds = choices.seconds;
  pvm::AnyEngine engine = make_engine(spec, precision, batch, backend, choices);
  const std::size_t weights = pvm::make_connectome(spec).weights;
  pvm::EngineState state;
  state.batch = batch;
  state.weights = pvm::initial_weights(weights, 1);
  engine.restore(state);
  engine.run(engine.stage(1), pvm::Mode::learn);
  engine.synchronize();
  const double started = seconds_since(start);
  for (int i = 0; i < 4; ++i) {  // all blocks that the engine lends in turn
    const pvm::FrameBlock block = engine.stage(engine.block_steps());
    for (std::size_t k = 0; k < block.pixels.size(); ++k) {
      block.pixels[k] = static_cast<std::uint8_t>(256 * pvm::uniform(2, k));
    }
    engine.run(block, pvm::Mode::learn);
  }
  (void)steps_per_second(engine, seconds / 5);
  constexpr std::size_t repetitions = 5;
  std::array<double, repetitions> rates{};
  for (double& rate : rates) rate = steps_per_second(engine, seconds / repetitions);
  std::sort(rates.begin(), rates.end());
  const double rate = rates[repetitions / 2];
  const pvm::Score score = engine.take_score();
  const std::size_t bytes = weights * (precision == "bf16" || precision == "fp16" ? 2 : 4);
  const auto most = bandwidth(backend, bytes);
  const auto share = most ? Json(rate * static_cast<double>(bytes) / *most) : Json();
  return {{"frames_per_second", rate * batch},
          {"least", rates.front() * batch},
          {"most", rates.back() * batch},
          {"weights_per_second", rate * static_cast<double>(weights)},
          {"bandwidth", most ? Json(*most) : Json()},
          {"of_bound", share},
          {"start_seconds", started},
          {"loss", score.loss / static_cast<double>(score.outputs)},
          {"engine", engine.description()}};
}

/// Calls `work` in a process of its own and returns what it returns; or {"error": why} if it fails,
/// or is not done within `limit` seconds, after which the process is killed.
Json in_a_process(double limit, const std::function<Json()>& work) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw pvm::Error(pvm::Fault::memory, "no pipe can be opened");
  std::fflush(stdout);
  const ::pid_t child = ::fork();
  if (child < 0) throw pvm::Error(pvm::Fault::memory, "no process can be started");
  if (child == 0) {
    ::close(ends[0]);
    std::string text;
    try {
      text = work().dump();
    } catch (const std::exception& error) {
      text = Json{{"error", error.what()}}.dump();
    }
    const bool written =
        ::write(ends[1], text.data(), text.size()) == static_cast<::ssize_t>(text.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  const auto start = Clock::now();
  bool in_time = true;
  for (;;) {
    const double left = limit - seconds_since(start);
    ::pollfd end{ends[0], POLLIN, 0};
    const int ready = left <= 0 ? 0 : ::poll(&end, 1, static_cast<int>(std::ceil(1000 * left)));
    if (ready < 0 && errno == EINTR) continue;
    in_time = ready > 0;
    std::array<char, 4096> part{};
    const ::ssize_t n = in_time ? ::read(ends[0], part.data(), part.size()) : 0;
    if (n <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!in_time) {
    return {{"error", "not done within " + std::to_string(std::lround(limit)) + " s"}};
  }
  Json result = Json::parse(text, nullptr, false);
  if (!result.is_discarded()) return result;
  const std::string how = WIFSIGNALED(status) ? ", signal " + std::to_string(WTERMSIG(status)) : "";
  return {{"error", "the process ended without a result" + how}};
}

std::string with_commas(double value) {
  std::string digits = std::to_string(std::llround(value));
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}
std::string text_of(const char* format, double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

/// The three columns of an entry.
std::string cells(const Json& entry) {
  if (entry.contains("error")) return " - | - | - |";
  const Json& share = entry["of_bound"];
  return " " + with_commas(entry["frames_per_second"].get<double>()) + " | " +
         text_of("%.1f", entry["weights_per_second"].get<double>() / 1e9) + " | " +
         (share.is_null() ? "" : text_of("%.0f %%", 100 * share.get<double>())) + " |";
}

void save(const std::string& path, const Json& entries) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << "[\n";
  for (std::size_t i = 0; i < entries.size(); ++i) {
    file << "  " << entries[i].dump() << (i + 1 < entries.size() ? ",\n" : "\n");
  }
  file << "]\n";
  file.close();
  if (!file) throw pvm::Error(pvm::Fault::source, pvm::quote(path) + " cannot be written");
}

/// Prints the table for one batch, a line when its network is done, and adds its entries. Returns
/// how many could not be measured.
std::size_t print_table(const Choices& choices, const std::vector<Network>& rows,
                        const std::vector<std::string>& precisions, int batch, Json& entries) {
  std::string head = "| network | weights |", line = "|---|---|";
  for (const std::string& precision : precisions) {
    head += " " + precision + ", frames/s | G weights/s | of the bound |";
    line += "---|---|---|";
  }
  std::printf("%d %s, %s:\n\n%s\n%s\n", batch, batch == 1 ? "sequence" : "sequences",
              choices.backend.c_str(), head.c_str(), line.c_str());
  std::vector<std::string> failures;
  for (const Network& network : rows) {
    const std::size_t weights = pvm::make_connectome(network.spec).weights;
    std::string row =
        "| " + network.name + " | " + with_commas(static_cast<double>(weights)) + " |";
    for (const std::string& precision : precisions) {
      const Json measured = in_a_process(
          choices.limit, [&] { return measure(network.spec, precision, batch, choices); });
      Json entry = {{"network", network.name},    {"weights", weights},
                    {"precision", precision},     {"batch", batch},
                    {"backend", choices.backend}, {"devices", choices.devices},
                    {"shards", choices.shards},   {"graph", !choices.eager}};
      entry.update(measured);
      entries.push_back(entry);
      row += cells(entry);
      if (entry.contains("error")) {
        failures.push_back(network.name + ", " + precision + ": " +
                           entry["error"].get<std::string>());
      }
      save(choices.json, entries);
    }
    std::printf("%s\n", row.c_str());
    std::fflush(stdout);
  }
  std::printf("\n");
  for (const Network& network : rows) {
    if (network.also.empty()) continue;
    std::string others;
    for (const std::string& name : network.also) others += (others.empty() ? "" : ", ") + name;
    std::printf("%s stands for %s, too, whose rates are others.\n\n", network.name.c_str(),
                others.c_str());
  }
  for (const std::string& failure : failures) std::printf("%s\n", failure.c_str());
  if (!failures.empty()) std::printf("\n");
  return failures.size();
}

void print_tables(Choices choices) {
  if (choices.backend == "auto") {
    const Json gpu = in_a_process(choices.limit, [] { return Json{{"gpu", has_gpu()}}; });
    choices.backend = gpu.value("gpu", false) ? "cuda" : "host";
  }
  std::vector<std::string> precisions = choices.precisions;
  if (precisions.empty()) {
    precisions = {"fp32", "bf16", "fp16"};
    if (choices.backend == "cuda") precisions.insert(precisions.begin() + 1, "tf32");
  }
  const std::vector<Network> rows = networks(choices);
  Json entries = Json::array();
  save(choices.json, entries);  // before the measurements, not after
  std::size_t failed = 0;
  for (const int batch : choices.batches) {
    failed += print_table(choices, rows, precisions, batch, entries);
  }
  if (failed > 0) {
    throw pvm::Error(pvm::Fault::device, std::to_string(failed) + " of " +
                                             std::to_string(entries.size()) +
                                             " entries could not be measured");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Choices choices;
  CLI::App app{"The rates of all published networks, and of variants of one", "bench_table"};
  app.add_option("--backend", choices.backend, "host or cuda (default: cuda if there is a GPU)")
      ->check(CLI::IsMember({"auto", "host", "cuda"}));
  app.add_option("--precision", choices.precisions, "with commas between (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember({"fp32", "tf32", "bf16", "fp16"}));
  app.add_option("--batch", choices.batches, "sequences; a table for each number (default 1)")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--only", choices.only, "names of networks of the table, with commas between")
      ->delimiter(',');
  app.add_option("--spec", choices.specs, "files of specs, instead of the networks of the table")
      ->check(CLI::ExistingFile);
  app.add_option("--devices", choices.devices, "numbers of the GPUs that share a network")
      ->delimiter(',');
  app.add_option("--shards", choices.shards, "parts of a network (default: one on each GPU)")
      ->check(CLI::PositiveNumber);
  app.add_flag("--no-graph", choices.eager, "launch every step by itself");
  app.add_option("--zoo", choices.zoo, "directory of the specs")->check(CLI::ExistingDirectory);
  app.add_option("--seconds", choices.seconds, "of steps for each entry (default 2)")
      ->check(CLI::PositiveNumber);
  app.add_option("--limit", choices.limit, "seconds after which an entry is given up (default 60)")
      ->check(CLI::PositiveNumber);
  app.add_option("--json", choices.json, "a file for the entries, as a JSON list");
  return pvm_bench::run_app(app, argc, argv, [&] { print_tables(choices); });
}
