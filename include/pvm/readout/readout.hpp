// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What every readout can do: learn from labelled frames, and show where the object is.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::readout {

/// A readout of one object from a network's hidden values. `hidden`: [units][hidden], after the
/// step on `frame`, of one sequence; `frame`: [side][side][channels].
class Readout {
 public:
  Readout() = default;
  Readout(const Readout&) = default;
  Readout(Readout&&) = default;
  Readout& operator=(const Readout&) = default;
  Readout& operator=(Readout&&) = default;
  virtual ~Readout() = default;

  // A readout on a GPU follows the steps of an engine there, and is told the labels before they
  // run; it is not given frames one by one then.

  /// Whether it follows the steps of `engine` from now on. One that does not is shown every frame
  /// by `observe`.
  virtual bool follow(AnyEngine& /*engine*/) { return false; }
  /// The labels of the steps from `step` on that the engine runs next, as one block. Throws Error
  /// (Fault::usage) for labels that are not possible with this network.
  virtual void expect(std::uint64_t /*step*/, std::span<const io::Label> /*labels*/) {}

  /// Says which step of the network the next frame is, counted from 0, for readouts whose rates
  /// depend on it.
  virtual void at_step(std::uint64_t) {}
  /// Learns from a frame. An unlabelled one teaches nothing. Throws Error (Fault::usage) for sizes
  /// and labels that are not possible with this network.
  virtual void observe(std::span<const float> hidden, std::span<const std::uint8_t> frame,
                       const io::Label& label) = 0;
  /// Writes the heatmap, [heat_side()][heat_side()]: 0 where the object is not, 1 where it is,
  /// roughly.
  virtual void heat(std::span<const float> hidden, std::span<const std::uint8_t> frame,
                    std::span<float> out) = 0;
  [[nodiscard]] virtual int heat_side() const noexcept = 0;
  /// Whether hidden values are read at all.
  [[nodiscard]] virtual bool reads_hidden() const noexcept { return true; }

  /// Adds everything to `extras`, under names that begin with `readout`; `restore` continues from
  /// it bit by bit, and throws Error (Fault::checkpoint) if it is another network's.
  virtual void save(io::Extras& extras) = 0;
  virtual void restore(const io::Extras& extras) = 0;
};

// What `save` and `restore` use. Those that read throw Error (Fault::checkpoint).

/// A number as a text from which the same number is read.
inline std::string exact_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}
inline const std::string& text_of(const io::Extras& extras, const std::string& key) {
  const auto found = extras.texts.find(key);
  if (found != extras.texts.end()) return found->second;
  throw Error(Fault::checkpoint, extras.texts.contains("readout")
                                     ? "the file's readout lacks " + quote(key)
                                     : "the file holds a network without a readout; let one learn "
                                       "from labelled frames, and save that");
}
inline double number_of(const io::Extras& extras, const std::string& key) {
  const std::string& text = text_of(extras, key);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() && *end == '\0' && std::isfinite(value)) return value;
  throw Error(Fault::checkpoint, "the file's readout has " + quote(text) + " as " + quote(key) +
                                     ", which is no number");
}

namespace detail {

template <class Arrays>
const auto& array_of(const Arrays& arrays, const std::string& name) {
  const auto found = arrays.find(name);
  if (found == arrays.end()) {
    throw Error(Fault::checkpoint, "the file's readout has no values " + quote(name));
  }
  for (const auto value : found->second) {
    if (std::isfinite(value)) continue;
    throw Error(Fault::checkpoint,
                "the file's readout holds values that are not numbers in " + quote(name));
  }
  return found->second;
}

}  // namespace detail

inline const std::vector<float>& floats_of(const io::Extras& extras, const std::string& name) {
  return detail::array_of(extras.floats, name);
}
inline const std::vector<double>& doubles_of(const io::Extras& extras, const std::string& name) {
  return detail::array_of(extras.doubles, name);
}

}  // namespace pvm::inline v0::readout
