// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Runs the command line program and checks its output. PVM_CLI is its path, set by the build.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <opencv2/imgcodecs.hpp>

#include <pvm/core/printable.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/safetensors.hpp>
#include <pvm/io/video.hpp>
#include <pvm/io/zip.hpp>
#include <pvm/model/json.hpp>

#include "catch.hpp"
#include "train_helpers.hpp"
#include "train_sources.hpp"

namespace io = pvm::io;
using namespace train_test;

namespace {

struct Outcome {
  int code = -1;    ///< exit code; 128 + n for a death by signal n
  std::string out;  ///< standard output
  std::string err;  ///< standard error
};

/// One program in a directory of its own.
class Program {
 public:
  /// `file_limit`: bytes no file may exceed, like a disk that fills up; 0 for none.
  Program(const TempDir& dir, std::vector<std::string> arguments, rlim_t file_limit = 0)
      : dir_(dir.path()) {
    pid_ = fork();
    if (pid_ > 0) return;
    // The same engine everywhere: a build with CUDA would warn where there is no GPU.
    if (!arguments.empty()) arguments.insert(arguments.begin(), {"--backend", "host"});
    arguments.insert(arguments.begin(), "pvm");
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const auto redirect = [&](const char* name, int to) {
      dup2(open((dir_ / name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), to);
    };
    redirect("stdout", STDOUT_FILENO);
    redirect("stderr", STDERR_FILENO);
    const rlimit limit{file_limit, file_limit};
    if (chdir(dir_.c_str()) != 0 || (file_limit > 0 && setrlimit(RLIMIT_FSIZE, &limit) != 0)) {
      _exit(99);
    }
    execv(PVM_CLI, argv.data());
    _exit(99);
  }

  void send(int signal) const { kill(pid_, signal); }

  Outcome wait() const {
    int status = 0;
    waitpid(pid_, &status, 0);
    Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                    read_file(dir_ / "stdout"), read_file(dir_ / "stderr")};
    std::filesystem::remove(dir_ / "stdout");
    std::filesystem::remove(dir_ / "stderr");
    return outcome;
  }

  /// Waits until the run has made a file of this name, for half a minute at most.
  void wait_for(const std::string& name) const {
    for (int i = 0; i < 30'000 && !std::filesystem::exists(dir_ / name); ++i) usleep(1000);
  }

  /// ... a temporary file that is to become one of this name.
  void wait_for_part_of(const std::string& name) const {
    const std::string start = name + "." + std::to_string(pid_) + "@";
    const auto is_part = [&](const std::string& file) { return file.starts_with(start); };
    for (int i = 0; i < 30'000; ++i) {
      const auto names = names_in(dir_);
      if (std::any_of(names.begin(), names.end(), is_part)) return;
      usleep(1000);
    }
  }

 private:
  std::filesystem::path dir_;
  pid_t pid_ = -1;
};

Outcome run(const TempDir& dir, std::vector<std::string> arguments) {
  return Program(dir, std::move(arguments)).wait();
}

/// A directory with a spec in it.
void write_spec(const TempDir& dir) {
  write_file(dir / "spec.json", pvm::to_json_text(tiny_spec(), 2));
}

std::vector<std::string> sorted_names(const std::filesystem::path& directory) {
  auto names = names_in(directory);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("Help, version, and nothing at all", "[cli]") {
  const TempDir dir;
  const auto help = run(dir, {"--help"});
  CHECK(help.code == 0);
  for (const char* option : {"--spec", "--load", "--file", "--dataset", "--path", "--batch",
                             "--no-graph", "--steps", "--out", "--save-every", "--precision",
                             "--backend", "--seed", "--metrics", "--preview", "--freeze"}) {
    INFO(option);
    CHECK(contains(help.out, option));
  }
  CHECK(contains(help.out, "Examples:"));
  CHECK(run(dir, {"--version"}).code == 0);
  CHECK(run(dir, {}).code == 2);
}

TEST_CASE("Wrong usage: one sentence, exit code 2, no files", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  const std::vector<std::vector<std::string>> wrong = {{"-b", "0"},
                                                       {"-b", "-3"},
                                                       {"-b", "many"},
                                                       {"-b", "1.5"},
                                                       {"-n", "0x10"},
                                                       {"--frames", "10"},
                                                       {"-n", "0"},
                                                       {"-n", "-1"},
                                                       {"-s", "0"},
                                                       {"--seed", "-1"},
                                                       {"--rate", "-1"},
                                                       {"--rate", "1001"},
                                                       {"--rate", "fast"},
                                                       {"-n", "1.5"},
                                                       {"-n", "1e"},
                                                       {"-n", "1.2345k"},
                                                       {"-n", "1e99"},
                                                       {"-n", "10", "-n", "20"},
                                                       {"-S", "spec.json"},
                                                       {"-n"},
                                                       {"-f", ""},
                                                       {"--interval", "0"},
                                                       {"--threads", "-1"},
                                                       {"--precision", "fp8"},
                                                       {"--backend", "tpu"},
                                                       {"--devices", "0,one"},
                                                       {"--devices", "0,"},
                                                       {"--shards", "-1"},
                                                       {"--shards", "2", "--backend", "host"},
                                                       {"--reduce", "max"},
                                                       {"--preview", "p.gif"},
                                                       {"--metrics", "spec.json"},
                                                       {"--metrics", "a.safetensors"},
                                                       {"-n", "99999999999999999999"},
                                                       {"--seconds", "-1"},
                                                       {"-f", "a", "-d", "b"},
                                                       {"--frobnicate"},
                                                       {"-f", "synthetic:x"},
                                                       {"stray"}};
  for (auto arguments : wrong) {
    INFO(arguments.front() << " " << arguments.back());
    arguments.insert(arguments.begin(), {"-q", "-S", "spec.json"});
    const auto outcome = run(dir, arguments);
    CHECK(outcome.code == 2);
    CHECK(outcome.err.starts_with("pvm: "));
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    CHECK(outcome.out.empty());
  }
  CHECK(run(dir, {"-S", "none.json"}).code == 2);
  write_file(dir / "brackets.json", std::string(900'000, '['));
  CHECK(run(dir, {"-S", "brackets.json"}).code == 2);
  CHECK(names_in(dir.path()).size() == 2);
}

TEST_CASE("Numbers are decimal, whatever they begin with", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  REQUIRE(run(dir, {"-q", "-S", "spec.json", "-n", "010", "-o", "run"}).code == 0);
  CHECK(sorted_names(dir.path()) ==
        std::vector<std::string>{"run.run.toml", "run_000000010.safetensors", "spec.json"});
}

TEST_CASE("Numbers may be written as people write them", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  for (const auto& [text, step] : {std::pair{"2e1", "20"}, {"0.02k", "20"}, {"3E+1", "30"}}) {
    INFO(text);
    REQUIRE(run(dir, {"-q", "-S", "spec.json", "-n", text, "-o", "run"}).code == 0);
    const std::string checkpoint = "run_0000000" + std::string(step) + ".safetensors";
    CHECK(sorted_names(dir.path()) ==
          std::vector<std::string>{"run.run.toml", checkpoint, "spec.json"});
    std::filesystem::remove(dir / checkpoint);
    std::filesystem::remove(dir / "run.run.toml");
  }
}

TEST_CASE("An option that does not exist names the one that was meant", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  for (const auto& [given, meant] : {std::pair{"--lr=0.1", "--rate"},
                                     {"--stepps", "--steps"},
                                     {"--batch-size", "--batch"},
                                     {"--previw=x.png", "--preview"},
                                     {"--learning-rate", "--rate"}}) {
    INFO(given);
    const auto outcome = run(dir, {"-S", "spec.json", given});
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, std::string("do you mean ") + meant + "?"));
  }
  CHECK(contains(run(dir, {"-S", "spec.json", "-n", "1", "-n", "2"}).err, "given twice"));
}

TEST_CASE("Specs are found by their name, beside the program or above it", "[cli]") {
  const TempDir dir;
  CHECK(run(dir, {"-q", "-S", "tiny", "-n", "5", "-o", "run"}).code == 0);
  CHECK(sorted_names(dir.path()) ==
        std::vector<std::string>{"run.run.toml", "run_000000005.safetensors"});
  CHECK(run(dir, {"-q", "-S", "no_such_spec", "-n", "5"}).code == 2);
}

TEST_CASE("Several files, and a directory of them, are dealt to the sequences", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  write_sources(dir, 12);
  std::filesystem::create_directory(dir / "several");
  for (const char* name : {"a", "b"}) {
    const auto to = dir / "several" / (std::string(name) + ".zip");
    REQUIRE(run(dir, {"--write-zip", to.string(), "-f", "pictures"}).code == 0);
  }
  const auto saved_sources = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"-q", "-S", "spec.json", "-n", "5", "-b", "2", "-o", "run"});
    const auto outcome = run(dir, arguments);
    INFO(outcome.err);
    REQUIRE(outcome.code == 0);
    return io::SafetensorsReader(dir / "run_000000005.safetensors").metadata().at("sources");
  };
  const std::string both = R"(["a.zip","b.zip"])";
  CHECK(saved_sources({"-f", "several/a.zip", "-f", "several/b.zip"}) == both);
  CHECK(saved_sources({"-f", "several"}) == both);
}

TEST_CASE("Checkpoints go where a person means", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  REQUIRE(
      run(dir, {"-q", "-S", "spec.json", "-n", "4", "-s", "2", "-o", "model.safetensors"}).code ==
      0);
  CHECK(sorted_names(dir.path()) ==
        std::vector<std::string>{"model.run.toml", "model.safetensors", "spec.json"});
  REQUIRE(run(dir, {"-q", "-L", "model.safetensors", "-n", "6", "-o", "made/"}).code == 0);
  CHECK(sorted_names(dir / "made") ==
        std::vector<std::string>{"pvm_save_spec.run.toml", "pvm_save_spec_000000006.safetensors"});

  // What is no checkpoint of pvm is not overwritten.
  for (const std::string name : {"notes.safetensors", "run_000000004.safetensors"}) {
    write_file(dir / name, "mine");
    const std::string out = name.starts_with("run") ? "run" : name;
    const auto outcome = run(dir, {"-q", "-S", "spec.json", "-n", "4", "-o", out});
    CHECK(outcome.code == 1);
    CHECK(contains(outcome.err, "is no checkpoint of pvm"));
    CHECK(read_file(dir / name) == "mine");
  }
}

TEST_CASE("A checkpoint that cannot be saved during a run does not end it", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  std::filesystem::create_directory(dir / "run_000000004.safetensors");
  const auto outcome = run(dir, {"-q", "-S", "spec.json", "-n", "8", "-s", "2", "-o", "run"});
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.err, "is tried again"));
  for (const char* step : {"2", "6", "8"}) {
    CHECK(io::is_checkpoint(dir / ("run_00000000" + std::string(step) + ".safetensors")));
  }
  std::filesystem::create_directory(dir / "end_000000008.safetensors");
  CHECK(run(dir, {"-q", "-S", "spec.json", "-n", "8", "-o", "end"}).code == 1);
}

TEST_CASE("Another file of the same name is noticed when a run goes on", "[cli][resume]") {
  const TempDir dir;
  write_spec(dir);
  write_sources(dir, 12);
  REQUIRE(run(dir, {"-q", "-S", "spec.json", "-f", "a.zip", "-n", "5", "-o", "run"}).code == 0);
  const std::vector<std::string> resume = {
      "-q", "-L", "run_000000005.safetensors", "-f", "a.zip", "-n", "8", "-o", "run"};
  CHECK(run(dir, resume).err.empty());
  REQUIRE(run(dir, {"-q", "--write-zip", "other.zip", "--seed", "5", "--frames", "12"}).code == 0);
  std::filesystem::rename(dir / "other.zip", dir / "a.zip");
  const auto outcome = run(dir, resume);
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.err, "'a.zip' is not the file that the checkpoint's run read"));
}

TEST_CASE("Closed streams do not end up in files", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  const auto run_closed = [&](const char* closed, const char* out) {
    const std::string command = "cd '" + dir.path().string() + "' && '" + PVM_CLI +
                                "' --backend host -S spec.json -n 20 --interval 5 --metrics " +
                                out + ".jsonl --preview " + out + ".png -o " + out + " " + closed;
    return std::system(command.c_str());
  };
  CHECK(run_closed(">/dev/null 2>&1", "open") == 0);
  CHECK(run_closed("<&- >&- 2>&-", "closed") == 0);
  CHECK(run_closed(">&-", "half") == 0);
  for (const char* out : {"closed", "half"}) {
    CHECK(read_file(dir / (std::string(out) + "_000000020.safetensors")) ==
          read_file(dir / "open_000000020.safetensors"));
    const std::string metrics = read_file(dir / (std::string(out) + ".jsonl"));
    CHECK(std::count(metrics.begin(), metrics.end(), '\n') == 4);
    CHECK(metrics.starts_with("{\"step\":5"));
  }
}

TEST_CASE("A checkpoint decides neither where files go nor what is printed", "[cli][resume]") {
  const TempDir dir;
  std::filesystem::create_directory(dir / "inner");
  write_spec(dir);
  REQUIRE(run(dir, {"-q", "-S", "spec.json", "-n", "5", "-o", "run"}).code == 0);
  auto checkpoint = io::load_checkpoint(dir / "run_000000005.safetensors");
  const std::vector<std::string> names = {"x/../../escaped/here",
                                          "/tmp/pvm_absolute",
                                          "..",
                                          "\x1b[31mRED\x1b]0;owned\x07\nwarning: fake",
                                          std::string("a\0b", 3),
                                          "\xc2\x9b\u202e",
                                          "",
                                          std::string(10'000, 'n')};
  const auto before = sorted_names(dir.path()).size();
  for (const std::string& name : names) {
    INFO(pvm::quote(name));
    checkpoint.spec.name = name;
    io::save_checkpoint(dir / "inner" / "hostile.safetensors", checkpoint);
    const std::string command = "cd '" + (dir / "inner").string() + "' && '" + PVM_CLI +
                                "' --backend host -L hostile.safetensors -n 9 >out 2>err";
    CHECK(std::system(command.c_str()) == 0);
    const std::string said = read_file(dir / "inner" / "out") + read_file(dir / "inner" / "err");
    CHECK(std::none_of(said.begin(), said.end(), [](char c) {
      return (static_cast<unsigned char>(c) < ' ' && c != '\n') || c == '\x7f';
    }));
    CHECK_FALSE(contains(said, "\nwarning: fake"));
    CHECK_FALSE(contains(said, "\xc2\x9b"));
    CHECK_FALSE(contains(said, "\u202e"));
    CHECK_FALSE(contains(said, std::string(200, 'n')));
    CHECK(contains(read_file(dir / "inner" / "err"), "no name for files"));
    auto made = names_in(dir / "inner");
    CHECK(made.size() == 5);
    for (const std::string& file : made) {
      if (file.starts_with("pvm_save_")) std::filesystem::remove(dir / "inner" / file);
    }
    CHECK(names_in(dir / "inner").size() == 3);
  }
  CHECK(sorted_names(dir.path()).size() == before);
}

TEST_CASE("Names of files are shown as text, whatever they say", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  REQUIRE(run(dir, {"-q", "--write-zip", "frames.zip", "--frames", "4"}).code == 0);
  const std::string spec = read_file(dir / "spec.json"), frames = read_file(dir / "frames.zip");
  for (const std::string name : {"\x1b[31mRED\x1b]0;owned\x07", "a\nwarning: fake", "\u202egnp",
                                 "not utf-8 \xff\xfe", "csi \xc2\x9b", "-rf"}) {
    INFO(pvm::quote(name));
    write_file(dir / (name + ".json"), spec);
    write_file(dir / (name + ".zip"), frames);
    write_file(dir / (name + ".avi"), "no video");
    const auto check = [](const Outcome& outcome, int code) {
      CHECK(outcome.code == code);
      std::string said = outcome.out + outcome.err;
      CHECK_FALSE(contains(said, "\nwarning: fake"));
      std::erase(said, '\n');
      CHECK(said == pvm::printable(said));
    };
    const std::string here = "./" + name;
    check(run(dir, {"-S", here + ".json", "-f", here + ".zip", "-n", "5", "-o", here, "--preview",
                    here + ".png", "--metrics", here + ".jsonl"}),
          0);
    check(run(dir, {"-L", here + "_000000005.safetensors", "--eval", here + ".zip"}), 0);
    const auto resumed = run(
        dir, {"-L", here + "_000000005.safetensors", "-f", here + ".zip", "-n", "8", "-o", here});
    check(resumed, 0);
    CHECK_FALSE(contains(resumed.err, "checkpoint's"));  // it is the file that it was
    check(run(dir, {"-f", here + ".zip", "--write-zip", here + "_.zip"}), 0);
    check(run(dir, {"-S", here + ".json", "-f", here + ".avi", "-n", "5"}), 1);
    check(run(dir, {"-S", here, "-n", "5"}), 2);
    check(run(dir, {"-L", here + ".zip", "-S", here + ".json"}), 1);
    check(run(dir, {"-S", here + ".json", "-f", here, "-n", "5"}), 1);
    check(run(dir, {"--" + name}), 2);
  }
}

TEST_CASE("Boxes are written in pixels of the pictures that are written", "[cli]") {
  const TempDir dir;
  write_spec(dir);  // of frames of 12 x 12
  REQUIRE(run(dir, {"-q", "--write-zip", "a.zip", "--frames", "9"}).code == 0);
  REQUIRE(run(dir, {"-q", "-f", "a.zip", "-S", "spec.json", "--write-zip", "b.zip"}).code == 0);
  io::Zip a(dir / "a.zip"), b(dir / "b.zip");
  constexpr io::FrameShape shape{.height = 12, .width = 12, .channels = 3};
  std::vector<std::uint8_t> pixels(shape.size());
  for (int i = 0; i < 9; ++i) {
    INFO(i);
    const io::FrameInfo from = a.next(shape, pixels), to = b.next(shape, pixels);
    CHECK(from.picture.width > 12);
    CHECK(to.picture == io::PictureSize{12, 12});
    REQUIRE(from.label.state == io::LabelState::present);
    REQUIRE(to.label.state == io::LabelState::present);
    CHECK(std::abs(to.label.box.x - from.label.box.x) <= 0.5F);
    CHECK(std::abs(to.label.box.y - from.label.box.y) <= 0.5F);
    CHECK(std::abs(to.label.box.width - from.label.box.width) <= 0.5F);
    CHECK(std::abs(to.label.box.height - from.label.box.height) <= 0.5F);
  }
}

namespace {

/// A directory `pictures` of 12 PNGs with a transparent bar, which moves.
void write_transparent_pictures(const TempDir& dir) {
  std::filesystem::create_directory(dir / "pictures");
  for (int i = 0; i < 12; ++i) {
    cv::Mat picture(24, 24, CV_8UC4, cv::Scalar(20 * i, 90, 200, 255));
    picture.colRange(2 * i, 2 * i + 2).setTo(cv::Scalar(0, 0, 0, 0));
    cv::imwrite((dir / "pictures" / (std::to_string(i) + ".png")).string(), picture);
  }
}

}  // namespace

TEST_CASE("Networks of two and four channels: a run from end to end", "[cli]") {
  for (const int channels : {2, 4}) {
    INFO(channels);
    const TempDir dir;
    write_transparent_pictures(dir);
    pvm::Spec spec = tiny_spec();
    spec.input_channels = channels;
    write_file(dir / "spec.json", pvm::to_json_text(spec, 2));
    const auto good = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.begin(), "-q");
      const Outcome outcome = run(dir, arguments);
      INFO(outcome.err);
      CHECK(outcome.code == 0);
      CHECK(outcome.err.empty());
      return outcome;
    };
    good({"-S", "spec.json", "-f", "pictures", "-n", "60", "-o", "whole"});
    good({"-S", "spec.json", "-f", "pictures", "-n", "25", "-o", "part"});
    good({"-L", "part_000000025.safetensors", "-f", "pictures", "-n", "60", "-o", "part",
          "--export", "run.avi", "--preview", "run.png", "--record", "prediction", "run.npy"});
    CHECK(io::load_checkpoint(dir / "part_000000060.safetensors").state.weights ==
          io::load_checkpoint(dir / "whole_000000060.safetensors").state.weights);
    CHECK(io::Video(dir / "run.avi").count_frames() == 35);
    CHECK(std::filesystem::exists(dir / "run.png"));
    CHECK(contains(good({"-L", "whole_000000060.safetensors", "--eval", "pictures"}).out, "psnr"));

    good({"-S", "spec.json", "-f", "pictures", "--write-zip", "written.zip"});
    io::Zip zip(dir / "written.zip");
    const io::FrameShape shape{12, 12, channels};
    std::vector<std::uint8_t> pixels(shape.size());
    zip.next(shape, pixels);
    CHECK(pixels[static_cast<std::size_t>(channels) - 1] == 0);  // the bar
    CHECK(pixels[shape.size() - 1] == 255);
  }
}

TEST_CASE("Networks of no channels, or of five, are refused", "[cli]") {
  const TempDir dir;
  for (const char* wrong : {"0", "5"}) {
    std::string text = pvm::to_json_text(tiny_spec());
    const std::string key = "\"input_channels\":";
    text.replace(text.find(key + "3"), key.size() + 1, key + wrong);
    write_file(dir / "spec.json", text);
    const Outcome outcome = run(dir, {"-S", "spec.json", "-n", "5"});
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, "2 (grey and alpha)"));
  }
}

TEST_CASE("One file for all checkpoints is not taken for an earlier run's", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  const std::vector<std::string> arguments = {"-q", "-S", "spec.json",      "-n", "8", "-s",
                                              "2",  "-o", "one.safetensors"};
  CHECK(run(dir, arguments).err.empty());
  CHECK(contains(run(dir, arguments).err, "replace those of an earlier run"));
}

TEST_CASE("A run that is cut short ends with a picture of its last step", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  const auto outcome = run(dir, {"-S", "spec.json", "--seconds", "0.3", "--interval", "1M", "-o",
                                 "run", "--metrics", "run.jsonl", "--preview", "run.png"});
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.out, "stopped at step"));
  CHECK(contains(outcome.out, "preview:    run.png"));
  CHECK(std::filesystem::exists(dir / "run.png"));
}

TEST_CASE("Failures: one sentence, exit code 1, no files", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  write_file(dir / "empty.zip", "");
  write_file(dir / "text.avi", "not a video");
  write_file(dir / "text.zip", "not a zip");
  write_file(dir / "bad.safetensors", "xxxxxxxxxxxxxxxx");
  std::filesystem::create_directory(dir / "empty");
  const std::vector<std::vector<std::string>> failing = {
      {"-f", "nothing"},   {"-f", "empty.zip"},       {"-f", "text.avi"},
      {"-f", "empty"},     {"-d", "nothing"},         {"-p", "nothing"},
      {"-L", "none"},      {"-L", "bad.safetensors"}, {"-f", "text.zip"},
      {"-o", "/proc/run"}, {"-o", "spec.json/x/run"}, {"-L", "empty.zip"}};
  for (auto arguments : failing) {
    INFO(arguments.front() << " " << arguments.back());
    arguments.insert(arguments.begin(), {"-q", "-S", "spec.json", "-n", "9"});
    const auto outcome = run(dir, arguments);
    CHECK(outcome.code == 1);
    CHECK(contains(outcome.err, "pvm: "));
    CHECK(outcome.out.empty());
  }
  CHECK(names_in(dir.path()).size() == 6);
}

TEST_CASE("No output takes the place of an input or of another output", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  std::filesystem::create_directory(dir / "pictures");
  REQUIRE(run(dir, {"-q", "--write-zip", "a.png", "--frames", "3"}).code == 0);
  std::filesystem::create_symlink("a.png", dir / "link.png");
  std::filesystem::create_directories(dir / "set" / "one");
  write_file(dir / "set" / "one" / "0.png", "");
  std::filesystem::copy(dir / "a.png", dir / "set" / "two.zip");
  const auto before = read_file(dir / "a.png");
  const std::vector<std::vector<std::string>> clashes = {
      {"-f", "a.png", "--preview", "a.png"},
      {"-f", "a.png", "--preview", "./pictures/../a.png"},
      {"-f", "a.png", "--preview", "link.png"},
      {"--metrics", "b.png", "--preview", "./b.png"},
      {"-f", "pictures", "--preview", "pictures/p.png"},
      {"-f", "pictures", "--metrics", "pictures/m.txt"},  // labels, the next time
      {"-d", "set", "--preview", "set/one/p.png"},
      {"-d", "set", "--metrics", "set/one/m.txt"},
      {"-p", "set", "--metrics", "set/two.zip"}};
  for (auto arguments : clashes) {
    INFO(arguments.back());
    arguments.insert(arguments.begin(), {"-S", "spec.json", "-n", "9"});
    const auto outcome = run(dir, arguments);
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, arguments.back()));
    CHECK(outcome.out.empty());
  }
  CHECK(read_file(dir / "a.png") == before);
  CHECK(names_in(dir.path()).size() == 5);
  CHECK(names_in(dir / "set" / "one").size() == 1);
}

TEST_CASE("A reader that goes away stops the run, which is saved", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  const std::string command =
      "cd '" + dir.path().string() +
      "' && " PVM_CLI " --backend host -q -S spec.json -n 20 -o a && " PVM_CLI
      " --backend host -L a_000000020.safetensors --interval 100 -o b --seconds 60 |"
      " head -n 1 >/dev/null";
  signal(SIGPIPE, SIG_DFL);  // what a shell would hand on
  CHECK(std::system(command.c_str()) == 0);
  const auto names = names_in(dir.path());
  CHECK(std::count_if(names.begin(), names.end(),
                      [](const std::string& name) { return name.starts_with("b_"); }) == 1);
}

TEST_CASE("A run says how far it is and what it made", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  const auto outcome = run(dir, {"-S", "spec.json", "-n", "2500", "-s", "1000", "-o", "out/run",
                                 "--metrics", "m.jsonl", "--preview", "p.png"});
  CHECK(outcome.code == 0);
  const std::regex line(R"((1000|2000|2500)/2500 \(\d+\.\d%\) \| fps: \d+\.\d avg / \d+\.\d inst )"
                        R"(\| ETA: \d+h\d\dm\d\ds \| psnr: \d+\.\d)");
  const auto found = std::sregex_iterator(outcome.out.begin(), outcome.out.end(), line);
  CHECK(std::distance(found, std::sregex_iterator()) == 3);
  for (const char* part : {"prediction: ", "repeating the last frame: ", "p.png", "m.jsonl",
                           "out/run_000002500.safetensors"}) {
    INFO(part);
    CHECK(contains(outcome.out, part));
  }
  CHECK(names_in(dir / "out").size() == 4);  // with the run file
  CHECK(std::filesystem::exists(dir / "p.png"));
  const auto quiet = run(dir, {"-q", "-S", "spec.json", "-n", "100", "--freeze"});
  CHECK((quiet.code == 0 && quiet.out.empty() && quiet.err.empty()));
  CHECK_FALSE(std::filesystem::exists(dir / "pvm_save_spec_000000100.safetensors"));
}

TEST_CASE("Rates that are too high are said while the run goes on", "[cli]") {
  const TempDir dir;
  auto spec = tiny_spec();
  write_file(dir / "good.json", pvm::to_json_text(spec, 2));
  spec.initial_learning_rate = spec.final_learning_rate = 900;
  write_file(dir / "hot.json", pvm::to_json_text(spec, 2));
  const auto hot = run(dir, {"-q", "-S", "hot.json", "-n", "1000"});
  CHECK(hot.code == 0);
  CHECK(contains(hot.err, "warning: at step 1000 the prediction is worse than a grey picture"));
  CHECK(contains(hot.err, "the learning rates are too high"));
  CHECK(run(dir, {"-q", "-S", "good.json", "-n", "1000"}).err.empty());
}

TEST_CASE("A rate on the command line is that of a spec with one rate", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  write_file(dir / "one.json", pvm::to_json_text(pvm::at_constant_rate(tiny_spec(), 0.04), 2));
  CHECK(run(dir, {"-q", "-S", "spec.json", "--rate", "0.04", "-n", "200", "-o", "a"}).code == 0);
  CHECK(run(dir, {"-q", "-S", "one.json", "-n", "200", "-o", "b"}).code == 0);
  CHECK(run(dir, {"-q", "-S", "spec.json", "-n", "200", "-o", "c"}).code == 0);
  const auto weights = [&](const char* name) {
    return io::load_checkpoint(dir / (std::string(name) + "_000000200.safetensors")).state.weights;
  };
  CHECK(weights("a") == weights("b"));
  CHECK(weights("a") != weights("c"));
  const auto resumed =
      run(dir, {"-q", "-L", "a_000000200.safetensors", "--rate", "0.1", "-n", "300"});
  CHECK(resumed.code == 2);
  CHECK(contains(resumed.err, "--rate is for new runs"));

  // A file of weights at a step behind all switches of the schedule.
  const auto start = weights("a");
  write_file(dir / "n.bin", native_file(180, static_cast<std::int32_t>(start.size()), start));
  const auto from_native = [&](const char* rate) {
    CHECK(run(dir, {"-q", "-S", "spec.json", "-L", "n.bin", "--rate", rate, "-n", "200", "-o", "n"})
              .code == 0);
    return weights("n");
  };
  CHECK(from_native("0") == start);
  const auto slow = from_native("0.01");
  CHECK(slow != start);
  CHECK(from_native("0.04") != slow);
}

TEST_CASE("Stopped, continued, straight: the same bytes", "[cli][resume]") {
  const TempDir dir;
  write_spec(dir);
  CHECK(run(dir, {"--write-zip", "a.zip", "--frames", "40", "-q"}).code == 0);
  CHECK(run(dir, {"--write-zip", "a.zip", "--frames", "40"}).code == 2);  // not over a file
  for (const char* batch : {"1", "3"}) {
    for (const char* source : {"a.zip", "synthetic"}) {
      const std::vector<std::string> from = {"-q", "-f", source};
      const auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), from.begin(), from.end());
        return run(dir, more).code;
      };
      CHECK(with({"-S", "spec.json", "-b", batch, "-n", "300", "-s", "100", "-o", "a"}) == 0);
      CHECK(with({"-L", "a_000000100.safetensors", "-n", "170", "-o", "b"}) == 0);
      CHECK(with({"-L", "b_000000170.safetensors", "-S", "spec.json", "-n", "300", "-o", "b"}) ==
            0);
      CHECK(read_file(dir / "a_000000300.safetensors") ==
            read_file(dir / "b_000000300.safetensors"));
    }
  }
  const auto done = run(dir, {"-L", "a_000000300.safetensors", "-n", "300"});
  CHECK((done.code == 0 && contains(done.out, "nothing to do")));
  const auto behind = run(dir, {"-L", "a_000000300.safetensors", "-n", "299"});
  CHECK((behind.code == 2 && contains(behind.err, "is at step 300")));
  CHECK(run(dir, {"-L", "a_000000300.safetensors", "-n", "400", "--seed", "9"}).code == 2);
  CHECK(run(dir, {"-L", "a_000000300.safetensors", "-n", "400", "-b", "2"}).code == 1);
}

TEST_CASE("Precisions: kept by a checkpoint, changed with a word, refused where they are not",
          "[cli][resume]") {
  const TempDir dir;
  write_spec(dir);
  for (const char* precision : {"bf16", "fp16"}) {
    INFO(precision);
    CHECK(run(dir, {"-q", "-S", "spec.json", "-n", "200", "-s", "80", "--precision", precision,
                    "-o", "a"})
              .code == 0);
    const auto same = run(dir, {"-L", "a_000000080.safetensors", "-n", "200", "-o", "b"});
    CHECK(same.code == 0);
    CHECK(contains(same.err, std::string("products in ") + precision));
    CHECK(read_file(dir / "a_000000200.safetensors") == read_file(dir / "b_000000200.safetensors"));
    const auto other =
        run(dir, {"-L", "a_000000080.safetensors", "-n", "200", "--precision", "fp32", "-o", "c"});
    CHECK(other.code == 0);
    CHECK(contains(other.err, "it goes on from the fp32 weights"));
    CHECK(io::load_checkpoint(dir / "c_000000200.safetensors").precision == "fp32");
  }
  const auto tf32 = run(dir, {"-S", "spec.json", "-n", "9", "--precision", "tf32"});
  CHECK(tf32.code == 2);
  CHECK(contains(tf32.err, "tf32 exists on GPUs only"));
}

TEST_CASE("The frames of a checkpoint's run are not silently exchanged", "[cli][resume]") {
  const TempDir dir;
  write_spec(dir);
  CHECK(run(dir, {"--write-zip", "a.zip", "--frames", "9"}).code == 0);
  CHECK(run(dir, {"-q", "-S", "spec.json", "-f", "a.zip", "-n", "20", "-o", "a"}).code == 0);
  const auto outcome = run(dir, {"-L", "a_000000020.safetensors", "-n", "30"});
  CHECK(outcome.code == 2);
  CHECK(contains(outcome.err, "a.zip"));
}

TEST_CASE("Signals save a checkpoint and say where", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const Program program(dir, {"-S", "spec.json", "-o", "a", "-s", "1000"});
    program.wait_for("a_000001000.safetensors");
    program.send(signal);
    const auto outcome = program.wait();
    CHECK(outcome.code == 0);
    const std::regex said(R"(checkpoint: (a_\d{9}\.safetensors))");
    std::smatch match;
    REQUIRE(std::regex_search(outcome.out, match, said));
    CHECK_NOTHROW(io::load_checkpoint(dir / match[1].str()));
    for (const auto& name : names_in(dir.path())) {
      if (name != "spec.json") std::filesystem::remove(dir / name);
    }
  }
}

TEST_CASE("A zip is written of a pass, and of nothing else", "[cli]") {
  const TempDir dir;
  write_sources(dir, 30, [](std::uint64_t i) { return i % 3 == 0; });
  write_file(dir / "v.zip.part", "mine");
  write_file(dir / "v.zip.frames.part", "mine");
  const auto frames_of = [&](const std::string& source, const std::string& zip) {
    CHECK(run(dir, {"-q", "-f", source, "--write-zip", zip}).code == 0);
    return io::Zip(dir / zip).length();
  };
  CHECK(frames_of("a.avi", "v.zip") == 30);  // whose length is known at its end
  CHECK(frames_of("a.zip", "z.zip") == 30);
  CHECK(frames_of("pictures", "p.zip") == 20);  // without those that are none
  CHECK(read_file(dir / "v.zip.part") == "mine");
  CHECK(read_file(dir / "v.zip.frames.part") == "mine");

  for (const std::vector<std::string>& option : std::vector<std::vector<std::string>>{
           {"--seconds", "1"}, {"-n", "9"}, {"-L", "none"}, {"--rate", "1"}, {"--freeze"}}) {
    std::vector<std::string> arguments = {"--write-zip", "n.zip"};
    arguments.insert(arguments.end(), option.begin(), option.end());
    const auto refused = run(dir, arguments);
    INFO(option.front() << ": " << refused.err);
    CHECK(refused.code == 2);
    CHECK(contains(refused.err, "is for runs"));
  }
  CHECK_FALSE(std::filesystem::exists(dir / "n.zip"));
}

TEST_CASE("A signal while a zip is written leaves nothing behind", "[cli]") {
  const TempDir dir;
  const Program program(dir, {"--write-zip", "a.zip", "--frames", "1000000000"});
  program.wait_for_part_of("a.zip.frames");
  program.send(SIGINT);
  const auto outcome = program.wait();
  CHECK(outcome.code == 1);
  CHECK(contains(outcome.err, "'a.zip' was not written"));
  CHECK(names_in(dir.path()).empty());
}

TEST_CASE("Killed while it saves, it leaves whole checkpoints, and starts again", "[cli][slow]") {
  const TempDir dir;
  write_spec(dir);
  for (unsigned k = 0; k < 10; ++k) {
    const Program program(dir, {"-q", "-S", "spec.json", "-o", "a", "-s", "1"});
    program.wait_for("a_000000002.safetensors");
    usleep(3000 + 1371 * k);
    program.send(SIGKILL);
    CHECK(program.wait().code == 128 + SIGKILL);
  }
  CHECK(run(dir, {"-q", "-S", "spec.json", "-o", "a", "-n", "2"}).code == 0);
  for (const auto& name : names_in(dir.path())) {
    if (name == "spec.json" || name.starts_with("a.run.toml")) continue;
    INFO(name);
    CHECK(name.ends_with(".safetensors"));
    CHECK_NOTHROW(io::load_checkpoint(dir / name));
  }
}

TEST_CASE("A disk that fills up spoils nothing", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  const std::vector<std::string> arguments = {"-q", "-S", "spec.json", "-n", "20", "-o", "a"};
  CHECK(run(dir, arguments).code == 0);
  const auto before = read_file(dir / "a_000000020.safetensors");
  const auto outcome = Program(dir, arguments, 30'000).wait();
  CHECK(outcome.code == 1);
  CHECK(contains(outcome.err, "cannot be written"));
  CHECK(read_file(dir / "a_000000020.safetensors") == before);
  CHECK(names_in(dir.path()).size() == 3);
}

TEST_CASE("A cached run ends in the bytes of one that decodes every pass", "[cli]") {
  const TempDir dir;
  write_spec(dir);
  REQUIRE(run(dir, {"-S", "spec.json", "--write-zip", "a.zip", "--frames", "60"}).code == 0);
  const std::vector<std::string> common = {"-S", "spec.json", "-f", "a.zip", "-n", "300"};
  const auto train = [&](const char* out, std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    more.insert(more.end(), {"-o", out, "--report"});
    return run(dir, more);
  };
  const auto plain = train("plain", {"--cache-mb", "0", "--decode", "cpu"});
  const auto cached = train("cached", {});
  CHECK(plain.code == 0);
  CHECK(cached.code == 0);
  CHECK(contains(cached.err, "frame cache: all 60 frames"));
  CHECK_FALSE(contains(plain.err, "frame cache"));
  CHECK(contains(plain.out, "0 of 300 frames from the frame cache"));
  CHECK(contains(cached.out, "240 of 300 frames from the frame cache"));
  CHECK(contains(cached.out, "decode and resize"));
  CHECK(contains(cached.out, "The bottleneck is"));
  const auto bytes = read_file(dir / "plain_000000300.safetensors");
  CHECK(bytes.size() > 10'000);
  CHECK(bytes == read_file(dir / "cached_000000300.safetensors"));

  CHECK(run(dir, {"-S", "spec.json", "--decode", "magic"}).code == 2);
  CHECK(run(dir, {"-S", "spec.json", "--cache-mb", "-1"}).code == 2);
}
