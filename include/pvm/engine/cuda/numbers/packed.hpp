// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// bf16 weights in 12 bits, for networks whose weights all stream from device memory, where bytes
/// are what a step takes. A working copy has the sign, 4 bits of exponent and 7 bits of mantissa:
///     |w| >= 2^-8   what bf16 has, 8 significant bits
///     below         a multiple of 2^-15 (a subnormal number)
///     |w| < 127.75, the largest weight; what is larger becomes that
/// The low half (halves.hpp) completes it to a master of 24 significant bits, or a multiple of
/// 2^-31: that is what an fp32 number of size 2^-7 is, too.
///
/// Weights are stored times 2^-118. Then the four upper bits of a bf16's exponent are 0, the format
/// is a bf16 without these bits, and the numbers below are bf16's own subnormal ones, which tensor
/// cores multiply exactly. The other factor of a product is multiplied by 2^118. No arithmetic here
/// or in masters.cuh depends on whether a program flushes subnormal numbers to 0.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <pvm/core/config.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/numbers/halves.hpp>

namespace pvm::inline v0::detail {

/// Master weights, as they are stored, as halves of which the high one fits 12 bits.
struct PackedHalves {
  static constexpr float unit = 0x1p-118F;                    ///< what 1 is stored as
  static constexpr std::uint32_t inverse_pair = 0x7a807a80U;  ///< 1 / unit as two bf16
  static constexpr float largest = 0x1.fefffep6F;  ///< 2^7 less half a unit of the high half

  /// A weight as it is stored, times `unit`; no larger than `largest`. A subnormal number is, as
  /// bits, a multiple of its smallest one.
  static float stored(float weight) {
    const std::uint32_t bits = Bits::operand(weight), sign = bits & 0x80000000U;
    const float size = std::fmin(std::fabs(weight), largest);
    return Bits::value(sign | (size < smallest_normal
                                   ? static_cast<std::uint32_t>(std::lrint(size * 0x1p31))
                                   : Bits::operand(size) - exponents));
  }
  /// The weight that is stored as `v`.
  static float weight(float v) {
    const std::uint32_t bits = Bits::operand(v), size = bits & 0x7fffffffU;
    if (size >> mantissa_bits != 0) return Bits::value(bits + exponents);
    return std::copysign(static_cast<float>(size) * 0x1p-31F, (bits >> 31) != 0 ? -1.0F : 1.0F);
  }

  /// The halves of stored weights. What is too large becomes the largest.
  PVM_HOST_DEVICE static WordPair split(WeightPair w) {
    return Halves<bf16>::split({limited(w.first), limited(w.second)});
  }
  PVM_HOST_DEVICE static WeightPair join(WordPair p) { return Halves<bf16>::join(p); }

 private:
  using Bits = detail::Math<fp32>;
  static constexpr int mantissa_bits = 23;
  static constexpr std::uint32_t exponents = 118U << mantissa_bits;
  static constexpr float smallest_normal = 0x1p-8F;  ///< weight that is not stored as a subnormal

  PVM_HOST_DEVICE static float limited(float v) {
#if defined(__CUDA_ARCH__)
    return limit_with_subnormals(v, largest * unit);
#else
    const std::uint32_t bits = Bits::operand(v);
    const std::uint32_t most = Bits::operand(largest) - exponents;
    return Bits::value((bits & 0x80000000U) | std::min(bits & 0x7fffffffU, most));
#endif
  }
};

/// A lane's part of two tiles, eight high halves in four words, as three words: of each half, its
/// lower byte in `low`, and its other four bits in `high`.
struct PackedTiles {
  std::uint32_t low[2], high;
};

/// In both halves of a word: the sign and the three upper bits of the exponent; the rest.
inline constexpr std::uint32_t packed_high = 0x87008700U, packed_low = 0x00ff00ffU;

PVM_HOST_DEVICE inline std::uint32_t rotated_left(std::uint32_t v, int by) {
  return by == 0 ? v : v << by | v >> (32 - by);
}
/// Word i goes to the bytes 0 and 2 (even i) or 1 and 3 of low[i / 2]. Rotated by 0, 4, 8 and 12
/// bits, the bits of `packed_high` do not overlap and fill `high`.
PVM_HOST_DEVICE inline PackedTiles pack(const std::uint32_t (&w)[4]) {
  PackedTiles p{};
  for (int i = 0; i < 4; ++i) {
    p.low[i / 2] |= (w[i] & packed_low) << i % 2 * 8;
    p.high |= rotated_left(w[i] & packed_high, (32 - 4 * i) % 32);
  }
  return p;
}
PVM_HOST_DEVICE inline std::uint32_t unpacked(const PackedTiles& p, int i) {
#if defined(__CUDA_ARCH__)
  const std::uint32_t low = __byte_perm(p.low[i / 2], 0, i % 2 == 0 ? 0x4240 : 0x4341);
#else
  const std::uint32_t low = p.low[i / 2] >> i % 2 * 8 & packed_low;
#endif
  return (rotated_left(p.high, 4 * i) & packed_high) | low;
}

/// The order of a lane's words of a block: first as many groups of four as there are, each of which
/// the lane loads at once, then single words. A block is [groups][lane][4], then [words][lane].
template <int Pairs>
struct PackedOrder {
  static constexpr int words = 3 * Pairs;  ///< the three words of each pair of tiles
  static constexpr int quads = words / 4;
  /// Where in a block word i of a lane is.
  static constexpr int place(int i, int lane) {
    return i < 4 * quads ? i / 4 * 128 + lane * 4 + i % 4
                         : 128 * quads + (i - 4 * quads) * 32 + lane;
  }
};

/// Packs a block's tiles, [pairs][lane][4] words, on the host. `to` may begin at or before `from`.
template <int Pairs>
void pack_block(const std::uint32_t* from, std::uint32_t* to) {
  std::array<std::uint32_t, 32 * PackedOrder<Pairs>::words> packed;
  for (int lane = 0; lane < 32; ++lane) {
    for (int pair = 0; pair < Pairs; ++pair) {
      const std::uint32_t* w = from + (pair * 32 + lane) * 4;
      const PackedTiles p = pack({w[0], w[1], w[2], w[3]});
      const std::uint32_t words[] = {p.low[0], p.low[1], p.high};
      for (int i = 0; i < 3; ++i) {
        packed[static_cast<std::size_t>(PackedOrder<Pairs>::place(3 * pair + i, lane))] = words[i];
      }
    }
  }
  std::copy(packed.begin(), packed.end(), to);
}
/// The reverse.
template <int Pairs>
void unpack_block(const std::uint32_t* from, std::uint32_t* to) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int pair = 0; pair < Pairs; ++pair) {
      const auto word = [&](int i) { return from[PackedOrder<Pairs>::place(3 * pair + i, lane)]; };
      const PackedTiles p = {{word(0), word(1)}, word(2)};
      for (int i = 0; i < 4; ++i) to[(pair * 32 + lane) * 4 + i] = unpacked(p, i);
    }
  }
}

}  // namespace pvm::inline v0::detail
