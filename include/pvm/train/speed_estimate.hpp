// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How fast a run would be on a GPU that is not there: an estimate from what was measured on an
/// H200 (docs/performance.md).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include <pvm/engine/device_plan.hpp>

namespace pvm::inline v0 {

namespace detail {

/// Microseconds of a step on an H200: a chain of dependent parts, and the passes over a million
/// weights.
struct StepTime {
  double chain = 0, million = 0;
};

/// What engines of one sequence take. `engine`: a DevicePlan's.
inline StepTime step_time_of_one(const std::string& engine, std::string_view precision) {
  const bool fp32 = precision == "fp32";
  if (engine.find("all weights streamed") != std::string::npos) {
    if (fp32) return {0, 1.29};
    if (engine.find("outputs that read the context") != std::string::npos) return {0, 0.8};
    return {0, precision == "bf16" ? 0.65 : 0.75};
  }
  if (engine.find("whole units") != std::string::npos) {
    return fp32 ? StepTime{9.5, 0.29} : StepTime{7.4, 0.03};
  }
  return {12, fp32 ? 1.85 : 1.0};  // the general engine
}

/// What the engine for batches takes.
inline StepTime step_time_of_batch(const std::string& engine, std::string_view precision,
                                   int batch) {
  struct Measured {
    int batch;
    double swept, half, tf32, fp32;  ///< us for a million weights: two in 16 bits
  };
  constexpr Measured all[] = {
      {16, 3.0, 5.2, 8.4, 11.4}, {64, 3.2, 6.5, 14, 15.3}, {256, 6.5, 12, 27, 36.7}};
  const auto of = [&](const Measured& m) {
    if (precision == "fp32") return m.fp32;
    if (precision == "tf32") return m.tf32;
    return engine.find("swept") != std::string::npos ? m.swept : m.half;
  };
  const Measured* above = std::begin(all);
  while (std::next(above) != std::end(all) && above->batch < batch) ++above;
  if (above == std::begin(all)) return {8, of(*above)};
  if (batch > above->batch) return {8, of(*above) * batch / above->batch};
  const Measured& below = above[-1];
  const double part =
      static_cast<double>(batch - below.batch) / static_cast<double>(above->batch - below.batch);
  return {8, of(below) + part * (of(*above) - of(below))};
}

}  // namespace detail

/// About how many frames a second of all sequences a run has on `gpu` whose engine has made `plan`.
/// `weights`: of the network. On an H200 it is within a third of what was measured for the networks
/// of the model zoo; for other GPUs the passes over the weights are scaled by the bandwidth of the
/// memory, and nobody has measured how good that is.
inline double estimate_frames(const DevicePlan& plan, const GpuModel& gpu,
                              std::string_view precision, std::size_t weights, int batch) {
  const bool many = plan.engine.find("batch engine") != std::string::npos;
  const detail::StepTime time = many ? detail::step_time_of_batch(plan.engine, precision, batch)
                                     : detail::step_time_of_one(plan.engine, precision);
  const double slower = gpu_models.front().bandwidth / gpu.bandwidth;
  const double pass = time.million * static_cast<double>(weights) / 1e6 * slower;
  return 1e6 * batch / (time.chain + pass);
}

}  // namespace pvm::inline v0
