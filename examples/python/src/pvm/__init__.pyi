# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Predictive Vision Model: training, and prediction for many streams.

Frames are arrays of uint8, [height, width, channels] or [height, width]; three channels are blue,
green, red, as in OpenCV; a second or fourth is alpha, or whatever the program puts there. Frames of another size than the network's are resized. Whatever hands over
its memory by DLPack, or numpy can take without a copy, is an array: a torch tensor, for example. It
is in host memory, except that a Predictor on a GPU takes frames of that GPU, too (`Predictor.predict`).

Everything that fails raises `Error`. Functions that run steps or wait release the GIL.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

__version__: str

_Path = str | os.PathLike[str]
_Spec = _Path | dict[str, Any]
_Floats = npt.NDArray[np.float32]

class _Tensor(Protocol):
    """What hands over its memory by DLPack."""

    def __dlpack__(self, *, stream: Any = ...) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, int]: ...

_Array = npt.NDArray[np.uint8]
_Frame = _Array | _Tensor
_Box = tuple[float, float, float, float]
_Backend = Literal["auto", "cuda", "host"]
_Priority = Literal["low", "normal", "critical"]
_Frames = "_Path | Source | Sequence[_Frame] | _Frame | Iterable[_Frame]"

class Error(RuntimeError):
    """A failure: one sentence that says what went wrong, where, and what to do."""

    fault: Literal["usage", "spec", "source", "checkpoint", "device", "memory", "rank"]

def devices() -> list[dict[str, Any]]:
    """The GPUs that this process sees: index (the `device` of a Trainer), name, memory (in bytes),
    multiprocessors, and capability, (major, minor). CUDA_VISIBLE_DEVICES decides which these are,
    and in which order. Empty without a GPU, and in a module that was built without CUDA."""

def load_spec(path: _Path) -> dict[str, Any]:
    """Reads a model spec. Change the dict, and give it to a `Trainer`."""

def open_source(path: _Path) -> Source:
    """Opens a video, a zip, a directory of pictures, a camera, or generated frames."""

def synthetic(seed: int = 0, frames: int = 1000) -> Source:
    """Generated frames: a ball that crosses a textured background."""

def load_checkpoint(path: _Path, spec: _Spec | None = None) -> Checkpoint:
    """Reads a checkpoint; `spec` is needed for files that hold none."""

class Source:
    """Frames from a file, a camera or a generator, for ever."""

    @property
    def length(self) -> int | None:
        """Frames of one pass, if that is known."""
    @property
    def name(self) -> str: ...
    def read(self, height: int, width: int, channels: int = 3) -> _Array:
        """The next frame, resized."""

class Checkpoint:
    """A run between two steps, or the weights of a network."""

    @property
    def spec(self) -> dict[str, Any]: ...
    @property
    def units(self) -> list[dict[str, Any]]:
        """The wiring: layer, row, column; inputs, outputs, representation (lengths); w0, w1 (where
        the unit's matrices begin in `weights`); primary, context (units that it reads)."""
    @property
    def step(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def precision(self) -> str: ...
    @property
    def chosen(self) -> str:
        """What trials chose when the run began; empty: nothing."""
    @property
    def resumable(self) -> bool:
        """Whether a run continues from it, and not only its weights."""
    @property
    def has_readout(self) -> bool: ...
    @property
    def weights(self) -> _Floats:
        """A copy of all weights, in reference order."""
    def save(self, path: _Path) -> None: ...

class Moment:
    """A run when a callback is called, or at its end. Scores are of the last `every` steps."""

    @property
    def step(self) -> int:
        """Steps done, those before `fit` included."""
    @property
    def begin(self) -> int: ...
    @property
    def target(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def cut_short(self) -> bool:
        """Whether the run ended before its target."""
    @property
    def skipped(self) -> int:
        """Unreadable frames that the sources left out."""
    @property
    def mse(self) -> float:
        """Mean squared error of the prediction, on pixels in [0, 1]."""
    @property
    def psnr(self) -> float: ...
    @property
    def persistence_mse(self) -> float:
        """The same for repeating the frame of two steps before."""
    @property
    def loss(self) -> float: ...

class Trainer:
    """Trains a network online: each step takes one frame of every sequence of the batch.

    One thread at a time may use it; others get an Error, except that `stop` may be called by any.
    """

    def __init__(
        self,
        start: _Spec | Checkpoint,
        *,
        batch: int | Literal["auto"] = 1,
        precision: Literal["", "fp32", "tf32", "bf16", "fp16", "auto"] = "",
        seed: int = 0,
        threads: int = 0,
        backend: _Backend = "auto",
        reduce: Literal["", "mean", "sum"] = "",
        freeze: bool = False,
        rate: float | Literal["auto"] | None = None,
        rate_budget: int | None = None,
        frames: _Frames | list[_Frames] | None = None,
        device: int | None = None,
        devices: list[int] = ...,
        shards: int = 0,
    ) -> None:
        """A new run of a spec, or one that continues from a checkpoint, whose batch then counts.

        precision, reduce: "" is that of the checkpoint, or fp32 and mean. freeze: run without
        learning. rate: one learning rate from the start instead of the spec's.

        "auto": short trials choose it, as `pvm -b auto`, `--precision auto` and `--rate auto` do;
        `chosen` and `why` say what, and why. They need frames: those of the run, or some like
        them, of which they see the first 2,000; iterators would be used up, and are refused.
        rate_budget: steps of all trials of rates together, 2,000 at least (default: 10,000).
        Ctrl-C ends the trials. A run that continues keeps what its checkpoint has.

        device: the GPU, by its number in `devices()` (default: the first). devices: those that
        share the network, and shards: into how many parts it is divided on them.
        """
    def fit(
        self,
        frames: _Frames | list[_Frames],
        steps: int | None = None,
        *,
        callback: Callable[[Moment], object] | None = None,
        every: int = 1000,
        checkpoints: _Path = "",
        save_every: int = 100_000,
        metrics: _Path = "",
        preview: _Path = "",
        progress: bool = False,
    ) -> Moment:
        """Trains until the step counter reaches `steps` (default: the spec's).

        frames: a path, a Source, a sequence of frames (which starts over at its end), an iterator
        of frames, or a list of such for a batch. Paths and sequences are dealt to a batch: if there
        are fewer than that, several begin at different places of one. callback: is called every `every` steps; what it
        raises ends the run, and is raised here. checkpoints: the prefix of their names. metrics,
        preview: files that are written every `every` steps. Ctrl-C saves a checkpoint, if there
        are any, and raises KeyboardInterrupt.
        """
    def run(self, frames: _Frame) -> None:
        """Runs the steps of frames that the program has: one, or [steps, (batch,) h, w, c]."""
    def start_sequence(self) -> None:
        """The next `run` begins a new sequence: its frame is not scored."""
    def score(self) -> Moment:
        """The score of `run` since it was last asked for."""
    def stop(self) -> None:
        """Makes the `fit` of another thread return."""
    def save(self, path: _Path) -> None: ...
    def checkpoint(self) -> Checkpoint: ...
    def prediction(self) -> _Floats:
        """Of the frames two steps ahead, [batch, h, w, c] in [0, 1]."""
    def hidden(self) -> _Floats:
        """Of the last step, [batch, units, hidden]."""
    def weights(self) -> _Floats: ...
    @property
    def step(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def precision(self) -> str: ...
    @property
    def chosen(self) -> str:
        """What trials have chosen, "batch 16, precision bf16, rate 0.32"; checkpoints hold it, and
        runs that continue. Empty: nothing."""
    @property
    def why(self) -> list[str]:
        """Why: a sentence for each choice, with what other trials have shown."""
    @property
    def spec(self) -> dict[str, Any]: ...
    @property
    def frame_shape(self) -> tuple[int, int, int]: ...
    @property
    def description(self) -> str:
        """Which engine runs where."""

class GpuArray:
    """Floats in the memory of a GPU, for `torch.from_dlpack`, `cupy.from_dlpack` and the like, which
    take it without a copy.

    The values are there: no stream has to wait for them. The memory is used again when this and all
    tensors of it are gone; before that, work on streams that do not synchronise with CUDA's default
    stream must have ended.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def device(self) -> int:
        """The GPU, by its number in `devices()`."""
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        """Raises BufferError for a copy and for another device."""

class Result:
    """What a network makes of a frame. Arrays are GpuArrays with `results_on_gpu`."""

    @property
    def frame(self) -> int:
        """Its number in the stream, from 0."""
    @property
    def prediction(self) -> _Floats | GpuArray | None:
        """Of the frame two steps ahead, [h, w, c] in [0, 1]."""
    @property
    def hidden(self) -> _Floats | GpuArray | None: ...
    @property
    def heat(self) -> _Floats | None:
        """The readout's heatmap, [cells, cells]."""
    @property
    def box(self) -> _Box | None:
        """x, y, width, height of the object in pixels of the network's frame, if it is there."""
    @property
    def confidence(self) -> float:
        """That the object is there: 0 to 1."""
    @property
    def latency(self) -> float:
        """Seconds from `submit` to the result."""
    @property
    def batch(self) -> int:
        """How many frames shared the step."""

class Future:
    """A result that comes later."""

    def done(self) -> bool: ...
    def result(self, timeout: float | None = None) -> Result:
        """Waits for it, at most `timeout` seconds (TimeoutError). It is given once."""

class Stream:
    """A stream of frames with a past of its own. Frames submitted before it closes have their turn."""

    def close(self) -> None: ...
    @property
    def is_open(self) -> bool: ...
    def __enter__(self) -> Stream: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class Predictor:
    """A frozen network that follows many streams. Threads may share it."""

    def __init__(
        self,
        start: _Path | Checkpoint,
        *,
        spec: _Spec | None = None,
        throughput: bool = False,
        batch: int | None = None,
        wait: float | None = None,
        prediction: bool = True,
        hidden: bool = False,
        stream_frames: int = 8,
        queue_frames: int = 4096,
        memory_bytes: int | None = None,
        threads: int = 0,
        backend: _Backend = "host",
        device: int | None = None,
        precision: Literal["fp32", "bf16", "fp16"] = "fp32",
        results_on_gpu: bool = False,
    ) -> None:
        """The network, and a tracker's readout, of a checkpoint.

        throughput: large steps, for which frames wait for others; else steps are short and nothing
        waits. batch, wait: the most frames of a step, and the longest wait in seconds, if other
        ones. prediction, hidden: what results have. stream_frames, queue_frames: how many frames of
        a stream, and of all, may wait. memory_bytes: bound of the streams' memory. device: the GPU
        that predicts, by its number in pvm.devices(), whatever backend is. precision: of the
        weights; bf16 and fp16 are for a GPU. The file may also be one of pvm quantize.
        results_on_gpu: prediction and hidden stay in the memory of the GPU that predicts, in bf16
        or fp16, or from a file of pvm quantize.
        """
    def open(self) -> Stream: ...
    def predict(self, stream: Stream, frame: _Frame, priority: _Priority = "normal") -> Result:
        """The result of a stream's next frame.

        A frame in the memory of the GPU that predicts (in bf16 or fp16, or from a file of pvm
        quantize) reaches the network without the host, except that a readout gets a copy there. It
        has the network's size, and is contiguous. Work that writes it may still run. Frames in
        other memory raise Error.
        """
    def submit(
        self, stream: Stream, frame: _Frame, priority: _Priority = "normal", block: bool = True
    ) -> Future | None:
        """Hands a frame in. If too many wait: waits for room, or returns None without `block`.

        One in host memory is copied. One in a GPU's is not, and must not change until its result
        is there.
        """
    def report(self) -> dict[str, int | float]: ...
    @property
    def spec(self) -> dict[str, Any]: ...
    @property
    def frame_shape(self) -> tuple[int, int, int]: ...
    @property
    def has_readout(self) -> bool: ...
    @property
    def description(self) -> str: ...

class Found:
    """Where a tracker sees the object."""

    @property
    def present(self) -> bool: ...
    @property
    def confidence(self) -> float: ...
    @property
    def box(self) -> _Box | None: ...

class Tracker:
    """A readout that learns from labelled frames where an object is. Frames are of the network's size."""

    def __init__(self, network: Checkpoint, *, threads: int = 0) -> None: ...
    @staticmethod
    def load(path: _Path) -> Tracker: ...
    def learn(self, frame: _Frame, box: _Box | None) -> None:
        """box: x, y, width, height in pixels of the frame; None: the object is not there."""
    def track(self, frame: _Frame) -> Found: ...
    def reset(self) -> None:
        """Forgets the frames seen, before another clip. What was learned stays."""
    def save(self, path: _Path) -> None:
        """Writes network and readout, for `load` and for a `Predictor`."""
    @property
    def frame_shape(self) -> tuple[int, int, int]: ...
