// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Frames in memory that are played over and over: of a source, decoded once for many runs.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

/// The frames of a source.
struct Clip {
  std::string name;  ///< of the source
  FrameShape shape;
  std::size_t frames = 0;
  std::vector<std::uint8_t> pixels;  ///< [frames][shape.size()]
  std::vector<std::uint8_t> starts;  ///< [frames]: whether it begins a sequence
  bool live = false;                 ///< the source has no end and cannot be read again: a camera
};

/// Reads a source from where it stands to the end of its pass, or its first `most` frames. Throws
/// Fault::source if there are none, and what the source throws.
inline std::shared_ptr<const Clip> read_clip(AnySource& source, FrameShape shape,
                                             std::size_t most) {
  auto clip = std::make_shared<Clip>(Clip{source.name(), shape, 0, {}, {}});
  clip->live = io::replay_id(source).empty() && !source.length();
  const std::uint64_t pass = source.position().pass;
  while (clip->frames < most && source.position().pass == pass) {
    clip->pixels.resize(clip->pixels.size() + shape.size());
    const FrameInfo info = source.next(shape, std::span(clip->pixels).last(shape.size()));
    clip->starts.push_back(info.starts_sequence ? 1 : 0);
    ++clip->frames;
  }
  if (clip->frames == 0) {
    throw Error(Fault::source, pvm::quote(source.name()) + " has no frames");
  }
  return clip;
}

/// Plays a clip. Model of FrameSource; its frames may be kept in an engine's store.
class ClipPlayer {
 public:
  explicit ClipPlayer(std::shared_ptr<const Clip> clip) : clip_(std::move(clip)) {}

  FrameInfo next(FrameShape, std::span<std::uint8_t> pixels) {
    const auto at = static_cast<std::size_t>(at_.frame);
    const auto frame = std::span(clip_->pixels).subspan(at * pixels.size(), pixels.size());
    std::copy(frame.begin(), frame.end(), pixels.begin());
    const bool first = at == 0 || clip_->starts[at] != 0;
    if (++at_.frame == clip_->frames) at_ = {0, 0, at_.pass + 1};
    return {first, {}};
  }
  [[nodiscard]] Position position() const { return at_; }
  void seek(const Position& position) { at_ = position; }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return clip_->frames; }
  [[nodiscard]] static std::uint64_t skipped() { return 0; }
  [[nodiscard]] std::string name() const { return clip_->name; }
  /// Players of the same clip share what is kept of it.
  [[nodiscard]] std::string replay_id() const {
    return "clip " + std::to_string(reinterpret_cast<std::uintptr_t>(clip_.get()));
  }

 private:
  std::shared_ptr<const Clip> clip_;
  Position at_;
};

static_assert(FrameSource<ClipPlayer>);

}  // namespace pvm::inline v0::io
