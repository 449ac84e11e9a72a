// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The device memory of a run, except for the staging of frames (run/staging.hpp).

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/batch/frames.cuh>
#include <pvm/engine/cuda/batch/plan/plan.hpp>
#include <pvm/engine/cuda/batch/plan/scheme.hpp>
#include <pvm/engine/cuda/batch/plan/tables.hpp>
#include <pvm/engine/cuda/batch/ring.hpp>
#include <pvm/engine/cuda/batch/tuning.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/run/most_shards.hpp>
#include <pvm/engine/cuda/run/streams.hpp>
#include <pvm/engine/memory_part.hpp>

namespace pvm::inline v0::detail::batch {

/// The arrays, with the sizes that a scheme and its plan require. `Arguments` documents their
/// contents.
template <class M>
class Memory {
  template <class T>
  using Array = DeviceArray<T>;
  using Word = typename M::Word;
  using Stored = typename M::Stored::Type;

 public:
  // Tables of the plan.
  Array<std::uint32_t> rows, sweep_tiles, sweep_starts;
  Array<Product> products;
  Array<Tile> tiles;
  // Weights. `states`: the learning rule's floats; `weights_out`: receives W when it is read.
  Array<float> master, weights_out, states;
  Array<std::uint32_t> working_copies;
  // The past. The first line's rings lie in the arena, from which kernels gather rows.
  Ring<Word> squeezed, raw, pixels, d0, d1;
  Ring<Stored> stored_h, y;
  // Other inputs and results of steps; `persistence_errors`: see Uploaded in frames.cuh.
  Array<float> tables, table_override, persistence_errors, scratch;
  Array<std::uint8_t> scored;
  Array<unsigned int> counters;
  Array<double> score;
  Array<StepStart> step_start;
  Array<StepCursor> cursors;    ///< [0]: the run's; [1]: for tasks outside of steps
  Array<unsigned int> arrived;  ///< of a shard: [most_shards], see batch/exchange.cuh

  /// Allocates nothing yet. `hidden`: hidden values of a unit; `table`: floats of a step's table.
  Memory(const Scheme& scheme, const Plan& plan, int hidden, std::size_t table)
      : scheme_(scheme), plan_(plan), hidden_(hidden), shape_(scheme.shape) {
    shape_.columns = plan.columns;
    shape_.table = static_cast<int>(table);
  }

  /// The plan whose tables these are.
  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
  /// The scheme's shape with `columns` and `table` filled in.
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  /// Number of StepStarts: in a sweep one for each thread block, else 1.
  [[nodiscard]] std::size_t step_starts() const {
    return scheme_.swept ? plan_.sweep_starts.size() - 1 : 1;
  }

  /// Bytes of device memory that `allocate` takes.
  [[nodiscard]] std::size_t bytes() const { return sum_of(parts()); }
  /// The same by purpose.
  [[nodiscard]] MemoryParts parts() const {
    MemoryParts parts;
    const auto add = [&](const char* purpose, std::size_t bytes) {
      if (parts.empty() || parts.back().purpose != purpose) parts.push_back({purpose, 0});
      parts.back().bytes += bytes;
    };
    visit_tables(*this, [&](const auto& array, const auto& from) {
      add("plan", from.size() * sizeof(*array.get()));
    });
    visit_zeros(*this, [&](const auto& array, std::size_t n, const char* purpose) {
      add(purpose, n * sizeof(*array.get()));
    });
    std::erase_if(parts, [](const MemoryPart& part) { return part.bytes == 0; });
    return parts;
  }
  void allocate(const RunStreams& streams) {
    visit_tables(*this, [&](auto& array, const auto& from) { streams.allocate(array, from); });
    visit_zeros(*this,
                [&](auto& array, std::size_t n, const char*) { streams.allocate_zeros(array, n); });
    lay_out_rings();
    streams.write(ones_, std::vector<Word>(padded(), M::operand(1.0F)));
  }

  /// The arguments of the kernels.
  [[nodiscard]] Arguments arguments() const {
    Arguments a{};
    a.shape = shape_;
    describe_plan(a);
    describe_weights(a);
    describe_past(a);
    a.tables = tables.get();
    a.scored = scored.get();
    a.scratch = scratch.get();
    a.scratch_slice = plan_.scratch * panel_width * count(shape_.slice);
    a.counters = counters.get();
    a.counter_slice = static_cast<unsigned int>(plan_.counters);
    a.score = score.get();
    a.score_slice = static_cast<unsigned int>(plan_.scores);
    a.step_start = step_start.get();
    a.update_cursor = cursors.get();
    return a;
  }

 private:
  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  static unsigned char* bytes_at(auto* p) { return reinterpret_cast<unsigned char*>(p); }

  // Sizes. Words are elements of `Word` or `Stored`; in `working_copy_words` and `swept_copy_words`
  // they are 32 bits.

  [[nodiscard]] std::size_t padded() const { return count(shape_.padded); }
  [[nodiscard]] std::size_t slices() const { return count(shape_.padded / shape_.slice); }
  [[nodiscard]] std::size_t hidden_words() const {
    return count(shape_.ring) * count(shape_.hidden) * padded();
  }
  [[nodiscard]] std::size_t pixel_words() const {
    return count(shape_.frames) * count(shape_.pixels) * padded();
  }
  [[nodiscard]] std::size_t output_words() const { return count(shape_.outputs) * padded(); }
  [[nodiscard]] std::size_t arena_words() const {
    const std::size_t gradients = count(shape_.hidden) * padded() + output_words();
    return 2 * hidden_words() + pixel_words() + padded() + count(shape_.terms) * gradients;
  }
  [[nodiscard]] std::size_t working_copy_words() const {
    if (scheme_.swept) return y_slots * swept_copy_words();
    return (plan_.w0_blocks + 2 * plan_.w1_blocks) * block_words;
  }
  /// Words of one version of the copies of all swept W1.
  [[nodiscard]] std::size_t swept_copy_words() const { return plan_.copies * copy_words; }
  /// Number of scores, of three sums each.
  [[nodiscard]] std::size_t score_count() const {
    if (!scheme_.swept) return plan_.scores * slices();
    // every consumer warp has its own
    return (plan_.sweep_starts.size() - 1) * count(sweep_consumer_warps);
  }
  /// Floats for the errors of repeating the frames of a block. Without a sweep there are none: the
  /// products kernel scores repetition where it computes d1. Of several shards the first one scores
  /// it.
  [[nodiscard]] std::size_t persistence_error_count() const {
    if (!scheme_.swept || plan_.units.first > 0) return 0;
    return count(Tuning::block_steps(shape_.padded)) * tiles_along(shape_) * tiles_across(shape_);
  }
  [[nodiscard]] std::size_t scratch_floats() const {
    if (scheme_.swept) return plan_.scratch * sweep_part_floats(shape_.padded);
    return plan_.scratch * panel_width * padded();
  }

  /// Calls visit(array, vector with its contents).
  template <class Self, class Visit>
  static void visit_tables(Self& m, Visit&& visit) {
    visit(m.rows, m.plan_.rows);
    visit(m.products, m.plan_.products);
    visit(m.tiles, m.plan_.tiles);
    if (!m.scheme_.swept) return;
    visit(m.sweep_tiles, m.plan_.sweep_tiles);
    visit(m.sweep_starts, m.plan_.sweep_starts);
  }
  /// Calls visit(array, length, what for) for the arrays that start as zeros.
  template <class Self, class Visit>
  static void visit_zeros(Self& m, Visit&& visit) {
    constexpr const char *past = "past of activity and gradients", *tables = "tables of a step",
                         *sums = "sums and scores";
    visit(m.master, m.plan_.master, "weights");
    visit(m.states, m.plan_.master * count(m.scheme_.rule_floats), "momentum");
    visit(m.working_copies, m.working_copy_words(), "weights in the precision of products");
    visit(m.weights_out, m.plan_.master, "weights to be read");
    visit(m.stored_h_, m.hidden_words(), past);
    visit(m.arena_, m.arena_words(), past);
    visit(m.y_, y_slots * m.output_words(), past);
    visit(m.tables, count(m.shape_.frames) * count(m.shape_.table), tables);
    visit(m.table_override, count(m.shape_.table), tables);
    visit(m.scored, count(m.shape_.frames) * m.padded(), sums);
    visit(m.persistence_errors, m.persistence_error_count(), sums);
    visit(m.scratch, m.scratch_floats(), sums);
    visit(m.counters, m.plan_.counters * m.slices(), sums);
    visit(m.score, m.score_count() * 3, sums);
    visit(m.step_start, m.step_starts(), sums);
    visit(m.cursors, std::size_t{2}, sums);
    visit(m.arrived, m.plan_.whole ? 0 : count(most_shards), sums);
  }

  void lay_out_rings() {
    const auto lay_out = [&]<class T>(Ring<T>& ring, T* first, int slots, int rows_of_a_step) {
      ring = {first, count(slots), count(rows_of_a_step), padded()};
      return first + ring.size();
    };
    const Shape& s = shape_;
    lay_out(stored_h, stored_h_.get(), s.ring, s.hidden);
    lay_out(y, y_.get(), y_slots, s.outputs);
    Word* next = lay_out(squeezed, arena_.get(), s.ring, s.hidden);
    next = lay_out(raw, next, s.ring, s.hidden);
    ones_ = lay_out(pixels, next, s.frames, s.pixels);
    next = lay_out(d0, ones_ + padded(), s.terms, s.hidden);
    lay_out(d1, next, s.terms, s.outputs);
  }

  void describe_plan(Arguments& a) const {
    a.products = products.get();
    a.tiles = tiles.get();
    a.tile_count = static_cast<unsigned int>(plan_.tiles.size());
    a.sweep_tiles = bytes_at(sweep_tiles.get());
    a.sweep_starts = sweep_starts.get();
    a.sum_rows = hidden_;
    a.rows = rows.get();
  }
  void describe_weights(Arguments& a) const {
    a.master = master.get();
    a.states = states.get();
    a.weight_count = plan_.master;
    a.working_copies = working_copies.get();
    a.copy_stride = scheme_.swept ? swept_copy_words() : plan_.w1_blocks * block_words;
    a.weights_out = weights_out.get();
  }
  void describe_past(Arguments& a) const {
    a.arena = bytes_at(arena_.get());
    a.squeezed = bytes_at(squeezed.first);
    a.raw = bytes_at(raw.first);
    a.pixels = bytes_at(pixels.first);
    a.ones = bytes_at(ones_);
    a.d0 = bytes_at(d0.first);
    a.d1 = bytes_at(d1.first);
    a.stored_h = bytes_at(stored_h.first);
    a.y = bytes_at(y.first);
  }

  const Scheme& scheme_;
  const Plan& plan_;
  int hidden_;
  Shape shape_;
  Array<Word> arena_;
  Array<Stored> stored_h_, y_;
  Word* ones_ = nullptr;
};

}  // namespace pvm::inline v0::detail::batch
