#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Frames a second over the batch, each precision, against the bounds counted in
docs/performance.md and docs/log/batch.md.
    bench/plot_batch.py bench/results/h200_batch.json docs/images/batch_rates.png
Needs matplotlib (Debian: python3-matplotlib)."""

import json
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plot_batch.py: matplotlib is missing; apt-get install python3-matplotlib")

matplotlib.use("Agg")
import matplotlib.pyplot as plt

WEIGHTS = 17_538_806  # small.json
MEMORY = 4e12  # device memory: bytes a second, reads and writes together
UPLOAD = 5.1e6  # host to device: frames a second
COUNTED_BF16 = {64: 1.8e6, 256: 4.7e6}  # bounds by all bytes that device memory must move
LOOKS = {"bf16": ("C0", "o"), "fp16": ("C1", "x"), "tf32": ("C2", "^"), "fp32": ("C3", "s")}
BATCHES = [16, 32, 64, 128, 256]
KNEE = UPLOAD * 8 * WEIGHTS / MEMORY  # the batch at which the two terms of bound() are equal


def bound(batch):
    """Of every precision: the fp32 master is read and written once a step; frames go up."""
    return min(batch / (8 * WEIGHTS / MEMORY), UPLOAD)


def draw(rows, out):
    figure, axes = plt.subplots(figsize=(8, 5))
    corners = sorted([*BATCHES, KNEE])
    axes.plot(corners, [bound(b) for b in corners], "k--",
              label="bound of all: fp32 master once a step, then upload")
    axes.plot(*zip(*COUNTED_BF16.items()), "kD", mfc="none",
              label="bound of bf16: all bytes of device memory")
    for precision, (colour, marker) in LOOKS.items():
        points = sorted((r["batch"], r["frames_per_second"]) for r in rows
                        if r["precision"] == precision and r["spec"] == "small" and not r["eager"])
        axes.plot(*zip(*points), color=colour, marker=marker, label=precision)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(BATCHES, [str(b) for b in BATCHES])
    axes.set_xlabel("batch (sequences)")
    axes.set_ylabel("frames a second, all sequences")
    axes.set_title("small.json, full training steps, one NVIDIA H200")
    axes.grid(True, which="both", alpha=0.3)
    axes.set_ylim(3e4, 8e6)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(out, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        draw(json.load(file), sys.argv[2])
