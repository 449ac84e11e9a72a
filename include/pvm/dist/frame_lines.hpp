// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Parts of frames on their way to the ranks that need them.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <pvm/dist/communicator.hpp>
#include <pvm/dist/partition.hpp>

namespace pvm::inline v0::dist::detail {

/// Sends the frames of a block to the ranks that need some of their lines, or receives them.
template <Communicator C>
class FrameLines {
 public:
  FrameLines(C& ranks, std::size_t frame) : ranks_(ranks), frame_(frame) {}

  /// `all`: whole frames, one after the other.
  template <class T>
  void send(int to, std::span<const T> all, const Run& lines) {
    std::vector<T> packed;
    packed.reserve(all.size() / frame_ * lines.count);
    for (std::size_t at = lines.begin; at < all.size(); at += frame_)
      packed.insert(packed.end(), all.begin() + static_cast<std::ptrdiff_t>(at),
                    all.begin() + static_cast<std::ptrdiff_t>(at + lines.count));
    ranks_.send(to, bytes_of(packed));
  }
  template <class T>
  void receive(std::span<T> all, const Run& lines) {
    std::vector<T> packed(all.size() / frame_ * lines.count);
    ranks_.receive(0, bytes_of(packed));
    auto from = packed.begin();
    for (std::size_t at = lines.begin; at < all.size(); at += frame_) {
      std::copy_n(from, lines.count, all.begin() + static_cast<std::ptrdiff_t>(at));
      from += static_cast<std::ptrdiff_t>(lines.count);
    }
  }

 private:
  C& ranks_;
  std::size_t frame_;
};

}  // namespace pvm::inline v0::dist::detail
