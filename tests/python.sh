#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0

# Runs the tests of the Python module in the build tree. What is missing says SKIPPED.
#     tests/python.sh PYTHON BUILD pvm|dlpack|onnx [directory of the package]
set -euo pipefail

python=$1
build=$2
tests=$(dirname "${BASH_SOURCE[0]}")/../examples/python/tests
export PYTHONPATH=${4:-$build/examples/python} PYTHONDONTWRITEBYTECODE=1

skip() {
  echo "SKIPPED: $1"
  exit 0
}
has() { "$1" -c "import ${2//,/, }" 2>/dev/null; }

if [ ! -d "$PYTHONPATH/pvm" ]; then
  skip "the Python module was not built: it needs Debian's python3-dev and pybind11-dev"
fi
has "$python" numpy,pytest || skip "the tests need numpy and pytest (Debian: python3-numpy, python3-pytest)"
if [ "$3" = onnx ] && ! has "$python" onnx,onnxruntime; then
  # An environment of the build, which sees the distribution's packages.
  venv=$build/python-venv
  if ! has "$venv/bin/python" onnx,onnxruntime; then
    "$python" -m venv --system-site-packages "$venv" >/dev/null 2>&1 ||
      skip "onnx and onnxruntime are missing, and so is venv (Debian: python3-venv)"
    timeout 120 "$venv/bin/python" -m pip install -q --retries 0 --timeout 10 onnx onnxruntime >/dev/null 2>&1 ||
      skip "onnx and onnxruntime are missing, and pip cannot install them"
  fi
  python=$venv/bin/python
fi
"$python" -m pytest -q -rs -p no:cacheprovider "$tests/test_$3.py"
