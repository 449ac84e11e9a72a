// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What engines see of the other ranks, by a communicator.

#include <cstddef>
#include <functional>
#include <span>

#include <pvm/dist/communicator.hpp>
#include <pvm/engine/other_ranks.hpp>

namespace pvm::inline v0::dist {

/// `ranks` must outlive it.
template <Communicator C>
class RanksBy final : public OtherRanks {
 public:
  explicit RanksBy(C& ranks) : ranks_(ranks) {}

  [[nodiscard]] int rank() const noexcept override { return ranks_.rank(); }
  [[nodiscard]] int size() const noexcept override { return ranks_.size(); }
  void broadcast(std::span<std::byte> bytes) override { ranks_.broadcast(bytes); }
  void send(int to, std::span<const std::byte> bytes) override { ranks_.send(to, bytes); }
  void receive(int from, std::span<std::byte> bytes) override { ranks_.receive(from, bytes); }
  void wait_until(const std::function<bool()>& done) override { ranks_.wait_until(done); }

 private:
  C& ranks_;
};

}  // namespace pvm::inline v0::dist
