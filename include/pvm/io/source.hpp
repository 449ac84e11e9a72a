// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The concept of a frame source, and the optional functions a source may offer. Needs neither
/// OpenCV nor libzip; the headers of the sources that do include them.

#include <atomic>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

/// The shape of a frame. Pixels are 8-bit, [height][width][channels], the channels in the order
/// blue, green, red, alpha. Alpha is 0 where a picture is transparent and 255 where it is opaque,
/// as a picture without transparency is everywhere; the colours are not multiplied by it.
struct FrameShape {
  int height = 0;    ///< in pixels, at least 1 in a request
  int width = 0;     ///< in pixels, at least 1 in a request
  int channels = 3;  ///< 1 grey, 2 grey and alpha, 3 BGR, 4 BGR and alpha

  /// The number of bytes of a frame.
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    return static_cast<std::size_t>(height) * static_cast<std::size_t>(width) *
           static_cast<std::size_t>(channels);
  }
  /// Whether the last channel is alpha.
  [[nodiscard]] constexpr bool has_alpha() const noexcept { return channels % 2 == 0; }
  /// The number of the other channels, which come first: 1 or 3.
  [[nodiscard]] constexpr int colours() const noexcept { return channels - (has_alpha() ? 1 : 0); }
  bool operator==(const FrameShape&) const = default;
};

/// The sides of a picture in pixels; both 0, which is false, if there is no picture.
struct PictureSize {
  int width = 0, height = 0;
  explicit constexpr operator bool() const noexcept { return width > 0 && height > 0; }
  bool operator==(const PictureSize&) const = default;
};

/// The bounding box of the labelled object, in pixels of the frame that was asked for: it is scaled
/// with the picture. x and y are the left and upper edge.
struct Box {
  float x = 0, y = 0, width = 0, height = 0;
  bool operator==(const Box&) const = default;
};

/// What is known about the object in a frame.
enum class LabelState : std::uint8_t {
  unlabelled,  ///< nothing: there is no label, or none that can be read
  absent,      ///< the label says that the object is not there
  present,     ///< the label says where it is
};

/// The label of a frame. Absent and unlabelled are different things: only an absent object tells a
/// readout that nothing is there.
struct Label {
  LabelState state = LabelState::unlabelled;
  Box box{};  ///< of the object, if it is present; else of zeros

  [[nodiscard]] static constexpr Label present(const Box& box) noexcept {
    return {LabelState::present, box};
  }
  [[nodiscard]] static constexpr Label absent() noexcept { return {LabelState::absent, {}}; }

  /// The label of the same picture after its sides `from` (width, height, in pixels) were resized
  /// to `to`.
  [[nodiscard]] Label resized(const PictureSize& from, const PictureSize& to) const noexcept {
    if (state != LabelState::present) return *this;
    const auto scaled = [](float value, int now, int before) {
      return static_cast<float>(static_cast<double>(value) * now / before);
    };
    return present({scaled(box.x, to.width, from.width), scaled(box.y, to.height, from.height),
                    scaled(box.width, to.width, from.width),
                    scaled(box.height, to.height, from.height)});
  }
  bool operator==(const Label&) const = default;
};

/// The position of a source: the next frame to be read. `seek` to it continues with that frame.
struct Position {
  std::uint64_t sequence = 0;  ///< index of the source's sequence (file); 0 if there is only one
  std::uint64_t frame = 0;     ///< index in the sequence, unreadable frames counted
  std::uint64_t pass = 0;      ///< how often the source has started over
  auto operator<=>(const Position&) const = default;
};

/// What a source says about a frame besides its pixels.
struct FrameInfo {
  bool starts_sequence = false;  ///< the frame does not continue the one delivered before it
  Label label{};                 ///< what is known about the object in it
  PictureSize picture{};         ///< of the picture before it was resized, if the source says
};

/// An endless sequence of frames: a source starts over when it reaches its end.
///
/// - `next` writes the next readable frame, resized to `shape`, into `pixels` (`shape.size()`
///   bytes). Unreadable frames are logged once each, skipped, and counted. It throws pvm::Error
///   with Fault::source if a whole pass has no readable frame, or if nothing can be read any more.
/// - `position` is the position of the frame that `next` would read.
/// - `seek` makes the source continue with the frame at a position; throws Fault::source if there
///   is no such frame.
/// - `length` is the number of frames of one pass, unreadable ones counted, or none if it is not
///   known (yet) or there is no end.
/// - `skipped` is the number of different frames found unreadable so far.
/// - `name` names the source in messages and checkpoints.
///
/// The order of frames depends on the source alone, never on timing. A source is used by one thread
/// at a time.
template <class S>
concept FrameSource = requires(S source, const S constant, FrameShape shape,
                               std::span<std::uint8_t> pixels, const Position& position) {
  { source.next(shape, pixels) } -> std::same_as<FrameInfo>;
  { constant.position() } -> std::same_as<Position>;
  {source.seek(position)};
  { constant.length() } -> std::same_as<std::optional<std::uint64_t>>;
  { constant.skipped() } -> std::same_as<std::uint64_t>;
  { constant.name() } -> std::convertible_to<std::string>;
};

/// The source's `replay_id()`, or an empty text if the source does not offer one.
///
/// An id that is not empty promises that frames may be cached: reading at a given sequence and
/// frame index always yields the same frame and the same next position, in every pass and from
/// every source with the same id. Cameras and generated frames have no id.
template <FrameSource S>
std::string replay_id(const S& source) {
  if constexpr (requires { source.replay_id(); }) {
    return source.replay_id();
  } else {
    return {};
  }
}

/// The paths of the files that the source plays, in the order of their numbers
/// (`Position::sequence`), or none if it does not offer `files()`: so that a checkpoint can tell
/// whether a file has been replaced by another one of the same name.
template <FrameSource S>
std::vector<std::string> files(const S& source) {
  if constexpr (requires { source.files(); }) {
    return source.files();
  } else {
    return {};
  }
}

/// A number of frames: no limit.
inline constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

/// Seeks, and lets the source start reading ahead from there. If the source offers `seek_ahead`
/// (sources read on threads of their own do), this may return at once, and the next `next` throws a
/// failure. `frames`: how many frames will be asked for from there; the source need not read ahead
/// further.
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

/// Lets a source that offers `prepare` start reading ahead frames of `shape` before the first
/// `next`: so the sources of a batch work in parallel from the start. Does nothing for others.
template <FrameSource S>
void prepare(S& source, const FrameShape& shape) {
  if constexpr (requires { source.prepare(shape); }) source.prepare(shape);
}

/// Tells a source that reads ahead by itself how many frames to keep ready from now on. False if
/// the source does not offer `read_ahead`; `Prefetch` reads any source ahead.
template <FrameSource S>
bool read_ahead(S& source, std::size_t frames) {
  if constexpr (requires { source.read_ahead(frames); }) {
    return source.read_ahead(frames);
  } else {
    return false;
  }
}

/// Tells a source whether the consumer keeps every frame it is given (in the frame cache), so that
/// no frame will be asked for twice, neither from this source nor from another one that shares its
/// file. A source that offers `expect_once` then does not read ahead frames that one of these
/// sources has delivered already or is about to deliver. Which frames it delivers does not change.
template <FrameSource S>
void expect_once(S& source, bool once) {
  if constexpr (requires { source.expect_once(once); }) source.expect_once(once);
}

/// Thrown by the `next` of a source that has been told to stop while it waits for a frame (see
/// `stop_when`). Nothing has failed: the source stands where it stood.
struct Stopped {};

/// Tells a source that reads ahead on other threads to wait for frames only as long as `*asked` is
/// false: when it becomes true, by a signal handler for example, `next` throws Stopped within
/// `stop_seconds`, whatever decoders are doing. `asked` must live until another is given, or null,
/// which means to wait for ever. Does nothing for sources that do not offer `stop_when`.
template <FrameSource S>
void stop_when(S& source, const std::atomic<bool>* asked) {
  if constexpr (requires { source.stop_when(asked); }) source.stop_when(asked);
}

/// How often a source that waits looks whether it is told to stop, in seconds.
inline constexpr double stop_seconds = 0.05;

}  // namespace pvm::inline v0::io
