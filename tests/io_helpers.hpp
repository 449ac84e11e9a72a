// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Helpers for the tests of frame sources: make pictures, archives and videos, and read from
/// sources.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#if !defined(_WIN32)
#include <sys/types.h>
#include <unistd.h>
#endif

#include <zip.h>
#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/videoio.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/io/source.hpp>

#include "catch.hpp"
#include "temp_dir.hpp"

namespace pvm_test {

namespace io = pvm::io;
using Bytes = std::vector<std::uint8_t>;

inline constexpr io::FrameShape small_shape{.height = 12, .width = 16, .channels = 3};
inline constexpr io::FrameShape square{.height = 60, .width = 60, .channels = 3};

inline Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

inline void write_file(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

/// How many files and directories there are in `directory`.
inline std::size_t files_in(const std::filesystem::path& directory) {
  const std::filesystem::directory_iterator entries(directory);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

inline Bytes read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// A picture whose colours tell the number of its frame, even after lossy compression.
inline cv::Mat picture(int frame, int width = 32, int height = 24) {
  cv::Mat drawn(height, width, CV_8UC3, cv::Scalar(frame * 5 % 256, 80, 255 - frame * 3 % 256));
  drawn.colRange(0, width / 2).setTo(cv::Scalar(20, frame * 7 % 256, frame * 11 % 256));
  return drawn;
}

inline Bytes encoded(const cv::Mat& drawn, const std::string& extension = ".jpg") {
  Bytes bytes;
  cv::imencode(extension, drawn, bytes);
  return bytes;
}

inline Bytes cut(Bytes bytes, double share) {
  bytes.resize(static_cast<std::size_t>(static_cast<double>(bytes.size()) * share));
  return bytes;
}

using Entries = std::vector<std::pair<std::string, Bytes>>;

inline Entries numbered(int frames) {
  Entries entries;
  for (int i = 0; i < frames; ++i) {
    entries.emplace_back(std::to_string(i) + ".jpg", encoded(picture(i)));
  }
  return entries;
}

enum class Packing { stored, deflated, encrypted };

/// Writes entries as a zip archive. Names that end in a slash become directories.
inline void write_zip(const std::filesystem::path& path, const Entries& entries,
                      Packing packing = Packing::stored) {
  int code = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
  if (archive == nullptr) throw std::runtime_error("zip_open");
  for (const auto& [name, bytes] : entries) {
    if (name.ends_with('/')) {
      zip_dir_add(archive, name.c_str(), 0);
      continue;
    }
    zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
    const auto index =
        static_cast<zip_uint64_t>(zip_file_add(archive, name.c_str(), source, ZIP_FL_OVERWRITE));
    zip_set_file_compression(archive, index,
                             packing == Packing::deflated ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
    if (packing == Packing::encrypted) {
      zip_file_set_encryption(archive, index, ZIP_EM_AES_256, "secret");
    }
  }
  if (zip_close(archive) != 0) throw std::runtime_error(zip_strerror(archive));
}

/// A Motion JPEG video, which every OpenCV writes and reads.
inline void write_video(const std::filesystem::path& path, int frames) {
  cv::VideoWriter writer(path.string(), cv::VideoWriter::fourcc('M', 'J', 'P', 'G'), 25, {32, 24});
  if (!writer.isOpened()) throw std::runtime_error("no video writer");
  for (int i = 0; i < frames; ++i) writer.write(picture(i));
}

/// A RIFF WAVE file with a second of silence: FFmpeg opens it, but it has no pictures.
inline Bytes silence() {
  std::string bytes = "RIFF----WAVEfmt ";
  const auto number = [&bytes](std::uint32_t value, int count) {
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
  };
  for (const auto& [value, count] :
       {std::pair{16U, 4}, {1U, 2}, {1U, 2}, {8000U, 4}, {8000U, 4}, {1U, 2}, {8U, 2}}) {
    number(value, count);
  }
  bytes += "data";
  number(8000, 4);
  bytes.append(8000, '\x80');
  return bytes_of(bytes);
}

/// Collects the messages logged during its lifetime.
class Messages {
 public:
  Messages() {
    pvm::set_log_sink([this](pvm::Severity, const std::string& text) { texts_.push_back(text); });
  }
  ~Messages() { pvm::set_log_sink({}); }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  [[nodiscard]] std::size_t count(const std::string& part = "") const {
    std::size_t found = 0;
    for (const auto& text : texts_) found += text.find(part) != std::string::npos ? 1U : 0U;
    return found;
  }
  [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
};

/// A delivered frame, for comparisons.
struct Frame {
  Bytes pixels;
  bool starts = false;
  io::Label label;
  bool operator==(const Frame&) const = default;
};

template <class S>
Frame read(S& source, const io::FrameShape& shape = small_shape) {
  Frame frame{.pixels = Bytes(shape.size()), .starts = false, .label = {}};
  const io::FrameInfo info = source.next(shape, frame.pixels);
  frame.starts = info.starts_sequence;
  frame.label = info.label;
  return frame;
}

template <class S>
std::vector<Frame> read_many(S& source, int count, const io::FrameShape& shape = small_shape) {
  std::vector<Frame> frames;
  for (int i = 0; i < count; ++i) frames.push_back(read(source, shape));
  return frames;
}

/// The number of the `picture` from which a frame was made, out of `frames`: the one with the
/// nearest colours.
inline int number_of(const Frame& frame, int frames, const io::FrameShape& shape = small_shape) {
  const auto difference = [&](int number) {
    const cv::Mat drawn = picture(number);
    int sum = 0;
    for (const int column : {shape.width / 8, shape.width - 1 - shape.width / 8}) {
      const auto at = static_cast<std::size_t>((shape.height / 2 * shape.width + column) * 3);
      const auto& wanted =
          drawn.at<cv::Vec3b>(drawn.rows / 2, column < shape.width / 2 ? 0 : drawn.cols - 1);
      for (int c = 0; c < 3; ++c) {
        sum += std::abs(frame.pixels[at + static_cast<std::size_t>(c)] - wanted[c]);
      }
    }
    return sum;
  };
  int best = 0;
  for (int i = 1; i < frames; ++i) best = difference(i) < difference(best) ? i : best;
  return best;
}

inline std::vector<int> numbers_of(const std::vector<Frame>& frames, int most) {
  std::vector<int> numbers;
  for (const Frame& frame : frames) numbers.push_back(number_of(frame, most));
  return numbers;
}

/// Reads `total` frames. Then checks for each of their positions that a new source which seeks
/// there delivers exactly the frames that followed.
template <class Make>
void check_resume(Make make, int total, const io::FrameShape& shape = small_shape) {
  auto whole = make();
  std::vector<io::Position> positions;
  std::vector<Frame> frames;
  for (int i = 0; i < total; ++i) {
    positions.push_back(whole.position());
    frames.push_back(read(whole, shape));
  }
  positions.push_back(whole.position());
  for (int from = 0; from < total; ++from) {
    INFO("continuing at frame " << from);
    auto resumed = make();
    resumed.seek(positions[static_cast<std::size_t>(from)]);
    CHECK(resumed.position() == positions[static_cast<std::size_t>(from)]);
    for (int i = from; i < total; ++i) {
      const bool same = read(resumed, shape) == frames[static_cast<std::size_t>(i)];
      CHECK(same);
      CHECK(resumed.position() == positions[static_cast<std::size_t>(i) + 1]);
    }
  }
}

/// The message of the pvm::Error of kind `fault` that `act` throws; empty if it throws none.
template <class Act>
std::string failure(pvm::Fault fault, Act act) {
  try {
    act();
  } catch (const pvm::Error& error) {
    if (error.fault() == fault) return error.what();
  }
  return {};
}
/// The message of the error when opening `path` as a `Source` fails.
template <class Source>
std::string open_failure(const std::filesystem::path& path) {
  return failure(pvm::Fault::source, [&] { Source{path}; });
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Makes a directory the current one during its lifetime.
class InDirectory {
 public:
  explicit InDirectory(const TempDir& dir) : was_(std::filesystem::current_path()) {
    std::filesystem::current_path(dir.path());
  }
  ~InDirectory() {
    std::error_code ignored;
    std::filesystem::current_path(was_, ignored);
  }
  InDirectory(const InDirectory&) = delete;
  InDirectory& operator=(const InDirectory&) = delete;

 private:
  std::filesystem::path was_;
};

/// Changes to a user without privileges during its lifetime, because file permissions do not apply
/// to the superuser.
class Unprivileged {
 public:
  Unprivileged() : was_(geteuid()) {
    if (was_ == 0 && seteuid(65534) != 0) throw std::runtime_error("cannot change the user");
  }
  ~Unprivileged() {
    if (seteuid(was_) != 0) std::abort();  // what follows would run as another user
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;

 private:
  uid_t was_;
};

}  // namespace pvm_test
