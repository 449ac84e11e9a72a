#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a network on generated frames or a video, and draws what it predicts.

    first_network.py [VIDEO] [--steps 20000] [--out runs/python]

Writes a picture (input, prediction, the frame that came, the error; four times during training)
and the learning curve, as PNG files that need no further module.
"""

import argparse
import pathlib
import struct
import zlib

import numpy as np

import pvm

ZOO = pathlib.Path(__file__).resolve().parents[2] / "model_zoo"


def write_png(path, picture):
    """Writes [height, width, 3] in blue, green, red."""
    height, width, _ = picture.shape
    rows = np.concatenate(
        [np.zeros((height, 1), np.uint8), picture[..., ::-1].reshape(height, -1)], axis=1
    )

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + chunk(b"IEND", b"")
    )


def look(checkpoint, source):
    """What the frozen network predicts on the next frames: a row of pictures."""
    predictor = pvm.Predictor(checkpoint)
    side, _, channels = predictor.frame_shape
    frames = [source.read(side, side, channels) for _ in range(30)]
    with predictor.open() as stream:
        results = [predictor.predict(stream, frame) for frame in frames]
    prediction = np.rint(255 * results[-3].prediction).astype(np.uint8)
    error = np.abs(frames[-1].astype(int) - prediction)
    shown = [frames[-3], prediction, frames[-1], np.clip(4 * error, 0, 255).astype(np.uint8)]
    return np.concatenate([np.kron(picture, np.ones((3, 3, 1), np.uint8)) for picture in shown], 1)


def curve(scores, height=200, width=600):
    """The error of the prediction (white) and of repeating the frame (grey), in dB."""
    picture = np.zeros((height, width, 3), np.uint8)
    values = -10 * np.log10(np.array(scores))
    low, high = values.min() - 1, values.max() + 1
    for column in range(width):
        pair = values[column * len(values) // width]
        for value, shade in zip(pair, (255, 110)):
            picture[int((high - value) / (high - low) * (height - 1)), column] = shade
    return picture


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("video", nargs="?", default="synthetic")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/python"))
    a = parser.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    trainer = pvm.Trainer(ZOO / "first_steps.json")
    scores, rows = [], []

    def watch(moment):
        if np.isfinite(moment.mse):  # a fit's first two steps have nothing to be compared with
            scores.append((moment.mse, moment.persistence_mse))
        print(f"step {moment.step}: the prediction {moment.psnr:.1f} dB", flush=True)

    every = max(1, a.steps // 20)
    for quarter in range(1, 5):
        trainer.fit(a.video, a.steps * quarter // 4, callback=watch, every=every)
        rows.append(look(trainer.checkpoint(), pvm.open_source(a.video)))
    trainer.save(a.out / "network.safetensors")
    write_png(a.out / "predictions.png", np.concatenate(rows, 0))
    write_png(a.out / "curve.png", curve(scores))
    print(f"wrote network.safetensors, predictions.png and curve.png to {a.out}")


if __name__ == "__main__":
    try:
        main()
    except (pvm.Error, OSError) as error:
        raise SystemExit(f"first_network: {error}") from None
