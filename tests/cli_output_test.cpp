// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// What the program may write over: nothing that is read, and no file of another kind. It says so
// before anything is computed. Compiled with cli_test.cpp, whose helpers it uses.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <sys/wait.h>

#include <pvm/io/checkpoint.hpp>

#include "catch.hpp"

namespace {

/// The outcome of `pvm WORDS`, for commands that are no runs.
Outcome command(const TempDir& dir, const std::string& words) {
  const std::string line =
      "cd '" + dir.path().string() + "' && '" PVM_CLI "' " + words + " >stdout 2>stderr </dev/null";
  const int status = std::system(line.c_str());
  Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(dir / "stdout"),
                  read_file(dir / "stderr")};
  std::filesystem::remove(dir / "stdout");
  std::filesystem::remove(dir / "stderr");
  return outcome;
}

/// A directory with a spec, a clip, a run at step 20, and files of other kinds.
void fill(const TempDir& dir) {
  write_spec(dir);
  REQUIRE(run(dir, {"-q", "-S", "spec.json", "-n", "20", "-o", "run", "-s", "10"}).code == 0);
  REQUIRE(run(dir, {"-q", "--write-zip", "ball.zip", "--frames", "30"}).code == 0);
  write_file(dir / "notes.txt", "mine");
  std::filesystem::create_directory(dir / "directory.npy");
  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
}

void refused(const Outcome& outcome, const std::string& said) {
  INFO(said << ": " << outcome.err);
  CHECK((outcome.code == 1 || outcome.code == 2));
  CHECK(contains(outcome.err, said));
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
}

}  // namespace

TEST_CASE("What is written at a run's end is looked at before it begins", "[cli]") {
  const TempDir dir;
  fill(dir);
  const auto before = sorted_names(dir.path());
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--trace", "notes.txt"}, "it exists and holds something else"},
      {{"--report-json", "notes.txt"}, "it exists and holds something else"},
      {{"--report-json", "directory.npy"}, "it is a directory"},
      {{"--report-json", "pipe"}, "it is not a file"},
      {{"--trace", "pipe"}, "it is not a file"},
      {{"--report-json", "/proc/none/report.json"}, "choose another place"},
      {{"--record", "hidden", "directory.npy"}, "it is a directory"}};
  for (auto [arguments, said] : wrong) {
    arguments.insert(arguments.begin(), {"-q", "-S", "spec.json", "-n", "9", "-o", "other"});
    refused(run(dir, arguments), said);
  }
  CHECK(sorted_names(dir.path()) == before);
  CHECK(read_file(dir / "notes.txt") == "mine");
  for (int times = 0; times < 2; ++times) {  // its own files it replaces
    CHECK(run(dir, {"-q", "-S", "spec.json", "-n", "9", "-o", "other.safetensors", "--trace",
                    "trace.json", "--report-json", "new/report.json"})
              .code == 0);
  }
}

TEST_CASE("pvm quantize replaces nothing but what it has written", "[cli]") {
  const TempDir dir;
  fill(dir);
  const std::string checkpoint = "run_000000020.safetensors";
  const std::string bytes = read_file(dir / checkpoint);
  const std::string other = read_file(dir / "run_000000010.safetensors");
  const std::string clip = read_file(dir / "ball.zip");
  const auto before = sorted_names(dir.path());
  const std::string quantize = "quantize -L " + checkpoint + " -i ball.zip -o ";
  refused(command(dir, quantize + checkpoint), "the place of the file of -L");
  refused(command(dir, quantize + "./ball.zip"), "the place of the file of -i");
  refused(command(dir, quantize + "spec.json -S spec.json"), "the place of the file of -S");
  refused(command(dir, quantize + "notes.txt"), "is no file of pvm quantize");
  refused(command(dir, quantize + "run_000000010.safetensors"), "is no file of pvm quantize");
  refused(command(dir, quantize + "directory.npy"), "it is a directory");
  refused(command(dir, quantize + "pipe"), "it is not a file");
  refused(command(dir, quantize + "/proc/none/q.safetensors"), "choose another place");
  refused(command(dir, "quantize -L " + checkpoint + " -i none.avi -o q.safetensors"), "none.avi");
  CHECK(sorted_names(dir.path()) == before);
  CHECK(read_file(dir / checkpoint) == bytes);
  CHECK(read_file(dir / "run_000000010.safetensors") == other);
  CHECK(read_file(dir / "ball.zip") == clip);
  CHECK(command(dir, quantize + "new/q.safetensors").code == 0);
  CHECK(command(dir, quantize + "new/q.safetensors -q").code == 0);
  refused(command(dir, "quantize -L new/q.safetensors -i ball.zip -o again.safetensors"), "new/q");
}

TEST_CASE("A tracker takes the place of a tracker only", "[cli]") {
  const TempDir dir;
  fill(dir);
  const std::string checkpoint = "run_000000020.safetensors";
  const std::string bytes = read_file(dir / checkpoint);
  const std::string clip = read_file(dir / "ball.zip");
  const std::string track = "track -q -L " + checkpoint + " --train ball.zip --save ";
  refused(command(dir, track + checkpoint), "is a run that can go on");
  refused(command(dir, track + "ball.zip"), "is no file of a tracker");
  refused(command(dir, track + "notes.txt"), "is no file of a tracker");
  refused(command(dir, track + "pipe"), "it is not a file");
  CHECK(read_file(dir / checkpoint) == bytes);
  CHECK(read_file(dir / "ball.zip") == clip);
  CHECK(command(dir, track + "ball.safetensors").code == 0);
  CHECK(
      command(dir, "track -q -L ball.safetensors --train ball.zip --save ball.safetensors").code ==
      0);
  const std::string follow = "track -q -L ball.safetensors -f ball.zip --out ";
  refused(command(dir, follow + "directory.npy"), "it is a directory");
  refused(command(dir, follow + "pipe"), "it is not a file");
}

TEST_CASE("An evaluation knows before it begins where it can write", "[cli]") {
  const TempDir dir;
  fill(dir);
  const std::string evaluate =
      "evaluate -q -L run_000000020.safetensors --train ball.zip --test ball.zip ";
  refused(command(dir, evaluate + "--plot success.jpg"), "must end in .png");
  refused(command(dir, evaluate + "--json directory.npy"), "it is a directory");
  CHECK(command(dir, evaluate + "--json new/table.json").code == 0);
  CHECK(std::filesystem::exists(dir / "new" / "table.json"));
}
