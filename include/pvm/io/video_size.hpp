// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Whether a video keeps its size.
///
/// OpenCV makes every picture by the size of the one it made first, and says nothing where a video
/// changes its size. A larger one leaves the last picture as it was, of a smaller one some part is
/// left. Both show beside a capture that has made other pictures before; one that is narrower only,
/// beside a capture that has made none.

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

/// Nothing where there is no picture, an empty one where OpenCV cannot make one because its size
/// does not fit the one that the file begins with.
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

/// What a capture has made before the picture that it is asked for.
enum class Made { first_two, none };

/// The picture at frame `index` of a file that can be sought. Decodes no more than lies between two
/// key pictures. None or another one where seeking is not exact.
inline std::optional<cv::Mat> picture_sought(const std::string& name, std::uint64_t index,
                                             Made made) {
  cv::VideoCapture capture = open_video(name);
  for (int i = 0; i < 2 && made == Made::first_two && capture.grab(); ++i) retrieved(capture);
  const auto frame = static_cast<double>(index);
  capture.set(cv::CAP_PROP_POS_FRAMES, frame);
  if (capture.get(cv::CAP_PROP_POS_FRAMES) != frame || !capture.grab()) return std::nullopt;
  return retrieved(capture);
}

/// The same, decoded from the start.
inline std::optional<cv::Mat> picture_decoded(const std::string& name, std::uint64_t index,
                                              Made made) {
  cv::VideoCapture capture = open_video(name);
  for (std::uint64_t i = 0; i <= index; ++i) {
    if (!capture.grab()) return std::nullopt;
    if (i < 2 && made == Made::first_two) retrieved(capture);
  }
  return retrieved(capture);
}

}  // namespace detail

/// Whether frame `index` of the video `name`, of which a capture that began with the first frame
/// has made `picture`, is of another size than that one. Fast where the file can be sought and
/// nothing is wrong; else `from_start` says whether all before that frame may be decoded again, up
/// to three times.
inline bool is_of_other_size(const std::string& name, std::uint64_t index, const cv::Mat& picture,
                             bool from_start) {
  using namespace detail;
  for (const auto find : {picture_sought, picture_decoded}) {
    if (find == picture_decoded && !from_start) return false;
    const auto like_it = find(name, index, Made::first_two);
    if (!like_it || !same_picture(picture, *like_it)) continue;
    const auto by_itself = find(name, index, Made::none);
    return by_itself && !same_picture(picture, *by_itself);
  }
  const auto once = picture_decoded(name, index, Made::first_two);
  const auto again = picture_decoded(name, index, Made::first_two);
  if (!once || !again) return false;
  if (same_picture(*once, *again)) return true;
  // Not even twice the same: most likely damage, which is decoded now this way, now that.
  const auto by_itself = picture_decoded(name, index, Made::none);
  return by_itself && by_itself->empty();
}

/// The videos that are known to keep their size to their last frame, so that one that is opened
/// again, for another pass or stream, is not looked through again.
class OfOneSize {
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
  /// Another one where the file is replaced.
  static std::string identity(const std::string& name) {
    std::error_code ignored;
    const auto changed = std::filesystem::last_write_time(name, ignored).time_since_epoch();
    return std::filesystem::absolute(name, ignored).string() + '\n' +
           std::to_string(std::filesystem::file_size(name, ignored)) + '\n' +
           std::to_string(changed.count());
  }
};

}  // namespace pvm::inline v0::io
