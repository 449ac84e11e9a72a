#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# The container files: known instructions in a sensible order, files that exist, the README's
# commands; and, where apt knows any packages, names in .ci/install-packages that exist.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "$1" >&2
  exit 1
}

for file in .ci/docker/*.Dockerfile; do
  instructions=$(grep -vE '^[[:space:]]*(#|$)' "$file")
  head -n1 <<<"$instructions" | grep -qE '^FROM [a-z0-9./_-]+:[A-Za-z0-9._-]+$' ||
    fail "$file: the first instruction is not FROM image:tag"
  unknown=$(grep -vE '^(FROM|WORKDIR|COPY|RUN|CMD|ENV|ARG) ' <<<"$instructions" || true)
  [ -z "$unknown" ] || fail "$file: not an instruction: $unknown"
  for command in .ci/install-packages tests/run.sh examples/first_steps.sh; do
    grep -qF "$command" <<<"$instructions" || fail "$file: $command is missing"
    [ -x "$command" ] || fail "$command, which $file runs, is not there"
  done
  grep '^CMD ' <<<"$instructions" | grep -qE '^CMD \["[^"]+"(, "[^"]+")*\]$' ||
    fail "$file: CMD is not a list"
  echo "$file: good"
done

packages=$(sed -nE 's/^(packages=|.*packages\+=)\((.*)\).*/\2/p' .ci/install-packages)
[ -n "$packages" ] || fail ".ci/install-packages names no packages"
if ! command -v apt-cache >/dev/null || ! apt-cache show cmake >/dev/null 2>&1; then
  echo "apt knows no packages here: their names were not checked"
  exit 0
fi
for package in $packages; do
  apt-cache show "$package" >/dev/null 2>&1 || fail ".ci/install-packages: there is no package $package"
done
echo "packages: $(wc -w <<<"$packages") names exist"
