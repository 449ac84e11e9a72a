// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the batched kernels share: their arguments, ring-buffer arithmetic, and activations. Rows,
/// panels and weight blocks are defined in tables.hpp.

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/batch/plan/tables.hpp>
#include <pvm/engine/cuda/instructions/arithmetic.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/numbers/fast_activation.cuh>
#include <pvm/engine/cuda/numbers/precision.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::batch {

/// What the update kernel or the sweep kernel is to do.
enum class Task {
  learn,         ///< the step's update
  write_copies,  ///< only write all working copies of the current weights
  read,          ///< only write W to `Arguments::weights_out`; update kernel only
  update_w0,     ///< only update W0 with the gradient that the last step left; sweep kernel only
};

/// Pointers to device memory. A row is [Bp] operands of the precision (`M::Word`) unless a field
/// says otherwise; "swept" marks what differs where a sweep makes the steps.
struct Arguments {
  Shape shape;
  const Product* products;
  const Tile* tiles;
  unsigned int tile_count;
  const unsigned char* sweep_tiles;   ///< swept: SweepTiles, each followed by its row words
  const std::uint32_t* sweep_starts;  ///< swept: first tile of each thread block, then the end
  int sum_rows;                       ///< hidden values of a unit: rows of a panel's sums
  const std::uint32_t* rows;          ///< row words
  float* master;                      ///< fp32 master weights, panel after panel
  float* states;                  ///< [floats of the learning rule][weights], in the master's order
  std::size_t weight_count;       ///< floats of the master
  std::uint32_t* working_copies;  ///< working copies: W0's blocks, then both versions of W1's;
                                  ///< swept: [y_slots] versions of all W1
  std::size_t copy_stride;        ///< words from one version of W1's working copy to the next
  float* weights_out;             ///< receives W when it is read, in the master's order
  unsigned char* arena;           ///< all rows that kernels gather; the next six pointers lie in it
  unsigned char* squeezed;        ///< [ring][hidden] rows of c(h)
  unsigned char* raw;             ///< [ring][hidden] rows of h
  unsigned char* pixels;          ///< [frames][pixels] rows of c(pixel)
  unsigned char* ones;            ///< a single row of ones
  unsigned char* d0;              ///< [terms][hidden] rows
  unsigned char* d1;        ///< [terms][outputs] rows; swept: stored by a block's last steps only
  unsigned char* stored_h;  ///< [ring][hidden] rows of h, of `M::Stored::Type`
  unsigned char* y;         ///< [y_slots][outputs] rows of `M::Stored::Type`; swept: stored on
                            ///< request only
  const float* tables;      ///< [frames][table], see RateTables
  const float* table_override;  ///< replaces the step's table, unless it is null
  const std::uint8_t* scored;   ///< [frames][Bp], see FrameBlock::scored
  float* scratch;              ///< partial sums: [slices][part][56][slice]; swept: [part][warp]...,
                               ///< see sweep/results.cuh
  std::size_t scratch_slice;   ///< floats of a slice's partial sums
  unsigned int* counters;      ///< [slices][counters]: finished parts of a forward product
  unsigned int counter_slice;  ///< counters of a slice
  double* score;               ///< [slices][scores][3], swept: [thread blocks][warps][3]: sums of
                               ///< prediction, persistence and loss
  unsigned int score_slice;    ///< scores of a slice
  StepStart* step_start;      ///< read by the first kernel of a step, written by the second; swept:
                              ///< one for each thread block
  StepCursor* update_cursor;  ///< written by the first kernel of a step, read by the second
};

/// The slot of the step `back` steps before that of `slot`, in a ring of `ring` slots; back < ring.
PVM_HOST_DEVICE inline std::uint32_t slot_before(std::uint32_t slot, int ring, int back) {
  const int at = static_cast<int>(slot) - back;
  return static_cast<std::uint32_t>(at < 0 ? at + ring : at);
}
__device__ __forceinline__ std::uint32_t slot_after(std::uint32_t slot, int ring) {
  return slot + 1 == static_cast<std::uint32_t>(ring) ? 0 : slot + 1;
}

/// The cursor of the next step; `learns`: this step writes a new version of W1's working copy.
__device__ inline StepCursor next_step(const Shape& s, const StepCursor& cursor, bool learns) {
  return {cursor.step + 1,
          learns ? 1 - cursor.current_copy : cursor.current_copy,
          cursor.current_copy,
          1,
          slot_after(cursor.hidden, s.ring),
          slot_after(cursor.frame, s.frames),
          slot_after(cursor.gradient, s.terms),
          slot_after(cursor.y, y_slots),
          cursor.saved_y_steps - (cursor.saved_y_steps != 0 ? 1 : 0)};
}

/// Offset in the arena, in units of 16 bytes, at which the rows of `array` start for a step `back`
/// steps before the cursor's. The rows of d0 and d1 are those of the step `age` steps before.
template <class M>
PVM_HOST_DEVICE inline std::uint32_t array_offset(const Arguments& a, RowArray array,
                                                  const StepCursor& cursor, int back, int age) {
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
  switch (array) {
    case RowArray::squeezed_1:
      at(a.squeezed, cursor.hidden, s.ring, back + 1, s.hidden);
      break;
    case RowArray::squeezed_2:
      at(a.squeezed, cursor.hidden, s.ring, back + 2, s.hidden);
      break;
    case RowArray::pixels_0:
      at(a.pixels, cursor.frame, s.frames, back, s.pixels);
      break;
    case RowArray::pixels_1:
      at(a.pixels, cursor.frame, s.frames, back + 1, s.pixels);
      break;
    case RowArray::hidden_0:
      at(a.raw, cursor.hidden, s.ring, back, s.hidden);
      break;
    case RowArray::hidden_1:
      at(a.raw, cursor.hidden, s.ring, back + 1, s.hidden);
      break;
    case RowArray::hidden_gradient:
      at(a.d0, cursor.gradient, s.terms, age, s.hidden);
      break;
    case RowArray::output_gradient:
      at(a.d1, cursor.gradient, s.terms, age, s.outputs);
      break;
    default:
      break;
  }
  const std::size_t offset = static_cast<std::size_t>(base - a.arena) +
                             static_cast<std::size_t>(slot) * static_cast<std::size_t>(rows) * row;
  return static_cast<std::uint32_t>(offset / 16);
}
/// Element `i` of StepStart::array_offsets for a step that begins at `cursor`.
template <class M>
PVM_HOST_DEVICE inline std::uint32_t step_start_offset(const Arguments& a, const StepCursor& cursor,
                                                       int i) {
  constexpr int arrays = static_cast<int>(RowArray::count);
  const int view = i / arrays;
  return array_offset<M>(a, static_cast<RowArray>(i % arrays), cursor, steps_back(view),
                         gradient_age(view));
}
/// Offset in the arena, in units of 16 bytes, of the row that `word` names, or `no_offset`.
/// `array_offsets`: by array, where its rows start; `row_length`: length of a row. Both in units of
/// 16 bytes.
__device__ __forceinline__ std::uint32_t row_offset(const std::uint32_t* array_offsets,
                                                    std::uint32_t word, std::uint32_t row_length) {
  if (word == zero_row) return no_offset;
  return array_offsets[word >> array_shift] + (word & row_mask) * row_length;
}

/// Whether `M` names an activation that the program defines, see MathOf.
template <class M>
inline constexpr bool has_own_activation = requires {
  typename M::Own;
};
/// Calls what(activation) for the activation with number `kind` (`activation_number`). Call it
/// outside of loops, so that they contain no branch on the activation.
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
/// The same for the derivative. Steps 0 and 1 use the compatible derivative of the polynomial:
/// their past is all ones, where the true derivative is 0, so that nothing would be learned.
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

/// Copies 16 bytes asynchronously to shared memory, from the row at `offset` (units of 16 bytes
/// behind `from`). Writes zeros if `offset` is `no_offset` or `bytes` is 0; `bytes` is 0 or 16.
__device__ __forceinline__ void copy_row_async(void* shared, const unsigned char* from,
                                               std::uint32_t offset, int bytes = 16) {
  const bool exists = offset != no_offset;
  copy_async_or_zero(shared, from + static_cast<std::size_t>(offset) * 16, exists ? bytes : 0);
}

}  // namespace pvm::inline v0::detail::batch
