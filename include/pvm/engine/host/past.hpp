// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The past of the host engine: ring buffers of the activities and gradients of the last steps.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/core/tags.hpp>
#include <pvm/engine/history.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/engine/host/weight_layout.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0 {

/// The past of a network with `batch` sequences. Vectors are padded with zeros to whole Lanes. A
/// ring buffer of n slots holds the last n steps. Steps before step 0 (down to the depth of the
/// ring) hold what the model says about the past: ones everywhere, except that the input of step 0
/// reads the squeezed value c(1) of the hidden values before it.
class Past {
 public:
  Past(const Spec& spec, const Connectome& net, const WeightLayout& layout, int batch, int terms)
      : net_(net),
        layout_(layout),
        batch_(static_cast<std::size_t>(batch)),
        terms_(static_cast<std::size_t>(terms)),
        depth_(terms_ + 5),
        hidden_(static_cast<std::size_t>(net.hidden)),
        stride_(simd::padded(hidden_)),
        block_(static_cast<std::size_t>(spec.input_block_size)),
        channels_(static_cast<std::size_t>(spec.input_channels)),
        side_(static_cast<std::size_t>(spec.frame_side())) {
    patch_ = block_ * block_ * channels_;
    patch_stride_ = simd::padded(patch_);
    std::size_t outputs = 0;
    for (const Unit& unit : net.units) {
      output_start_.push_back(outputs);
      outputs += layout.padded(static_cast<std::size_t>(unit.outputs));
    }
    outputs_ = outputs;
    const std::size_t units = net.units.size();
    raw_ = HugeArray(depth_ * batch_ * units * stride_);
    squeezed_ = HugeArray(depth_ * batch_ * units * stride_);
    patches_ = HugeArray(depth_ * batch_ * patches() * patch_stride_);
    y_ = HugeArray(3 * batch_ * outputs_);
    d0_ = HugeArray(terms_ * batch_ * units * stride_);
    d1_ = HugeArray(terms_ * batch_ * outputs_);
    reset(0);
  }

  /// Sets the past of a run that begins at step `step`: all ones, except that its first input reads
  /// the squeezed c(1).
  void reset(std::uint64_t step) {
    const std::size_t before = this->slot(step, 1);
    for (std::size_t slot = 0; slot < depth_; ++slot) {
      const float last = slot == before ? squeeze(1.0F) : 1.0F;
      for (std::size_t b = 0; b < batch_; ++b) {
        for (std::size_t u = 0; u < net_.units.size(); ++u) {
          std::fill_n(raw(slot, b, u), hidden_, 1.0F);
          std::fill_n(squeezed(slot, b, u), hidden_, last);
        }
        for (std::size_t u = 0; u < patches(); ++u) std::fill_n(patch(slot, b, u), patch_, 1.0F);
      }
    }
    std::fill(y_.all().begin(), y_.all().end(), 1.0F);
    forget_gradients();
  }

  /// Drops the listed gradients.
  void forget_gradients() {
    std::fill(d0_.all().begin(), d0_.all().end(), 0.0F);
    std::fill(d1_.all().begin(), d1_.all().end(), 0.0F);
  }

  /// The index of value k of a layer-0 unit's patch in a frame [side][side][channels].
  [[nodiscard]] std::size_t pixel(std::size_t unit, std::size_t k) const {
    const auto row = static_cast<std::size_t>(net_.units[unit].row) * block_;
    const auto column = static_cast<std::size_t>(net_.units[unit].column) * block_;
    const std::size_t line = block_ * channels_;
    return ((row + k / line) * side_ + column) * channels_ + k % line;
  }

  /// The slot of the step `back` steps before `now`; `back` is at most the depth. `now` may also be
  /// a slot.
  [[nodiscard]] std::size_t slot(std::uint64_t now, std::size_t back) const {
    return static_cast<std::size_t>((now + depth_ - back) % depth_);
  }

  /// The ring of one unit for one kind of values: a row of `length` floats for each slot and
  /// sequence.
  struct Ring {
    float* first;
    std::size_t length;
    std::size_t sequence_stride;  ///< floats from one sequence to the next

    [[nodiscard]] float* row(std::size_t slot, std::size_t b) const {
      return first + b * sequence_stride + slot * length;
    }
  };
  [[nodiscard]] Ring raw_ring(std::size_t unit) {
    return ring(raw_, unit, net_.units.size(), stride_);
  }
  [[nodiscard]] Ring squeezed_ring(std::size_t unit) {
    return ring(squeezed_, unit, net_.units.size(), stride_);
  }
  [[nodiscard]] Ring patch_ring(std::size_t unit) {
    return ring(patches_, unit, patches(), patch_stride_);
  }

  [[nodiscard]] float* raw(std::size_t slot, std::size_t b, std::size_t unit) {
    return raw_ring(unit).row(slot, b);
  }
  [[nodiscard]] float* squeezed(std::size_t slot, std::size_t b, std::size_t unit) {
    return squeezed_ring(unit).row(slot, b);
  }
  [[nodiscard]] float* patch(std::size_t slot, std::size_t b, std::size_t unit) {
    return patch_ring(unit).row(slot, b);
  }
  /// y of step `step`. The last three steps are kept.
  [[nodiscard]] float* y(std::uint64_t step, std::size_t b, std::size_t unit) {
    return y_.data() + (static_cast<std::size_t>(step % 3) * batch_ + b) * outputs_ +
           output_start_[unit];
  }
  /// The factors of the listed gradients. `term`: step modulo terms().
  [[nodiscard]] float* d0(std::size_t term, std::size_t b, std::size_t unit) {
    return d0_.data() + ((unit * terms_ + term) * batch_ + b) * stride_;
  }
  [[nodiscard]] float* d1(std::size_t term, std::size_t b, std::size_t unit) {
    return d1_.data() + output_start_[unit] * terms_ * batch_ +
           (term * batch_ + b) * layout_[unit].w1_columns;
  }

  /// Writes the input row x of a unit at the step `back` steps before `now` to `x`, which has room
  /// for the padded row and `slack()` floats more. The padding of the row is 0 afterwards.
  /// `Hidden`: the number of hidden values, or `dynamic`.
  template <int Hidden = dynamic>
  [[gnu::always_inline]] inline void gather_input(std::uint64_t now, std::size_t back,
                                                  std::size_t b, std::size_t u, float* x) {
    const std::size_t hidden = hidden_or<Hidden>();
    const auto& primary = net_.primary[u];
    if (primary.empty()) {
      x = append(x, patch(slot(now, back), b, u), patch_);
      x = append(x, patch(slot(now, back + 1), b, u), patch_);
    } else {
      for (std::size_t half = 0; half < 2; ++half) {
        const std::size_t source_slot = slot(now, back + 1 + half);
        for (const auto s : primary) x = append(x, squeezed(source_slot, b, s), hidden);
      }
    }
    const std::size_t source_slot = slot(now, back + 1);
    for (const auto s : net_.context[u]) x = append(x, squeezed(source_slot, b, s), hidden);
    simd::Lanes bias = {};
    bias[0] = 1.0F;
    simd::at(x) = bias;  // and zeros behind it: the padding is shorter than 32 columns
    simd::at(x + simd::width) = simd::Lanes{};
  }

  /// Writes the representation row r = [h | 1 | raw context, if fed] of the step `back` steps
  /// before `now`.
  template <int Hidden = dynamic>
  [[gnu::always_inline]] inline void gather_representation(std::uint64_t now, std::size_t back,
                                                           std::size_t b, std::size_t u, float* r) {
    const std::size_t hidden = hidden_or<Hidden>();
    r = append(r, raw(slot(now, back), b, u), hidden);
    *r++ = 1.0F;
    if (static_cast<std::size_t>(net_.units[u].representation) == hidden + 1) return;
    const std::size_t source_slot = slot(now, back + 1);
    for (const auto s : net_.context[u]) r = append(r, raw(source_slot, b, s), hidden);
  }

  /// Copies the patch of a layer-0 unit from a frame into the ring. `value(i)`: squeezed value i of
  /// the frame.
  template <class Value>
  [[gnu::always_inline]] inline void take_patch(Value value, std::size_t slot, std::size_t b,
                                                std::size_t u) {
    float* out = patch(slot, b, u);
    const std::size_t line = block_ * channels_;
    for (std::size_t k = 0; k < patch_; k += line) {
      const std::size_t start = pixel(u, k);
      for (std::size_t i = 0; i < line; ++i) *out++ = value(start + i);
    }
  }

  /// Exchanges a row of a history with the rings, see detail::exchange_past. `now`: the next step.
  template <class Row>
  void exchange(std::uint64_t now, detail::History which, std::size_t back, Row row) {
    if (which == detail::History::frames) return exchange_frames(slot(now, back), row);
    const bool outputs =
        which == detail::History::outputs || which == detail::History::output_gradients;
    std::size_t at = 0;
    for (std::size_t b = 0; b < batch_; ++b) {
      for (std::size_t u = 0; u < net_.units.size(); ++u) {
        const std::size_t n = outputs ? static_cast<std::size_t>(net_.units[u].outputs) : hidden_;
        detail::exchange_values(row.subspan(at, n), values(now, which, back, b, u));
        at += n;
      }
    }
  }

  [[nodiscard]] std::size_t batch() const noexcept { return batch_; }
  [[nodiscard]] std::size_t terms() const noexcept { return terms_; }
  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::size_t hidden() const noexcept { return hidden_; }
  /// `hidden()`, as a constant where `Hidden` is one.
  template <int Hidden>
  [[nodiscard, gnu::always_inline]] inline std::size_t hidden_or() const noexcept {
    return Hidden == dynamic ? hidden_ : static_cast<std::size_t>(Hidden);
  }
  [[nodiscard]] std::size_t stride() const noexcept { return stride_; }
  [[nodiscard]] std::size_t patch_size() const noexcept { return patch_; }
  [[nodiscard]] std::size_t patch_stride() const noexcept { return patch_stride_; }
  /// Floats behind a row that gathering may overwrite.
  [[nodiscard]] std::size_t slack() const noexcept {
    return std::max(stride_, patch_stride_) + simd::width;
  }
  /// Number of layer-0 units.
  [[nodiscard]] std::size_t patches() const noexcept { return net_.layer_start[1]; }

 private:
  /// The ring of unit `unit` in `all`, [batch][units][depth][length].
  [[nodiscard]] Ring ring(HugeArray& all, std::size_t unit, std::size_t units,
                          std::size_t length) const {
    return {all.data() + unit * depth_ * length, length, units * depth_ * length};
  }

  /// The values of a unit in the row of a history.
  [[nodiscard]] float* values(std::uint64_t now, detail::History which, std::size_t back,
                              std::size_t b, std::size_t u) {
    const auto term = static_cast<std::size_t>((now + terms_ - back) % terms_);
    switch (which) {
      case detail::History::hidden:
        return raw(slot(now, back), b, u);
      case detail::History::squeezed:
        return squeezed(slot(now, back), b, u);
      case detail::History::frames:
        return patch(slot(now, back), b, u);
      case detail::History::outputs:
        return y(now + 3 - back, b, u);
      case detail::History::hidden_gradients:
        return d0(term, b, u);
      case detail::History::output_gradients:
        return d1(term, b, u);
    }
    return nullptr;
  }
  template <class Row>
  void exchange_frames(std::size_t slot, Row row) {
    const std::size_t line = block_ * channels_;
    for (std::size_t b = 0; b < batch_; ++b) {
      const Row frame = row.subspan(b * side_ * side_ * channels_);
      for (std::size_t u = 0; u < patches(); ++u) {
        for (std::size_t k = 0; k < patch_; k += line) {
          detail::exchange_values(frame.subspan(pixel(u, k), line), patch(slot, b, u) + k);
        }
      }
    }
  }

  // Copies whole vectors. The excess is zero padding, which the next part overwrites.
  [[gnu::always_inline]] static inline float* append(float* to, const float* from, std::size_t n) {
    for (std::size_t i = 0; i < n; i += simd::width) simd::at(to + i) = simd::at(from + i);
    return to + n;
  }

  const Connectome& net_;
  const WeightLayout& layout_;
  std::size_t batch_, terms_, depth_, hidden_, stride_, block_, channels_, side_;
  std::size_t patch_ = 0, patch_stride_ = 0, outputs_ = 0;
  std::vector<std::size_t> output_start_;  // [unit]: index of its first y, padded
  HugeArray raw_, squeezed_, patches_, y_, d0_, d1_;
};

}  // namespace pvm::inline v0
