#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Measures the readouts on generated clips, seed by seed, and writes the tables of docs/readout.md.

For each seed and each of two kinds of clips (easy: no distractors, no occluders; hard: both) it makes
labelled clips (make_clips.py), trains a network on them without labels, and runs `pvm evaluate`: the
readouts learn from all training clips but the last two, and are tested on clips with other parts of
the backgrounds. Then the one-shot trackers of OpenCV follow the object from its first true box.
Needs python3-numpy and python3-opencv.
    readout.py --pvm build/host/examples/pvm --out runs/readout --train VIDEO:0:.65 ... --test VIDEO:.7:1 ...
"""
import argparse
import json
import math
import os
import subprocess
import sys
import zipfile

import cv2
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = {  # arguments of make_clips.py, and numbers of clips and frames for training and testing
    "easy": (["--level", "1", "--object", "2"], 8, 400, 6, 300),
    "hard": (["--level", "2", "--object", "1"], 12, 500, 6, 400),
}


def run(*command, **options):
    subprocess.run([str(part) for part in command], check=True, **options)


def prepare(arguments, kind, seed):
    """Clips and a trained network; what is there already is left as it is."""
    what, clips, frames, tests, test_frames = KINDS[kind]
    if arguments.quick:
        clips, frames, tests, test_frames = 4, 60, 2, 40
    base = os.path.join(arguments.out, "%s_%d" % (kind, seed))
    os.makedirs(base, exist_ok=True)
    for split, count, length, backgrounds in (("train", clips, frames, arguments.train),
                                              ("test", tests, test_frames, arguments.test)):
        if os.path.exists(os.path.join(base, "%s_%02d.zip" % (split, count - 1))):
            continue
        run(sys.executable, os.path.join(HERE, "make_clips.py"), *backgrounds, "--out", base,
            "--split", split, *what, "--clips", count, "--frames", length, "--seed", seed,
            stdout=subprocess.DEVNULL)
    network = os.path.join(base, "network_%09d.safetensors" % arguments.steps)
    if not os.path.exists(network):
        run(arguments.pvm, "-q", "-S", os.path.join(HERE, "readout.json"), "--rate", "0.2", "-b", "8",
            "-n", arguments.steps, "-p", base, "-d", "train", "--seed", seed,
            "-o", os.path.join(base, "network"), "-s", arguments.steps)
    named = lambda split, count: [os.path.join(base, "%s_%02d.zip" % (split, i))
                                  for i in range(count)]
    return network, named("train", clips - 2), named("test", tests), base


def evaluate(arguments, kind, seed):
    network, train, test, base = prepare(arguments, kind, seed)
    result = os.path.join(base, "evaluation.json")
    run(arguments.pvm, "evaluate", "-q", "-L", network, "--train", *train, "--test", *test,
        "--seed", seed, "--json", result, "--plot", os.path.join(base, "success.png"),
        stdout=subprocess.DEVNULL)
    with open(result) as file:
        return json.load(file), test


def one_shot_trackers():
    """OpenCV's, as far as they are installed: name and constructor."""
    found = []
    for name in ("KCF", "CSRT", "MIL", "MOSSE", "MedianFlow"):
        for module in (cv2, getattr(cv2, "legacy", None)):
            make = getattr(module, "Tracker%s_create" % name, None) if module else None
            if make:
                found.append((name, make))
                break
    return found


def overlap(a, b):
    width = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    height = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    both = max(0, width) * max(0, height)
    return both / (a[2] * a[3] + b[2] * b[3] - both + 1e-5)


def follow(make, path):
    """Runs a one-shot tracker on a clip: (overlap or None if absent, seen) for each frame."""
    rows, tracker = [], None
    with zipfile.ZipFile(path) as clip:
        boxes = [tuple(map(float, line.split(b",")))
                 for line in clip.read("groundtruth_rect.txt").split(b"\n") if line]
        for i, box in enumerate(boxes):
            picture = cv2.imdecode(np.frombuffer(clip.read("%04d.jpg" % i), np.uint8), cv2.IMREAD_COLOR)
            seen = None
            if tracker is None and box[2] > 0:
                tracker = make()
                tracker.init(picture, tuple(map(int, box)))
            if tracker is not None:
                ok, where = tracker.update(picture)
                seen = where if ok and where[2] > 0 and where[3] > 0 else None
            share = None if box[2] <= 0 else overlap(box, seen) if seen else 0.0
            rows.append((share, seen is not None))
    return rows


def one_shot(clips):
    thresholds = np.linspace(0, 1, 100)
    results = {}
    for name, make in one_shot_trackers():
        rows = [row for path in clips for row in follow(make, path)]
        shares = np.array([share for share, _ in rows if share is not None])
        right = [(share is not None) == seen for share, seen in rows]
        results[name] = {"auc": float((shares[:, None] > thresholds).mean()),
                         "presence": float(np.mean(right))}
    return results


def mean_and_error(values):
    values = np.array(values, dtype=float)
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0
    return "%.3f ± %.3f" % (values.mean(), error)


def table(kind, runs):
    print("\n| %s: trained on this object | AUC | precision | presence | true neg. | accuracy | frames/s |"
          % kind)
    print("|---|---|---|---|---|---|---|")
    for i, row in enumerate(runs[0][0]):
        of = lambda key: [rows[i][key] for rows, _ in runs]
        print("| %s | %s | %.3f | %s | %.3f | %.3f | %.0f |" % (
            row["tracker"], mean_and_error(of("auc")), np.mean(of("precision")),
            mean_and_error(of("presence")), np.mean(of("true_negative_rate")),
            np.mean(of("accuracy")), np.mean(of("frames_per_second"))))
    auc = {row["tracker"]: np.array([rows[i]["auc"] for rows, _ in runs])
           for i, row in enumerate(runs[0][0])}
    both = auc["hidden values + pixels"]
    print("\nhidden values + pixels, minus pixels: %s; minus the untrained network: %s"
          % (mean_and_error(both - auc["pixels, weights for each position"]),
             mean_and_error(both - auc["the same, network untrained"])))
    print("\n| %s: one-shot from the first true box | AUC | presence |\n|---|---|---|" % kind)
    for name in runs[0][1]:
        print("| %s | %s | %s |" % (name, mean_and_error([shot[name]["auc"] for _, shot in runs]),
                                    mean_and_error([shot[name]["presence"] for _, shot in runs])))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pvm", required=True, help="the program pvm")
    parser.add_argument("--out", default="runs/readout", help="directory for clips and results")
    parser.add_argument("--train", nargs="+", required=True, help="backgrounds of training clips")
    parser.add_argument("--test", nargs="+", required=True, help="backgrounds of test clips")
    parser.add_argument("--seeds", nargs="+", type=int, default=[11, 12, 13, 14, 15])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--steps", type=int, default=10000, help="of the network, 8 frames each")
    parser.add_argument("--quick", action="store_true", help="few short clips: only to try it")
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        runs = []
        for seed in arguments.seeds:
            rows, test = evaluate(arguments, kind, seed)
            runs.append((rows, one_shot(test)))
        table(kind, runs)


if __name__ == "__main__":
    main()
