// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The exchange of what units send between host engines, by a communicator.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <pvm/dist/communicator.hpp>
#include <pvm/engine/unit_exchange.hpp>

namespace pvm::inline v0::dist {

/// Rank r computes the units from starts[r] up to starts[r + 1].
template <Communicator C>
class HostExchange final : public UnitExchange {
 public:
  HostExchange(C& ranks, std::vector<std::size_t> starts)
      : UnitExchange(starts[static_cast<std::size_t>(ranks.rank())],
                     starts[static_cast<std::size_t>(ranks.rank()) + 1], starts.back()),
        ranks_(ranks),
        starts_(std::move(starts)) {}

  void start() noexcept override { gather_->start(); }
  void progress() noexcept override { gather_->progress(); }
  [[nodiscard]] bool finish() noexcept override { return gather_->finish(); }
  void check() override { ranks_.check(); }

 private:
  void connect() override {
    std::vector<std::size_t> bytes = starts_;
    for (std::size_t& start : bytes) start *= each() * sizeof(float);
    gather_.emplace(ranks_, bytes_of(all_values()), bytes);
  }

  C& ranks_;
  std::vector<std::size_t> starts_;
  std::optional<typename C::Gather> gather_;
};

}  // namespace pvm::inline v0::dist
