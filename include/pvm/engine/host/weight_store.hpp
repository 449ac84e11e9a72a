// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host engine's weights: fp32 master weights, which every update enters, and for bf16 and fp16
/// also the 16-bit working copy that products read. Only updates refresh the copy.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pvm/core/tags.hpp>
#include <pvm/engine/host/half_pass.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/simd.hpp>

namespace pvm::inline v0 {

/// fp32: one array, no copy. A store is read and written in groups of `group` weights, at indices
/// that are multiples of `group`. An index counts weights and is the same for all arrays of a
/// store.
template <class Precision>
class WeightStore {
 public:
  static constexpr std::size_t group = simd::width;
  static constexpr std::size_t bytes = sizeof(float);  ///< that a step reads per weight
  static constexpr std::size_t fold_bytes =
      sizeof(float);  ///< that a fold moves per weight besides

  struct Group {
    simd::Lanes part[1];
  };

  WeightStore() = default;
  explicit WeightStore(std::size_t size) : values_(size) {}

  [[nodiscard]] float* data() noexcept { return values_.data(); }
  /// The address of a weight as products read it, for the prefetcher.
  [[nodiscard]] const void* address(std::size_t index) const { return values_.data() + index; }

  [[gnu::always_inline]] inline Group load(std::size_t index) const {
    return {{simd::at(values_.data() + index)}};
  }
  [[gnu::always_inline]] inline void store(std::size_t index, const Group& w) {
    simd::at(values_.data() + index) = w.part[0];
  }

 private:
  HugeArray values_;
};

/// What the stores of bf16 and fp16 weights share: the 16-bit working copy that products read.
class HalfStore {
 public:
  static constexpr std::size_t group = simd::half_group;
  static constexpr std::size_t bytes = 2;

  struct Group {
    simd::Lanes part[2];
  };

  [[nodiscard]] const std::uint16_t* copy() const noexcept {
    return reinterpret_cast<const std::uint16_t*>(copy_.data());
  }
  [[nodiscard]] const void* address(std::size_t index) const { return copy_.data() + index / 2; }

 protected:
  HalfStore() = default;
  explicit HalfStore(std::size_t size) : copy_(size / 2) {}

  HugeArray copy_;
};

/// bf16: an fp32 weight is stored as the bf16 copy (its high half, rounded) and the signed 16-bit
/// difference: bits = (copy << 16) + difference, exactly. So the copy is a part of the master
/// weight and costs no memory, and a fold moves no byte twice.
template <>
class WeightStore<bf16> : public HalfStore {
 public:
  static constexpr std::size_t fold_bytes = 6;

  WeightStore() = default;
  explicit WeightStore(std::size_t size) : HalfStore(size), difference_(size / 2) {}

  [[gnu::always_inline]] inline Group load(std::size_t index) const {
    const simd::Words copy = simd::words_at(copy_.data() + index / 2);
    const auto both =
        simd::bits_as<simd::SignedWords>(simd::words_at(difference_.data() + index / 2));
    const simd::Words first = (copy << 16U) + simd::bits_as<simd::Words>((both << 16) >> 16);
    const simd::Words second = (copy & 0xffff0000U) + simd::bits_as<simd::Words>(both >> 16);
    return {{simd::bits_as<simd::Lanes>(first), simd::bits_as<simd::Lanes>(second)}};
  }
  [[gnu::always_inline]] inline void store(std::size_t index, const Group& w) {
    const auto first = simd::bits_as<simd::Words>(w.part[0]);
    const auto second = simd::bits_as<simd::Words>(w.part[1]);
    simd::words_at(copy_.data() + index / 2) =
        ((first + 0x8000U) >> 16U) | ((second + 0x8000U) & 0xffff0000U);
    simd::words_at(difference_.data() + index / 2) = (first & 0xffffU) | (second << 16U);
  }

 private:
  // Like the copy, it has two columns, i and i + 16, in each 32-bit word.
  HugeArray difference_;
};

/// fp16: an fp32 array and a separate copy, rounded to nearest. Weights that are too large for fp16
/// become its largest number in the copy.
template <>
class WeightStore<fp16> : public HalfStore {
 public:
  static constexpr std::size_t fold_bytes = 10;

  WeightStore() = default;
  explicit WeightStore(std::size_t size) : HalfStore(size), master_(size) {}

  [[gnu::always_inline]] inline Group load(std::size_t index) const {
    return {{simd::at(master_.data() + index), simd::at(master_.data() + index + simd::width)}};
  }
  [[gnu::always_inline]] inline void store(std::size_t index, const Group& w) {
    auto* const to = reinterpret_cast<std::uint16_t*>(copy_.data()) + index;
    for (std::size_t i = 0; i < 2; ++i) {
      simd::at(master_.data() + index + i * simd::width) = w.part[i];
      narrow(w.part[i], to + i * simd::width);
    }
  }

 private:
  /// Converts sixteen floats to fp16 with integer operations, rounding to nearest even.
  [[gnu::always_inline]] static inline void narrow(const simd::Lanes& w, std::uint16_t* to) {
    using Halves = simd::HalfFormat<fp16>::Halves;
    constexpr std::uint32_t rebias = 112U << 23U;
    constexpr std::uint32_t smallest_normal = 0x38800000U;  // 2^-14
    constexpr std::uint32_t too_large = 0x477ff000U;        // 65520, which would round to 2^16
    const auto bits = simd::bits_as<simd::Words>(w);
    const simd::Words size = bits & 0x7fffffffU;
    const simd::Words normal = (size + 0xfffU + ((size >> 13U) & 1U) - rebias) >> 13U;
    // A number that is subnormal in fp16: adding 0.5 moves its bits, rounded, to the end of the
    // mantissa.
    const simd::Lanes shifted = simd::bits_as<simd::Lanes>(size) + 0.5F;
    const simd::Words subnormal = simd::bits_as<simd::Words>(shifted) - 0x3f000000U;
    simd::Words half = size < smallest_normal ? subnormal : normal;
    half = size >= too_large ? simd::Words{} + 0x7bffU : half;
    half |= (bits >> 16U) & 0x8000U;
    *reinterpret_cast<Halves*>(to) = __builtin_convertvector(half, Halves);
  }

  HugeArray master_;
};

/// Copies the weights from index `first` on to fp32 numbers, or back. `first` and the number of
/// weights are multiples of the group, and the numbers are aligned like a HugeArray.
template <class Store>
void load_weights(const Store& store, std::size_t first, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); i += Store::group) {
    const auto w = store.load(first + i);
    for (std::size_t k = 0; k < Store::group / simd::width; ++k) {
      simd::at(out.data() + i + k * simd::width) = w.part[k];
    }
  }
}
template <class Store>
void store_weights(Store& store, std::size_t first, std::span<const float> in) {
  for (std::size_t i = 0; i < in.size(); i += Store::group) {
    typename Store::Group w;
    for (std::size_t k = 0; k < Store::group / simd::width; ++k) {
      w.part[k] = simd::at(in.data() + i + k * simd::width);
    }
    store.store(first + i, w);
  }
}

}  // namespace pvm::inline v0
