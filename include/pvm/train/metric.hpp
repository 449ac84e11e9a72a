// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The concept of a program's own metric, which Metrics adds to its lines.

#include <concepts>
#include <string>

#include <pvm/train/callback.hpp>

namespace pvm::inline v0 {

/// A metric is a type with `static constexpr const char* name`, its key in a line, and `double
/// value(const Moment&)`, which is called when a line is written: `moment.score` covers the steps
/// since the line before, and `moment.trainer` gives access to weights, predictions and activity.
/// NaN and infinity are written as null. Metrics do not influence training.
template <class M>
concept MetricType = std::copy_constructible<M> && requires(M metric, const Moment& moment) {
  { M::name } -> std::convertible_to<std::string>;
  { metric.value(moment) } -> std::convertible_to<double>;
};

}  // namespace pvm::inline v0
