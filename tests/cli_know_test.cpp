// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// What the program says and keeps of runs: run files, kept checkpoints, info, plots. Compiled with
// cli_test.cpp, whose helpers it uses.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <opencv2/imgcodecs.hpp>

#include <pvm/engine/host/memory.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/json.hpp>
#include <pvm/train/checkpoints.hpp>
#include <pvm/train/memory_estimate.hpp>

#include "catch.hpp"

namespace {

/// The names of the checkpoints with the prefix `run`.
std::vector<std::string> kept(const TempDir& dir) {
  std::vector<std::string> all;
  for (const std::string& name : sorted_names(dir.path())) {
    if (name.starts_with("run_") && name.ends_with(".safetensors")) all.push_back(name);
  }
  return all;
}

}  // namespace

TEST_CASE("A run file repeats its run, bit by bit", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  REQUIRE(run(dir, {"-q", "-S", "spec.json", "-n", "40", "-b", "2", "--seed", "7", "--rate", "0.05",
                    "--reduce", "sum", "-o", "my run", "-s", "15"})
              .code == 0);
  const std::string settings = read_file(dir / "my run.run.toml");
  INFO(settings);
  CHECK(settings.starts_with("# The settings of a run of pvm, by pvm 0."));
  CHECK(contains(settings, "\nprecision=\"fp32\"\n"));
  const std::string bytes = read_file(dir / "my run_000000040.safetensors");
  for (const auto& name : names_in(dir.path())) {
    if (name.ends_with(".safetensors")) std::filesystem::remove(dir / name);
  }
  const auto again = run(dir, {"--config", "my run.run.toml"});
  CHECK(again.code == 0);
  CHECK(read_file(dir / "my run_000000040.safetensors") == bytes);
  CHECK(read_file(dir / "my run.run.toml") == settings);
  CHECK_FALSE(std::filesystem::exists(dir / "my run.run.toml.old"));

  // The command line counts more, and a run that goes on may keep its rate.
  const auto on =
      run(dir, {"--config", "my run.run.toml", "-L", "my run_000000040.safetensors", "-n", "50"});
  CHECK(on.code == 0);
  CHECK(on.err.empty());
  const std::string both = read_file(dir / "my run.run.toml");
  CHECK(contains(both, "\nsteps=50\n"));
  CHECK(contains(both, "\n#| steps=40\n"));
  CHECK(run(dir, {"-q", "-L", "my run_000000050.safetensors", "-n", "60", "--rate", "0.1"}).code ==
        2);
  // Another run from step 0 sets the file aside.
  CHECK(run(dir, {"-q", "-S", "spec.json", "-n", "5", "-o", "my run"}).code == 0);
  CHECK(read_file(dir / "my run.run.toml.old") == both);
}

TEST_CASE("Wrong run files: one sentence, exit code 2", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  write_file(dir / "unknown.toml", "spec = \"spec.json\"\nlr = 0.1\n");
  write_file(dir / "value.toml", "spec = \"spec.json\"\nsteps = \"many\"\n");
  write_file(dir / "noise.toml", std::string("\x7f\x1b[31m\n\0===\n[[[\n", 16));
  for (const auto& [file, said] : {std::pair{"unknown.toml", "do you mean --rate?"},
                                   {"value.toml", "'many'"},
                                   {"noise.toml", "--config"},
                                   {"none.toml", "none.toml"},
                                   {".", "."}}) {
    INFO(file);
    const auto outcome = run(dir, {"-q", "--config", file});
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, said));
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    CHECK_FALSE(contains(outcome.err, "\x1b"));
  }
  // What is no run file is not overwritten.
  write_file(dir / "run.run.toml", "mine");
  const auto refused = run(dir, {"-q", "-S", "spec.json", "-n", "5", "-o", "run"});
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "no run file of pvm"));
  CHECK(read_file(dir / "run.run.toml") == "mine");
  CHECK(kept(dir).empty());
}

TEST_CASE("What a run file cannot hold is said, and left out", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  const auto outcome = run(dir, {"-q", "-S", "spec.json", "-n", "5", "-o", "run#1"});
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.err, "does not hold --out"));
  CHECK(contains(read_file(dir / "run#1.run.toml"), "\n# out="));
}

TEST_CASE("The last and the best checkpoints are kept, over a resume too", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  write_file(dir / "run_000000005.safetensors", "mine");  // never touched
  const std::vector<std::string> keep = {"-q", "-s", "10", "--keep", "last:2,best:1", "-o", "run"};
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(), keep.begin(), keep.end());
    return run(dir, more);
  };
  REQUIRE(
      train({"-S", "spec.json", "-n", "60", "--metrics", "run.jsonl", "--interval", "10"}).code ==
      0);
  // The best has the least error by the metrics of the same steps, unless the last two have.
  double least = 1e9;
  std::uint64_t best = 0;
  std::istringstream lines(read_file(dir / "run.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    const double relative = json["mse"].get<double>() / json["persistence_mse"].get<double>();
    if (relative < least) best = json["step"];
    least = std::min(least, relative);
  }
  CHECK(std::filesystem::exists(pvm::Checkpoints::path_at((dir / "run").string(), best)));
  const auto all = kept(dir);
  INFO(read_file(dir / "run.kept"));
  CHECK((all.size() == 3 || all.size() == 4));
  CHECK(all.front() == "run_000000005.safetensors");
  CHECK(all.back() == "run_000000060.safetensors");
  REQUIRE(train({"-L", "run_000000060.safetensors", "-n", "90"}).code == 0);
  const auto later = kept(dir);
  CHECK((later.size() == 3 || later.size() == 4));
  CHECK(later.back() == "run_000000090.safetensors");
  CHECK(later[later.size() - 2] == "run_000000080.safetensors");
  CHECK(read_file(dir / "run_000000005.safetensors") == "mine");

  for (const char* wrong : {"", "last", "last:0", "last:x", "last:2,last:3", "worst:1", "last:2,",
                            "last:99999999999999999999", "all,last:1"}) {
    INFO(wrong);
    CHECK(run(dir, {"-q", "-S", "spec.json", "-n", "5", "--keep", wrong}).code == 2);
  }
  CHECK(run(dir, {"-q", "-S", "spec.json", "-n", "5", "--keep", "last:1", "-o", "one.safetensors"})
            .code == 2);
  write_file(dir / "other.kept", "mine");
  CHECK(run(dir, {"-q", "-S", "spec.json", "-n", "5", "--keep", "last:1", "-o", "other"}).code ==
        2);
  CHECK(read_file(dir / "other.kept") == "mine");
}

TEST_CASE("Files of the program say what they are, with pictures", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  REQUIRE(run(dir, {"-q", "-S", "spec.json", "-n", "30", "-o", "run", "--rate", "0.01", "--metrics",
                    "run.jsonl", "--interval", "10"})
              .code == 0);
  const auto pvm = [&](const std::string& arguments) {
    const std::string command =
        "cd '" + dir.path().string() + "' && '" PVM_CLI "' " + arguments + " >said 2>&1";
    return WEXITSTATUS(std::system(command.c_str()));
  };
  REQUIRE(pvm("info run_000000030.safetensors --json -o net.png") == 0);
  const auto known = nlohmann::json::parse(read_file(dir / "said"));
  const auto spec = tiny_spec();
  const auto net = pvm::make_connectome(spec);
  CHECK(known["step"] == 30);
  CHECK(known["weights"] == net.weights);
  CHECK(known["units"] == net.units.size());
  CHECK(known["run"]["precision"] == "fp32");
  CHECK(known["rates"].size() == spec.layer_shapes.size());
  CHECK(known["rates"][0]["rate"].get<double>() == Approx(0.01));
  std::size_t sum = 0;
  for (const auto& layer : known["layers"]) sum += layer["weights"].get<std::size_t>();
  CHECK(sum == net.weights);
  CHECK(cv::imread((dir / "net.png").string()).cols > 400);
  CHECK(pvm("info spec.json") == 0);
  CHECK(contains(read_file(dir / "said"), "a spec"));
  CHECK(pvm("info nothing") == 2);
  CHECK(pvm("info .") == 1);
  write_file(dir / "noise", std::string("\x7f\x1b[31m\0\1\2", 8));
  CHECK(pvm("info noise") == 1);
  CHECK_FALSE(contains(read_file(dir / "said"), "\x1b"));
  CHECK(pvm("info run.jsonl") == 2);

  for (const std::string to : {"int8", "fp8"}) {
    REQUIRE(pvm("quantize -L run_000000030.safetensors -i synthetic -o small.safetensors --to " +
                to + " --frames 40") == 0);
    CHECK(contains(read_file(dir / "said"), "in " + to));
    CHECK(std::filesystem::file_size(dir / "small.safetensors") < net.weights * 3);
    REQUIRE(pvm("info small.safetensors") == 0);
    CHECK(contains(read_file(dir / "said"), "for prediction only, in " + to));
  }
  CHECK(pvm("-L small.safetensors -n 40 -o more") == 1);
  CHECK(contains(read_file(dir / "said"), "for prediction only"));
  CHECK(pvm("quantize -L run_000000030.safetensors -o small.safetensors") == 2);
  CHECK(pvm("quantize -L small.safetensors -i synthetic -o small.safetensors") == 2);
  CHECK(pvm("quantize -L run_000000030.safetensors -i nothing -o small.safetensors") == 1);

  CHECK(pvm("plot run.jsonl run.jsonl -o curves.png") == 0);
  CHECK(cv::imread((dir / "curves.png").string()).cols > 800);
  for (const char* wrong : {"plot", "plot run.jsonl", "plot spec.json -o a.png",
                            "plot none -o a.png", "plot . -o a.png", "plot run.jsonl -o a.jpg"}) {
    INFO(wrong);
    CHECK(pvm(wrong) == 2);
    const auto said = read_file(dir / "said");
    CHECK(said.starts_with("pvm: "));
    CHECK(std::count(said.begin(), said.end(), '\n') == 1);
  }
}

TEST_CASE("A run writes a trace and a report as JSON", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  const auto outcome = run(dir, {"-q", "-S", "spec.json", "-n", "50", "--trace", "trace.json",
                                 "--report-json", "report.json", "--report"});
  CHECK(outcome.code == 0);
  const auto report = nlohmann::json::parse(read_file(dir / "report.json"));
  CHECK(report["frames"] == 50);
  CHECK(contains(outcome.out, report["bottleneck"].get<std::string>()));
  const auto trace = nlohmann::json::parse(read_file(dir / "trace.json"));
  CHECK(trace["otherData"]["report"] == report);
  CHECK(trace["traceEvents"].size() > 50);
  CHECK(run(dir, {"-S", "spec.json", "-n", "50", "--trace", "a", "--metrics", "./a"}).code == 2);
  CHECK(run(dir, {"-S", "spec.json", "-n", "50", "--trace", "/proc/a"}).code == 2);
  CHECK(run(dir, {"-S", "spec.json", "-n", "50", "--trace", "spec.json"}).code == 2);
}

TEST_CASE("A dry run says what a run takes, and writes nothing", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  const auto dry = run(dir, {"-S", "spec.json", "-n", "1000000000", "--dry-run", "-o", "run",
                             "--metrics", "m.jsonl", "--trace", "t.json"});
  INFO(dry.out << dry.err);
  CHECK(dry.code == 0);
  for (const char* part : {"weights", "past of activity", "saving a checkpoint", "at most", "MB",
                           "expected: ", "frames a second", "step 1000000000 after "}) {
    CHECK(contains(dry.out, part));
  }
  CHECK(names_in(dir.path()).size() == 1);
  CHECK(run(dir, {"-S", "spec.json", "--dry-run", "--write-zip", "a.zip"}).code == 2);
  // More than any machine has: refused before anything is allocated.
  const auto much = run(dir, {"-S", std::string(PVM_MODEL_ZOO) + "/large.json", "-b", "65536", "-f",
                              "synthetic", "--dry-run"});
  CHECK(much.code != 0);
  CHECK(std::count(much.err.begin(), much.err.end(), '\n') <= 2);
}

TEST_CASE("Batch, precision and rate are chosen, kept, and as good as written by hand", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  const std::vector<std::string> all = {"-b", "auto", "--precision", "auto", "--rate", "auto"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), all.begin(), all.end());
    return run(dir, more);
  };
  const auto found = with({"-S", "spec.json", "-n", "40", "--rate-budget", "2000", "-o", "run",
                           "--backend", "host", "--threads", "1"});
  INFO(found.out << found.err);
  REQUIRE(found.code == 0);
  CHECK(contains(found.err, "auto: batch "));
  CHECK(contains(found.err, "auto: rate "));
  const auto path = (dir / "run_000000040.safetensors").string();
  const auto first = pvm::io::load_checkpoint(path);
  CHECK(contains(first.chosen, "batch " + std::to_string(first.state.batch) + ", precision " +
                                   first.precision + ", rate "));

  // The run file has numbers, and gives the same bits without a trial.
  const std::string settings = read_file(dir / "run.run.toml");
  INFO(settings);
  CHECK_FALSE(contains(settings, "auto"));
  const auto by_hand = run(dir, {"--config", "run.run.toml", "-o", "hand"});
  CHECK(by_hand.code == 0);
  CHECK_FALSE(contains(by_hand.err, "auto:"));
  const auto second = pvm::io::load_checkpoint((dir / "hand_000000040.safetensors").string());
  CHECK(second.state.folded == first.state.folded);
  CHECK(second.state.weights == first.state.weights);
  CHECK(second.state.hidden_gradients == first.state.hidden_gradients);
  CHECK(pvm::to_json_text(second.spec) == pvm::to_json_text(first.spec));

  // A run that goes on keeps the choice, with and without the spec.
  for (const char* spec : {"", "spec.json"}) {
    std::vector<std::string> arguments = {"-L", path, "-n", "50", "-o", "more"};
    if (*spec != '\0') arguments.insert(arguments.end(), {"-S", spec});
    const auto more = with(arguments);
    INFO(more.err);
    CHECK(more.code == 0);
    CHECK(contains(more.err, "keeps the checkpoint's batch"));
    const auto third = pvm::io::load_checkpoint((dir / "more_000000050.safetensors").string());
    CHECK(third.chosen == first.chosen);
    CHECK(third.state.batch == first.state.batch);
    CHECK(third.precision == first.precision);
    CHECK(third.spec.initial_learning_rate == first.spec.initial_learning_rate);
    CHECK(third.state.rates == first.state.rates);
  }
  const auto info = "cd '" + dir.path().string() + "' && '" PVM_CLI "' info " + path + " >said";
  CHECK(std::system(info.c_str()) == 0);
  CHECK(contains(read_file(dir / "said"), first.chosen));

  const auto dry = with(
      {"-S", "spec.json", "-n", "40", "--rate-budget", "2000", "--dry-run", "--backend", "host"});
  CHECK(dry.code == 0);
  CHECK(contains(dry.out, "expected: "));
}

TEST_CASE("Choices that cannot be made: one sentence, exit code 2", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  REQUIRE(run(dir, {"-q", "-S", "spec.json", "-n", "20", "-o", "run"}).code == 0);
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--rate", "auto", "--rate-budget", "100"}, "2000 or more"},
      {{"--rate-budget", "5000"}, "is for --rate auto"},
      {{"--rate", "automatic"}, "is not a number"},
      {{"-b", "automatic"}, "is not a whole number"},
      {{"--precision", "automatic"}, "fp16, auto"},
      {{"--rate", "auto", "--freeze"}, "leave --rate or --freeze out"},
      {{"--device", "0", "--backend", "host"}, "leave one of them out"},
      {{"--device", "-1"}, "allowed: 0"},
      {{"--gpu", "H200"}, "is for --dry-run"},
      {{"--gpu", "B3", "--dry-run"}, "known are H200"},
      {{"--gpu", "H200", "--dry-run", "-b", "auto"}, "nothing can be tried"},
      {{"-L", "run_000000020.safetensors", "--rate", "auto"}, "is for new runs"}};
  for (const auto& [arguments, said] : wrong) {
    std::vector<std::string> all = {"--backend", "auto", "-q", "-S", "spec.json", "-n", "40"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const auto outcome = run(dir, all);
    INFO(said << ": " << outcome.err);
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, said));
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  }
  // Which GPUs there are depends on the machine; none has a thousand.
  const auto none =
      run(dir, {"--backend", "auto", "-q", "-S", "spec.json", "-n", "40", "--device", "1000"});
  INFO(none.err);
  CHECK(none.code == 1);
  CHECK(std::count(none.err.begin(), none.err.end(), '\n') == 1);
  const auto listed = std::system("'" PVM_CLI "' devices >/dev/null 2>&1");
  CHECK((WEXITSTATUS(listed) == 0 || WEXITSTATUS(listed) == 1));
}

TEST_CASE("A dry run knows GPUs that are not there", "[cli]") {
  const TempDir dir;
  const auto plan = [&](const std::string& spec, const std::string& gpu, const std::string& batch,
                        const std::string& precision) {
    return run(dir,
               {"--backend", "auto", "-S", std::string(PVM_MODEL_ZOO) + "/" + spec + ".json", "-n",
                "1000", "--dry-run", "--gpu", gpu, "-b", batch, "--precision", precision});
  };
  const auto small = plan("small", "h200", "1", "bf16");
  INFO(small.out << small.err);
  if (contains(small.err, "built without CUDA")) {
    CHECK(small.code == 1);
    return;
  }
  CHECK(small.code == 0);
  for (const char* part : {"memory of the GPU H200, by purpose:", "weights, high and low halves",
                           "past of activity", "frames of the next steps", "tables of rates",
                           "CUDA itself", "at most", "whole units: H200", "by an estimate"}) {
    CHECK(contains(small.out, part));
  }
  const auto batch = plan("large", "RTX 4090", "64", "fp16");
  INFO(batch.out << batch.err);
  CHECK(batch.code == 0);
  CHECK(contains(batch.out, "RTX 4090"));
  const auto much = plan("large", "L4", "60000", "fp32");
  INFO(much.err);
  CHECK(much.code == 1);
  CHECK(contains(much.err, "choose a smaller spec or a smaller batch"));
  CHECK(names_in(dir.path()).empty());
}

#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("Memory is estimated within 5 % for all specs of the model zoo", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  const auto peak = [&](const std::string& spec, const std::string& batch,
                        const std::string& precision) {
    const auto outcome =
        run(dir, {"-q", "-S", spec, "-n", "2", "-b", batch, "--threads", "2", "--precision",
                  precision, "-o", "run.safetensors", "--report-json", "report.json"});
    REQUIRE(outcome.code == 0);
    return nlohmann::json::parse(read_file(dir / "report.json"))["peak_memory"].get<double>();
  };
  // What the program takes without a network to speak of.
  const auto tiny = pvm::estimate_host_memory<pvm::fp32>(tiny_spec(), 1, 2, {});
  const double program = peak("spec.json", "1", "fp32") - static_cast<double>(tiny.peak());
  std::set<std::pair<std::size_t, int>> seen;  // several specs differ in their rates only
  int compared = 0;
  for (const auto& file : std::filesystem::directory_iterator(PVM_MODEL_ZOO)) {
    const auto spec = pvm::load_spec(file.path());
    if (!seen.insert({pvm::make_connectome(spec).weights, spec.frame_side()}).second) continue;
    const auto check = [&](const pvm::MemoryEstimate& estimate, const std::string& batch,
                           const std::string& precision) {
      if (2 * estimate.peak() > pvm::available_memory()) return;
      const double expected = program + static_cast<double>(estimate.peak());
      const double taken = peak(file.path().string(), batch, precision);
      INFO(spec.name << " " << batch << " " << precision << ": " << expected / 1e6 << " MB, taken "
                     << taken / 1e6);
      CHECK(std::abs(taken / expected - 1) < 0.05);
      ++compared;
    };
    check(pvm::estimate_host_memory<pvm::fp32>(spec, 1, 2, {}), "1", "fp32");
    if (pvm::make_connectome(spec).weights > 20'000'000) continue;
    check(pvm::estimate_host_memory<pvm::bf16>(spec, 8, 2, {8, 256}), "8", "bf16");
    check(pvm::estimate_host_memory<pvm::fp16>(spec, 2, 2, {2, 256}), "2", "fp16");
  }
  CHECK(compared > 8);
}
#endif
