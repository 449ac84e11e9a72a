// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Steps of a network frozen in int8, on the CPU.

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
#include <pvm/infer/frozen_network.hpp>
#include <pvm/infer/int8_pass.hpp>
#include <pvm/infer/patch_lines.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::infer {

/// Steps in 8 bits. Values are kept as fractions of 255, which is what pixels are: in [0, 1] and
/// not squeezed (see FrozenNetwork). The sums of a row are whole numbers, so results have the same
/// bits on every processor; hidden values and predictions are computed of them in fp32. The past of
/// a new stream is ones, as that of any run; a frame of ones is white here.
class Int8Forward final : public Forward {
 public:
  /// `network`: in int8. `team` must outlive this. Throws Error (Fault::spec) for an activation
  /// that is a type of another program and for units with more than 66,000 inputs, Fault::memory.
  Int8Forward(const FrozenNetwork& network, Team& team);
  /// The same with a kernel of int8_kernels(), not the fastest one.
  Int8Forward(const FrozenNetwork& network, Team& team, const Int8Kernel& kernel);

  [[nodiscard]] StreamPast begin() const override;
  [[nodiscard]] std::size_t past_bytes() const override { return past_floats() * sizeof(float); }
  [[nodiscard]] std::size_t most_rows() const override { return 1 << 20; }
  using Forward::step;
  void step(std::span<const Row> rows) override;
  void forget(StreamPast&) override {}
  [[nodiscard]] std::string description() const override;

 private:
  /// A matrix in tiles (int8_index), with its rows' factors.
  struct Matrix {
    std::size_t weights = 0, rows = 0, columns = 0;  // columns: whole groups
    std::size_t first_row = 0;                       // of scales_ and offsets_
  };
  /// A thread's rows of values, [chunk][...].
  struct Rooms {
    std::vector<std::uint8_t> x;
    std::vector<std::int32_t> sums;
    std::vector<float> y;
  };
  /// A unit's step for some rows.
  struct UnitStep;

  static constexpr std::size_t chunk = 32;  ///< rows that a unit works on at a time

  // A stream's past: the values of 3 steps, the patches of 2, each [unit][values], and slack for
  // reading whole groups. Step t is in slot t modulo that number.
  [[nodiscard]] std::size_t past_floats() const noexcept {
    return (3 * hidden_bytes() + 2 * patches_ * lines_.patch + int8_group + 3) / sizeof(float);
  }
  [[nodiscard]] std::size_t hidden_bytes() const noexcept { return net_.units.size() * hidden_; }
  [[nodiscard]] std::size_t hidden_at(std::uint64_t step, std::size_t unit) const {
    return step % 3 * hidden_bytes() + unit * hidden_;
  }
  [[nodiscard]] std::size_t patch_at(std::uint64_t step, std::size_t unit) const {
    return 3 * hidden_bytes() + (step % 2 * patches_ + unit) * lines_.patch;
  }

  Matrix place(const FrozenMatrix& from, const FrozenNetwork& network);
  /// sums -> f(scale / 255 * sum + offset).
  void activate(const Matrix& matrix, const std::int32_t* sums, float* out) const;

  Connectome net_;
  PatchLines lines_;
  HostActivation activation_;
  Team& team_;
  Int8Kernel kernel_;
  std::size_t hidden_, patches_;
  std::vector<Matrix> w0_, w1_;  // [unit], of layer 0
  HugeArray weights_;            // bytes
  std::size_t placed_ = 0;       // of them
  std::vector<float> scales_, offsets_;
  std::vector<std::uint32_t> order_;  // of the units, those with the most weights first
  std::vector<Rooms> rooms_;          // [thread]
  std::atomic<std::size_t> next_{0};  // in order_, of the step that runs
};

}  // namespace pvm::inline v0::infer

#if !defined(PVM_COMPILED)
#include <pvm/infer/int8_forward-inl.hpp>
#endif
