// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes an engine of one type. In pvm::compiled each type is compiled in a file of its own, which
/// includes no other engine.

#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::detail {

template <class E>
AnyEngine make_of(const Spec& spec, int batch, const EngineOptions& options) {
  return AnyEngine::make<E>(spec, batch, options);
}

}  // namespace pvm::inline v0::detail
