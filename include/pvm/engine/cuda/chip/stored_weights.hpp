// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Weights on the host as engines with whole units have them in device memory.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/batch/precision.cuh>
#include <pvm/engine/cuda/chip/halves.hpp>
#include <pvm/engine/cuda/chip/sizes.hpp>

namespace pvm::inline v0::detail::chip {

/// All of them, as they are multiplied, and their masters.
template <class Precision, int Hidden, Home home>
class StoredWeights {
  using S = Sizes<Precision, Hidden, home>;

 public:
  /// A word that is multiplied, and, of 16-bit weights, one of what rounding left out
  /// (masters.cuh).
  static constexpr std::size_t to_a_word = S::whole ? 1 : 2;

  /// Zeros: `count` words are multiplied.
  explicit StoredWeights(std::size_t count) : words_(count * to_a_word), count_(count) {
    if constexpr (!S::whole) {
      const WordPair zero = Halves<Precision>::split({0, 0});
      for (std::size_t k = 0; k < words_.size(); ++k) words_[k] = k < count ? zero.high : zero.low;
    }
  }
  /// What has been downloaded.
  explicit StoredWeights(std::vector<std::uint32_t> words)
      : words_(std::move(words)), count_(words_.size() / to_a_word) {}
  [[nodiscard]] const std::vector<std::uint32_t>& words() const { return words_; }

  /// Weight `at`, where Plan::visit_weights says it is.
  [[nodiscard]] float get(std::size_t at) const {
    if constexpr (S::whole) {
      return batch::Math<fp32>::value(words_[at]);
    } else {
      const std::size_t k = at / 2;
      const WeightPair pair = Halves<Precision>::join({words_[k], words_[count_ + k]});
      return at % 2 == 0 ? pair.first : pair.second;
    }
  }
  void put(std::size_t at, float weight) {
    if constexpr (S::whole) {
      words_[at] = batch::Math<fp32>::operand(weight);
    } else {
      const std::size_t k = at / 2;
      const WordPair halves = Halves<Precision>::split({weight, weight});
      put_half(k, at, halves.high);
      put_half(count_ + k, at, halves.low);
    }
  }

 private:
  /// The lower half of `half` to where `at` has it in word k.
  void put_half(std::size_t k, std::size_t at, std::uint32_t half) {
    const unsigned shift = at % 2 == 0 ? 0 : 16;
    words_[k] = (words_[k] & ~(0xffffU << shift)) | (half & 0xffffU) << shift;
  }

  std::vector<std::uint32_t> words_;
  std::size_t count_;
};

}  // namespace pvm::inline v0::detail::chip
