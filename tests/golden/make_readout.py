#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Writes readout_mlp.safetensors: 100 steps of the original's readout, by plain numpy in double.

Everything is written out from the definition, without a thought for speed. A network of 3 x 3 and 1
units with 4 hidden values each; the unit above covers 2 x 2 of the 9 positions only, so that the
inputs are ragged. Blocks of 2 x 2 pixels, 5 hidden values, with 3 and with 4 layers; once with the
sign of the error. The hidden values are random: the readout does not care where they come from.
    make_readout.py OUT.safetensors
"""
import json
import struct
import sys

import numpy as np

SIDE, BLOCK, HIDDEN, MIDDLE, STEPS = 3, 2, 4, 5, 100
MOMENTUM, RATE = 0.1, 0.5


def units_of(position):
    row, column = divmod(position, SIDE)
    units = [position]
    if row < 2 and column < 2:
        units.append(9)
    return units


def logistic(a):
    return 1 / (1 + np.exp(-a))


def run(layers, sign, hidden, targets, start):
    weights = [[w.astype(np.float64) for w in layer] for layer in start]
    changes = [[np.zeros_like(w) for w in layer] for layer in weights]
    heats = []
    for h, target in zip(hidden.astype(np.float64), targets):
        heat = np.zeros((SIDE * BLOCK, SIDE * BLOCK))
        for p in range(SIDE * SIDE):
            row, column = divmod(p, SIDE)
            rows = slice(row * BLOCK, (row + 1) * BLOCK)
            columns = slice(column * BLOCK, (column + 1) * BLOCK)
            values = [np.append(np.concatenate([h[u] for u in units_of(p)]), 1)]
            for layer in weights:
                values.append(np.append(logistic(layer[p] @ values[-1]), 1))
            heat[rows, columns] = values[-1][:-1].reshape(BLOCK, BLOCK)
            error = target[rows, columns].reshape(-1) - values[-1][:-1]
            if sign:
                error = np.copysign(1, error)
            for l in reversed(range(layers - 1)):
                out = values[l + 1][:-1]
                delta = out * (1 - out) * error
                error = (weights[l][p].T @ delta)[:-1]
                changes[l][p] = MOMENTUM * changes[l][p] + RATE * np.outer(delta, values[l])
                weights[l][p] = weights[l][p] + changes[l][p]
        heats.append(heat)
    return weights, changes, np.array(heats)


def main():
    rng = np.random.default_rng(63)
    hidden = rng.random((STEPS, 10, HIDDEN), dtype=np.float32)
    boxes = np.column_stack([rng.integers(0, 5, (STEPS, 2)), rng.integers(0, 4, (STEPS, 2))])
    boxes[::7] = -1  # absent
    targets = np.full((STEPS, SIDE * BLOCK, SIDE * BLOCK), 0.1)
    for target, (x, y, w, h) in zip(targets, boxes):
        if x >= 0:
            target[y:y + h + 1, x:x + w + 1] = 0.9  # both ends
    tensors = {"hidden": hidden.reshape(-1), "boxes": boxes.astype(np.float32).reshape(-1)}
    for name, layers, sign in (("three", 3, False), ("four", 4, False), ("sign", 3, True)):
        sizes = [None] + [MIDDLE] * (layers - 2) + [BLOCK * BLOCK]
        start = []
        for l in range(layers - 1):
            inputs = [HIDDEN * len(units_of(p)) if l == 0 else MIDDLE for p in range(SIDE * SIDE)]
            bound = 1 / np.sqrt(sizes[l + 1] - 0.9)
            start.append([rng.uniform(-bound, bound, (sizes[l + 1], n + 1)).astype(np.float32)
                          for n in inputs])
        weights, changes, heats = run(layers, sign, hidden, targets, start)
        flat = lambda layer: np.concatenate([w.reshape(-1) for w in layer])
        for l in range(layers - 1):
            tensors["%s_start%d" % (name, l)] = flat(start[l])
            tensors["%s_weights%d" % (name, l)] = flat(weights[l])
            tensors["%s_changes%d" % (name, l)] = flat(changes[l])
        tensors["%s_heats" % name] = heats.reshape(-1)
    header, data = {}, b""
    for name, values in sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize):
        dtype = {4: "F32", 8: "F64"}[values.dtype.itemsize]
        header[name] = {"dtype": dtype, "shape": [values.size],
                        "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(sys.argv[1], "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


main()
