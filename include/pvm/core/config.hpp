// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Checks what the library needs of the compiler, so that an unsuitable one gives one clear error
/// instead of hundreds.

#include <pvm/core/version.hpp>

#if defined(_MSVC_LANG) ? (_MSVC_LANG < 202002L) : (__cplusplus < 202002L)
#error "pvm needs C++20: compile with -std=c++20, or link the CMake target pvm::pvm"
#endif

#if defined(__CUDACC_VER_MAJOR__) && \
    (__CUDACC_VER_MAJOR__ < 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ < 2))
#error "pvm needs CUDA 12.2 or later: older compilers cannot read C++20 or nlohmann_json"
#endif

/// Marks a function that host and device code both call; empty if the compiler is not nvcc.
#if defined(__CUDACC__)
#define PVM_HOST_DEVICE __host__ __device__
#else
#define PVM_HOST_DEVICE
#endif

/// Marks a function that the compiler must neither inline nor clone for particular arguments, so
/// that a program has its code only once.
#if defined(__clang__)
#define PVM_ONE_COPY [[gnu::noinline]]
#else
#define PVM_ONE_COPY [[gnu::noipa]]
#endif

/// Marks a function whose body is in a header of its own, NAME-inl.hpp. A program that links
/// pvm::compiled (which defines PVM_COMPILED) finds it in that library and does not read the body;
/// any other program compiles the body with its own files.
#if defined(PVM_COMPILED)
#define PVM_INLINE
#else
#define PVM_INLINE inline
#endif

// Everything lives in an inline namespace that carries the version, so that two libraries built
// with different versions of pvm can be linked into one program.
namespace pvm::inline v0 {}
