// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A picture of what a network sees, predicts and does inside. Needs OpenCV.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::io {

/// One moment of a run, as a preview shows it.
struct PreviewContent {
  std::span<const std::uint8_t> frame;  ///< [side][side][channels]
  std::span<const float> prediction;    ///< of that frame, in [0, 1]
  std::span<const float> hidden;        ///< [units][hidden], in [0, 1]
  std::string title;
};

namespace detail {

/// Labelled squares on a dark sheet.
class Sheet {
 public:
  static constexpr int gap = 12;
  static constexpr int label_height = 20;
  static constexpr int width = 3 * 256 + 4 * gap;

  explicit Sheet(int height) : picture_(height, width, CV_8UC3, cv::Scalar::all(24)) {}

  void text(int x, int y, const std::string& words) {
    cv::putText(picture_, words, {x, y + 15}, cv::FONT_HERSHEY_SIMPLEX, 0.5, cv::Scalar::all(230),
                1, cv::LINE_AA);
  }

  /// `picture` (8-bit, 1 or 3 channels) as a square of `side` pixels with a label above it.
  void square(int x, int y, int side, const cv::Mat& picture, const std::string& label) {
    text(x, y, label);
    cv::Mat colour, sized;
    if (picture.channels() == 1) {
      cv::cvtColor(picture, colour, cv::COLOR_GRAY2BGR);
    } else {
      colour = picture;
    }
    const int how = picture.rows > side ? cv::INTER_AREA : cv::INTER_NEAREST;
    cv::resize(colour, sized, {side, side}, 0, 0, how);
    sized.copyTo(picture_(cv::Rect(x, y + label_height, side, side)));
  }

  [[nodiscard]] const cv::Mat& picture() const noexcept { return picture_; }

 private:
  cv::Mat picture_;
};

/// A layer's hidden values as one picture: every unit a block, blue for 0 to yellow for 1.
inline cv::Mat layer_picture(const Spec& spec, const Connectome& net, std::size_t layer,
                             std::span<const float> hidden) {
  const int block = spec.hidden_block_size;
  const int side = spec.layer_shapes[layer];
  cv::Mat grey(side * block, side * block, CV_8UC1);
  for (std::size_t u = net.layer_start[layer]; u < net.layer_start[layer + 1]; ++u) {
    const Unit& unit = net.units[u];
    const float* values = hidden.data() + u * static_cast<std::size_t>(net.hidden);
    for (int i = 0; i < net.hidden; ++i) {
      grey.at<std::uint8_t>(unit.row * block + i / block, unit.column * block + i % block) =
          cv::saturate_cast<std::uint8_t>(255.0F * values[i]);
    }
  }
  cv::Mat colour;
  cv::applyColorMap(grey, colour, cv::COLORMAP_VIRIDIS);
  return colour;
}

}  // namespace detail

/// Input, prediction and error side by side, every layer's activity below them: an 8-bit BGR
/// picture, 816 pixels wide.
inline cv::Mat draw_preview(const Spec& spec, const Connectome& net,
                            const PreviewContent& content) {
  using detail::Sheet;
  constexpr int panel = 256;
  constexpr int columns = 5;
  constexpr int tile = (Sheet::width - (columns + 1) * Sheet::gap) / columns;
  const int layers = static_cast<int>(spec.layer_shapes.size());
  const int rows = (layers + columns - 1) / columns;
  constexpr int first_row = 32;
  constexpr int second_row = first_row + Sheet::label_height + panel + Sheet::gap;
  constexpr int row_height = Sheet::label_height + tile + Sheet::gap;
  Sheet sheet(second_row + rows * row_height);

  const int side = spec.frame_side();
  cv::Mat frame(side, side, CV_8UC(spec.input_channels));
  std::copy(content.frame.begin(), content.frame.end(), frame.data);
  cv::Mat prediction(side, side, CV_8UC(spec.input_channels));
  std::transform(content.prediction.begin(), content.prediction.end(), prediction.data,
                 [](float v) { return cv::saturate_cast<std::uint8_t>(255.0F * v); });
  cv::Mat error;
  cv::absdiff(frame, prediction, error);
  error *= 4;

  sheet.text(Sheet::gap, 8, content.title);
  const auto x_of = [](int column, int width) {
    return Sheet::gap + column * (width + Sheet::gap);
  };
  sheet.square(x_of(0, panel), first_row, panel, frame, "input");
  sheet.square(x_of(1, panel), first_row, panel, prediction, "prediction, 2 steps before");
  sheet.square(x_of(2, panel), first_row, panel, error, "error x 4");
  for (int l = 0; l < layers; ++l) {
    const auto layer = static_cast<std::size_t>(l);
    const std::string sides = std::to_string(spec.layer_shapes[layer]);
    sheet.square(x_of(l % columns, tile), second_row + l / columns * row_height, tile,
                 detail::layer_picture(spec, net, layer, content.hidden),
                 "layer " + std::to_string(l) + ": " + sides + " x " + sides);
  }
  return sheet.picture();
}

/// A Callback (see train/callback.hpp) that draws the batch's first sequence into a PNG file at
/// every multiple of `every` steps (at least 2) and at the target. The file is always whole. A run
/// of less than 2 steps has nothing to show.
class Preview {
 public:
  explicit Preview(std::filesystem::path path, std::uint64_t every = 1000)
      : path_(std::move(path)), every_(std::max<std::uint64_t>(2, every)) {}

  /// Throws Error (Fault::usage) where no picture can be written.
  template <class Moment>
  void begin(const Moment& moment) {
    if (path_.extension() != ".png") refuse("its name must end in .png");
    std::error_code ignored;
    if (std::filesystem::exists(path_, ignored) &&
        !std::filesystem::is_regular_file(path_, ignored)) {
      refuse("it is not a file");
    }
    if (const auto why = why_not_writable(path_); !why.empty()) refuse(why);
    target_ = moment.target;
    foreseen_.clear();
    foresee(moment);
  }

  /// A picture at step m compares the frame of step m - 1 with the prediction of two steps before.
  [[nodiscard]] std::uint64_t next(std::uint64_t step) const {
    const std::uint64_t picture = next_picture(step);
    return picture != none && picture - step > 2 ? picture - 2 : picture;
  }

  template <class Moment>
  void at(const Moment& moment) {
    if (!foreseen_.empty() && foreseen_step_ + 2 == moment.step) draw(moment);
    foresee(moment);
  }

  /// Whether there is a picture by now.
  [[nodiscard]] bool drawn() const noexcept { return drawn_; }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  [[nodiscard]] std::uint64_t next_picture(std::uint64_t step) const {
    return step >= target_ ? none : std::min(target_, (step / every_ + 1) * every_);
  }

  template <class Moment>
  void foresee(const Moment& moment) {
    if (next_picture(moment.step) - moment.step != 2) return;
    foreseen_ = moment.trainer.prediction();
    foreseen_step_ = moment.step;
  }

  template <class Moment>
  void draw(const Moment& moment) {
    const auto frame = moment.trainer.last_frame();
    const auto hidden = moment.trainer.hidden();
    const auto prediction = std::span<const float>(foreseen_).first(frame.size());
    double squares = 0;
    for (std::size_t i = 0; i < frame.size(); ++i) {
      const double error = prediction[i] - frame[i] / 255.0;
      squares += error * error;
    }
    char quality[64];
    std::snprintf(quality, sizeof quality, "PSNR of this prediction %.1f dB",
                  -10 * std::log10(squares / static_cast<double>(frame.size())));
    const Spec& spec = moment.trainer.spec();
    write(draw_preview(spec, moment.trainer.connectome(),
                       {frame, prediction, hidden,
                        spec.name + ", step " + std::to_string(moment.step) + ", " + quality}));
  }

  /// A picture that cannot be written is no reason to end a run.
  void write(const cv::Mat& picture) {
    try {
      std::vector<std::uint8_t> png;
      cv::imencode(".png", picture, png);
      make_directories_of(path_);
      AtomicFile file(path_);
      file.write(png.data(), png.size());
      file.commit(false);
      drawn_ = true;
    } catch (const std::exception& error) {
      if (!std::exchange(failed_, true)) {
        log(Severity::warning, std::string("no preview: ") + error.what());
      }
    }
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Fault::usage,
                "the preview cannot be written to " + quote(path_.string()) + ": " + why);
  }

  std::filesystem::path path_;
  std::uint64_t every_;
  std::uint64_t target_ = 0;
  std::vector<float> foreseen_;  // predictions made at foreseen_step_, for two steps later
  std::uint64_t foreseen_step_ = 0;
  bool drawn_ = false;
  bool failed_ = false;
};

}  // namespace pvm::inline v0::io
