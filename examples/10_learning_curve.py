#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the learning curve in a file of metrics. Needs matplotlib (Debian: python3-matplotlib).

    10_learning_curve.py METRICS.jsonl CURVE.png
"""
import json
import sys



def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        import matplotlib
    except ImportError:
        sys.exit("10_learning_curve.py: matplotlib is missing; apt-get install python3-matplotlib")
    matplotlib.use("Agg")  # draws into a file, without a window
    from matplotlib import pyplot

    with open(sys.argv[1], encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    # Values that could not be measured are null.
    lines = [line for line in lines if None not in (line["psnr"], line["persistence_psnr"])]
    steps = [line["step"] for line in lines]
    pyplot.figure(figsize=(8, 4), layout="constrained")
    pyplot.plot(steps, [line["psnr"] for line in lines], label="prediction")
    pyplot.plot(steps, [line["persistence_psnr"] for line in lines],
                label="repeating the frame of two steps before")
    pyplot.xlabel("steps")
    pyplot.ylabel("PSNR in dB (more is better)")
    pyplot.grid(alpha=0.3)
    pyplot.legend()
    pyplot.savefig(sys.argv[2], dpi=100)


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, LookupError, TypeError) as error:
        sys.exit(f"10_learning_curve.py: cannot draw '{sys.argv[1]}': {error}")
