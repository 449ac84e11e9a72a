// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The engines that the library pvm::compiled holds, for programs that are compiled often: with
/// it, a file that trains a spec on the host compiles in a fraction of the time. Networks as types,
/// other batches and CUDA are compiled with the file as ever. What links pvm::compiled is set up by
/// CMake (PVM_COMPILED is defined); nothing else changes.

#include <pvm/core/tags.hpp>
#include <pvm/engine/host/engine.hpp>

#if defined(PVM_COMPILED)
namespace pvm::inline v0 {

extern template class HostEngine<1, fp32, RuntimeNetwork>;
extern template class HostEngine<1, bf16, RuntimeNetwork>;
extern template class HostEngine<1, fp16, RuntimeNetwork>;
extern template class HostEngine<dynamic, fp32, RuntimeNetwork>;
extern template class HostEngine<dynamic, bf16, RuntimeNetwork>;
extern template class HostEngine<dynamic, fp16, RuntimeNetwork>;

}  // namespace pvm::inline v0
#endif
