// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The bodies of host_forward.hpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/engine/host/host_activation.hpp>
#include <pvm/engine/host/matrix_pass.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/infer/frozen_pass.hpp>
#include <pvm/infer/host_forward.hpp>
#include <pvm/infer/patch_lines.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::infer {

/// x(t), h(t) = f(W0 x(t)) and, in layer 0 and if it is asked for, the part of f(W1 r(t)) that
/// predicts the unit's patch.
struct HostForward::UnitStep {
  const HostForward& self;
  Rooms& room;
  std::span<const Row> rows;  // at most `chunk`
  std::size_t u;

  [[gnu::always_inline]] inline void operator()() const {
    const Place& place = self.places_[u];
    for (std::size_t b = 0; b < rows.size(); ++b) {
      gather_input(rows[b], room.x.data() + b * place.w0_columns);
    }
    dot_pass(self.weights_.data() + place.w0, self.hidden_, place.w0_columns, room.x.data(),
             rows.size(), room.sums.data(), self.stride_);
    for (std::size_t b = 0; b < rows.size(); ++b) activate(rows[b], b);
    const bool asked = std::any_of(rows.begin(), rows.end(),
                                   [](const Row& row) { return !row.prediction.empty(); });
    if (u < self.patches_ && asked) predict(place);
  }

 private:
  /// Copies whole vectors. The excess is overwritten by what follows.
  [[gnu::always_inline]] static inline float* append(float* to, const float* from, std::size_t n) {
    for (std::size_t i = 0; i < n; i += simd::width) simd::at(to + i) = simd::at(from + i);
    return to + n;
  }

  [[gnu::always_inline]] inline void gather_input(const Row& row, float* x) const {
    float* past = row.past->values.data();
    const std::uint64_t t = row.past->step;
    const auto& primary = self.net_.primary[u];
    if (u < self.patches_) {
      take_patch(row.frame.data(), past + self.patch_at(t, u));
      x = append(x, past + self.patch_at(t, u), self.patch_);
      x = append(x, past + self.patch_at(t + 1, u), self.patch_);  // of t - 1, modulo 2
    } else {
      for (const std::uint64_t step : {t + 2, t + 1}) {  // t - 1 and t - 2, modulo 3
        for (const auto s : primary) x = append(x, past + self.squeezed_at(step, s), self.hidden_);
      }
    }
    for (const auto s : self.net_.context[u]) {
      x = append(x, past + self.squeezed_at(t + 2, s), self.hidden_);
    }
    simd::Lanes bias = {};
    bias[0] = 1.0F;
    simd::at(x) = bias;  // and zeros behind it: the padding is shorter than a vector
  }

  [[gnu::always_inline]] inline void take_patch(const std::uint8_t* frame, float* out) const {
    const std::size_t line = self.lines_.line;
    for (std::size_t k = 0; k < self.patch_; k += line) {
      const std::uint8_t* from = frame + self.lines_.at(self.net_.units[u], k);
      for (std::size_t i = 0; i < line; ++i) *out++ = squeeze_pixel(from[i]);
    }
  }

  [[gnu::always_inline]] inline void activate(const Row& row, std::size_t b) const {
    float* past = row.past->values.data();
    float* raw = past + self.raw_at(row.past->step, u);
    float* squeezed = past + self.squeezed_at(row.past->step, u);
    self.activation_.value(room.sums.data() + b * self.stride_, raw, self.hidden_);
    for (std::size_t i = 0; i < self.hidden_; ++i) squeezed[i] = squeeze(raw[i]);
    if (!row.hidden.empty()) {
      std::copy_n(raw, self.hidden_, row.hidden.data() + u * self.hidden_);
    }
  }

  [[gnu::always_inline]] inline void predict(const Place& place) const {
    const auto representation = static_cast<std::size_t>(self.net_.units[u].representation);
    const std::size_t stride = self.most_representation_;
    for (std::size_t b = 0; b < rows.size(); ++b) {
      gather_representation(rows[b], representation, room.r.data() + b * stride);
    }
    sum_pass(self.weights_.data() + place.w1, representation, self.patch_stride_, room.r.data(),
             stride, rows.size(), room.y.data());
    const std::size_t line = self.lines_.line;
    for (std::size_t b = 0; b < rows.size(); ++b) {
      if (rows[b].prediction.empty()) continue;
      float* y = room.y.data() + b * self.patch_stride_;
      self.activation_.value(y, y, self.patch_stride_);
      for (std::size_t k = 0; k < self.patch_; k += line) {
        float* to = rows[b].prediction.data() + self.lines_.at(self.net_.units[u], k);
        for (std::size_t i = 0; i < line; ++i) to[i] = unsqueeze(y[k + i]);
      }
    }
  }

  /// r(t) = [h | 1 | hidden values of the context one step ago, if fed].
  [[gnu::always_inline]] inline void gather_representation(const Row& row, std::size_t length,
                                                           float* r) const {
    const float* past = row.past->values.data();
    const std::uint64_t t = row.past->step;
    r = append(r, past + self.raw_at(t, u), self.hidden_);
    *r++ = 1.0F;
    if (length == self.hidden_ + 1) return;
    for (const auto s : self.net_.context[u]) {
      r = append(r, past + self.raw_at(t + 1, s), self.hidden_);
    }
  }
};

PVM_INLINE HostForward::HostForward(const Spec& spec, std::span<const float> weights, Team& team)
    : net_(make_connectome(spec)),
      lines_(spec),
      activation_(activation_of(spec, 0)),
      team_(team),
      hidden_(static_cast<std::size_t>(net_.hidden)),
      stride_(simd::padded(hidden_)),
      patch_(lines_.patch),
      patch_stride_(simd::padded(patch_)),
      patches_(net_.layer_start[1]),
      order_(largest_first(net_)) {
  static_cast<void>(own_activation_of<void>(spec));
  place_weights(weights);
  const std::size_t slack = std::max(stride_, patch_stride_) + 2 * simd::width;
  for (int i = 0; i < team.size(); ++i) {
    rooms_.push_back({HugeArray(chunk * most_columns_ + slack), HugeArray(chunk * stride_),
                      HugeArray(chunk * most_representation_ + slack),
                      HugeArray(chunk * patch_stride_)});
  }
}

PVM_INLINE void HostForward::place_weights(std::span<const float> weights) {
  std::size_t size = 0;
  for (std::size_t u = 0; u < net_.units.size(); ++u) {
    const Unit& unit = net_.units[u];
    Place place;
    place.w0 = size;
    place.w0_columns = simd::padded(static_cast<std::size_t>(unit.inputs));
    size += hidden_ * place.w0_columns;
    most_columns_ = std::max(most_columns_, place.w0_columns);
    if (u < patches_) {
      const auto representation = static_cast<std::size_t>(unit.representation);
      place.w1 = size;
      size += representation * patch_stride_;
      most_representation_ = std::max(most_representation_, representation);
    }
    places_.push_back(place);
  }
  most_representation_ = simd::padded(most_representation_);
  require_memory(size * sizeof(float), "this network");
  weights_ = HugeArray(size);
  for (std::size_t u = 0; u < net_.units.size(); ++u) {
    const Unit& unit = net_.units[u];
    const Place& place = places_[u];
    const auto inputs = static_cast<std::size_t>(unit.inputs);
    for (std::size_t i = 0; i < hidden_; ++i) {
      const float* row = weights.data() + unit.w0 + i * inputs;
      for (std::size_t c = 0; c < inputs; c += simd::width) {
        std::copy_n(
            row + c, std::min(simd::width, inputs - c),
            weights_.data() + place.w0 + simd::tiled_index(hidden_, place.w0_columns, i, c));
      }
    }
    if (u >= patches_) continue;
    const auto representation = static_cast<std::size_t>(unit.representation);
    for (std::size_t o = 0; o < patch_; ++o) {
      for (std::size_t r = 0; r < representation; ++r) {
        weights_.data()[place.w1 + (o / simd::width * representation + r) * simd::width +
                        o % simd::width] = weights[unit.w1 + o * representation + r];
      }
    }
  }
}

PVM_INLINE StreamPast HostForward::begin() const {
  StreamPast past{HugeArray(past_floats()), 0};
  float* values = past.values.data();
  for (std::size_t u = 0; u < net_.units.size(); ++u) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      const float value = step == 2 ? squeeze(1.0F) : 1.0F;  // slot 2 has step -1
      std::fill_n(values + squeezed_at(step, u), hidden_, value);
    }
    for (std::uint64_t step = 0; step < 2; ++step) {
      std::fill_n(values + raw_at(step, u), hidden_, 1.0F);
    }
  }
  for (std::size_t u = 0; u < patches_; ++u) {
    for (std::uint64_t step = 0; step < 2; ++step) {
      std::fill_n(values + patch_at(step, u), patch_, 1.0F);
    }
  }
  return past;
}

PVM_INLINE void HostForward::step(std::span<const Row> rows) {
  next_.store(0, std::memory_order_relaxed);
  team_.run([&](int member) {
    Rooms& room = rooms_[static_cast<std::size_t>(member)];
    for (;;) {
      const std::size_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= order_.size()) return;
      for (std::size_t b = 0; b < rows.size(); b += chunk) {
        const std::size_t count = std::min(chunk, rows.size() - b);
        simd::for_best_isa(UnitStep{*this, room, rows.subspan(b, count), order_[i]});
      }
    }
  });
  for (const Row& row : rows) ++row.past->step;
}

PVM_INLINE std::string HostForward::description() const {
  return "host: " + std::to_string(team_.size()) + " threads, " + simd::isa_name() + ", " +
         std::to_string(weight_bytes() / 1'000'000) + " MB of weights";
}

}  // namespace pvm::inline v0::infer
