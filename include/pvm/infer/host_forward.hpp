// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Steps of a frozen network on the CPU.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/engine/host/host_activation.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/team.hpp>
#include <pvm/infer/forward.hpp>
#include <pvm/infer/patch_lines.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::infer {

/// Frozen steps on the CPU, in fp32, with the bits of a frozen Trainer on the host. It keeps only
/// the weights that results depend on: W0, and of W1 the rows that predict layer 0's own patches.
/// What other units predict teaches them, and nothing else reads it.
class HostForward final : public Forward {
 public:
  /// `weights`: in reference order. `team` must outlive this. Throws Error (Fault::spec) for an
  /// activation that is a type of another program, Fault::memory.
  HostForward(const Spec& spec, std::span<const float> weights, Team& team);

  [[nodiscard]] StreamPast begin() const override;
  [[nodiscard]] std::size_t past_bytes() const override { return past_floats() * sizeof(float); }
  [[nodiscard]] std::size_t most_rows() const override { return 1 << 20; }
  using Forward::step;
  void step(std::span<const Row> rows) override;
  void forget(StreamPast&) override {}
  [[nodiscard]] std::string description() const override;
  /// Bytes of weights that it keeps.
  [[nodiscard]] std::size_t weight_bytes() const noexcept {
    return weights_.size() * sizeof(float);
  }

 private:
  /// Where the weights of a unit are.
  struct Place {
    std::size_t w0 = 0, w0_columns = 0;  // tiles of rows, see simd::tiled_index
    std::size_t w1 = 0;                  // panels of columns, see sum_tile; layer 0 only
  };
  /// A thread's rows of values, [chunk][...].
  struct Rooms {
    HugeArray x, sums, r, y;
  };
  /// A unit's step for some rows, compiled for the best instruction set.
  struct UnitStep;

  static constexpr std::size_t chunk = 32;  ///< rows that a unit works on at a time

  // A stream's past: squeezed values of 3 steps, hidden values of 2, patches of 2, each
  // [unit][values], padded to whole Lanes. Step t is in slot t modulo that number.
  [[nodiscard]] std::size_t past_floats() const noexcept {
    return 5 * hidden_floats() + 2 * patches_ * patch_stride_ + chunk;
  }
  [[nodiscard]] std::size_t hidden_floats() const noexcept { return net_.units.size() * stride_; }

  [[nodiscard]] std::size_t squeezed_at(std::uint64_t step, std::size_t unit) const {
    return step % 3 * hidden_floats() + unit * stride_;
  }
  [[nodiscard]] std::size_t raw_at(std::uint64_t step, std::size_t unit) const {
    return (3 + step % 2) * hidden_floats() + unit * stride_;
  }
  [[nodiscard]] std::size_t patch_at(std::uint64_t step, std::size_t unit) const {
    return 5 * hidden_floats() + (step % 2 * patches_ + unit) * patch_stride_;
  }

  void place_weights(std::span<const float> weights);

  Connectome net_;
  PatchLines lines_;
  HostActivation activation_;
  Team& team_;
  std::size_t hidden_, stride_, patch_, patch_stride_, patches_;
  std::size_t most_columns_ = 0, most_representation_ = 0;
  std::vector<Place> places_;
  HugeArray weights_;
  std::vector<std::uint32_t> order_;  // of the units, those with the most weights first
  std::vector<Rooms> rooms_;          // [thread]
  std::atomic<std::size_t> next_{0};  // in order_, of the step that runs
};

}  // namespace pvm::inline v0::infer

#if !defined(PVM_COMPILED)
#include <pvm/infer/host_forward-inl.hpp>
#endif
