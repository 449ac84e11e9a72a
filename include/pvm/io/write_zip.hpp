// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Writes a sequence as a zip archive in the layout of the published PVM data sets.

#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ios>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#if !defined(_WIN32)
#include <fcntl.h>
#include <unistd.h>
#endif

#include <pvm/core/need_libzip.hpp>
#include <pvm/core/need_opencv.hpp>

#include <zip.h>
#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>

#include <pvm/core/error.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/io/channels.hpp>
#include <pvm/io/labels.hpp>
#include <pvm/io/quiet.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

namespace detail {

/// The name of a temporary file, which is removed when this object is destroyed.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path path) : path_(std::move(path)) {}
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

/// Throws Fault::source.
[[noreturn]] inline void cannot_write(const std::filesystem::path& path, const std::string& why) {
  throw Error(Fault::source, pvm::quote(path.string()) + " cannot be written: " + why);
}

/// JPEGs have no alpha: frames with alpha are written as PNGs.
inline const char* picture_extension(const FrameShape& shape) noexcept {
  return shape.has_alpha() ? ".png" : ".jpg";
}

inline std::vector<std::uint8_t> encode_frame(const FrameShape& shape,
                                              std::vector<std::uint8_t>& pixels) {
  std::vector<std::uint8_t> file;
  const cv::Mat picture(shape.height, shape.width, CV_8UC(shape.channels), pixels.data());
  std::vector<int> how;
  if (!shape.has_alpha()) how = {cv::IMWRITE_JPEG_QUALITY, 95};
  cv::imencode(picture_extension(shape), encodable(picture), file, how);
  return file;
}

/// A zip archive being written. Nothing is on the disk before `close`. All functions throw
/// Fault::source if that fails.
class ZipWriter {
 public:
  explicit ZipWriter(const std::filesystem::path& path) : path_(path) {
    int code = 0;
    archive_.reset(zip_open(path.string().c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code));
    if (!archive_) cannot_write(path, "libzip's error is number " + std::to_string(code));
  }

  /// Adds an entry with `length` bytes of `file`, from offset `start` on. The file must exist until
  /// `close`.
  void add_part(const std::string& name, const std::filesystem::path& file, std::uint64_t start,
                std::uint64_t length) {
    add(name, zip_source_file(archive_.get(), file.string().c_str(), start,
                              static_cast<zip_int64_t>(length)));
  }

  /// Adds an entry with a text, which must live until `close`.
  void add_text(const std::string& name, const std::string& text) {
    add(name, zip_source_buffer(archive_.get(), text.data(), text.size(), 0));
  }

  void close() {
    if (zip_close(archive_.get()) != 0) cannot_write(path_, zip_strerror(archive_.get()));
    static_cast<void>(archive_.release());  // closing it has freed it
  }

 private:
  struct Discard {
    void operator()(zip_t* archive) const noexcept { zip_discard(archive); }
  };

  /// Adds an entry: not compressed, since JPEGs do not get smaller, and with a date in 1980, so
  /// that the same frames make the same file. Takes ownership of `content`.
  void add(const std::string& name, zip_source_t* content) {
    const zip_int64_t index =
        content == nullptr ? -1
                           : zip_file_add(archive_.get(), name.c_str(), content, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(content);
      cannot_write(path_, zip_strerror(archive_.get()));
    }
    const auto entry = static_cast<zip_uint64_t>(index);
    constexpr zip_uint16_t midnight = 0;
    constexpr zip_uint16_t new_year_1980 = 0x0021;
    if (zip_set_file_compression(archive_.get(), entry, ZIP_CM_STORE, 0) != 0 ||
        zip_file_set_dostime(archive_.get(), entry, midnight, new_year_1980, 0) != 0) {
      cannot_write(path_, zip_strerror(archive_.get()));
    }
  }

  std::filesystem::path path_;
  std::unique_ptr<zip_t, Discard> archive_;
};

/// Gives the file `made` the name `path`, as a hard link if possible, so that `made` may keep its
/// name as well. Throws Fault::source if a file named `path` exists by now. On file systems without
/// hard links, a file created between the check and the renaming is overwritten.
inline void publish(const std::filesystem::path& made, const std::filesystem::path& path) {
  std::error_code fault;
  std::filesystem::create_hard_link(made, path, fault);
  if (!fault) return;
  std::error_code ignored;
  if (fault == std::errc::file_exists ||
      std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) {
    cannot_write(path, "a file of that name has come meanwhile; choose another name");
  }
  std::filesystem::rename(made, path, fault);
  if (fault) cannot_write(path, fault.message());
}

/// Flushes a file, so that its content is on the disk before it gets its final name.
inline void flush_to_disk(const std::filesystem::path& path) {
#if !defined(_WIN32)
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool flushed = file >= 0 && ::fsync(file) == 0;
  if (file >= 0) ::close(file);
  if (!flushed) cannot_write(path, "it cannot be flushed to the disk");
#else
  static_cast<void>(path);
#endif
}

}  // namespace detail

/// Writes frames of `source` at `shape` into a new zip archive: as 0000.jpg, 0001.jpg, ... (quality
/// 95; with alpha as 0000.png, ... without loss), and labels.txt with a line for each frame:
/// x,y,w,h in whole pixels of the pictures written, -1,-1,-1,-1 if the object is absent, ?,?,?,? if
/// the frame is unlabelled. If all frames are unlabelled there is no labels.txt. The zip reads back
/// to the same labels. `frames`: how many; without a value, all up to the end of the source's pass.
/// The pictures are collected in a temporary file beside `path`, so their number is not limited by
/// memory. `before(i)` is called before frame i, for showing progress; an exception it throws ends
/// the writing. Returns the number of frames written.
///
/// Throws Fault::usage if `frames` is 0, `shape` is impossible, or `path` exists already;
/// Fault::source if reading or writing fails. Then nothing is left behind.
template <FrameSource S>
std::uint64_t write_published_zip(const std::filesystem::path& path, S& source,
                                  const FrameShape& shape, std::optional<std::uint64_t> frames,
                                  const std::function<void(std::uint64_t)>& before = {}) {
  check_shape(shape);
  if (frames == 0) throw Error(Fault::usage, "a sequence of 0 frames is none; ask for 1 or more");
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    throw Error(Fault::usage,
                pvm::quote(path.string()) + " exists already; remove it or choose another name");
  }
  quiet_opencv();
  remove_abandoned_temporaries(path.string() + ".");
  const detail::TemporaryFile pictures(detail::temporary_name(path.string() + ".frames"));
  const detail::TemporaryFile whole(detail::temporary_name(path));
  std::vector<std::uint8_t> pixels(shape.size());
  std::vector<std::uint64_t> ends{0};
  std::string labels;
  bool labelled = false;

  std::ofstream stream(pictures.path(), std::ios::binary | std::ios::trunc);
  const std::uint64_t pass = source.position().pass;
  const auto ended = [&] { return !frames && source.position().pass != pass; };
  for (std::uint64_t i = 0; i != frames && !ended() && stream; ++i) {
    if (before) before(i);
    const FrameInfo info = source.next(shape, pixels);
    // Some sources notice only now that the frame before was the last of the pass, and have
    // delivered the first frame of the next pass: drop it.
    const Position next = source.position();
    if (ended() && (next.sequence != 0 || next.frame != 0)) break;
    const auto file = detail::encode_frame(shape, pixels);
    stream.write(reinterpret_cast<const char*>(file.data()),
                 static_cast<std::streamsize>(file.size()));
    ends.push_back(ends.back() + file.size());
    labels += detail::label_line(info.label);
    labelled = labelled || info.label.state != LabelState::unlabelled;
  }
  stream.close();
  if (!stream) detail::cannot_write(path, "is the directory there, writable, and not full?");

  detail::ZipWriter archive(whole.path());
  const std::uint64_t written = ends.size() - 1;
  for (std::uint64_t i = 0; i < written; ++i) {
    std::string name = std::to_string(i) + detail::picture_extension(shape);
    name.insert(0, name.size() < 8 ? 8 - name.size() : 0, '0');
    archive.add_part(name, pictures.path(), ends[i], ends[i + 1] - ends[i]);
  }
  if (labelled) archive.add_text("labels.txt", labels);
  archive.close();
  detail::flush_to_disk(whole.path());
  detail::publish(whole.path(), path);
  return written;
}

}  // namespace pvm::inline v0::io
