// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the library pvm::compiled holds: the engines for specs, on the host and (if nvcc was there)
/// on the GPU, the loop of `fit`, specs and checkpoints as files, and metrics. A program that links
/// it compiles in seconds, and trains on the GPU even if no file of it is compiled by nvcc. Networks
/// as types are compiled with the program as ever. What links pvm::compiled is set up by CMake
/// (PVM_COMPILED is defined); nothing else changes.
///
/// This header has the host engines' classes, for programs that use them without a Trainer;
/// engine/choose.hpp has the functions that make engines.

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
