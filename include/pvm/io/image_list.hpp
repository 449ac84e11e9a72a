// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a zip and a directory of pictures share: everything but how the bytes of a picture are
/// read.

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

/// A file that holds more is not read as one frame.
inline constexpr std::uint64_t most_frame_bytes = 256ULL << 20;

/// A named file in an archive or directory; `id` means something to its store only.
struct StoredFile {
  std::string name;
  std::uint64_t id = 0;
};

/// Where files are kept. `files` lists them in any order, `read` replaces `bytes` by one file's
/// content and says whether it could.
template <class S>
concept FileStore = std::movable<S> && std::constructible_from<S, std::filesystem::path> &&
    requires(S store, const S constant, const StoredFile& file, std::vector<std::uint8_t>& bytes) {
  { constant.files() } -> std::same_as<std::vector<StoredFile>>;
  { store.read(file, bytes) } -> std::same_as<bool>;
};

/// What a store holds: its pictures, and the labels of the one text file beside them.
struct PictureList {
  std::string name;                          ///< of the store
  std::vector<StoredFile> pictures{};        ///< in natural order of their names
  std::vector<std::optional<Box>> labels{};  ///< one for each picture, or none at all
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

/// Looks through `store`, which was opened from `path`. Throws Fault::source where it cannot be
/// read or holds no pictures.
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

/// Where a reader of a list of pictures stands, and what it has met: all of a source but the
/// pixels.
class PictureCursor {
 public:
  explicit PictureCursor(std::shared_ptr<const PictureList> list) : list_(std::move(list)) {}
  /// For another reader, at the beginning.
  static PictureCursor beside(const PictureCursor& other) {
    PictureCursor fresh(other.list_);
    fresh.unreadable_ = Unreadable::beside(other.unreadable_);
    return fresh;
  }

  [[nodiscard]] const PictureList& list() const noexcept { return *list_; }
  /// The index of the picture that is next.
  [[nodiscard]] std::size_t index() const { return static_cast<std::size_t>(position_.frame); }

  /// Moves on behind the picture at `index()`. The facts of its frame; nothing where it was not
  /// readable. Throws Fault::source where a whole pass was unreadable.
  std::optional<FrameInfo> settle(bool readable) {
    const auto& pictures = list_->pictures;
    const std::size_t index = this->index();
    if (index == 0) starting_ = true;
    if (++position_.frame == pictures.size()) {
      position_.frame = 0;
      ++position_.pass;
    }
    if (readable) {
      failures_ = 0;
      return FrameInfo{std::exchange(starting_, false),
                       list_->labels.empty() ? std::nullopt : list_->labels[index]};
    }
    unreadable_.note(index, pvm::quote(pictures[index].name) + " in " + pvm::quote(list_->name));
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
  std::size_t failures_ = 0;  // unreadable ones in a row
  bool starting_ = true;
  Unreadable unreadable_;
};

/// The pictures of a store as a FrameSource: read and decoded one after the other, when they are
/// asked for. Model of FrameSource.
template <FileStore Store>
class ImageList {
 public:
  /// Throws Fault::source where `path` cannot be opened or holds no pictures.
  explicit ImageList(const std::filesystem::path& path)
      : store_(path), cursor_(std::make_shared<const PictureList>(list_pictures(store_, path))) {}

  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    check_request(shape, pixels);
    for (;;) {
      const StoredFile& picture = cursor_.list().pictures[cursor_.index()];
      const bool readable = store_.read(picture, bytes_) && decode_image(bytes_, shape, pixels);
      if (const auto info = cursor_.settle(readable)) return *info;
    }
  }

  [[nodiscard]] Position position() const { return cursor_.position(); }
  void seek(const Position& position) { cursor_.seek(position); }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return cursor_.length(); }
  [[nodiscard]] std::uint64_t skipped() const { return cursor_.unreadable().count(); }
  [[nodiscard]] const std::string& name() const { return cursor_.list().name; }
  [[nodiscard]] std::string replay_id() const { return "file " + name(); }

  /// What is known to be unreadable, to be handed on when the source is opened again.
  [[nodiscard]] Unreadable& unreadable() { return cursor_.unreadable(); }

 private:
  Store store_;
  PictureCursor cursor_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace pvm::inline v0::io
