// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The tags with which a program chooses a Trainer: precision, batch, backend.

#include <concepts>
#include <string_view>

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// fp32 weights and arithmetic.
struct fp32 {
  static constexpr std::string_view name = "fp32";
};

/// fp32 weights; products read them in 19 bits on tensor cores. GPUs only.
struct tf32 {
  static constexpr std::string_view name = "tf32";
};

/// fp32 master weights; products read a bfloat16 working copy.
struct bf16 {
  static constexpr std::string_view name = "bf16";
};

/// fp32 master weights; products read a working copy in IEEE half precision.
struct fp16 {
  static constexpr std::string_view name = "fp16";
};

/// One of the four precisions above.
template <class P>
concept PrecisionTag = std::same_as<P, fp32> || std::same_as<P, tf32> || std::same_as<P, bf16> ||
    std::same_as<P, fp16>;

/// The value of a template argument that is decided at run time: the batch, or the hidden size.
inline constexpr int dynamic = -1;

/// Backends: the CPU, an NVIDIA GPU, or the GPU if one can be used and the CPU otherwise.
struct host {};
struct cuda {};
struct automatic {};

/// How the updates of a batch's sequences are combined: their mean (the default, with which the
/// rates of a spec keep their meaning) or their sum.
enum class Reduce { mean, sum };

/// An activation or learning rule of a program's own that GPU kernels can run: it has `static
/// constexpr bool on_gpu = true`, and its functions are marked PVM_HOST_DEVICE.
template <class T>
concept RunsOnGpu = requires {
  requires T::on_gpu;
};

namespace detail {

/// The name that a spec holds for an activation or learning rule that is a type: `T::name`, or
/// "unnamed".
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
