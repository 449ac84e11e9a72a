// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What weights of one byte cost and save: trains a network on a clip, freezes it in each
/// precision, and compares predictions, a tracker's boxes, bytes, latency and rates.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <unistd.h>

#include <pvm/core/random.hpp>
#include <pvm/infer/predictor.hpp>
#include <pvm/infer/quantize.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/io/video.hpp>
#include <pvm/pvm.hpp>
#include <pvm/readout/clips.hpp>
#include <pvm/readout/measures.hpp>
#include <pvm/readout/tracker.hpp>

namespace pvm_bench {

/// The frames of a clip one after the other, [begin, end) again and again.
struct Frames {
  const pvm::readout::Clip& clip;
  std::size_t begin, end, next = begin;

  std::span<const std::uint8_t> operator()() {
    if (next == end) next = begin;
    return clip.frame(next++);
  }
};

/// Trains on the first three quarters of the clip.
inline pvm::io::Checkpoint trained(const pvm::Spec& spec, const pvm::readout::Clip& clip,
                                   std::uint64_t steps) {
  pvm::Trainer<> trainer{spec};
  Frames frames{clip, 0, clip.size() * 3 / 4};
  while (trainer.step() < steps) {
    if (frames.next == frames.end) trainer.start_sequence();
    trainer.step(frames());
  }
  return trainer.checkpoint();
}

/// dB of the predictions of the last quarter of the clip.
inline double clip_psnr(pvm::Predictor& predictor, const pvm::readout::Clip& clip) {
  pvm::Stream stream = predictor.open();
  std::vector<std::vector<float>> predictions;
  double squares = 0, values = 0;
  for (std::size_t i = clip.size() * 3 / 4; i < clip.size(); ++i) {
    const auto frame = clip.frame(i);
    predictions.push_back(predictor.predict(stream, frame).prediction);
    if (predictions.size() < 12) continue;  // the past of a new stream is ones
    const auto& prediction = predictions[predictions.size() - 3];
    for (std::size_t k = 0; k < frame.size(); ++k) {
      const double error = prediction[k] - frame[k] / 255.0;
      squares += error * error;
    }
    values += static_cast<double>(frame.size());
  }
  return pvm::psnr(squares / values);
}

/// A ball with its labels, and noise in the three lowest bits, as cameras have it: what never
/// changes tells a readout nothing.
class Ball {
 public:
  pvm::io::FrameInfo next(const pvm::io::FrameShape& shape, std::span<std::uint8_t> pixels) {
    const pvm::io::FrameInfo info = ball_.next(shape, pixels);
    ++frame_;
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] ^= static_cast<std::uint8_t>(8 * pvm::uniform(frame_, i));
    }
    return info;
  }

 private:
  pvm::io::Synthetic ball_;
  std::uint64_t frame_ = 0;
};

inline constexpr int ball_learned = 600;  // frames of its 1000

/// What a tracker's file holds that has learned a ball from pixels and the network's hidden values.
inline pvm::io::Extras ball_tracker(const pvm::io::Checkpoint& network) {
  pvm::TrackerOptions options;
  options.ridge = {.inputs = {.hidden = true, .pixels = true}, .penalty = 10};
  pvm::Tracker tracker(network, options);
  Ball ball;
  std::vector<std::uint8_t> frame(network.spec.frame_size());
  for (int i = 0; i < ball_learned; ++i) {
    const auto info = ball.next(tracker.frame_shape(), frame);
    tracker.learn(std::span<const std::uint8_t>(frame), info.label);
  }
  const auto path = std::filesystem::temp_directory_path() /
                    ("bench_infer_" + std::to_string(getpid()) + ".safetensors");
  tracker.save(path);
  pvm::io::Extras extras = pvm::io::load_network(path).extras;
  std::filesystem::remove(path);
  return extras;
}

/// The AUC of the ball's boxes in frames that the tracker has not learned from.
inline double ball_auc(pvm::Predictor& predictor) {
  pvm::Stream stream = predictor.open();
  Ball ball;
  std::vector<std::uint8_t> frame(predictor.spec().frame_size());
  pvm::readout::TrackingScore score;
  for (int i = 0; i < 1000; ++i) {
    const auto info = ball.next(predictor.frame_shape(), frame);
    if (i < ball_learned - 10) continue;
    const pvm::FrameResult result = predictor.predict(stream, frame);
    if (i >= ball_learned) score.add(info.label, result.box, predictor.frame_shape().width);
  }
  return score.auc();
}

/// A network in one precision.
struct FrozenRow {
  std::string precision;
  double megabytes = 0;  ///< of weights, as they are stored
  std::function<pvm::Predictor(const pvm::PredictorOptions&)> make;
};

inline std::vector<FrozenRow> frozen_rows(const pvm::io::Checkpoint& network,
                                          const pvm::readout::Clip& clip,
                                          pvm::BackendChoice backend) {
  const auto net = pvm::make_connectome(network.spec);
  const auto matrices = pvm::infer::frozen_matrices(network.spec, net);
  const auto values = static_cast<double>(matrices.back().end());
  const auto rows = static_cast<double>(matrices.back().first_row + matrices.back().rows);
  std::vector<FrozenRow> all = {{"fp32", (values + rows) * 4e-6, [&](const auto& options) {
                                   return pvm::Predictor(network, options);
                                 }}};
  const bool gpu = backend == pvm::BackendChoice::cuda;
  if (gpu) all.front().precision = "fp32 on the host";
  for (const auto precision : {pvm::ForwardPrecision::bf16, pvm::ForwardPrecision::fp16}) {
    if (!gpu) break;
    const char* name = precision == pvm::ForwardPrecision::bf16 ? "bf16" : "fp16";
    all.push_back({name, values * 2e-6 + rows * 8e-6, [&, precision](auto options) {
                     options.backend = backend;
                     options.precision = precision;
                     return pvm::Predictor(network, options);
                   }});
  }
  for (const auto format : {pvm::FrozenFormat::int8, pvm::FrozenFormat::fp8}) {
    Frames frames{clip, 0, clip.size() * 3 / 4};
    const auto frozen = std::make_shared<pvm::FrozenNetwork>(pvm::quantize(
        network, [&](std::span<std::uint8_t> to) { std::ranges::copy(frames(), to.begin()); },
        {.format = format}));
    all.push_back(
        {std::string(name_of(format)), (values + rows * 8) * 1e-6, [frozen, backend](auto options) {
           options.backend = backend;
           return pvm::Predictor(*frozen, options);
         }});
  }
  return all;
}

/// Prints a table of the precisions. `rate(predictor, streams)` measures frames a second,
/// `latency(predictor)` microseconds, sorted, from a frame to its box.
template <class Rate, class Latency>
void print_frozen_table(const std::vector<pvm::Spec>& specs, const std::string& clip_file,
                        std::uint64_t steps, pvm::BackendChoice backend, const Rate& rate,
                        const Latency& latency) {
  std::printf(
      "| network | weights | MB | PSNR (dB) | lost | AUC | lost | frame to box: median, 99 %% (us) "
      "| frames/s: 1 stream | 16 | 64 | 256 "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const pvm::Spec& spec : specs) {
    const pvm::io::FrameShape shape{spec.frame_side(), spec.frame_side(), spec.input_channels};
    const auto clip = pvm::readout::read_clip(pvm::io::Video(clip_file), shape);
    pvm::io::Checkpoint network = trained(spec, clip, steps);
    network.extras = ball_tracker(network);
    std::optional<double> psnr, auc;
    for (const FrozenRow& row : frozen_rows(network, clip, backend)) {
      pvm::Predictor predictor = row.make({.policy = pvm::Throughput(256)});
      const double now_psnr = clip_psnr(predictor, clip), now_auc = ball_auc(predictor);
      if (!psnr) psnr = now_psnr, auc = now_auc;
      pvm::Predictor alone = row.make({.policy = pvm::Latency(1), .prediction = false});
      const std::vector<double> us = latency(alone);
      std::printf(
          "| %s | %s | %.1f | %.2f | %.2f | %.3f | %.3f | %.0f, %.0f | %.0f | %.0f "
          "| %.0f | %.0f |\n",
          spec.name.c_str(), row.precision.c_str(), row.megabytes, now_psnr, *psnr - now_psnr,
          now_auc, *auc - now_auc, us[us.size() / 2], us[us.size() * 99 / 100], rate(predictor, 1),
          rate(predictor, 16), rate(predictor, 64), rate(predictor, 256));
      std::fflush(stdout);
    }
  }
}

}  // namespace pvm_bench
