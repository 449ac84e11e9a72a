// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// What a unit computes, in a kernel of the program's own. (Training takes minutes to compile.)

#include <cmath>
#include <cstdio>
#include <string>

#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::Input<12, 1, 3>, pvm::Layers<4, 2, 1>, pvm::Hidden<4>,
                         pvm::Activation<pvm::Logistic>>;

__global__ void activate(float* v) { *v = Net::activation::value(*v); }

int main() {
  std::string why;
  if (!pvm::cuda_available(&why)) {
    std::printf("%d hidden values; no GPU can be used: %s\n", Net::hidden, why.c_str());
    return 0;
  }
  float v = 0.5F;
  float* device = nullptr;
  cudaMalloc(&device, sizeof v);
  cudaMemcpy(device, &v, sizeof v, cudaMemcpyDefault);
  activate<<<1, 1>>>(device);
  cudaMemcpy(&v, device, sizeof v, cudaMemcpyDefault);
  cudaFree(device);
  return std::fabs(v - Net::activation::value(0.5F)) < 1e-6F ? 0 : 1;
}
