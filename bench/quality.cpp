// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Measures the quality of the prediction over frames and seconds of training, for every
/// combination of the given precisions, batches and learning rates, on one clip that is decoded
/// once.
///     bench_quality --spec model_zoo/small.json -f CLIP --precision fp32,bf16 --batch 1,16,64
///                   --rate 0.05 --no-delays --frames 500000 --until-ratio 0.75 --json OUT.jsonl

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <pvm/core/printable.hpp>
#include <pvm/io/clip.hpp>
#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>
#include <pvm/pvm.hpp>
#include <pvm/train/auto_rate.hpp>

#include "command_line.hpp"
#include "paired.hpp"

namespace {

namespace io = pvm::io;

struct Choices {
  std::string spec, file, json, backend = "auto";
  std::vector<std::string> precisions{"fp32"}, rates{"spec"};
  std::vector<int> batches{1};
  std::optional<double> momentum;
  std::uint64_t steps = 0, frames = 0, every = 50'000, seed = 0, seeds = 1, rate_budget = 10'000;
  double until_ratio = 0;
  int threads = 0;
  bool no_delays = false;
};

[[noreturn]] void refuse(const std::string& sentence) {
  throw pvm::Error(pvm::Fault::usage, sentence);
}

void describe(CLI::App& app, Choices& c) {
  app.add_option("--spec", c.spec, "model spec")->required();
  app.add_option("-f,--file", c.file, "a zip, a video or a directory of pictures")->required();
  app.add_option("--precision", c.precisions, "fp32, tf32 (GPU), bf16, fp16 (default fp32)")
      ->delimiter(',');
  app.add_option("--batch", c.batches, "sequences, from evenly spaced places (default 1)")
      ->delimiter(',')
      ->check(CLI::Range(1, 65'536));
  app.add_option("--rate", c.rates,
                 "of all layers from start to end: a number, auto for what trials find, or spec "
                 "for the spec's (default)")
      ->delimiter(',');
  app.add_option("--rate-budget", c.rate_budget, "steps of the trials for auto (default 10000)");
  app.add_option("--momentum", c.momentum, "instead of the spec's");
  app.add_flag("--no-delays", c.no_delays, "the spec's rates, but layer l learns from step l");
  auto* const steps = app.add_option("--steps", c.steps, "length of each run in steps");
  app.add_option("--frames", c.frames, "length of each run in frames of all its sequences")
      ->excludes(steps);
  app.add_option("--every", c.every, "frames between two rows, a pass at least (default 50000)")
      ->check(CLI::PositiveNumber);
  app.add_option("--until-ratio", c.until_ratio,
                 "end a run where its error is at most this share of repeating the frame's");
  app.add_option("--backend", c.backend, "auto, cuda or host (default auto)")
      ->check(CLI::IsMember({"auto", "cuda", "host"}));
  app.add_option("--threads", c.threads, "of the host backend (default: one per core)");
  app.add_option("--seed", c.seed, "of the first weights (default 0)");
  app.add_option("--seeds", c.seeds, "this many runs of each kind, with seeds from --seed on")
      ->check(CLI::Range(1, 1000));
  app.add_option("--json", c.json, "append a JSON object for every row to this file");
}

std::shared_ptr<const io::Clip> read_clip(const std::string& path, io::FrameShape shape) {
  auto source = io::open_source(path);
  const auto frames = source.count_frames();
  if (!frames || *frames == 0) refuse(pvm::quote(path) + " has no end; name a file");
  source.seek({});
  return io::read_clip(source, shape, *frames);
}

/// A measurement during a run. `psnr` and `ratio` are of the window: the latest steps in which the
/// sequences together have seen each frame of the clip once.
struct Row {
  std::uint64_t frames = 0;   ///< of all sequences, since the start
  std::uint64_t step = 0;     ///< steps done
  double seconds = 0;         ///< of training, without the time spent on measurements
  double psnr = 0;            ///< of the prediction, in dB
  double ratio = 0;           ///< the prediction's error over that of repeating the frame
  double largest_weight = 0;  ///< the largest magnitude
  double largest_error = 0;   ///< largest RMS error of all outputs, of all calls of `at` so far
  std::string trouble;        ///< why this run went wrong; empty if it did not
};

/// A callback that makes the rows of a run.
class Quality {
 public:
  /// Makes a row every `every` frames, but at most one for each pass of the clip, counted back from
  /// the end of the run. The run ends early if the ratio is at most `until`, or if something has
  /// gone wrong.
  Quality(std::size_t clip_frames, int batch, std::uint64_t every, double until)
      : batch_(static_cast<std::uint64_t>(batch)),
        window_((clip_frames + batch_ - 1) / batch_),
        gap_(std::max(window_, every / batch_)),
        until_(until) {}

  void begin(const pvm::Moment& moment) { target_ = moment.target; }

  /// The step of the next row, or the step at which its window begins.
  [[nodiscard]] std::uint64_t next(std::uint64_t step) const {
    if (step >= target_) return pvm::never;
    const std::uint64_t row = target_ - (target_ - step - 1) / gap_ * gap_;
    return step + window_ < row ? row - window_ : row;
  }

  void at(const pvm::Moment& moment) {
    finite_ = finite_ && std::isfinite(moment.score.loss);  // checked between rows as well
    if (moment.score.outputs > 0) {
      largest_error_ = std::max(largest_error_, std::sqrt(pvm::mean_loss(moment.score)));
    }
    if ((target_ - moment.step) % gap_ != 0 || moment.step < window_) return;
    io::Stopwatch watch;
    row_ = examine(moment);
    if (!row_->trouble.empty() || row_->ratio <= until_) moment.trainer.request_stop();
    report_(*row_);
    examined_ += watch.lap();
  }

  void on_row(std::function<void(const Row&)> report) { report_ = std::move(report); }
  [[nodiscard]] const std::optional<Row>& last() const noexcept { return row_; }
  [[nodiscard]] bool reached() const { return row_ && row_->ratio <= until_; }

 private:
  [[nodiscard]] Row examine(const pvm::Moment& moment) {
    Row row;
    row.frames = moment.step * batch_;
    row.step = moment.step;
    row.seconds = moment.seconds - examined_;
    row.psnr = pvm::psnr(pvm::prediction_mse(moment.score));
    row.ratio = pvm::prediction_mse(moment.score) / pvm::persistence_mse(moment.score);
    for (const float w : moment.trainer.weights()) {
      finite_ = finite_ && std::isfinite(w);
      row.largest_weight = std::max(row.largest_weight, std::abs(static_cast<double>(w)));
    }
    row.largest_error = largest_error_;
    constexpr double most_weight = 65'504;  // fp16's largest number
    row.trouble = pvm::divergence(moment.score, moment.trainer.last_frame(), moment.step);
    if (row.largest_weight > most_weight) row.trouble = "weights are beyond the range of fp16";
    if (!finite_) row.trouble = "weights or errors are no longer finite";
    return row;
  }

  std::uint64_t batch_, window_, gap_;  // window_, gap_: in steps
  double until_;
  std::function<void(const Row&)> report_ = [](const Row&) {};
  std::uint64_t target_ = 0;
  double examined_ = 0;  // seconds spent on measurements
  double largest_error_ = 0;
  bool finite_ = true;
  std::optional<Row> row_;
};

static_assert(pvm::Callback<Quality>);

/// The settings of one run.
struct Case {
  std::string precision;
  int batch = 1;
  pvm::Spec spec;
  std::uint64_t seed = 0;
  bool automatic = false;  ///< the rate is to be found by trials
};

double number(const std::string& rate) {
  double value = 0;
  const char* const end = rate.data() + rate.size();
  const auto [stop, fault] = std::from_chars(rate.data(), end, value);
  if (fault == std::errc{} && stop == end) return value;
  refuse("--rate " + pvm::quote(rate) + " is neither a number nor spec");
}

std::vector<Case> cases_of(const Choices& choices) {
  pvm::Spec spec = pvm::load_spec(choices.spec);
  if (choices.momentum) spec.momentum = *choices.momentum;
  if (choices.no_delays) spec.delay_each_layer_learning = 1;  // layer l learns from step l
  std::vector<Case> cases;
  for (const std::string& precision : choices.precisions) {
    for (const int batch : choices.batches) {
      for (const std::string& rate : choices.rates) {
        for (std::uint64_t k = 0; k < choices.seeds; ++k) {
          cases.push_back({precision, batch, spec, choices.seed + k, rate == "auto"});
          if (rate == "spec" || rate == "auto") continue;
          cases.back().spec = pvm::at_constant_rate(spec, number(rate));
        }
      }
    }
  }
  return cases;
}

std::string text_of(const Case& c, const Row& row) {
  char line[240];
  std::snprintf(
      line, sizeof line, "%-5s %5d %8g %5llu %11llu %9llu %9.2f %8.3f %7.3f %9.3g %7.3f  %s%s",
      c.precision.c_str(), c.batch, c.spec.initial_learning_rate,
      static_cast<unsigned long long>(c.seed), static_cast<unsigned long long>(row.frames),
      static_cast<unsigned long long>(row.step), row.seconds, row.psnr, row.ratio,
      row.largest_weight, row.largest_error, row.trouble.empty() ? "ok" : row.trouble.c_str(),
      c.automatic ? ", auto" : "");
  return line;
}

nlohmann::ordered_json json_of(const Case& c, const Row& row, const std::string& engine,
                               const Choices& choices) {
  return {{"spec", c.spec.name},
          {"file", std::filesystem::path(choices.file).filename().string()},
          {"precision", c.precision},
          {"batch", c.batch},
          {"rate", c.spec.initial_learning_rate},
          {"momentum", c.spec.momentum},
          {"delay_each_layer", c.spec.delay_each_layer_learning},
          {"seed", c.seed},
          {"rate_is", c.automatic ? "found" : "given"},
          {"frames", row.frames},
          {"steps", row.step},
          {"seconds", row.seconds},
          {"psnr", row.psnr},
          {"ratio", row.ratio},
          {"largest_weight", row.largest_weight},
          {"largest_rms_error", row.largest_error},
          {"trouble", row.trouble},
          {"engine", engine}};
}

pvm::TrainerOptions options_of(const Case& c, const Choices& choices) {
  pvm::TrainerOptions options;
  options.batch = c.batch;
  options.seed = c.seed;
  options.threads = choices.threads;
  options.backend = choices.backend == "host"   ? pvm::BackendChoice::host
                    : choices.backend == "cuda" ? pvm::BackendChoice::cuda
                                                : pvm::BackendChoice::automatic;
  return options;
}

/// Finds the rate of a run by trials.
void find_rate(Case& c, const Choices& choices, const std::shared_ptr<const io::Clip>& clip) {
  io::Stopwatch watch;
  const pvm::TrialRun run{c.spec, options_of(c, choices), c.precision, {clip}, nullptr};
  const pvm::RateChoice choice = pvm::find_rate(run, choices.rate_budget);
  c.spec = pvm::at_constant_rate(c.spec, choice.rate);
  std::printf("%s; %.1f s\n", choice.why().c_str(), watch.lap());
}

template <class Precision>
Quality train(const Case& c, const Choices& choices, const std::shared_ptr<const io::Clip>& clip,
              std::ostream* json) {
  pvm::Trainer<Precision, pvm::dynamic> trainer(c.spec, options_of(c, choices));
  const io::Opener open = [&clip]() -> io::AnySource { return io::ClipPlayer(clip); };
  auto streams = io::deal({open}, static_cast<std::size_t>(c.batch));
  const auto batch = static_cast<std::uint64_t>(c.batch);
  const std::uint64_t steps = choices.frames > 0 ? choices.frames / batch : choices.steps;
  Quality quality(clip->frames, c.batch, choices.every, choices.until_ratio);
  quality.on_row([&](const Row& row) {
    std::printf("%s\n", text_of(c, row).c_str());
    std::fflush(stdout);
    if (json != nullptr) *json << json_of(c, row, trainer.description(), choices) << std::endl;
  });
  trainer.fit(streams, pvm::Steps{steps}, quality);
  return quality;
}

/// The last PSNRs of the runs of one kind, by seed.
struct Kind {
  const Case* first;  ///< of these runs
  std::vector<double> psnr{};
};

std::vector<Kind> kinds_of(const std::vector<Case>& cases, const std::vector<double>& psnr) {
  std::vector<Kind> kinds;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (i == 0 || cases[i].seed <= cases[i - 1].seed) kinds.push_back({&cases[i]});
    kinds.back().psnr.push_back(psnr[i]);
  }
  return kinds;
}

/// Prints how the runs of each kind differ by seed, and precisions by pairs of the same seed.
void print_seeds(const std::vector<Kind>& kinds) {
  std::printf("\nOver seeds, in dB; behind | differences from %s, seed by seed:\n",
              kinds.front().first->precision.c_str());
  std::printf("%-5s %5s %8s %3s %8s %6s %6s | %8s %7s %6s %7s  %s\n", "", "batch", "rate", "n",
              "mean", "s.d.", "s.e.", "mean", "s.e.", "t", "95 %", "");
  for (const Kind& kind : kinds) {
    const Case& c = *kind.first;
    const auto own = pvm_bench::sample(kind.psnr);
    std::printf("%-5s %5d %8g %3zu %8.3f %6.3f %6.3f", c.precision.c_str(), c.batch,
                c.spec.initial_learning_rate, own.n, own.mean, own.deviation, own.error);
    const auto reference = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& other) {
      return other.first->batch == c.batch &&
             other.first->spec.initial_learning_rate == c.spec.initial_learning_rate;
    });
    if (&*reference != &kind) {
      const auto pairs = pvm_bench::paired(kind.psnr, reference->psnr);
      const double most = pvm_bench::critical_t(pairs.n);
      std::printf(" | %+8.4f %7.4f %6.2f %7.4f  %s", pairs.mean, pairs.error, pairs.t,
                  most * pairs.error, std::abs(pairs.t) > most ? "differs" : "no difference seen");
    }
    std::printf("\n");
  }
}

/// Prints how far the runs with a rate that was found are from the best of the others.
void print_found(const std::vector<Case>& cases, const std::vector<double>& psnr) {
  std::printf("\n");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!cases[i].automatic) continue;
    double best = -1e9, at = 0;
    for (std::size_t k = 0; k < cases.size(); ++k) {
      const bool same = cases[k].precision == cases[i].precision &&
                        cases[k].batch == cases[i].batch && cases[k].seed == cases[i].seed;
      if (!same || cases[k].automatic || psnr[k] <= best) continue;
      best = psnr[k];
      at = cases[k].spec.initial_learning_rate;
    }
    std::printf(
        "%s, batch %d, seed %llu: the rate found is %g, %.3f dB; the best of the others is "
        "%g, %.3f dB: %+.3f dB\n",
        cases[i].precision.c_str(), cases[i].batch, static_cast<unsigned long long>(cases[i].seed),
        cases[i].spec.initial_learning_rate, psnr[i], at, best, psnr[i] - best);
  }
}

void run(const Choices& choices) {
  if (choices.steps == 0 && choices.frames == 0) refuse("name the length: --steps or --frames");
  auto cases = cases_of(choices);
  const int side = cases.front().spec.frame_side();
  const auto clip = read_clip(choices.file, {side, side, cases.front().spec.input_channels});
  std::optional<std::ofstream> json;
  if (!choices.json.empty()) json.emplace(choices.json, std::ios::app);
  std::printf("%s, %s: %zu frames\n", cases.front().spec.name.c_str(),
              pvm::printable(clip->name).c_str(), clip->frames);
  std::printf("%-5s %5s %8s %5s %11s %9s %9s %8s %7s %9s %7s  %s\n", "", "batch", "rate", "seed",
              "frames", "steps", "seconds", "psnr dB", "ratio", "|weight|", "error", "state");
  std::vector<std::string> summary;
  std::vector<double> psnr;
  for (Case& c : cases) {
    if (c.automatic) find_rate(c, choices, clip);
    const Quality quality = pvm::with_precision(c.precision, [&]<class Precision>() {
      return train<Precision>(c, choices, clip, json ? &*json : nullptr);
    });
    if (!quality.last()) refuse("the runs are shorter than a pass of the clip");
    psnr.push_back(quality.last()->psnr);
    summary.push_back(text_of(c, *quality.last()) +
                      (choices.until_ratio > 0 && !quality.reached() ? "  not reached" : ""));
  }
  std::printf("\nThe last row of each run:\n");
  for (const auto& line : summary) std::printf("%s\n", line.c_str());
  if (choices.seeds > 1) print_seeds(kinds_of(cases, psnr));
  print_found(cases, psnr);
}

}  // namespace

int main(int argc, char** argv) {
  Choices choices;
  CLI::App app{"Quality of the prediction over frames and seconds", "bench_quality"};
  describe(app, choices);
  pvm::set_log_sink([](pvm::Severity severity, const std::string& message) {
    if (severity == pvm::Severity::warning) pvm::log_to_stderr(severity, message);
  });
  return pvm_bench::run_app(app, argc, argv, [&] { run(choices); });
}
