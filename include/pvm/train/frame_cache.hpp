// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The index of the frames in an engine's store. For each frame: the source and position at which
/// it was read, and the position behind it. The store itself (`Engine::store_frames`) only knows
/// slots.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <pvm/engine/any_engine.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0 {

/// The stored frames of one source, by position. Only for sources with a `replay_id`: apart from
/// the number of the pass, reading at a position always yields the same frame and the same next
/// position.
class FrameTable {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// A stored frame. Entries are numbered in the order in which they were added.
  struct Entry {
    io::Position at;            ///< position of the frame; `pass` is 0
    io::Position after;         ///< position behind it; `pass` is 1 if the source has started over
    std::uint32_t slot = 0;     ///< index in the engine's store
    bool starts = false;        ///< the frame starts a sequence
    io::Label label{};          ///< of the frame
    std::uint32_t next = none;  ///< number of the entry at `after`, or `none` if not known yet
  };

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] const Entry& operator[](std::uint32_t entry) const { return entries_[entry]; }

  /// The number of the entry at `position` (in any pass), or `none`.
  [[nodiscard]] std::uint32_t find(const io::Position& position) const {
    const auto found = index_.find({position.sequence, position.frame});
    return found == index_.end() ? none : found->second;
  }

  /// The number of the entry behind `entry`, or `none`.
  [[nodiscard]] std::uint32_t next(std::uint32_t entry) {
    Entry& e = entries_[entry];
    if (e.next == none) e.next = find(e.after);
    return e.next;
  }

  /// Adds the frame in `slot`, which the source delivered at position `at`, moving on to `after`.
  /// There must be no entry at `at`.
  void add(const io::Position& at, const io::Position& after, std::uint32_t slot, bool starts,
           const io::Label& label) {
    index_.emplace(Key{at.sequence, at.frame}, static_cast<std::uint32_t>(entries_.size()));
    entries_.push_back({{at.sequence, at.frame, 0},
                        {after.sequence, after.frame, after.pass - at.pass},
                        slot,
                        starts,
                        label});
  }

  /// The first position behind `entry` whose frame is not stored (`pass` counts from that of
  /// `entry`). Nothing if the entries form a cycle, so that the source is not needed any more.
  [[nodiscard]] std::optional<io::Position> first_missing(std::uint32_t entry) {
    io::Position at = entries_[entry].at;
    for (std::size_t seen = 0; seen <= entries_.size(); ++seen) {
      if (entry == none) return at;
      const Entry& e = entries_[entry];
      at = {e.after.sequence, e.after.frame, at.pass + e.after.pass};
      entry = next(entry);
    }
    return std::nullopt;
  }

  /// The number of frames from position `missing` up to the next stored frame of that sequence, or
  /// to the end of the pass, which has `length` frames; `unlimited` if neither is known.
  [[nodiscard]] std::uint64_t missing_from(const io::Position& missing,
                                           std::optional<std::uint64_t> length) const {
    std::uint64_t end = length.value_or(io::unlimited);
    for (const Entry& e : entries_) {
      if (e.at.sequence != missing.sequence || e.at.frame <= missing.frame) continue;
      end = std::min(end, e.at.frame);
    }
    return end == io::unlimited ? end : end - missing.frame;
  }

 private:
  struct Key {
    std::uint64_t sequence, frame;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept {
      return static_cast<std::size_t>(key.sequence * 0x9E3779B97F4A7C15ULL + key.frame);
    }
  };

  std::vector<Entry> entries_;
  std::unordered_map<Key, std::uint32_t, Hash> index_;
};

/// The tables of all sources of a run, and the allocation of slots in the engine's store.
class FrameCache {
 public:
  /// Empties the store. `frame_bytes`: size of a frame. `budget`: bytes the store may take, 0 for
  /// no store, or `share_of_free_memory`.
  FrameCache(AnyEngine& engine, std::size_t frame_bytes, std::size_t budget)
      : engine_(engine), frame_bytes_(frame_bytes), budget_(budget) {
    engine_.reserve_frames(0, 0);
  }

  /// The table of the sources with replay id `id`, created on first use; its address stays valid.
  /// `length`: number of frames of a pass, if known.
  FrameTable& table(const std::string& id, std::optional<std::uint64_t> length) {
    const auto [place, is_new] = tables_.try_emplace(id);
    if (is_new) expected_ += static_cast<std::size_t>(length.value_or(guess));
    return place->second;
  }

  /// Reserves room for the frames that the tables expect. False if no frames can be kept at all.
  bool open() {
    if (budget_ == 0 || tables_.empty()) return false;
    capacity_ = engine_.reserve_frames(budget_, expected_);
    full_ = capacity_ == 0;
    return !full_;
  }

  /// Allocates a slot; nothing if the budget is used up.
  [[nodiscard]] std::optional<std::uint32_t> take_slot() {
    if (used_ == capacity_ && !full_) {
      capacity_ = engine_.reserve_frames(budget_, std::max(expected_, 2 * capacity_));
      full_ = used_ == capacity_;
    }
    if (full_) return std::nullopt;
    return static_cast<std::uint32_t>(used_++);
  }

  /// Empties the store, for good. The tables are gone: nothing may refer to them any more.
  void give_up() {
    engine_.reserve_frames(0, 0);
    tables_.clear();
    capacity_ = used_ = 0;
    full_ = true;
  }

  [[nodiscard]] bool full() const noexcept { return full_; }
  [[nodiscard]] std::size_t frames() const noexcept { return used_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return used_ * frame_bytes_; }

 private:
  static constexpr std::uint64_t guess = 1024;  // frames to expect if the length is not known

  AnyEngine& engine_;
  std::size_t frame_bytes_;
  std::size_t budget_;
  std::map<std::string, FrameTable> tables_;
  std::size_t expected_ = 0;  // frames of all sources together
  std::size_t capacity_ = 0;  // slots that are reserved
  std::size_t used_ = 0;      // slots that are allocated, from 0 on
  bool full_ = false;
};

}  // namespace pvm::inline v0
