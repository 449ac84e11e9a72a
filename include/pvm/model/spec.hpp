// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A model spec as a plain value, and the check that it describes a possible network.

#include <cmath>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>

namespace pvm::inline v0 {

/// The activation that every unit applies to its sums a.
enum class ActivationKind {
  polynomial,  ///< a / (2(|a|+1)) + 1/2, spec key `polynomial` = 1
  logistic,    ///< 1 / (1 + exp(-a)), spec key `polynomial` = 0
};

/// Everything that determines what a step computes. Fields have the names of the keys in JSON
/// specs, which docs/spec.md explains; docs/model.md has the formulas; `validate` has the ranges. A
/// default-constructed Spec is not valid, since it has no layers.
struct Spec {
  std::string name = "unnamed";  ///< the spec file's name without extension; names checkpoints

  // The network.
  std::vector<int> layer_shapes;  ///< layer l has layer_shapes[l] x layer_shapes[l] units
  int input_block_size = 0;       ///< side of the patch that a layer-0 unit sees, in pixels
  int input_channels = 3;         ///< 1 grey, 2 grey and alpha, 3 BGR, 4 BGR and alpha
  int hidden_block_size = 0;      ///< a unit has hidden_block_size^2 hidden values
  int fan_in_square_size = 0;     ///< side of the square of units below that may feed a unit
  double fan_in_radius = 0;       ///< those within this distance of the square's centre do feed it
  int lateral_radius = 0;         ///< units of the same layer within this distance are context
  bool context_exclude_self = false;           ///< a unit is not part of its own context
  bool send_context_two_layers_back = false;   ///< context also from two layers above
  bool last_layer_context_to_all = false;      ///< the last layer is context of every unit
  bool feed_context_in_complex_layer = false;  ///< the context also feeds the outputs

  // The unit.
  ActivationKind activation = ActivationKind::logistic;
  bool true_derivative = false;  ///< polynomial only: the true derivative, not the compatible one
  /// The name of a program's own activation, a type given to a Network; if empty, `activation`
  /// applies.
  std::string own_activation;
  bool opt_abs_diff = false;  ///< learn from the sign of the error

  // The rates (see RateSchedule).
  std::string learning_rule = "momentum";  ///< or sgd, adam, or the name of a program's own type
  double initial_learning_rate = 0;        ///< of a layer from when it is switched on
  double momentum = 0;                     ///< of a layer from when it is switched on
  std::uint64_t delay_each_layer_learning = 1;  ///< layer l is switched on at step l times this
  std::optional<std::uint64_t> delay_final_learning_rate;  ///< step of the final rate, if any
  double final_learning_rate = 0;                          ///< of all layers, from that step on
  std::optional<std::uint64_t> delay_intermediate_learning_rate;  ///< likewise; it overrides a
                                                                  ///< final rate of the same step
  double intermediate_learning_rate = 0;
  std::uint64_t steps = 100'000'000;  ///< the step at which a run ends that has no `Steps` argument

  /// Number of hidden values of a unit.
  [[nodiscard]] constexpr int hidden() const noexcept {
    return hidden_block_size * hidden_block_size;
  }
  /// Side of the square frame that the network sees, in pixels.
  [[nodiscard]] constexpr int frame_side() const noexcept {
    return layer_shapes.empty() ? 0 : layer_shapes.front() * input_block_size;
  }
  /// Number of values of a frame: pixels times channels.
  [[nodiscard]] std::size_t frame_size() const noexcept {
    const auto side = static_cast<std::size_t>(frame_side());
    return side * side * static_cast<std::size_t>(input_channels);
  }
  bool operator==(const Spec&) const = default;
};

namespace detail {

/// The largest values allowed, for specs and for networks as types.
struct Limits {
  static constexpr int layers = 64;
  static constexpr int side = 512;               ///< side of a layer, in units
  static constexpr int block = 256;              ///< input_block_size
  static constexpr int channels = 4;             ///< input_channels
  static constexpr int hidden = 64;              ///< hidden_block_size
  static constexpr int frame = 8192;             ///< side of a frame, in pixels
  static constexpr int lateral = 512;            ///< lateral_radius
  static constexpr double fan_in_radius = 1024;  ///< in units
  static constexpr double rate = 1000;           ///< learning rates
  static constexpr double weights = 4e9;         ///< number of weights, by weight_bound
  static constexpr std::uint64_t steps = 1ULL << 62;
};

/// Throws Fault::spec at the first value that is wrong, with a sentence that names the file
/// (`where`), the key, the value and what is allowed.
class SpecCheck {
 public:
  explicit SpecCheck(std::string where) : where_(std::move(where)) {}

  template <class T>
  void range(const char* key, T value, T least, T most) const {
    if (!(value >= least && value <= most)) {
      std::ostringstream allowed;
      allowed << "allowed: " << least << " to " << most;
      refuse(key, value, allowed.str());
    }
  }

  template <class T>
  [[noreturn]] void refuse(const char* key, T value, const std::string& allowed) const {
    std::ostringstream sentence;
    sentence << where_ << ": key '" << key << "' is " << value << "; " << allowed;
    throw Error(Fault::spec, sentence.str());
  }

 private:
  std::string where_;
};

inline void check_sizes(const Spec& spec, const SpecCheck& check) {
  check.range<std::size_t>("layer_shapes (number of layers)", spec.layer_shapes.size(), 1,
                           Limits::layers);
  for (const int side : spec.layer_shapes) check.range("layer_shapes", side, 1, Limits::side);
  check.range("input_block_size", spec.input_block_size, 1, Limits::block);
  if (spec.input_channels < 1 || spec.input_channels > Limits::channels) {
    check.refuse("input_channels", spec.input_channels,
                 "allowed: 1 (grey), 2 (grey and alpha), 3 (BGR) or 4 (BGR and alpha)");
  }
  check.range("hidden_block_size", spec.hidden_block_size, 1, Limits::hidden);
  check.range("frame side (layer_shapes[0] * input_block_size)", spec.frame_side(), 1,
              Limits::frame);
  check.range("lateral_radius", spec.lateral_radius, 0, Limits::lateral);
  if (spec.layer_shapes.size() == 1) return;

  check.range("fan_in_square_size", spec.fan_in_square_size, 1, Limits::side);
  check.range("fan_in_radius", spec.fan_in_radius, 0.0, Limits::fan_in_radius);
  for (std::size_t l = 1; l < spec.layer_shapes.size(); ++l) {
    if (spec.fan_in_square_size > spec.layer_shapes[l - 1]) {
      check.refuse("fan_in_square_size", spec.fan_in_square_size,
                   "it must fit the layer below, and layer " + std::to_string(l - 1) +
                       " has a side of " + std::to_string(spec.layer_shapes[l - 1]));
    }
  }
  // The unit nearest to the square's centre has a distance of 0 (odd side) or sqrt(1/2) (even
  // side).
  const double nearest = spec.fan_in_square_size % 2 == 1 ? 0.0 : 0.5;
  if (spec.fan_in_radius * spec.fan_in_radius < nearest) {
    check.refuse("fan_in_radius", spec.fan_in_radius,
                 "units would have no source below; allowed here: at least 0.7072");
  }
}

/// An upper bound of the number of weights, computed before any memory is allocated; in double,
/// where it cannot overflow. `Network`: a Spec, or NetworkValues, which has the same names.
template <class Network>
constexpr double weight_bound(const Network& spec) {
  const auto square = [](double v) { return v * v; };
  const double hidden = square(spec.hidden_block_size);
  const double fan_in = square(spec.fan_in_square_size);
  const double patch = square(spec.input_block_size) * spec.input_channels;
  const double top = spec.last_layer_context_to_all ? square(spec.layer_shapes.back()) : 0;
  const std::size_t layers = spec.layer_shapes.size();
  // The average number of units above that have a unit of layer l as a primary source.
  const auto above = [&](std::size_t l) {
    return l + 1 < layers ? square(spec.layer_shapes[l + 1]) * fan_in / square(spec.layer_shapes[l])
                          : 0.0;
  };
  double weights = 0;
  for (std::size_t l = 0; l < layers; ++l) {
    const double units = square(spec.layer_shapes[l]);
    const double context =
        std::min(units, square(2.0 * spec.lateral_radius + 1)) + above(l) + top +
        (spec.send_context_two_layers_back && l + 1 < layers ? above(l) * (above(l + 1) + fan_in)
                                                             : 0.0);
    const double base = l == 0 ? patch : hidden * fan_in;
    const double representation =
        hidden + 1 + (spec.feed_context_in_complex_layer ? hidden * context : 0.0);
    weights += units * (hidden * (2 * base + hidden * context + 1) + 2 * base * representation);
  }
  return weights;
}

inline void check_rate(const SpecCheck& check, const char* key, double rate) {
  if (!std::isfinite(rate) || rate < 0 || rate > Limits::rate) {
    check.refuse(key, rate, "allowed: a number from 0 to 1000");
  }
}

}  // namespace detail

/// Throws Error (Fault::spec) unless `spec` describes a network that can be built and trained.
/// `where` (usually a file name) begins the message. Allocates almost no memory, however large the
/// network would be.
inline void validate(const Spec& spec, const std::string& where) {
  const detail::SpecCheck check(where);
  detail::check_sizes(spec, check);
  if (const double weights = detail::weight_bound(spec); weights > detail::Limits::weights) {
    check.refuse("layer_shapes", "too large together with the sizes beside it",
                 "the network would have about " + std::to_string(weights / 1e9) +
                     " thousand million weights; allowed: 4");
  }
  detail::check_rate(check, "initial_learning_rate", spec.initial_learning_rate);
  detail::check_rate(check, "final_learning_rate", spec.final_learning_rate);
  detail::check_rate(check, "intermediate_learning_rate", spec.intermediate_learning_rate);
  if (!(spec.momentum >= 0 && static_cast<float>(spec.momentum) < 1)) {  // engines use a float
    check.refuse("momentum", spec.momentum, "allowed: at least 0 and, as a float, less than 1");
  }
  constexpr std::uint64_t most_steps = detail::Limits::steps;
  check.range<std::uint64_t>("delay_each_layer_learning", spec.delay_each_layer_learning, 1,
                             most_steps);
  check.range<std::uint64_t>("steps", spec.steps, 1, most_steps);
}

}  // namespace pvm::inline v0
