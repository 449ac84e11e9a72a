// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One type for all frame sources, for programs that choose one at run time.

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

/// Owns a source of any type. Movable; after a move only destruction and assignment are left to
/// the source moved from. Model of FrameSource.
class AnySource {
 public:
  /// Implicit, so that an opener can return whatever it has opened.
  template <class S>
  requires(!std::same_as<std::remove_cvref_t<S>, AnySource>) &&
      FrameSource<std::remove_cvref_t<S>> AnySource(S&& source)
      : held_(std::make_unique<Held<std::remove_cvref_t<S>>>(std::forward<S>(source))) {}

  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    return held_->next(shape, pixels);
  }
  [[nodiscard]] Position position() const { return held_->position(); }
  void seek(const Position& position) { held_->seek(position); }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return held_->length(); }
  [[nodiscard]] std::uint64_t skipped() const { return held_->skipped(); }
  [[nodiscard]] std::string name() const { return held_->name(); }
  [[nodiscard]] std::string replay_id() const { return held_->replay_id(); }
  void seek_ahead(const Position& position, std::uint64_t frames = unlimited) {
    held_->seek_ahead(position, frames);
  }
  void prepare(const FrameShape& shape) { held_->prepare(shape); }
  [[nodiscard]] std::vector<StageUsage> usage() const { return held_->usage(); }
  /// Whether the source reads ahead by itself, see `io::read_ahead`.
  bool read_ahead(std::size_t frames) { return held_->read_ahead(frames); }
  void expect_once(bool once) { held_->expect_once(once); }

  /// Another reader of the same file, at its beginning, which shares its decoder and what that has
  /// made; nothing where the source does not offer that.
  [[nodiscard]] std::optional<AnySource> share() { return held_->share(); }

  /// The exact number of frames of a pass, reading through a video if it must; none where a
  /// source has no end.
  std::optional<std::uint64_t> count_frames() { return held_->count_frames(); }

  /// The frames found unreadable so far, where the source keeps them; else null.
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
    virtual void seek_ahead(const Position& position, std::uint64_t frames) = 0;
    virtual void prepare(const FrameShape& shape) = 0;
    virtual std::vector<StageUsage> usage() const = 0;
    virtual bool read_ahead(std::size_t frames) = 0;
    virtual void expect_once(bool once) = 0;
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
    void seek_ahead(const Position& position, std::uint64_t frames) override {
      io::seek_ahead(source, position, frames);
    }
    void prepare(const FrameShape& shape) override { io::prepare(source, shape); }
    std::vector<StageUsage> usage() const override { return io::usage(source); }
    bool read_ahead(std::size_t frames) override { return io::read_ahead(source, frames); }
    void expect_once(bool once) override { io::expect_once(source, once); }
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

    S source;
  };

  std::unique_ptr<Base> held_;
};

static_assert(FrameSource<AnySource>);

class Opener;

namespace detail {
template <class Open>
concept OpensSource =
    !std::same_as<Open, Opener> && std::convertible_to<Open, std::function<AnySource()>>;
}  // namespace detail

/// Opens a source anew each time it is called; throws pvm::Error where it cannot.
class Opener {
 public:
  /// Implicit, for any function that gives a source. `name`: the source's, so that it is known
  /// before it is opened; may be empty.
  template <detail::OpensSource Open>
  Opener(Open open, std::string name = {}) : open_(std::move(open)), name_(std::move(name)) {}

  AnySource operator()() const { return open_(); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::function<AnySource()> open_;
  std::string name_;
};

}  // namespace pvm::inline v0::io
