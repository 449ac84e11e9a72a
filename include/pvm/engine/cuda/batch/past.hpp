// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The past of a run: converts the contents of the rings from and to a checkpoint.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <pvm/engine/cuda/batch/memory.hpp>
#include <pvm/engine/cuda/batch/ring.hpp>
#include <pvm/engine/cuda/run/streams.hpp>
#include <pvm/engine/history.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::batch {

/// The rings of `memory` as seen by `step`, the next step to run. In a ring, the rows of a step are
/// [n][padded]; in a checkpoint, tensors are [steps][batch][n], newest step first. A shard saves
/// what its own units have, and loads what all have.
template <class M>
class Past {
  using Word = typename M::Word;
  using Stored = typename M::Stored;
  using StoredType = typename Stored::Type;

 public:
  Past(const Memory<M>& memory, const RunStreams& streams, std::uint64_t step)
      : memory_(memory), streams_(streams), step_(step) {}

  /// Writes the past of a new run: all ones, except c(h) of the step before the first, which x(0)
  /// reads and which is c(1), and d0 and d1, which are 0.
  void start() const {
    fill(memory_.raw, M::operand(1.0F));
    fill(memory_.squeezed, M::operand(1.0F));
    const Ring<Word>& squeezed = memory_.squeezed;
    streams_.write(squeezed.at(step_, 1),
                   std::vector<Word>(squeezed.step_size(), M::operand(squeeze(1.0F))));
    fill(memory_.stored_h, Stored::encode(1.0F));
    fill(memory_.pixels, M::operand(1.0F));
    fill(memory_.y, Stored::encode(1.0F));
    fill(memory_.d0, Word{});
    fill(memory_.d1, Word{});
  }

  /// Exchanges a row of a history with the rings, see exchange_past(). To save, y of the last two
  /// steps must have been computed (Steps::make_outputs).
  template <class Row>
  void exchange(History which, std::uint64_t back, Row row) const {
    const Range hidden = memory_.plan().hidden_rows, outputs = memory_.plan().output_rows;
    switch (which) {
      case History::hidden:
        if constexpr (loads<Row>) exchange<RoundedTwice>(memory_.raw, hidden, back, row);
        return exchange<Stored>(memory_.stored_h, hidden, back, row);
      case History::squeezed:
        return exchange<Operand>(memory_.squeezed, hidden, back, row);
      case History::frames:
        return exchange<Operand>(memory_.pixels, {0, memory_.pixels.rows}, back, row);
      case History::outputs:
        return exchange<Stored>(memory_.y, outputs, back, row);
      case History::hidden_gradients:
        return exchange<Operand>(memory_.d0, hidden, back, row);
      case History::output_gradients:
        return exchange<Operand>(memory_.d1, outputs, back, row);
    }
  }

  /// h of the last step, [batch][units][hidden].
  void read_hidden(std::span<float> out) const { exchange(History::hidden, 1, out); }
  /// y of the last step, [batch][outputs].
  void read_outputs(std::span<float> out) const { exchange(History::outputs, 1, out); }
  /// y of the last step as the device stores it, [outputs][padded].
  [[nodiscard]] std::vector<StoredType> last_outputs() const { return rows(memory_.y, 1); }

 private:
  /// A code (see exchange_value) of operands, and of those that are made of stored values.
  struct Operand {
    static Word encode(float value) { return M::operand(value); }
    static float decode(Word own) { return M::value(own); }
  };
  struct RoundedTwice {
    static Word encode(float value) { return M::operand(Stored::decode(Stored::encode(value))); }
  };
  /// Whether a row is read, to be written to the rings.
  template <class Row>
  static constexpr bool loads = std::is_const_v<typename Row::element_type>;

  [[nodiscard]] std::size_t batch() const {
    return static_cast<std::size_t>(memory_.shape().batch);
  }

  template <class T>
  void fill(const Ring<T>& ring, T value) const {
    streams_.write(ring.first, std::vector<T>(ring.size(), value));
  }
  template <class T>
  [[nodiscard]] std::vector<T> rows(const Ring<T>& ring, std::uint64_t back) const {
    return streams_.download(ring.at(step_, back), ring.step_size());
  }

  /// `saved`: the rows that are saved; all are loaded.
  template <class Code, class T, class Row>
  void exchange(const Ring<T>& ring, Range saved, std::uint64_t back, Row row) const {
    std::vector<T> own;
    if constexpr (loads<Row>) {
      own.assign(ring.step_size(), Code::encode(0.0F));
      saved = {0, ring.rows};
    } else {
      own = rows(ring, back);
    }
    for (std::size_t i = saved.first; i < saved.end; ++i) {
      for (std::size_t b = 0; b < batch(); ++b) {
        exchange_value<Code>(row[b * ring.rows + i], own[i * ring.padded + b]);
      }
    }
    if constexpr (loads<Row>) streams_.write(ring.at(step_, back), own);
  }

  const Memory<M>& memory_;
  const RunStreams& streams_;
  std::uint64_t step_;
};

}  // namespace pvm::inline v0::detail::batch
