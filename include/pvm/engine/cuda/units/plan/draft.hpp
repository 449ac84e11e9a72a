// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A thread block's program while it is being planned, and the small types that planning uses.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

constexpr std::uint32_t narrow(std::size_t n) { return static_cast<std::uint32_t>(n); }
constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

/// Allocates shared memory, from its start upwards and in whole 16 bytes.
struct SharedAllocator {
  std::uint32_t at = 0;  ///< the next free word

  /// Allocates `words` words and returns the first.
  std::uint32_t operator()(std::size_t words) {
    const std::uint32_t here = at;
    at += narrow(round_up(words, 4));
    return here;
  }
};

/// A panel of a unit's context: consecutive sources whose columns of W0 fold in the same step.
/// `first` and `count` are its sources among the unit's context sources; `column` is its first
/// column, counted from the start of the context, and `width` its columns, padding included.
struct ContextPanel {
  std::size_t first, count, column, width;
};

/// Sources whose columns fold in the same step: `count` of the thread block's sources from `first`
/// on, and their phase.
struct PanelSources {
  std::uint32_t first, count, phase;
};

/// A panel of W0 (A, B or a context panel of a unit), which folds in one step of every `period`.
struct W0Panel {
  std::size_t unit;  ///< index among the thread block's units
  /// Its first block of W0 among those of all units, unit by unit; how many blocks it has; and its
  /// first column among those of its unit's W0.
  std::size_t first_block_index, blocks, column;
  std::size_t phase = 0;  ///< it folds in steps t with t % period == phase; give_phases() sets it
};

/// The place of a value in a row of the past: the word where its record begins, and its number
/// among the record's values.
struct InputPlace {
  std::size_t record, value;
};

/// When a block folds, and whether it is held in registers.
struct DueBlock {
  std::uint32_t phase;
  bool held;
};

/// What a warp does beside products where fp32 weights stay on the chip (resident.cuh): it finishes
/// a unit, or writes the factors of a unit's folds and reads its patch if it sees one (`reads`), or
/// only writes factors, or none of these. Warps that finish or read have no blocks of W1.
enum class Duty { finishes, reads, writes, others };

/// The program's header and its lists. Until make_absolute(), places in x, in patches' histories
/// and in the lists of products and places are relative to the starts of these.
template <class S>
struct ProgramDraft {
  Program p{};
  std::vector<ProgramUnit> units;
  std::vector<Source> sources;
  std::array<std::vector<W0Block>, S::multipliers> blocks;  ///< [warp]: blocks of W0
  std::array<std::vector<W1Block>, S::multipliers> w1;      ///< [warp]: blocks of W1
  /// [warp][phase]: how many of its blocks of W0, and of W1, fold then, for balancing.
  std::array<std::vector<unsigned>, S::multipliers> due, w1_due;
  std::vector<RowGroup> row_groups;  ///< if `reads_context`
  std::vector<Target> targets;
  /// See the fields of Program with these names.
  std::vector<std::uint32_t> folding, folding_start, first_in_pass, products, places;
  std::vector<std::uint32_t> reload;
  std::uint32_t x = 0, out = 0;  ///< words of inputs and of outputs so far, in whole blocks
  std::uint32_t patches = 0;     ///< units with patches so far

  [[nodiscard]] std::size_t block_count() const { return count(blocks); }
  [[nodiscard]] std::size_t w1_count() const { return count(w1); }

  /// The duty of warp w: first come the warps that finish, then those that read, then the rest.
  [[nodiscard]] Duty duty(std::size_t w) const {
    const std::size_t finishing = units.size();
    if (w < finishing) return Duty::finishes;
    const bool enough = finishing + patches < S::warps;
    if (enough && w < finishing + patches) return Duty::reads;
    return w < 2 * finishing ? Duty::writes : Duty::others;
  }

 private:
  template <class Lists>
  static std::size_t count(const Lists& lists) {
    std::size_t n = 0;
    for (const auto& list : lists) n += list.size();
    return n;
  }
};

}  // namespace pvm::inline v0::detail::units
