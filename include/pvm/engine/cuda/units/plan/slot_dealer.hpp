// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Deals slots for blocks in device memory to programs, so that each program's slots are on one
/// side of the L2 cache (sides.cuh).

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

/// Which programs are for which side, and where sides are. Chunks 2k and 2k + 1 of the array of all
/// weights, a pair, are on different sides. If sides are unknown, they are called 0 and 1 all the
/// same, and `of_pairs` is empty.
struct Sides {
  std::vector<std::uint8_t> of_programs;
  std::vector<std::uint8_t> of_pairs;  ///< of each pair: the side of its first chunk

  /// Deals `programs` programs to sides, to side 0 `first` of `all` in turn with side 1.
  void deal_programs(std::size_t programs, std::size_t first, std::size_t all) {
    for (std::size_t m = 0; m < programs; ++m) {
      of_programs.push_back((m + 1) * first / all > m * first / all ? 0 : 1);
    }
  }
  [[nodiscard]] bool known() const { return !of_pairs.empty(); }
  /// Which chunk of a pair is on `side`.
  [[nodiscard]] std::size_t chunk(std::size_t pair, unsigned side) const {
    return 2 * pair + ((known() ? of_pairs[pair] : 0U) == side ? 0 : 1);
  }
  /// The order in which thread blocks take programs (kernel.cuh): those of side 0 from the first
  /// one on, those of side 1 from the last one down. SMs take one each, then another one each. The
  /// plan's first programs have fewer units than its last ones, so each SM gets one of either.
  [[nodiscard]] std::vector<std::uint32_t> order() const {
    std::vector<std::uint32_t> programs(of_programs.size());
    auto first = programs.begin();
    auto last = programs.rbegin();
    for (std::size_t m = 0; m < programs.size(); ++m) {
      const auto number = static_cast<std::uint32_t>(m);
      if (of_programs[m] == 0 || !known()) {
        *first++ = number;
      } else {
        *last++ = number;
      }
    }
    return programs;
  }
};

/// Deals slots of one kind (Sizes::SlotKind), which are in consecutive pairs of chunks.
template <class Kind>
class SlotDealer {
 public:
  /// `sides` must outlive the object.
  SlotDealer(const Sides& sides, std::size_t first_pair, Kind kind)
      : sides_(sides), first_pair_(first_pair), kind_(kind) {}

  /// The first line of the next slot for a program.
  std::uint32_t next(std::size_t program) {
    const unsigned side = sides_.of_programs[program];
    const std::size_t n = dealt_[side]++, slots = count(kind_.slots());
    const std::size_t chunk = sides_.chunk(first_pair_ + n / slots, side);
    return static_cast<std::uint32_t>(chunk * chunk_lines + count(kind_.first_line) +
                                      n % slots * count(kind_.lines));
  }
  /// How many pairs of chunks are needed. `blocks`: the number of blocks of each program.
  static std::size_t pairs_for(const Sides& sides, const std::vector<std::size_t>& blocks,
                               Kind kind) {
    std::array<std::size_t, 2> of_side{};
    for (std::size_t m = 0; m < blocks.size(); ++m) of_side[sides.of_programs[m]] += blocks[m];
    const std::size_t slots = count(kind.slots());
    return (std::max(of_side[0], of_side[1]) + slots - 1) / slots;
  }

 private:
  static std::size_t count(int n) { return static_cast<std::size_t>(n); }

  const Sides& sides_;
  std::size_t first_pair_;
  Kind kind_;
  std::array<std::size_t, 2> dealt_{};
};

}  // namespace pvm::inline v0::detail::units
