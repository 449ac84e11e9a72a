# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of DLPack: tensors as frames, results as tensors. Those of a GPU run where there is one, and
on the emulated device: see tests/CMakeLists.txt."""

import gc
import pathlib

import numpy as np
import pytest

import pvm
import tensors

TINY = pathlib.Path(__file__).parents[3] / "model_zoo" / "tiny.json"


def network():
    trainer = pvm.Trainer(TINY, rate=0.01, backend="host")
    trainer.fit(pvm.synthetic(), 100)
    return trainer.checkpoint()


def frames(count, shape=None):
    shape = shape or pvm.Trainer(TINY, backend="host").frame_shape
    return np.random.default_rng(1).integers(0, 256, (count, *shape), dtype=np.uint8)


@pytest.fixture(name="gpu", scope="module")
def found_gpu():
    gpu = tensors.find_gpu()
    if gpu is None:
        pytest.skip("there is no GPU")
    try:
        pvm.Predictor(network(), backend="cuda", precision="fp16")
    except pvm.Error as error:
        pytest.skip(str(error))
    return gpu


def on_gpu(**options):
    return pvm.Predictor(network(), backend="cuda", precision="fp16", **options)


# ------------------------------------------------------------------------------------ on the host


def test_a_tensor_on_the_host_is_a_frame():
    data = frames(4)
    mirrored = data[:, ::-1, :, ::-1]  # with negative strides
    predictor = pvm.Predictor(network())
    for arrays in (data, mirrored):
        as_arrays, as_tensors = predictor.open(), predictor.open()
        for array in arrays:
            tensor = tensors.of_array(array)
            expected = predictor.predict(as_arrays, array).prediction
            result = predictor.submit(as_tensors, tensor).result()
            np.testing.assert_array_equal(result.prediction, expected)
            assert tensor.streams == [None] and tensor.held == 0
    # Of another size, and where only the offset says where it begins.
    large = np.ascontiguousarray(frames(1, (50, 40, 3))[0])
    at_offset = tensors.Tensor(large.ctypes.data - 64, large.shape, offset=64)
    with predictor.open() as a, predictor.open() as b:
        np.testing.assert_array_equal(
            predictor.predict(a, large).prediction, predictor.predict(b, at_offset).prediction
        )


def test_a_trainer_and_a_tracker_take_tensors():
    data = frames(6)
    weights = []
    for convert in (np.asarray, tensors.of_array):
        trainer = pvm.Trainer(TINY, rate=0.01, backend="host")
        trainer.run(convert(data[:2]))
        trainer.run(convert(data[2]))
        trainer.fit([convert(one) for one in data[3:]], 6)
        weights.append(trainer.weights())
    np.testing.assert_array_equal(*weights)
    tracker = pvm.Tracker(network())
    tracker.learn(tensors.of_array(data[0]), (1, 1, 3, 3))
    assert tracker.track(tensors.of_array(data[1])).confidence >= 0


def test_results_on_the_host_are_tensors_without_a_copy():
    predictor = pvm.Predictor(network(), hidden=True)
    result = predictor.predict(predictor.open(), frames(1)[0])
    for array in (result.prediction, result.hidden):
        tensor = np.from_dlpack(array)
        assert tensor.ctypes.data == array.ctypes.data and tensor.dtype == np.float32
        np.testing.assert_array_equal(tensor, array)


def test_what_is_no_frame_is_refused():
    data = frames(1)[0]
    predictor, trainer = pvm.Predictor(network()), pvm.Trainer(TINY, backend="host")
    stream = predictor.open()
    address = data.ctypes.data
    for wrong, sentence in (
        (tensors.Tensor(address, (4, 4, 3), type=(2, 32)), "uint8, and these are float32"),
        (tensors.Tensor(address, (4, 4, 3), type=(0, 8)), "uint8, and these are int8"),
        (tensors.Tensor(address, (8,)), "this array has 1"),
        (tensors.Tensor(address, data.shape, (8, 0)), "in the memory of a device"),
    ):
        for take in (trainer.run, lambda frame: predictor.predict(stream, frame)):
            with pytest.raises(pvm.Error, match=sentence) as caught:
                take(wrong)
            assert caught.value.fault == "usage" and wrong.held == 0

    class Broken:
        def __dlpack_device__(self):
            return (tensors.CPU, 0)

        def __dlpack__(self):
            raise BufferError("not today")

    with pytest.raises(BufferError, match="not today"):
        trainer.run(Broken())


def test_frames_of_a_gpu_are_refused_where_nothing_reads_them():
    """No GPU is needed: nobody reads the memory."""
    shape = frames(1)[0].shape
    frame = tensors.Tensor(4096, shape, (tensors.CUDA, 0))
    predictor = pvm.Predictor(network())
    with pytest.raises(pvm.Error, match="GPU 0 and the predictor reads frames of host memory only"):
        predictor.predict(predictor.open(), frame)
    trainer, tracker = pvm.Trainer(TINY, backend="host"), pvm.Tracker(network())
    sequence = [frame] * 3
    for take in (trainer.run, tracker.track, lambda _: trainer.fit(sequence, 3)):
        with pytest.raises(pvm.Error, match=r"hand in a copy on the host \(.*frame.cpu"):
            take(frame)
    assert frame.held == 0
    with pytest.raises(pvm.Error, match="results stay on a GPU if it predicts in bf16 or fp16"):
        pvm.Predictor(network(), results_on_gpu=True)


# --------------------------------------------------------------------------------------- on a GPU


def test_frames_of_a_gpu_have_the_results_of_the_hosts(gpu):
    predictor = on_gpu(hidden=True)
    data = frames(5)
    streams = [predictor.open() for _ in range(3)]
    for array in data:
        expected = predictor.predict(streams[0], array)
        for stream, take in (
            (streams[1], predictor.predict),
            (streams[2], lambda s, f: predictor.submit(s, f).result()),
        ):
            tensor = tensors.on_gpu(gpu, array)
            result = take(stream, tensor)
            np.testing.assert_array_equal(result.prediction, expected.prediction)
            np.testing.assert_array_equal(result.hidden, expected.hidden)
            # On the legacy default stream it was ready, and nobody holds it any more.
            assert tensor.streams == [1] and tensor.held == 0


def test_a_frame_of_a_gpu_is_held_until_it_was_read(gpu):
    # The step waits for a frame of the stream that is idle.
    predictor = on_gpu(throughput=True, wait=60, stream_frames=1)
    idle, stream = predictor.open(), predictor.open()
    first, second = (tensors.on_gpu(gpu, array) for array in frames(2))
    future = predictor.submit(stream, first)
    assert first.held == 1
    assert predictor.submit(stream, second, block=False) is None and second.held == 0
    del future  # nobody will ask for the result
    gc.collect()
    assert first.held == 1
    idle.close()
    assert predictor.submit(stream, second).result().frame == 1
    assert first.held == 0 and second.held == 0
    # A predictor that goes takes none with it.
    idle = predictor.open()
    future = predictor.submit(stream, first)
    del predictor, future
    gc.collect()
    assert first.held == 0


def test_results_stay_on_a_gpu(gpu):
    normal, there = on_gpu(hidden=True), on_gpu(hidden=True, results_on_gpu=True)
    a, b = normal.open(), there.open()
    kept = []
    for number, array in enumerate(frames(4)):
        expected = normal.predict(a, array)
        frame = array if number % 2 else tensors.on_gpu(gpu, array)
        result = there.predict(b, frame)
        assert result.heat is None and result.frame == number
        for name in ("prediction", "hidden"):
            array, wanted = getattr(result, name), getattr(expected, name)
            assert array.shape == wanted.shape and array.device == 0
            assert array.__dlpack_device__() == (tensors.CUDA, 0)
            array.__dlpack__()  # a capsule that nobody takes
            taken = tensors.Taken(array, stream=2, max_version=(1, 0), dl_device=None, copy=False)
            assert taken.device == (tensors.CUDA, 0) and taken.shape == wanted.shape
            assert taken.type == (2, 32, 1) and taken.whole
            kept.append((taken, wanted))
    with pytest.raises(BufferError, match="without a copy"):
        array.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="where it is"):
        array.__dlpack__(dl_device=(tensors.CPU, 0))
    # Tensors outlive all of these, and memory is not used again before they go.
    del a, b, normal, there, array, result
    gc.collect()
    for taken, wanted in kept:
        np.testing.assert_array_equal(tensors.to_host(gpu, taken), wanted)
        taken.let_go()


def test_frames_of_a_gpu_are_taken_as_they_are(gpu):
    predictor = on_gpu()
    stream = predictor.open()
    side = predictor.frame_shape[0]
    address = tensors.on_gpu(gpu, frames(1)[0]).address
    mirrored = [-3 * side, 3, 1]
    for shape, options, sentence in (
        ((side, side, 3), {"device": (tensors.CUDA, 7)}, "GPU 7 and the predictor is on GPU 0"),
        ((side, side, 3), {"type": (2, 32)}, "uint8, and these are float32"),
        ((side, side, 3), {"strides": mirrored}, "make it contiguous"),
        ((side, 2 * side, 3), {}, f"{side} x {side} x 3, and this one is {side} x {2 * side} x 3"),
        ((3, side, side), {}, f"this one is 3 x {side} x {side}"),
    ):
        tensor = tensors.Tensor(address, shape, **{"device": (tensors.CUDA, 0), **options})
        with pytest.raises(pvm.Error, match=sentence) as caught:
            predictor.predict(stream, tensor)
        assert caught.value.fault == "usage" and tensor.held == 0


def test_a_readout_finds_the_same_in_frames_of_a_gpu(gpu, tmp_path):
    tracker = pvm.Tracker(network())
    for number, array in enumerate(frames(20)):
        array[: 8 + number % 5, :8] = 255
        tracker.learn(array, (0, 0, 8, 8 + number % 5))
    tracker.save(tmp_path / "tracker.safetensors")
    options = {"backend": "cuda", "precision": "fp16", "hidden": True}
    normal = pvm.Predictor(tmp_path / "tracker.safetensors", **options)
    there = pvm.Predictor(tmp_path / "tracker.safetensors", results_on_gpu=True, **options)
    a, b = normal.open(), there.open()
    for array in frames(3):
        expected = normal.predict(a, array)
        result = there.predict(b, tensors.on_gpu(gpu, array))
        np.testing.assert_array_equal(result.heat, expected.heat)
        assert result.box == expected.box and result.confidence == expected.confidence
        taken = tensors.Taken(result.hidden)
        np.testing.assert_array_equal(tensors.to_host(gpu, taken), expected.hidden)
        taken.let_go()


# ------------------------------------------------------------------------------------- with torch


def test_torch_on_the_host():
    torch = pytest.importorskip("torch")
    data = frames(3)
    predictor = pvm.Predictor(network())
    a, b = predictor.open(), predictor.open()
    for array in data:
        expected = predictor.predict(a, array).prediction
        result = torch.from_dlpack(predictor.predict(b, torch.from_numpy(array)).prediction)
        np.testing.assert_array_equal(result.numpy(), expected)


def test_torch_on_a_gpu(gpu):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    normal, there = on_gpu(), on_gpu(results_on_gpu=True)
    a, b = normal.open(), there.open()
    for array in frames(3):
        expected = normal.predict(a, array).prediction
        frame = torch.from_numpy(array).cuda()
        result = torch.from_dlpack(there.predict(b, frame).prediction)
        assert result.is_cuda
        np.testing.assert_array_equal(result.cpu().numpy(), expected)
