// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// All weights on the host, in the layout that the engines of this directory have in device memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pvm/core/large_vector.hpp>
#include <pvm/core/parallel.hpp>
#include <pvm/engine/cuda/numbers/halves.hpp>
#include <pvm/engine/cuda/numbers/packed.hpp>
#include <pvm/engine/cuda/numbers/precision.cuh>
#include <pvm/engine/cuda/units/plan/plan.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

/// The array of all weights. In fp32 a word is a weight. In 16 bits a word is two high halves; the
/// words of the low halves follow those of all high halves, in the same order (masters.cuh). If
/// `in_slots`, the device's array has them in slots (Sizes::SlotKind), and packed if `packed`.
template <class Precision, int Hidden, Home home>
class StoredWeights {
  using S = Sizes<Precision, Hidden, home>;
  using Layout = Plan<Precision, Hidden, home>;

 public:
  /// Words that are stored for each word that is multiplied; packed tiles take fewer.
  static constexpr std::size_t stored_per_word = S::fp32_weights ? 1 : 2;

  /// All weights are 0. `layout` must outlive the object.
  explicit StoredWeights(const Layout& layout)
      : layout_(layout), count_(layout.weight_words()), words_(zeros(count_ * stored_per_word)) {
    if constexpr (!S::fp32_weights) {
      const WordPair zero = Halves<Precision>::split({0, 0});  // as PackedHalves as well
      in_parallel_ranges(words_.size(), 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t k = begin; k < end; ++k) words_[k] = k < count_ ? zero.high : zero.low;
      });
    }
  }
  /// Takes over words downloaded from the device.
  StoredWeights(const Layout& layout, std::vector<std::uint32_t> words)
      : layout_(layout), count_(layout.weight_words()) {
    if constexpr (S::in_slots) {
      words_ = zeros(count_ * stored_per_word);
      each_part([&](std::size_t at, std::size_t slot, std::size_t length) {
        std::copy_n(words.begin() + offset(slot), length, words_.begin() + offset(at));
      });
      each_tiles([&](std::size_t at, std::size_t slot) {
        if constexpr (S::packed) {
          unpack_block<S::pairs>(words.data() + slot, words_.data() + at);
        } else {
          std::copy_n(words.begin() + offset(slot), S::block_words, words_.begin() + offset(at));
        }
      });
    } else {
      words_ = std::move(words);
    }
  }
  /// The words as they are uploaded to the device. `size`: of the array there, if `in_slots`.
  [[nodiscard]] std::vector<std::uint32_t> words(std::size_t size) && {
    if constexpr (!S::in_slots) return std::move(words_);
    std::vector<std::uint32_t> words = zeros(size);
    each_part([&](std::size_t at, std::size_t slot, std::size_t length) {
      std::copy_n(words_.begin() + offset(at), length, words.begin() + offset(slot));
    });
    each_tiles([&](std::size_t at, std::size_t slot) {
      if constexpr (S::packed) {
        pack_block<S::pairs>(words_.data() + at, words.data() + slot);
      } else {
        std::copy_n(words_.begin() + offset(at), S::block_words, words.begin() + offset(slot));
      }
    });
    return words;
  }

  /// The weight at index `at`, counted in weights, as Plan::for_each_weight gives it.
  [[nodiscard]] float get(std::size_t at) const {
    if constexpr (S::fp32_weights) {
      return detail::Math<fp32>::value(words_[at]);
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
      words_[at] = detail::Math<fp32>::operand(weight);
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
  static std::vector<std::uint32_t> zeros(std::size_t n) { return large_vector<std::uint32_t>(n); }
  static std::ptrdiff_t offset(std::size_t n) { return static_cast<std::ptrdiff_t>(n); }
  /// Word offset on the device of a slot that begins at a line.
  static std::size_t start_of(std::uint32_t line) { return std::size_t{line} * line_words; }
  /// Calls visit(number of the block) for every block that has a slot, on several threads.
  template <class Visit>
  void each_block(Visit visit) const {
    constexpr std::size_t piece = 256;
    const std::size_t blocks = layout_.slots.size();
    in_parallel((blocks + piece - 1) / piece, count_ * stored_per_word, [&](std::size_t i) {
      const std::size_t end = std::min(blocks, (i + 1) * piece);
      for (std::size_t k = i * piece; k < end; ++k) {
        if (layout_.slots[k].high != no_slot) visit(k);
      }
    });
  }
  /// Calls copy(word here, word on the device) for the tiles of each block, as they are multiplied.
  template <class Copy>
  void each_tiles(Copy copy) const {
    each_block(
        [&](std::size_t k) { copy(k * S::unpacked_words, start_of(layout_.slots[k].high)); });
  }
  /// Calls copy(word here, word on the device, number of words) for everything else.
  template <class Copy>
  void each_part(Copy copy) const {
    each_block([&](std::size_t k) {
      const bool w1 = k >= layout_.blocks;
      const std::size_t high = start_of(layout_.slots[k].high);
      const std::size_t low = start_of(layout_.slots[k].low);
      const std::size_t rows = w1 ? S::w1_remainder_words : S::remainder_words;
      const std::size_t here = w1 ? layout_.first_w1_remainder() + (k - layout_.blocks) * rows
                                  : layout_.first_remainder() + k * rows;
      const std::uint32_t line = layout_.slots[k].high;
      std::size_t there = start_of(line & ~(chunk_lines - 1U)) + line % 4 * rows;
      if (w1) there = low + S::unpacked_words + rows;
      if (S::fp32_weights) there = high + S::block_words;
      copy(here, there, rows);
      if constexpr (!S::fp32_weights) {
        copy(count_ + here, low + S::unpacked_words, rows);
        copy(count_ + k * S::unpacked_words, low, S::unpacked_words);
      }
    });
  }
  /// Whether word k is of tiles that are packed on the device.
  [[nodiscard]] bool is_packed(std::size_t k) const {
    return S::packed && k < layout_.first_remainder();
  }
  /// Stores the low 16 bits of `half` to the half of word k that belongs to weight `at`.
  void put_half(std::size_t k, std::size_t at, std::uint32_t half) {
    const unsigned shift = at % 2 == 0 ? 0 : 16;
    words_[k] = (words_[k] & ~(0xffffU << shift)) | (half & 0xffffU) << shift;
  }

  const Layout& layout_;
  std::size_t count_;  // words of high halves, or of fp32 weights
  std::vector<std::uint32_t> words_;
};

}  // namespace pvm::inline v0::detail::units
