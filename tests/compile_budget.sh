#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# Compiles each header alone, without a warning, and measures what that costs, and what a program
# costs that links pvm::compiled. Headers are compiled as for such a program, and those with bodies
# that pvm::compiled has (*-inl.hpp), and pvm.hpp, as for a program that does without. Prints the
# processor's seconds (not the clock's: others may use the machine). The budgets of headers are
# generous: they are there to notice that a header has become another kind of header, not to measure
# a machine. Those of programs are what a person waits for who changes a line and runs again.
#
# Budgets are for a machine that compiles a yardstick, headers that are not the project's, in
# `yardstick_idle` seconds. Machines and their loads differ by a factor of four, so where the
# yardstick takes longer, everything may. What is over its budget is measured a second time, between
# two measurements of the yardstick.
#     tests/compile_budget.sh COMPILER NVCC_OR_EMPTY PROJECT [DIRECTORY OF SYSTEM HEADERS ...]
set -euo pipefail

compiler=$1
nvcc=$2
project=$(cd "$3" && pwd)
shift 3
flags=(-std=c++20 -Wall -Wextra -Wconversion -Werror "-I$project/include")
for directory in "$@"; do flags+=(-isystem "$directory"); done

core_budget=5      # core, model but json-inl.hpp, unit
library_budget=30  # what includes JSON, OpenCV or libzip
# Programs: twice what they take on an idle machine.
umbrella_budget=10  # pvm.hpp with pvm::compiled: 4.9 s
program_budget=18   # examples/hello.cpp with pvm::compiled, optimised: 8.4 s
nvcc_budget=55      # the same compiled by nvcc: 20 to 28 s
yardstick_idle=1.4  # on the machine, idle, where these times were measured
TIMEFORMAT=%U
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

printf '#include <%s>\n' algorithm map regex string vector nlohmann/json.hpp >"$work/yardstick.cpp"
# slowness: how many times as long as on the idle machine the yardstick takes now, at least 1.
slowness() {
  local seconds
  seconds=$({ time "$compiler" "${flags[@]}" -fsyntax-only "$work/yardstick.cpp"; } 2>&1) ||
    { echo "$seconds" >&2 && exit 1; }
  awk "BEGIN { slow = $seconds / $yardstick_idle; print (slow > 1 ? slow : 1) }"
}

# measure BUDGET NAME COMMAND...: prints the seconds; leaves a file if that is over the budget.
measure() {
  local budget=$1 name=$2 slow=$usual words seconds before
  shift 2
  for again in 1 0; do
    words=$({ time "$@" >/dev/null; } 2>&1) || { echo "$words" && touch "$work/over" && return; }
    seconds=$(tail -n 1 <<<"$words")
    if [ $again = 0 ]; then
      slow=$(awk "BEGIN { after = $(slowness); print (after > $before ? after : $before) }")
    fi
    printf '%6s s of %2s x %4.2f  %s\n' "$seconds" "$budget" "$slow" "$name"
    if awk "BEGIN { exit !($seconds <= $budget * $slow) }"; then return; fi
    before=$(slowness)
  done
  echo "over its budget: $name"
  touch "$work/over"
}
usual=$(slowness)

cd "$project/include"
while read -r header; do
  budget=$library_budget
  if [[ $header =~ pvm/(core|model|unit)/ && $header != *json* ]]; then budget=$core_budget; fi
  unit=$work/${header//\//_}.cpp
  # Twice: an include guard is part of being includable. The macros clash with careless names.
  printf '#define I 1\n#define B0 1\n#define small 1\n#include <%s>\n#include <%s>\n' \
    "$header" "$header" >"$unit"
  mode=(-DPVM_COMPILED)
  if [[ $header == *-inl.hpp || $header == pvm/pvm.hpp ]]; then mode=(); fi
  measure "$budget" "$header" "$compiler" "${flags[@]}" "${mode[@]}" -fsyntax-only "$unit" &
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
done < <(find pvm -name '*.hpp' -not -path '*/engine/cuda/*' -not -path '*/gpu/*' \
  $(echo '#include <mpi.h>' | "$compiler" "${flags[@]}" -E -x c++ - >/dev/null 2>&1 || echo "-not -path */dist/mpi/*") | sort)
wait

compiled=("${flags[@]}" -DPVM_COMPILED)
echo '#include <pvm/pvm.hpp>' >"$work/umbrella.cpp"
measure $umbrella_budget "pvm/pvm.hpp with pvm::compiled" \
  "$compiler" "${compiled[@]}" -fsyntax-only "$work/umbrella.cpp"
measure $program_budget "examples/hello.cpp" \
  "$compiler" "${compiled[@]}" -O3 -c "$project/examples/hello.cpp" -o "$work/hello.o"
if [ -n "$nvcc" ]; then
  flags=(-std=c++20 -w "-I$project/include" -DPVM_COMPILED)
  for directory in "$@"; do flags+=(-isystem "$directory"); done
  measure $nvcc_budget "examples/hello.cpp by nvcc" "$nvcc" "${flags[@]}" -O3 -arch=sm_90 -x cu \
    -c "$project/examples/hello.cpp" -o "$work/hello.o"
fi
[ ! -e "$work/over" ]
