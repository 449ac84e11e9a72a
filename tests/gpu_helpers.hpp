// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Helpers for the tests of decoders on a GPU.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "io_helpers.hpp"

namespace pvm_test {

/// Whether there is no GPU; prints that the test case is skipped then.
inline bool skip_without_gpu() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  (void)cudaGetLastError();
  if (error == cudaSuccess && devices > 0) return false;
  std::printf("SKIPPED: no GPU: %s\n", cudaGetErrorString(error));
  return true;
}

struct Difference {
  int most = 0;              ///< largest difference, in grey levels
  double share_above_2 = 0;  ///< fraction of the values that differ by more than 2 grey levels
};

/// Compares the frames of two sources one by one.
inline Difference difference(const std::vector<Frame>& a, const std::vector<Frame>& b) {
  Difference d;
  std::size_t above = 0, all = 0;
  for (std::size_t f = 0; f < a.size(); ++f) {
    for (std::size_t i = 0; i < a[f].pixels.size(); ++i) {
      const int by = std::abs(a[f].pixels[i] - b[f].pixels[i]);
      d.most = std::max(d.most, by);
      above += by > 2 ? 1 : 0;
      ++all;
    }
  }
  d.share_above_2 = static_cast<double>(above) / static_cast<double>(all);
  return d;
}

}  // namespace pvm_test
