// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Measures the frames per second of training from a file, on the first pass, which decodes, and on
/// later passes, and compares them with the same training on frames that are in memory already.
///     bench_feed [FILE] [--spec SPEC] [--precision bf16] [--batch 1,64] [--seconds 3]
///                [--decode auto] [--json OUT]
///
/// Without FILE, a zip of 2,000 JPEGs of 640 x 480 is generated. In the output, "kept" are frames
/// from memory that go into the engine's store, as those of later passes do; "handed over" are
/// frames that are copied from host memory in every step.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>

#include <pvm/core/printable.hpp>
#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>
#include <pvm/pvm.hpp>

#include "command_line.hpp"
#include "generated.hpp"

namespace {

namespace io = pvm::io;
namespace fs = std::filesystem;

struct Choices {
  std::string file, spec = PVM_MODEL_ZOO "/small.json", decode = "auto", json;
  std::vector<std::string> precisions{"bf16"};
  std::vector<int> batches{1, 64};
  double seconds = 3;
};

/// Decoded frames of the network's size in host memory.
struct Memory {
  std::vector<std::uint8_t> pixels;  ///< [frames][bytes of a frame]
  std::size_t frames = 0;
};

/// Plays the frames of a Memory. Model of FrameSource.
class Player {
 public:
  /// Begins at frame `first`. `kept`: the frames may go into the engine's store.
  Player(std::shared_ptr<const Memory> memory, std::size_t first, bool kept)
      : memory_(std::move(memory)), kept_(kept) {
    at_.frame = first;
  }

  io::FrameInfo next(io::FrameShape shape, std::span<std::uint8_t> pixels) {
    std::copy_n(memory_->pixels.data() + at_.frame * shape.size(), shape.size(), pixels.data());
    const bool starts = at_.frame == 0;
    if (++at_.frame == memory_->frames) at_ = {0, 0, at_.pass + 1};
    return {starts, {}};
  }
  [[nodiscard]] io::Position position() const { return at_; }
  void seek(const io::Position& position) { at_ = position; }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return memory_->frames; }
  [[nodiscard]] std::uint64_t skipped() const { return 0; }
  [[nodiscard]] std::string name() const { return "memory"; }
  [[nodiscard]] std::string replay_id() const { return kept_ ? "memory" : ""; }

 private:
  std::shared_ptr<const Memory> memory_;
  bool kept_;
  io::Position at_;
};

/// A callback that records the times at which certain steps are done.
class Laps {
 public:
  /// `steps`: ascending.
  explicit Laps(std::vector<std::uint64_t> steps) : steps_(std::move(steps)) {}
  [[nodiscard]] std::uint64_t next(std::uint64_t step) const {
    const auto later = std::upper_bound(steps_.begin(), steps_.end(), step);
    return later == steps_.end() ? pvm::never : *later;
  }
  void at(const pvm::Moment& moment) { seconds_.push_back(moment.seconds); }
  /// Seconds between the steps with index `a` and `b` in the list.
  [[nodiscard]] double between(std::size_t a, std::size_t b) const {
    return seconds_.at(b) - seconds_.at(a);
  }
  /// Seconds from the start to the step with index `a` in the list.
  [[nodiscard]] double until(std::size_t a) const { return seconds_.at(a); }

 private:
  std::vector<std::uint64_t> steps_;
  std::vector<double> seconds_;
};

struct Rates {
  double first = 0, later = 0;  ///< frames per second of the first pass and of later ones
  std::string report;
};

/// Trains on the streams that `open` returns: a first pass, a second one that is not measured (work
/// of the first pass that is still in flight ends there), and then `later` steps.
template <class Precision, class Open>
Rates train(const pvm::Spec& spec, const Open& open, std::size_t frames, std::uint64_t later) {
  auto streams = open();
  const std::size_t batch = streams.size();
  const auto pass = static_cast<std::uint64_t>((frames + batch - 1) / batch);
  pvm::Trainer<Precision, pvm::dynamic> trainer(spec, {.batch = static_cast<int>(batch)});
  Laps laps({pass, 2 * pass, 2 * pass + later});
  trainer.fit(streams, pvm::Steps{2 * pass + later}, laps);
  return {static_cast<double>(pass * batch) / laps.until(0),
          static_cast<double>(later * batch) / laps.between(1, 2),
          pvm::report_text(trainer.report())};
}

/// Measures the later passes over about `seconds` seconds, and takes the median of three first
/// passes, because these are short.
template <class Precision, class Open>
Rates measure(const pvm::Spec& spec, const Open& open, std::size_t frames, std::size_t batch,
              double seconds) {
  const Rates once = train<Precision>(spec, open, frames, 1000);
  const Rates again = train<Precision>(spec, open, frames, 1);
  const auto steps = static_cast<std::uint64_t>(once.later * seconds / static_cast<double>(batch));
  Rates rates = train<Precision>(spec, open, frames, steps + 1);
  std::array<double, 3> first{once.first, again.first, rates.first};
  std::sort(first.begin(), first.end());
  rates.first = first[1];
  return rates;
}

std::shared_ptr<const Memory> decoded(const std::string& file, const pvm::Spec& spec) {
  const io::FrameShape shape{spec.frame_side(), spec.frame_side(), spec.input_channels};
  auto source = io::open_source(file, io::Decode::cpu);
  auto memory = std::make_shared<Memory>();
  memory->frames = source.count_frames().value_or(0);
  memory->pixels.resize(memory->frames * shape.size());
  for (std::size_t i = 0; i < memory->frames; ++i) {
    source.next(shape, std::span(memory->pixels).subspan(i * shape.size(), shape.size()));
  }
  return memory;
}

void say(const char* what, const Rates& rates) {
  std::printf("  %-28s %10.0f frames/s first pass %10.0f later\n", what, rates.first, rates.later);
}

template <class Precision>
nlohmann::ordered_json compare(const Choices& c, const pvm::Spec& spec, std::size_t batch,
                               const std::shared_ptr<const Memory>& memory) {
  const auto decode = c.decode == "cpu"   ? io::Decode::cpu
                      : c.decode == "gpu" ? io::Decode::gpu
                                          : io::Decode::automatic;
  const auto from_file = [&] { return io::deal({io::opener(c.file, decode)}, batch); };
  const auto from_memory = [&](bool kept) {
    std::vector<Player> players;
    for (std::size_t k = 0; k < batch; ++k) {
      players.emplace_back(memory, k * memory->frames / batch, kept);
    }
    return players;
  };
  const std::string precision(Precision::name);
  std::printf("%s, batch %zu\n", precision.c_str(), batch);
  const auto run = [&](const auto& open) {
    return measure<Precision>(spec, open, memory->frames, batch, c.seconds);
  };
  const Rates file = run(from_file);
  say("from the file", file);
  const Rates kept = run([&] { return from_memory(true); });
  say("from memory, kept", kept);
  const Rates handed = run([&] { return from_memory(false); });
  say("from memory, handed over", handed);
  const double share = file.later / std::max(kept.later, handed.later);
  std::printf("  later passes from the file: %.1f %% of those from memory\n%s", 100 * share,
              file.report.c_str());
  return {{"file", c.file},       {"precision", precision},      {"batch", batch},
          {"decode", c.decode},   {"first", file.first},         {"later", file.later},
          {"memory", kept.later}, {"handed_over", handed.later}, {"share_of_memory", share}};
}

/// Generates a zip of 2,000 JPEGs of 640 x 480, a hundred pictures repeated; returns its path.
std::string generate(const fs::path& directory) {
  constexpr std::size_t pictures = 100, files = 2000;
  fs::create_directories(directory);
  std::vector<std::vector<std::uint8_t>> jpegs(pictures);
  for (std::size_t i = 0; i < pictures; ++i) {
    cv::imencode(".jpg", pvm_bench::generated_picture(static_cast<int>(i), {640, 480}), jpegs[i]);
  }
  const std::string zip = (directory / "2000.zip").string();
  pvm_bench::write_jpegs(zip, directory, jpegs, files);
  return zip;
}

void run(Choices& c) {
  const pvm_bench::Scratch scratch("pvm_bench_feed_");
  const pvm::Spec spec = pvm::load_spec(c.spec);
  if (c.file.empty()) c.file = generate(scratch.path());
  const auto memory = decoded(c.file, spec);
  std::printf("%s: %zu frames\n", pvm::printable(c.file).c_str(), memory->frames);
  auto json = nlohmann::ordered_json::array();
  for (const std::string& precision : c.precisions) {
    for (const int b : c.batches) {
      const auto batch = static_cast<std::size_t>(b);
      json.push_back(precision == "fp32" ? compare<pvm::fp32>(c, spec, batch, memory)
                                         : compare<pvm::bf16>(c, spec, batch, memory));
    }
  }
  if (!c.json.empty()) std::ofstream(c.json) << json.dump(2) << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  Choices c;
  CLI::App app{"Rates of training from a file and from memory", "bench_feed"};
  app.add_option("file", c.file, "a zip, a video or a directory of pictures");
  app.add_option("--spec", c.spec, "model spec (default small.json)");
  app.add_option("--precision", c.precisions, "fp32, bf16 (default bf16)")
      ->delimiter(',')
      ->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--batch", c.batches, "sequences (default 1,64)")
      ->delimiter(',')
      ->check(CLI::Range(1, 65'536));
  app.add_option("--seconds", c.seconds, "of later passes, about (default 3)")
      ->check(CLI::PositiveNumber);
  app.add_option("--decode", c.decode, "of the file: auto, cpu or gpu")
      ->check(CLI::IsMember({"auto", "cpu", "gpu"}));
  app.add_option("--json", c.json, "the rates as JSON");
  return pvm_bench::run_app(app, argc, argv, [&] { run(c); });
}
