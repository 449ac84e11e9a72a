// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A network for prediction only, with weights of one byte each.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/infer/e4m3.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// What a byte of a weight is: a whole number from -127 to 127, or a float with 3 bits of mantissa
/// and 4 of exponent (E4M3).
enum class FrozenFormat { int8, fp8 };

constexpr std::string_view name_of(FrozenFormat format) {
  return format == FrozenFormat::int8 ? "int8" : "fp8";
}

/// A network for prediction only (infer/quantize.hpp makes it of a checkpoint). It has the matrices
/// that results depend on (infer::frozen_matrices), for values v in [0, 1], not squeezed:
///
///     sum of a row = scale * (value . v) + offset
struct FrozenNetwork {
  Spec spec;
  FrozenFormat format = FrozenFormat::int8;
  std::vector<std::uint8_t> values;  ///< all matrices, row by row
  std::vector<float> scales;         ///< [row] of all matrices
  std::vector<float> offsets;        ///< [row]: the bias, and what squeezing adds
  io::Extras extras{};               ///< of a readout, if there is one
};

namespace infer {

/// The value that a byte of a weight stands for, before its row's scale.
inline float value_of(FrozenFormat format, std::uint8_t byte) {
  return format == FrozenFormat::fp8 ? from_e4m3(byte)
                                     : static_cast<float>(static_cast<std::int8_t>(byte));
}

/// A matrix of a frozen network: W0 of a unit without the column of its bias, or of a unit of layer
/// 0 the rows of W1 that predict its own patch. What other rows predict teaches units, and no
/// result reads it.
struct FrozenMatrix {
  std::uint32_t unit = 0;
  bool predicts = false;  ///< W1, not W0
  std::size_t rows = 0, columns = 0;
  std::size_t first_row = 0;  ///< of `scales` and `offsets`
  std::size_t values = 0;     ///< of `values`, the index of the first one
  std::size_t weights = 0;    ///< in reference order, the index of the first one
  std::size_t bias = 0;       ///< the column of the bias there; those behind it are one further on
  [[nodiscard]] std::size_t end() const noexcept { return values + rows * columns; }
};

/// The matrices of a frozen network: all W0 by unit, then those of W1 by unit.
inline std::vector<FrozenMatrix> frozen_matrices(const Spec& spec, const Connectome& net) {
  std::vector<FrozenMatrix> all;
  std::size_t row = 0, values = 0;
  const auto add = [&](FrozenMatrix matrix) {
    matrix.first_row = row;
    matrix.values = values;
    row += matrix.rows;
    values = matrix.end();
    all.push_back(matrix);
  };
  const auto hidden = static_cast<std::size_t>(net.hidden);
  for (std::size_t u = 0; u < net.units.size(); ++u) {
    const auto columns = static_cast<std::size_t>(net.units[u].inputs) - 1;
    add({static_cast<std::uint32_t>(u), false, hidden, columns, 0, 0, net.units[u].w0, columns});
  }
  const auto patch =
      static_cast<std::size_t>(spec.input_block_size * spec.input_block_size * spec.input_channels);
  for (std::size_t u = 0; u < net.layer_start[1]; ++u) {
    const auto columns = static_cast<std::size_t>(net.units[u].representation) - 1;
    add({static_cast<std::uint32_t>(u), true, patch, columns, 0, 0, net.units[u].w1, hidden});
  }
  return all;
}

/// Row `r` of a matrix of `weights` (in reference order) as it multiplies values that are not
/// squeezed. Writes the columns to `out` and returns the offset.
inline float unsqueezed_row(const FrozenMatrix& matrix, std::span<const float> weights,
                            std::size_t r, float* out) {
  const float* from = weights.data() + matrix.weights + r * (matrix.columns + 1);
  const float factor = matrix.predicts ? 1.0F : 0.8F;  // squeeze(v) = 0.8 v + 0.1
  double sum = 0;
  for (std::size_t c = 0; c < matrix.columns; ++c) {
    const float weight = from[c < matrix.bias ? c : c + 1];
    out[c] = factor * weight;
    sum += weight;
  }
  return static_cast<float>(from[matrix.bias] + (matrix.predicts ? 0.0 : 0.1 * sum));
}

/// The weights in fp32 and reference order, as a checkpoint has them; 0 where the network has none.
inline std::vector<float> widened(const FrozenNetwork& network) {
  const Connectome net = make_connectome(network.spec);
  std::vector<float> weights(net.weights);
  for (const FrozenMatrix& matrix : frozen_matrices(network.spec, net)) {
    for (std::size_t r = 0; r < matrix.rows; ++r) {
      float* to = weights.data() + matrix.weights + r * (matrix.columns + 1);
      const std::uint8_t* bytes = network.values.data() + matrix.values + r * matrix.columns;
      const float scale = network.scales[matrix.first_row + r] / (matrix.predicts ? 1.0F : 0.8F);
      double sum = 0;
      for (std::size_t c = 0; c < matrix.columns; ++c) {
        const float weight = scale * value_of(network.format, bytes[c]);
        to[c < matrix.bias ? c : c + 1] = weight;
        sum += weight;
      }
      const double squeezing = matrix.predicts ? 0.0 : 0.1 * sum;
      to[matrix.bias] = static_cast<float>(network.offsets[matrix.first_row + r] - squeezing);
    }
  }
  return weights;
}

}  // namespace infer

}  // namespace pvm::inline v0
