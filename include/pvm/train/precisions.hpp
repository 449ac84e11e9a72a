// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Precisions by name, for programs that choose one at run time.

#include <string>
#include <string_view>

#include <pvm/core/error.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/core/tags.hpp>

namespace pvm::inline v0 {

/// Returns `work.operator()<Precision>()` for the precision of that name. Throws Error
/// (Fault::usage) if there is none.
template <class Work>
decltype(auto) with_precision(std::string_view name, Work&& work) {
  if (name == fp32::name) return work.template operator()<fp32>();
  if (name == tf32::name) return work.template operator()<tf32>();
  if (name == bf16::name) return work.template operator()<bf16>();
  if (name == fp16::name) return work.template operator()<fp16>();
  throw Error(Fault::usage, "the precision " + quote(std::string(name)) +
                                " is unknown; allowed: fp32, tf32, bf16, fp16");
}

}  // namespace pvm::inline v0
