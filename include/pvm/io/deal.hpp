// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The streams of a batch from one source or from many.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/io/decode_pool.hpp>
#include <pvm/io/prefetch.hpp>
#include <pvm/io/sequences.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0::io {

namespace detail {

/// A source that is first read from a frame other than its first one. It looks for that frame
/// when it is first read, because finding it in a video takes time. Model of FrameSource.
class StartingAt {
 public:
  StartingAt(AnySource source, std::uint64_t frame)
      : source_(std::move(source)), start_{.sequence = 0, .frame = frame, .pass = 0} {}

  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    const bool first = position() == start_;
    begin();
    FrameInfo info = source_.next(shape, pixels);
    info.starts_sequence = info.starts_sequence || first;
    return info;
  }

  [[nodiscard]] Position position() const { return begun_ ? source_.position() : start_; }

  void seek(const Position& position) {
    source_.seek(position);
    begun_ = true;
  }

  [[nodiscard]] std::optional<std::uint64_t> length() const { return source_.length(); }
  [[nodiscard]] std::uint64_t skipped() const { return source_.skipped(); }
  [[nodiscard]] std::string name() const { return source_.name(); }
  [[nodiscard]] std::string replay_id() const { return source_.replay_id(); }
  [[nodiscard]] std::vector<StageUsage> usage() const { return source_.usage(); }
  void seek_ahead(const Position& position, std::uint64_t frames = unlimited) {
    source_.seek_ahead(position, frames);
    begun_ = true;
  }
  void prepare(const FrameShape& shape) {
    begin();
    source_.prepare(shape);
  }
  bool read_ahead(std::size_t frames) { return source_.read_ahead(frames); }
  void expect_once(bool once) { source_.expect_once(once); }

 private:
  void begin() {
    if (!begun_) seek(start_);
  }

  AnySource source_;
  Position start_;
  bool begun_ = false;
};

static_assert(FrameSource<StartingAt>);

/// Opens each once, so that a bad file shows before a run and not hours into it, and says which
/// can be read.
inline std::vector<bool> try_all(const std::vector<Opener>& openers) {
  std::vector<bool> readable;
  std::shared_ptr<DecodePool> pool;  // one for all of them
  for (const Opener& opener : openers) {
    try {
      static_cast<void>(opener());
      readable.push_back(true);
    } catch (const Error& error) {
      if (error.fault() != Fault::source) throw;
      log(Severity::warning, std::string("a sequence is left out: ") + error.what());
      readable.push_back(false);
    }
    if (!pool) pool = DecodePool::running();
  }
  if (std::count(readable.begin(), readable.end(), true) == 0) {
    throw Error(Fault::source,
                "none of the " + std::to_string(openers.size()) + " sequences can be opened");
  }
  return readable;
}

inline std::vector<Opener> readable_ones(const std::vector<Opener>& openers,
                                         const std::vector<bool>& readable) {
  std::vector<Opener> ones;
  for (std::size_t i = 0; i < openers.size(); ++i) {
    if (readable[i]) ones.push_back(openers[i]);
  }
  return ones;
}

/// A name for sequences that others do not have, by the names of the files in their order: how a
/// checkpoint knows its own again.
inline std::string name_of(const std::vector<Opener>& openers) {
  std::uint32_t hash = 2'166'136'261;  // FNV-1a
  const auto add = [&hash](char c) { hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619; };
  for (const Opener& opener : openers) {
    std::filesystem::path path = opener.name();
    if (!path.has_filename()) path = path.parent_path();
    for (const char c : path.filename().string()) add(c);
    add('\0');
  }
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(hash));
  return std::to_string(openers.size()) + " sequences (" + digits + ")";
}

/// Stream k plays files k, k + streams, ..., numbered as they are, also those that cannot be read
/// now: a later run, which may be able to, finds its place all the same.
inline std::vector<Sequences> hand_out(const std::vector<Opener>& openers,
                                       const std::vector<bool>& readable, std::size_t streams) {
  std::vector<Sequences> hands;
  for (std::size_t k = 0; k < streams; ++k) {
    std::vector<Opener> hand;
    for (std::size_t i = k; i < openers.size(); i += streams) hand.push_back(openers[i]);
    const std::string name = name_of(hand);
    hands.emplace_back(std::move(hand), name);
    for (std::size_t i = k; i < openers.size(); i += streams) {
      if (!readable[i]) hands.back().expect_left_out(i / streams);
    }
  }
  return hands;
}

/// Whether there are more files than streams, and one for each that can be read.
inline bool enough_for(const std::vector<bool>& readable, std::size_t streams) {
  std::set<std::size_t> served;
  for (std::size_t i = 0; i < readable.size(); ++i) {
    if (readable[i]) served.insert(i % streams);
  }
  return readable.size() > streams && served.size() == streams;
}

/// `streams` readers of one source, spread evenly over its frames. They share the file and its
/// decoder if the source can do that.
inline std::vector<AnySource> spread(const Opener& opener, std::size_t streams) {
  std::vector<AnySource> spread;
  spread.push_back(opener());
  if (streams == 1) return spread;
  const auto frames = spread.front().count_frames();
  if (!frames) {
    throw Error(Fault::usage, pvm::quote(spread.front().name()) +
                                  " is live and gives one stream only; use a batch of 1");
  }
  for (std::size_t k = 1; k < streams; ++k) {
    const std::uint64_t start = k * *frames / streams;
    auto shared = spread.front().share();
    if (shared)
      shared->seek({.sequence = 0, .frame = start, .pass = 0});  // the others see it there
    spread.emplace_back(StartingAt(shared ? std::move(*shared) : opener(), start));
  }
  return spread;
}

/// Read ahead by itself, or else on a thread of its own.
inline AnySource ahead_of(AnySource source, std::size_t frames) {
  if (source.read_ahead(frames)) return source;
  return Prefetch(std::move(source), frames);
}

}  // namespace detail

/// Makes `streams` sources, each read ahead by up to `ahead` frames: more than an engine takes at
/// once, so that it need not wait (0: 256, and fewer for many streams). Zips and directories share
/// the threads of the DecodePool, and streams of one of them its decoder; any other stream has a
/// thread of its own.
///
/// More files than streams are dealt out: stream k plays files k, k + streams, ... one after the
/// other, under a name that these files give it. Else stream k loops over file k modulo the number
/// of files; the c streams that share a file of n frames set out at frames 0, n/c, 2n/c, ... of it,
/// for which a video is read through once. Of several files those that cannot be opened are
/// reported and left out beforehand.
///
/// Throws Fault::usage for no streams, no files, or a live source to be shared; Fault::source
/// where nothing can be opened.
inline std::vector<AnySource> deal(std::vector<Opener> openers, std::size_t streams,
                                   std::size_t ahead = 0) {
  if (streams == 0 || openers.empty()) {
    throw Error(Fault::usage, "a batch needs one stream and one source at least");
  }
  if (ahead == 0) ahead = std::clamp<std::size_t>(2048 / streams, 16, 256);
  std::vector<bool> readable = openers.size() > 1 ? detail::try_all(openers) : std::vector{true};
  if (!detail::enough_for(readable, streams)) {
    openers = detail::readable_ones(openers, readable);
    readable.assign(openers.size(), true);
  }
  const std::size_t files = openers.size();
  std::vector<std::optional<AnySource>> dealt(streams);
  if (files > streams) {
    std::size_t k = 0;
    for (Sequences& hand : detail::hand_out(openers, readable, streams)) {
      dealt[k++].emplace(std::move(hand));
    }
  } else {
    for (std::size_t file = 0; file < files; ++file) {
      std::size_t k = file;
      for (AnySource& source : detail::spread(openers[file], (streams - file - 1) / files + 1)) {
        dealt[k].emplace(std::move(source));
        k += files;
      }
    }
  }
  std::vector<AnySource> out;
  out.reserve(streams);
  for (auto& source : dealt) out.push_back(detail::ahead_of(std::move(*source), ahead));
  return out;
}

}  // namespace pvm::inline v0::io
