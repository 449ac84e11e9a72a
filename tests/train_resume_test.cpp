// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// A run that was stopped and continued gives the same bytes as a run that was not.

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/train/checkpoints.hpp>
#include <pvm/train/trainer.hpp>

#include "catch.hpp"
#include "train_helpers.hpp"
#include "train_sources.hpp"

namespace io = pvm::io;
using namespace train_test;

namespace {

std::vector<io::Opener> openers_of(const std::vector<std::string>& paths) {
  std::vector<io::Opener> openers;
  for (const auto& path : paths) openers.push_back(io::opener(path));
  return openers;
}

using Trainer = pvm::Trainer<pvm::fp32, pvm::dynamic>;

/// Runs in the given parts, each continuing from the checkpoint file of the part before, and
/// returns the bytes of the last file.
std::string run(const TempDir& dir, const std::vector<std::string>& paths, int batch,
                const std::vector<std::uint64_t>& ends) {
  const std::string prefix = (dir / "run").string();
  std::string path;
  for (const std::uint64_t end : ends) {
    auto streams = io::deal(openers_of(paths), static_cast<std::size_t>(batch));
    const pvm::TrainerOptions options{.batch = batch};
    pvm::Checkpoints checkpoints(prefix, 1000);
    if (path.empty()) {
      Trainer(tiny_spec(), options).fit(streams, pvm::Steps{end}, checkpoints);
    } else {
      Trainer(io::load_checkpoint(path), options).fit(streams, pvm::Steps{end}, checkpoints);
    }
    path = checkpoints.latest();
  }
  std::string bytes = read_file(path);
  for (const auto& name : names_in(dir.path())) {
    if (name.starts_with("run_")) std::filesystem::remove(dir / name);
  }
  return bytes;
}

}  // namespace

TEST_CASE("Resumed and uninterrupted runs end in the same bytes", "[train][resume]") {
  const TempDir dir;
  write_sources(dir, 50);
  const std::vector<std::pair<const char*, std::vector<std::string>>> kinds = {
      {"synthetic", {"synthetic:4"}},
      {"zip", {(dir / "a.zip").string()}},
      {"video", {(dir / "a.avi").string()}},
      {"directory", {(dir / "pictures").string()}},
      {"several",
       {(dir / "a.zip").string(), (dir / "pictures").string(), (dir / "a.avi").string()}}};
  for (const auto& [kind, paths] : kinds) {
    for (const int batch : {1, 2, 3, 5}) {
      INFO(kind << ", batch " << batch);
      const std::string straight = run(dir, paths, batch, {230});
      REQUIRE(straight.size() > 10'000);
      CHECK(run(dir, paths, batch, {1, 2, 50, 101, 230}) == straight);
      CHECK(run(dir, paths, batch, {137, 150, 230}) == straight);
    }
  }
}

TEST_CASE("Callbacks that cut blocks change no bit", "[train][resume]") {
  struct Every {
    std::uint64_t steps;
    std::uint64_t next(std::uint64_t step) const { return step + steps; }
    void at(const pvm::Moment& moment) const { static_cast<void>(moment.trainer.checkpoint()); }
  };
  const auto weights_after = [](auto... callbacks) {
    io::Synthetic frames;
    pvm::Trainer<> trainer(tiny_spec());
    trainer.fit(frames, pvm::Steps{100}, callbacks...);
    return trainer.weights();
  };
  const auto plain = weights_after();
  CHECK(weights_after(Every{1}) == plain);
  CHECK(weights_after(Every{7}, Every{3}) == plain);
}

TEST_CASE("One fit or several: the same", "[train][resume]") {
  io::Synthetic a, b;
  pvm::Trainer<> one(tiny_spec()), other(tiny_spec());
  one.fit(a, pvm::Steps{90});
  other.fit(b, pvm::Steps{33});
  other.fit(b, pvm::Steps{90});
  CHECK(one.weights() == other.weights());
  CHECK(one.checkpoint().streams == other.checkpoint().streams);
}

TEST_CASE("Thread counts do not show", "[train]") {
  io::Synthetic a, b;
  pvm::Trainer<> one(tiny_spec(), {.threads = 1}), three(tiny_spec(), {.threads = 3});
  one.fit(a, pvm::Steps{60});
  three.fit(b, pvm::Steps{60});
  CHECK(one.weights() == three.weights());
}

TEST_CASE("First weights are those of the seed", "[train]") {
  pvm::Trainer<> a(tiny_spec(), {.seed = 1}), b(tiny_spec(), {.seed = 1}),
      c(tiny_spec(), {.seed = 2});
  CHECK(a.weights() == b.weights());
  CHECK(a.weights() != c.weights());
  for (const float w : a.weights()) REQUIRE((w >= -0.015F && w < 0.015F));
}

TEST_CASE("Another source than the checkpoint's is read from its beginning", "[train][resume]") {
  io::Synthetic before({.seed = 1}), after({.seed = 2});
  pvm::Trainer<> trainer(tiny_spec());
  trainer.fit(before, pvm::Steps{20});
  pvm::Trainer<> next(trainer.checkpoint());
  const Messages messages;
  next.fit(after, pvm::Steps{30});
  CHECK(messages.mention("'synthetic:1'"));
  CHECK(after.position().frame == 10);
}

TEST_CASE("A file whose name is no UTF-8 is known again", "[train][resume]") {
  const TempDir dir;
  write_sources(dir, 50);
  std::filesystem::rename(dir / "a.zip", dir / "caf\xe9.zip");
  const std::vector<std::string> paths = {(dir / "caf\xe9.zip").string()};
  const Messages messages;
  CHECK(run(dir, paths, 1, {20, 70}) == run(dir, paths, 1, {70}));
  CHECK_FALSE(messages.mention("came from"));
}

TEST_CASE("A data set of other files is not taken for the checkpoint's", "[train][resume]") {
  const TempDir dir;
  write_sources(dir, 20);
  const auto path = [&](const char* name) { return (dir / name).string(); };
  std::filesystem::copy(dir / "a.zip", dir / "b.zip");
  std::filesystem::copy(dir / "a.zip", dir / "c.zip");
  const auto warnings = [&](const io::Checkpoint& from, const std::vector<std::string>& paths) {
    const Messages messages;
    auto streams = io::deal(openers_of(paths), 1);
    Trainer resumed(from, {.batch = 1});
    resumed.fit(streams, pvm::Steps{60});
    return messages.count("read from its beginning");
  };
  auto streams = io::deal(openers_of({path("a.zip"), path("b.zip"), path("a.avi")}), 1);
  Trainer trainer(tiny_spec(), {.batch = 1});
  trainer.fit(streams, pvm::Steps{50});
  const auto checkpoint = trainer.checkpoint();
  CHECK(warnings(checkpoint, {path("a.zip"), path("b.zip"), path("a.avi")}) == 0);
  std::filesystem::rename(dir / "b.zip", dir / "elsewhere");  // in its place, but not there now
  CHECK(warnings(checkpoint, {path("a.zip"), path("b.zip"), path("a.avi")}) == 0);
  CHECK(warnings(checkpoint, {path("a.zip"), path("c.zip"), path("a.avi")}) == 1);
  CHECK(warnings(checkpoint, {path("a.avi"), path("a.zip"), path("elsewhere")}) == 1);
  CHECK(warnings(checkpoint, {path("a.zip"), path("a.avi")}) == 1);
}

TEST_CASE("Of several files, and of a directory, one that was replaced is named",
          "[train][resume]") {
  const TempDir dir;
  write_sources(dir, 20);
  const auto path = [&](const char* name) { return (dir / name).string(); };
  std::filesystem::copy(dir / "a.zip", dir / "b.zip");
  io::Synthetic others({.seed = 9});
  io::write_published_zip(dir / "other.zip", others, shape, 20);
  const auto trained = [&](const std::vector<std::string>& paths, std::size_t batch) {
    auto streams = io::deal(openers_of(paths), batch);
    Trainer trainer(tiny_spec(), {.batch = static_cast<int>(batch)});
    trainer.fit(streams, pvm::Steps{5});
    io::save_checkpoint(dir / "run.safetensors", trainer.checkpoint());
  };
  const auto said = [&](const std::vector<std::string>& paths, std::size_t batch,
                        const std::string& file) {
    const Messages messages;
    auto streams = io::deal(openers_of(paths), batch);
    Trainer resumed(io::load_checkpoint(dir / "run.safetensors"),
                    {.batch = static_cast<int>(batch)});
    resumed.fit(streams, pvm::Steps{9});
    CHECK(messages.count("is not the file") == messages.count("'" + file + "' is not the file"));
    return messages.count("is not the file");
  };
  const std::vector<std::string> set = {path("a.zip"), path("b.zip"), path("a.avi")};
  trained(set, 1);
  CHECK(said(set, 1, "") == 0);
  std::filesystem::rename(dir / "b.zip", dir / "kept.zip");
  CHECK(said(set, 1, "") == 0);  // one that is not there now is another matter
  std::filesystem::copy(dir / "other.zip", dir / "b.zip");
  CHECK(said(set, 1, "b.zip") == 1);
  trained({path("b.zip")}, 3);  // three streams of one file: one warning
  std::filesystem::rename(dir / "kept.zip", dir / "b.zip");
  CHECK(said({path("b.zip")}, 3, "b.zip") == 1);

  trained({path("pictures")}, 1);
  CHECK(said({path("pictures")}, 1, "") == 0);
  std::filesystem::copy(dir / "pictures" / "3.png", dir / "pictures" / "21.png");
  CHECK(said({path("pictures")}, 1, "pictures") == 1);

  auto old = io::load_checkpoint(dir / "run.safetensors");  // as versions before wrote it
  for (io::StreamState& stream : old.streams) stream.mark.clear();
  io::save_checkpoint(dir / "run.safetensors", old);
  CHECK(said({path("pictures")}, 1, "") == 0);
}

TEST_CASE("What does not fit together is refused", "[train]") {
  io::Synthetic frames;
  Trainer two(tiny_spec(), {.batch = 2});
  CHECK(contains(error_of([&] { two.fit(frames, pvm::Steps{5}); }), "io::deal"));
  pvm::Trainer<> one(tiny_spec());
  one.fit(frames, pvm::Steps{5});
  CHECK(contains(error_of([&] { two.restore(one.checkpoint()); }), "a batch of 1"));
  CHECK_FALSE(error_of([] { pvm::Trainer<>{pvm::Spec{}}; }).empty());
#if !defined(__CUDACC__)
  CHECK(
      contains(error_of([] { pvm::Trainer<>(tiny_spec(), {.backend = pvm::BackendChoice::cuda}); }),
               "without CUDA"));
#endif
}

TEST_CASE("Freezing changes no weight", "[train]") {
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  trainer.fit(frames, pvm::Steps{30});
  pvm::Trainer<> frozen(trainer.checkpoint(), {.mode = pvm::Mode::freeze});
  const auto before = frozen.weights();
  frozen.fit(frames, pvm::Steps{60});
  CHECK(frozen.step() == 60);
  const auto after = frozen.weights();
  for (std::size_t i = 0; i < before.size(); ++i) REQUIRE(std::abs(before[i] - after[i]) < 1e-6F);
}

TEST_CASE("A resumed run goes on at the rates of the spec that is named", "[train][resume]") {
  const TempDir dir;
  const std::string prefix = (dir / "run").string();
  constexpr std::uint64_t change = 50, end = 90;
  const auto weights_of = [&](const pvm::Spec& before, const pvm::Spec& after) {
    const pvm::TrainerOptions options{.batch = 2};
    const auto fit = [&](Trainer trainer, std::uint64_t to) {
      auto streams = io::deal(openers_of({"synthetic:4"}), 2);
      pvm::Checkpoints checkpoints(prefix, 0);
      trainer.fit(streams, pvm::Steps{to}, checkpoints);
      return trainer.weights();
    };
    fit(Trainer(before, options), change);
    return fit(
        Trainer(io::load_checkpoint(pvm::Checkpoints::path_at(prefix, change), &after), options),
        end);
  };
  for (const char* rule : {"", "adam"}) {
    INFO(rule);
    auto slow = tiny_spec();
    slow.learning_rule = *rule == '\0' ? slow.learning_rule : rule;
    slow.delay_final_learning_rate = std::nullopt;
    auto fast = slow, faster_from_there = slow, faster_before = slow, heavier = slow;
    fast.initial_learning_rate = faster_from_there.final_learning_rate = 0.04;
    faster_from_there.delay_final_learning_rate = change;
    faster_before.delay_final_learning_rate = change - 1;
    faster_before.final_learning_rate = 0.04;
    heavier.momentum = 0.3;
    const auto unchanged = weights_of(slow, slow);
    const auto named = weights_of(slow, fast);
    CHECK(named != unchanged);
    CHECK(named == weights_of(faster_from_there, faster_from_there));
    CHECK(named == weights_of(slow, faster_before));  // also where the switch has gone by
    CHECK((weights_of(slow, heavier) != unchanged) == (*rule == '\0'));  // Adam has its own
  }
}

TEST_CASE("A checkpoint from before the first fit is the start of a run", "[train][resume]") {
  const TempDir dir;
  const Messages messages;
  const pvm::TrainerOptions options{.batch = 2};
  io::save_checkpoint(dir / "start.safetensors", Trainer(tiny_spec(), options).checkpoint());
  Trainer loaded(io::load_checkpoint(dir / "start.safetensors"), options);
  Trainer made(tiny_spec(), options);
  for (Trainer* trainer : {&loaded, &made}) {
    auto streams = io::deal(openers_of({"synthetic:4"}), 2);
    trainer->fit(streams, pvm::Steps{20});
  }
  CHECK(loaded.weights() == made.weights());
  CHECK_FALSE(messages.mention("came from"));
}

TEST_CASE("Another network's checkpoint is refused, and changes nothing", "[train][resume]") {
  io::Synthetic frames;
  pvm::Trainer<> trained(tiny_spec());
  trained.fit(frames, pvm::Steps{30});
  auto checkpoint = trained.checkpoint();
  auto other = tiny_spec();
  other.activation = pvm::ActivationKind::logistic;
  pvm::Trainer<> trainer(other);
  const auto before = trainer.weights();
  CHECK(contains(error_of([&] { trainer.restore(checkpoint); }), "'polynomial'"));
  checkpoint.spec = other;
  checkpoint.state.hidden.pop_back();
  CHECK(contains(error_of([&] { trainer.restore(checkpoint); }), "hidden values"));
  CHECK(trainer.step() == 0);
  CHECK(trainer.weights() == before);
}

TEST_CASE("Another learning rule counts, with a warning that says so", "[train][resume]") {
  const TempDir dir;
  io::save_checkpoint(dir / "a.safetensors", pvm::Trainer<>(tiny_spec()).checkpoint());
  auto other = tiny_spec();
  other.learning_rule = "adam";
  const Messages messages;
  CHECK(io::load_checkpoint(dir / "a.safetensors", &other).spec.learning_rule == "adam");
  CHECK(messages.mention("it learned by rule 'momentum'"));
  CHECK_FALSE(messages.mention("rates"));
}

TEST_CASE("Streams may be of any range that lies in one piece", "[train]") {
  std::array<io::Synthetic, 2> array;
  io::Synthetic plain[2];
  pvm::Trainer<pvm::fp32, 2> trainer(tiny_spec());
  trainer.fit(array, pvm::Steps{10});
  trainer.fit(plain, pvm::Steps{20});
  trainer.fit(std::span<io::Synthetic, 2>(plain), pvm::Steps{30});
  CHECK(trainer.step() == 30);
}
