// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The pictures of a zip or a directory, decoded ahead, for one reader or many.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/image_list.hpp>
#include <pvm/io/picture_service.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/unreadable.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0::io {

/// Hands on exactly what ImageList<Store> would, in the same order, from frames that the threads of
/// the DecodePool make ahead. `share` gives further readers of the same open file: they have one
/// decoder, and a frame that several of them have ahead is decoded once. Each reader may be used on
/// a thread of its own. Failures are thrown where they lie in the order. Movable; after a move only
/// destruction and assignment are left to what was moved from. Model of FrameSource.
template <FileStore Store, class Decoder = CpuPictureDecoder>
class PictureReader {
 public:
  /// Work begins with the first `next` or `prepare`, which give the shape. Throws Fault::source
  /// where `path` cannot be opened or holds no pictures, and what the decoder throws.
  explicit PictureReader(const std::filesystem::path& path)
      : PictureReader(std::make_shared<Service>(path)) {}

  /// A shape other than that of the call before discards what was made ahead.
  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    check_request(shape, pixels);
    shape_ = shape;
    for (;;) {
      const auto frame = seat_->service->take(seat_->reader, shape);
      const auto info = cursor_.settle(frame->readable);
      if (!info) continue;
      std::copy(frame->pixels.begin(), frame->pixels.end(), pixels.begin());
      return *info;
    }
  }

  [[nodiscard]] Position position() const { return cursor_.position(); }
  void seek(const Position& position) {
    cursor_.seek(position);
    seat_->service->seek(*seat_->reader, cursor_.index());
  }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return cursor_.length(); }
  [[nodiscard]] std::uint64_t skipped() const { return cursor_.unreadable().count(); }
  [[nodiscard]] const std::string& name() const { return cursor_.list().name; }
  /// Decoders whose frames differ have marks of their own.
  [[nodiscard]] std::string replay_id() const { return Decoder::id + ("file " + name()); }
  [[nodiscard]] Unreadable& unreadable() { return cursor_.unreadable(); }
  [[nodiscard]] std::vector<StageUsage> usage() const {
    return seat_->service->usage(*seat_->reader);
  }

  /// Seeks, and begins to make frames there at once, if it is known of what shape.
  void seek_ahead(const Position& position) {
    seek(position);
    if (shape_) seat_->service->prepare(seat_->reader, *shape_);
  }
  /// See `io::prepare`.
  void prepare(const FrameShape& shape) {
    check_shape(shape);
    shape_ = shape;
    seat_->service->prepare(seat_->reader, shape);
  }
  /// See `io::read_ahead`.
  bool read_ahead(std::size_t frames) {
    seat_->service->read_ahead(*seat_->reader, frames);
    return true;
  }
  /// See `io::expect_once`.
  void expect_once(bool once) { seat_->service->expect_once(*seat_->reader, once); }

  /// Another reader of the same open file, at its beginning. An unreadable picture is reported by
  /// the one that meets it first.
  [[nodiscard]] PictureReader share() const {
    PictureReader fresh(seat_->service);
    fresh.cursor_ = PictureCursor::beside(cursor_);
    return fresh;
  }

 private:
  using Service = detail::PictureService<Store, Decoder>;

  /// Among the readers of the service.
  struct Seat {
    explicit Seat(std::shared_ptr<Service> of) : service(std::move(of)), reader(service->add()) {}
    ~Seat() { service->remove(*reader); }
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

    const std::shared_ptr<Service> service;
    const std::shared_ptr<typename Service::Reader> reader;
  };

  explicit PictureReader(std::shared_ptr<Service> service)
      : seat_(std::make_unique<Seat>(std::move(service))), cursor_(seat_->service->list()) {}

  std::unique_ptr<Seat> seat_;
  PictureCursor cursor_;
  std::optional<FrameShape> shape_;
};

}  // namespace pvm::inline v0::io
