// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The scalar functions of a unit: squeezing, activations and their derivatives.

#include <cmath>
#include <concepts>

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// c(v) = 0.8 v + 0.1 squeezes values of [0, 1] into [0.1, 0.9].
PVM_HOST_DEVICE inline float squeeze(float v) { return 0.8F * v + 0.1F; }

/// A pixel of 0 to 255 as the network sees it, c(pixel / 255). On GPUs the product is always
/// rounded before the addition, so that all engines there see the same frames. On the host the
/// compiler may fuse the two operations, which can change the last bit.
PVM_HOST_DEVICE inline float squeeze_pixel(float pixel) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(__fmul_rn(pixel, 0.8F / 255.0F), 0.1F);
#else
  return pixel * (0.8F / 255.0F) + 0.1F;
#endif
}

/// The inverse of squeeze, clamped to [0, 1]: a prediction as a pixel value.
PVM_HOST_DEVICE inline float unsqueeze(float v) {
  const float u = (v - 0.1F) * 1.25F;
  return u < 0.0F ? 0.0F : (u > 1.0F ? 1.0F : u);
}

/// An activation is a type with two static functions. `float value(float a)` maps a sum a to [0,
/// 1], because predictions are compared with pixels. `float derivative(float v)` returns the
/// derivative as a function of the activation's own value v. They are called for every value of
/// every step, on many threads: they may use nothing but their argument, and must not throw. An
/// optional `static constexpr const char* name` is stored in checkpoints. For GPUs, mark both
/// PVM_HOST_DEVICE and declare `static constexpr bool on_gpu = true` (RunsOnGpu).
template <class A>
concept ActivationFunction = requires(float v) {
  { A::value(v) } -> std::same_as<float>;
  { A::derivative(v) } -> std::same_as<float>;
};

/// f(a) = a / (2(|a|+1)) + 1/2 with the derivative of the original's GPU kernel,
/// g(v) = (1+|s|)^2 / (2 (1+2|s|)^2), s = 2v - 1. That is not f': it is a sign error of the
/// original, kept so that trajectories can be compared with those of the original. It stays within
/// [2/9, 1/2].
struct Polynomial {
  PVM_HOST_DEVICE static float value(float a) { return a / (2.0F * (std::fabs(a) + 1.0F)) + 0.5F; }
  PVM_HOST_DEVICE static float derivative(float v) {
    const float s = std::fabs(2.0F * v - 1.0F);
    const float ratio = (1.0F + s) / (1.0F + 2.0F * s);
    return 0.5F * ratio * ratio;
  }
};

/// The same function with its true derivative, f'(f^-1(v)) = (1-|s|)^2 / 2.
struct PolynomialTrue {
  PVM_HOST_DEVICE static float value(float a) { return Polynomial::value(a); }
  PVM_HOST_DEVICE static float derivative(float v) {
    const float s = 1.0F - std::fabs(2.0F * v - 1.0F);
    return 0.5F * s * s;
  }
};

/// f(a) = 1 / (1 + exp(-a)), g(v) = v (1 - v).
struct Logistic {
  PVM_HOST_DEVICE static float value(float a) { return 1.0F / (1.0F + std::exp(-a)); }
  PVM_HOST_DEVICE static float derivative(float v) { return v * (1.0F - v); }
};

}  // namespace pvm::inline v0
