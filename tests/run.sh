#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# Installs what is missing, builds everything, and runs the tests. GPU tests say SKIPPED without one.
#     tests/run.sh [more flags of ctest ...]
set -euo pipefail
cd "$(dirname "$0")/.."

.ci/install-packages
# Built to test, not to be fast: only the engines of the host are optimised. (nvcc's -O3 is for the
# host's code of a file, too, and takes a third of its time.) The kernels of all engines are in
# pvm::compiled, once, for Hopper, or for the GPU that is here, if one is. What is compiled for
# older GPUs, to PTX, the assembler's language, are some of them (pvm_older_gpus) and the tests that have
# kernels of their own; the slowest of these are not compiled where they cannot run. Tests labelled slow
# are left to `ctest -L slow`.
gpu=OFF library=90a-real programs=80-virtual kernels="-Xcompiler=-O1 -DNDEBUG"
if nvidia-smi >/dev/null 2>&1; then
  gpu=ON library=native kernels="-O3 -DNDEBUG"
  # Hopper's own instructions are tested where they can run: nvcc takes the GPU for a plain 90.
  if nvidia-smi --query-gpu=compute_cap --format=csv,noheader | grep -qx 9.0; then library=90a-real; fi
  programs=$library
else
  # Kernels that nobody runs are compiled as fast as nvcc can (from CUDA 12.8 on), in half the time.
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  if [[ $("$nvcc" --help 2>/dev/null || true) == *--Ofast-compile* ]]; then kernels+=" -Ofc=max"; fi
fi
cmake -S . -B build/tests -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" \
      -DCMAKE_CUDA_FLAGS_RELEASE="$kernels" -DCMAKE_CUDA_ARCHITECTURES="$library" \
      -DPVM_PROGRAM_ARCHITECTURES="$programs" -DPVM_WERROR=ON \
      -DPVM_COMPILED_OPTIONS=-O2 -DPVM_SLOW_GPU_TESTS="$gpu"
cmake --build build/tests
ctest --test-dir build/tests --output-on-failure --no-tests=error -LE slow -j "$(nproc)" "$@"
