// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Specs as JSON: refused with a sentence, or a spec that is written and read as the same one.

#include <pvm/model/json.hpp>

#include "fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::expect([&] {
    pvm::Spec spec = pvm::parse_spec(fuzz::text_of(data, size), "the spec");
    pvm::validate(spec, "the spec");
    pvm::Spec again = pvm::parse_spec(pvm::to_json_text(spec), "the spec, written");
    again.name = spec.name;
    fuzz::require(again == spec, "a written spec is the same");
  });
  return 0;
}
