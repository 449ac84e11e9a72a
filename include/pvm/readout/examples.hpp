// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Keeps some of the labelled frames of a stream, spread evenly over it, to find the threshold of
/// presence by.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::readout {

/// A labelled frame with what the network made of it.
struct Example {
  std::uint64_t index = 0;  ///< among the labelled frames
  bool present = false;
  std::vector<float> hidden;  ///< empty if the readout reads none
  std::vector<std::uint8_t> frame;
};

/// At most `most` examples: every frame at first, then every second, every fourth and so on.
class Examples {
 public:
  static constexpr std::size_t most = 256;

  void offer(bool present, std::span<const float> hidden, std::span<const std::uint8_t> frame) {
    const std::uint64_t index = count_++;
    if (index % every_ != 0) return;
    kept_.push_back({index, present, {hidden.begin(), hidden.end()}, {frame.begin(), frame.end()}});
    if (kept_.size() < most) return;
    every_ *= 2;
    std::erase_if(kept_, [this](const Example& e) { return e.index % every_ != 0; });
  }
  [[nodiscard]] const std::vector<Example>& all() const noexcept { return kept_; }
  void clear() { *this = {}; }

 private:
  std::vector<Example> kept_;
  std::uint64_t count_ = 0;
  std::uint64_t every_ = 1;
};

}  // namespace pvm::inline v0::readout
