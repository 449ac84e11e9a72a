// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The tags a program composes a Trainer from: precision, batch, backend.

#include <string_view>

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// 32-bit floating point everywhere.
struct fp32 {
  static constexpr std::string_view name = "fp32";
};

/// "Decided at run time", for the batch and for the network.
inline constexpr int dynamic = -1;

/// Backends: the CPU, an NVIDIA GPU, or the GPU if one is there and the CPU otherwise.
struct host {};
struct cuda {};
struct automatic {};

/// How the updates of the sequences of a batch become one: their mean (the default: the rates of
/// a spec keep their meaning) or their sum.
enum class Reduce { mean, sum };

}  // namespace pvm::inline v0
