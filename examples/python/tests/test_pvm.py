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
import zipfile

import numpy as np
import pytest

import pvm

ZOO = pathlib.Path(__file__).parents[3] / "model_zoo"
TINY = ZOO / "tiny.json"


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
    for wrong in (iter(frames(5)), pvm.synthetic(), [pvm.synthetic()] * 3, []):
        with pytest.raises(pvm.Error, match="a batch of 2 takes as many sources"):
            trainer.fit(wrong, 20)


def test_a_sequence_is_dealt_to_a_batch():
    data = frames(12)
    dealt = pvm.Trainer(TINY, batch=3, rate=0.01)
    dealt.fit(data, 4)
    by_hand = pvm.Trainer(TINY, batch=3, rate=0.01)
    by_hand.fit([data[:4], data[4:8], data[8:]], 4)
    np.testing.assert_array_equal(dealt.weights(), by_hand.weights())


def choose(start=TINY, **options):
    """A trainer with choices that trials on generated frames make."""
    options = {"threads": 1, "backend": "host", "frames": pvm.synthetic(frames=200), **options}
    return pvm.Trainer(start, **options)


def test_batch_precision_and_rate_are_chosen_by_trials(tmp_path):
    trainer = choose(batch="auto", precision="auto", rate="auto", rate_budget=2000)
    rate = trainer.spec["initial_learning_rate"]
    batch, precision = trainer.batch, trainer.precision
    assert precision in ("fp32", "bf16", "fp16") and 1 <= batch <= 50
    assert trainer.chosen == f"batch {batch}, precision {precision}, rate {rate:g}"
    speed, found = trainer.why
    assert speed.startswith(f"batch {batch} in {precision}: ") and " worth " in speed
    assert found.startswith(f"rate {rate:g}: ") and " trials, " in found

    # A run has the same bits as one for which the same is written by hand.
    by_hand = pvm.Trainer(TINY, batch=batch, precision=precision, rate=rate)
    assert by_hand.chosen == "" and by_hand.why == []
    for each in (trainer, by_hand):
        each.fit(frames(60), 20)
    np.testing.assert_array_equal(trainer.weights(), by_hand.weights())

    # The checkpoint holds the choice, and a run that goes on keeps it.
    trainer.save(tmp_path / "run.safetensors")
    saved = pvm.load_checkpoint(tmp_path / "run.safetensors")
    assert saved.chosen == trainer.chosen
    again = pvm.Trainer(saved, batch="auto", precision="auto", rate="auto")
    assert (again.batch, again.precision, again.chosen) == (batch, precision, trainer.chosen)
    assert again.why == [
        "the run keeps the checkpoint's batch, precision and rate, which were chosen when it "
        "began: " + trainer.chosen
    ]
    assert pvm.Trainer(saved, rate=rate).step == 20
    with pytest.raises(pvm.Error, match="rate is for new runs"):
        pvm.Trainer(saved, rate=2 * rate)
    by_hand = pvm.Trainer(by_hand.checkpoint())
    again.fit(frames(60), 30)
    by_hand.fit(frames(60), 30)
    np.testing.assert_array_equal(again.weights(), by_hand.weights())


def test_one_choice_leaves_the_others_alone():
    rate = choose(rate="auto", rate_budget=2000, batch=2, precision="bf16")
    assert rate.batch == 2 and rate.precision == "bf16"
    assert rate.chosen == f"rate {rate.spec['initial_learning_rate']:g}"
    assert rate.chosen == choose(rate="auto", rate_budget=2000, batch=2, precision="bf16").chosen
    precision = choose(precision="auto", batch=3, rate=0.01)
    assert precision.batch == 3 and precision.chosen == f"precision {precision.precision}"
    batch = choose(batch="auto")
    assert batch.precision == "fp32" and batch.chosen == f"batch {batch.batch}"
    assert batch.spec["initial_learning_rate"] == spec()["initial_learning_rate"]


def test_trials_take_frames_as_fit_does_and_leave_sources_where_they_are():
    source = pvm.synthetic(seed=3, frames=300)
    source.read(20, 20)
    data = frames(60)
    options = {"rate": "auto", "rate_budget": 2000, "threads": 1}
    chosen = {
        how: pvm.Trainer(TINY, frames=given, **options).chosen
        for how, given in {
            "array": data,
            "list of frames": list(data),
            "list of one": [data],
            "source": source,
        }.items()
    }
    assert chosen["array"] == chosen["list of frames"] == chosen["list of one"]
    other = pvm.synthetic(seed=3, frames=300)
    other.read(20, 20)
    np.testing.assert_array_equal(source.read(20, 20), other.read(20, 20))
    with pytest.raises(pvm.Error, match="use up the frames of an iterator"):
        pvm.Trainer(TINY, frames=iter(data), **options)


def test_choices_that_cannot_be_made_are_refused():
    saved = pvm.Trainer(TINY, rate=0.01)
    saved.run(frames(1))
    saved = saved.checkpoint()
    for options, sentence in (
        ({"rate": "automatic"}, "rate is 'automatic'; allowed: a number, or auto"),
        ({"batch": "many"}, "batch is 'many'; allowed: a number, or auto"),
        ({"batch": 0}, "batch is 0; allowed: 1 to 65536"),
        ({"threads": -1}, "threads is -1; allowed: 0 to 1024"),
        ({"rate": -1}, "rate is -1.0; allowed: 0.0 to 1000.0"),
        ({"rate": float("nan")}, "rate is nan; allowed: 0.0 to 1000.0"),
        ({"precision": "fp8"}, "'fp8' is unknown"),
        ({"rate": "auto", "frames": None}, "trials need frames"),
        ({"frames": pvm.synthetic()}, "nothing is auto"),
        ({"rate_budget": 5000, "frames": None}, "rate_budget is for the rate auto"),
        ({"rate": "auto", "rate_budget": 1999}, "found in 1999 steps; allow 2000 at least"),
        ({"rate": "auto", "freeze": True}, "the run is frozen"),
        ({"start": saved, "rate": "auto"}, "the rate auto is for new runs"),
        ({"rate": "auto", "frames": "none.avi"}, "none.avi"),
    ):
        given = {"start": TINY, "threads": 1, "frames": None, **options}
        if "auto" in options.values() and "frames" not in options:
            given["frames"] = pvm.synthetic()
        with pytest.raises(pvm.Error) as caught:
            pvm.Trainer(given.pop("start"), **given)
        assert sentence in str(caught.value)
        assert "\n" not in str(caught.value)


def test_gpus_have_numbers():
    gpus = pvm.devices()
    assert [gpu["index"] for gpu in gpus] == list(range(len(gpus)))
    for gpu in gpus:
        assert gpu["memory"] > 0 and gpu["multiprocessors"] > 0 and gpu["capability"] >= (5, 0)
    for device in (len(gpus), 1000):
        with pytest.raises(pvm.Error) as caught:
            pvm.Trainer(TINY, device=device)
        assert caught.value.fault == "device"
    with pytest.raises(pvm.Error, match="device is -1"):
        pvm.Trainer(TINY, device=-1)
    with pytest.raises(pvm.Error, match="leave one of them out"):
        pvm.Trainer(TINY, device=0, backend="host")
    with pytest.raises(pvm.Error, match="devices and shards are for GPUs"):
        pvm.Trainer(TINY, devices=[0, 1], backend="host")


def test_a_run_that_goes_on_combines_updates_as_before():
    def trainer():
        return pvm.Trainer(TINY, batch=2, rate=0.01, reduce="sum")

    data = frames(40)
    whole, first = trainer(), trainer()
    whole.fit(data, 20)
    first.fit(data, 10)
    second = pvm.Trainer(first.checkpoint())
    second.fit(data, 20)
    np.testing.assert_array_equal(second.weights(), whole.weights())


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


def test_a_predictor_takes_what_load_checkpoint_takes(tmp_path):
    weights = pvm.Trainer(TINY, rate=0.01).weights()
    with zipfile.ZipFile(tmp_path / "original.zip", "w") as archive:
        archive.writestr("run/pvm/weight_memory_main.npy", weights.tobytes())
    data = frames(3)
    network = pvm.load_checkpoint(tmp_path / "original.zip", TINY)
    np.testing.assert_array_equal(network.weights, weights)
    results = []
    for start in (network, tmp_path / "original.zip"):
        predictor = pvm.Predictor(start, spec=TINY)
        stream = predictor.open()
        results.append([predictor.predict(stream, frame).prediction for frame in data])
    np.testing.assert_array_equal(results[0], results[1])
    with pytest.raises(pvm.Error, match="name the spec it was made with"):
        pvm.Predictor(tmp_path / "original.zip")
    with pytest.raises(pvm.Error, match="device is -1"):
        pvm.Predictor(network, device=-1)
    with pytest.raises(pvm.Error, match="no GPU"):
        pvm.Predictor(network, device=1000)


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
        (np.zeros((8, 8, 5), np.uint8), "8 x 8 x 5"),
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


def test_steps_cannot_be_run_within_steps():
    trainer = pvm.Trainer(TINY)
    said = []

    def within(moment):
        for what in (
            lambda: trainer.fit(pvm.synthetic(), 10**6),
            lambda: trainer.run(frames(1)),
        ):
            with pytest.raises(pvm.Error, match="cannot be called by their callbacks") as caught:
                what()
            said.append(str(caught.value))
        assert trainer.prediction().shape[0] == 1  # what reads is allowed

    def source():
        while True:
            with pytest.raises(pvm.Error, match="callbacks or sources"):
                trainer.run(frames(1))
            yield frames(1)[0]

    trainer.fit(source(), 20, callback=within, every=10)
    assert trainer.step == 20 and len(said) == 4
    trainer.fit(pvm.synthetic(), 30)


def test_a_source_has_one_reader_at_a_time():
    source, trainer = pvm.synthetic(), pvm.Trainer(TINY)

    def read(moment):
        with pytest.raises(pvm.Error, match="is being read already"):
            source.read(8, 8)
        with pytest.raises(pvm.Error, match="is being read already"):
            pvm.Trainer(TINY).fit(source, 5)

    trainer.fit(source, 10, callback=read, every=5)
    assert source.read(8, 8).shape == (8, 8, 3)
    with pytest.raises(pvm.Error, match="is being read already"):
        pvm.Trainer(TINY, batch=2).fit([source, source], 5)
    trainer.fit(source, 20)
    assert (source.read(8, 8, 4)[..., 3] == 255).all()  # opaque
    for shape in ((0, 8), (8, -1), (8, 8, 5), (10**9, 10**9)):
        with pytest.raises(pvm.Error, match="1 to 32768 rows"):
            source.read(*shape)


def test_what_is_no_sequence_of_frames_is_refused():
    trainer = pvm.Trainer(TINY)
    for wrong, sentence in (
        (frames(1)[0], "no frames but one"),
        (frames(1)[0, 0], "no frames but one"),
        (np.zeros((0, 8, 8, 3), np.uint8), "is empty"),
        ([], "a batch of 1 takes"),
        ({}, "is empty"),
        (np.zeros((3, 8, 8, 3)), "float64"),
    ):
        with pytest.raises(pvm.Error, match=sentence):
            trainer.fit(wrong, 10)
    with pytest.raises(pvm.Error, match="cannot be called"):
        trainer.fit(pvm.synthetic(), 10, callback=5)
    assert trainer.step == 0
    trainer.fit(np.zeros((3, 8, 8), np.uint8), 3)  # grey frames


def test_files_may_be_named_by_paths(tmp_path):
    trainer = pvm.Trainer(TINY)
    trainer.fit(
        pvm.synthetic(),
        20,
        every=10,
        checkpoints=tmp_path / "run",
        metrics=tmp_path / "run.jsonl",
        preview=tmp_path / "run.png",
    )
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["run.jsonl", "run.png", "run_000000020.safetensors"]


def test_several_threads_may_wait_for_one_result():
    predictor = pvm.Predictor(pvm.Trainer(TINY).checkpoint(), throughput=True, wait=60)
    idle, stream = predictor.open(), predictor.open()
    for _ in range(20):
        future = predictor.submit(stream, frames(1)[0])
        got = []

        def take():
            try:
                got.append(future.result(timeout=30))
            except pvm.Error as error:
                got.append(str(error))

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        with pytest.raises(TimeoutError):
            future.result(timeout=0)
        with pytest.raises(TimeoutError):
            future.result(timeout=float("nan"))
        idle.close()
        for thread in threads:
            thread.join()
        assert sorted(isinstance(one, pvm.Result) for one in got) == [False, False, False, True]
        assert future.done()
        idle = predictor.open()


def test_a_stream_is_closed_while_another_thread_waits():
    predictor = pvm.Predictor(
        pvm.Trainer(TINY).checkpoint(), throughput=True, wait=60, stream_frames=1
    )
    idle = predictor.open()
    for _ in range(10):
        stream = predictor.open()
        first, said = predictor.submit(stream, frames(1)[0]), []

        def wait():
            with pytest.raises(pvm.Error, match="the stream is closed") as caught:
                predictor.predict(stream, frames(1)[0])
            said.append(caught.value.fault)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.01)
        stream.close()
        thread.join(30)
        assert said == ["usage"] and not stream.is_open
        idle.close()
        assert first.result().frame == 0
        idle = predictor.open()


def test_a_tracker_is_for_one_thread_at_a_time():
    trainer = pvm.Trainer(ZOO / "first_steps.json")
    trainer.run(frames(1, trainer.frame_shape[0]))
    tracker = pvm.Tracker(trainer.checkpoint())
    side = tracker.frame_shape[0]
    data = frames(100, side)
    said = []

    def learn():
        for frame in data:
            try:
                tracker.learn(frame, (2, 2, 8, 8))
            except pvm.Error as error:
                said.append(str(error))

    threads = [threading.Thread(target=learn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("in another thread" in sentence for sentence in said)
    tracker.track(data[0])


def test_frames_of_other_sizes_are_resized():
    trainer = pvm.Trainer(TINY, freeze=True)
    flat = np.full((100, 37), 128, np.uint8)
    trainer.run(flat)
    assert trainer.step == 1
    # Alpha is dropped, or kept if the network has it.
    trainer.run(np.stack([flat, flat], axis=2))
    assert trainer.step == 2
    of_alpha = pvm.Trainer({**spec(), "input_channels": 2}, freeze=True)
    of_alpha.run(np.stack([flat, flat // 2], axis=2))
    assert of_alpha.prediction().shape == (1, *of_alpha.frame_shape)
    assert of_alpha.frame_shape[2] == 2


def interrupt_after(seconds):
    # Where tests run in the background, Python has found SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)

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


def test_ctrl_c_ends_the_fits_of_all_threads():
    ends = []

    def fit():
        ends.append(pvm.Trainer(TINY, threads=1).fit(pvm.synthetic(), 10**9))

    others = [threading.Thread(target=fit) for _ in range(3)]
    for thread in others:
        thread.start()
    time.sleep(0.2)  # they run before that of the main thread does
    thread = interrupt_after(0.3)
    with pytest.raises(KeyboardInterrupt):
        pvm.Trainer(TINY, threads=1).fit(pvm.synthetic(), 10**9)
    thread.join()
    for thread in others:
        thread.join(20)
    assert [end.cut_short for end in ends] == [True] * 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):  # Python's own handler is there again
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


def test_ctrl_c_ends_trials():
    thread = interrupt_after(0.3)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        choose(rate="auto", rate_budget=10**9)
    assert time.monotonic() - start < 20
    thread.join()


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
        if isinstance(node, ast.ClassDef) and node.name.startswith("_"):
            continue  # for the stubs alone
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
