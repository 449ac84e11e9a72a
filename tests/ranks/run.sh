#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# One network shared by several processes over MPI: the same files as one process writes, once; and what
# happens if a process is lost. There may be more processes than cores.
#     tests/ranks/run.sh PVM SPEC CASE [MPIEXEC]     the cases are the functions below
set -euo pipefail
pvm=$(realpath "$1") spec=$(realpath "$2") case=$3 mpiexec=${4:-mpirun}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

fail() {
  echo "FAILED: $*" >&2
  for file in out err; do [ ! -s $file ] || sed "s/^/  $file: /" $file >&2; done
  exit 1
}
# train RANKS ARGUMENT...
train() {
  local ranks=$1
  shift
  if [ "$ranks" = 1 ]; then "$pvm" --backend host "$@" >out 2>err
  else "$mpiexec" -n "$ranks" "$pvm" --backend host "$@" >out 2>err; fi
}
same() { cmp -s "$1" "$2" || fail "$1 and $2 differ"; }
says() { grep -qE -- "$1" err || fail "nothing about '$1'"; }
ends() {
  local code=0 wanted=$1
  shift
  "$@" || code=$?
  [ "$code" = "$wanted" ] || fail "'$*' ended with $code instead of $wanted"
}
# begin RANKS ARGUMENT...: a run in the background, as the process $run, that has saved k.safetensors.
begin() {
  local ranks=$1
  shift
  "$mpiexec" -n "$ranks" "$pvm" --backend host -q -S "$spec" -n 1G -s 200 -o k.safetensors "$@" >out 2>err &
  run=$!
  for _ in $(seq 400); do
    [ ! -e k.safetensors ] || return 0
    sleep 0.05
  done
  fail "no checkpoint"
}
# process RANK: the process of the run that is this rank.
process() {
  local one
  for one in $(pgrep -P $run); do
    if tr '\0' '\n' <"/proc/$one/environ" | grep -qE "^(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1$"; then echo "$one"; fi
  done
}
# over SECONDS: the run ends within that time, all of its processes.
over() {
  local began=$SECONDS all
  all=$(pgrep -P $run)
  wait $run && fail "the run has ended well"
  [ $((SECONDS - began)) -le "$1" ] || fail "it took $((SECONDS - began)) seconds"
  sleep 0.5
  for one in $all; do
    if [ -e "/proc/$one" ] && grep -q k.safetensors "/proc/$one/cmdline" 2>/dev/null; then fail "process $one goes on"; fi
  done
}
# whole: a run goes on from the checkpoint.
whole() { ends 0 train 1 -q -L k.safetensors -n 1G --seconds 0.2 -o after.safetensors; }

same_bits() {
  ends 0 train 1 -q -S "$spec" -n 300 -s 100 -o one --preview one.png --interval 100
  for ranks in 2 3; do
    ends 0 train $ranks -q -S "$spec" -n 300 -s 100 -o many --preview many.png --interval 100
    for step in 100 200 300; do same one_000000$step.safetensors many_000000$step.safetensors; done
    same one.png many.png
    rm many*
  done
  ends 0 train 1 -q -S "$spec" -n 60 -b 3 --precision bf16 -o one
  ends 0 train 3 -q -S "$spec" -n 60 -b 3 --precision bf16 -o many
  same one_000000060.safetensors many_000000060.safetensors
}

# Rank 0 chooses by trials of all ranks.
same_choice() {
  ends 0 train 1 -S "$spec" -n 20 --rate auto --rate-budget 2000 -o one
  says 'auto: rate '
  ends 0 train 2 -S "$spec" -n 20 --rate auto --rate-budget 2000 -o many
  says 'auto: rate '
  same one_000000020.safetensors many_000000020.safetensors
}

# A checkpoint of 3 ranks goes on with 1 rank, and then with 2; the score of a pass is the same, too.
goes_on() {
  ends 0 train 1 -q -S "$spec" -n 240 -o straight
  ends 0 train 3 -q -S "$spec" -n 100 -o a
  ends 0 train 1 -q -L a_000000100.safetensors -n 170 -o a
  ends 0 train 2 -q -L a_000000170.safetensors -n 240 -o a
  same straight_000000240.safetensors a_000000240.safetensors
  "$pvm" -q -S "$spec" --write-zip a.zip --frames 20 2>err
  ends 0 train 1 -L a_000000240.safetensors --eval a.zip
  mv out one
  ends 0 train 3 -L a_000000240.safetensors --eval a.zip
  same one out
}

# Everything is said once.
once() {
  ends 0 train 3 -S "$spec" -n 300 -o a --interval 100 --metrics a.jsonl --report
  [ "$(grep -c 'done at step 300' out)" = 1 ] || fail "not said once"
  [ "$(wc -l <a.jsonl)" = 3 ] || fail "not three lines of metrics"
  [ "$(grep -c '3 ranks' err)" = 1 ] || fail "the ranks are not named once"
  ends 0 train 3 --version
  [ "$(wc -l <out)" = 1 ] || fail "more than one version"
  ends 2 train 3 --bogus
  [ "$(grep -c 'there is no option' err)" = 1 ] || fail "the mistake is not said once"
  ends 1 train 3 -S "$spec" -f missing.avi
  [ "$(grep -c 'missing.avi' err)" = 1 ] || fail "the missing file is not said once"
}

# The signal that mpirun passes on stops a run, which saves a checkpoint; so does one to rank 0.
signals() {
  begin 2
  kill -USR1 $run
  wait $run || fail "it ended badly"
  grep -q 'stopped at step' out || fail "it was not stopped"
  whole
  rm k.safetensors
  begin 3
  kill -TERM "$(process 0)"
  wait $run || fail "it ended badly"
  grep -q 'stopped at step' out || fail "it was not stopped"
  whole
}

dead_rank() {
  for rank in 1 0; do
    begin 3
    kill -KILL "$(process $rank)"
    over 30
    says "pvm: rank $rank \(process [0-9]+ on .*\) has ended before the run was over"
    whole
    rm k.safetensors
  done
}

silent_rank() {
  for rank in 1 0; do
    begin 2
    kill -STOP "$(process $rank)"
    over 30
    says "pvm: rank $rank \(process [0-9]+ on .*\) has given no sign of life"
    whole
    rm k.safetensors
  done
}

different_ranks() {
  ends 2 "$mpiexec" -n 1 "$pvm" -S "$spec" -n 100 : -n 1 "$pvm" -S "$spec" -n 200 >out 2>err
  says 'pvm: rank 1 was started with other arguments'
  mkdir here there
  cp "$spec" here/a.json
  sed 's/"steps": *[0-9]*/"steps": 77/' "$spec" >there/a.json
  ! cmp -s here/a.json there/a.json || fail "the specs are the same"
  ends 1 "$mpiexec" -n 1 -wdir "$work/here" "$pvm" -S a.json -n 100 : -n 1 -wdir "$work/there" "$pvm" -S a.json -n 100 >out 2>err
  says "pvm: rank 1 has another file 'a.json'"
  cp "$pvm" other
  echo >>other  # another build
  ends 2 "$mpiexec" -n 1 "$pvm" -S "$spec" -n 100 : -n 1 "$work/other" -S "$spec" -n 100 >out 2>err
  says 'pvm: rank 1 runs another build'
  [ -z "$(find . -name '*.safetensors')" ] || fail "something was written"
}

# Where there is no GPU: who asks for one is refused once, on all ranks; who does not, computes on CPUs.
without_gpu() {
  if "$pvm" devices >/dev/null 2>&1; then return 0; fi
  refused() {
    local code=$1 sentence=$2
    shift 2
    ends "$code" "$mpiexec" -n 3 "$pvm" -S "$spec" -n 20 -o a "$@" >out 2>err
    [ "$(grep -c '^pvm: ' err)" = 1 ] || fail "not one sentence"
    says "$sentence"
    [ -z "$(find . -name '*.safetensors')" ] || fail "something was written"
  }
  refused 1 'without CUDA|no NVIDIA GPU is visible|driver is missing' --backend cuda
  refused 1 'without CUDA|no NVIDIA GPU is visible|driver is missing' --devices 0,1,2
  refused 1 'without CUDA|GPU 0 cannot be used' --device 0
  refused 2 'each rank has one shard' --shards 3
  refused 2 'devices and --shards are for GPUs' --devices 0,1,2 --backend host
  ends 0 "$mpiexec" -n 2 "$pvm" -S "$spec" -n 20 -o a >out 2>err
  ends 0 train 1 -q -S "$spec" -n 20 -o b
  same a_000000020.safetensors b_000000020.safetensors
}

$case
