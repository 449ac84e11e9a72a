// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Detects videos that change their size midway.
///
/// A cv::VideoCapture converts every picture as if it had the size of the first one it converted,
/// and does not report that a video changes its size. If the new size is larger, the previous
/// picture is repeated; if it is smaller, part of the previous picture remains. So the picture of a
/// frame then depends on what the capture has converted before. The check decodes the same frame
/// with other captures and compares the pictures. A capture that has converted the first two frames
/// before gives another picture if the new size is larger or smaller. If the new pictures are only
/// narrower, it gives the same one, but a capture that has converted nothing before does not.

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <system_error>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/videoio.hpp>

#include <pvm/core/config.hpp>
#include <pvm/io/open_video.hpp>

namespace pvm::inline v0::io {

namespace detail {

/// The picture of the grabbed frame. Nothing if there is none; an empty picture if OpenCV cannot
/// convert it because its size differs from that of the first frame.
inline std::optional<cv::Mat> retrieved(cv::VideoCapture& capture) {
  cv::Mat picture;
  try {
    if (!capture.retrieve(picture) || picture.empty()) return std::nullopt;
    return picture;
  } catch (const cv::Exception&) {
    return cv::Mat();
  }
}

inline bool same_picture(const cv::Mat& a, const cv::Mat& b) {
  return !a.empty() && a.size() == b.size() && a.type() == b.type() &&
         cv::norm(a, b, cv::NORM_INF) == 0;
}

/// The pictures that a capture converts before the one that it is asked for.
enum class ConvertedBefore { first_two, none };

/// The picture of frame `index`, found by seeking, which decodes only from the key frame before it.
/// If seeking in this file is not exact, the result is nothing or the picture of another frame.
inline std::optional<cv::Mat> picture_sought(const std::string& name, std::uint64_t index,
                                             ConvertedBefore before) {
  cv::VideoCapture capture = open_video(name);
  for (int i = 0; i < 2 && before == ConvertedBefore::first_two && capture.grab(); ++i)
    retrieved(capture);
  const auto frame = static_cast<double>(index);
  capture.set(cv::CAP_PROP_POS_FRAMES, frame);
  if (capture.get(cv::CAP_PROP_POS_FRAMES) != frame || !capture.grab()) return std::nullopt;
  return retrieved(capture);
}

/// The picture of frame `index`, found by decoding the file from its start.
inline std::optional<cv::Mat> picture_decoded(const std::string& name, std::uint64_t index,
                                              ConvertedBefore before) {
  cv::VideoCapture capture = open_video(name);
  for (std::uint64_t i = 0; i <= index; ++i) {
    if (!capture.grab()) return std::nullopt;
    if (i < 2 && before == ConvertedBefore::first_two) retrieved(capture);
  }
  return retrieved(capture);
}

}  // namespace detail

/// Whether frame `index` of the video `name` has another size than the first frame. `picture` is
/// that frame as it was converted by a capture that began with the first frame. Fast if seeking in
/// the file is exact. Otherwise `from_start` says whether the file may be decoded from its start up
/// to that frame, up to three times; if not, the answer is false.
inline bool has_changed_size(const std::string& name, std::uint64_t index, const cv::Mat& picture,
                             bool from_start) {
  using namespace detail;
  for (const auto find : {picture_sought, picture_decoded}) {
    if (find == picture_decoded && !from_start) return false;
    const auto like_it = find(name, index, ConvertedBefore::first_two);
    // If these differ, seeking is not exact or the size has changed: try the other way.
    if (!like_it || !same_picture(picture, *like_it)) continue;
    const auto by_itself = find(name, index, ConvertedBefore::none);
    return by_itself && !same_picture(picture, *by_itself);
  }
  const auto once = picture_decoded(name, index, ConvertedBefore::first_two);
  const auto again = picture_decoded(name, index, ConvertedBefore::first_two);
  if (!once || !again) return false;
  // Reproducible, but not like `picture`: the size has changed.
  if (same_picture(*once, *again)) return true;
  // Two identical captures give different pictures: most likely the file is damaged, and the
  // decoder's result varies.
  const auto by_itself = picture_decoded(name, index, ConvertedBefore::none);
  return by_itself && by_itself->empty();
}

/// The process-wide set of videos that are known to keep their size to the last frame, so that a
/// video that is opened again, for another pass or stream, is not checked again.
class ConstantSizeVideos {
 public:
  static bool holds(const std::string& name) {
    const std::lock_guard lock(mutex());
    return files().contains(identity(name));
  }
  static void add(const std::string& name) {
    const std::lock_guard lock(mutex());
    files().insert(identity(name));
  }

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::set<std::string>& files() {
    static std::set<std::string> files;
    return files;
  }
  /// A key made of path, size and modification time, so that it changes if the file is replaced.
  static std::string identity(const std::string& name) {
    std::error_code ignored;
    const auto changed = std::filesystem::last_write_time(name, ignored).time_since_epoch();
    return std::filesystem::absolute(name, ignored).string() + '\n' +
           std::to_string(std::filesystem::file_size(name, ignored)) + '\n' +
           std::to_string(changed.count());
  }
};

}  // namespace pvm::inline v0::io
