# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""The ONNX model of a network predicts what the library predicts."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

import pvm

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

HERE = pathlib.Path(__file__).parents[1]
ZOO = HERE.parents[1] / "model_zoo"
sys.path.insert(0, str(HERE))
import export_onnx  # noqa: E402


def trained(spec, **options):
    trainer = pvm.Trainer(spec, rate=0.02, **options)
    trainer.fit(pvm.synthetic(), 300)
    return trainer.checkpoint()


TINY = pvm.load_spec(ZOO / "tiny.json")
CASES = {
    "tiny": TINY,
    "logistic": {**TINY, "polynomial": 0},
    "context is fed": {**TINY, "feed_context_in_complex_layer": 1},
    "grey": {**TINY, "input_channels": 1},
    "grey and alpha": {**TINY, "input_channels": 2},
    "BGR and alpha": {**TINY, "input_channels": 4},
    "first_steps": pvm.load_spec(ZOO / "first_steps.json"),
}


@pytest.mark.parametrize("name", CASES)
def test_onnxruntime_predicts_as_the_library(name):
    checkpoint = trained(CASES[name])
    model = export_onnx.build(checkpoint)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    predictor = pvm.Predictor(checkpoint, hidden=True)
    side, _, channels = predictor.frame_shape
    sources = [pvm.synthetic(seed=1), pvm.synthetic(seed=2)]
    streams = [predictor.open() for _ in sources]
    state = export_onnx.initial_state(model, len(sources))
    outputs = [output.name for output in session.get_outputs()]
    worst = 0
    for step in range(200):
        frames = [source.read(side, side, channels) for source in sources]
        results = [predictor.predict(s, f) for s, f in zip(streams, frames)]
        values = dict(zip(outputs, session.run(outputs, {"frame": np.stack(frames), **state})))
        state = {name: values[f"next_{name}"] for name in state}
        for i, result in enumerate(results):
            worst = max(worst, np.abs(values["prediction"][i] - result.prediction).max())
            difference = values["next_hidden"][i] - result.hidden.reshape(-1)
            worst = max(worst, np.abs(difference).max())
    print(f"{name}: {worst:.1e}")
    assert worst < 1e-5


def test_the_script_writes_a_file(tmp_path):
    trained(TINY).save(tmp_path / "run.safetensors")
    script = [sys.executable, HERE / "export_onnx.py"]
    done = subprocess.run(
        [*script, tmp_path / "run.safetensors", tmp_path / "run.onnx"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "nodes, opset 17" in done.stdout
    onnx.checker.check_model(str(tmp_path / "run.onnx"))
    failed = subprocess.run(
        [*script, tmp_path / "none.safetensors", tmp_path / "x.onnx"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed.returncode == 1 and "no such file" in failed.stderr
