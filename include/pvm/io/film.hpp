// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Writes a video of what a network sees, side by side: input, prediction, error, heatmap and box.
/// Needs OpenCV.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <opencv2/videoio.hpp>

#include <unistd.h>

#include <pvm/core/error.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/io/channels.hpp>
#include <pvm/io/quiet.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

/// One picture of a film. What is empty gets a dark square.
struct FilmContent {
  FrameShape shape;
  std::span<const std::uint8_t> frame;  ///< [side][side][channels]
  std::span<const float> prediction;    ///< of that frame, same order, in [0, 1]
  std::span<const float> heat;          ///< [heat side][heat side], 0 to 1
  std::optional<Box> box;               ///< what was found, in pixels of the frame
  std::optional<Box> truth;             ///< the label
  std::string words;                    ///< a few, below
  std::vector<Box> others;              ///< of other objects found
};

namespace detail {

inline constexpr int film_side = 240;  // of a square, in pixels

inline cv::Mat film_square(const cv::Mat& picture) {
  cv::Mat square;
  cv::resize(colours_of(picture, 3), square, {film_side, film_side}, 0, 0, cv::INTER_NEAREST);
  return square;
}

inline cv::Mat film_frame(const FrameShape& shape, std::span<const std::uint8_t> pixels) {
  cv::Mat picture(shape.height, shape.width, CV_8UC(shape.channels), cv::Scalar::all(24));
  if (!pixels.empty()) std::copy(pixels.begin(), pixels.end(), picture.data);
  return picture;
}

inline void draw_film_box(cv::Mat& square, const std::optional<Box>& box, const FrameShape& shape,
                          const cv::Scalar& colour) {
  if (!box) return;
  const double scale = static_cast<double>(film_side) / shape.width;
  const auto at = [scale](float v) { return static_cast<int>(v * scale); };
  cv::rectangle(square, {at(box->x), at(box->y)},
                {at(box->x + box->width), at(box->y + box->height)}, colour, 2);
}

}  // namespace detail

/// Draws one picture of a film, 4 squares wide: the input with the box found (green) and the true
/// one (white), the prediction, 4 times its error, the heatmap.
inline cv::Mat draw_film(const FilmContent& content) {
  const FrameShape& shape = content.shape;
  const cv::Mat frame = detail::film_frame(shape, content.frame);
  cv::Mat input = detail::film_square(frame);
  detail::draw_film_box(input, content.truth, shape, cv::Scalar::all(255));
  detail::draw_film_box(input, content.box, shape, {0, 255, 0});
  for (const Box& box : content.others) detail::draw_film_box(input, box, shape, {0, 200, 255});
  std::vector<std::uint8_t> predicted(content.prediction.size());
  std::transform(content.prediction.begin(), content.prediction.end(), predicted.begin(),
                 [](float v) { return cv::saturate_cast<std::uint8_t>(255 * v); });
  const cv::Mat prediction = detail::film_frame(shape, predicted);
  cv::Mat error(frame.size(), frame.type(), cv::Scalar::all(24));
  if (!predicted.empty()) {
    cv::absdiff(frame, prediction, error);
    error *= 4;
  }
  cv::Mat heat(detail::film_side, detail::film_side, CV_8UC3, cv::Scalar::all(24));
  if (!content.heat.empty()) {
    int side = 1;
    while (static_cast<std::size_t>(side) * static_cast<std::size_t>(side) < content.heat.size()) {
      ++side;
    }
    cv::Mat grey(side, side, CV_8UC1);
    std::transform(content.heat.begin(), content.heat.end(), grey.data,
                   [](float v) { return cv::saturate_cast<std::uint8_t>(255 * v); });
    cv::applyColorMap(grey, heat, cv::COLORMAP_VIRIDIS);
    heat = detail::film_square(heat);
  }
  const std::vector<cv::Mat> squares = {input, detail::film_square(prediction),
                                        detail::film_square(error), heat};
  cv::Mat row;
  cv::hconcat(squares, row);
  cv::putText(row, content.words, {8, detail::film_side - 8}, cv::FONT_HERSHEY_SIMPLEX, 0.45,
              cv::Scalar::all(230), 1, cv::LINE_AA);
  return row;
}

/// A video file being written, under a temporary name until `finish`. Not copyable.
class Film {
 public:
  /// Throws Error (Fault::usage) if the name does not end in .mp4 or .avi, or no video can be
  /// written there.
  explicit Film(std::filesystem::path path, double frames_per_second = 25)
      : path_(std::move(path)), rate_(frames_per_second) {
    const std::string ending = path_.extension().string();
    if (ending != ".mp4" && ending != ".avi") refuse("its name must end in .mp4 or .avi");
    if (const auto why = why_not_writable(path_); !why.empty()) refuse(why);
    make_directories_of(path_);
    temporary_ = path_.string() + "." + std::to_string(::getpid()) + ".tmp" + ending;
  }
  ~Film() {
    writer_.release();
    std::error_code ignored;
    if (!finished_) std::filesystem::remove(temporary_, ignored);
  }
  Film(const Film&) = delete;
  Film& operator=(const Film&) = delete;

  void add(const FilmContent& content) {
    const cv::Mat picture = draw_film(content);
    if (!writer_.isOpened()) {
      quiet_opencv();
      const int codec = cv::VideoWriter::fourcc('m', 'p', '4', 'v');
      if (!writer_.open(temporary_.string(), codec, rate_, picture.size())) {
        refuse("OpenCV has no encoder for it; install one with FFmpeg, or name a .avi");
      }
    }
    writer_.write(picture);
  }

  /// Completes the video and gives it its name. Without a picture there is no file.
  void finish() {
    if (!writer_.isOpened()) return;
    writer_.release();
    std::error_code fault;
    std::filesystem::rename(temporary_, path_, fault);
    if (fault) refuse(fault.message());
    finished_ = true;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Fault::usage, "no video can be written to " + quote(path_.string()) + ": " + why);
  }

  std::filesystem::path path_, temporary_;
  double rate_;
  cv::VideoWriter writer_;
  bool finished_ = false;
};

/// A callback (see train/callback.hpp) that writes a film of the first sequence of a run, a picture
/// for every step. Steps run one by one meanwhile.
class FilmRun {
 public:
  explicit FilmRun(const std::filesystem::path& path) : film_(path) {}

  [[nodiscard]] std::uint64_t next(std::uint64_t step) const { return step + 1; }

  template <class Moment>
  void at(const Moment& moment) {
    auto& trainer = moment.trainer;
    const auto frame = trainer.last_frame();
    const bool predicted = !predictions_[0].empty();
    FilmContent content{trainer.frame_shape(), frame, {}, {}, {}, {}, {}, {}};
    if (predicted) content.prediction = std::span(predictions_[0]).first(frame.size());
    content.words = "step " + std::to_string(moment.step);
    film_.add(content);
    predictions_[0] = std::move(predictions_[1]);
    predictions_[1] = trainer.prediction();
  }
  template <class Moment>
  void end(const Moment&) {
    film_.finish();
  }

 private:
  Film film_;
  std::vector<float> predictions_[2];  // made two steps before, and one
};

}  // namespace pvm::inline v0::io
