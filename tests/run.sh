#!/usr/bin/env bash
# Installs what is missing, builds everything, and runs the tests. GPU tests say SKIPPED without one.
#     tests/run.sh [more flags of ctest ...]
set -euo pipefail
cd "$(dirname "$0")/.."

.ci/install-packages
# Programs are built for all architectures; GPU tests and benchmarks for the GPU that is here, if one
# is, because their kernels take minutes to compile.
architectures=$(nvidia-smi >/dev/null 2>&1 && echo native || echo 90)
cmake -S . -B build/tests -G Ninja -DCMAKE_BUILD_TYPE=Release -DPVM_WERROR=ON \
      -DPVM_GPU_TEST_ARCHITECTURES="$architectures"
cmake --build build/tests
ctest --test-dir build/tests --output-on-failure --no-tests=error "$@"
