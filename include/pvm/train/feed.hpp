// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Fills the engine's blocks with frames from sources. A frame is decoded the first time; later
/// passes take it from the engine's store.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pvm/core/log.hpp>
#include <pvm/core/trace.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/usage.hpp>
#include <pvm/train/frame_cache.hpp>
#include <pvm/train/report.hpp>

namespace pvm::inline v0 {

/// Fills blocks with the frames of `streams`, one source for every sequence of the batch. Sources
/// with a replay id (`io::replay_id`) are read once: their frames go into the engine's store, and
/// later blocks hold indices into the store (`FrameBlock::stored`). Streams with the same id share
/// their frames.
///
/// The run has a place in each stream (a StreamState), which is not always the position of the
/// source: while frames come from the store the source stays behind, and it may seek ahead to the
/// next frame that is not stored. The frames of the blocks and the places of the run are the same
/// with and without a store.
class Feed {
 public:
  using StreamStates = std::vector<io::StreamState>;

  /// `shape`: of the frames that the network sees. `cache_bytes`: the budget of FrameCache.
  /// `free_memory`: see `memory_is_short`. The streams and the engine must outlive this object.
  Feed(std::span<io::AnySource> streams, const io::FrameShape& shape, AnyEngine& engine,
       std::size_t cache_bytes, std::size_t (*free_memory)() = available_memory)
      : shape_(shape),
        engine_(engine),
        cache_(engine, shape.size(), cache_bytes),
        free_memory_(free_memory) {
    for (io::AnySource& source : streams) {
      const std::string id = io::replay_id(source);
      FrameTable* const table =
          id.empty() || cache_bytes == 0 ? nullptr : &cache_.table(id, source.length());
      streams_.push_back({&source, table, source.position(), source.skipped(),
                          id.empty() ? nullptr : &unreadable_[id]});
    }
    for (io::AnySource& source : streams) io::add_usage(usage_before_, io::usage(source));
    if (!cache_.open()) {
      for (Stream& stream : streams_) stream.table = nullptr;
      logged_ = true;
    }
    tell_sources_what_is_kept();
  }

  /// A block waits for sources for at most this many seconds, and for the frames of one more step.
  static constexpr double patience = 0.1;

  /// Fills `block`, and moves `states`, one for each stream, behind the frames used. Returns the
  /// number of steps filled: at least 1, and fewer than the block has room for if sources are slow,
  /// like a camera: so the run learns from the frames that are there, and can be stopped, before
  /// further frames arrive. 0 steps, or the whole ones among them, if the sources are told to stop
  /// (`io::stop_when`). Seeks in a source whose position is not the run's place. Throws what
  /// sources throw.
  int fill(const FrameBlock& block, StreamStates& states) {
    if (!std::exchange(begun_, true)) {
      for (Stream& stream : streams_) io::prepare(*stream.source, shape_);
    }
    trace::Span span("frames for a block", "steps");
    decoded_ = 0;
    labels_.clear();
    flows_.clear();
    const double too_long = waiting_ + patience;
    int steps = 0;
    do {
      if (!take_step(block, steps, states)) break;
      ++steps;
      if (starting_ < 0) starting_ = waiting_;
    } while (steps < block.steps && waiting_ < too_long);
    store(block);
    if (keeping_ && cache_.full()) tell_sources_what_is_kept();
    if (!logged_) log_once();
    span.set_value(steps);
    return steps;
  }

  /// Seconds that sources have been waited for so far, and those of them until the first step's
  /// frames were there.
  [[nodiscard]] double waiting() const noexcept { return waiting_; }
  [[nodiscard]] double starting() const noexcept { return starting_ < 0 ? waiting_ : starting_; }
  /// Bytes of the frames in the engine's store.
  [[nodiscard]] std::size_t cached_bytes() const noexcept { return cache_.bytes(); }
  /// The flows, in a trace, of the frames of the latest block that came from sources.
  [[nodiscard]] std::span<const std::uint64_t> flows() const noexcept { return flows_; }

  /// Makes a stream continue at another place than the run's. Throws Error if its source has no
  /// such place; the stream then stays where it was.
  void move(std::size_t stream, const io::Position& to) {
    Stream& moved = streams_[stream];
    if (moved.table == nullptr || moved.table->find(to) == FrameTable::none) {
      moved.source->seek(to);
      moved.at = to;
    }
    moved.entry = FrameTable::none;
  }
  /// How many files the stream plays in turn.
  [[nodiscard]] std::size_t files(std::size_t stream) const {
    return io::files(*streams_[stream].source).size();
  }

  /// Whether the machine has so little memory left that kept frames must make room: less than 256
  /// MB, looked at once a second. Never on a GPU, where frames are in its own memory.
  [[nodiscard]] bool memory_is_short() {
    if (cache_.bytes() == 0 || engine_.device_seconds()) return false;
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < std::chrono::seconds(1)) return false;
    looked_ = now;
    constexpr std::size_t least = std::size_t{256} << 20;
    return free_memory_() < least;
  }
  /// Keeps no frames any more, and frees those that were kept: they are decoded again, which
  /// changes no result. Not while a block is being filled.
  void give_way() {
    engine_.synchronize();
    const std::size_t bytes = cache_.bytes();
    for (Stream& stream : streams_) {
      stream.table = nullptr;
      stream.entry = FrameTable::none;
    }
    cache_.give_up();
    logged_ = true;
    tell_sources_what_is_kept();
    log(Severity::warning, "frame cache: memory is short, so its " +
                               std::to_string(bytes / 1'000'000) +
                               " MB are freed; frames are decoded again on every pass from here "
                               "on. --cache-mb N keeps it smaller from the start");
  }

  /// The labels of the frames of the latest block, [step][stream].
  [[nodiscard]] std::span<const io::Label> labels() const noexcept { return labels_; }

  /// Adds the times and counts since construction to `report`.
  void add_to(Report& report) const {
    report.waiting += waiting_;
    report.starting += starting();
    report.replayed += replayed_;
    std::vector<io::StageUsage> stages;
    for (const Stream& stream : streams_) io::add_usage(stages, io::usage(*stream.source));
    io::add_usage(report.stages, io::usage_since(usage_before_, std::move(stages)));
  }

  /// Whether an exception thrown by `fill` came from `seek` or `next` of a source.
  [[nodiscard]] bool source_failed() const noexcept { return in_source_; }

  /// The number of unreadable frames met so far. Frames of streams with the same replay id count
  /// once.
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
    io::AnySource* source;
    FrameTable* table;                       ///< null if its frames are not kept
    io::Position at;                         ///< the source's position
    std::uint64_t skips;                     ///< the source's `skipped()` when last asked
    Unreadable* unreadable = nullptr;        ///< unreadable frames of its id; null without an id
    std::uint32_t entry = FrameTable::none;  ///< entry of the next frame, if it is stored
  };

  /// A frame of the current block that goes into the store.
  struct Stored {
    std::size_t row;     ///< in the block: step * batch + stream
    std::uint32_t slot;  ///< in the store
  };

  /// Supplies the frames for step `step` of `block`. False if a source is told to stop before all
  /// of them are there; `states` are those before the step then.
  bool take_step(const FrameBlock& block, int step, StreamStates& states) {
    for (std::size_t b = 0; b < streams_.size(); ++b) {
      const std::size_t row = static_cast<std::size_t>(step) * streams_.size() + b;
      io::StreamState& state = states[b];
      if (b == 0) step_began_.clear();
      step_began_.emplace_back(state.position, state.frames_since_start);
      std::uint64_t& since = state.frames_since_start;
      try {
        const io::FrameInfo info = take(streams_[b], block, row, state.position, since == 0);
        if (info.starts_sequence) since = 0;
        labels_.push_back(info.label);
      } catch (const io::Stopped&) {
        in_source_ = false;
        for (std::size_t i = 0; i <= b; ++i)
          std::tie(states[i].position, states[i].frames_since_start) = step_began_[i];
        labels_.resize(labels_.size() - b);
        return false;
      }
      block.scored[row] = since >= 2 ? 1 : 0;
      ++since;
    }
    return true;
  }

  // `take`, `replay` and `decode` supply the frame for `row` of `block`, move `position` behind it
  // and return what is known about it. `first`: the run has used no frame of this stream yet.

  /// From the store if the frame is there, else from the source.
  io::FrameInfo take(Stream& stream, const FrameBlock& block, std::size_t row,
                     io::Position& position, bool first) {
    if (stream.table == nullptr) return decode(stream, block, row, position, first);
    const bool replaying = stream.entry != FrameTable::none;
    if (!replaying) stream.entry = stream.table->find(position);
    if (stream.entry == FrameTable::none) return decode(stream, block, row, position, first);
    if (!replaying && cache_.full()) prepare(stream, position.pass);
    return replay(stream, block, row, position);
  }

  io::FrameInfo replay(Stream& stream, const FrameBlock& block, std::size_t row,
                       io::Position& position) {
    const FrameTable::Entry& entry = (*stream.table)[stream.entry];
    block.stored[row] = entry.slot;
    ++replayed_;
    position = {entry.after.sequence, entry.after.frame, position.pass + entry.after.pass};
    const io::FrameInfo info{entry.starts, entry.label};
    stream.entry = stream.table->next(stream.entry);
    return info;
  }

  io::FrameInfo decode(Stream& stream, const FrameBlock& block, std::size_t row,
                       io::Position& position, bool first) {
    const auto pixels = block.pixels.subspan(row * shape_.size(), shape_.size());
    trace::Span span("take a frame");
    in_source_ = true;
    if (stream.at != position) stream.source->seek(position);
    const io::FrameInfo info = stream.source->next(shape_, pixels);
    in_source_ = false;
    constexpr double short_time = 20e-6;  // most frames are there already
    waiting_ += span.end(short_time);
    if (const std::uint64_t flow = trace::take_carried_flow(); flow != 0) flows_.push_back(flow);
    stream.at = stream.source->position();
    ++decoded_;
    const io::Position before = std::exchange(position, stream.at);
    remember(stream, row, before, info, first);
    if (stream.unreadable != nullptr) note_unreadable(stream, before);
    return info;
  }

  /// Allocates a slot in the store for the frame in `row`, which was read at `before`, unless it is
  /// stored already or must not be kept.
  void remember(Stream& stream, std::size_t row, const io::Position& before,
                const io::FrameInfo& info, bool first) {
    if (stream.table == nullptr || stream.table->find(before) != FrameTable::none) return;
    const io::Position& after = stream.at;
    const bool at_start =
        before.frame == 0 || before.sequence != after.sequence || before.pass != after.pass;
    // A stream's first frame starts a sequence even in the middle of its file (see io::deal), but
    // not when it comes again in the next pass. `at_start` says whether the frame may be the first
    // of its file. If that cannot be told, the frame is not kept.
    if (first && before.frame != 0 && at_start) return;
    const auto slot = cache_.take_slot();
    if (!slot) return;
    stream.table->add(before, after, *slot, info.starts_sequence && at_start, info.label);
    new_.push_back({row, *slot});
  }

  /// Records the frames that the source skipped between `before` and the frame it delivered.
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
    // The number of frames skipped from `before` to the end of its pass or sequence.
    std::uint64_t tail = stream.skips - std::min(skips, stream.skips);
    tail -= std::min(tail, end);
    if (const auto length = stream.source->length()) {
      tail = *length - before.frame - (after.frame == 0 ? 1 : 0);
    }
    for (std::uint64_t i = 0; i < tail; ++i) {
      stream.unreadable->emplace(before.sequence, before.frame + i);
    }
  }

  /// Tells the sources whether their frames are kept: then each is decoded once only, by whichever
  /// of the streams of its file reaches it first.
  void tell_sources_what_is_kept() {
    keeping_ = !cache_.full();
    for (Stream& stream : streams_) {
      io::expect_once(*stream.source, keeping_ && stream.table != nullptr);
    }
  }

  /// Lets the source seek to the next frame that is not stored, and read ahead from there up to the
  /// next stored one, so that these frames are ready when the stored ones have been used.
  void prepare(Stream& stream, std::uint64_t pass) {
    auto missing = stream.table->first_missing(stream.entry);
    if (!missing) return;
    missing->pass += pass;
    if (stream.at == *missing) return;
    const auto frames = stream.table->missing_from(*missing, stream.source->length());
    io::seek_ahead(*stream.source, *missing, frames);
    stream.at = *missing;
  }

  /// Copies the new frames of the block into the store, adjacent ones together.
  void store(const FrameBlock& block) {
    if (new_.empty()) return;
    const trace::Span span("upload to the frame cache", "frames", static_cast<double>(new_.size()));
    for (std::size_t i = 0; i < new_.size();) {
      std::size_t n = 1;  // slots are consecutive; rows are so only if all streams were decoded
      while (i + n < new_.size() && new_[i + n].row == new_[i].row + n) ++n;
      engine_.store_frames(new_[i].slot,
                           block.pixels.subspan(new_[i].row * shape_.size(), n * shape_.size()));
      for (const std::size_t end = i + n; i < end; ++i) block.stored[new_[i].row] = new_[i].slot;
    }
    new_.clear();
  }

  /// Logs one line as soon as it is known whether all frames fit into the store.
  void log_once() {
    if (!cache_.full() && (decoded_ > 0 || !complete())) return;
    logged_ = true;
    const std::string what = std::to_string(cache_.frames()) + " frames, " +
                             std::to_string(cache_.bytes() / 1'000'000) + " MB";
    log(Severity::info, cache_.full()
                            ? "frame cache: it is full (" + what +
                                  "); the other frames are decoded again on every pass"
                            : "frame cache: all " + what + "; nothing is decoded any more");
  }

  /// Whether no stream needs its source any more.
  [[nodiscard]] bool complete() {
    return std::all_of(streams_.begin(), streams_.end(), [](Stream& stream) {
      return stream.table != nullptr && stream.entry != FrameTable::none &&
             !stream.table->first_missing(stream.entry);
    });
  }

  io::FrameShape shape_;
  AnyEngine& engine_;
  FrameCache cache_;
  std::size_t (*free_memory_)();
  std::chrono::steady_clock::time_point looked_{};  // at the free memory
  std::map<std::string, Unreadable> unreadable_;    // by replay_id
  std::vector<Stream> streams_;
  std::vector<std::pair<io::Position, std::uint64_t>> step_began_;  // the states before this step
  std::vector<io::Label> labels_;     // of the frames of the current block
  std::vector<Stored> new_;           // frames of the current block that go into the store
  std::uint64_t decoded_ = 0;         // frames of the current block that came from sources
  bool begun_ = false;                // `fill` has been called
  bool in_source_ = false;            // a call of a source is in progress, or has thrown
  bool logged_ = false;               // the log line was written, or there is nothing to say
  bool keeping_ = false;              // the store has room for new frames
  double waiting_ = 0;                // seconds spent in sources
  double starting_ = -1;              // those of them until the first step's frames were there
  std::vector<std::uint64_t> flows_;  // see `flows`
  std::uint64_t replayed_ = 0;        // frames taken from the store
  std::vector<io::StageUsage> usage_before_;
};

}  // namespace pvm::inline v0
