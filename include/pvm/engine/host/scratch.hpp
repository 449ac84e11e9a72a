// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Scratch memory for the step of a unit.

#include <algorithm>
#include <cstddef>
#include <vector>

#include <pvm/engine/host/host_network.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0 {

/// The scratch memory of one thread, large enough for any unit. "terms" are listed gradients times
/// batch.
class Scratch {
 public:
  explicit Scratch(const HostNetwork& n) {
    const std::size_t batch = n.past.batch();
    const std::size_t listed = n.past.terms() * batch;
    std::size_t inputs = 0, outputs = 0, representation = 0;
    for (const Unit& unit : n.net.units) {
      inputs = std::max(inputs, n.layout.padded(static_cast<std::size_t>(unit.inputs)));
      outputs = std::max(outputs, n.layout.padded(static_cast<std::size_t>(unit.outputs)));
      representation =
          std::max(representation, simd::padded(static_cast<std::size_t>(unit.representation)));
    }
    const std::size_t slack = n.past.slack();
    x = HugeArray(batch * inputs + slack);
    r = HugeArray(batch * representation + slack);
    sums = HugeArray(batch * n.past.stride());
    backpropagated = HugeArray(batch * representation);
    d1 = HugeArray(batch * outputs);
    y = HugeArray(batch * outputs);
    products = HugeArray(n.squeezed_products.size());
    term_inputs = HugeArray(listed * std::max(inputs, representation) + slack);
    factors = HugeArray(std::max(n.past.stride(), representation) * listed);
    if (!n.updates_immediately()) {
      term_q = HugeArray(batch * listed);
      term_dot = HugeArray(batch * listed);
    }
    term_row.reserve(listed);
    row.reserve(std::max(representation, listed));
  }

  HugeArray x;                         // [batch][padded inputs]
  HugeArray r;                         // [batch][padded representation]
  HugeArray sums;                      // [batch][stride]: W0 x
  HugeArray backpropagated;            // [batch][padded representation]: W1^T d1
  HugeArray d1, y;                     // [batch][padded outputs]
  HugeArray products;                  // [batch][age][batch]: x . x_j or r . r_j
  HugeArray term_inputs;               // [folding terms][padded row]: x_j; or one r_j
  HugeArray factors;                   // [rows][folding terms]: coefficient times d0_j or r_j
  HugeArray term_q, term_dot;          // [batch][listed terms]: w_j (r . r_j); d1_j . d1
  std::vector<const float*> term_row;  // [folding terms]: x_j or d1_j
  std::vector<float*> row;             // [listed terms]: d1_j
};

}  // namespace pvm::inline v0
