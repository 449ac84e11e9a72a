#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Frames a second over the number of GPUs, as bench_forecast predicts them.
    bench/plot_forecast.py bench/results/forecast.jsonl docs/images/forecast.png
Needs matplotlib (Debian: python3-matplotlib)."""

import json
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plot_forecast.py: matplotlib is missing; apt-get install python3-matplotlib")

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LOOKS = {"nvlink": ("-", "o"), "ethernet": ("--", "^")}
COLOURS = {"small": "C0", "med": "C1", "large": "C2", "ten_billion": "C3"}
MEASURED = {"small": {1: 130_953, 2: 120_305}, "med": {1: 45_463, 2: 121_863},
            "large": {1: 12_218, 2: 26_337}}  # docs/performance.md


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    lines = {}
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if row["machine"] in LOOKS:
                lines.setdefault((row["spec"], row["machine"]), []).append(row)
    figure, axes = plt.subplots(figsize=(9, 5.5), dpi=100)
    for (spec, machine), rows in lines.items():
        style, mark = LOOKS[machine]
        axes.plot([row["ranks"] for row in rows], [row["frames_per_second"] for row in rows],
                  style, marker=mark, markersize=4, color=COLOURS[spec],
                  label=f"{spec}, {machine}")
    for spec, rates in MEASURED.items():
        axes.plot(list(rates), list(rates.values()), "s", linestyle="none", markersize=9,
                  markerfacecolor="none", color="k",
                  label="measured" if spec == "small" else None)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlabel("GPUs (H200)")
    axes.set_ylabel("frames a second, one sequence, bf16")
    axes.grid(True, which="major", alpha=0.4)
    axes.legend(fontsize=8, ncols=2)
    figure.tight_layout()
    figure.savefig(sys.argv[2])


main()
