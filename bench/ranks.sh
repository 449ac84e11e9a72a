#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# Compares the frames per second of one rank on one core with those of several ranks on one core each,
# in turn, because a machine's speed changes. Other work on the machine spoils the ratio.
#     bench/ranks.sh PVM SPEC [RANKS [ROUNDS [STEPS]]]
set -euo pipefail
pvm=$(realpath "$1") spec=$(realpath "$2") ranks=${3:-2} rounds=${4:-5} steps=${5:-600}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# rate COMMAND...: frames per second after the first third of the steps.
rate() {
  "$@" -S "$spec" --backend host --rate 0.01 -n "$steps" --threads 1 -q -o "$work/out.safetensors" \
    --interval $((steps / 3)) --metrics "$work/rates.jsonl" 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
  tail -n +2 rates.jsonl | grep -o '"fps":[0-9.]*' | cut -d: -f2 |
    awk '{ sum += 1 / $1 } END { printf "%.2f", NR / sum }'
}
for _ in $(seq "$rounds"); do
  one=$(rate taskset -c 0 "$pvm")
  many=$(rate mpirun -n "$ranks" --bind-to core "$pvm")
  awk -v one="$one" -v many="$many" -v n="$ranks" \
    'BEGIN { printf "1 rank %.1f frames/s, %d ranks %.1f: %.3f times\n", one, n, many, many / one }'
done
