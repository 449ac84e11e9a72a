// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The readout of the original implementation: a small network for each position, which reads the
/// hidden values of all units that cover it and answers with a block of the heatmap. It learns step
/// by step, beside the network or on a frozen one.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/random.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/readout/positions.hpp>
#include <pvm/readout/readout.hpp>
#include <pvm/readout/target.hpp>

namespace pvm::inline v0::readout {

/// Where the original does what is surely not meant. On: as the original does it.
struct MlpSlips {
  /// Weights start within +-1 / sqrt(outputs - 0.9) of their matrix; off: +-1 / sqrt(inputs).
  bool start_by_outputs = true;
  /// A box fills (w + 1) x (h + 1) pixels, both ends included; off: w x h.
  bool both_ends = true;
  /// A box that begins left of the frame counts as absent; off: it is cut at the edge.
  bool left_is_absent = true;
  bool operator==(const MlpSlips&) const = default;
};

struct MlpOptions {
  int representation = 100;  ///< R, the size of each hidden layer
  int layers = 3;            ///< 3: inputs, R, outputs; 4: inputs, R, R, outputs
  int block = 0;             ///< side of a position's block of the heatmap; 0: input_block_size
  double multiplier = 10;    ///< the rate is this times the network's (`readout_multiplier`)
  double first_rate = 0.01;  ///< the rate until the schedule sets another one
  std::uint64_t seed = 0;    ///< of the initial weights
  MlpSlips slips{};
  bool operator==(const MlpOptions&) const = default;
};

/// See docs/readout.md for the formulas. Weights: by layer; within it by position; each matrix
/// [outputs][inputs + 1] with the bias last, which is the order of the original's memory.
class MlpReadout : public Readout {
 public:
  /// Throws Error (Fault::usage) if the options make no sense.
  MlpReadout(const Spec& spec, const Connectome& net, const MlpOptions& options = {})
      : spec_(spec),
        options_(options),
        cells_(spec.layer_shapes.front()),
        block_(options.block > 0 ? options.block : spec.input_block_size),
        hidden_(static_cast<std::size_t>(net.hidden)),
        hidden_values_(net.units.size() * hidden_),
        units_(position_units(net, cells_)),
        rate_(static_cast<float>(options.first_rate)) {
    if (options.layers != 3 && options.layers != 4) {
      throw Error(Fault::usage, "the original's readout has 3 or 4 layers, not " +
                                    std::to_string(options.layers));
    }
    if (options.representation < 1 || options.representation > 100'000 || options.block < 0 ||
        options.block > 256) {
      throw Error(Fault::usage, "a readout's representation is 1 to 100000 and its block 1 to 256");
    }
    const auto middle = static_cast<std::size_t>(options.representation);
    const auto outputs = static_cast<std::size_t>(block_ * block_);
    for (int l = 0; l + 1 < options.layers; ++l) {
      Layer layer;
      layer.outputs = l + 2 == options.layers ? outputs : middle;
      for (std::size_t p = 0; p < positions(); ++p) {
        layer.inputs.push_back(l == 0 ? units_[p].size() * hidden_ : middle);
        layer.start.push_back(layer.start.back() + layer.outputs * (layer.inputs.back() + 1));
      }
      layer.weights.resize(layer.start.back());
      layer.changes.resize(layer.start.back());
      layers_.push_back(std::move(layer));
    }
    start_weights();
    heat_.resize(positions() * outputs);
  }

  [[nodiscard]] const MlpOptions& options() const noexcept { return options_; }
  [[nodiscard]] const Spec& spec() const noexcept { return spec_; }
  /// The units that each position reads.
  [[nodiscard]] const SourceLists& units() const noexcept { return units_; }
  /// Where each position's matrix begins in the weights of a layer, and where the last one ends.
  [[nodiscard]] std::span<const std::size_t> matrices(std::size_t layer) const {
    return layers_.at(layer).start;
  }
  [[nodiscard]] std::size_t positions() const noexcept { return units_.start.size() - 1; }
  [[nodiscard]] int heat_side() const noexcept override { return cells_ * block_; }
  /// The number of layers of weights: 2 or 3.
  [[nodiscard]] std::size_t depth() const noexcept { return layers_.size(); }
  /// All weights of a layer, and their last changes.
  [[nodiscard]] std::span<float> weights(std::size_t layer) { return layers_.at(layer).weights; }
  [[nodiscard]] std::span<float> changes(std::size_t layer) { return layers_.at(layer).changes; }
  [[nodiscard]] std::size_t outputs(std::size_t layer) const { return layers_.at(layer).outputs; }
  [[nodiscard]] std::size_t inputs(std::size_t layer, std::size_t position) const {
    return layers_.at(layer).inputs.at(position);
  }
  /// The learning rate now, and a new one, which holds until the schedule sets another.
  [[nodiscard]] float rate() const noexcept { return rate_; }
  void set_rate(double rate) noexcept { rate_ = static_cast<float>(rate); }

  /// Step t of the network: sets the rate if the schedule has a switch there, or had one since the
  /// step told before. Learning begins after `delay_intermediate_learning_rate`, or after step 0 if
  /// the spec has no such key.
  void at_step(std::uint64_t step) override {
    const auto passed = [&](const std::optional<std::uint64_t>& at) {
      return at && *at <= step && (first_ || *at > step_);
    };
    const std::uint64_t final_at = spec_.delay_final_learning_rate.value_or(0);
    const std::uint64_t intermediate_at = spec_.delay_intermediate_learning_rate.value_or(0);
    const bool finals = passed(spec_.delay_final_learning_rate);
    const bool intermediates = passed(spec_.delay_intermediate_learning_rate);
    if (finals && !(intermediates && intermediate_at >= final_at)) {
      set_rate(options_.multiplier * spec_.final_learning_rate);
    } else if (intermediates) {
      set_rate(options_.multiplier * spec_.intermediate_learning_rate);
    }
    step_ = step;
    first_ = false;
  }

  /// Whether the schedule lets it learn in the step told last.
  [[nodiscard]] bool learns_now() const noexcept {
    return first_ || step_ > spec_.delay_intermediate_learning_rate.value_or(0);
  }

  void observe(std::span<const float> hidden, std::span<const std::uint8_t>,
               const io::Label& label) override {
    if (label.state == io::LabelState::unlabelled) return;
    check_label(label, spec_.frame_side());
    if (learns_now()) learn(hidden, targets(label));
  }

  void heat(std::span<const float> hidden, std::span<const std::uint8_t>,
            std::span<float> out) override {
    const std::span<const float> squeezed = outputs_of(hidden);
    std::transform(squeezed.begin(), squeezed.end(), out.begin(),
                   [](float v) { return (v - 0.1F) / 0.8F; });
  }

  /// The outputs as they are, between 0 and 1, trained to 0.1 and 0.9: [side][side].
  std::span<const float> outputs_of(std::span<const float> hidden) {
    check_hidden(hidden);
    std::vector<std::vector<float>> values(layers_.size() + 1);
    for (std::size_t p = 0; p < positions(); ++p) {
      gather(hidden, p, values);
      simd::for_best_isa(Forward{layers_, p, values});
      place(p, values.back());
    }
    return heat_;
  }

  /// Throws Error (Fault::usage) if these are not the hidden values of one sequence.
  void check_hidden(std::span<const float> hidden) const {
    if (hidden.size() == hidden_values_) return;
    throw Error(Fault::usage, "there are " + std::to_string(hidden.size()) +
                                  " hidden values and the network has " +
                                  std::to_string(hidden_values_) + " of one sequence");
  }

  /// One step of learning towards `target`, [side][side], of 0.1 where the object is not and 0.9
  /// where it is.
  void learn(std::span<const float> hidden, std::span<const float> target) {
    check_hidden(hidden);
    std::vector<std::vector<float>> values(layers_.size() + 1);
    std::vector<float> error(static_cast<std::size_t>(block_ * block_));
    const auto momentum = static_cast<float>(spec_.momentum);
    for (std::size_t p = 0; p < positions(); ++p) {
      gather(hidden, p, values);
      simd::for_best_isa(Forward{layers_, p, values});
      place(p, values.back());
      for (std::size_t i = 0; i < error.size(); ++i) {
        const float e = target[pixel(p, i)] - values.back()[i];
        error[i] = spec_.opt_abs_diff ? std::copysign(1.0F, e) : e;
      }
      simd::for_best_isa(Backward{layers_, p, values, error, rate_, momentum});
    }
  }

  /// Some pixels of the heatmap: those from (left, top) to before (right, bottom).
  struct Pixels {
    int left = 0, top = 0, right = 0, bottom = 0;
  };
  /// The pixels of a label's box; none if the object is absent. The numbers of a box are truncated
  /// one by one, as the original's are.
  [[nodiscard]] Pixels box_pixels(const io::Label& label) const {
    if (label.state != io::LabelState::present) return {};
    if (options_.slips.left_is_absent && label.box.x < 0) return {};
    const int side = heat_side();
    const float scale = static_cast<float>(side) / static_cast<float>(spec_.frame_side());
    const int x = static_cast<int>(label.box.x * scale);
    const int y = static_cast<int>(label.box.y * scale);
    const int more = options_.slips.both_ends ? 1 : 0;
    const int right = std::min(side, x + static_cast<int>(label.box.width * scale) + more);
    const int bottom = std::min(side, y + static_cast<int>(label.box.height * scale) + more);
    return {std::max(0, x), std::max(0, y), right, bottom};
  }

  /// The target for a label: 0.9 in the pixels of the box, else 0.1; [side][side].
  [[nodiscard]] std::vector<float> targets(const io::Label& label) const {
    const int side = heat_side();
    std::vector<float> target(static_cast<std::size_t>(side * side), 0.1F);
    const Pixels on = box_pixels(label);
    for (int row = on.top; row < on.bottom; ++row) {
      for (int column = on.left; column < on.right; ++column) {
        target[static_cast<std::size_t>(row * side + column)] = 0.9F;
      }
    }
    return target;
  }

  void save(io::Extras& extras) override {
    const auto number = [&](const char* key, double value) {
      extras.texts[key] = exact_text(value);
    };
    extras.texts["readout"] = "mlp";
    number("readout.representation", options_.representation);
    number("readout.layers", options_.layers);
    number("readout.block", block_);
    number("readout.multiplier", options_.multiplier);
    number("readout.rate", static_cast<double>(rate_));
    extras.texts["readout.step"] = std::to_string(step_);
    number("readout.stepped", first_ ? 0 : 1);
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      extras.floats["readout/weights" + std::to_string(l)] = layers_[l].weights;
      extras.floats["readout/changes" + std::to_string(l)] = layers_[l].changes;
    }
  }

  void restore(const io::Extras& extras) override {
    if (text_of(extras, "readout") != "mlp") {
      throw Error(Fault::checkpoint, "the file's readout is " + quote(text_of(extras, "readout")) +
                                         " and not the original's networks");
    }
    std::vector<const std::vector<float>*> arrays;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      for (const char* name : {"readout/weights", "readout/changes"}) {
        arrays.push_back(&floats_of(extras, name + std::to_string(l)));
        check_size(l, arrays.back()->size());
      }
    }
    const double rate = number_of(extras, "readout.rate");
    const double step = number_of(extras, "readout.step");
    const bool stepped = number_of(extras, "readout.stepped") != 0;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      layers_[l].weights = *arrays[2 * l];
      layers_[l].changes = *arrays[2 * l + 1];
    }
    set_rate(rate);
    step_ = static_cast<std::uint64_t>(step);
    first_ = !stepped;
  }

  /// Replaces the weights of a layer and their last changes. Throws Error (Fault::checkpoint) if
  /// their number is another network's.
  void set_layer(std::size_t layer, std::vector<float> weights, std::vector<float> changes) {
    check_size(layer, weights.size());
    check_size(layer, changes.size());
    layers_.at(layer).weights = std::move(weights);
    layers_.at(layer).changes = std::move(changes);
  }

 private:
  /// The weights between two layers of all positions' networks.
  struct Layer {
    std::size_t outputs = 0;
    std::vector<std::size_t> inputs;    // by position, the bias not counted
    std::vector<std::size_t> start{0};  // by position: of its matrix
    std::vector<float> weights, changes;
  };

  void start_weights() {
    std::uint64_t index = 0;
    for (Layer& layer : layers_) {
      for (std::size_t p = 0; p < positions(); ++p) {
        const double fan = options_.slips.start_by_outputs
                               ? static_cast<double>(layer.outputs) - 0.9
                               : static_cast<double>(layer.inputs[p]);
        const auto bound = static_cast<float>(1 / std::sqrt(fan));
        for (std::size_t i = layer.start[p]; i < layer.start[p + 1]; ++i) {
          layer.weights[i] = bound * (2 * uniform(options_.seed, index++) - 1);
        }
      }
    }
  }

  void check_size(std::size_t layer, std::size_t size) const {
    const std::size_t needed = layers_.at(layer).weights.size();
    if (size == needed) return;
    throw Error(Fault::checkpoint, "the file's readout has " + std::to_string(size) +
                                       " weights in layer " + std::to_string(layer) +
                                       " and this network's has " + std::to_string(needed) +
                                       ": it is another network's readout");
  }

  /// values[0] = [z | 1] of a position: hidden values as they are, not squeezed.
  void gather(std::span<const float> hidden, std::size_t p,
              std::vector<std::vector<float>>& values) const {
    values[0].clear();
    for (const std::uint32_t unit : units_[p]) {
      const auto from = hidden.subspan(unit * hidden_, hidden_);
      values[0].insert(values[0].end(), from.begin(), from.end());
    }
    values[0].push_back(1);
  }

  /// The heatmap's pixel for output i of position p: row by row within the position's block.
  [[nodiscard]] std::size_t pixel(std::size_t p, std::size_t i) const {
    const auto cells = static_cast<std::size_t>(cells_);
    const auto block = static_cast<std::size_t>(block_);
    return (p / cells * block + i / block) * cells * block + p % cells * block + i % block;
  }
  void place(std::size_t p, const std::vector<float>& values) {
    const auto count = static_cast<std::size_t>(block_ * block_);
    for (std::size_t i = 0; i < count; ++i) heat_[pixel(p, i)] = values[i];
  }

  [[gnu::always_inline]] static inline float dot(const float* a, const float* b,
                                                 std::size_t count) {
    simd::Lanes sums = {};
    std::size_t i = 0;
    for (; i + simd::width <= count; i += simd::width) sums += simd::at(a + i) * simd::at(b + i);
    float sum = simd::sum(sums);
    for (; i < count; ++i) sum += a[i] * b[i];
    return sum;
  }

  /// values[l + 1] = [1 / (1 + exp(-W values[l])) | 1]: logistic, whatever the network's
  /// activation.
  struct Forward {
    const std::vector<Layer>& layers;
    std::size_t p;
    std::vector<std::vector<float>>& values;

    [[gnu::always_inline]] inline void operator()() const {
      for (std::size_t l = 0; l < layers.size(); ++l) {
        const Layer& layer = layers[l];
        const std::size_t stride = layer.inputs[p] + 1;
        const float* row = layer.weights.data() + layer.start[p];
        std::vector<float>& out = values[l + 1];
        out.resize(layer.outputs + 1);
        for (std::size_t i = 0; i < layer.outputs; ++i, row += stride) {
          out[i] = 1 / (1 + std::exp(-dot(row, values[l].data(), stride)));
        }
        out[layer.outputs] = 1;
      }
    }
  };

  /// dW = m dW + rate d v^T, W += dW, from the last layer to the first; errors go back through the
  /// weights of before the step. Nothing goes back into the network that is read.
  struct Backward {
    std::vector<Layer>& layers;
    std::size_t p;
    const std::vector<std::vector<float>>& values;
    const std::vector<float>& error;
    float rate, momentum;

    [[gnu::always_inline]] inline void operator()() const {
      std::vector<float> above(error.begin(), error.end());
      for (std::size_t l = layers.size(); l-- > 0;) {
        Layer& layer = layers[l];
        const std::size_t stride = layer.inputs[p] + 1;
        const std::vector<float>& out = values[l + 1];
        std::vector<float> below(stride, 0.0F);
        for (std::size_t i = 0; i < layer.outputs; ++i) {
          const float delta = out[i] * (1 - out[i]) * above[i];
          float* w = layer.weights.data() + layer.start[p] + i * stride;
          float* dw = layer.changes.data() + layer.start[p] + i * stride;
          const float* in = values[l].data();
          const float step = rate * delta;
          for (std::size_t j = 0; j < stride; ++j) {
            below[j] += w[j] * delta;
            dw[j] = momentum * dw[j] + step * in[j];
            w[j] += dw[j];
          }
        }
        above = std::move(below);
      }
    }
  };

  Spec spec_;
  MlpOptions options_;
  int cells_, block_;
  std::size_t hidden_, hidden_values_;
  SourceLists units_;
  std::vector<Layer> layers_;
  std::vector<float> heat_;
  float rate_;
  std::uint64_t step_ = 0;
  bool first_ = true;  // no step has been told yet
};

}  // namespace pvm::inline v0::readout
