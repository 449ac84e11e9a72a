// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// All weights on the host, in the layout that the engines of this directory have in device memory.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/batch/precision.cuh>
#include <pvm/engine/cuda/chip/halves.hpp>
#include <pvm/engine/cuda/chip/sizes.hpp>

namespace pvm::inline v0::detail::chip {

/// The array of all weights. In fp32 a word is a weight. In 16 bits a word is two high halves; the
/// words of the low halves follow those of all high halves, in the same order (masters.cuh).
template <class Precision, int Hidden, Home home>
class StoredWeights {
  using S = Sizes<Precision, Hidden, home>;

 public:
  /// Words that are stored for each word that is multiplied.
  static constexpr std::size_t stored_per_word = S::fp32_weights ? 1 : 2;

  /// All weights are 0; `count` is the number of words that are multiplied.
  explicit StoredWeights(std::size_t count) : words_(count * stored_per_word), count_(count) {
    if constexpr (!S::fp32_weights) {
      const WordPair zero = Halves<Precision>::split({0, 0});
      for (std::size_t k = 0; k < words_.size(); ++k) words_[k] = k < count ? zero.high : zero.low;
    }
  }
  /// Takes over words downloaded from the device.
  explicit StoredWeights(std::vector<std::uint32_t> words)
      : words_(std::move(words)), count_(words_.size() / stored_per_word) {}
  [[nodiscard]] const std::vector<std::uint32_t>& words() const { return words_; }

  /// The weight at index `at`, counted in weights, as Plan::visit_weights gives it.
  [[nodiscard]] float get(std::size_t at) const {
    if constexpr (S::fp32_weights) {
      return batch::Math<fp32>::value(words_[at]);
    } else {
      const std::size_t k = at / 2;
      const WeightPair pair = Halves<Precision>::join({words_[k], words_[count_ + k]});
      return at % 2 == 0 ? pair.first : pair.second;
    }
  }
  void put(std::size_t at, float weight) {
    if constexpr (S::fp32_weights) {
      words_[at] = batch::Math<fp32>::operand(weight);
    } else {
      const std::size_t k = at / 2;
      const WordPair halves = Halves<Precision>::split({weight, weight});
      put_half(k, at, halves.high);
      put_half(count_ + k, at, halves.low);
    }
  }

 private:
  /// Stores the low 16 bits of `half` to the half of word k that belongs to weight `at`.
  void put_half(std::size_t k, std::size_t at, std::uint32_t half) {
    const unsigned shift = at % 2 == 0 ? 0 : 16;
    words_[k] = (words_[k] & ~(0xffffU << shift)) | (half & 0xffffU) << shift;
  }

  std::vector<std::uint32_t> words_;
  std::size_t count_;
};

}  // namespace pvm::inline v0::detail::chip
