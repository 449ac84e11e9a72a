// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// The main function of a fuzz target where libFuzzer is not: runs the target on every file of the
/// given directories, and then on mutations of them, the same ones for the same seed. It takes the
/// flags of libFuzzer that the tests use, and ignores the others:
///     TARGET [-max_total_time=SECONDS] [-seed=N] DIRECTORY_OR_FILE...

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz.hpp"

extern "C" void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Input = std::vector<std::uint8_t>;

Input at_hand;  // exactly as long as its content, so that overruns are seen

void run(const Input& input) {
  at_hand = Input(input.begin(), input.end());
  LLVMFuzzerTestOneInput(at_hand.data(), at_hand.size());
}

/// Keeps the input that has shown a fault.
void save_input() {
  std::ofstream("crash-input", std::ios::binary)
      .write(reinterpret_cast<const char*>(at_hand.data()),
             static_cast<std::streamsize>(at_hand.size()));
  std::fprintf(stderr, "the input is in crash-input\n");
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// Changes bytes, numbers and lengths, and splices parts of one input into another.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }

  void mutate(Input& input, const Input& other) {
    for (std::size_t times = 1 + below(4); times > 0; --times) change(input, other);
  }

 private:
  void change(Input& input, const Input& other) {
    const std::size_t at = below(input.size());
    const auto place = input.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t length = std::min(input.size() - at, 1 + below(16));
    const auto byte = static_cast<std::uint8_t>(random_());
    switch (below(7)) {
      case 0:
        if (!input.empty()) *place = byte;
        break;
      case 1:
        if (!input.empty()) *place ^= static_cast<std::uint8_t>(1U << (byte & 7U));
        break;
      case 2:
        std::fill_n(place, length, byte % 2 == 0 ? std::uint8_t{0} : std::uint8_t{255});
        break;
      case 3:
        input.erase(place, place + static_cast<std::ptrdiff_t>(length));
        break;
      case 4:
        input.resize(at);
        break;
      case 5:
        if (!input.empty() && *place >= '0' && *place <= '9') *place = "0123456789"[byte % 10];
        break;
      default: {
        const std::size_t from = below(other.size());
        const std::size_t count = std::min(other.size() - from, 1 + below(64));
        const auto first = other.begin() + static_cast<std::ptrdiff_t>(from);
        input.insert(place, first, first + static_cast<std::ptrdiff_t>(count));
      }
    }
  }

  std::mt19937_64 random_;
};

double number_in(const std::string& flag) { return std::atof(flag.c_str() + flag.find('=') + 1); }

}  // namespace

int main(int argc, char** argv) {
  __sanitizer_set_death_callback(save_input);
  std::signal(SIGABRT, [](int) { save_input(); });
  double seconds = 1;
  std::uint64_t seed = 1;
  std::vector<Input> corpus;
  for (const std::string argument : std::vector<std::string>(argv + 1, argv + argc)) {
    if (argument.starts_with("-max_total_time=")) seconds = number_in(argument);
    if (argument.starts_with("-seed=")) seed = static_cast<std::uint64_t>(number_in(argument));
    if (argument.starts_with("-")) continue;
    for (const auto& path : files_in(argument)) {
      std::ifstream file(path, std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
      std::printf("%s\n", path.c_str());
      std::fflush(stdout);  // the last line before a crash names the file
      run(corpus.back());
    }
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "no files to begin with\n");
    return 1;
  }
  Mutator mutator(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::size_t runs = 0;
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    Input input = corpus[mutator.below(corpus.size())];
    mutator.mutate(input, corpus[mutator.below(corpus.size())]);
    run(input);
  }
  std::printf("%zu files and %zu mutations\n", corpus.size(), runs);
}
