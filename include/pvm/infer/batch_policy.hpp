// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// When frames of several streams become a step, and how many.

#include <chrono>

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// How much a frame hurries. Of the frames that wait, the more urgent come first; a critical one
/// waits for no others to fill a step.
enum class Priority { low, normal, critical };

/// A step takes the frames of at most `most` streams. It begins when that many have a frame, when
/// all open streams have one, when one is critical, or when the oldest has waited for `wait`.
struct BatchPolicy {
  int most = 16;
  std::chrono::microseconds wait{0};
};

/// Frames wait for nothing but the step that runs, and steps are short.
struct Latency : BatchPolicy {
  constexpr explicit Latency(int frames = 16) : BatchPolicy{frames, std::chrono::microseconds{0}} {}
};

/// Steps are large, so that each weight is read for many frames: frames wait for others.
struct Throughput : BatchPolicy {
  constexpr explicit Throughput(int frames = 256,
                                std::chrono::microseconds longest = std::chrono::milliseconds{5})
      : BatchPolicy{frames, longest} {}
};

}  // namespace pvm::inline v0
