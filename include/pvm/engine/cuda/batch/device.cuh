// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the batched kernels share: their arguments, rings and activations.

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/batch/precision.cuh>
#include <pvm/engine/cuda/batch/tables.hpp>
#include <pvm/engine/cuda/instructions/arithmetic.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::batch {

/// What a kernel that updates is to do with the gradients.
enum class Task {
  learn,    ///< the step's update
  publish,  ///< only write all working copies, of the weights as they are
  read,     ///< only write W to `copy`
  settle,   ///< only what the last step left W0 to learn; the sweep kernel's
};

/// Pointers to device memory; rows are [Bp] operands unless said otherwise.
struct Arguments {
  Shape shape;
  const Product* products;
  const Tile* tiles;
  unsigned int tile_count;
  const unsigned char* sweep;         ///< a SweepTile and its row words, each
  const std::uint32_t* sweep_starts;  ///< first tile of each block of threads, and the end
  int sum_rows;                       ///< of a panel's sums: the hidden values of a unit
  const std::uint32_t* rows;          ///< row words
  float* master;                      ///< panels one behind the other
  float* states;                      ///< the rule's floats, each as long as the master
  std::size_t weights;                ///< length of the master
  std::uint32_t* work;                ///< working copies; W1's others lie `flip` words on
  std::size_t flip;
  float* copy;                 ///< W, when somebody reads it
  unsigned char* arena;        ///< all rows that are gathered; what follows lies in it
  unsigned char* squeezed;     ///< [ring][hidden] c(h)
  unsigned char* raw;          ///< [ring][hidden] h
  unsigned char* pixels;       ///< [frames][pixels] c(pixel)
  unsigned char* ones;         ///< [1]
  unsigned char* d0;           ///< [terms][hidden]
  unsigned char* d1;           ///< [terms][outputs]; swept: only of a block's last steps
  unsigned char* kept;         ///< [ring][hidden] h as kept, rows of Kept
  unsigned char* y;            ///< [y_slots][outputs] as kept; swept: when somebody reads it
  const float* tables;         ///< [frames][table]
  const float* now_table;      ///< what to use in place of the step's table, if anything
  const std::uint8_t* scored;  ///< [frames][Bp]
  float* scratch;              ///< partial sums [slices][part][56][slice]; swept: sweep_results.cuh
  std::size_t scratch_slice;   ///< floats of one slice's
  unsigned int* counters;      ///< [slices][counters]
  unsigned int counter_slice;
  double* score;             ///< [slices][scores][3]
  unsigned int score_slice;  ///< places of a slice
  StepStart* first;          ///< read by the first kernel of a step, written by the second; of a
                             ///< sweep each block of threads has its own
  Cursor* second;            ///< the other way round
};

/// The slot `back` steps before `slot`; back is less than the ring is long.
PVM_HOST_DEVICE inline std::uint32_t slot_before(std::uint32_t slot, int ring, int back) {
  const int at = static_cast<int>(slot) - back;
  return static_cast<std::uint32_t>(at < 0 ? at + ring : at);
}
__device__ __forceinline__ std::uint32_t slot_after(std::uint32_t slot, int ring) {
  return slot + 1 == static_cast<std::uint32_t>(ring) ? 0 : slot + 1;
}

/// The cursor of the step after.
__device__ inline Cursor next_step(const Shape& s, const Cursor& now, bool learns) {
  return {now.step + 1,
          learns ? 1 - now.now : now.now,
          now.now,
          1,
          slot_after(now.hidden, s.ring),
          slot_after(now.frame, s.frames),
          slot_after(now.gradient, s.terms),
          slot_after(now.y, y_slots),
          now.given - (now.given != 0 ? 1 : 0)};
}

/// Where in the arena, in units of 16 bytes, the rows of `stream` start as the step `back` before
/// the cursor's sees them; gradients as of `age` steps before.
template <class M>
PVM_HOST_DEVICE inline std::uint32_t stream_place(const Arguments& a, Stream stream,
                                                  const Cursor& now, int back, int age) {
  const Shape& s = a.shape;
  const std::size_t row = static_cast<std::size_t>(s.padded) * sizeof(typename M::Word);
  const unsigned char* base = a.ones;
  std::uint32_t slot = 0;
  int rows = 0;
  const auto at = [&](const unsigned char* from, std::uint32_t now_slot, int ring, int lag, int n) {
    base = from;
    slot = slot_before(now_slot, ring, lag);
    rows = n;
  };
  switch (stream) {
    case Stream::squeezed_1:
      at(a.squeezed, now.hidden, s.ring, back + 1, s.hidden);
      break;
    case Stream::squeezed_2:
      at(a.squeezed, now.hidden, s.ring, back + 2, s.hidden);
      break;
    case Stream::pixels_0:
      at(a.pixels, now.frame, s.frames, back, s.pixels);
      break;
    case Stream::pixels_1:
      at(a.pixels, now.frame, s.frames, back + 1, s.pixels);
      break;
    case Stream::hidden_0:
      at(a.raw, now.hidden, s.ring, back, s.hidden);
      break;
    case Stream::hidden_1:
      at(a.raw, now.hidden, s.ring, back + 1, s.hidden);
      break;
    case Stream::hidden_gradient:
      at(a.d0, now.gradient, s.terms, age, s.hidden);
      break;
    case Stream::output_gradient:
      at(a.d1, now.gradient, s.terms, age, s.outputs);
      break;
    default:
      break;
  }
  const std::size_t offset = static_cast<std::size_t>(base - a.arena) +
                             static_cast<std::size_t>(slot) * static_cast<std::size_t>(rows) * row;
  return static_cast<std::uint32_t>(offset / 16);
}
/// Place `i` of all that a step at `now` begins with.
template <class M>
PVM_HOST_DEVICE inline std::uint32_t start_place(const Arguments& a, const Cursor& now, int i) {
  constexpr int streams = static_cast<int>(Stream::count);
  const int view = i / streams;
  return stream_place<M>(a, static_cast<Stream>(i % streams), now, steps_back(view),
                         gradient_age(view));
}
/// Where row `word` starts; `unit`: 16 bytes of a row.
__device__ __forceinline__ std::uint32_t row_place(const std::uint32_t* streams, std::uint32_t word,
                                                   std::uint32_t unit) {
  if (word == zero_row) return nowhere;
  return streams[word >> stream_shift] + (word & row_mask) * unit;
}

/// Quotients: exact in fp32, else to 2 units in the last place of it, in a fifth of the time.
template <class M>
__device__ __forceinline__ float quotient(float a, float b) {
  if constexpr (M::in_parts) return a / b;
  return a * reciprocal(b);
}
/// The polynomial with the compatible derivative (unit/activation.hpp).
template <class M>
struct FastPolynomial {
  __device__ static float value(float a) { return quotient<M>(a, 2.0F * fabsf(a) + 2.0F) + 0.5F; }
  __device__ static float derivative(float v) {
    const float s = fabsf(2.0F * v - 1.0F);
    const float ratio = quotient<M>(1.0F + s, 1.0F + 2.0F * s);
    return 0.5F * ratio * ratio;
  }
};
/// The same derivative in fewer operations, as (1 + |s|) / (1 + 2|s|) = (1 + 1 / (1 + 2|s|)) / 2.
struct FastDerivative {
  __device__ static float derivative(float v) {
    constexpr float root = 0.35355339F;  // of 1/8
    const float half = fmaf(reciprocal(1.0F + fabsf(fmaf(4.0F, v, -2.0F))), root, root);
    return half * half;
  }
};
/// Whether a precision comes with an activation of the program's own, see MathOf.
template <class M>
inline constexpr bool has_own_activation = requires {
  typename M::Own;
};
/// Calls what(activation) for the activation's number: outside of loops.
template <class M, class What>
__device__ __forceinline__ void with_activation(int kind, What&& what) {
  if constexpr (has_own_activation<M>) {
    what(typename M::Own{});
  } else if (kind == 2) {
    what(Logistic{});
  } else {
    what(FastPolynomial<M>{});
  }
}
/// The same for derivatives. At steps 0 and 1 the past is all ones, where the true derivative is 0
/// and nothing would learn.
template <class M, class What>
__device__ __forceinline__ void with_derivative(int kind, unsigned long long step, What&& what) {
  if constexpr (has_own_activation<M>) {
    what(typename M::Own{});
  } else if (kind == 1 && step >= 2) {
    what(PolynomialTrue{});
  } else if (kind == 2) {
    what(Logistic{});
  } else if constexpr (M::in_parts) {
    what(FastPolynomial<M>{});
  } else {
    what(FastDerivative{});
  }
}

/// 16 bytes of the row at `place`, or zeros; zeros also where `bytes` is 0, not 16.
__device__ __forceinline__ void copy_row_async(void* shared, const unsigned char* from,
                                               std::uint32_t place, int bytes = 16) {
  const bool exists = place != nowhere;
  copy_async_or_zero(shared, from + static_cast<std::size_t>(place) * 16, exists ? bytes : 0);
}

}  // namespace pvm::inline v0::detail::batch
