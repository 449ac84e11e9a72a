// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The two numbers that a layer learns with.

namespace pvm::inline v0 {

/// Learning rate and momentum of a layer. Both are 0 until the layer is switched on.
struct Rates {
  float learning_rate = 0;
  float momentum = 0;
  bool operator==(const Rates&) const = default;
};

}  // namespace pvm::inline v0
