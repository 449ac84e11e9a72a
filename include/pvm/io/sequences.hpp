// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Several sources as one: they are played one after another, over and over.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/io/decode_pool.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0::io {

/// Plays one pass of each source in turn. Only one source is open at a time, and it is opened when
/// it is needed. A source that cannot be opened or read is reported once and left out, but keeps
/// its number in `position().sequence`. Model of FrameSource.
class Sequences {
 public:
  /// `name`: of this object as a source. Throws Fault::usage if there are no openers.
  explicit Sequences(std::vector<Opener> openers, std::string name = "sequences")
      : name_(std::move(name)) {
    if (openers.empty()) {
      throw Error(Fault::usage, pvm::quote(name_) + " has no sequences; give one at least");
    }
    for (Opener& opener : openers) files_.push_back({.open = std::move(opener)});
  }

  /// Marks sequence `index` as reported already, so that no message is logged if it cannot be read.
  void expect_left_out(std::size_t index) { files_[index].left_out = true; }

  /// Throws Fault::source if none of the sequences can be read, Fault::usage if `shape` is
  /// impossible or `pixels` is not `shape.size()` bytes.
  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    check_request(shape, pixels);
    for (std::size_t failed = 0; failed < files_.size();) {
      try {
        if (const auto info = next_of_file(shape, pixels)) return *info;
      } catch (const Error& error) {
        if (error.fault() != Fault::source) throw;
        leave_out(error);
        ++failed;
      }
    }
    throw Error(Fault::source, "none of the " + std::to_string(files_.size()) + " sequences of " +
                                   pvm::quote(name_) + " can be read");
  }

  [[nodiscard]] Position position() const {
    return {index_, source_ ? source_->position().frame : 0, pass_};
  }

  /// Throws Fault::source if there is no such sequence, or if it has no such frame or cannot be
  /// opened (which is tried only for frames other than 0).
  void seek(const Position& position) {
    if (position.sequence >= files_.size()) {
      throw Error(Fault::source, pvm::quote(name_) + " has " + std::to_string(files_.size()) +
                                     " sequences, but the position to continue at is in number " +
                                     std::to_string(position.sequence) +
                                     " (from 0); continue with the files the run was started with");
    }
    close();
    index_ = static_cast<std::size_t>(position.sequence);
    pass_ = position.pass;
    if (position.frame == 0) return;
    open();
    source_->seek({0, position.frame, 0});
    inside_ = true;
  }

  /// Never known, because the sources are opened one at a time.
  [[nodiscard]] std::optional<std::uint64_t> length() const { return std::nullopt; }

  [[nodiscard]] std::uint64_t skipped() const {
    std::uint64_t sum = source_ ? source_->skipped() : 0;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (!source_ || i != index_) sum += files_[i].skipped;
    }
    return sum;
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  /// Different for every object, because only the openers know which files these are.
  [[nodiscard]] const std::string& replay_id() const { return replay_id_; }
  /// The names of the openers.
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const File& file : files_) names.push_back(file.open.name());
    return names;
  }
  [[nodiscard]] std::vector<StageUsage> usage() const {
    auto sum = usage_;
    if (source_) add_usage(sum, source_->usage());
    return sum;
  }

 private:
  struct File {
    Opener open;
    std::vector<std::uint64_t> unreadable{};  ///< its unreadable frames, not to be reported again
    std::uint64_t skipped = 0;                ///< its `skipped()` when it was closed last
    bool left_out = false;                    ///< was reported as unreadable
  };

  /// The next frame of the current file, or nothing if it turned out to have no more.
  std::optional<FrameInfo> next_of_file(const FrameShape& shape, std::span<std::uint8_t> pixels) {
    if (!source_) open();
    const FrameInfo info = source_->next(shape, pixels);
    // All frames to the file's end were unreadable, so the source has started over by itself.
    if (info.starts_sequence && inside_) {
      leave();
      return std::nullopt;
    }
    inside_ = true;
    if (source_->position().pass > 0) leave();
    return info;
  }

  void open() {
    File& file = files_[index_];
    source_.emplace(file.open());
    if (!pool_) pool_ = DecodePool::running();
    source_->expect_once(true);  // it plays one pass only and is then closed
    inside_ = false;
    if (Unreadable* known = source_->unreadable()) known->add_reported(file.unreadable);
  }

  void close() {
    if (!source_) return;
    File& file = files_[index_];
    file.skipped = source_->skipped();
    add_usage(usage_, source_->usage());
    if (const Unreadable* known = source_->unreadable()) file.unreadable = known->list();
    source_.reset();
  }

  /// Closes the current file and moves on to the next one.
  void leave() {
    close();
    if (++index_ == files_.size()) {
      index_ = 0;
      ++pass_;
    }
  }

  void leave_out(const Error& error) {
    if (!std::exchange(files_[index_].left_out, true)) {
      log(Severity::warning, "sequence " + std::to_string(index_ + 1) + " of " +
                                 std::to_string(files_.size()) + " is left out: " + error.what());
    }
    leave();
  }

  static std::string new_id() {
    static std::atomic<std::uint64_t> made = 0;
    return "sequences " + std::to_string(++made);
  }

  std::string name_;
  std::string replay_id_ = new_id();
  std::vector<File> files_;
  std::size_t index_ = 0;
  std::uint64_t pass_ = 0;
  std::shared_ptr<DecodePool> pool_;  // keeps the threads alive from one file to the next
  std::vector<StageUsage> usage_;     // of the files that have been closed
  std::optional<AnySource> source_;   // files_[index_], while it is open
  bool inside_ = false;               // the next frame of source_ is not its first
};

static_assert(FrameSource<Sequences>);

}  // namespace pvm::inline v0::io
