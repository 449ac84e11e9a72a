// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// The command line program `pvm`: trains a Predictive Vision Model on any source of frames.

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <new>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <pvm/core/printable.hpp>
#include <pvm/core/standard_streams.hpp>
#include <pvm/io/deal.hpp>
#include <pvm/io/file_names.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/original.hpp>
#include <pvm/io/output_file.hpp>
#include <pvm/io/preview.hpp>
#include <pvm/io/write_zip.hpp>
#include <pvm/pvm.hpp>
#include <pvm/train/auto_run.hpp>
#include <pvm/train/resumed_rate.hpp>

#include "pvm_devices.hpp"
#include "pvm_dry_run.hpp"
#include "pvm_info.hpp"
#include "pvm_live.hpp"
#include "pvm_plot.hpp"
#include "pvm_quantize.hpp"
#include "pvm_ranks.hpp"
#include "pvm_readout.hpp"
#include "pvm_run_file.hpp"
#include "pvm_serve.hpp"

namespace {

/// The values of the command line's options. Numbers are signed, so that an error message can name
/// a negative one.
struct Arguments {
  std::string spec, load, dataset, path, out, metrics, preview, write_zip;
  std::vector<std::string> files;
  std::string precision, backend = "auto", decode = "auto", reduce;
  std::string batch, rate;  ///< numbers, or auto
  std::string gpu;          ///< of which --dry-run speaks
  std::string eval, film, script, keep = "all", trace, report_json, tensorboard, devices;
  live_commands::Options live;
  std::vector<std::string> record;  ///< what, and the file
  /// The options given and those named here with their values, as --config reads them. Those
  /// without a value are left out.
  std::function<std::string(const std::map<std::string, std::string>&)> settings;
  std::string of_runs;  ///< the name of an option given that is for training runs only, if any
  std::int64_t steps = 0, save_every = 100'000, interval = 1000, threads = 0, frames = 0, seed = 0,
               cache_mb = 0, rate_budget = 10'000, device = 0, shards = 0;
  double seconds = 0;
  bool rate_given = false, seed_given = false, batch_given = false, steps_given = false,
       save_given = false, frames_given = false, cache_given = false, keep_given = false,
       budget_given = false, device_given = false;
  bool no_graph = false, freeze = false, quiet = false, report = false, dry_run = false;
};

constexpr const char* examples = R"(
Examples:
  pvm -S model_zoo/tiny.json -n 20000
      train on generated frames: no file is needed
  pvm -S model_zoo/small.json -f video.avi -n 100000 --metrics run.jsonl --preview run.png
      train on a video and watch it learn
  pvm -L pvm_save_small_000100000.safetensors -f video.avi -n 200000
      go on from a checkpoint to step 200000
  pvm -S model_zoo/small.json -p ~/PVM_datasets -d green_ball -b 8
      eight sequences of a data set at once, sharing the weights
  pvm --write-zip ball.zip --frames 500
      write the generated frames as a zip in the layout of the published sets

Other commands (each has a --help): pvm info, devices, plot, track, evaluate, quantize, serve, monitor, ctl

Exit codes: 0 done (also when Ctrl-C stops a run, which saves a checkpoint), 1 a failure, 2 a usage error.)";

/// Turns `1e4`, `10k`, `2.5M` and the like into decimal digits without leading zeros (which would
/// be read as octal). Returns nothing if the text is no whole number; too large ones keep their
/// digits.
std::optional<std::string> whole_digits(std::string_view text) {
  std::string digits;
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) {
    if (text.front() == '-') digits = "-";
    text.remove_prefix(1);
  }
  constexpr std::string_view decimal = "0123456789";
  const auto take_digits = [&] {
    const std::size_t n = std::min(text.find_first_not_of(decimal), text.size());
    const std::string_view taken = text.substr(0, n);
    text.remove_prefix(n);
    return taken;
  };
  const std::string_view whole = take_digits();
  std::string_view fraction;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    fraction = take_digits();
  }
  if (whole.empty() && fraction.empty()) return std::nullopt;
  std::size_t exponent = 0;
  const auto suffix = std::string_view("kMG").find(text.size() == 1 ? text.front() : ' ');
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(text.starts_with("e+") || text.starts_with("E+") ? 2 : 1);
    const std::string_view power = take_digits();
    if (power.empty() || power.size() > 2 || !text.empty()) return std::nullopt;
    exponent = static_cast<std::size_t>(std::stoi(std::string(power)));
  } else if (suffix != std::string_view::npos || text == "m" || text == "K") {
    exponent = text == "m" ? 6 : text == "K" ? 3 : 3 * (suffix + 1);
  } else if (!text.empty()) {
    return std::nullopt;
  }
  std::string rest(fraction);
  while (!rest.empty() && rest.back() == '0') rest.pop_back();
  if (rest.size() > exponent) return std::nullopt;  // a fraction is left
  std::string number = std::string(whole) + rest + std::string(exponent - rest.size(), '0');
  number.erase(0, std::min(number.find_first_not_of('0'), number.size() - 1));
  return digits + number;
}

constexpr const char* automatic = "auto";

/// Accepts whole numbers, also as `1e4`, `10k` or `2M`, and `or_else`, if that is not empty.
CLI::Validator whole_number(std::string or_else = {}) {
  return CLI::Validator(
      [or_else](std::string& text) {
        if (text.empty() || text == or_else) return std::string();
        const auto digits = whole_digits(text);
        if (!digits)
          return pvm::quote(text) + " is not a whole number; write 20000, 2e4, 20k or 2M";
        text = *digits;
        return std::string();
      },
      "");
}
CLI::Validator number(std::string or_else = {}) {
  return CLI::Validator(
      [or_else](std::string& text) {
        if (!or_else.empty() && text == or_else) return std::string();
        char* end = nullptr;
        (void)std::strtod(text.c_str(), &end);
        return *end == '\0' ? std::string() : pvm::quote(text) + " is not a number";
      },
      "");
}

void describe(CLI::App& app, Arguments& a) {
  app.option_defaults()
      ->multi_option_policy(
          CLI::MultiOptionPolicy::TakeLast)  // a later option overrides a script's
      ->group("Model");
  app.add_option("-S,--spec", a.spec, "model spec; needed unless -L holds one")->type_name("FILE");
  app.add_option("-L,--load", a.load, "continue from a checkpoint (.safetensors, .bin, .zip)")
      ->type_name("FILE");
  app.add_option(
         "--seed", a.seed,
         "seed of the initial weights and the generated frames (default: the checkpoint's, or 0)")
      ->transform(whole_number())
      ->type_name("N");
  app.add_option("--rate", a.rate,
                 "all layers learn at rate R from the start, whatever the spec's schedule says; "
                 "auto: at one that trials find")
      ->check(number(automatic))
      ->type_name("R");
  app.add_option("--rate-budget", a.rate_budget,
                 "steps that --rate auto may take for its trials (default 10000)")
      ->transform(whole_number())
      ->type_name("N");
  app.option_defaults()->group("Frames");
  app.add_option("-f,--file", a.files,
                 "a zip, a video, a directory of pictures or videos, a camera, or synthetic (the "
                 "default); more than one -f: that many files")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->type_name("PATH");
  app.add_option("-d,--dataset", a.dataset,
                 "all sequences of DIR/NAME, or the zips in DIR whose names start with NAME")
      ->type_name("NAME");
  app.add_option("-p,--path", a.path, "directory of the data sets (default: the current one)")
      ->type_name("DIR");
  app.add_option("--cache-mb", a.cache_mb,
                 "keep decoded frames in at most N MB (default: a share of the free memory; "
                 "0: decode on every pass)")
      ->transform(whole_number())
      ->type_name("N");
  app.add_option("--decode", a.decode,
                 "where pictures and videos are decoded: auto, cpu or gpu (default auto)")
      ->type_name("HOW");
  app.add_option("--write-zip", a.write_zip,
                 "write the frames as a zip in the published layout, and do nothing else")
      ->type_name("FILE");
  app.add_option(
         "--frames", a.frames,
         "how many frames --write-zip writes (default: one pass; 1000 if the source never ends)")
      ->transform(whole_number())
      ->type_name("N");
  app.option_defaults()->group("Run");
  app.add_option(
         "-b,--batch", a.batch,
         "number of independent sequences that share the weights (default: the checkpoint's, or "
         "1); auto: as many as learn most in a second, by trials")
      ->transform(whole_number(automatic))
      ->type_name("N");
  app.add_option("--reduce", a.reduce,
                 "how the sequences' updates are combined: mean or sum (default: the checkpoint's, "
                 "or mean)")
      ->type_name("HOW");
  app.add_option("--seconds", a.seconds, "stop after N seconds, as Ctrl-C would (default: never)")
      ->check(number())
      ->type_name("N");
  app.add_option("-n,--steps", a.steps,
                 "stop when the step counter reaches N (default: the spec's steps)")
      ->transform(whole_number())
      ->type_name("N");
  app.add_flag("--dry-run", a.dry_run,
               "say how much memory the run would take, how fast and how long it would be, and "
               "write nothing");
  app.add_option("--gpu", a.gpu,
                 "--dry-run speaks of a run on a GPU of that name, which need not be here: H200, "
                 "A100, RTX 4090, ...")
      ->type_name("NAME");
  app.add_option("--script", a.script,
                 "obey the commands in FILE, lines of a step and a command: 5000 dream")
      ->type_name("FILE");
  app.add_flag("--freeze", a.freeze,
               "forward only: no learning, and no checkpoints unless -o is given");
  app.add_option("--backend", a.backend, "auto, cuda or host (default auto)")->type_name("NAME");
  app.add_option("--device", a.device, "which GPU, as pvm devices lists them (default: the first)")
      ->transform(whole_number())
      ->type_name("N");
  app.add_option("--precision", a.precision,
                 "fp32, tf32 (GPU), bf16 or fp16 (default: the checkpoint's, or fp32); auto: the "
                 "fastest, by trials")
      ->type_name("NAME");
  app.add_option("--threads", a.threads,
                 "number of threads of the host backend (default: one per core)")
      ->transform(whole_number())
      ->type_name("N");
  app.add_flag("-G,--no-graph", a.no_graph,
               "GPU: launch kernels one by one instead of replaying CUDA graphs");
  app.add_option("--devices", a.devices,
                 "GPUs that share the network, by their numbers: 0,1 (default: the first one)")
      ->type_name("LIST");
  app.add_option("--shards", a.shards,
                 "parts that the network is divided into on these GPUs (default: one on each)")
      ->transform(whole_number())
      ->type_name("N");
  app.set_config("--config", "",
                 "read options from a file, as a run writes it beside its checkpoints; options of "
                 "the command line count more")
      ->type_name("FILE.toml");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.option_defaults()->group("Output");
  app.add_option(
         "-o,--out", a.out,
         "checkpoints are PREFIX_000100000.safetensors (default: pvm_save_NAME), in a directory "
         "that is named, or one file NAME.safetensors")
      ->type_name("PREFIX");
  app.add_option("-s,--save-every", a.save_every,
                 "steps between checkpoints (default 100000); one more is saved at the end")
      ->transform(whole_number())
      ->type_name("N");
  app.add_option("--keep", a.keep,
                 "which checkpoints of the run stay: all (default), or last:N, best:N, or both "
                 "with a comma")
      ->type_name("WHICH");
  app.add_option("--metrics", a.metrics,
                 "write a JSON line per interval: step, fps, loss, mse, psnr, ...")
      ->type_name("FILE");
  app.add_option("--tensorboard", a.tensorboard,
                 "write the metrics as an event file of TensorBoard into DIR, too")
      ->type_name("DIR");
  app.add_option("--preview", a.preview,
                 "write a PNG of input, prediction, error and activity, rewritten at intervals; -: "
                 "draw them small in the terminal")
      ->type_name("FILE");
  app.add_option("--interval", a.interval,
                 "steps between metrics, previews and progress lines (default 1000)")
      ->transform(whole_number())
      ->type_name("N");
  app.add_option("--record", a.record,
                 "write hidden, prediction and error (WHAT: a list with commas) of every step")
      ->expected(2)
      ->type_name("WHAT FILE.npy");
  app.add_option("--export", a.film, "write a video of input, prediction and error")
      ->type_name("FILE.mp4");
  app.add_option("--eval", a.eval, "only run over PATH once, frozen, and print a score as JSON")
      ->type_name("PATH");
  app.add_option("--live", a.live.port,
                 "serve a page on 127.0.0.1 to watch the run and talk to it (default port 9000, or "
                 "the next free one)")
      ->expected(0, 1)
      ->type_name("[PORT]");
  app.add_option("--live-address", a.live.address,
                 "listen on ADDRESS instead: whoever has the page's token can watch and command")
      ->type_name("ADDRESS");
  app.add_flag("--report", a.report, "at the end, say where the time went, stage by stage");
  app.add_option("--report-json", a.report_json, "write that as JSON")->type_name("FILE.json");
  app.add_option("--trace", a.trace,
                 "write what every thread did when, for Perfetto's or Chrome's viewer")
      ->type_name("FILE.json");
  app.add_flag("-q,--quiet", a.quiet, "only warnings and errors");
  app.set_version_flag("--version", run_file::version());
  app.footer(examples);
}

[[noreturn]] void refuse(const std::string& sentence) {
  throw pvm::Error(pvm::Fault::usage, sentence);
}

constexpr std::int64_t unlimited = std::int64_t{1} << 62;

void check_range(const char* option, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  if (value > most) {  // not named: CLI11 passes the largest value if a number is out of range
    refuse(std::string(option) + " is too large; allowed: " + std::to_string(least) + " to " +
           std::to_string(most));
  }
  refuse(std::string(option) + " is " + std::to_string(value) + "; allowed: " +
         std::to_string(least) + (most == unlimited ? " or more" : " to " + std::to_string(most)));
}

bool names_sources(const Arguments& a) {
  const bool generated = a.files.size() == 1 && a.files.front() == "synthetic";
  return !(a.files.empty() && a.dataset.empty() && a.path.empty()) && !generated;
}

/// The paths named on the command line from which frames are read.
std::vector<std::string> sources_of(const Arguments& a) {
  if (!names_sources(a)) return {};
  std::vector<std::string> paths;
  for (const std::string& file : a.files) {
    const auto inside = pvm::io::sequences_in(file);
    paths.insert(paths.end(), inside.begin(), inside.end());
  }
  if (!paths.empty()) return paths;
  return pvm::io::find_dataset(a.path.empty() ? "." : a.path, a.dataset);
}

/// Refuses outputs that would overwrite another output or an input, or that would be read as a
/// picture or as labels of the input directory the next time.
void check_outputs(const Arguments& a) {
  namespace fs = std::filesystem;
  const auto same = [](const std::string& x, const std::string& y) {
    std::error_code ignored;
    return !x.empty() && !y.empty() &&
           (fs::equivalent(x, y, ignored) ||
            fs::absolute(x).lexically_normal() == fs::absolute(y).lexically_normal());
  };
  if (a.metrics.ends_with(".safetensors")) {
    refuse("--metrics " + pvm::quote(a.metrics) + " has a checkpoint's name; call it .jsonl");
  }
  const std::string record = a.record.empty() ? "" : a.record.back();
  const std::array outputs = {std::pair{"--record ", &record},
                              std::pair{"--export ", &a.film},
                              std::pair{"--metrics ", &a.metrics},
                              std::pair{"--preview ", &a.preview},
                              std::pair{"--write-zip ", &a.write_zip},
                              std::pair{"--trace ", &a.trace},
                              std::pair{"--report-json ", &a.report_json}};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      const auto& [first, first_name] = outputs[k];
      const auto& [second, second_name] = outputs[i];
      if (!same(*first_name, *second_name)) continue;
      refuse(first + pvm::quote(*first_name) + " and " + second + pvm::quote(*second_name) +
             " are one file; give them two names");
    }
  }
  for (const auto& [option, output] : outputs) {
    for (const std::string* input : {&a.spec, &a.load, &a.script}) {
      if (!same(*output, *input)) continue;
      refuse(option + pvm::quote(*output) + " is a file that is read; choose another name");
    }
  }
  std::vector<std::string> sources = sources_of(a);
  sources.insert(sources.end(), a.files.begin(), a.files.end());  // directories of videos, too
  for (const std::string& source : sources) {
    for (const auto& [option, output] : outputs) {
      if (output->empty()) continue;
      if (same(*output, source)) {
        refuse(option + pvm::quote(*output) + " is a file that is read; choose another name");
      }
      const fs::path path = fs::absolute(*output);
      const std::string name = path.filename().string();
      const bool would_be_read = pvm::io::is_image_name(name) || pvm::io::is_label_name(name);
      if (!would_be_read || !same(path.parent_path().string(), source)) continue;
      refuse(option + pvm::quote(*output) + " would lie among the pictures of " +
             pvm::quote(source) + "; choose another place");
    }
  }
}

/// The numbers in the list of --devices.
std::vector<int> numbers_of_devices(const std::string& list) {
  std::vector<int> numbers;
  for (std::size_t at = 0; !list.empty() && at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string word = list.substr(at, end - at);
    if (word.empty() || word.size() > 4 ||
        word.find_first_not_of("0123456789") != std::string::npos) {
      refuse("--devices " + pvm::quote(list) + " is no list of numbers with commas, as 0,1");
    }
    numbers.push_back(std::stoi(word));
    at = end + 1;
  }
  return numbers;
}

/// The value of a number that may also be `auto`; nothing if it is that, or not given.
template <class Number>
std::optional<Number> number_of(const std::string& text) {
  if (text.empty() || text == automatic) return std::nullopt;
  if constexpr (std::is_same_v<Number, double>) return std::strtod(text.c_str(), nullptr);
  Number value = std::numeric_limits<Number>::max();
  (void)std::from_chars(text.data(), text.data() + text.size(), value);  // too large: the largest
  return value;
}

/// What --rate auto, -b auto and --precision auto do not go with.
void check_choices(const Arguments& a) {
  if (a.budget_given && a.rate != automatic) {
    refuse("--rate-budget is for --rate auto; give both, or none");
  }
  check_range("--rate-budget", a.rate_budget, static_cast<std::int64_t>(pvm::least_rate_budget),
              unlimited);
  if (a.rate == automatic && a.freeze) {
    refuse("--rate auto is for runs that learn; leave --rate or --freeze out");
  }
  check_range("--device", a.device, 0, 1023);
  if (!a.gpu.empty()) {
    if (!a.dry_run) refuse("--gpu is for --dry-run; which GPU a run uses is --device");
    if (a.backend == "host") refuse("--gpu plans for a GPU and --backend host uses none");
    if (a.batch == automatic || a.precision == automatic || a.rate == automatic) {
      refuse(
          "--gpu plans for a GPU that need not be here, where nothing can be tried; write a "
          "number instead of auto");
    }
    (void)pvm::gpu_model(a.gpu);
  }
  if (a.device_given && !a.devices.empty()) {
    refuse("--device names the GPU of the run and --devices those that share it; give one of them");
  }
  if (a.device_given && a.backend == "host") {
    refuse("--device names a GPU and --backend host uses none; leave one of them out");
  }
}

void check(const Arguments& a) {
  if (const auto batch = number_of<std::int64_t>(a.batch)) {
    check_range("-b/--batch", *batch, 1, 65'536);
  }
  check_choices(a);
  if (a.steps_given) check_range("-n/--steps", a.steps, 1, unlimited);
  if (a.frames_given) check_range("--frames", a.frames, 1, unlimited);
  check_range("--seed", a.seed, 0, unlimited);
  check_range("-s/--save-every", a.save_every, 1, unlimited);
  check_range("--interval", a.interval, 1, unlimited);
  check_range("--threads", a.threads, 0, 1024);
  check_range("--cache-mb", a.cache_mb, 0, 1'000'000'000);
  check_range("--shards", a.shards, 0, 16);
  (void)numbers_of_devices(a.devices);
  if (a.backend == "host" && (!a.devices.empty() || a.shards > 0)) {
    refuse("--devices and --shards are for GPUs; leave them out, or --backend host");
  }
  if (!(a.seconds >= 0 && a.seconds <= 1e9))
    refuse("--seconds must be a number from 0 (never) to 1e9");
  if (!a.precision.empty() && a.precision != "fp32" && a.precision != "tf32" &&
      a.precision != "bf16" && a.precision != "fp16" && a.precision != automatic) {
    refuse("--precision " + pvm::quote(a.precision) +
           " is unknown; allowed: fp32, tf32, bf16, fp16, auto");
  }
  if (a.backend != "auto" && a.backend != "cuda" && a.backend != "host") {
    refuse("--backend " + pvm::quote(a.backend) + " is unknown; allowed: auto, cuda, host");
  }
  if (a.decode != "auto" && a.decode != "cpu" && a.decode != "gpu") {
    refuse("--decode " + pvm::quote(a.decode) + " is unknown; allowed: auto, cpu, gpu");
  }
  if (!a.reduce.empty() && a.reduce != "mean" && a.reduce != "sum") {
    refuse("--reduce " + pvm::quote(a.reduce) + " is unknown; allowed: mean, sum");
  }
  if (!a.files.empty() && !(a.dataset.empty() && a.path.empty())) {
    refuse("-f names files and -d or -p a data set; give one of them");
  }
  if (!a.live.address.empty() && !a.live.given) {
    refuse("--live-address is for --live; give both, or none");
  }
  if (a.frames_given && a.write_zip.empty()) {
    refuse("--frames is for --write-zip; a run's length is -n");
  }
  if (!a.write_zip.empty() && !a.of_runs.empty()) {
    refuse(a.of_runs + " is for runs, and --write-zip only writes frames; leave one of them out");
  }
  if (a.keep_given && a.freeze && a.out.empty()) {
    refuse("--keep is for checkpoints, and a frozen run saves them only with -o; add -o");
  }
  (void)pvm::parse_keep(a.keep, "--keep");
  if (a.preview == "-" && ::isatty(STDOUT_FILENO) == 0) {
    refuse("--preview - draws in a terminal, and the output is none; name a .png instead");
  }
  const bool trains = a.dry_run || !a.trace.empty() || !a.report_json.empty() ||
                      !a.metrics.empty() || !a.tensorboard.empty() || !a.preview.empty() ||
                      !a.out.empty() || !a.record.empty() || !a.film.empty() || !a.files.empty() ||
                      !a.dataset.empty() || !a.script.empty() || a.live.given || a.steps_given ||
                      a.rate_given || a.freeze || !a.write_zip.empty() || a.batch == automatic ||
                      a.precision == automatic;
  if (!a.eval.empty() && trains) {
    refuse("--eval only runs over its PATH once and learns nothing; leave out what is for runs");
  }
  check_outputs(a);
  if (a.spec.empty() && a.load.empty() && a.write_zip.empty()) {
    refuse("there is no spec; name one with -S, or a checkpoint with -L (see pvm --help)");
  }
}

std::string generated_frames(std::uint64_t seed) { return "synthetic:" + std::to_string(seed); }

/// The file that `-S name` means: the file of that name, else model_zoo/NAME.json beside the
/// program, in a directory above it (the source tree), where the package is installed, or in the
/// source tree that the program was built from.
std::string find_spec(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(name, ignored) || name.find('/') != std::string::npos) return name;
  const std::string file = name.ends_with(".json") ? name : name + ".json";
  if (fs::exists("model_zoo/" + file, ignored)) return "model_zoo/" + file;
  fs::path directory = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (int up = 0; up < 5 && !directory.empty(); ++up, directory = directory.parent_path()) {
    for (const char* zoo : {"model_zoo", "share/pvm/model_zoo"}) {
      const fs::path found = directory / zoo / file;
      if (fs::exists(found, ignored)) return found.string();
    }
    if (directory == directory.root_path()) break;
  }
#if defined(PVM_SOURCE_ZOO)  // the program may have been built anywhere
  const fs::path source = fs::path(PVM_SOURCE_ZOO) / file;
  if (fs::exists(source, ignored)) return source.string();
#endif
  return name;
}

/// Where to decode `path`, which `streams` streams read. Each stream of a video needs decoders of
/// its own, of which a GPU has few, so many streams of a video are decoded on the CPU. Streams of
/// pictures share one decoder.
pvm::io::Decode decoding(const Arguments& a, const std::string& path, int streams) {
  constexpr int most_decoders = 4;
  if (a.decode == "gpu") return pvm::io::Decode::gpu;
  const bool many = streams > most_decoders && !pvm::io::holds_pictures(path);
  const bool on_cpu = a.decode == "cpu" || a.backend == "host" || many;
  return on_cpu ? pvm::io::Decode::cpu : pvm::io::Decode::automatic;
}

/// Openers for the sequences named on the command line, or for `otherwise` if none is named.
std::vector<pvm::io::Opener> find_sources(const Arguments& a, const std::string& otherwise,
                                          int streams) {
  if (!names_sources(a)) return {pvm::io::opener(otherwise)};
  std::vector<pvm::io::Opener> openers;
  for (const auto& path : sources_of(a)) {
    const std::string& source = path == "synthetic" ? otherwise : path;
    openers.push_back(pvm::io::opener(source, decoding(a, source, streams)));
  }
  return openers;
}

/// Whether a signal has been received, and the run that it should stop, if any.
std::atomic<bool> stop_asked = false;
std::atomic<pvm::TrainerBase*> running = nullptr;

extern "C" void on_signal(int) {
  stop_asked = true;
  if (auto* const trainer = running.load()) trainer->request_stop();
}

/// Installs signal handlers: the first signal stops the run, a second one ends the program at once.
/// As a callback it does so when a run begins: what is to be read up to the run's place may take
/// long, and nothing is lost if a signal ends the program before.
class StopOnSignals {
 public:
  StopOnSignals() = default;
  void begin(const pvm::Moment& moment) { install(&moment.trainer); }
  std::uint64_t next(std::uint64_t) { return pvm::never; }
  void at(const pvm::Moment&) {}

  void install(pvm::TrainerBase* trainer) {
    running = trainer;
    std::vector<int> signals{SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    if (ranks_of_run::maker() != nullptr) signals.push_back(ranks_of_run::stop_signal);
    for (const int signal : signals) {
      struct sigaction action {};
      sigaction(signal, nullptr, &action);
      if (action.sa_handler == SIG_IGN) continue;  // ignored on purpose, by nohup for example
      action.sa_handler = on_signal;
      action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
      sigaction(signal, &action, nullptr);
    }
    ::signal(SIGXFSZ, SIG_IGN);  // exceeding a file size limit is an error, like a full disk
  }
  ~StopOnSignals() { running = nullptr; }
  StopOnSignals(const StopOnSignals&) = delete;
  StopOnSignals& operator=(const StopOnSignals&) = delete;
};

/// Ends the program with `code` if it has not ended by itself within a second: everything is saved
/// and said, but a thread may still wait for a decoder, which cannot be interrupted.
void end_soon(int code) {
  static int exit_code = 0;
  exit_code = code;
  std::fflush(stdout);
  struct sigaction action {};
  action.sa_handler = [](int) { ::_exit(exit_code); };
  sigaction(SIGALRM, &action, nullptr);
  ::alarm(1);
}

int fail(const std::string& sentence, int code);

int write_zip(const Arguments& a) {
  pvm::io::FrameShape shape{256, 256, 3};
  if (!a.spec.empty()) {
    const pvm::Spec spec = pvm::load_spec(find_spec(a.spec));
    shape = {spec.frame_side(), spec.frame_side(), spec.input_channels};
  }
  auto streams =
      pvm::io::deal(find_sources(a, generated_frames(static_cast<std::uint64_t>(a.seed)), 1), 1);
  std::optional<std::uint64_t> frames;  // no value: one pass
  // Only generated frames and cameras have no replay id.
  const bool never_ends = pvm::io::replay_id(streams.front()).empty();
  if (a.frames_given || never_ends) {
    frames = a.frames_given ? static_cast<std::uint64_t>(a.frames) : 1000;
  }
  const std::string of_all = frames ? " of " + std::to_string(*frames) : "";
  StopOnSignals stop;
  stop.install(nullptr);
  pvm::io::stop_when(streams.front(), &stop_asked);
  std::string so_far;
  std::uint64_t written = 0;
  try {
    written = pvm::io::write_published_zip(a.write_zip, streams.front(), shape, frames,
                                           [&](std::uint64_t done) {
                                             so_far = std::to_string(done) + of_all;
                                             if (stop_asked) throw pvm::io::Stopped{};
                                             if (!a.quiet && done > 0 && done % 1000 == 0)
                                               std::printf("%s frames\n", so_far.c_str());
                                           });
  } catch (const pvm::io::Stopped&) {
    end_soon(fail(
        "stopped after " + so_far + " frames; " + pvm::quote(a.write_zip) + " was not written", 1));
    return 1;
  }
  if (!a.quiet)
    std::printf("%s: %llu frames\n", pvm::printable(a.write_zip).c_str(),
                static_cast<unsigned long long>(written));
  return 0;
}

using Streams = std::vector<pvm::io::AnySource>;

/// The settings of a run, after the spec and the checkpoint have been read.
struct Plan {
  pvm::Spec spec;
  std::uint64_t target = 0;
  std::string generated;  ///< the source to use if none is named
  std::optional<pvm::io::Checkpoint> checkpoint;
  pvm::TrainerOptions options;
  std::vector<pvm::ScriptLine> script;
  std::string precision;
  std::string chosen;  ///< by trials, see TrainerBase::chosen

  /// Whether the run goes on where a checkpoint's ended.
  [[nodiscard]] bool resumes() const { return checkpoint && checkpoint->state.resumable(); }
};

void check_rate(double rate) {
  if (!(rate >= 0 && rate <= 1000)) refuse("--rate must be a number from 0 to 1000");
}

/// Makes the rate that of the run; `what` names it. A run that goes on must have it already.
void set_rate(Plan& plan, double rate, const std::string& what) {
  if (plan.resumes()) pvm::require_rate(*plan.checkpoint, rate, what);
  plan.spec = pvm::at_constant_rate(plan.spec, rate);
  if (plan.checkpoint) plan.checkpoint->spec = plan.spec;
}

/// Throws if another rank has other files than this one.
void compare_ranks(const Arguments& a) {
  if (ranks_of_run::maker() == nullptr) return;
  if (!a.gpu.empty()) refuse("--gpu plans a run of one process; leave it out, or start one rank");
  if (a.shards > 0) {
    refuse("each rank has one shard of the network; leave --shards out, or start one rank");
  }
  std::vector<std::string> paths = sources_of(a);
  if (!a.spec.empty()) paths.push_back(find_spec(a.spec));
  for (const std::string* path : {&a.load, &a.eval}) {
    if (!path->empty()) paths.push_back(*path);
  }
  ranks_of_run::compare_files(paths);
}

Plan make_plan(const Arguments& a) {
  compare_ranks(a);
  Plan plan;
  if (!a.spec.empty()) plan.spec = pvm::load_spec(find_spec(a.spec));
  const auto rate = number_of<double>(a.rate);
  if (rate) check_rate(*rate);
  if (rate && !a.spec.empty()) plan.spec = pvm::at_constant_rate(plan.spec, *rate);
  if (!a.load.empty()) {
    plan.checkpoint = pvm::io::load_any_checkpoint(a.load, a.spec.empty() ? nullptr : &plan.spec);
    plan.spec = plan.checkpoint->spec;
  }
  const bool resumes = plan.resumes();
  if (rate) set_rate(plan, *rate, "--rate");
  if (a.rate == automatic && resumes) {
    set_rate(plan, pvm::found_rate(*plan.checkpoint, "--rate auto"), "--rate auto");
  }
  if (!a.script.empty()) plan.script = pvm::load_script(a.script);
  plan.target = a.steps_given ? static_cast<std::uint64_t>(a.steps) : plan.spec.steps;
  pvm::TrainerOptions& options = plan.options;
  const auto batch = number_of<std::int64_t>(a.batch);
  options.batch = batch ? static_cast<int>(*batch) : resumes ? plan.checkpoint->state.batch : 1;
  plan.precision = a.precision;
  if (a.precision.empty() || (a.precision == automatic && resumes)) {
    plan.precision = plan.checkpoint ? plan.checkpoint->precision : "fp32";
  }
  options.seed =
      resumes && !a.seed_given ? plan.checkpoint->seed : static_cast<std::uint64_t>(a.seed);
  if (resumes && options.seed != plan.checkpoint->seed) {
    refuse("--seed is " + std::to_string(options.seed) + " but the checkpoint's run has " +
           std::to_string(plan.checkpoint->seed) + "; leave --seed out");
  }
  options.reduce = resumes ? plan.checkpoint->reduce : pvm::Reduce::mean;
  if (!a.reduce.empty()) {
    options.reduce = a.reduce == "sum" ? pvm::Reduce::sum : pvm::Reduce::mean;
  }
  options.mode = a.freeze ? pvm::Mode::freeze : pvm::Mode::learn;
  options.threads = static_cast<int>(a.threads);
  options.graph = !a.no_graph;
  options.devices = numbers_of_devices(a.devices);
  options.shards = static_cast<int>(a.shards);
  options.ranks = ranks_of_run::maker();
  if (a.device_given) options.device = static_cast<int>(a.device);
  if (a.cache_given) options.cache_bytes = static_cast<std::size_t>(a.cache_mb) * 1'000'000;
  const std::map<std::string, pvm::BackendChoice> backends = {
      {"auto", pvm::BackendChoice::automatic},
      {"cuda", pvm::BackendChoice::cuda},
      {"host", pvm::BackendChoice::host}};
  options.backend = backends.at(a.backend);

  plan.generated = generated_frames(options.seed);
  if (resumes && a.eval.empty() && a.files.empty() && !names_sources(a)) {
    const std::string& source = plan.checkpoint->streams.front().source;
    const bool has_seen_none = source.empty();
    if (!has_seen_none && !source.starts_with("synthetic:")) {
      // Otherwise the run would silently continue with generated frames.
      refuse("the checkpoint's frames came from " + pvm::quote(source) +
             "; name it with -f or -d (or -f synthetic for generated frames)");
    }
    if (!has_seen_none) plan.generated = source;
  }
  return plan;
}

/// A line of the summary. It stays one line, whatever is in the name.
void print_path(const char* what, const std::string& path) {
  std::printf("%s %s\n", what, pvm::printable(path).c_str());
}

void summarise(const Arguments& a, const pvm::FitResult& result, const pvm::LastPass& last,
               const pvm::Checkpoints* checkpoints, const pvm::io::Preview* preview) {
  std::printf("%s at step %llu\n", result.cut_short ? "stopped" : "done",
              static_cast<unsigned long long>(result.step));
  if (last.score().pixels > 0) {
    std::printf(
        "prediction: %.2f dB PSNR, repeating the last frame: %.2f dB (the last %llu steps)\n",
        pvm::psnr(pvm::prediction_mse(last.score())), pvm::psnr(pvm::persistence_mse(last.score())),
        static_cast<unsigned long long>(last.steps()));
  }
  if (result.skipped > 0) {
    std::printf("skipped:    %llu unreadable frames\n",
                static_cast<unsigned long long>(result.skipped));
  }
  if (preview != nullptr && preview->drawn()) print_path("preview:   ", a.preview);
  if (!a.metrics.empty()) print_path("metrics:   ", a.metrics);
  if (checkpoints != nullptr && !checkpoints->latest().empty()) {
    print_path("checkpoint:", checkpoints->latest());
  }
}

/// What `--record` names: `hidden`, `prediction` and `error`, with commas between.
pvm::RecordKinds record_kinds(const std::string& list) {
  pvm::RecordKinds kinds;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string word = list.substr(begin, end - begin);
    bool* const kind = word == "hidden"       ? &kinds.hidden
                       : word == "prediction" ? &kinds.prediction
                       : word == "error"      ? &kinds.error
                                              : nullptr;
    if (kind == nullptr) {
      refuse("--record " + pvm::quote(word) + " is unknown; allowed: hidden, prediction, error");
    }
    *kind = true;
    begin = end + 1;
  }
  return kinds;
}

/// The prefix of the checkpoints' names, or the name of the one checkpoint if `out` ends in
/// .safetensors. A directory gets checkpoints of the usual name.
std::string checkpoint_prefix(const std::string& out, const pvm::Spec& spec) {
  const std::string usual = "pvm_save_" + pvm::file_name_part(spec.name);
  if (out.empty()) return usual;
  std::error_code ignored;
  const bool directory = out.ends_with('/') || std::filesystem::is_directory(out, ignored);
  return directory ? (std::filesystem::path(out) / usual).string() : out;
}

/// The lines of the run file: the options given, and the values of those that were chosen.
std::string settings_of(const Arguments& a, const Plan& plan) {
  std::map<std::string, std::string> values = {
      {"steps", std::to_string(plan.target)},
      {"batch", std::to_string(plan.options.batch)},
      {"seed", std::to_string(plan.options.seed)},
      {"precision", plan.precision},
      {"reduce", plan.options.reduce == pvm::Reduce::sum ? "sum" : "mean"}};
  if (a.rate == automatic) {
    values["rate"] = pvm::rate_text(plan.spec.initial_learning_rate);
    values["rate-budget"] = "";
  }
  return a.settings(values);
}

/// Trains, with the callbacks that the arguments ask for, and prints a summary.
int train(const Arguments& a, const Plan& plan, Streams& streams, pvm::TrainerBase& trainer,
          const std::optional<pvm::TraceFile>& trace) {
  const auto interval = static_cast<std::uint64_t>(a.interval);
  const std::uint64_t pass = streams.front().length().value_or(0);
  constexpr std::uint64_t longest_pass = 10'000;

  pvm::LastPass last{pass > 0 && pass <= longest_pass ? pass : interval};
  pvm::Optionally<pvm::Checkpoints> checkpoints;
  pvm::Optionally<pvm::Metrics> metrics;
  pvm::Optionally<pvm::io::Preview> preview;
  pvm::Optionally<pvm::Progress> progress;
  pvm::Optionally<run_file::RunFile> run_file;
  if (!a.freeze || !a.out.empty()) {
    const std::string prefix = checkpoint_prefix(a.out, plan.spec);
    const auto every = static_cast<std::uint64_t>(a.save_every);
    checkpoints.callback.emplace(prefix, every, pvm::parse_keep(a.keep, "--keep"));
    run_file.callback.emplace(prefix, every, settings_of(a, plan), *checkpoints.callback);
  }
  if (!a.metrics.empty()) metrics.callback.emplace(a.metrics, interval);
  if (a.preview == "-") {
    preview.callback.emplace(stdout, interval);
  } else if (!a.preview.empty()) {
    preview.callback.emplace(a.preview, interval);
  }
  pvm::Optionally<pvm::TensorBoard> tensorboard;
  if (!a.tensorboard.empty()) tensorboard.callback.emplace(a.tensorboard, interval);
  pvm::Optionally<pvm::TimeLimit> limit;
  if (a.seconds > 0) limit.callback.emplace(a.seconds);
  pvm::Optionally<pvm::Record> record;
  pvm::Optionally<pvm::io::FilmRun> film;
  if (!a.record.empty()) record.callback.emplace(a.record.back(), record_kinds(a.record.front()));
  if (!a.film.empty()) film.callback.emplace(a.film);
  constexpr double forever = std::numeric_limits<double>::infinity();
  if (!a.quiet) progress.callback.emplace(interval, stdout, a.seconds > 0 ? a.seconds : forever);

  pvm::log(pvm::Severity::info, "spec " + pvm::quote(plan.spec.name) + ": " +
                                    std::to_string(trainer.connectome().weights) + " weights, " +
                                    std::to_string(trainer.batch()) + " x " +
                                    pvm::quote(streams.front().name()) + "; " +
                                    trainer.description());
  if (!a.script.empty()) pvm::follow_script(trainer, plan.script);
  pvm::Optionally<live_commands::Page> live;
  if (a.live.given) {
    live_commands::Options options = a.live;
    options.prefix = checkpoint_prefix(a.out, plan.spec);
    live.callback.emplace(live_commands::serve(options));
  }
  StopOnSignals stop;
  const auto result = trainer.fit(streams, pvm::Steps{plan.target}, checkpoints, run_file, metrics,
                                  tensorboard, preview, last, progress, limit, record, film,
                                  pvm::DivergenceWarning{}, live, stop);
  if (!a.quiet || result.cut_short) {
    summarise(a, result, last, checkpoints.callback ? &*checkpoints.callback : nullptr,
              preview.callback ? &*preview.callback : nullptr);
  }
  if (a.report) std::fputs(pvm::report_text(trainer.report()).c_str(), stdout);
  if (!a.report_json.empty()) {
    const std::string text = pvm::report_json(trainer.report()) + "\n";
    pvm::io::make_directories_of(a.report_json);
    pvm::io::AtomicFile file(a.report_json);
    file.write(text.data(), text.size());
    file.commit(false);
  }
  if (trace) trace->write(trainer.report());
  end_soon(0);
  return 0;
}

/// One frozen pass over the frames of `--eval`, with the weights of the checkpoint and the past of
/// a new run, so that the score depends on nothing else. Prints it as one JSON object.
int evaluate(const Arguments& a, Plan& plan) {
  const std::uint64_t step = plan.checkpoint ? plan.checkpoint->state.step : 0;
  plan.options.mode = pvm::Mode::freeze;
  std::optional<pvm::Trainer<>> trainer;
  if (plan.checkpoint) {
    pvm::EngineState start;
    start.weights = std::move(plan.checkpoint->state.weights);
    plan.checkpoint->state = std::move(start);
    plan.checkpoint->streams.clear();
    trainer.emplace(*plan.checkpoint, plan.options);
  } else {
    trainer.emplace(plan.spec, plan.options);
  }
  Streams streams;
  streams.push_back(pvm::io::open_source(a.eval, decoding(a, a.eval, 1)));
  const auto frames = streams.front().count_frames();
  if (!frames) refuse("--eval " + pvm::quote(a.eval) + " never ends; name a file or a directory");
  pvm::LastPass all{*frames};
  StopOnSignals stop;
  const auto result = trainer->fit(streams, pvm::Steps{*frames}, all, stop);
  if (result.cut_short) throw pvm::Error(pvm::Fault::source, "stopped before the end of the pass");
  const pvm::Score& score = all.score();
  const auto scored = score.pixels > 0;
  const double prediction = scored ? pvm::prediction_mse(score) : 0;
  const double repeating = scored ? pvm::persistence_mse(score) : 0;
  const auto number = [scored](double value) {
    return scored && std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
  };
  const nlohmann::ordered_json line = {{"file", a.eval},
                                       {"spec", plan.spec.name},
                                       {"step", step},
                                       {"frames", result.step},
                                       {"skipped", result.skipped},
                                       {"mse", number(prediction)},
                                       {"psnr", number(pvm::psnr(prediction))},
                                       {"persistence_mse", number(repeating)},
                                       {"persistence_psnr", number(pvm::psnr(repeating))},
                                       {"relative", number(prediction / repeating)}};
  constexpr auto replace = nlohmann::json::error_handler_t::replace;
  std::printf("%s\n", line.dump(-1, ' ', true, replace).c_str());  // a terminal may see it
  return 0;
}

/// Makes the choices that were left to the program, and says why in a line each.
void choose(const Arguments& a, Plan& plan) {
  const pvm::AutoOptions wanted{.batch = a.batch == automatic,
                                .precision = a.precision == automatic,
                                .rate = a.rate == automatic,
                                .rate_budget = static_cast<std::uint64_t>(a.rate_budget),
                                .has_rate = a.rate_given};
  if (!wanted.any()) return;
  if (plan.resumes()) {
    pvm::log(pvm::Severity::info, "auto: " + pvm::kept_choices(*plan.checkpoint));
    return;
  }
  pvm::TrialRun run{plan.spec, plan.options, plan.precision, {}, nullptr};
  if (plan.checkpoint) run.start = &*plan.checkpoint;
  plan.chosen = pvm::choose_for(run, wanted, find_sources(a, plan.generated, 1)).chosen;
  plan.spec = run.spec;
  if (plan.checkpoint) plan.checkpoint->spec = run.spec;
  plan.options.batch = run.options.batch;
  plan.precision = run.precision;
}

template <class Precision>
int train_in(const Arguments& a, Plan& plan, Streams& streams,
             const std::optional<pvm::TraceFile>& trace) {
  if (!a.gpu.empty()) {
    const std::uint64_t begin = plan.checkpoint ? plan.checkpoint->state.step : 0;
    dry_run::print_plan<Precision>(plan.spec, plan.options, streams, pvm::gpu_model(a.gpu),
                                   plan.target - begin, plan.target);
    end_soon(0);
    return 0;
  }
  if (a.dry_run && pvm::detail::runs_on_host<Precision>(plan.options.backend)) {
    dry_run::print_memory<Precision>(plan.spec, plan.options, streams, plan.resumes());
  } else if (a.dry_run && plan.options.ranks == nullptr) {
    static_cast<void>(
        dry_run::print_gpu_memory<Precision>(plan.spec, plan.options, streams, nullptr));
  }
  std::optional<pvm::Trainer<Precision, pvm::dynamic>> trainer;
  if (plan.checkpoint) {
    trainer.emplace(*plan.checkpoint, plan.options);
    plan.checkpoint.reset();  // frees memory: it is as large as the network itself
  } else {
    trainer.emplace(plan.spec, plan.options);
  }
  if (!plan.chosen.empty()) trainer->note_choice(plan.chosen);
  if (a.dry_run) {
    dry_run::print_rate(*trainer, streams, plan.target, plan.options.cache_bytes > 0);
    end_soon(0);
    return 0;
  }
  return train(a, plan, streams, *trainer, trace);
}

int run(const Arguments& a) {
  check(a);
  if (!a.write_zip.empty()) return write_zip(a);
  std::optional<pvm::TraceFile> trace;  // from here on, so that opening files is in it
  if (!a.trace.empty() && !a.dry_run) trace.emplace(a.trace);
  if (!a.report_json.empty() && !a.dry_run) {
    pvm::io::require_json_output(a.report_json, "the report");
  }
  Plan plan = make_plan(a);
  if (!a.eval.empty()) return evaluate(a, plan);
  if (plan.checkpoint && plan.checkpoint->state.step >= plan.target) {
    if (a.steps_given && plan.checkpoint->state.step > plan.target) {
      refuse("-n is " + std::to_string(plan.target) + " but the checkpoint is at step " +
             std::to_string(plan.checkpoint->state.step) + "; name a larger step, it counts on");
    }
    std::printf("nothing to do: the checkpoint is at step %llu and the run ends at %llu\n",
                static_cast<unsigned long long>(plan.checkpoint->state.step),
                static_cast<unsigned long long>(plan.target));
    return 0;
  }
  if (a.device_given) pvm::use_gpu(static_cast<int>(a.device));  // for decoders, too
  choose(a, plan);
  Streams streams = pvm::io::deal(find_sources(a, plan.generated, plan.options.batch),
                                  static_cast<std::size_t>(plan.options.batch));
  return pvm::with_precision(plan.precision, [&]<class Precision>() {
    return train_in<Precision>(a, plan, streams, trace);
  });
}

/// Whether an option is for training runs only, so that it makes no sense with --write-zip.
bool is_of_runs(const CLI::Option* option) {
  const std::string& group = option->get_group();
  const std::string name = option->get_name();
  // --backend also affects decoding.
  if (name == "--backend" || name == "--quiet" || name == "--config") return false;
  return group == "Run" || group == "Output" || name == "--load" || name == "--rate" ||
         name == "--rate-budget" || name == "--cache-mb";
}

/// Prints the first line of a failure, as text that a terminal may be given, and returns `code`.
int fail(const std::string& sentence, int code) {
  std::cerr << "pvm: " + pvm::printable(sentence.substr(0, sentence.find('\n'))) + '\n';
  return code;
}

/// The number of letters that have to be changed, added or left out to make `b` of `a`.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t before = std::exchange(row[0], i + 1);
    for (std::size_t k = 0; k < b.size(); ++k) {
      const std::size_t same = before + (a[i] == b[k] ? 0 : 1);
      before = row[k + 1];
      row[k + 1] = std::min({same, before + 1, row[k] + 1});
    }
  }
  return row.back();
}

/// The sentence about arguments that are none of the program's: names the option that was probably
/// meant.
std::string unexpected(const CLI::App& app, const std::vector<std::string>& arguments,
                       const std::string& otherwise) {
  static const std::map<std::string, std::string> others = {
      {"lr", "rate"},          {"learning-rate", "rate"}, {"learning_rate", "rate"},
      {"epochs", "steps"},     {"iterations", "steps"},   {"iters", "steps"},
      {"batch-size", "batch"}, {"batch_size", "batch"},   {"bs", "batch"},
      {"input", "file"},       {"video", "file"},         {"source", "file"},
      {"model", "spec"},       {"settings", "config"},    {"resume", "load"},
      {"checkpoint", "load"},  {"weights", "load"},       {"output", "out"},
      {"save", "out"},         {"cuda", "backend"},       {"cpu", "backend"},
      {"dtype", "precision"},  {"workers", "threads"},    {"jobs", "threads"},
      {"log", "metrics"},      {"frozen", "freeze"},      {"eval", "freeze"},
      {"silent", "quiet"},     {"time", "seconds"}};
  const auto option = std::find_if(arguments.begin(), arguments.end(),
                                   [](const auto& text) { return text.starts_with('-'); });
  if (option == arguments.end()) {
    if (arguments.empty()) return otherwise;
    return pvm::quote(arguments.front()) + " was not expected; a file is named with -f";
  }
  const std::string given = option->substr(0, option->find('='));
  const std::string name = given.substr(std::min(given.find_first_not_of('-'), given.size()));
  std::string nearest;
  if (const auto known = others.find(name); known != others.end()) {
    nearest = "--" + known->second;
  } else {
    std::size_t least = name.size() / 2 + 1;
    for (const CLI::Option* candidate : app.get_options()) {
      for (const std::string& of_this : candidate->get_lnames()) {
        const std::size_t letters = distance(name, of_this);
        if (letters < least || (of_this.starts_with(name) && name.size() > 2 && letters == least)) {
          least = letters;
          nearest = "--" + of_this;
        }
      }
    }
  }
  return "there is no option " + given + (nearest.empty() ? "" : "; do you mean " + nearest + "?");
}

/// The sentence about a file of --config that has something else than options in it. `what`:
/// CLI11's message, which ends in the name.
std::string wrong_config(const CLI::App& app, const std::string& what) {
  const std::string name = what.substr(what.rfind(' ') + 1);
  return "in the file of --config " +
         unexpected(app, {"--" + name}, pvm::quote(name) + " is no option");
}

/// The log sink. Prints each warning only once, even if several sequences read the same damaged
/// file, and clears the progress line first, so that a message does not appear in the middle of it.
void log_line(pvm::Severity severity, const std::string& message) {
  static std::set<std::string> warnings;
  if (severity == pvm::Severity::warning && !warnings.insert(message).second) return;
  static const bool shared_terminal = ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  if (shared_terminal) std::cerr << "\r\033[K";
  pvm::log_to_stderr(severity, message);
}

/// Runs `work` and returns its exit code, or that of its failure.
template <class Work>
int guarded(const Work& work) {
  try {
    return work();
  } catch (const pvm::Error& error) {
    const bool usage = error.fault() == pvm::Fault::usage || error.fault() == pvm::Fault::spec;
    return fail(error.what(), usage ? 2 : 1);
  } catch (const std::bad_alloc&) {
    return fail("there is not enough memory for this; use a smaller spec or batch", 1);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}

/// Runs `command` with its own options: `pvm NAME ...`.
template <class Options>
int run_command(int argc, char** argv, const char* what,
                void (*describe_command)(CLI::App&, Options&), int (*command)(const Options&),
                Options options = {}) {
  const std::string name = std::string("pvm ") + argv[1];
  CLI::App app{what, name};
  describe_command(app, options);
  try {
    app.parse(argc - 1, argv + 1);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return fail(std::string(error.what()) + " (see " + name + " --help)", 2);
  }
  pvm::set_log_sink([quiet = options.quiet](pvm::Severity severity, const std::string& message) {
    if (!quiet || severity == pvm::Severity::warning) log_line(severity, message);
  });
  return guarded([&] { return command(options); });
}

int program(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "track") {
    return run_command(argc, argv, "Finds a labelled object in a clip.",
                       readout_commands::describe_track, readout_commands::track);
  }
  if (first == "ctl") {
    return guarded([&] { return live_commands::control(argc - 2, argv + 2); });
  }
  if (first == "monitor") {
    return guarded([&] { return live_commands::monitor(argc - 2, argv + 2); });
  }
  if (first == "evaluate") {
    return run_command(argc, argv, "Compares trackers on labelled clips.",
                       readout_commands::describe_evaluate, readout_commands::evaluate);
  }
  if (first == "info") {
    info_command::Options options;
    options.find_spec = find_spec;
    return run_command(argc, argv, "Says what a checkpoint or a spec is.", info_command::describe,
                       info_command::info, options);
  }
  if (first == "quantize") {
    return run_command(argc, argv, "Makes a network for prediction only, in weights of one byte.",
                       quantize_command::describe, quantize_command::quantize);
  }
  if (first == "serve") {
    return run_command(argc, argv, "Serves a frozen network over HTTP.", serve_command::describe,
                       serve_command::serve);
  }
  if (first == "devices") {
    return run_command(argc, argv, "Lists the GPUs of this machine.", devices_command::describe,
                       devices_command::devices);
  }
  if (first == "plot") {
    return run_command(argc, argv, "Draws the learning curves of runs.", plot_command::describe,
                       plot_command::plot);
  }
  Arguments a;
  CLI::App app{"Trains a Predictive Vision Model: a network that learns to predict its own input.",
               "pvm"};
  describe(app, a);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ExtrasError& error) {
    return fail(unexpected(app, app.remaining(), error.what()) + " (see pvm --help)", 2);
  } catch (const CLI::ConfigError& error) {
    return fail(wrong_config(app, error.what()) + " (see pvm --help)", 2);
  } catch (const CLI::ParseError& error) {
    return fail(std::string(error.what()) + " (see pvm --help)", 2);
  }
  for (const char* once : {"--spec", "--load", "--steps"}) {
    if (app.count(once) > 1) {
      return fail(app.get_option(once)->get_name(false, true) + " is given twice; give it once", 2);
    }
  }
  // An empty value is most likely an unset variable in a script.
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0 && option->get_expected_min() > 0 &&
        option->results().front().empty()) {
      return fail(option->get_name() + " is empty; give it a value or leave it out", 2);
    }
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0 && is_of_runs(option)) a.of_runs = option->get_name();
  }
  a.live.given = app.count("--live") > 0;
  a.rate_given = app.count("--rate") > 0;
  a.seed_given = app.count("--seed") > 0;
  a.batch_given = app.count("--batch") > 0;
  a.steps_given = app.count("--steps") > 0;
  a.frames_given = app.count("--frames") > 0;
  a.cache_given = app.count("--cache-mb") > 0;
  a.keep_given = app.count("--keep") > 0;
  a.budget_given = app.count("--rate-budget") > 0;
  a.device_given = app.count("--device") > 0;
  a.settings = [&app](const std::map<std::string, std::string>& chosen) {
    for (const auto& [name, value] : chosen) {
      CLI::Option* const option = app.get_option("--" + name);
      option->clear();
      if (!value.empty()) option->add_result(value);
    }
    return run_file::settings(app);
  };
  pvm::set_log_sink([quiet = a.quiet](pvm::Severity severity, const std::string& message) {
    if (!quiet || severity == pvm::Severity::warning) log_line(severity, message);
  });
  return guarded([&] { return run(a); });
}

}  // namespace

int main(int argc, char** argv) {
  if (!pvm::open_standard_streams()) return 1;
  return ranks_of_run::run(argc, argv, program);
}
