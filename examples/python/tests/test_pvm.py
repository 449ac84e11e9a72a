# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python module: PYTHONPATH=build/tests/examples/python pytest examples/python/tests"""

import ast
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import pvm

TINY = pathlib.Path(__file__).parents[3] / "model_zoo" / "tiny.json"


def spec():
    return pvm.load_spec(TINY)


def frames(count, side=None, seed=0):
    side = side or pvm.Trainer(TINY).frame_shape[0]
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def test_fit_learns_and_reports():
    trainer = pvm.Trainer(TINY, rate=0.01, threads=1)
    seen = []
    end = trainer.fit(pvm.synthetic(frames=100), 3000, callback=seen.append, every=1000)
    assert [moment.step for moment in seen] == [1000, 2000, 3000]
    assert end.step == trainer.step == 3000 and not end.cut_short
    assert seen[-1].mse < seen[0].mse
    assert end.mse == pytest.approx(seen[-1].mse)
    assert trainer.prediction().shape == (1, *trainer.frame_shape)
    assert trainer.hidden().min() >= 0 and trainer.hidden().max() <= 1


def test_every_way_to_give_frames_has_the_same_bits(tmp_path):
    data = frames(20)
    weights = []
    for how in ("sequence", "list", "iterator", "run", "run one by one"):
        trainer = pvm.Trainer(TINY, rate=0.01)
        if how == "sequence":
            trainer.fit(data, 20)
        elif how == "list":
            trainer.fit(list(data), 20)
        elif how == "iterator":
            trainer.fit(iter(data), 20)
        elif how == "run":
            trainer.run(data)
        else:
            for frame in data:
                trainer.run(frame)
        weights.append(trainer.weights())
    for other in weights[1:]:
        np.testing.assert_array_equal(weights[0], other)


def test_a_run_continues_from_its_checkpoint(tmp_path):
    whole = pvm.Trainer(TINY, rate=0.01)
    whole.fit(pvm.synthetic(), 200)
    first = pvm.Trainer(TINY, rate=0.01)
    first.fit(pvm.synthetic(), 80, checkpoints=str(tmp_path / "run"))
    (file,) = tmp_path.glob("run*.safetensors")
    saved = pvm.load_checkpoint(file)
    assert saved.step == 80 and saved.resumable and saved.spec["layer_shapes"]
    second = pvm.Trainer(saved)
    second.fit(pvm.synthetic(), 200)
    np.testing.assert_array_equal(second.weights(), whole.weights())


def test_a_batch_takes_a_source_for_each_sequence():
    trainer = pvm.Trainer(TINY, batch=2, rate=0.01)
    trainer.fit([frames(5, seed=1), frames(7, seed=2)], 10)
    assert trainer.prediction().shape[0] == 2
    trainer.run(np.stack([frames(3, seed=1), frames(3, seed=2)], axis=1))
    assert trainer.step == 13
    with pytest.raises(pvm.Error, match="a batch of 2 takes as many sources"):
        trainer.fit(frames(5), 20)


def test_a_predictor_has_the_bits_of_a_frozen_trainer(tmp_path):
    trainer = pvm.Trainer(TINY, rate=0.01)
    trainer.fit(pvm.synthetic(), 300)
    trainer.save(tmp_path / "run.safetensors")
    weights = {"spec": trainer.spec, "weights": trainer.weights()}
    predictor = pvm.Predictor(tmp_path / "run.safetensors", hidden=True)
    data = frames(12)
    with predictor.open() as a, predictor.open() as b:
        futures = []
        for frame in data:
            futures.append(predictor.submit(a, frame))
            predictor.submit(b, frame[::-1], priority="critical")
        results = [future.result() for future in futures]
        alone = predictor.open()
        for frame, result in zip(data, results):
            again = predictor.predict(alone, frame)
            np.testing.assert_array_equal(again.prediction, result.prediction)
            np.testing.assert_array_equal(again.hidden, result.hidden)
            assert again.frame == result.frame and again.box is None and again.heat is None
    assert not a.is_open
    assert predictor.report()["frames"] == 36
    assert weights["weights"].size > 0
    with pytest.raises(pvm.Error, match="the stream is closed"):
        predictor.predict(a, data[0])
    with pytest.raises(pvm.Error, match="given once"):
        futures[0].result()


def test_a_tracker_and_its_predictor_agree(tmp_path):
    trainer = pvm.Trainer(TINY, rate=0.01)
    trainer.run(frames(3))
    tracker = pvm.Tracker(trainer.checkpoint())
    side = tracker.frame_shape[0]

    def square(at):
        frame = np.full((side, side, 3), 20, np.uint8)
        frame[at : at + side // 2, 2 : 2 + side // 2] = (30, 60, 230)
        return frame

    for at in range(side // 2):
        tracker.learn(square(at), (2, at, side // 2, side // 2))
        tracker.learn(np.full((side, side, 3), 20, np.uint8), None)
    tracker.save(tmp_path / "ball.safetensors")
    loaded = pvm.Tracker.load(tmp_path / "ball.safetensors")
    predictor = pvm.Predictor(tmp_path / "ball.safetensors")
    assert predictor.has_readout
    stream = predictor.open()
    for at in (1, 3):
        found = loaded.track(square(at))
        result = predictor.predict(stream, square(at))
        assert found.present and result.box == found.box
        assert result.confidence == found.confidence
        assert result.heat.shape == (spec()["layer_shapes"][0],) * 2


def test_errors_are_the_librarys_sentences(tmp_path):
    with pytest.raises(pvm.Error, match="no such file") as caught:
        pvm.load_checkpoint(tmp_path / "none.safetensors")
    assert caught.value.fault == "checkpoint"
    with pytest.raises(pvm.Error) as caught:
        pvm.Trainer({**spec(), "layer_shapes": []})
    assert caught.value.fault == "spec"
    trainer = pvm.Trainer(TINY)
    for wrong, sentence in (
        (np.zeros((8, 8, 3)), "uint8, and these are float64"),
        (np.zeros((8, 8, 2), np.uint8), "8 x 8 x 2"),
        (np.zeros(8, np.uint8), "has 1"),
        (np.zeros((0, 8, 3), np.uint8), "0 x 8 x 3"),
        ("text", "uint8"),
    ):
        with pytest.raises(pvm.Error, match=sentence):
            trainer.run(wrong)
    with pytest.raises(pvm.Error, match="precision .fp8. is unknown"):
        pvm.Trainer(TINY, precision="fp8")
    with pytest.raises(pvm.Error, match="ended after 5 frames"):
        trainer.fit(iter(frames(5)), 10)
    with pytest.raises(pvm.Error, match="frames come from"):
        trainer.fit(7, 10)
    with pytest.raises(pvm.Error, match="every is 0"):
        trainer.fit(pvm.synthetic(), 10, every=0)
    with pytest.raises(TypeError, match="not int"):
        pvm.Predictor(7)
    with pytest.raises(pvm.Error, match="wait is"):
        pvm.Predictor(trainer.checkpoint(), wait=-1)


def test_what_python_raises_comes_back():
    class Mine(Exception):
        pass

    def callback(moment):
        raise Mine("here")

    def source():
        yield frames(1)[0]
        raise Mine("there")

    trainer = pvm.Trainer(TINY)
    with pytest.raises(Mine, match="here"):
        trainer.fit(pvm.synthetic(), 1000, callback=callback, every=10)
    assert trainer.step < 1000
    with pytest.raises(Mine, match="there"):
        trainer.fit(source(), trainer.step + 10)
    trainer.fit(pvm.synthetic(), trainer.step + 10)  # it still works


def test_frames_of_other_sizes_are_resized():
    trainer = pvm.Trainer(TINY, freeze=True)
    flat = np.full((100, 37), 128, np.uint8)
    trainer.run(flat)
    assert trainer.step == 1


def interrupt_after(seconds):
    def interrupt():
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


def test_ctrl_c_ends_a_fit_and_saves(tmp_path):
    trainer = pvm.Trainer(TINY)
    thread = interrupt_after(0.3)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(pvm.synthetic(), 10**9, checkpoints=str(tmp_path / "run"))
    assert time.monotonic() - start < 20
    thread.join()
    assert list(tmp_path.glob("run*.safetensors"))
    before = trainer.step
    trainer.fit(pvm.synthetic(), before + 5)
    assert trainer.step == before + 5


def test_ctrl_c_ends_a_wait():
    predictor = pvm.Predictor(
        pvm.Trainer(TINY).checkpoint(), throughput=True, wait=60, stream_frames=1
    )
    idle, stream = predictor.open(), predictor.open()
    future = predictor.submit(stream, frames(1)[0])
    assert predictor.submit(stream, frames(1)[0], block=False) is None
    with pytest.raises(TimeoutError):
        future.result(timeout=0.05)
    for wait in (future.result, lambda: predictor.submit(stream, frames(1)[0])):
        thread = interrupt_after(0.2)
        with pytest.raises(KeyboardInterrupt):
            wait()
        thread.join()
    idle.close()
    assert future.result().frame == 0


def test_the_gil_is_free_while_steps_run():
    trainer = pvm.Trainer(TINY)
    other = []

    def count():
        while not other:
            time.sleep(0.001)
        with pytest.raises(pvm.Error, match="in another thread"):
            trainer.weights()
        other.append("ran")
        trainer.stop()

    thread = threading.Thread(target=count)
    thread.start()
    end = trainer.fit(pvm.synthetic(), 10**9, callback=lambda m: other.append(m.step), every=500)
    thread.join()
    assert "ran" in other and end.cut_short


def test_the_cost_of_a_frame():
    """What Python adds to a frame: `predict` through Python, less what the library says it took."""
    predictor = pvm.Predictor(pvm.Trainer(TINY).checkpoint(), threads=1)
    stream, frame = predictor.open(), frames(1)[0]
    added = []
    for _ in range(2000):
        start = time.perf_counter()
        result = predictor.predict(stream, frame)
        added.append(time.perf_counter() - start - result.latency)
    median = sorted(added)[len(added) // 2]
    print(f"Python adds {median * 1e6:.1f} us to a frame")
    assert median < 15e-6


def test_the_stubs_have_what_the_module_has():
    stub = ast.parse((pathlib.Path(pvm.__file__).parent / "__init__.pyi").read_text())
    names = {}
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            names[node.name] = {
                item.name if isinstance(item, ast.FunctionDef) else item.target.id
                for item in node.body
                if isinstance(item, (ast.FunctionDef, ast.AnnAssign))
            }
        elif isinstance(node, ast.FunctionDef):
            names[node.name] = None
    assert set(names) | {"__version__"} == set(pvm.__all__)
    for name, members in names.items():
        if members is None or name == "Error":
            continue
        public = {m for m in vars(getattr(pvm, name)) if not m.startswith("_")}
        assert public == {m for m in members if not m.startswith("_")}, name


def test_the_example_runs(tmp_path):
    script = pathlib.Path(__file__).parents[1] / "first_network.py"
    command = [sys.executable, script, "--steps", "40", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("predictions.png", "curve.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    pvm.load_checkpoint(tmp_path / "network.safetensors")
