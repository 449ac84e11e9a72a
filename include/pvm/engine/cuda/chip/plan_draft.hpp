// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A multiprocessor's program while it is being written.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/engine/cuda/chip/sizes.hpp>

namespace pvm::inline v0::detail::chip {

constexpr std::uint32_t narrow(std::size_t n) { return static_cast<std::uint32_t>(n); }
constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

/// Hands out shared memory in whole 16 bytes.
struct Places {
  std::uint32_t at = 0;

  std::uint32_t operator()(std::size_t words) {
    const std::uint32_t here = at;
    at += narrow(round_up(words, 4));
    return here;
  }
};

/// Some of a unit's context, which folds together: its slots, and its columns with padding.
struct ContextPanel {
  std::size_t first, count, column, width;
};

/// Sources whose values fold together: some of a multiprocessor's slots.
struct SourcePanel {
  std::uint32_t first, count, phase;
};

/// A panel of W0 with its blocks, before it has a phase.
struct Folding {
  std::size_t unit;  ///< of the multiprocessor
  std::size_t first_block, blocks, column;
  std::size_t phase = 0;
};

/// A value in a row of the past.
struct InputPlace {
  std::size_t record, value;
};

/// When a block folds, and whether it is held in registers.
struct DueBlock {
  std::uint32_t phase;
  bool held;
};

/// What a warp of a multiprocessor does beside products: it finishes a unit, or writes the
/// factors of a unit's folds and reads its patch if it sees one, or neither. All but those that
/// finish or read have blocks of W1.
enum class Role { finishes, reads, writes, others };

/// The program's header and its lists, which are not where they will be yet.
template <class S>
struct ProgramDraft {
  ChipProgram p{};
  std::vector<ChipUnit> units;
  std::vector<ChipSlot> slots;
  std::array<std::vector<ChipBlock>, S::multipliers> blocks;
  std::array<std::vector<ChipWideBlock>, S::multipliers> wide;
  /// Blocks of a warp that fold, by phase.
  std::array<std::vector<unsigned>, S::multipliers> due;
  std::vector<ChipTarget> targets;
  std::vector<std::uint32_t> folding, folding_start, first_in_pass, products;
  std::vector<std::uint32_t> reload;
  std::uint32_t x = 0, out = 0;  ///< inputs and outputs so far, in whole blocks
  std::uint32_t patches = 0;     ///< so far

  [[nodiscard]] std::size_t block_count() const { return count(blocks); }
  [[nodiscard]] std::size_t wide_count() const { return count(wide); }

  [[nodiscard]] Role role(std::size_t w) const {
    const std::size_t finishing = units.size();
    if (w < finishing) return Role::finishes;
    const bool enough = finishing + patches < S::warps;
    if (enough && w < finishing + patches) return Role::reads;
    return w < 2 * finishing ? Role::writes : Role::others;
  }

 private:
  template <class Lists>
  static std::size_t count(const Lists& lists) {
    std::size_t n = 0;
    for (const auto& list : lists) n += list.size();
    return n;
  }
};

}  // namespace pvm::inline v0::detail::chip
