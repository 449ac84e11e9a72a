// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Networks as types: composed of named parts and checked at compile time. Such a type is
/// equivalent to a JSON spec with the same values, but the hidden size is a compile-time constant
/// in the host's kernels, and in the GPU's for one sequence in fp32.
///
///     using Net = pvm::Network<pvm::Input<60, 3, 5>, pvm::Layers<12, 8, 6, 4, 2, 1>,
///                              pvm::Hidden<7>, pvm::FanIn<2>, pvm::Lateral<2>, pvm::Feedback<2>,
///                              pvm::TopToAll>;
///
/// Parts may come in any order, each at most once. A part with arguments that is left out has the
/// value of model_zoo/small.json; a part without arguments (TopToAll, ...) that is left out is off.
/// docs/spec.md explains the key of each part.

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include <pvm/core/tags.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/activation.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

/// A floating-point number as a template argument, as in `LearningRate<0.002>`. Not every compiler
/// accepts a double there.
struct Real {
  std::uint64_t bits;
  consteval Real(double v) : bits(std::bit_cast<std::uint64_t>(v)) {}
  consteval Real(int v) : Real(static_cast<double>(v)) {}
  /// From the bits: nvcc writes a Real like this in the host code that it generates.
  template <std::unsigned_integral Bits>
  explicit consteval Real(Bits raw) : bits(raw) {}
  constexpr operator double() const { return std::bit_cast<double>(bits); }
};

namespace detail {

/// The sides of all layers, in an array of fixed capacity, so that it can be a compile-time
/// constant.
struct LayerSides {
  std::array<int, Limits::layers + 1> side{};
  std::size_t count = 0;

  [[nodiscard]] constexpr std::size_t size() const { return count; }
  [[nodiscard]] constexpr int operator[](std::size_t l) const { return side[l]; }
  [[nodiscard]] constexpr int front() const { return side[0]; }
  [[nodiscard]] constexpr int back() const { return side[count - 1]; }
};

/// The values of all parts, under the names that Spec uses. The defaults are those of small.json,
/// except last_layer_context_to_all, which is on there and here belongs to the part TopToAll.
struct NetworkValues {
  int frame_side = 60;
  LayerSides layer_shapes{{12, 8, 6, 4, 2, 1}, 6};
  int input_block_size = 5;
  int input_channels = 3;
  int hidden_block_size = 7;
  int fan_in_square_size = 2;
  double fan_in_radius = 2;
  int lateral_radius = 2;
  int feedback = 2;
  bool context_exclude_self = false;
  bool send_context_two_layers_back = true;
  bool last_layer_context_to_all = false;
  bool feed_context_in_complex_layer = false;
  bool opt_abs_diff = false;
  double initial_learning_rate = 0.002;
  double momentum = 0.1;
  std::uint64_t delay_each_layer_learning = 1000;
  std::optional<std::uint64_t> delay_final_learning_rate = 1'000'000;
  double final_learning_rate = 0.00005;
  std::optional<std::uint64_t> delay_intermediate_learning_rate = 1'000'000;
  double intermediate_learning_rate = 0.001;
  std::uint64_t steps = 100'000'000;
};

/// The kind of a part; a network has each kind at most once.
enum class Part {
  input,
  layers,
  hidden,
  fan_in,
  lateral,
  feedback,
  exclude_self,
  top_to_all,
  feed_context,
  activation,
  sign_of_error,
  rule,
  rate,
  momentum,
  delay,
  final_rate,
  intermediate_rate,
  length,
  count
};

template <class P>
concept NetworkPart = requires(NetworkValues& values) {
  { P::part } -> std::convertible_to<Part>;
  {P::set(values)};
};

}  // namespace detail

/// Frames have `Side` x `Side` pixels and `Channels` channels (1 grey, 2 grey and alpha, 3 BGR, 4
/// BGR and alpha). Each unit of the first layer sees a patch of `Block` x `Block` pixels, so `Side`
/// must be the first layer's side times `Block`.
template <int Side, int Channels = 3, int Block = 5>
struct Input {
  static constexpr auto part = detail::Part::input;
  static constexpr void set(detail::NetworkValues& v) {
    v.frame_side = Side;
    v.input_channels = Channels;
    v.input_block_size = Block;
  }
};

/// Layer l has Sides[l] x Sides[l] units; the input layer comes first. 1 to 64 layers with sides of
/// 1 to 512.
template <int... Sides>
struct Layers {
  static_assert(sizeof...(Sides) >= 1 && sizeof...(Sides) <= detail::Limits::layers,
                "pvm::Layers: a network has 1 to 64 layers");
  static constexpr auto part = detail::Part::layers;
  static constexpr void set(detail::NetworkValues& v) {
    if constexpr (sizeof...(Sides) <= detail::Limits::layers) {
      v.layer_shapes = {{Sides...}, sizeof...(Sides)};
    }
  }
};

/// Units have `Side` x `Side` hidden values; `Side` is 1 to 64.
template <int Side>
struct Hidden {
  static constexpr auto part = detail::Part::hidden;
  static constexpr void set(detail::NetworkValues& v) { v.hidden_block_size = Side; }
};

/// The primary sources of a unit: of the `Square` x `Square` units below it, those within `Radius`
/// of the square's centre. The distance is measured in units.
template <int Square, Real Radius = Real(Square)>
struct FanIn {
  static constexpr auto part = detail::Part::fan_in;
  static constexpr void set(detail::NetworkValues& v) {
    v.fan_in_square_size = Square;
    v.fan_in_radius = Radius;
  }
};

/// Units of the same layer within a distance of `Radius` units are context.
template <int Radius>
struct Lateral {
  static constexpr auto part = detail::Part::lateral;
  static constexpr void set(detail::NetworkValues& v) { v.lateral_radius = Radius; }
};

/// Context from above: 1, from the units that have this unit as a primary source; 2, also from the
/// units above those.
template <int LayersBack>
struct Feedback {
  static constexpr auto part = detail::Part::feedback;
  static constexpr void set(detail::NetworkValues& v) {
    v.feedback = LayersBack;
    v.send_context_two_layers_back = LayersBack == 2;
  }
};

/// A unit is not its own context.
struct ExcludeSelf {
  static constexpr auto part = detail::Part::exclude_self;
  static constexpr void set(detail::NetworkValues& v) { v.context_exclude_self = true; }
};

/// The last layer's units are context of every unit.
struct TopToAll {
  static constexpr auto part = detail::Part::top_to_all;
  static constexpr void set(detail::NetworkValues& v) { v.last_layer_context_to_all = true; }
};

/// The context also feeds the outputs, not only the hidden values.
struct FeedContext {
  static constexpr auto part = detail::Part::feed_context;
  static constexpr void set(detail::NetworkValues& v) { v.feed_context_in_complex_layer = true; }
};

/// The activation of every unit: Polynomial, PolynomialTrue, Logistic, or a type of your own that
/// satisfies ActivationFunction.
template <class Function>
struct Activation {
  static_assert(ActivationFunction<Function>,
                "pvm::Activation: an activation is a type with two functions, static float "
                "value(float sum) and static float derivative(float value)");
  static constexpr auto part = detail::Part::activation;
  using type = Function;
  static constexpr void set(detail::NetworkValues&) {}
};

/// Units learn from the sign of their error.
struct SignOfError {
  static constexpr auto part = detail::Part::sign_of_error;
  static constexpr void set(detail::NetworkValues& v) { v.opt_abs_diff = true; }
};

namespace detail {

/// Whether a rule of the program's own has a name that differs from the library's rules. A spec
/// holds only the name, so otherwise it would be trained by the library's rule.
template <class Rule>
constexpr bool rule_name_is_its_own() {
  if (std::same_as<Rule, Momentum> || std::same_as<Rule, Sgd> || std::same_as<Rule, Adam>) {
    return true;
  }
  const std::string_view name = own_name<Rule>();
  return name != Momentum::name && name != Sgd::name && name != Adam::name;
}

}  // namespace detail

/// How weights learn: Momentum, Sgd, Adam, or a type of your own that satisfies LearningRuleType.
template <class Rule>
struct LearningRule {
  static_assert(
      LearningRuleType<Rule>,
      "pvm::LearningRule: a learning rule is a type with static constexpr int state (0 to "
      "4) and static float apply(float w, float* state, float gradient, pvm::RuleStep); if it has "
      "a begin_step, that is static void begin_step(pvm::RuleStep&)");
  static_assert(!LearningRuleType<Rule> || detail::rule_name_is_its_own<Rule>(),
                "pvm::LearningRule: the names momentum, sgd and adam are those of the library's "
                "rules: give a rule of your own another name");
  static constexpr auto part = detail::Part::rule;
  using type = Rule;
  static constexpr void set(detail::NetworkValues&) {}
};

/// The learning rate of a layer from the step at which it is switched on; 0 to 1000.
template <Real Rate>
struct LearningRate {
  static constexpr auto part = detail::Part::rate;
  static constexpr void set(detail::NetworkValues& v) { v.initial_learning_rate = Rate; }
};

/// The momentum of a layer from the step at which it is switched on; at least 0 and less than 1.
template <Real Factor>
struct MomentumFactor {
  static constexpr auto part = detail::Part::momentum;
  static constexpr void set(detail::NetworkValues& v) { v.momentum = Factor; }
};

/// Layer l is switched on at step l * `Steps`; `Steps` is at least 1.
template <std::uint64_t Steps>
struct LayerDelay {
  static constexpr auto part = detail::Part::delay;
  static constexpr void set(detail::NetworkValues& v) { v.delay_each_layer_learning = Steps; }
};

/// At step `At` the learning rate of all layers becomes `Rate`.
template <std::uint64_t At, Real Rate>
struct FinalRate {
  static constexpr auto part = detail::Part::final_rate;
  static constexpr void set(detail::NetworkValues& v) {
    v.delay_final_learning_rate = At;
    v.final_learning_rate = Rate;
  }
};

/// There is no final rate.
struct NoFinalRate {
  static constexpr auto part = detail::Part::final_rate;
  static constexpr void set(detail::NetworkValues& v) {
    v.delay_final_learning_rate.reset();
    v.final_learning_rate = 0;
  }
};

/// At step `At` the learning rate of all layers becomes `Rate`; it overrides a final rate of the
/// same step.
template <std::uint64_t At, Real Rate>
struct IntermediateRate {
  static constexpr auto part = detail::Part::intermediate_rate;
  static constexpr void set(detail::NetworkValues& v) {
    v.delay_intermediate_learning_rate = At;
    v.intermediate_learning_rate = Rate;
  }
};

/// There is no intermediate rate.
struct NoIntermediateRate {
  static constexpr auto part = detail::Part::intermediate_rate;
  static constexpr void set(detail::NetworkValues& v) {
    v.delay_intermediate_learning_rate.reset();
    v.intermediate_learning_rate = 0;
  }
};

/// The step at which a run ends that has no `Steps` argument; at least 1.
template <std::uint64_t Steps>
struct RunLength {
  static constexpr auto part = detail::Part::length;
  static constexpr void set(detail::NetworkValues& v) { v.steps = Steps; }
};

namespace detail {

/// The first thing that is wrong with a network; CheckedParts has an error message for each.
enum class NetworkFault {
  none,
  twice,
  layer_side,
  channels,
  block,
  frame,
  frame_limit,
  hidden,
  lateral,
  feedback,
  fan_in_square,
  fan_in_radius,
  rates,
  momentum,
  delay,
  length,
  weights
};

constexpr bool is_rate(double rate) { return rate >= 0 && rate <= Limits::rate; }

constexpr bool within(int value, int least, int most) { return value >= least && value <= most; }

constexpr bool sides_fit(const LayerSides& sides) {
  for (std::size_t l = 0; l < sides.size(); ++l) {
    if (!within(sides[l], 1, Limits::side)) return false;
  }
  return true;
}

constexpr bool fan_in_fits(const NetworkValues& v) {
  for (std::size_t l = 0; l + 1 < v.layer_shapes.size(); ++l) {
    if (!within(v.fan_in_square_size, 1, v.layer_shapes[l])) return false;
  }
  return true;
}

constexpr bool fan_in_reaches(const NetworkValues& v) {
  const double nearest = v.fan_in_square_size % 2 == 1 ? 0.0 : 0.5;
  return v.fan_in_radius >= 0 && v.fan_in_radius <= Limits::fan_in_radius &&
         v.fan_in_radius * v.fan_in_radius >= nearest;
}

/// The same checks as those of `validate` for a Spec.
constexpr NetworkFault fault_of(const NetworkValues& v) {
  using enum NetworkFault;
  if (!sides_fit(v.layer_shapes)) return layer_side;
  if (!within(v.input_channels, 1, Limits::channels)) return channels;
  if (!within(v.input_block_size, 1, Limits::block)) return block;
  if (v.frame_side != v.layer_shapes.front() * v.input_block_size) return frame;
  if (!within(v.frame_side, 1, Limits::frame)) return frame_limit;
  if (!within(v.hidden_block_size, 1, Limits::hidden)) return hidden;
  if (!within(v.lateral_radius, 0, Limits::lateral)) return lateral;
  if (!within(v.feedback, 1, 2)) return feedback;
  if (v.layer_shapes.size() > 1 && !fan_in_fits(v)) return fan_in_square;
  if (v.layer_shapes.size() > 1 && !fan_in_reaches(v)) return fan_in_radius;
  if (!is_rate(v.initial_learning_rate) || !is_rate(v.final_learning_rate) ||
      !is_rate(v.intermediate_learning_rate)) {
    return rates;
  }
  if (!(v.momentum >= 0 && static_cast<float>(v.momentum) < 1)) return NetworkFault::momentum;
  if (v.delay_each_layer_learning < 1 || v.delay_each_layer_learning > Limits::steps) return delay;
  if (v.steps < 1 || v.steps > Limits::steps) return length;
  if (weight_bound(v) > Limits::weights) return weights;
  return none;
}

template <NetworkPart... Parts>
constexpr bool each_once() {
  std::array<int, static_cast<std::size_t>(Part::count)> times{};
  (++times[static_cast<std::size_t>(Parts::part)], ...);
  for (const int n : times) {
    if (n > 1) return false;
  }
  return true;
}

template <NetworkPart... Parts>
constexpr NetworkValues values_of() {
  NetworkValues values;
  (Parts::set(values), ...);
  return values;
}

/// The type given by the part of kind `P`, or `Default` if there is no such part.
template <Part P, class Default, class... Parts>
struct FindType {
  using type = Default;
};
template <Part P, class Default, class First, class... Rest>
struct FindType<P, Default, First, Rest...> : FindType<P, Default, Rest...> {};
template <Part P, class Default, class First, class... Rest>
requires(First::part == P) struct FindType<P, Default, First, Rest...> {
  using type = typename First::type;
};

/// Reports what is wrong with a network in one compile error, before the network is used.
template <NetworkPart... Parts>
struct CheckedParts {
  static constexpr NetworkValues values = values_of<Parts...>();
  static constexpr NetworkFault fault =
      each_once<Parts...>() ? fault_of(values) : NetworkFault::twice;
  static_assert(
      fault != NetworkFault::twice,
      "pvm::Network: a part is given twice (NoFinalRate and FinalRate are one part, and so "
      "are NoIntermediateRate and IntermediateRate)");
  static_assert(fault != NetworkFault::layer_side, "pvm::Network: Layers have sides of 1 to 512");
  static_assert(
      fault != NetworkFault::channels,
      "pvm::Network: the Input has 1 channel (grey), 2 (grey and alpha), 3 (BGR) or 4 (BGR "
      "and alpha)");
  static_assert(fault != NetworkFault::block,
                "pvm::Network: the Input's block is 1 to 256 pixels wide");
  static_assert(fault != NetworkFault::frame,
                "pvm::Network: the Input's side must be the first layer's side times the Input's "
                "block, as in Input<60, 3, 5> with Layers<12, ...>");
  static_assert(fault != NetworkFault::frame_limit,
                "pvm::Network: the Input is at most 8192 pixels wide");
  static_assert(fault != NetworkFault::hidden, "pvm::Network: Hidden is 1 to 64");
  static_assert(fault != NetworkFault::lateral, "pvm::Network: Lateral is a radius of 0 to 512");
  static_assert(fault != NetworkFault::feedback,
                "pvm::Network: Feedback comes from 1 layer above, or from 2");
  static_assert(
      fault != NetworkFault::fan_in_square,
      "pvm::Network: the square of FanIn is 1 unit wide at least, and must fit every layer "
      "but the last one");
  static_assert(fault != NetworkFault::fan_in_radius,
                "pvm::Network: within the radius of FanIn there is no unit below; it is 0 to 1024, "
                "and at least 0.7072 where the square's side is even");
  static_assert(fault != NetworkFault::rates, "pvm::Network: learning rates are 0 to 1000");
  static_assert(fault != NetworkFault::momentum,
                "pvm::Network: MomentumFactor is at least 0 and less than 1");
  static_assert(fault != NetworkFault::delay, "pvm::Network: LayerDelay is at least 1 step");
  static_assert(fault != NetworkFault::length, "pvm::Network: RunLength is at least 1 step");
  static_assert(
      fault != NetworkFault::weights,
      "pvm::Network: the network would have more than 4 thousand million weights (Hidden is a "
      "side: Hidden<7> makes units of 49 values)");
};

}  // namespace detail

/// Stands for a network that is given as a Spec at run time.
struct RuntimeNetwork {
  static constexpr int hidden = dynamic;
  using activation = void;  ///< as the spec says
  using rule = void;        ///< as the spec says
};

/// A network composed of the given parts. A network that cannot exist does not compile, with a
/// sentence that says why.
template <class... Parts>
class Network {
  static_assert((detail::NetworkPart<Parts> && ...),
                "pvm::Network: an argument is not a part of a network; the parts are the types of "
                "pvm/model/network.hpp, such as pvm::Layers<...> and pvm::Hidden<...>");

  static constexpr auto values_of_parts() {
    if constexpr ((detail::NetworkPart<Parts> && ...)) {
      return detail::CheckedParts<Parts...>::values;
    } else {
      return detail::NetworkValues{};
    }
  }

 public:
  static constexpr detail::NetworkValues values = values_of_parts();
  static constexpr int hidden = values.hidden_block_size * values.hidden_block_size;  ///< of a unit
  static constexpr int frame_side = values.frame_side;                                ///< in pixels
  static constexpr int channels = values.input_channels;
  using activation =
      typename detail::FindType<detail::Part::activation, Polynomial, Parts...>::type;
  using rule = typename detail::FindType<detail::Part::rule, Momentum, Parts...>::type;

  /// The same network as a Spec, named "network": what load_spec returns for a file with these
  /// values, but for the name.
  static constexpr Spec spec() {
    Spec s;
    s.name = "network";
    s.layer_shapes.assign(
        values.layer_shapes.side.begin(),
        values.layer_shapes.side.begin() + static_cast<std::ptrdiff_t>(values.layer_shapes.count));
    s.input_block_size = values.input_block_size;
    s.input_channels = values.input_channels;
    s.hidden_block_size = values.hidden_block_size;
    s.fan_in_square_size = values.fan_in_square_size;
    s.fan_in_radius = values.fan_in_radius;
    s.lateral_radius = values.lateral_radius;
    s.context_exclude_self = values.context_exclude_self;
    s.send_context_two_layers_back = values.send_context_two_layers_back;
    s.last_layer_context_to_all = values.last_layer_context_to_all;
    s.feed_context_in_complex_layer = values.feed_context_in_complex_layer;
    s.opt_abs_diff = values.opt_abs_diff;
    s.learning_rule = detail::own_name<rule>();
    set_activation(s);
    s.initial_learning_rate = values.initial_learning_rate;
    s.momentum = values.momentum;
    s.delay_each_layer_learning = values.delay_each_layer_learning;
    s.delay_final_learning_rate = values.delay_final_learning_rate;
    s.final_learning_rate = values.final_learning_rate;
    s.delay_intermediate_learning_rate = values.delay_intermediate_learning_rate;
    s.intermediate_learning_rate = values.intermediate_learning_rate;
    s.steps = values.steps;
    return s;
  }

 private:
  static constexpr void set_activation(Spec& s) {
    if constexpr (std::same_as<activation, Logistic>) {
      s.activation = ActivationKind::logistic;
    } else if constexpr (std::same_as<activation, Polynomial>) {
      s.activation = ActivationKind::polynomial;
    } else if constexpr (std::same_as<activation, PolynomialTrue>) {
      s.activation = ActivationKind::polynomial;
      s.true_derivative = true;
    } else {
      s.own_activation = detail::own_name<activation>();
    }
  }
};

/// RuntimeNetwork, or a Network<...>.
template <class N>
concept NetworkType = std::same_as<N, RuntimeNetwork> || requires {
  { N::spec() } -> std::same_as<Spec>;
  { N::hidden } -> std::convertible_to<int>;
  typename N::activation;
  typename N::rule;
};

}  // namespace pvm::inline v0
