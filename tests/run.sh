#!/usr/bin/env bash
# Installs what is missing, builds everything, and runs the tests. GPU tests say SKIPPED without one.
#     tests/run.sh [more flags of ctest ...]
set -euo pipefail
cd "$(dirname "$0")/.."

.ci/install-packages
cmake -S . -B build/tests -G Ninja -DCMAKE_BUILD_TYPE=Release -DPVM_WERROR=ON
cmake --build build/tests
ctest --test-dir build/tests --output-on-failure --no-tests=error "$@"
