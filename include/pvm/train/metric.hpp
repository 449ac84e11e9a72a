// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Measurements of a program's own, in the lines that Metrics writes.

#include <concepts>
#include <string>

#include <pvm/train/callback.hpp>

namespace pvm::inline v0 {

/// A metric is a type with `static constexpr const char* name`, its key in a line, and
/// `double value(const Moment&)`, called where a line is written: `moment.score` is of the steps
/// since the line before, `moment.trainer` gives weights, predictions and activity. NaN and
/// infinite are written as null. What it does changes no result.
template <class M>
concept MetricType = std::copy_constructible<M> && requires(M metric, const Moment& moment) {
  { M::name } -> std::convertible_to<std::string>;
  { metric.value(moment) } -> std::convertible_to<double>;
};

}  // namespace pvm::inline v0
