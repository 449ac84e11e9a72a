// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A type-erased frame source, for programs that choose the source at run time.

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pvm/io/source.hpp>
#include <pvm/io/unreadable.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0::io {

/// Owns a source of any type, and offers all the optional functions of sources: those that the held
/// source lacks do what the free functions in source.hpp and usage.hpp do then. Movable; a
/// moved-from object may only be destroyed or assigned to. Model of FrameSource.
class AnySource {
 public:
  /// Implicit, so that an opener can return a source of any type.
  template <class S>
  requires(!std::same_as<std::remove_cvref_t<S>, AnySource>) &&
      FrameSource<std::remove_cvref_t<S>> AnySource(S&& source)
      : held_(std::make_unique<Held<std::remove_cvref_t<S>>>(std::forward<S>(source))) {}

  /// Refers to `source` instead of owning it; `source` must outlive the result.
  template <FrameSource S>
  static AnySource refer(S& source) {
    return AnySource(std::make_unique<Held<S&>>(source));
  }

  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    return held_->next(shape, pixels);
  }
  [[nodiscard]] Position position() const { return held_->position(); }
  void seek(const Position& position) { held_->seek(position); }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return held_->length(); }
  [[nodiscard]] std::uint64_t skipped() const { return held_->skipped(); }
  [[nodiscard]] std::string name() const { return held_->name(); }
  [[nodiscard]] std::string replay_id() const { return held_->replay_id(); }
  [[nodiscard]] std::vector<std::string> files() const { return held_->files(); }
  void seek_ahead(const Position& position, std::uint64_t frames = unlimited) {
    held_->seek_ahead(position, frames);
  }
  void prepare(const FrameShape& shape) { held_->prepare(shape); }
  [[nodiscard]] std::vector<StageUsage> usage() const { return held_->usage(); }
  /// Whether the source reads ahead by itself: see `io::read_ahead`.
  bool read_ahead(std::size_t frames) { return held_->read_ahead(frames); }
  void expect_once(bool once) { held_->expect_once(once); }
  void stop_when(const std::atomic<bool>* asked) { held_->stop_when(asked); }

  /// Another reader of the same file, at its first frame, which shares the decoder and the decoded
  /// frames; nothing if the source does not offer `share`.
  [[nodiscard]] std::optional<AnySource> share() { return held_->share(); }

  /// The exact number of frames of a pass; a video may be decoded to its end for this. Nothing if
  /// the source has no end.
  std::optional<std::uint64_t> count_frames() { return held_->count_frames(); }

  /// The record of unreadable frames if the source keeps one, else null. Owned by the source.
  [[nodiscard]] Unreadable* unreadable() { return held_->unreadable(); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) = 0;
    virtual Position position() const = 0;
    virtual void seek(const Position& position) = 0;
    virtual std::optional<std::uint64_t> length() const = 0;
    virtual std::uint64_t skipped() const = 0;
    virtual std::string name() const = 0;
    virtual std::string replay_id() const = 0;
    virtual std::vector<std::string> files() const = 0;
    virtual void seek_ahead(const Position& position, std::uint64_t frames) = 0;
    virtual void prepare(const FrameShape& shape) = 0;
    virtual std::vector<StageUsage> usage() const = 0;
    virtual bool read_ahead(std::size_t frames) = 0;
    virtual void expect_once(bool once) = 0;
    virtual void stop_when(const std::atomic<bool>* asked) = 0;
    virtual std::optional<AnySource> share() = 0;
    virtual std::optional<std::uint64_t> count_frames() = 0;
    virtual Unreadable* unreadable() = 0;
  };

  template <class S>
  struct Held final : Base {
    template <class From>
    explicit Held(From&& from) : source(std::forward<From>(from)) {}

    FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) override {
      return source.next(shape, pixels);
    }
    Position position() const override { return source.position(); }
    void seek(const Position& position) override { source.seek(position); }
    std::optional<std::uint64_t> length() const override { return source.length(); }
    std::uint64_t skipped() const override { return source.skipped(); }
    std::string name() const override { return source.name(); }
    std::string replay_id() const override { return io::replay_id(source); }
    std::vector<std::string> files() const override { return io::files(source); }
    void seek_ahead(const Position& position, std::uint64_t frames) override {
      io::seek_ahead(source, position, frames);
    }
    void prepare(const FrameShape& shape) override { io::prepare(source, shape); }
    std::vector<StageUsage> usage() const override { return io::usage(source); }
    bool read_ahead(std::size_t frames) override { return io::read_ahead(source, frames); }
    void expect_once(bool once) override { io::expect_once(source, once); }
    void stop_when(const std::atomic<bool>* asked) override { io::stop_when(source, asked); }
    std::optional<AnySource> share() override {
      if constexpr (requires { source.share(); }) {
        return source.share();
      } else {
        return std::nullopt;
      }
    }
    std::optional<std::uint64_t> count_frames() override {
      if constexpr (requires { source.count_frames(); }) {
        return source.count_frames();
      } else {
        return source.length();
      }
    }
    Unreadable* unreadable() override {
      if constexpr (requires {
                      { source.unreadable() } -> std::same_as<Unreadable&>;
                    }) {
        return &source.unreadable();
      } else {
        return nullptr;
      }
    }

    S source;  // or a reference to one
  };

  explicit AnySource(std::unique_ptr<Base> held) : held_(std::move(held)) {}

  std::unique_ptr<Base> held_;
};

static_assert(FrameSource<AnySource>);

class Opener;

namespace detail {
template <class Open>
concept OpensSource =
    !std::same_as<Open, Opener> && std::convertible_to<Open, std::function<AnySource()>>;
}  // namespace detail

/// A function that opens a source, a new one each time it is called; throws pvm::Error if it
/// cannot.
class Opener {
 public:
  /// Implicit, from any function that returns a source. `name`: the source's name, so that it is
  /// known before the source is opened; may be empty.
  template <detail::OpensSource Open>
  Opener(Open open, std::string name = {}) : open_(std::move(open)), name_(std::move(name)) {}

  AnySource operator()() const { return open_(); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::function<AnySource()> open_;
  std::string name_;
};

}  // namespace pvm::inline v0::io
