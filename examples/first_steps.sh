#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# Installs missing packages, builds the program, and trains for about a minute on
# generated frames, or on the zip, video or image directory that is given.
#     examples/first_steps.sh [FILE] [more flags of pvm ...]
set -euo pipefail
cd "$(dirname "$0")/.."

frames=synthetic
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
  case $1 in synthetic | /*) frames=$1 ;; *) frames=$OLDPWD/$1 ;; esac
  shift
fi

.ci/install-packages run
# CUDA kernels take minutes to compile: compile them only if there is a GPU, and only for that GPU.
# The host's engines, which are then seldom used, and its code in the kernels' files are optimised less
# (nvcc's -O3 would be for both; kernels are optimised without it).
if nvidia-smi >/dev/null 2>&1; then
  architecture=native
  if nvidia-smi --query-gpu=compute_cap --format=csv,noheader | grep -qx 9.0; then architecture=90a-real; fi
  backends=(-DPVM_CUDA=AUTO "-DCMAKE_CUDA_ARCHITECTURES=$architecture" "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG"
            "-DCMAKE_CUDA_FLAGS_RELEASE=-Xcompiler=-O1 -DNDEBUG")
  takes="three or four minutes on four cores"
else
  backends=(-DPVM_CUDA=OFF) takes="a minute or two"
fi
echo "building ($takes the first time)"
cmake -S . -B build/run -G Ninja -DCMAKE_BUILD_TYPE=Release -DPVM_BUILD_TESTS=OFF -DPVM_BUILD_BENCH=OFF \
      "${backends[@]}" >build-run.log 2>&1 &&
  cmake --build build/run --target pvm_cli >>build-run.log 2>&1 ||
  { tail -n 20 build-run.log >&2; echo "the build failed; build-run.log has all of it" >&2; exit 1; }
rm -f build-run.log

mkdir -p runs
exec build/run/examples/pvm -S model_zoo/first_steps.json -f "$frames" --seconds 60 --interval 5000 \
  -o runs/first_steps --metrics runs/first_steps.jsonl --preview runs/first_steps.png "$@"
