// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// From sources to blocks of frames: decoded the first time, from the engine's store after that.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/log.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/usage.hpp>
#include <pvm/train/frame_cache.hpp>
#include <pvm/train/report.hpp>

namespace pvm::inline v0 {

/// Fills blocks with the frames of `streams`, one for every sequence of the batch. Sources that
/// repeat themselves (`io::replay_id`) are read once: their frames go into the engine's store, and
/// blocks then hold indices. Streams of one id share their frames. What blocks hold, and where the
/// run stands after each, is the same without a store; where the sources themselves stand is not.
template <io::FrameSource S>
class Feed {
 public:
  using Places = std::vector<io::StreamState>;

  /// `cache_bytes`: see FrameCache.
  Feed(std::span<S> streams, const io::FrameShape& shape, AnyEngine& engine,
       std::size_t cache_bytes)
      : shape_(shape), engine_(engine), cache_(engine, shape.size(), cache_bytes) {
    for (S& source : streams) {
      const std::string id = io::replay_id(source);
      FrameTable* const table =
          id.empty() || cache_bytes == 0 ? nullptr : &cache_.table(id, source.length());
      streams_.push_back({&source, table, source.position(), source.skipped(),
                          id.empty() ? nullptr : &unreadable_[id]});
    }
    for (S& source : streams) io::add_usage(usage_before_, io::usage(source));
    if (!cache_.open()) {
      for (Stream& stream : streams_) stream.table = nullptr;
      told_ = true;
    }
    say_what_is_kept();
  }

  /// Sources may keep a block waiting for so many seconds.
  static constexpr double patience = 0.1;

  /// Fills `block`, and moves `places`, one for each stream, behind its frames. Returns how many of
  /// its steps there are: at least one, and not all where sources are slow, as a camera is. What
  /// has come is learned then, and a run can be stopped, before more comes. A source is sought
  /// where it does not stand at its place. Throws what sources throw.
  int fill(const FrameBlock& block, Places& places) {
    if (!std::exchange(begun_, true)) {
      for (Stream& stream : streams_) io::prepare(*stream.source, shape_);
    }
    decoded_ = 0;
    const double too_long = waiting_ + patience;
    int steps = 0;
    do {
      for (std::size_t b = 0; b < streams_.size(); ++b) {
        const std::size_t row = static_cast<std::size_t>(steps) * streams_.size() + b;
        std::uint64_t& since = places[b].frames_since_start;
        if (take(streams_[b], block, row, places[b].position, since == 0)) since = 0;
        block.scored[row] = since >= 2 ? 1 : 0;
        ++since;
      }
      ++steps;
    } while (steps < block.steps && waiting_ < too_long);
    store(block);
    if (keeping_ && cache_.full()) say_what_is_kept();
    if (!told_) tell();
    return steps;
  }

  /// Adds what it has done so far to `report`.
  void tell(Report& report) const {
    report.waiting += waiting_;
    report.replayed += replayed_;
    std::vector<io::StageUsage> stages;
    for (const Stream& stream : streams_) io::add_usage(stages, io::usage(*stream.source));
    io::add_usage(report.stages, io::usage_since(usage_before_, std::move(stages)));
  }

  /// Whether `fill` has thrown what a source threw.
  [[nodiscard]] bool source_failed() const noexcept { return in_source_; }

  /// Unreadable frames met so far, each counted once, however many streams share a source.
  [[nodiscard]] std::uint64_t skipped() const {
    std::uint64_t sum = 0;
    for (const Stream& stream : streams_) {
      if (stream.unreadable == nullptr) sum += stream.source->skipped() - stream.skips;
    }
    for (const auto& [id, frames] : unreadable_) sum += frames.size();
    return sum;
  }

 private:
  using Unreadable = std::set<std::pair<std::uint64_t, std::uint64_t>>;  // (sequence, frame)

  struct Stream {
    S* source;
    FrameTable* table;                       ///< null: its frames are not kept
    io::Position at;                         ///< where the source stands
    std::uint64_t skips;                     ///< what it says of unreadable frames
    Unreadable* unreadable = nullptr;        ///< those of its id, if it has one
    std::uint32_t entry = FrameTable::none;  ///< of the next frame, while it replays
  };

  struct Stored {
    std::size_t row;
    std::uint32_t slot;
  };

  /// Whether the frame starts a sequence.
  bool take(Stream& stream, const FrameBlock& block, std::size_t row, io::Position& position,
            bool first) {
    if (stream.table == nullptr) return decode(stream, block, row, position, first);
    const bool replaying = stream.entry != FrameTable::none;
    if (!replaying) stream.entry = stream.table->find(position);
    if (stream.entry == FrameTable::none) return decode(stream, block, row, position, first);
    if (!replaying && cache_.full()) prepare(stream, position.pass);
    return replay(stream, block, row, position);
  }

  bool replay(Stream& stream, const FrameBlock& block, std::size_t row, io::Position& position) {
    const FrameTable::Entry& entry = (*stream.table)[stream.entry];
    block.stored[row] = entry.slot;
    ++replayed_;
    position = {entry.after.sequence, entry.after.frame, position.pass + entry.after.pass};
    const bool starts = entry.starts;
    stream.entry = stream.table->next(stream.entry);
    return starts;
  }

  bool decode(Stream& stream, const FrameBlock& block, std::size_t row, io::Position& position,
              bool first) {
    const auto pixels = block.pixels.subspan(row * shape_.size(), shape_.size());
    io::Stopwatch watch;
    in_source_ = true;
    if (stream.at != position) stream.source->seek(position);
    const io::FrameInfo info = stream.source->next(shape_, pixels);
    in_source_ = false;
    waiting_ += watch.lap();
    stream.at = stream.source->position();
    ++decoded_;
    const io::Position before = std::exchange(position, stream.at);
    remember(stream, row, before, info.starts_sequence, first);
    if (stream.unreadable != nullptr) note_unreadable(stream, before);
    return info.starts_sequence;
  }

  /// Gives the frame in `row` a place in the store, if it is to have one.
  void remember(Stream& stream, std::size_t row, const io::Position& before, bool starts,
                bool first) {
    if (stream.table == nullptr || stream.table->find(before) != FrameTable::none) return;
    const io::Position& after = stream.at;
    const bool at_start =
        before.frame == 0 || before.sequence != after.sequence || before.pass != after.pass;
    // The first frame of a stream is a start wherever it lies in its file, and no start when it
    // comes again. Where that cannot be told apart it is not kept.
    if (first && before.frame != 0 && at_start) return;
    const auto slot = cache_.take_slot();
    if (!slot) return;
    stream.table->add(before, after, *slot, starts && at_start);
    new_.push_back({row, *slot});
  }

  /// Notes the frames between `before` and the one that was delivered from there.
  static void note_unreadable(Stream& stream, const io::Position& before) {
    const io::Position& after = stream.at;
    const std::uint64_t skips = std::exchange(stream.skips, stream.source->skipped());
    const bool moved_on = after.sequence != before.sequence || after.pass != before.pass;
    // Frames before the one that was delivered, in the sequence in which the source stands now.
    const std::uint64_t end = after.frame == 0 ? 0 : after.frame - 1;
    for (std::uint64_t i = moved_on ? 0 : before.frame; i < end; ++i) {
      stream.unreadable->emplace(after.sequence, i);
    }
    if (!moved_on) return;
    std::uint64_t tail = stream.skips - std::min(skips, stream.skips);  // of the one before
    tail -= std::min(tail, end);
    if (const auto length = stream.source->length()) {
      tail = *length - before.frame - (after.frame == 0 ? 1 : 0);
    }
    for (std::uint64_t i = 0; i < tail; ++i) {
      stream.unreadable->emplace(before.sequence, before.frame + i);
    }
  }

  /// A frame that is kept is decoded once, whichever of its streams came to it first.
  void say_what_is_kept() {
    keeping_ = !cache_.full();
    for (Stream& stream : streams_) {
      io::expect_once(*stream.source, keeping_ && stream.table != nullptr);
    }
  }

  /// Sends the source ahead to what comes behind the stored frames, so that it is there in time,
  /// and no further than up to what is stored again.
  void prepare(Stream& stream, std::uint64_t pass) {
    auto missing = stream.table->first_missing(stream.entry);
    if (!missing) return;
    missing->pass += pass;
    if (stream.at == *missing) return;
    const auto frames = stream.table->missing_from(*missing, stream.source->length());
    io::seek_ahead(*stream.source, *missing, frames);
    stream.at = *missing;
  }

  /// Puts the new frames of the block into the store, many at a time.
  void store(const FrameBlock& block) {
    for (std::size_t i = 0; i < new_.size();) {
      std::size_t n = 1;  // slots follow one another, rows only where all streams are decoded
      while (i + n < new_.size() && new_[i + n].row == new_[i].row + n) ++n;
      engine_.store_frames(new_[i].slot,
                           block.pixels.subspan(new_[i].row * shape_.size(), n * shape_.size()));
      for (const std::size_t end = i + n; i < end; ++i) block.stored[new_[i].row] = new_[i].slot;
    }
    new_.clear();
  }

  /// One line, once it is known how much of the sources is stored.
  void tell() {
    if (!cache_.full() && (decoded_ > 0 || !complete())) return;
    told_ = true;
    const std::string what = std::to_string(cache_.frames()) + " frames, " +
                             std::to_string(cache_.bytes() / 1'000'000) + " MB";
    log(Severity::info, cache_.full()
                            ? "frame cache: it is full (" + what +
                                  "); the other frames are decoded again on every pass"
                            : "frame cache: all " + what + "; nothing is decoded any more");
  }

  [[nodiscard]] bool complete() {
    return std::all_of(streams_.begin(), streams_.end(), [](Stream& stream) {
      return stream.table != nullptr && stream.entry != FrameTable::none &&
             !stream.table->first_missing(stream.entry);
    });
  }

  io::FrameShape shape_;
  AnyEngine& engine_;
  FrameCache cache_;
  std::map<std::string, Unreadable> unreadable_;  // by replay_id
  std::vector<Stream> streams_;
  std::vector<Stored> new_;    // of the block in hand
  std::uint64_t decoded_ = 0;  // frames of the block in hand
  bool begun_ = false;
  bool in_source_ = false;  // what a source throws leaves it so
  bool told_ = false;
  bool keeping_ = false;        // new frames, as far as they can be kept
  double waiting_ = 0;          // seconds for sources
  std::uint64_t replayed_ = 0;  // frames from the store
  std::vector<io::StageUsage> usage_before_;
};

}  // namespace pvm::inline v0
