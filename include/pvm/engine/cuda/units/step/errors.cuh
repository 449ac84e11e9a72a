// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// d1(t): the errors of the outputs y(t-2), whose targets are x(t), and the scores.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/state.cuh>
#include <pvm/engine/cuda/units/step/thread_block.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::units {

/// Makes d1(t), stores it to the row of W1's lists that belongs to this step as well, and adds up
/// the scores, for outputs `from`, from + step and so on, up to `end` (exclusive). Half a warp has
/// the 16 outputs of a block of W1 at a time. Invariant values are read to registers first: the
/// compiler would read them again after each store to shared memory.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::errors(int from, int end,
                                                                                  int step) const {
  const Now& n = now();
  const unsigned long long t = n.step;
  const bool scored = this->scored()[n.frame] != 0;
  const bool signs = a.sign_error != 0;
  const int kind = derivative_kind();
  const bool survives = row_survives_launch(S::history);
  const unsigned parity = (static_cast<unsigned>(t) & 1U) * 16;
  const std::uint32_t then = this->past_row(2) * a.patch_row;
  const ErrorRule rule{scored, signs, kind, then};
  const auto c = static_cast<std::uint32_t>(thread % columns);
  const int index = this->list_index(S::first_d1_row + n.d1_row, static_cast<int>(c));
  const auto* targets = list<Target>(p.targets);
  const float* y = outputs_of(t, 0, 0);
  // In `specialised`, d1(t) is stored over y(t-2), and y(t) will be stored over d1(t).
  std::uint32_t* d1_here =
      S::specialised ? reinterpret_cast<std::uint32_t*>(outputs_of(t, 0, 0)) : shared + p.d1;
  // Loaded once: the compiler does not know that what is stored below does not change it.
  std::uint32_t* lists = S::lists_in_slots ? nullptr : list_of(0);
  float* row = a.d1 + static_cast<std::size_t>(t & (S::history - 1)) * a.output_row;
  SquaredErrors squares;
  constexpr int at_once = S::streams ? 2 : 1;  // loads of y(t-2) that a thread has in flight
#pragma unroll 1
  for (int first = from; first < end; first += at_once * step) {
    float before[at_once] = {};
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const auto o = static_cast<std::uint32_t>(first + i * step);
      if (i > 0 && static_cast<int>(o) >= end) continue;
      const Target& target = targets[o / columns];
      if (c < target.count) before[i] = y[S::streams ? target.out + c : o];
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const auto o = static_cast<std::uint32_t>(first + i * step);
      if (i > 0 && static_cast<int>(o) >= end) continue;
      const Target target = targets[o / columns];
      float d1 = 0;
      if (c < target.count) {
        const float wanted = Words::unpack(shared[(target.x >> parity & 0xffffU) + c]);
        d1 = output_error(target, c, wanted, before[i], rule, squares);
      }
      if (survives) row[target.out + c] = d1;
      d1_here[o] = Words::pack(d1);
      std::uint32_t* list = lists + o / columns * S::list_words;
      if constexpr (S::lists_in_slots) list = list_of(o);
      this->store_list_value(list, index, d1);
    }
  }
  add_score(squares.loss, squares.prediction, squares.persistence);
}

/// Returns d1 of output y, column c of `target`, whose target value is `wanted`, and adds its
/// squared errors to `squares`.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ float ThreadBlock<Precision, Hidden, home, Own>::output_error(
    const Target& target, std::uint32_t c, float wanted, float y, const ErrorRule& rule,
    SquaredErrors& squares) const {
  float e = wanted - y;
  squares.loss += e * e;
  if (rule.scored && target.seen != no_pixel) {
    const float m = (wanted - 0.1F) * 1.25F - unsqueeze(y);
    const float s = (wanted - floats(rule.then + target.seen)[c]) * 1.25F;
    squares.prediction += m * m;
    squares.persistence += s * s;
  }
  if (rule.signs) e = copysignf(1.0F, e);
  return derive(y, rule.kind) * e;
}

/// Adds the lanes' sums to this warp's scores: `loss` is the squared error of all outputs;
/// `prediction_error` and `persistence_error` are the squared errors, in scored pixels, of the
/// prediction and of repeating the frame of two steps before.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::add_score(
    float loss, float prediction_error, float persistence_error) const {
  // Reduces three sums at once: after each exchange, half of the lanes go on with other sums than
  // the other half, until each group of eight lanes has one sum.
  const bool upper = (lane() & 16) != 0, odd = (lane() & 8) != 0;
  float first = upper ? persistence_error : loss, second = upper ? 0.0F : prediction_error;
  first += __shfl_xor_sync(every_lane, upper ? loss : persistence_error, 16);
  second += __shfl_xor_sync(every_lane, upper ? prediction_error : 0.0F, 16);
  float sum = (odd ? second : first) + __shfl_xor_sync(every_lane, odd ? first : second, 8);
#pragma unroll
  for (int half = 4; half >= 1; half /= 2) sum += __shfl_xor_sync(every_lane, sum, half);
  // 0: loss, 1: prediction error, 2: persistence error; `score` has them in the order 1, 2, 0.
  const int which = lane() / 8;
  double* score = reinterpret_cast<double*>(shared + Areas::score) + warp() * 3;
  if (lane() % 8 == 0 && which < 3) score[(which + 2) % 3] += static_cast<double>(sum);
}

}  // namespace pvm::inline v0::detail::units
