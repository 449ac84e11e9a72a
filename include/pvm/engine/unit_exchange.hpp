// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What an engine is given that computes only some of a network's units: which ones, and how it
/// gets what the others send.

#include <cstddef>
#include <span>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0 {

/// A range of units, and the all-gather, in every step, of what all units send each other. One
/// thread at a time calls its functions.
class UnitExchange {
 public:
  /// The units from `first` up to `end` are computed here, of `units` units.
  UnitExchange(std::size_t first, std::size_t end, std::size_t units)
      : first_(first), end_(end), units_(units) {}
  virtual ~UnitExchange() = default;
  UnitExchange(const UnitExchange&) = delete;
  UnitExchange& operator=(const UnitExchange&) = delete;

  [[nodiscard]] std::size_t first() const noexcept { return first_; }
  [[nodiscard]] std::size_t end() const noexcept { return end_; }
  [[nodiscard]] bool has(std::size_t unit) const noexcept { return unit >= first_ && unit < end_; }

  /// Makes room for `each` values of each unit; the engine's constructor calls it.
  void prepare(std::size_t each) {
    each_ = each;
    values_.assign(units_ * each, 0.0F);
    connect();
  }
  /// What a unit sends in the step that is exchanged.
  [[nodiscard]] float* values(std::size_t unit) noexcept { return values_.data() + unit * each_; }
  [[nodiscard]] std::size_t each() const noexcept { return each_; }

  /// Begins to send the values of the units that are computed here: they must not change until
  /// `finish` has returned.
  virtual void start() noexcept = 0;
  /// Lets messages go on, if only calls do that. Costs little.
  virtual void progress() noexcept = 0;
  /// Waits until the values of all units are here. False if they will never be: then `check`
  /// throws.
  [[nodiscard]] virtual bool finish() noexcept = 0;
  /// Throws Error (Fault::rank) if another process of the run was lost.
  virtual void check() = 0;

  /// By unit, while steps are measured: how long each step of it took, in seconds. Empty: they are
  /// not measured.
  std::vector<std::vector<float>> seconds;

 protected:
  /// Prepares the exchange of `all_values`.
  virtual void connect() = 0;
  std::vector<float>& all_values() noexcept { return values_; }

 private:
  std::size_t first_, end_, units_, each_ = 0;
  std::vector<float> values_;  // [unit][each]
};

/// The wiring of `net` for an engine that computes the units from `first` up to `end`. The other
/// units have no inputs, outputs or weights here, and the reference order is that of the own units.
inline Connectome part_of(Connectome net, std::size_t first, std::size_t end) {
  net.weights = net.outputs = 0;
  for (std::size_t u = 0; u < net.units.size(); ++u) {
    Unit& unit = net.units[u];
    if (u < first || u >= end) unit.inputs = unit.outputs = unit.representation = 0;
    unit.w0 = net.weights;
    net.weights += static_cast<std::size_t>(net.hidden) * static_cast<std::size_t>(unit.inputs);
    net.outputs += static_cast<std::size_t>(unit.outputs);
  }
  for (Unit& unit : net.units) {
    unit.w1 = net.weights;
    net.weights +=
        static_cast<std::size_t>(unit.outputs) * static_cast<std::size_t>(unit.representation);
  }
  return net;
}

}  // namespace pvm::inline v0
