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
#include <pvm/engine/cuda/chip/packed.hpp>
#include <pvm/engine/cuda/chip/sizes.hpp>

namespace pvm::inline v0::detail::chip {

/// The array of all weights. In fp32 a word is a weight. In 16 bits a word is two high halves; the
/// words of the low halves follow those of all high halves, in the same order (masters.cuh). Where
/// tiles are packed, only the device's array has them so.
template <class Precision, int Hidden, Home home>
class StoredWeights {
  using S = Sizes<Precision, Hidden, home>;

 public:
  /// Words that are stored for each word that is multiplied; packed tiles take fewer.
  static constexpr std::size_t stored_per_word = S::fp32_weights ? 1 : 2;

  /// All weights are 0. `count` is the number of words that are multiplied, which begin with the
  /// tiles of `blocks` blocks.
  StoredWeights(std::size_t count, std::size_t blocks)
      : words_(count * stored_per_word), count_(count), tile_words_(blocks * S::unpacked_words) {
    if constexpr (!S::fp32_weights) {
      const WordPair zero = Halves<Precision>::split({0, 0});  // as PackedHalves as well
      for (std::size_t k = 0; k < words_.size(); ++k) words_[k] = k < count ? zero.high : zero.low;
    }
  }
  /// Takes over words downloaded from the device.
  StoredWeights(std::vector<std::uint32_t> words, std::size_t blocks)
      : tile_words_(blocks * S::unpacked_words) {
    if constexpr (S::packed) {
      words_.resize(tile_words_);
      for (std::size_t k = 0; k < blocks; ++k) {
        unpack_block<S::pairs>(words.data() + k * S::block_words,
                               words_.data() + k * S::unpacked_words);
      }
      words_.insert(words_.end(),
                    words.begin() + static_cast<std::ptrdiff_t>(blocks * S::block_words),
                    words.end());
    } else {
      words_ = std::move(words);
    }
    count_ = words_.size() / stored_per_word;
  }
  /// The words as they are uploaded to the device.
  [[nodiscard]] std::vector<std::uint32_t> words() && {
    if constexpr (S::packed) {
      const std::size_t blocks = tile_words_ / S::unpacked_words;
      const std::size_t packed = blocks * S::block_words;
      for (std::size_t k = 0; k < blocks; ++k) {
        // A packed block is shorter, and never overwrites one that is still to be packed.
        pack_block<S::pairs>(words_.data() + k * S::unpacked_words,
                             words_.data() + k * S::block_words);
      }
      words_.erase(words_.begin() + static_cast<std::ptrdiff_t>(packed),
                   words_.begin() + static_cast<std::ptrdiff_t>(tile_words_));
    }
    return std::move(words_);
  }

  /// The weight at index `at`, counted in weights, as Plan::visit_weights gives it.
  [[nodiscard]] float get(std::size_t at) const {
    if constexpr (S::fp32_weights) {
      return batch::Math<fp32>::value(words_[at]);
    } else {
      const std::size_t k = at / 2;
      const WordPair halves = {words_[k], words_[count_ + k]};
      const WeightPair pair =
          is_packed(k) ? PackedHalves::join(halves) : Halves<Precision>::join(halves);
      const float weight = at % 2 == 0 ? pair.first : pair.second;
      return is_packed(k) ? PackedHalves::weight(weight) : weight;
    }
  }
  void put(std::size_t at, float weight) {
    if constexpr (S::fp32_weights) {
      words_[at] = batch::Math<fp32>::operand(weight);
    } else {
      const std::size_t k = at / 2;
      const float stored = is_packed(k) ? PackedHalves::stored(weight) : weight;
      const WordPair halves = is_packed(k) ? PackedHalves::split({stored, stored})
                                           : Halves<Precision>::split({stored, stored});
      put_half(k, at, halves.high);
      put_half(count_ + k, at, halves.low);
    }
  }

 private:
  /// Whether word k is of tiles that are packed on the device.
  [[nodiscard]] bool is_packed(std::size_t k) const { return S::packed && k < tile_words_; }
  /// Stores the low 16 bits of `half` to the half of word k that belongs to weight `at`.
  void put_half(std::size_t k, std::size_t at, std::uint32_t half) {
    const unsigned shift = at % 2 == 0 ? 0 : 16;
    words_[k] = (words_[k] & ~(0xffffU << shift)) | (half & 0xffffU) << shift;
  }

  std::vector<std::uint32_t> words_;
  std::size_t count_ = 0, tile_words_;
};

}  // namespace pvm::inline v0::detail::chip
