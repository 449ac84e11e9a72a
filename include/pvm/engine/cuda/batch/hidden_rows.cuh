// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Rows of hidden values (h, c(h), d0): where they are, and storing them. Used by both schemes.

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/batch/device.cuh>

namespace pvm::inline v0::detail::batch {

/// Stores four neighbouring values of a row as operands.
template <class M>
__device__ __forceinline__ void store_operands(void* to, const float (&v)[4]) {
  if constexpr (sizeof(typename M::Word) == 2) {
    *static_cast<uint2*>(to) = make_uint2(M::pair(v[0], v[1]), M::pair(v[2], v[3]));
  } else {
    *static_cast<uint4*>(to) =
        make_uint4(M::operand(v[0]), M::operand(v[1]), M::operand(v[2]), M::operand(v[3]));
  }
}

/// The index of sequence `b` of row `row` in slot `slot` of a ring of hidden rows (h, c(h), d0).
__device__ __forceinline__ std::size_t hidden_index(const Shape& s, std::uint32_t slot,
                                                    std::size_t row, std::size_t b) {
  return (static_cast<std::size_t>(slot) * static_cast<std::size_t>(s.hidden) + row) *
             static_cast<std::size_t>(s.padded) +
         b;
}
/// Makes h of the sums of row `row`, sequences b to b + 3, and stores it as `M::Stored`, as operand
/// h and as operand c(h) in slot `slot`.
template <class M>
__device__ __forceinline__ void store_hidden(const Arguments& a, std::uint32_t slot,
                                             std::size_t row, std::size_t b,
                                             const float (&sum)[4]) {
  using Stored = typename M::Stored;
  const std::size_t at = hidden_index(a.shape, slot, row, b);
  float h[4], c[4];
  typename Stored::Type stored[4];
  with_activation<M>(a.shape.activation, [&](auto activation) {
#pragma unroll
    for (int i = 0; i < 4; ++i) stored[i] = Stored::encode(activation.value(sum[i]));
  });
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Rounded as in a checkpoint, which a resumed run starts from.
    h[i] = Stored::decode(stored[i]);
    c[i] = squeeze(h[i]);
  }
  auto* out = reinterpret_cast<typename Stored::Type*>(a.stored_h) + at;
  if constexpr (sizeof(typename Stored::Type) == 2) {
    *reinterpret_cast<uint2*>(out) = *reinterpret_cast<const uint2*>(stored);
  } else {
    *reinterpret_cast<float4*>(out) = *reinterpret_cast<const float4*>(stored);
  }
  store_operands<M>(a.raw + at * sizeof(typename M::Word), h);
  store_operands<M>(a.squeezed + at * sizeof(typename M::Word), c);
}

}  // namespace pvm::inline v0::detail::batch
