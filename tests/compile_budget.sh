#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# Compiles each header alone, without optimising, and prints the processor's seconds (not the clock's:
# others may use the machine). The budget is generous: it is there to notice that a header has become
# another kind of header, not to measure a machine.
#     tests/compile_budget.sh COMPILER INCLUDE [DIRECTORY OF SYSTEM HEADERS ...]
set -euo pipefail

compiler=$1
include=$(cd "$2" && pwd)
shift 2
flags=(-std=c++20 -fsyntax-only -w "-I$include")
for directory in "$@"; do flags+=(-isystem "$directory"); done

core_budget=5      # core, model but json.hpp, unit
library_budget=30  # what includes JSON, OpenCV or libzip
over=0
TIMEFORMAT=%U
cd "$include"
while read -r header; do
  budget=$library_budget
  if [[ $header =~ pvm/(core|model|unit)/ && $header != *json* ]]; then budget=$core_budget; fi
  words=$({ time "$compiler" "${flags[@]}" -x c++ "$header"; } 2>&1) || { echo "$words" && exit 1; }
  seconds=$(tail -n 1 <<<"$words")
  printf '%6s s of %2s  %s\n' "$seconds" "$budget" "$header"
  if awk "BEGIN { exit !($seconds > $budget) }"; then
    echo "over its budget: $header"
    over=1
  fi
done < <(find pvm -name '*.hpp' -not -path '*/engine/cuda/*' -not -path '*/io/gpu/*' | sort)
exit $over
