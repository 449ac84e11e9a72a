// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The bodies of int8_forward.hpp.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/core/error.hpp>
#include <pvm/engine/host/host_activation.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/infer/frozen_network.hpp>
#include <pvm/infer/int8_forward.hpp>
#include <pvm/infer/int8_kernels.hpp>
#include <pvm/infer/int8_pass.hpp>
#include <pvm/infer/patch_lines.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::infer {

/// h(t) = f(W0 x(t)) and, in layer 0 and if it is asked for, the part of f(W1 r(t)) that predicts
/// the unit's patch. Nothing here is compiled for an instruction set but the passes: the rounding
/// of what is computed in fp32 must not depend on the processor.
struct Int8Forward::UnitStep {
  const Int8Forward& self;
  Rooms& room;
  std::span<const Row> rows;  // at most `chunk`
  std::size_t u;

  void run() const {
    const Matrix& w0 = self.w0_[u];
    for (std::size_t b = 0; b < rows.size(); ++b) {
      gather_input(rows[b], room.x.data() + b * w0.columns);
    }
    multiply(w0);
    for (std::size_t b = 0; b < rows.size(); ++b) finish_hidden(rows[b], b);
    const bool asked = std::any_of(rows.begin(), rows.end(),
                                   [](const Row& row) { return !row.prediction.empty(); });
    if (u < self.patches_ && asked) predict(self.w1_[u]);
  }

 private:
  [[nodiscard]] static std::uint8_t* bytes_of(const Row& row) {
    return reinterpret_cast<std::uint8_t*>(row.past->values.data());
  }
  /// Copies whole groups. The excess is overwritten by what follows, or meets weights of 0.
  static std::uint8_t* append(std::uint8_t* to, const std::uint8_t* from, std::size_t n) {
    for (std::size_t i = 0; i < n; i += int8_group) std::memcpy(to + i, from + i, int8_group);
    return to + n;
  }
  void multiply(const Matrix& m) const {
    self.kernel_.run({reinterpret_cast<const std::int8_t*>(self.weights_.data()) + m.weights,
                      m.rows, m.columns, room.x.data(), rows.size(), room.sums.data(), m.rows});
  }

  void gather_input(const Row& row, std::uint8_t* x) const {
    std::uint8_t* past = bytes_of(row);
    const std::uint64_t t = row.past->step;
    if (u < self.patches_) {
      take_patch(row.frame.data(), past + self.patch_at(t, u));
      x = append(x, past + self.patch_at(t, u), self.lines_.patch);
      x = append(x, past + self.patch_at(t + 1, u), self.lines_.patch);  // of t - 1, modulo 2
    } else {
      for (const std::uint64_t step : {t + 2, t + 1}) {  // t - 1 and t - 2, modulo 3
        for (const auto s : self.net_.primary[u]) {
          x = append(x, past + self.hidden_at(step, s), self.hidden_);
        }
      }
    }
    append_context(x, past, t + 2);
  }
  void append_context(std::uint8_t* x, const std::uint8_t* past, std::uint64_t step) const {
    for (const auto s : self.net_.context[u]) {
      x = append(x, past + self.hidden_at(step, s), self.hidden_);
    }
  }

  void take_patch(const std::uint8_t* frame, std::uint8_t* out) const {
    const PatchLines& lines = self.lines_;
    for (std::size_t k = 0; k < lines.patch; k += lines.line) {
      std::memcpy(out + k, frame + lines.at(self.net_.units[u], k), lines.line);
    }
  }

  void finish_hidden(const Row& row, std::size_t b) const {
    const std::size_t n = self.hidden_;
    float* h = room.y.data();
    self.activate(self.w0_[u], room.sums.data() + b * n, h);
    std::uint8_t* to = bytes_of(row) + self.hidden_at(row.past->step, u);
    for (std::size_t i = 0; i < n; ++i) {
      to[i] = static_cast<std::uint8_t>(std::lrintf(std::clamp(h[i], 0.0F, 1.0F) * 255.0F));
    }
    if (!row.hidden.empty()) std::copy_n(h, n, row.hidden.data() + u * n);
  }

  /// r(t) = [h | hidden values of the context one step ago, if fed].
  void predict(const Matrix& w1) const {
    for (std::size_t b = 0; b < rows.size(); ++b) {
      const std::uint64_t t = rows[b].past->step;
      const std::uint8_t* past = bytes_of(rows[b]);
      std::uint8_t* r =
          append(room.x.data() + b * w1.columns, past + self.hidden_at(t, u), self.hidden_);
      if (fed()) append_context(r, past, t + 2);
    }
    multiply(w1);
    const std::size_t line = self.lines_.line;
    for (std::size_t b = 0; b < rows.size(); ++b) {
      if (rows[b].prediction.empty()) continue;
      float* y = room.y.data();
      self.activate(w1, room.sums.data() + b * w1.rows, y);
      for (std::size_t k = 0; k < self.lines_.patch; k += line) {
        float* to = rows[b].prediction.data() + self.lines_.at(self.net_.units[u], k);
        for (std::size_t i = 0; i < line; ++i) to[i] = unsqueeze(y[k + i]);
      }
    }
  }
  [[nodiscard]] bool fed() const {
    return self.net_.units[u].representation > self.net_.hidden + 1;
  }
};

PVM_INLINE Int8Forward::Int8Forward(const FrozenNetwork& network, Team& team)
    : Int8Forward(network, team, int8_kernels().front()) {}

PVM_INLINE Int8Forward::Int8Forward(const FrozenNetwork& network, Team& team,
                                    const Int8Kernel& kernel)
    : net_(make_connectome(network.spec)),
      lines_(network.spec),
      activation_(activation_of(network.spec, 0)),
      team_(team),
      kernel_(kernel),
      hidden_(static_cast<std::size_t>(net_.hidden)),
      patches_(net_.layer_start[1]),
      scales_(network.scales.size()),
      offsets_(network.offsets),
      order_(largest_first(net_)) {
  static_cast<void>(own_activation_of<void>(network.spec));
  std::transform(network.scales.begin(), network.scales.end(), scales_.begin(),
                 [](float scale) { return scale * (1.0F / 255.0F); });
  const auto padded = [](std::size_t n) { return (n + int8_group - 1) / int8_group * int8_group; };
  const auto matrices = frozen_matrices(network.spec, net_);
  std::size_t size = 0, columns = 0, rows = 0;
  for (const FrozenMatrix& matrix : matrices) {
    size += matrix.rows * padded(matrix.columns);
    columns = std::max(columns, padded(matrix.columns));
    rows = std::max(rows, matrix.rows);
  }
  if (columns > int8_most_columns) {
    throw Error(Fault::spec, "a unit of spec " + quote(network.spec.name) + " has " +
                                 std::to_string(columns) + " inputs, and sums in int8 hold " +
                                 std::to_string(int8_most_columns) +
                                 "; predict with the checkpoint itself");
  }
  require_memory(size, "this network");
  weights_ = HugeArray((size + sizeof(float) - 1) / sizeof(float));
  for (const FrozenMatrix& matrix : matrices) {
    (matrix.predicts ? w1_ : w0_).push_back(place(matrix, network));
  }
  for (int i = 0; i < team.size(); ++i) {
    Rooms room;
    room.x.resize(chunk * columns + hidden_ + lines_.patch + 2 * int8_group);
    room.sums.resize(chunk * rows);
    room.y.resize(rows);
    rooms_.push_back(std::move(room));
  }
}

PVM_INLINE Int8Forward::Matrix Int8Forward::place(const FrozenMatrix& from,
                                                  const FrozenNetwork& network) {
  const std::size_t columns = (from.columns + int8_group - 1) / int8_group * int8_group;
  const Matrix to{placed_, from.rows, columns, from.first_row};
  auto* bytes = reinterpret_cast<std::uint8_t*>(weights_.data()) + to.weights;
  for (std::size_t r = 0; r < from.rows; ++r) {
    const std::uint8_t* row = network.values.data() + from.values + r * from.columns;
    for (std::size_t c = 0; c < from.columns; c += int8_group) {
      std::memcpy(bytes + int8_index(from.rows, columns, r, c), row + c,
                  std::min(int8_group, from.columns - c));
    }
  }
  placed_ += from.rows * columns;
  return to;
}

PVM_INLINE void Int8Forward::activate(const Matrix& matrix, const std::int32_t* sums,
                                      float* out) const {
  const float* scale = scales_.data() + matrix.first_row;
  const float* offset = offsets_.data() + matrix.first_row;
  for (std::size_t r = 0; r < matrix.rows; ++r) {
    out[r] = scale[r] * static_cast<float>(sums[r]) + offset[r];
  }
  activation_.value(out, out, matrix.rows);
}

PVM_INLINE StreamPast Int8Forward::begin() const {
  StreamPast past{HugeArray(past_floats()), 0};
  std::memset(past.values.data(), 255, past_floats() * sizeof(float));
  return past;
}

PVM_INLINE void Int8Forward::step(std::span<const Row> rows) {
  next_.store(0, std::memory_order_relaxed);
  team_.run([&](int member) {
    Rooms& room = rooms_[static_cast<std::size_t>(member)];
    for (;;) {
      const std::size_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= order_.size()) return;
      for (std::size_t b = 0; b < rows.size(); b += chunk) {
        UnitStep{*this, room, rows.subspan(b, std::min(chunk, rows.size() - b)), order_[i]}.run();
      }
    }
  });
  for (const Row& row : rows) ++row.past->step;
}

PVM_INLINE std::string Int8Forward::description() const {
  return "host: " + std::to_string(team_.size()) + " threads, int8 by " + kernel_.name + ", " +
         std::to_string(placed_ / 1'000'000) + " MB of weights";
}

}  // namespace pvm::inline v0::infer
