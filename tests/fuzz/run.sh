#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# Builds the fuzz targets and runs each for so many seconds, all of them if none is named. What it
# finds is in build/fuzz/tests/fuzz: inputs that show a fault (NAME-crash-...), and in found_NAME what
# reached new code.
#     tests/fuzz/run.sh SECONDS [TARGET ...]
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:?"tests/fuzz/run.sh SECONDS [TARGET ...]"}
shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(checkpoint spec zip image labels nal)

cmake -S . -B build/fuzz -DPVM_CUDA=OFF -DPVM_BUILD_EXAMPLES=OFF -DPVM_BUILD_BENCH=OFF >/dev/null
cmake --build build/fuzz --target fuzz
corpus=$PWD/tests/fuzz/corpus
cd build/fuzz/tests/fuzz
for target in "${targets[@]}"; do
  echo "== $target"
  "./fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=800 -malloc_limit_mb=256 \
    -artifact_prefix="$target-" "found_$target" "$corpus/$target"
done
