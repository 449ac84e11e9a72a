#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# What happens to a run when its machine fails it: kills, full disks, closed descriptors, files that
# vanish, limits, signals. Nothing is lost, nothing is overwritten, and a sentence says what it was.
#     tests/faults/run.sh PVM SPEC CASE     the cases are the functions below
set -euo pipefail
pvm=$(realpath "$1") spec=$(realpath "$2") case=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for descriptor in /proc/self/fd/*; do  # inherited ones would count against the limits below
  number=${descriptor##*/}
  if [ "$number" -gt 2 ] && [ "$number" -lt 255 ]; then eval "exec $number>&-"; fi
done

fail() {
  echo "FAILED: $*" >&2
  [ ! -s err ] || sed 's/^/  stderr: /' err >&2
  exit 1
}
# train ARGUMENT...: a run of the host engine; its messages go to the file err.
train() { "$pvm" --backend host -q -S "$spec" "$@" >out 2>err; }
# in_background ARGUMENT...: the same, as the process $run, which signals reach: the shell has the
# background ignore SIGINT.
in_background() {
  env --default-signal=INT "$pvm" --backend host -q -S "$spec" "$@" >out 2>err &
  run=$!
}
# ends CODE COMMAND...: the command ends with this code.
ends() {
  local code=0 wanted=$1
  shift
  "$@" || code=$?
  [ "$code" = "$wanted" ] || fail "'$*' ended with $code instead of $wanted"
}
says() { grep -qE -- "$1" err || fail "nothing about '$1'"; }
one_sentence() { [ "$(wc -l <err)" -le "${1:-1}" ] || fail "more than ${1:-1} lines"; }
wait_for() {
  for _ in $(seq 300); do
    ! compgen -G "$1" >/dev/null || return 0
    sleep 0.05
  done
  fail "no $1"
}
latest_of() { find . -name "$1_*.safetensors" | sort | tail -n 1; }
frames() { "$pvm" -q -S "$spec" --write-zip "$1" --frames "${2:-40}" 2>err || fail "no $1"; }

# Killed at odd moments, a run goes on from its latest checkpoint and ends in the bytes of one that
# was not. Every third is killed while it starts, the others while they save.
kill_and_resume() {
  frames a.zip 30
  local latest=() last="" before i went_on=0
  for i in $(seq 15); do
    in_background "${latest[@]}" -f a.zip -n 1000000 -s 3 -o cut
    before=$last
    if [ $((i % 3)) -ne 0 ]; then
      for _ in $(seq 500); do
        [ "$last" = "$before" ] || break
        sleep 0.01
        last=$(latest_of cut)
      done
    fi
    sleep "0.$(printf %02d $((RANDOM % 12)))"
    kill -9 $run 2>/dev/null || true
    local code=0
    wait $run 2>/dev/null || code=$?
    [ $code = 137 ] || fail "run $i ended with $code before it was killed"
    last=$(latest_of cut)
    [ "$last" = "$before" ] || went_on=$((went_on + 1))
    [ -z "$last" ] || latest=(-L "$last")
  done
  [ $went_on -ge 10 ] || fail "only $went_on runs came to a checkpoint"
  local steps=${last##*cut_} name
  steps=$((10#${steps%.safetensors} + 10))
  name=$(printf %09d $steps).safetensors
  ends 0 train "${latest[@]}" -f a.zip -n $steps -o cut
  ends 0 train -f a.zip -n $steps -o straight
  cmp "straight_$name" "cut_$name" || fail "other bytes"
  for file in cut_*; do
    case $file in *.safetensors | *.safetensors.* | *.run.toml | *.run.toml.*) ;; *) fail "it leaves $file" ;; esac
  done
}

# A file that cannot grow stands for a disk that is full. What is there stays; during a run it is a
# warning, at its end an error.
full_disk() {
  ends 0 train -n 20 -o a
  cp a_000000020.safetensors before
  full() (
    trap '' XFSZ
    ulimit -f 30
    train "$@"
  )
  ends 1 full -n 20 -o a
  says 'cannot be written'
  cmp a_000000020.safetensors before || fail "it has changed a checkpoint"
  ends 1 full -n 20 -o b -s 5
  says 'warning: .*(cannot be written|No space|too large)'
  [ -z "$(compgen -G 'b_*')" ] || fail "parts of checkpoints are left"
  "$pvm" --backend host -S "$spec" -n 5 -o c >/dev/full 2>err || true
  [ -e c_000000005.safetensors ] || fail "no checkpoint when the output is full"
  "$pvm" --backend host -S "$spec" -n 5 -o d >out 2>/dev/full || true
  [ -e d_000000005.safetensors ] || fail "no checkpoint when the messages' file is full"
  ends 2 train -n 5 --metrics /dev/full --interval 1 -o e
  says "'/dev/full': it is not a file"
}

# With any of the first three descriptors closed, no output ends up in a file of the run.
closed_descriptors() {
  ends 0 train -n 30 -o a --metrics a.jsonl --interval 10
  closed() {
    case $1 in
      0) "$pvm" --backend host -S "$spec" "${@:2}" <&- >/dev/null 2>&1 ;;
      1) "$pvm" --backend host -S "$spec" "${@:2}" >&- 2>/dev/null ;;
      2) "$pvm" --backend host -S "$spec" "${@:2}" >/dev/null 2>&- ;;
      *) "$pvm" --backend host -S "$spec" "${@:2}" <&- >&- 2>&- ;;
    esac
  }
  for which in 0 1 2 all; do
    ends 0 closed $which -n 30 -o b --metrics b.jsonl --interval 10
    cmp a_000000030.safetensors b_000000030.safetensors || fail "closed $which: the checkpoint"
    [ "$(grep -c '^{.*}$' b.jsonl)" = "$(wc -l <b.jsonl)" ] || fail "closed $which: the metrics"
    [ "$(wc -l <b.jsonl)" = "$(wc -l <a.jsonl)" ] || fail "closed $which: lines of the metrics"
    rm b_000000030.safetensors b.jsonl
  done
}

# A file or a directory that vanishes under a run is named as vanished, once.
vanishing_files() {
  frames a.zip 400  # more than are read ahead
  mkdir pictures
  python3 -m zipfile -e a.zip pictures 2>/dev/null || unzip -q a.zip -d pictures
  in_background -f pictures --cache-mb 0 -o a -s 2000
  wait_for 'a_*.safetensors'
  rm -r pictures
  local code=0
  wait $run || code=$?
  [ $code = 1 ] || fail "it ended with $code"
  says "the directory 'pictures' has vanished"
  one_sentence 15
  # A zip that is open goes on; it is missed when it is opened again.
  ends 0 train -f a.zip -n 20 -o b
  rm a.zip
  ends 1 train -L b_000000020.safetensors -f a.zip -n 40 -o b
  says "a.zip' does not exist"
  one_sentence
  # The directory of the outputs.
  mkdir outputs
  in_background -o outputs/a -s 500
  wait_for 'outputs/a_*.safetensors'
  rm -r outputs
  sleep 0.3
  kill -INT $run
  code=0
  wait $run || code=$?
  [ $code != 0 ] || [ -e outputs ] || fail "it ended with $code, and nothing was saved"
}

# Too many open files are named as that.
few_descriptors() {
  frames a.zip 20
  few() (
    ulimit -n "$1"
    train "${@:2}"
  )
  local count
  for count in 4 6 8 10; do
    local code=0
    few "$count" -f a.zip -b 6 -n 10 -o a || code=$?
    [ $code -le 2 ] || fail "with $count descriptors it ended with $code"
    [ $code = 0 ] || says 'open files|descriptors'
  done
  local many=()
  for count in $(seq 20); do
    cp a.zip "$count.zip"
    many+=(-f "$count.zip")
  done
  ends 1 few 12 "${many[@]}" -b 20 -n 10 -o a
  says 'too many open files|Too many open files|open files'
}

# A signal ends a run within two seconds, with a checkpoint.
signals() {
  local signal
  for signal in INT TERM; do
    in_background -o "$signal" -s 100
    wait_for "$signal"_'*.safetensors'
    local begin=${EPOCHREALTIME/[.,]/}
    kill -$signal $run
    wait $run || true
    local took=$((${EPOCHREALTIME/[.,]/} - begin))
    [ $took -lt 2000000 ] || fail "SIG$signal took $took microseconds"
    ends 0 train -L "$(latest_of "$signal")" --seconds 0.1 -o on
  done
}

# The memory of a batch is linear in its sequences: that of a square would be gigabytes.
large_batches() {
  sed -e 's/"layer_shapes": .*/"layer_shapes": [2, 1],/' -e 's/"input_block_size": .*/"input_block_size": 1,/' \
    -e 's/"hidden_block_size": .*/"hidden_block_size": 2,/' "$spec" >few_weights.json
  spec=few_weights.json
  local batch most=0 now code
  for batch in 4096 20000; do
    most=0 code=0
    in_background -b $batch -n 3 -o a
    while now=$(awk '/^VmHWM/ { print $2 }' "/proc/$run/status" 2>/dev/null) && [ -n "$now" ]; do
      most=$now
      sleep 0.02
    done
    wait $run || code=$?
    [ $code = 0 ] || fail "a batch of $batch ended with $code"
    [ $most -gt 10000 ] && [ $most -lt $((150 * batch)) ] || fail "$batch sequences took $most kB"
  done
}

"$case"
