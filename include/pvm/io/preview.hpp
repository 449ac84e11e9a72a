// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Draws a picture of what a network sees, what it predicts, and the activity of its layers. Needs
/// OpenCV.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/open_fault.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/io/channels.hpp>
#include <pvm/io/terminal_picture.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::io {

/// What a preview shows: one moment of a run, of one sequence.
struct PreviewContent {
  std::span<const std::uint8_t> frame;   ///< the newest frame, [side][side][channels]
  std::span<const float> prediction;     ///< of that frame, same order, in [0, 1]
  std::span<const std::uint8_t> before;  ///< the frame two steps before it; empty if there is none
  std::span<const float> hidden;         ///< [units][hidden], in [0, 1]
  std::string title;                     ///< a line of ASCII text
};

namespace detail {

/// A dark sheet with labelled square pictures, four in a row.
class Sheet {
 public:
  // All in pixels, but `columns`.
  static constexpr int side = 192;
  static constexpr int columns = 4;
  static constexpr int gap = 12;
  static constexpr int title_height = 32;
  static constexpr int label_height = 40;
  static constexpr int width = columns * side + (columns + 1) * gap;

  explicit Sheet(int squares) : picture_(height(squares), width, CV_8UC3, cv::Scalar::all(24)) {}

  void title(const std::string& words) { text({gap, 24}, words, 0.5, 230); }

  /// Adds `picture` (8-bit, 1 to 4 channels, of which alpha is not shown; square) at the next free
  /// place, scaled to the size of the square, with `label` and a smaller line `detail` above it.
  void add(const cv::Mat& picture, const std::string& label, const std::string& detail) {
    const int x = gap + next_ % columns * (side + gap);
    const int y = title_height + next_ / columns * (label_height + side + gap);
    ++next_;
    text({x, y + 16}, label, 0.5, 230);
    text({x, y + 33}, detail, 0.4, 150);
    cv::Mat sized = picture_(cv::Rect(x, y + label_height, side, side));
    const int how = picture.rows > side ? cv::INTER_AREA : cv::INTER_NEAREST;
    cv::resize(colours_of(picture, 3), sized, {side, side}, 0, 0, how);
  }

  [[nodiscard]] const cv::Mat& picture() const noexcept { return picture_; }

 private:
  static int height(int squares) {
    return title_height + (squares + columns - 1) / columns * (label_height + side + gap);
  }

  void text(cv::Point at, const std::string& words, double size, double shade) {
    cv::putText(picture_, words, at, cv::FONT_HERSHEY_SIMPLEX, size, cv::Scalar::all(shade), 1,
                cv::LINE_AA);
  }

  cv::Mat picture_;
  int next_ = 0;
};

/// A layer's hidden values as one picture, from blue for 0 to yellow for 1. Every unit is a block
/// of `hidden_block_size`^2 values, with dark lines between units if there is room for them.
/// `hidden`: [units][hidden] of the whole network.
inline cv::Mat layer_picture(const Spec& spec, const Connectome& net, std::size_t layer,
                             std::span<const float> hidden) {
  const int block = spec.hidden_block_size;
  const int side = spec.layer_shapes[layer];
  const int room = Sheet::side / side;
  const int shown = room - 2 >= block ? (room - 2) / block * block : block;
  const int pitch = std::max(room, block);
  cv::Mat sheet(side * pitch, side * pitch, CV_8UC3, cv::Scalar::all(24));
  cv::Mat grey(block, block, CV_8UC1);
  cv::Mat colour;
  for (std::size_t u = net.layer_start[layer]; u < net.layer_start[layer + 1]; ++u) {
    const float* values = hidden.data() + u * static_cast<std::size_t>(net.hidden);
    std::transform(values, values + net.hidden, grey.data,
                   [](float v) { return cv::saturate_cast<std::uint8_t>(255.0F * v); });
    cv::applyColorMap(grey, colour, cv::COLORMAP_VIRIDIS);
    const Unit& unit = net.units[u];
    const int margin = (pitch - shown) / 2;
    cv::Mat place =
        sheet(cv::Rect(unit.column * pitch + margin, unit.row * pitch + margin, shown, shown));
    cv::resize(colour, place, {shown, shown}, 0, 0, cv::INTER_NEAREST);
  }
  return sheet;
}

/// A frame as an 8-bit picture; `scale` takes `values` to the range 0 to 255.
template <class Value>
cv::Mat frame_picture(const Spec& spec, std::span<const Value> values, float scale) {
  cv::Mat picture(spec.frame_side(), spec.frame_side(), CV_8UC(spec.input_channels));
  std::transform(values.begin(), values.end(), picture.data, [scale](Value v) {
    return cv::saturate_cast<std::uint8_t>(scale * static_cast<float>(v));
  });
  return picture;
}

/// The PSNR in dB between `frame` and `expected`, as a label; `scale` takes the values of
/// `expected` to [0, 1].
template <class Value>
std::string psnr_text(std::span<const std::uint8_t> frame, std::span<const Value> expected,
                      double scale) {
  double squares = 0;
  for (std::size_t i = 0; i < frame.size(); ++i) {
    const double error = scale * static_cast<double>(expected[i]) - frame[i] / 255.0;
    squares += error * error;
  }
  if (squares == 0) return "no error";
  char text[40];
  std::snprintf(text, sizeof text, "PSNR %.1f dB, more is better",
                -10 * std::log10(squares / static_cast<double>(frame.size())));
  return text;
}

/// The absolute difference, times 4.
inline cv::Mat magnified_difference(const cv::Mat& a, const cv::Mat& b) {
  cv::Mat difference;
  cv::absdiff(a, b, difference);
  return difference * 4;
}

}  // namespace detail

/// Draws the input, the prediction, its error, the error of repeating the frame of two steps
/// before, and then the activity of every layer. Returns an 8-bit BGR picture, 828 pixels wide.
inline cv::Mat draw_preview(const Spec& spec, const Connectome& net,
                            const PreviewContent& content) {
  const std::size_t layers = spec.layer_shapes.size();
  detail::Sheet sheet(detail::Sheet::columns + static_cast<int>(layers));
  const cv::Mat frame = detail::frame_picture(spec, content.frame, 1.0F);
  const cv::Mat prediction = detail::frame_picture(spec, content.prediction, 255.0F);
  sheet.title(content.title);
  sheet.add(frame, "input", "the frame that came");
  sheet.add(prediction, "prediction", "made two steps before");
  sheet.add(detail::magnified_difference(frame, prediction), "error x 4",
            detail::psnr_text(content.frame, content.prediction, 1.0));
  if (content.before.empty()) {
    sheet.add(cv::Mat::zeros(frame.size(), frame.type()), "error of repeating x 4",
              "no frame to repeat");
  } else {
    const cv::Mat before = detail::frame_picture(spec, content.before, 1.0F);
    sheet.add(detail::magnified_difference(frame, before), "error of repeating x 4",
              detail::psnr_text(content.frame, content.before, 1 / 255.0));
  }
  for (std::size_t l = 0; l < layers; ++l) {
    const std::string side = std::to_string(spec.layer_shapes[l]);
    sheet.add(detail::layer_picture(spec, net, l, content.hidden),
              "activity, layer " + std::to_string(l),
              side + " x " + side + " units, " + std::to_string(net.hidden) + " values each");
  }
  return sheet.picture();
}

/// A callback (see train/callback.hpp) that draws the first sequence of the batch into a PNG file
/// at every multiple of `every` steps (at least 2) and at the end of the run, also of one that is
/// cut short. The file is replaced atomically. A run of fewer than 2 steps draws nothing.
class Preview {
 public:
  explicit Preview(std::filesystem::path path, std::uint64_t every = 1000)
      : path_(std::move(path)), every_(std::max<std::uint64_t>(2, every)) {}

  /// Draws into a terminal instead, small and anew each time: input, prediction, and both errors.
  explicit Preview(std::FILE* terminal, std::uint64_t every = 1000)
      : terminal_(terminal), every_(std::max<std::uint64_t>(2, every)) {}

  /// Throws Error (Fault::usage) if the path does not end in .png, holds a file that is no preview,
  /// or cannot be written.
  template <class Moment>
  void begin(const Moment& moment) {
    target_ = moment.target;
    foreseen_.clear();
    if (terminal_ == nullptr) check_path();
    foresee(moment);
  }

  /// The steps at which `at` is called: m - 2 and m for a picture at step m, because the prediction
  /// that it shows is made two steps before.
  [[nodiscard]] std::uint64_t next(std::uint64_t step) const {
    const std::uint64_t picture = next_picture(step);
    return picture != none && picture - step > 2 ? picture - 2 : picture;
  }

  template <class Moment>
  void at(const Moment& moment) {
    if (!foreseen_.empty() && foreseen_step_ + 2 == moment.step) draw(moment);
    foresee(moment);
  }

  /// The run is cut short: two more steps make a picture of the last one possible, unless that has
  /// been drawn.
  template <class Moment>
  bool before_last(const Moment& moment) {
    if (drawn_step_ == moment.step || moment.step == moment.begin) return false;
    const bool one_to_go = moment.step + 1 == moment.target;  // foreseen already
    if (!one_to_go) keep(moment);
    return true;
  }
  template <class Moment>
  void end(const Moment& moment) {
    const bool foreseen = !foreseen_.empty() && foreseen_step_ + 2 == moment.step;
    if (foreseen && drawn_step_ != moment.step) draw(moment);
  }

  /// Whether a picture has been written.
  [[nodiscard]] bool drawn() const noexcept { return drawn_; }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  void check_path() const {
    if (path_.extension() != ".png") refuse("its name must end in .png");
    std::error_code ignored;
    if (std::filesystem::exists(path_, ignored)) {
      if (!std::filesystem::is_regular_file(path_, ignored)) {
        refuse("it is not a file; choose another name");
      }
      if (!holds_preview()) refuse("it exists and is no preview; choose another name");
    }
    if (const auto why = why_not_writable(path_); !why.empty()) {
      refuse(why + "; choose another place");
    }
  }

  /// The step of the first picture after `step`; `none` if there is no more.
  [[nodiscard]] std::uint64_t next_picture(std::uint64_t step) const {
    return step >= target_ ? none : std::min(target_, (step / every_ + 1) * every_);
  }

  /// Two steps before a picture, keeps the prediction and the frame that it will show.
  template <class Moment>
  void foresee(const Moment& moment) {
    if (next_picture(moment.step) - moment.step == 2) keep(moment);
  }
  template <class Moment>
  void keep(const Moment& moment) {
    foreseen_ = moment.trainer.prediction();
    const auto frame = moment.trainer.last_frame();
    before_.assign(frame.begin(), frame.end());
    foreseen_step_ = moment.step;
  }

  template <class Moment>
  void draw(const Moment& moment) {
    const auto frame = moment.trainer.last_frame();
    const auto hidden = moment.trainer.hidden();
    const auto prediction = std::span<const float>(foreseen_).first(frame.size());
    const Spec& spec = moment.trainer.spec();
    drawn_step_ = moment.step;
    if (terminal_ != nullptr) return draw_in_terminal(spec, frame, prediction, moment.step);
    write(draw_preview(spec, moment.trainer.connectome(),
                       {frame, prediction, before_, hidden,
                        spec.name + ", step " + std::to_string(moment.step) +
                            "   (activity: 0 is blue, 1 is yellow)"}));
  }

  void draw_in_terminal(const Spec& spec, std::span<const std::uint8_t> frame,
                        std::span<const float> prediction, std::uint64_t step) const {
    const cv::Mat seen = detail::frame_picture(spec, frame, 1.0F);
    const cv::Mat foreseen = detail::frame_picture(spec, prediction, 255.0F);
    const cv::Mat before =
        detail::frame_picture(spec, std::span<const std::uint8_t>(before_), 1.0F);
    const TerminalFormat format = terminal_format(terminal_);
    const std::string text =
        terminal_pictures({{"input", seen},
                           {"prediction", foreseen},
                           {"its error x 4", detail::magnified_difference(seen, foreseen)},
                           {"of repeating", detail::magnified_difference(seen, before)}},
                          format);
    std::fprintf(terminal_, "\r\033[Kstep %llu\n%s", static_cast<unsigned long long>(step),
                 text.c_str());
    std::fflush(terminal_);
  }

  /// Writes the PNG. A failure does not end the run: it is logged once.
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

  /// Whether the file is empty, or a PNG as wide as previews are.
  [[nodiscard]] bool holds_preview() const {
    constexpr std::string_view png = "\x89PNG\r\n\x1a\n";
    constexpr std::size_t width_at = 16;  // offset of the width: four bytes, big-endian
    std::ifstream file(path_, std::ios::binary);
    if (!file) refuse("it exists and cannot be read (" + why_not_readable(path_) + ")");
    std::array<char, width_at + 4> start{};
    file.read(start.data(), start.size());
    if (file.gcount() == 0) return true;
    std::uint32_t width = 0;
    for (std::size_t i = width_at; i < start.size(); ++i) {
      width = width << 8U | static_cast<unsigned char>(start[i]);
    }
    return std::string_view(start.data(), png.size()) == png && width == detail::Sheet::width;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Fault::usage,
                "the preview cannot be written to " + quote(path_.string()) + ": " + why);
  }

  std::filesystem::path path_;
  std::FILE* terminal_ = nullptr;  // instead of the file
  std::uint64_t every_;
  std::uint64_t target_ = 0;
  std::vector<float> foreseen_;       // the prediction made at foreseen_step_, all sequences
  std::vector<std::uint8_t> before_;  // the newest frame at foreseen_step_
  std::uint64_t foreseen_step_ = 0;
  bool drawn_ = false;
  std::uint64_t drawn_step_ = none;  // of the latest picture
  bool failed_ = false;
};

}  // namespace pvm::inline v0::io
