// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The exchange of hidden values between host engines, by a communicator.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pvm/dist/communicator.hpp>
#include <pvm/engine/unit_exchange.hpp>

namespace pvm::inline v0::dist {

/// Rank r computes the units from starts[r] up to starts[r + 1].
template <Communicator C>
class HostExchange final : public UnitExchange {
 public:
  HostExchange(C& ranks, const std::vector<std::size_t>& starts, std::size_t hidden, int batch)
      : UnitExchange(starts[static_cast<std::size_t>(ranks.rank())],
                     starts[static_cast<std::size_t>(ranks.rank()) + 1], starts.back(), hidden,
                     static_cast<std::size_t>(batch)),
        ranks_(ranks),
        gather_(ranks, bytes_of(all_values()), in_bytes(starts)) {}

  void start() noexcept override { gather_.start(); }
  void progress() noexcept override { gather_.progress(); }
  [[nodiscard]] bool finish() noexcept override { return gather_.finish(); }
  void check() override { ranks_.check(); }

 private:
  [[nodiscard]] std::vector<std::size_t> in_bytes(std::vector<std::size_t> starts) const {
    for (std::size_t& start : starts) start *= each() * sizeof(float);
    return starts;
  }

  C& ranks_;
  typename C::Gather gather_;
};

}  // namespace pvm::inline v0::dist
