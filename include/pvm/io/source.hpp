// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a frame source is. Needs neither OpenCV nor libzip: those are in the sources' own headers.

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

/// The size a model asks for. Pixels are 8-bit, row by row, channels interleaved (BGR for 3,
/// grey for 1).
struct FrameShape {
  int height = 0;
  int width = 0;
  int channels = 3;

  [[nodiscard]] constexpr std::size_t size() const noexcept {
    return static_cast<std::size_t>(height) * static_cast<std::size_t>(width) *
           static_cast<std::size_t>(channels);
  }
  bool operator==(const FrameShape&) const = default;
};

/// The labelled object's box in pixels of the original frame.
struct Box {
  float x = 0, y = 0, width = 0, height = 0;
  bool operator==(const Box&) const = default;
};

/// Where a source stands: the next frame to be read. Restoring it continues with that frame.
struct Position {
  std::uint64_t sequence = 0;  ///< which of the source's sequences (files), 0 for single files
  std::uint64_t frame = 0;     ///< index inside the sequence, counting unreadable frames too
  std::uint64_t pass = 0;      ///< how often the source has started over
  auto operator<=>(const Position&) const = default;
};

/// What comes with a frame besides its pixels.
struct FrameInfo {
  bool starts_sequence = false;  ///< does not continue the frame delivered before it
  std::optional<Box> box;        ///< the label, where there is one
};

/// Frames, one after another, for ever: a source starts over when it reaches its end.
///
/// `next` writes the next readable frame, resized to `shape`, into `pixels` (`shape.size()`
/// bytes); unreadable frames are logged once each, skipped and counted in `skipped()`. It throws
/// pvm::Error (Fault::source) when a whole pass holds no readable frame. The order of frames is a
/// function of the source alone, never of timing. A source is used by one thread at a time.
template <class S>
concept FrameSource = requires(S source, const S constant, FrameShape shape,
                               std::span<std::uint8_t> pixels, const Position& position) {
  { source.next(shape, pixels) } -> std::same_as<FrameInfo>;
  { constant.position() } -> std::same_as<Position>;
  {source.seek(position)};
  { constant.length() } -> std::same_as<std::optional<std::uint64_t>>;  // frames of one pass
  { constant.skipped() } -> std::same_as<std::uint64_t>;
  { constant.name() } -> std::convertible_to<std::string>;
};

/// What a source may offer besides: `replay_id()`, a text that is not empty and says that its
/// frames can be kept. It promises that from a position always the same frame and next position
/// follow, whatever the pass and whichever source of the same id is asked. Empty for sources
/// without it: a camera, or frames made up as they come.
template <FrameSource S>
std::string replay_id(const S& source) {
  if constexpr (requires { source.replay_id(); }) {
    return source.replay_id();
  } else {
    return {};
  }
}

/// Of frames, where nobody knows how many.
inline constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

/// `seek`, but where the source offers `seek_ahead` (one that is read on a thread of its own) it
/// returns at once, and a failure is thrown by the next `next`. `frames`: how many will be asked
/// for from there, so that it need not read ahead any further.
template <FrameSource S>
void seek_ahead(S& source, const Position& position, std::uint64_t frames = unlimited) {
  if constexpr (requires { source.seek_ahead(position, frames); }) {
    source.seek_ahead(position, frames);
  } else if constexpr (requires { source.seek_ahead(position); }) {
    source.seek_ahead(position);
  } else {
    source.seek(position);
  }
}

/// Has a source that offers `prepare` begin to make frames of `shape` from where it stands, before
/// it is asked for one: the sources of a batch work side by side from the start.
template <FrameSource S>
void prepare(S& source, const FrameShape& shape) {
  if constexpr (requires { source.prepare(shape); }) source.prepare(shape);
}

/// Has a source that offers `read_ahead` make up to `frames` frames before they are asked for, from
/// now on. False where it cannot: `Prefetch` reads any source ahead.
template <FrameSource S>
bool read_ahead(S& source, std::size_t frames) {
  if constexpr (requires { source.read_ahead(frames); }) {
    return source.read_ahead(frames);
  } else {
    return false;
  }
}

/// Says whether the consumer keeps what it is given, so that neither this source nor another one
/// of the same `replay_id` need be ready to give a frame twice. It is asked for frames as before;
/// but a source that offers `expect_once` reads ahead only what none of them has given or will.
template <FrameSource S>
void expect_once(S& source, bool once) {
  if constexpr (requires { source.expect_once(once); }) source.expect_once(once);
}

}  // namespace pvm::inline v0::io
