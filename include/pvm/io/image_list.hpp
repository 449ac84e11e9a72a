// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Sources made of picture files, in a zip or a directory. Everything is shared here except how the
/// bytes of a file are read, which is the FileStore's part.

#include <algorithm>
#include <concepts>
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
#include <pvm/core/log.hpp>
#include <pvm/io/file_names.hpp>
#include <pvm/io/labels.hpp>
#include <pvm/io/natural_order.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/unreadable.hpp>

namespace pvm::inline v0::io {

/// Files with more bytes are not read as pictures.
inline constexpr std::uint64_t most_frame_bytes = 256ULL << 20;

/// A file in an archive or directory.
struct StoredFile {
  std::string name;
  std::uint64_t id = 0;  ///< for the store's own use
};

/// Read access to a collection of files, opened from a path. `files` lists the files in any order.
/// `read` replaces `bytes` by the content of a file; false if it cannot be read. A store may offer
/// `size`, the number of these bytes, so that many threads do not read too many together.
template <class S>
concept FileStore = std::movable<S> && std::constructible_from<S, std::filesystem::path> &&
    requires(S store, const S constant, const StoredFile& file, std::vector<std::uint8_t>& bytes) {
  { constant.files() } -> std::same_as<std::vector<StoredFile>>;
  { store.read(file, bytes) } -> std::same_as<bool>;
};

/// The content of a store: its pictures, and the labels of the one text file beside them.
struct PictureList {
  std::string name;                    ///< the path of the store, as it was given
  std::vector<StoredFile> pictures{};  ///< in natural order of their names
  std::vector<Label>
      labels{};  ///< one for each picture, in its own pixels; empty if there are none
};

namespace detail {

template <FileStore Store>
void read_labels(Store& store, const std::vector<StoredFile>& texts, PictureList& list) {
  if (texts.empty()) return;
  const std::string name = pvm::quote(list.name);
  std::vector<std::uint8_t> bytes;
  if (texts.size() > 1) {
    log(Severity::warning, name + " holds " + std::to_string(texts.size()) +
                               " text files, so which one has the labels is not known; its " +
                               "frames are unlabelled");
  } else if (!store.read(texts.front(), bytes)) {
    log(Severity::warning, "the labels " + pvm::quote(texts.front().name) + " in " + name +
                               " cannot be read; its frames are unlabelled");
  } else {
    list.labels = parse_labels({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                               list.pictures.size(), list.name);
  }
}

}  // namespace detail

/// Lists the pictures of `store`, which was opened from `path`, and reads their labels. Throws
/// Fault::source if the store cannot be read or holds no pictures.
template <FileStore Store>
PictureList list_pictures(Store& store, const std::filesystem::path& path) {
  PictureList list{.name = path.string()};
  std::vector<StoredFile> texts;
  for (StoredFile& file : store.files()) {
    if (is_image_name(file.name)) {
      list.pictures.push_back(std::move(file));
    } else if (is_label_name(file.name)) {
      texts.push_back(std::move(file));
    }
  }
  if (list.pictures.empty()) {
    throw Error(Fault::source, pvm::quote(list.name) +
                                   " holds no pictures; frames are files called " +
                                   ".jpg, .png, .bmp, .tif, .webp, .ppm or .pgm");
  }
  std::stable_sort(
      list.pictures.begin(), list.pictures.end(),
      [](const StoredFile& a, const StoredFile& b) { return natural_less(a.name, b.name); });
  detail::read_labels(store, texts, list);
  return list;
}

/// The state of one reader of a PictureList: its position, and the unreadable pictures it has met.
/// It implements everything of a source except making the pixels.
class PictureCursor {
 public:
  explicit PictureCursor(std::shared_ptr<const PictureList> list) : list_(std::move(list)) {}
  /// A cursor at the first picture, for another reader of the list of `other`. An unreadable
  /// picture is reported only by the reader that meets it first.
  static PictureCursor beside(const PictureCursor& other) {
    PictureCursor fresh(other.list_);
    fresh.unreadable_ = Unreadable::beside(other.unreadable_);
    return fresh;
  }

  [[nodiscard]] const PictureList& list() const noexcept { return *list_; }
  /// The index of the next picture.
  [[nodiscard]] std::size_t index() const { return static_cast<std::size_t>(position_.frame); }

  /// Moves on to the next picture. `size`: of the picture at `index()`, false if it was not
  /// readable. Returns what is known about its frame of `shape`, or nothing if it was not readable.
  /// Throws Fault::source if as many pictures in a row as there are were unreadable.
  std::optional<FrameInfo> settle(const PictureSize& size, const FrameShape& shape) {
    const auto& pictures = list_->pictures;
    const std::size_t index = this->index();
    if (index == 0) starting_ = true;
    if (++position_.frame == pictures.size()) {
      position_.frame = 0;
      ++position_.pass;
    }
    if (size) {
      failures_ = 0;
      const Label label = list_->labels.empty() ? Label{} : list_->labels[index];
      return FrameInfo{std::exchange(starting_, false),
                       label.resized(size, {shape.width, shape.height}), size};
    }
    unreadable_.note(index, pvm::quote(pictures[index].name) + " in ", list_->name);
    if (++failures_ < pictures.size()) return std::nullopt;
    failures_ = 0;
    throw Error(Fault::source, "none of the " + std::to_string(pictures.size()) + " pictures in " +
                                   pvm::quote(list_->name) + " can be read; is it damaged?");
  }

  [[nodiscard]] Position position() const { return position_; }
  void seek(const Position& position) {
    check_position(position, length(), list_->name);
    position_ = position;
    failures_ = 0;
    starting_ = position.frame == 0;
  }
  [[nodiscard]] std::uint64_t length() const { return list_->pictures.size(); }
  [[nodiscard]] const Unreadable& unreadable() const noexcept { return unreadable_; }
  [[nodiscard]] Unreadable& unreadable() noexcept { return unreadable_; }

 private:
  std::shared_ptr<const PictureList> list_;
  Position position_;
  std::size_t failures_ = 0;  // unreadable pictures in a row
  bool starting_ = true;      // the next readable picture starts a sequence
  Unreadable unreadable_;
};

/// The pictures of a store as a source. Each picture is read and decoded when it is asked for, on
/// the caller's thread; PictureReader does it ahead, on many threads. Model of FrameSource.
template <FileStore Store>
class ImageList {
 public:
  /// Throws Fault::source if `path` cannot be opened or holds no pictures.
  explicit ImageList(const std::filesystem::path& path)
      : store_(path), cursor_(std::make_shared<const PictureList>(list_pictures(store_, path))) {}

  /// Throws Fault::source if none of the pictures can be read, Fault::usage if `shape` is
  /// impossible or `pixels` is not `shape.size()` bytes.
  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    check_request(shape, pixels);
    for (;;) {
      const StoredFile& picture = cursor_.list().pictures[cursor_.index()];
      PictureSize size;
      if (store_.read(picture, bytes_)) size = decode_image(bytes_, shape, pixels);
      if (const auto info = cursor_.settle(size, shape)) return *info;
    }
  }

  [[nodiscard]] Position position() const { return cursor_.position(); }
  void seek(const Position& position) { cursor_.seek(position); }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return cursor_.length(); }
  [[nodiscard]] std::uint64_t skipped() const { return cursor_.unreadable().count(); }
  [[nodiscard]] const std::string& name() const { return cursor_.list().name; }
  [[nodiscard]] std::string replay_id() const { return "file " + name(); }
  [[nodiscard]] std::vector<std::string> files() const { return {name()}; }

  /// The pictures found unreadable so far, for the next object that opens this file.
  [[nodiscard]] Unreadable& unreadable() { return cursor_.unreadable(); }

 private:
  Store store_;
  PictureCursor cursor_;
  std::vector<std::uint8_t> bytes_;  // of a picture's file
};

}  // namespace pvm::inline v0::io
