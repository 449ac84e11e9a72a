#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a checkpoint with nothing but the standard library, and resumes it with the program.

    08_checkpoint.py RUN.safetensors                    what is in it
    08_checkpoint.py RUN.safetensors PVM FILE STEPS     ... and how far STEPS more on FILE move it
"""
import array
import json
import math
import subprocess
import sys


def read(path):
    """(metadata, {name: (shape, values)}) of a safetensors file; docs/checkpoints.md."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > 100_000_000:
            sys.exit(f"08_checkpoint.py: '{path}' is no safetensors file")
        header = json.loads(file.read(length))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    code = {"F32": "f", "F64": "d", "U64": "Q"}
    tensors = {}
    for name, about in header.items():
        begin, end = about["data_offsets"]
        if end > len(data):
            sys.exit(f"08_checkpoint.py: '{path}' is cut off: '{shown(name)}' ends behind the file's end")
        values = array.array(code[about["dtype"]])
        values.frombytes(data[begin:end])
        if sys.byteorder == "big":
            values.byteswap()
        tensors[name] = (about["shape"], values)
    return metadata, tensors


def shown(text, most=400):
    """Text from a file as one line of letters: it may come from anybody."""
    text = str(text)
    line = "".join(c if c.isprintable() else "?" for c in text[:most])
    return line + "..." if len(text) > most else line


def main():
    if len(sys.argv) not in (2, 5):
        sys.exit(__doc__)
    metadata, tensors = read(sys.argv[1])
    for key in ("step", "batch", "precision", "engine", "spec"):
        print(f"{key}: {shown(metadata.get(key), 2000)}")
    for name, (shape, _) in sorted(tensors.items()):
        print(f"  {shown(name)} {shown(shape)}")
    weights = tensors["weights"][1]
    size = math.sqrt(sum(w * w for w in weights) / len(weights))
    print(f"{len(weights)} weights, root mean square {size:.5f}")
    if len(sys.argv) == 5:
        program, frames, steps = sys.argv[2:]
        step = int(metadata["step"]) + int(steps)
        subprocess.run([program, "-q", "-L", sys.argv[1], "-f", frames, "-n", str(step),
                        "-o", "resumed"], check=True)
        later = read(f"resumed_{step:09d}.safetensors")[1]["weights"][1]
        moved = max(abs(a - b) for a, b in zip(weights, later))
        print(f"{steps} steps later the weights have moved by {moved:.2g} at most")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, LookupError, subprocess.CalledProcessError) as error:
        sys.exit(f"08_checkpoint.py: {shown(error)}")
