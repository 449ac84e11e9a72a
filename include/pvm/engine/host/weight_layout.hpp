// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The layout of weights in the host engine, and the conversion from and to reference order.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <pvm/core/parallel.hpp>
#include <pvm/engine/host/matrix_pass.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0 {

/// Where a unit's weights lie. W0 has one row of `w0_columns` per hidden value. W1 is stored
/// transposed, one row of `w1_columns` per value of r, so that one pass along its rows makes both
/// of its products. Rows are padded with zeros to whole groups of columns, and both matrices are
/// tiled (see tiled_index).
struct UnitWeights {
  std::size_t w0 = 0;          ///< offset of W0
  std::size_t w0_columns = 0;  ///< inputs, padded
  std::size_t w1 = 0;          ///< offset of transposed W1
  std::size_t w1_columns = 0;  ///< outputs, padded
};

class WeightLayout {
 public:
  /// `group`: columns of a row that are contiguous (see tiled_index); rows are padded to whole
  /// groups.
  explicit WeightLayout(const Connectome& net, std::size_t group = simd::width)
      : net_(&net), group_(group) {
    for (const Unit& unit : net.units) {
      UnitWeights w;
      w.w0 = size_;
      w.w0_columns = padded(static_cast<std::size_t>(unit.inputs));
      size_ += static_cast<std::size_t>(net.hidden) * w.w0_columns;
      w.w1 = size_;
      w.w1_columns = padded(static_cast<std::size_t>(unit.outputs));
      size_ += static_cast<std::size_t>(unit.representation) * w.w1_columns;
      units_.push_back(w);
      largest_unit_ = std::max(largest_unit_, size_ - w.w0);
    }
  }

  [[nodiscard]] const UnitWeights& operator[](std::size_t unit) const { return units_[unit]; }
  /// Weights of all units, padding included.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Weights of one unit, padding included; they lie one behind the other, W0 first.
  [[nodiscard]] std::size_t size_of(std::size_t unit) const {
    return (unit + 1 < units_.size() ? units_[unit + 1].w0 : size_) - units_[unit].w0;
  }
  [[nodiscard]] std::size_t largest_unit() const noexcept { return largest_unit_; }
  [[nodiscard]] std::size_t group() const noexcept { return group_; }
  /// n rounded up to whole groups.
  [[nodiscard]] std::size_t padded(std::size_t n) const noexcept {
    return (n + group_ - 1) / group_ * group_;
  }

  /// Converts from reference order to the engine's layout, and back.
  void import_weights(std::span<const float> reference, std::span<float> own) const {
    detail::in_parallel(units_.size(), size_, [&](std::size_t u) {
      import_unit(u, reference, own.subspan(units_[u].w0, size_of(u)));
    });
  }
  void export_weights(std::span<const float> own, std::span<float> reference) const {
    detail::in_parallel(units_.size(), size_, [&](std::size_t u) {
      export_unit(u, own.subspan(units_[u].w0, size_of(u)), reference);
    });
  }
  /// The same for one unit's weights: `own` has only these, `reference` those of all units.
  void import_unit(std::size_t u, std::span<const float> reference, std::span<float> own) const {
    const std::size_t first = units_[u].w0;
    for_each_weight_of(u, [&](std::size_t r, std::size_t o) { own[o - first] = reference[r]; });
  }
  void export_unit(std::size_t u, std::span<const float> own, std::span<float> reference) const {
    const std::size_t first = units_[u].w0;
    for_each_weight_of(u, [&](std::size_t r, std::size_t o) { reference[r] = own[o - first]; });
  }

  /// Calls f(index in reference order, index in this layout) for the weights of one unit.
  template <class F>
  void for_each_weight_of(std::size_t u, F&& f) const {
    const Unit& unit = net_->units[u];
    const UnitWeights& w = units_[u];
    const auto inputs = static_cast<std::size_t>(unit.inputs);
    const auto outputs = static_cast<std::size_t>(unit.outputs);
    const auto representation = static_cast<std::size_t>(unit.representation);
    const auto hidden = static_cast<std::size_t>(net_->hidden);
    for (std::size_t i = 0; i < hidden; ++i) {
      for (std::size_t c = 0; c < inputs; ++c) {
        f(unit.w0 + i * inputs + c, w.w0 + simd::tiled_index(hidden, w.w0_columns, i, c, group_));
      }
    }
    for (std::size_t o = 0; o < outputs; ++o) {
      for (std::size_t i = 0; i < representation; ++i) {
        f(unit.w1 + o * representation + i,
          w.w1 + simd::tiled_index(representation, w.w1_columns, i, o, group_));
      }
    }
  }

 private:
  const Connectome* net_;
  std::size_t group_;
  std::vector<UnitWeights> units_;
  std::size_t size_ = 0, largest_unit_ = 0;
};

}  // namespace pvm::inline v0
