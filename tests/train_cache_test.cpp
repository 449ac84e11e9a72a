// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// The frame cache: frames kept in the engine's store change only how often sources are read, not
/// what is learned.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/prefetch.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/train/checkpoints.hpp>
#include <pvm/train/feed.hpp>
#include <pvm/train/trainer.hpp>

#include "catch.hpp"
#include "train_helpers.hpp"
#include "train_sources.hpp"

namespace io = pvm::io;
using namespace train_test;

namespace {

constexpr std::size_t frame_bytes = 12 * 12 * 3;  // of tiny_spec
constexpr std::size_t all = pvm::share_of_free_memory;

using Trainer = pvm::Trainer<pvm::fp32, pvm::dynamic>;

/// Repeats `frames` generated frames, counts how often it is read, and can fail.
class Counting {
 public:
  Counting(std::atomic<int>& reads, std::uint64_t frames, std::string id = "counting")
      : inner_({.seed = 2, .frames = frames}), reads_(&reads), id_(std::move(id)) {}

  io::FrameInfo next(io::FrameShape wanted, std::span<std::uint8_t> pixels) {
    if (++*reads_ == fails_at) throw pvm::Error(pvm::Fault::source, "the source fails once");
    return inner_.next(wanted, pixels);
  }
  [[nodiscard]] io::Position position() const { return inner_.position(); }
  void seek(const io::Position& position) { inner_.seek(position); }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return std::nullopt; }
  [[nodiscard]] std::uint64_t skipped() const { return 0; }
  [[nodiscard]] std::string name() const { return "counting"; }
  [[nodiscard]] std::string replay_id() const { return id_; }

  int fails_at = -1;

 private:
  io::Synthetic inner_;
  std::atomic<int>* reads_;
  std::string id_;
};

/// Records how many streams of a batch were prepared before the first read.
class Prepared : public Counting {
 public:
  struct Notes {
    int prepared = 0;
    int prepared_before_first = -1;
  };
  Prepared(std::atomic<int>& reads, Notes& notes) : Counting(reads, 40), notes_(&notes) {}

  void prepare(const io::FrameShape& wanted) {
    notes_->prepared += wanted.size() == frame_bytes ? 1 : 1000;
  }
  io::FrameInfo next(io::FrameShape wanted, std::span<std::uint8_t> pixels) {
    if (notes_->prepared_before_first < 0) notes_->prepared_before_first = notes_->prepared;
    return Counting::next(wanted, pixels);
  }

 private:
  Notes* notes_;
};

/// The bits of the weights after `steps` steps, and how often the source was read.
std::pair<std::vector<float>, int> train_counting(std::uint64_t frames, std::size_t cache,
                                                  std::uint64_t steps) {
  std::atomic<int> reads = 0;
  Counting source(reads, frames);
  pvm::Trainer<> trainer(tiny_spec(), {.cache_bytes = cache});
  trainer.fit(source, pvm::Steps{steps});
  return {trainer.weights(), reads};
}

/// A callback that records the exact scores, which also show what pairs of frames are scored.
struct Scores {
  std::vector<double>* values;
  std::uint64_t next(std::uint64_t step) const { return pvm::next_multiple(step, 13); }
  void at(const pvm::Moment& moment) const {
    values->push_back(moment.score.prediction);
    values->push_back(moment.score.persistence);
    values->push_back(static_cast<double>(moment.score.pixels));
  }
};

/// Writes sources with some unreadable pictures, among them the last one.
void write_unreadable_too(const TempDir& dir, std::uint64_t frames) {
  write_sources(dir, frames, [=](std::uint64_t i) { return i % 9 == 4 || i + 1 == frames; });
}

struct Outcome {
  std::string checkpoint;
  std::vector<double> scores;
  std::uint64_t skipped = 0;
  bool operator==(const Outcome&) const = default;
};

/// Trains up to each of the steps `ends` in turn, continuing from a checkpoint each time.
Outcome run(const TempDir& dir, const std::vector<std::string>& paths, int batch, std::size_t cache,
            const std::vector<std::uint64_t>& ends) {
  const std::string prefix = (dir / "run").string();
  Outcome outcome;
  std::string path;
  for (const std::uint64_t end : ends) {
    std::vector<io::Opener> openers;
    for (const auto& source : paths) openers.push_back(io::opener(source));
    auto streams = io::deal(std::move(openers), static_cast<std::size_t>(batch));
    const pvm::TrainerOptions options{.batch = batch, .cache_bytes = cache};
    pvm::Checkpoints checkpoints(prefix, 0);
    std::optional<Trainer> trainer;
    if (path.empty()) {
      trainer.emplace(tiny_spec(), options);
    } else {
      trainer.emplace(io::load_checkpoint(path), options);
    }
    const auto result =
        trainer->fit(streams, pvm::Steps{end}, checkpoints, Scores{&outcome.scores});
    outcome.skipped = result.skipped;
    path = checkpoints.latest();
  }
  outcome.checkpoint = read_file(path);
  for (const auto& name : names_in(dir.path())) {
    if (name.starts_with("run_")) std::filesystem::remove(dir / name);
  }
  return outcome;
}

/// What the machine has left, as a Feed is told.
std::size_t free_memory = std::numeric_limits<std::size_t>::max();

}  // namespace

TEST_CASE("Frames that are kept make room when memory is short", "[train][cache]") {
  const TempDir dir;
  write_sources(dir, 30);
  const auto frames_of = [&](bool runs_short) {
    free_memory = std::numeric_limits<std::size_t>::max();
    auto streams = io::deal({io::opener((dir / "a.zip").string())}, 1);
    auto engine = pvm::AnyEngine::make<pvm::HostEngine<1>>(tiny_spec());
    const int side = tiny_spec().frame_side();
    pvm::Feed feed(streams, {side, side, 3}, engine, 1 << 20, [] { return free_memory; });
    std::vector<io::StreamState> states{{streams.front().position(), 0, ""}};
    std::vector<std::uint8_t> all, frame(frame_bytes);
    for (int block = 0; block < 12; ++block) {  // more than three passes
      if (block == 6) {
        CHECK_FALSE(feed.memory_is_short());
        CHECK(feed.cached_bytes() == 30 * frame_bytes);
      }
      if (block == 7 && runs_short) {
        free_memory = 1 << 20;
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // it is looked at rarely
        CHECK(feed.memory_is_short());
        feed.give_way();
        CHECK(feed.cached_bytes() == 0);
        CHECK_FALSE(feed.memory_is_short());
      }
      const pvm::FrameBlock room = engine.stage(8);
      REQUIRE(feed.fill(room, states) == 8);
      for (std::size_t row = 0; row < 8; ++row) {
        if (!room.stored.empty() && room.stored[row] != pvm::not_stored) {
          engine.read_frame(room.stored[row], frame);
        } else {
          std::copy_n(room.pixels.begin() + static_cast<std::ptrdiff_t>(row * frame_bytes),
                      frame_bytes, frame.begin());
        }
        all.insert(all.end(), frame.begin(), frame.end());
      }
    }
    return all;
  };
  const auto kept = frames_of(false);
  CHECK(kept.size() == 96 * frame_bytes);
  CHECK(frames_of(true) == kept);
}

TEST_CASE("An engine's steps are the same from its store as from the block", "[train][cache]") {
  const pvm::Spec spec = tiny_spec();
  constexpr std::size_t batch = 2;
  constexpr std::size_t rows = 3 * batch;
  const auto weights_after = [&](const std::vector<bool>& from_store) {
    pvm::HostEngine<> engine(spec, static_cast<int>(batch));
    pvm::EngineState start;
    start.batch = static_cast<int>(batch);
    start.weights.assign(engine.connectome().weights, 0.01F);
    engine.restore(start);
    CHECK(engine.stage(3).stored.empty());
    CHECK(engine.reserve_frames(10 * frame_bytes + 5, 4'000) == 10);
    CHECK(engine.reserve_frames(10 * frame_bytes + 5, 5'000) == 10);  // grows no more
    std::vector<std::uint8_t> frames(rows * frame_bytes);
    for (std::size_t i = 0; i < frames.size(); ++i) {
      frames[i] = static_cast<std::uint8_t>(i * i % 251);
    }
    engine.store_frames(4, frames);
    std::vector<std::uint8_t> back(frame_bytes);
    engine.read_frame(6, back);
    CHECK(std::equal(back.begin(), back.end(), frames.begin() + 2 * frame_bytes));
    for (int block = 0; block < 20; ++block) {
      const pvm::FrameBlock staged = engine.stage(3);
      REQUIRE(staged.stored.size() == rows);
      for (std::size_t row = 0; row < rows; ++row) {
        CHECK(staged.stored[row] == pvm::not_stored);
        std::uint8_t* const pixels = staged.pixels.data() + row * frame_bytes;
        if (from_store[row]) {
          staged.stored[row] = static_cast<std::uint32_t>(4 + row);
          std::fill_n(pixels, frame_bytes, std::uint8_t{77});  // must not be read
        } else {
          std::copy_n(frames.data() + row * frame_bytes, frame_bytes, pixels);
        }
      }
      engine.run(staged, pvm::Mode::learn);
    }
    std::vector<float> weights(engine.connectome().weights);
    engine.read_weights(weights);
    CHECK(engine.reserve_frames(0, 0) == 0);
    CHECK(engine.stage(1).stored.empty());
    return weights;
  };
  const auto plain = weights_after(std::vector<bool>(rows, false));
  CHECK(weights_after(std::vector<bool>(rows, true)) == plain);
  CHECK(weights_after({true, false, false, true, true, false}) == plain);
}

TEST_CASE("A source is read once and replayed from memory", "[train][cache]") {
  for (const std::uint64_t frames : {1U, 5U, 32U, 75U}) {
    INFO(frames << " frames");
    const auto plain = train_counting(frames, 0, 400);
    CHECK(plain.second == 400);
    const auto cached = train_counting(frames, all, 400);
    CHECK(cached.first == plain.first);
    // Blocks of 32 steps are filled from the source until a block begins behind the first pass.
    CHECK(cached.second == static_cast<int>(frames));
  }
}

TEST_CASE("What does not fit is read again, and only that", "[train][cache]") {
  const auto plain = train_counting(50, 0, 500);
  const auto half = train_counting(50, 20 * frame_bytes, 500);
  CHECK(half.first == plain.first);
  CHECK(half.second == 10 * 30 + 20);
  const auto none = train_counting(50, frame_bytes - 1, 500);
  CHECK(none.first == plain.first);
  CHECK(none.second == 500);
}

TEST_CASE("What is read ahead on a thread is not more than does not fit", "[train][cache]") {
  struct OfKnownLength : Counting {
    using Counting::Counting;
    [[nodiscard]] std::optional<std::uint64_t> length() const { return 100; }
  };
  constexpr int ahead = 64;
  std::atomic<int> reads = 0;
  io::Prefetch source(OfKnownLength(reads, 100), ahead);
  pvm::Trainer<> trainer(tiny_spec(), {.cache_bytes = 90 * frame_bytes});
  trainer.fit(source, pvm::Steps{1000});
  CHECK(trainer.weights() == train_counting(100, 0, 1000).first);
  CHECK(reads <= 100 + ahead + 10 * 10);
}

TEST_CASE("Sources that do not say that they repeat are never kept", "[train][cache]") {
  const Messages messages;
  std::atomic<int> reads = 0;
  Counting source(reads, 10, "");
  pvm::Trainer<> trainer(tiny_spec());
  trainer.fit(source, pvm::Steps{300});
  CHECK(reads == 300);
  io::Synthetic synthetic;
  CHECK(io::replay_id(synthetic).empty());
  CHECK(io::replay_id(io::AnySource(io::Synthetic{})).empty());
  CHECK_FALSE(messages.mention("frame cache"));
}

TEST_CASE("One line says what is kept", "[train][cache]") {
  const Messages messages;
  train_counting(40, all, 300);
  CHECK(messages.mention("frame cache: all 40 frames"));
  train_counting(40, 7 * frame_bytes, 300);
  CHECK(messages.mention("frame cache: it is full (7 frames"));
}

TEST_CASE("All streams are prepared before one is read", "[train][cache]") {
  for (const std::size_t cache : {all, std::size_t{0}}) {
    std::atomic<int> reads = 0;
    Prepared::Notes notes;
    std::vector<Prepared> streams(3, Prepared(reads, notes));
    Trainer trainer(tiny_spec(), {.batch = 3, .cache_bytes = cache});
    trainer.fit(streams, pvm::Steps{100});
    CHECK(notes.prepared_before_first == 3);
    CHECK(notes.prepared == 3);
  }
}

TEST_CASE("Streams of one file share its frames", "[train][cache]") {
  std::atomic<int> reads = 0;
  std::vector<Counting> streams;
  for (std::uint64_t b = 0; b < 4; ++b) {
    streams.emplace_back(reads, 80);
    streams.back().seek({0, b * 20, 0});
  }
  Trainer trainer(tiny_spec(), {.batch = 4});
  trainer.fit(streams, pvm::Steps{400});
  CHECK(reads < 80 + 4 * 32);  // at most a block beyond each one's quarter
}

TEST_CASE("A file that is kept is decoded once, whatever the batch", "[train][cache]") {
  const TempDir dir;
  const Messages messages;
  constexpr std::uint64_t frames = 50;  // 6 of those in the directory are unreadable
  write_unreadable_too(dir, frames);
  const auto decoded = [&](const char* name, int batch) {
    auto streams = io::deal({io::opener((dir / name).string())}, static_cast<std::size_t>(batch));
    Trainer trainer(tiny_spec(), {.batch = batch});
    trainer.fit(streams, pvm::Steps{120});
    const pvm::Report& report = trainer.report();
    REQUIRE(report.stages.size() == 2);
    CHECK(report.stages[1].name == "decode and resize");
    CHECK(report.stages[0].frames == report.stages[1].frames);
    return report.stages[1].frames;
  };
  for (const int batch : {1, 2, 4, 7, 16, 49}) {
    INFO("batch " << batch);
    CHECK(decoded("a.zip", batch) == frames);
    const auto bad = decoded("pictures", batch);
    CHECK(bad >= frames);
    CHECK(bad <= frames + 6);  // again those at which another stream begins, behind a bad one
  }
  CHECK(decoded("a.zip", 120) <= frames + 5);  // those that begin at the last frame: see Feed
  for (const char* bad : {"'4.png'", "'13.png'", "'40.png'", "'49.png'"}) {
    CHECK(messages.count(bad) == 6);  // once for each batch
  }
}

TEST_CASE("Training is the same with and without a cache", "[train][cache]") {
  const TempDir dir;
  write_unreadable_too(dir, 50);
  const std::vector<std::pair<const char*, std::vector<std::string>>> kinds = {
      {"zip", {(dir / "a.zip").string()}},
      {"video", {(dir / "a.avi").string()}},
      {"directory", {(dir / "pictures").string()}},
      {"several",
       {(dir / "a.zip").string(), (dir / "pictures").string(), (dir / "a.avi").string()}}};
  for (const auto& [kind, paths] : kinds) {
    for (const int batch : {1, 3, 7}) {
      INFO(kind << ", batch " << batch);
      const Outcome plain = run(dir, paths, batch, 0, {230});
      REQUIRE(plain.checkpoint.size() > 10'000);
      CHECK(run(dir, paths, batch, all, {230}) == plain);
      CHECK(run(dir, paths, batch, 17 * frame_bytes, {230}) == plain);
      CHECK(run(dir, paths, batch, all, {1, 33, 120, 121, 230}).checkpoint == plain.checkpoint);
      CHECK(run(dir, paths, batch, 60 * frame_bytes, {111, 230}).checkpoint == plain.checkpoint);
    }
  }
}

TEST_CASE("A second fit goes on where the first has ended", "[train][cache]") {
  std::atomic<int> reads = 0;
  Counting straight(reads, 40), parts(reads, 40);
  pvm::Trainer<> one(tiny_spec()), two(tiny_spec());
  one.fit(straight, pvm::Steps{300});
  for (const std::uint64_t end : {10, 95, 96, 215, 300}) two.fit(parts, pvm::Steps{end});
  CHECK(two.weights() == one.weights());

  for (const std::size_t cache : {std::size_t{0}, all}) {  // also behind a failure
    reads = 0;
    Counting failing(reads, 40);
    failing.fails_at = 35;
    pvm::Trainer<> trainer(tiny_spec(), {.cache_bytes = cache});
    CHECK(contains(error_of([&] { trainer.fit(failing, pvm::Steps{300}); }), "fails once"));
    CHECK(trainer.step() == 32);
    trainer.fit(failing, pvm::Steps{300});
    CHECK(trainer.weights() == one.weights());
  }
}

TEST_CASE("The last frame is known wherever it lies", "[train][cache]") {
  std::atomic<int> reads = 0;
  Counting source(reads, 20);
  pvm::Trainer<> trainer(tiny_spec());
  CHECK(trainer.last_frame().empty());
  for (const std::uint64_t steps : {7, 33, 90, 130}) {
    trainer.fit(source, pvm::Steps{steps});
    io::Synthetic same({.seed = 2, .frames = 20});
    same.seek({0, (steps - 1) % 20, 0});
    std::vector<std::uint8_t> wanted(frame_bytes);
    same.next(trainer.frame_shape(), wanted);
    const auto last = trainer.last_frame();
    CHECK(std::equal(last.begin(), last.end(), wanted.begin(), wanted.end()));
  }
}

TEST_CASE("Labels come with the frames of the cache as with those of the source",
          "[train][cache]") {
  const TempDir dir;
  write_sources(dir, 6);
  const auto labels = [&](std::size_t cache) {
    auto streams = io::deal({io::opener((dir / "a.zip").string())}, 1);
    Trainer trainer(tiny_spec(), {.batch = 1, .cache_bytes = cache});
    std::vector<io::Label> seen;
    for (std::uint64_t step = 1; step <= 15; ++step) {
      trainer.fit(streams, pvm::Steps{step});
      seen.push_back(trainer.last_label());
    }
    return seen;
  };
  const auto seen = labels(0);
  CHECK(seen == labels(all));
  CHECK(seen[0].state == io::LabelState::present);
  CHECK_FALSE(seen[0] == seen[3]);
  for (std::size_t i = 6; i < seen.size(); ++i) CHECK(seen[i] == seen[i - 6]);

  auto streams = io::deal({io::opener((dir / "a.zip").string())}, 1);
  Trainer trainer(tiny_spec(), {.batch = 1});
  std::vector<io::Label> replayed;
  struct Note {
    std::vector<io::Label>& labels;
    static std::uint64_t next(std::uint64_t step) { return step + 1; }
    void at(const pvm::Moment& moment) const { labels.push_back(moment.trainer.last_label()); }
  };
  trainer.fit(streams, pvm::Steps{15}, Note{replayed});
  CHECK(replayed == seen);
}
