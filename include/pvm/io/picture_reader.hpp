// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The pictures of a zip or a directory, decoded ahead on many threads, for one reader or several.

#include <algorithm>
#include <atomic>
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
#include <pvm/core/trace.hpp>
#include <pvm/io/image_list.hpp>
#include <pvm/io/picture_service.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/unreadable.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0::io {

/// Delivers exactly the frames that ImageList<Store> would, in the same order, but the threads of
/// the DecodePool make them ahead. `share` returns further readers of the same open file: they have
/// one decoder, and a frame that several of them need soon is decoded once. Each reader may be used
/// on a thread of its own. A failure is thrown by the `next` that should have delivered that frame.
/// Movable; a moved-from object may only be destroyed or assigned to. Model of FrameSource.
template <FileStore Store, class Decoder = CpuPictureDecoder>
class PictureReader {
 public:
  /// Reading ahead begins with the first `next` or `prepare`, which give the shape. Throws
  /// Fault::source if `path` cannot be opened or holds no pictures, Fault::memory if no thread can
  /// be started, and what the decoder throws.
  explicit PictureReader(const std::filesystem::path& path)
      : PictureReader(std::make_shared<Service>(path)) {}

  /// If the shape differs from that of the previous call, the frames made ahead are discarded.
  /// Throws Fault::source if none of the pictures can be read, Fault::usage if `shape` is
  /// impossible or `pixels` is not `shape.size()` bytes, and what the decoder throws.
  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    check_request(shape, pixels);
    shape_ = shape;
    for (;;) {
      const auto frame = registration_->service->take(registration_->reader, shape, asked_);
      const auto info = cursor_.settle(frame->size, shape);
      if (!info) continue;
      std::copy(frame->pixels.begin(), frame->pixels.end(), pixels.begin());
      trace::carry_flow(frame->flow);
      return *info;
    }
  }

  [[nodiscard]] Position position() const { return cursor_.position(); }
  void seek(const Position& position) {
    cursor_.seek(position);
    registration_->service->seek(*registration_->reader, cursor_.index());
  }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return cursor_.length(); }
  [[nodiscard]] std::uint64_t skipped() const { return cursor_.unreadable().count(); }
  [[nodiscard]] const std::string& name() const { return cursor_.list().name; }
  /// Contains the decoder's id, because the frames of different decoders differ.
  [[nodiscard]] std::string replay_id() const { return Decoder::id + ("file " + name()); }
  [[nodiscard]] std::vector<std::string> files() const { return {name()}; }
  [[nodiscard]] Unreadable& unreadable() { return cursor_.unreadable(); }
  [[nodiscard]] std::vector<StageUsage> usage() const {
    return registration_->service->usage(*registration_->reader);
  }

  /// Seeks, and starts making frames there at once if the shape is known.
  void seek_ahead(const Position& position) {
    seek(position);
    if (shape_) registration_->service->prepare(registration_->reader, *shape_);
  }
  /// See `io::prepare`.
  void prepare(const FrameShape& shape) {
    check_shape(shape);
    shape_ = shape;
    registration_->service->prepare(registration_->reader, shape);
  }
  /// See `io::read_ahead`.
  bool read_ahead(std::size_t frames) {
    registration_->service->read_ahead(*registration_->reader, frames);
    return true;
  }
  /// See `io::stop_when`.
  void stop_when(const std::atomic<bool>* asked) { asked_ = asked; }
  /// See `io::expect_once`.
  void expect_once(bool once) { registration_->service->expect_once(*registration_->reader, once); }

  /// Another reader of the same open file, at its first picture. An unreadable picture is reported
  /// only by the reader that meets it first.
  [[nodiscard]] PictureReader share() const {
    PictureReader fresh(registration_->service);
    fresh.cursor_ = PictureCursor::beside(cursor_);
    return fresh;
  }

 private:
  using Service = detail::PictureService<Store, Decoder>;

  /// Registers a reader with the service for as long as it lives.
  struct Registration {
    explicit Registration(std::shared_ptr<Service> of)
        : service(std::move(of)), reader(service->add()) {}
    ~Registration() { service->remove(*reader); }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

    const std::shared_ptr<Service> service;
    const std::shared_ptr<typename Service::Reader> reader;
  };

  explicit PictureReader(std::shared_ptr<Service> service)
      : registration_(std::make_unique<Registration>(std::move(service))),
        cursor_(registration_->service->list()) {}

  std::unique_ptr<Registration> registration_;
  PictureCursor cursor_;
  std::optional<FrameShape> shape_;           // of the latest `next` or `prepare`
  const std::atomic<bool>* asked_ = nullptr;  // see `io::stop_when`
};

}  // namespace pvm::inline v0::io
