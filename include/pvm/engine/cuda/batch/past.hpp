// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The past of a run: converts the contents of the rings from and to a checkpoint.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pvm/engine/cuda/batch/memory.hpp>
#include <pvm/engine/cuda/batch/ring.hpp>
#include <pvm/engine/cuda/run/streams.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::batch {

/// The rings of `memory` as seen by `step`, the next step to run. In a ring, the rows of a step are
/// [n][padded]; in a checkpoint, tensors are [steps][batch][n], newest step first.
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

  /// Precondition: y of the last two steps has been computed (Steps::make_outputs).
  void save(EngineState& state) const {
    const std::size_t terms = count(memory_.shape().terms);
    save(memory_.stored_h, terms + 4, state.hidden, Stored::decode);
    save(memory_.squeezed, terms + 4, state.squeezed, M::value);
    save(memory_.pixels, terms + 4, state.frames, M::value);
    save(memory_.y, 2, state.outputs, Stored::decode);
    save(memory_.d0, terms, state.hidden_gradients, M::value);
    save(memory_.d1, terms, state.output_gradients, M::value);
  }
  /// Loads as many steps as both `state` and the rings hold. The caller has checked the sizes.
  void load(const EngineState& state) const {
    const std::size_t terms = count(std::min(memory_.shape().terms, state.plan.terms));
    load(memory_.stored_h, terms + 4, state.hidden, Stored::encode);
    load(memory_.raw, terms + 4, state.hidden,
         [](float v) { return M::operand(Stored::decode(Stored::encode(v))); });
    load(memory_.squeezed, terms + 4, state.squeezed, M::operand);
    load(memory_.pixels, terms + 4, state.frames, M::operand);
    load(memory_.y, 2, state.outputs, Stored::encode);
    load(memory_.d0, terms, state.hidden_gradients, M::operand);
    load(memory_.d1, terms, state.output_gradients, M::operand);
  }

  /// h of the last step, [batch][units][hidden].
  void read_hidden(std::span<float> out) const { read(memory_.stored_h, 1, out, Stored::decode); }
  /// y of the last step, [batch][outputs].
  void read_outputs(std::span<float> out) const { read(memory_.y, 1, out, Stored::decode); }
  /// y of the last step as the device stores it, [outputs][padded].
  [[nodiscard]] std::vector<StoredType> last_outputs() const { return rows(memory_.y, 1); }

 private:
  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  [[nodiscard]] std::size_t batch() const { return count(memory_.shape().batch); }

  template <class T>
  void fill(const Ring<T>& ring, T value) const {
    streams_.write(ring.first, std::vector<T>(ring.size(), value));
  }
  template <class T>
  [[nodiscard]] std::vector<T> rows(const Ring<T>& ring, std::uint64_t back) const {
    return streams_.download(ring.at(step_, back), ring.step_size());
  }

  template <class T, class Decode>
  void read(const Ring<T>& ring, std::uint64_t back, std::span<float> tensor, Decode decode) const {
    const std::vector<T> from = rows(ring, back);
    for (std::size_t i = 0; i < ring.rows; ++i) {
      for (std::size_t b = 0; b < batch(); ++b) {
        tensor[b * ring.rows + i] = decode(from[i * ring.padded + b]);
      }
    }
  }
  template <class T, class Encode>
  void write(const Ring<T>& ring, std::uint64_t back, std::span<const float> tensor,
             Encode encode) const {
    std::vector<T> to(ring.step_size(), encode(0.0F));
    for (std::size_t i = 0; i < ring.rows; ++i) {
      for (std::size_t b = 0; b < batch(); ++b) {
        to[i * ring.padded + b] = encode(tensor[b * ring.rows + i]);
      }
    }
    streams_.write(ring.at(step_, back), to);
  }

  /// Saves the last `steps` steps of a ring as a tensor.
  template <class T, class Decode>
  void save(const Ring<T>& ring, std::size_t steps, std::vector<float>& tensor,
            Decode decode) const {
    const std::size_t each = batch() * ring.rows;
    tensor.resize(steps * each);
    for (std::size_t age = 0; age < steps; ++age) {
      read(ring, age + 1, std::span(tensor).subspan(age * each, each), decode);
    }
  }
  template <class T, class Encode>
  void load(const Ring<T>& ring, std::size_t steps, const std::vector<float>& tensor,
            Encode encode) const {
    const std::size_t each = batch() * ring.rows;
    for (std::size_t age = 0; age < steps; ++age) {
      write(ring, age + 1, std::span(tensor).subspan(age * each, each), encode);
    }
  }

  const Memory<M>& memory_;
  const RunStreams& streams_;
  std::uint64_t step_;
};

}  // namespace pvm::inline v0::detail::batch
