// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes a network for prediction only, with weights of one byte, of a checkpoint.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/core/error.hpp>
#include <pvm/core/parallel.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/engine/host/team.hpp>
#include <pvm/infer/e4m3.hpp>
#include <pvm/infer/forward.hpp>
#include <pvm/infer/frozen_network.hpp>
#include <pvm/infer/host_forward.hpp>
#include <pvm/infer/patch_lines.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0 {

struct QuantizeOptions {
  FrozenFormat format = FrozenFormat::int8;
  std::uint64_t frames = 500;  ///< of the calibration clip that are used
  int samples = 64;            ///< steps whose values are looked at, spread over the frames
};

namespace infer {

/// What units have seen in some steps of a calibration clip: values in [0, 1], not squeezed.
class SampledValues {
 public:
  /// Runs the network on `frames` frames that `next_frame` writes.
  SampledValues(const io::Checkpoint& network,
                const std::function<void(std::span<std::uint8_t>)>& next_frame,
                const QuantizeOptions& options)
      : net_(make_connectome(network.spec)),
        lines_(network.spec),
        hidden_(static_cast<std::size_t>(net_.hidden)) {
    Team team(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
    HostForward forward(network.spec, network.state.weights, team);
    StreamPast past = forward.begin();
    const auto samples = static_cast<std::uint64_t>(options.samples);
    const std::uint64_t every = std::max<std::uint64_t>(1, options.frames / samples);
    std::vector<std::uint8_t> frame(network.spec.frame_size()), before = frame;
    std::array<std::vector<float>, 3> hidden;  // of steps t, t - 1, t - 2
    for (std::uint64_t t = 0; t < options.frames; ++t) {
      std::swap(frame, before);
      next_frame(frame);
      std::rotate(hidden.begin(), hidden.begin() + 2, hidden.end());
      hidden[0].resize(net_.units.size() * hidden_);
      const Row row{&past, frame, {}, hidden[0]};
      forward.step(std::span(&row, 1));
      if (t >= 2 && t % every == every - 1 && samples_.size() < samples) {
        samples_.push_back({hidden, frame, before});
      }
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return samples_.size(); }

  /// What `matrix` multiplies in sample `s`: its columns, to `v`.
  void gather(const FrozenMatrix& matrix, std::size_t s, float* v) const {
    const Sample& sample = samples_[s];
    const auto append = [&](const std::vector<float>& hidden, std::size_t unit) {
      v = std::copy_n(hidden.data() + unit * hidden_, hidden_, v);
    };
    if (matrix.predicts) {
      append(sample.hidden[0], matrix.unit);
      if (matrix.columns == hidden_) return;
    } else if (matrix.unit < net_.layer_start[1]) {
      for (const auto* frame : {&sample.frame, &sample.before}) {
        for (std::size_t k = 0; k < lines_.patch; ++k) {
          const std::size_t line = k / lines_.line * lines_.line;
          const std::size_t at = lines_.at(net_.units[matrix.unit], line) + k - line;
          *v++ = static_cast<float>((*frame)[at]) / 255.0F;
        }
      }
    } else {
      for (const std::size_t back : {1, 2}) {
        for (const auto source : net_.primary[matrix.unit]) append(sample.hidden[back], source);
      }
    }
    for (const auto source : net_.context[matrix.unit]) append(sample.hidden[1], source);
  }

  [[nodiscard]] const Connectome& net() const noexcept { return net_; }

 private:
  struct Sample {
    std::array<std::vector<float>, 3> hidden;
    std::vector<std::uint8_t> frame, before;
  };

  Connectome net_;
  PatchLines lines_;
  std::size_t hidden_;
  std::vector<Sample> samples_;
};

/// Finds the bytes, scales and offsets of a matrix's rows. A row's scale is that of some which errs
/// least on the samples. What the rounded row errs on average goes into its offset.
class RowRounding {
 public:
  RowRounding(const SampledValues& samples, const FrozenMatrix& matrix, FrozenFormat format)
      : matrix_(matrix),
        format_(format),
        columns_(simd::padded(matrix.columns)),
        samples_(samples.size()),
        exact_(samples_ * columns_),
        row_(columns_),
        rounded_(columns_),
        wanted_(samples_) {
    for (std::size_t s = 0; s < samples_; ++s) {
      samples.gather(matrix, s, exact_.data() + s * columns_);
    }
    seen_ = exact_;
    if (format != FrozenFormat::int8) return;
    // As a step in int8 sees them.
    for (float& v : seen_) v = std::nearbyint(v * 255.0F) / 255.0F;
  }

  /// Row `r` of `weights`, which are in reference order.
  void round(std::span<const float> weights, std::size_t r, FrozenNetwork& to) {
    const float offset = unsqueezed_row(matrix_, weights, r, row_.data());
    float largest = 0;
    for (const float weight : row_) largest = std::max(largest, std::fabs(weight));
    for (std::size_t s = 0; s < samples_; ++s) wanted_[s] = dot(row_, exact_, s);
    const float most = format_ == FrozenFormat::int8 ? 127.0F : e4m3_largest;
    double least = std::numeric_limits<double>::infinity();
    for (const float part : {1.0F, 0.93F, 0.86F, 0.79F, 0.72F, 0.65F}) {
      const float scale = largest > 0 ? part * largest / most : 1.0F;
      const Errors errors = errors_with(scale);
      if (errors.squares >= least) continue;
      least = errors.squares;
      std::uint8_t* bytes = to.values.data() + matrix_.values + r * matrix_.columns;
      for (std::size_t c = 0; c < matrix_.columns; ++c) bytes[c] = byte_of(row_[c], scale);
      to.scales[matrix_.first_row + r] = scale;
      to.offsets[matrix_.first_row + r] = offset + static_cast<float>(errors.mean);
    }
  }

 private:
  struct Errors {
    double mean = 0, squares = 0;  // of the samples; the squares of what the mean leaves
  };

  [[nodiscard]] std::uint8_t byte_of(float weight, float scale) const {
    const float steps = weight / scale;
    if (format_ == FrozenFormat::fp8) return to_e4m3(steps);
    const float whole = std::nearbyint(std::clamp(steps, -127.0F, 127.0F));
    return static_cast<std::uint8_t>(static_cast<std::int8_t>(whole));
  }
  [[nodiscard]] float dot(const std::vector<float>& row, const std::vector<float>& values,
                          std::size_t s) const {
    float sum = 0;
    simd::for_best_isa(Dot{row.data(), values.data() + s * columns_, columns_, &sum});
    return sum;
  }
  struct Dot {
    const float *a, *b;
    std::size_t n;
    float* sum;
    [[gnu::always_inline]] inline void operator()() const { *sum = simd::dot(a, b, n); }
  };

  Errors errors_with(float scale) {
    for (std::size_t c = 0; c < matrix_.columns; ++c) {
      rounded_[c] = value_of(format_, byte_of(row_[c], scale)) * scale;
    }
    Errors errors;
    double squares = 0;
    for (std::size_t s = 0; s < samples_; ++s) {
      const double error = wanted_[s] - dot(rounded_, seen_, s);
      errors.mean += error;
      squares += error * error;
    }
    const auto n = static_cast<double>(samples_);
    errors.mean /= n;
    errors.squares = squares - n * errors.mean * errors.mean;
    return errors;
  }

  const FrozenMatrix& matrix_;
  FrozenFormat format_;
  std::size_t columns_, samples_;
  std::vector<float> exact_, seen_;            // [sample][column]
  std::vector<float> row_, rounded_, wanted_;  // [column], [column], [sample]
};

}  // namespace infer

/// The network of a checkpoint, and its readout, in weights of one byte. `next_frame` writes frames
/// of a clip like those that it will see, [side][side][channels]; scales and offsets are found so
/// that the sums of the network's units change least on them. Throws Error: Fault::usage without
/// frames, Fault::spec for an activation that is a type of another program, Fault::memory.
inline FrozenNetwork quantize(const io::Checkpoint& checkpoint,
                              const std::function<void(std::span<std::uint8_t>)>& next_frame,
                              const QuantizeOptions& options = {}) {
  if (options.frames < 8 || options.samples < 1) {
    throw Error(Fault::usage, "scales are found from at least 8 frames and 1 sample");
  }
  const infer::SampledValues samples(checkpoint, next_frame, options);
  const auto matrices = infer::frozen_matrices(checkpoint.spec, samples.net());
  FrozenNetwork frozen;
  frozen.spec = checkpoint.spec;
  frozen.format = options.format;
  frozen.extras = checkpoint.extras;
  frozen.values.resize(matrices.back().end());
  frozen.scales.resize(matrices.back().first_row + matrices.back().rows);
  frozen.offsets.resize(frozen.scales.size());
  detail::in_parallel(matrices.size(), frozen.values.size() * samples.size(), [&](std::size_t i) {
    infer::RowRounding rounding(samples, matrices[i], options.format);
    for (std::size_t r = 0; r < matrices[i].rows; ++r) {
      rounding.round(checkpoint.state.weights, r, frozen);
    }
  });
  return frozen;
}

}  // namespace pvm::inline v0
