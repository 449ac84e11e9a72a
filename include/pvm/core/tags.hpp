// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The tags a program composes a Trainer from: precision, batch, backend.

#include <concepts>
#include <string_view>

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// 32-bit floating point everywhere.
struct fp32 {
  static constexpr std::string_view name = "fp32";
};

/// tf32: fp32 with products on tensor cores in 19 bits (GPUs only).
struct tf32 {
  static constexpr std::string_view name = "tf32";
};

/// bfloat16 products, fp32 master weights.
struct bf16 {
  static constexpr std::string_view name = "bf16";
};

/// IEEE half products, fp32 master weights.
struct fp16 {
  static constexpr std::string_view name = "fp16";
};

/// One of the four.
template <class P>
concept PrecisionTag = std::same_as<P, fp32> || std::same_as<P, tf32> || std::same_as<P, bf16> ||
    std::same_as<P, fp16>;

/// "Decided at run time", for the batch and for the network.
inline constexpr int dynamic = -1;

/// Backends: the CPU, an NVIDIA GPU, or the GPU if one is there and the CPU otherwise.
struct host {};
struct cuda {};
struct automatic {};

/// How the updates of the sequences of a batch become one: their mean (the default: the rates of
/// a spec keep their meaning) or their sum.
enum class Reduce { mean, sum };

/// An activation or a learning rule of a program's own that kernels run: it says so by
/// `static constexpr bool on_gpu = true`, and its functions are PVM_HOST_DEVICE.
template <class T>
concept RunsOnGpu = requires {
  requires T::on_gpu;
};

namespace detail {

/// The name under which a type of the program's own is kept with a spec.
template <class T>
constexpr std::string_view own_name() {
  if constexpr (requires {
                  { T::name } -> std::convertible_to<std::string_view>;
                }) {
    return T::name;
  } else {
    return "unnamed";
  }
}

}  // namespace detail

}  // namespace pvm::inline v0
