// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The engines that the library pvm::compiled holds, for programs that are compiled often: with
/// it, a file that trains a spec on the host compiles in a fraction of the time. Networks as types,
/// other batches and CUDA are compiled with the file as ever. What links pvm::compiled is set up by
/// CMake (PVM_COMPILED is defined); nothing else changes.

#include <pvm/core/tags.hpp>
#include <pvm/engine/host/engine.hpp>

/// PVM_ENGINES(of) names them: of(batch, precision).
#define PVM_ENGINES(of) \
  of(1, fp32) of(1, bf16) of(1, fp16) of(dynamic, fp32) of(dynamic, bf16) of(dynamic, fp16)

namespace pvm::inline v0 {

#if defined(PVM_COMPILED)
#if defined(PVM_COMPILED_HERE)
#define PVM_ENGINE(batch, precision) template class HostEngine<batch, precision, RuntimeNetwork>;
#else
#define PVM_ENGINE(batch, precision) \
  extern template class HostEngine<batch, precision, RuntimeNetwork>;
#endif
PVM_ENGINES(PVM_ENGINE)
#undef PVM_ENGINE
#endif

}  // namespace pvm::inline v0

#undef PVM_ENGINES
