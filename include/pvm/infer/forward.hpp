// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What runs the steps of frozen networks: steps of any streams together, each with a past of its
/// own, where an engine runs all sequences of its batch.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <pvm/engine/host/memory.hpp>
#include <pvm/infer/gpu_values.hpp>

namespace pvm::inline v0::infer {

/// The past of a stream: what the network's next step on it reads. What the values mean and in
/// which order they are is the Forward's business.
struct StreamPast {
  HugeArray values;
  std::uint64_t step = 0;  ///< steps done
};

/// A stream's part of a step. The spans of results may be empty: then they are not computed.
struct Row {
  StreamPast* past = nullptr;
  std::span<const std::uint8_t> frame;  ///< [side][side][channels]
  std::span<float> prediction;  ///< of the frame two steps ahead, [side][side][channels] in [0, 1]
  std::span<float> hidden;      ///< [units][hidden]
  /// For a Forward with GpuMemory: the frame that is there, instead of `frame`, and where results
  /// go that stay there; null: they are not asked for.
  ArrivingFrame gpu_frame{};
  float* gpu_prediction = nullptr;
  float* gpu_hidden = nullptr;
};

/// Where a Forward on a GPU is, and how large its steps are.
struct GpuPlace {
  int device = -1;       ///< the GPU's number, which becomes the current one; -1: the current one
  std::size_t rows = 1;  ///< the most of a step
};

/// What may be done beside a step, on the thread that runs it.
class Beside {
 public:
  Beside() = default;
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  virtual ~Beside() = default;

  /// The step has begun.
  virtual void begun() = 0;
  /// Its hidden values are there, perhaps before its predictions. After `begun`.
  virtual void has_hidden() = 0;
};

/// Runs steps of a frozen network. A row's results depend on its past and its frame only, not on
/// the rows beside it, bit by bit.
class Forward {
 public:
  Forward() = default;
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;
  virtual ~Forward() = default;

  /// The past of a stream that begins: that of a new run.
  [[nodiscard]] virtual StreamPast begin() const = 0;
  /// Bytes of a stream's past.
  [[nodiscard]] virtual std::size_t past_bytes() const = 0;
  /// The largest number of rows of a step.
  [[nodiscard]] virtual std::size_t most_rows() const = 0;
  /// One step of every row; no two have the same past.
  virtual void step(std::span<const Row> rows) = 0;
  /// The same, with work beside it.
  virtual void step(std::span<const Row> rows, Beside& beside) {
    step(rows);
    beside.begun();
    beside.has_hidden();
  }
  /// `past` will not be used any more.
  virtual void forget(StreamPast& past) = 0;
  /// Where frames may be and results may stay, besides the host; null: nowhere.
  [[nodiscard]] virtual GpuMemory* gpu_memory() { return nullptr; }
  /// For logs: what runs where.
  [[nodiscard]] virtual std::string description() const = 0;
};

}  // namespace pvm::inline v0::infer
