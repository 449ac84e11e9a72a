// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes the streams of a batch (one source for each of its sequences) from one file or several.

#include <algorithm>
#include <atomic>
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

/// A source whose first frame delivered is `frame`, not frame 0. It seeks there on the first read,
/// because seeking in a video takes time. Model of FrameSource.
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
  [[nodiscard]] std::vector<std::string> files() const { return source_.files(); }
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
  void stop_when(const std::atomic<bool>* asked) { source_.stop_when(asked); }

 private:
  void begin() {
    if (!begun_) seek(start_);
  }

  AnySource source_;
  Position start_;
  bool begun_ = false;
};

static_assert(FrameSource<StartingAt>);

/// For each opener whether it succeeds: every file is opened once, so that a bad file is noticed
/// before a run and not hours into it. Logs a warning for each that fails. Throws Fault::source if
/// all of them fail.
inline std::vector<bool> try_all(const std::vector<Opener>& openers) {
  std::vector<bool> readable;
  std::shared_ptr<DecodePool> pool;  // keeps the threads alive from one file to the next
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

/// A name for a list of files, made of the file names (without directories) in their order, so that
/// a checkpoint can tell whether it is continued with the same files.
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

/// Deals files to streams: stream k plays files k, k + streams, ... Files that cannot be read now
/// keep their numbers, so that the positions in a checkpoint stay valid if a later run can read
/// them.
inline std::vector<Sequences> deal_files(const std::vector<Opener>& openers,
                                         const std::vector<bool>& readable, std::size_t streams) {
  std::vector<Sequences> sources;
  for (std::size_t k = 0; k < streams; ++k) {
    std::vector<Opener> files;
    for (std::size_t i = k; i < openers.size(); i += streams) files.push_back(openers[i]);
    const std::string name = name_of(files);
    sources.emplace_back(std::move(files), name);
    for (std::size_t i = k; i < openers.size(); i += streams) {
      if (!readable[i]) sources.back().expect_left_out(i / streams);
    }
  }
  return sources;
}

/// Whether there are more files than streams, and each stream would get a readable file.
inline bool enough_for(const std::vector<bool>& readable, std::size_t streams) {
  std::set<std::size_t> served;
  for (std::size_t i = 0; i < readable.size(); ++i) {
    if (readable[i]) served.insert(i % streams);
  }
  return readable.size() > streams && served.size() == streams;
}

/// `streams` readers of one source, whose first frames are spread evenly over it. They share the
/// open file and its decoder if the source offers `share`. Throws Fault::usage if several readers
/// are wanted of a source without an end.
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
      // Seeks right away, so that the other readers know where this one stands before they read
      // ahead.
      shared->seek({.sequence = 0, .frame = start, .pass = 0});
    spread.emplace_back(StartingAt(shared ? std::move(*shared) : opener(), start));
  }
  return spread;
}

/// Makes `source` read `frames` frames ahead: by itself if it can, else on a thread of its own.
inline AnySource ahead_of(AnySource source, std::size_t frames) {
  if (source.read_ahead(frames)) return source;
  return Prefetch(std::move(source), frames);
}

}  // namespace detail

/// Makes `streams` sources, each of which reads up to `ahead` frames ahead. 0 chooses 2048 /
/// streams, at least 16 and at most 256: more frames than an engine takes at once, so that it need
/// not wait. Zips and directories share the threads of the DecodePool, and the streams of one zip
/// or directory share its decoder; every other stream has a thread of its own.
///
/// If there are more files than streams, stream k plays files k, k + streams, ... one after
/// another, and its name is made of the names of these files. Otherwise stream k loops over file k
/// modulo the number of files; the c streams that share a file of n frames begin at its frames 0,
/// n/c, 2n/c, ... To find n, a video is decoded once. If there are several files, those that cannot
/// be opened are reported in the log and left out beforehand.
///
/// Throws Fault::usage if there are no streams or no files, or if several streams are wanted of a
/// live source; Fault::source if no file can be opened.
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
    for (Sequences& source : detail::deal_files(openers, readable, streams)) {
      dealt[k++].emplace(std::move(source));
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
