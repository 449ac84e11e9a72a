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
#include <pvm/io/pipeline.hpp>
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

/// The pictures of a store in natural order of their names, as a FrameSource, with the labels of
/// the one text file beside them. Model of FrameSource.
template <FileStore Store>
class ImageList {
 public:
  /// Throws Fault::source where `path` cannot be opened or holds no pictures.
  explicit ImageList(const std::filesystem::path& path) : name_(path.string()), store_(path) {
    std::vector<StoredFile> texts;
    for (StoredFile& file : store_.files()) {
      if (is_image_name(file.name)) {
        images_.push_back(std::move(file));
      } else if (is_label_name(file.name)) {
        texts.push_back(std::move(file));
      }
    }
    if (images_.empty()) {
      throw Error(Fault::source, pvm::quote(name_) +
                                     " holds no pictures; frames are files called " +
                                     ".jpg, .png, .bmp, .tif, .webp, .ppm or .pgm");
    }
    std::stable_sort(images_.begin(), images_.end(), [](const StoredFile& a, const StoredFile& b) {
      return natural_less(a.name, b.name);
    });
    read_labels(texts);
  }

  /// See StagedSource.
  static constexpr const char* take_name = "read";
  static constexpr const char* finish_name = "decode and resize";
  struct Job {
    std::size_t index = 0;
    bool whole = false;  ///< whether it could be read
  };
  using Raw = std::vector<std::uint8_t>;

  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    return next_in_turn(*this, job_, bytes_, shape, pixels);
  }

  void take(Job& job, Raw& raw) {
    job.index = taken_;
    taken_ = (taken_ + 1) % images_.size();
    job.whole = store_.read(images_[job.index], raw);
  }

  bool finish(const Job& job, const Raw& raw, const FrameShape& shape,
              std::span<std::uint8_t> pixels) const {
    return job.whole && decode_image(raw, shape, pixels);
  }

  /// Throws Fault::source where a whole pass was unreadable.
  std::optional<FrameInfo> settle(const Job& job, bool readable) {
    if (job.index == 0) starting_ = true;
    if (++position_.frame == images_.size()) {
      position_.frame = 0;
      ++position_.pass;
    }
    if (readable) {
      failures_ = 0;
      return FrameInfo{std::exchange(starting_, false),
                       boxes_.empty() ? std::nullopt : boxes_[job.index]};
    }
    unreadable_.note(job.index, pvm::quote(images_[job.index].name) + " in " + pvm::quote(name_));
    if (++failures_ < images_.size()) return std::nullopt;
    failures_ = 0;
    throw Error(Fault::source, "none of the " + std::to_string(images_.size()) + " pictures in " +
                                   pvm::quote(name_) + " can be read; is it damaged?");
  }

  [[nodiscard]] Position position() const { return position_; }

  void seek(const Position& position) {
    check_position(position, images_.size(), name_);
    position_ = position;
    taken_ = static_cast<std::size_t>(position.frame);
    failures_ = 0;
    starting_ = position.frame == 0;
  }

  [[nodiscard]] std::optional<std::uint64_t> length() const { return images_.size(); }
  [[nodiscard]] std::uint64_t skipped() const { return unreadable_.count(); }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::string replay_id() const { return "file " + name_; }

  /// In their order.
  [[nodiscard]] const std::vector<StoredFile>& pictures() const noexcept { return images_; }

  /// What is known to be unreadable, to be handed on when the source is opened again.
  [[nodiscard]] Unreadable& unreadable() { return unreadable_; }

 private:
  void read_labels(const std::vector<StoredFile>& texts) {
    if (texts.empty()) return;
    if (texts.size() > 1) {
      log(Severity::warning, pvm::quote(name_) + " holds " + std::to_string(texts.size()) +
                                 " text files, so which one has the labels is not known; its " +
                                 "frames are unlabelled");
    } else if (!store_.read(texts.front(), bytes_)) {
      log(Severity::warning, "the labels " + pvm::quote(texts.front().name) + " in " +
                                 pvm::quote(name_) + " cannot be read; its frames are unlabelled");
    } else {
      boxes_ = parse_labels({reinterpret_cast<const char*>(bytes_.data()), bytes_.size()},
                            images_.size(), name_);
    }
  }

  std::string name_;
  Store store_;
  std::vector<StoredFile> images_;
  std::vector<std::optional<Box>> boxes_;  // one for each image, or none at all
  Position position_;
  std::size_t taken_ = 0;     // the next picture to be taken, position_.frame or ahead of it
  std::size_t failures_ = 0;  // unreadable ones in a row
  bool starting_ = true;
  Unreadable unreadable_;
  Job job_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace pvm::inline v0::io
