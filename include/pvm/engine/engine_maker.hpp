// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes engines for a Trainer that is not to choose one itself.

#include <string_view>

#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/backend_choice.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// Makes engines for specs, such as one whose units several processes compute (dist/group.hpp).
class EngineMaker {
 public:
  virtual ~EngineMaker() = default;
  /// An engine for `batch` sequences, whose products read weights in the precision of that name, on
  /// the backend that is `wanted`. Throws what the engine's constructor throws.
  virtual AnyEngine make(const Spec& spec, int batch, std::string_view precision,
                         const EngineOptions& options, BackendChoice wanted) = 0;
};

}  // namespace pvm::inline v0
