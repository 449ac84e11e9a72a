// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The arithmetic of errors: d1 = g(y(t-2)) ([A|B](t) - y(t-2)), d0 = g(h(t-2)) (W1^T d1) and the
/// sums for the score, where g is the activation's derivative as a function of the value
/// (docs/model.md). Used by both schemes and by the kernel that converts frames.

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/batch/hidden_rows.cuh>

namespace pvm::inline v0::detail::batch {

/// 16 bytes of a row of operands: 8 or 4 sequences.
template <class M>
struct OperandVector {
  static constexpr int size = 16 / sizeof(typename M::Word);
  union {
    uint4 bits;
    typename M::Word operand[size];
  };
};
/// 16 bytes of a row of stored values (`M::Stored`), for as many sequences.
template <class M>
struct StoredVector {
  static constexpr int size = 16 / sizeof(typename M::Word);
  static_assert(sizeof(typename M::Stored::Type) == sizeof(typename M::Word));
  union {
    uint4 bits;
    typename M::Stored::Type values[size];
  };
};

/// A thread's sums of squared errors: of predicted pixels, of pixels if the frame of two steps ago
/// is repeated, and of all outputs.
struct ErrorSums {
  float prediction = 0, persistence = 0, loss = 0;
};

/// Computes d1 of `Count` sequences of a row, and adds to the loss. Bit i of `real` says whether
/// sequence i exists: the errors of padding are 0. `sign`: errors are reduced to their signs.
template <int Count, class Activation>
__device__ __forceinline__ void make_errors(float (&d1)[Count], ErrorSums& sums,
                                            Activation activation, const float (&target)[Count],
                                            const float (&y)[Count], unsigned real, bool sign) {
  float e[Count];
#pragma unroll
  for (int i = 0; i < Count; ++i) e[i] = target[i] - y[i];
  if (real != (1U << Count) - 1) {
#pragma unroll
    for (int i = 0; i < Count; ++i) e[i] = (real >> i & 1U) != 0 ? e[i] : 0.0F;
  }
#pragma unroll
  for (int i = 0; i < Count; ++i) sums.loss += e[i] * e[i];
  if (sign) {
#pragma unroll
    for (int i = 0; i < Count; ++i) e[i] = (real >> i & 1U) != 0 ? copysignf(1.0F, e[i]) : 0.0F;
  }
#pragma unroll
  for (int i = 0; i < Count; ++i) d1[i] = activation.derivative(y[i]) * e[i];
}
/// A predicted pixel mapped from [0.1, 0.9] back to [0, 1] and clamped, like `unsqueeze`, in one
/// operation; NaN becomes 0.
__device__ __forceinline__ float unsqueeze_saturated(float v) {
  return __saturatef(fmaf(v, 1.25F, -0.125F));
}
/// Adds the squared errors of predicted pixels, `Count` sequences of a row, to `sum`; bit i of
/// `scored` says whether sequence i counts. (A run that has diverged to NaN shows in the loss, not
/// here.)
template <int Count>
__device__ __forceinline__ void add_squared_errors(float& sum, const float (&target)[Count],
                                                   const float (&predicted)[Count],
                                                   unsigned scored) {
  float errors[Count];
#pragma unroll
  for (int i = 0; i < Count; ++i)
    errors[i] = unsqueeze_saturated(predicted[i]) - unsqueeze_saturated(target[i]);
  if (scored != (1U << Count) - 1) {
#pragma unroll
    for (int i = 0; i < Count; ++i) errors[i] = (scored >> i & 1U) != 0 ? errors[i] : 0.0F;
  }
#pragma unroll
  for (int i = 0; i < Count; ++i) sum += errors[i] * errors[i];
}

/// The arithmetic of errors for the sequences of 16 bytes of a row.
template <class M>
class ErrorMath {
  static constexpr int size = OperandVector<M>::size;

 public:
  ErrorSums sums;

  /// `masks`: as returned by `masks_of`.
  __device__ ErrorMath(const Shape& s, unsigned masks)
      : sign_(s.sign_error != 0), real_(masks & ((1U << size) - 1)), scored_(masks >> size) {}

  /// For the `size` sequences from `first` on: bit i is set if sequence i exists, bit size + i if
  /// it is also scored in the cursor's step.
  __device__ static unsigned masks_of(const Arguments& a, const StepCursor& cursor,
                                      std::size_t first) {
    const Shape& s = a.shape;
    const std::uint8_t* scored =
        a.scored + static_cast<std::size_t>(cursor.frame) * static_cast<std::size_t>(s.padded) +
        first;
    unsigned masks = 0;
#pragma unroll
    for (int i = 0; i < size; ++i) {
      const bool real = first + static_cast<std::size_t>(i) < static_cast<std::size_t>(s.batch);
      masks |= static_cast<unsigned>(real) << i;
      masks |= static_cast<unsigned>(real && scored[i] != 0) << (size + i);
    }
    return masks;
  }
  [[nodiscard]] __device__ bool scores() const { return scored_ != 0; }

  /// Computes d1 of a row's targets and of `prediction`, and adds to the loss.
  template <class Activation>
  __device__ uint4 gradient(Activation activation, const OperandVector<M>& target,
                            const StoredVector<M>& prediction) {
    float targets[size], predicted[size], d[size];
    read(targets, target);
    read(predicted, prediction);
    make_errors(d, sums, activation, targets, predicted, real_, sign_);
    OperandVector<M> out;
    if constexpr (size == 8) {
      out.bits = make_uint4(M::pair(d[0], d[1]), M::pair(d[2], d[3]), M::pair(d[4], d[5]),
                            M::pair(d[6], d[7]));
    } else {
#pragma unroll
      for (int i = 0; i < size; ++i) out.operand[i] = M::operand(d[i]);
    }
    return out.bits;
  }
  /// Adds the error of the prediction of a pixel.
  __device__ void score_prediction(const OperandVector<M>& target,
                                   const StoredVector<M>& prediction) {
    score(sums.prediction, target, prediction);
  }
  /// Adds the change of a pixel in two steps, which is the error of repeating the frame.
  __device__ void score_persistence(const OperandVector<M>& target,
                                    const OperandVector<M>& before) {
    score(sums.persistence, target, before);
  }

 private:
  __device__ static void read(float (&to)[size], const OperandVector<M>& from) {
#pragma unroll
    for (int i = 0; i < size; ++i) to[i] = M::value(from.operand[i]);
  }
  __device__ static void read(float (&to)[size], const StoredVector<M>& from) {
#pragma unroll
    for (int i = 0; i < size; ++i) to[i] = M::Stored::decode(from.values[i]);
  }
  template <class Predicted>
  __device__ void score(float& sum, const OperandVector<M>& target,
                        const Predicted& predicted) const {
    float targets[size], guess[size];
    read(targets, target);
    read(guess, predicted);
    add_squared_errors(sum, targets, guess, scored_);
  }

  bool sign_;
  unsigned real_, scored_;  ///< bit i: whether sequence i exists, is scored
};

/// Four neighbouring values of a row of stored values.
template <class M>
struct StoredQuad {
  alignas(4 * sizeof(typename M::Stored::Type)) typename M::Stored::Type values[4];
};
/// h(t-2) as stored, of row `row`, sequences b to b + 3.
template <class M>
__device__ __forceinline__ StoredQuad<M> hidden_before(const Arguments& a, const StepCursor& cursor,
                                                       std::size_t row, std::size_t b) {
  const std::size_t at = hidden_index(a.shape, slot_before(cursor.hidden, a.shape.ring, 2), row, b);
  return *reinterpret_cast<const StoredQuad<M>*>(
      reinterpret_cast<const typename M::Stored::Type*>(a.stored_h) + at);
}
/// Computes and stores d0 of row `row`, sequences b to b + 3. `h`: h(t-2); `sum`: W1^T d1.
template <class M>
__device__ __forceinline__ void store_hidden_gradient(const Arguments& a, const StepCursor& cursor,
                                                      std::size_t row, std::size_t b,
                                                      const StoredQuad<M>& h,
                                                      const float (&sum)[4]) {
  const std::size_t at = hidden_index(a.shape, cursor.gradient, row, b);
  float d[4];
  with_derivative<M>(a.shape.activation, cursor.step, [&](auto activation) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      d[k] = activation.derivative(M::Stored::decode(h.values[k])) * sum[k];
  });
  store_operands<M>(a.d0 + at * sizeof(typename M::Word), d);
}

}  // namespace pvm::inline v0::detail::batch
