#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the frozen network of a checkpoint as an ONNX model, a step of which is one run.

    export_onnx.py run.safetensors run.onnx

Needs the modules pvm, numpy and onnx. Inputs and outputs have a first dimension of any length, for
streams that run side by side:

- frame: uint8 [n, side, side, channels]; prediction: float [n, side, side, channels], of the frame
  two steps ahead, in [0, 1];
- the state: hidden, squeezed, squeezed_before [n, units * hidden] and frame_before
  [n, side * side * channels]. The outputs next_hidden, ... are the inputs of the next run. Each
  stream begins with what `initial_state` returns.
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import pvm


class Graph:
    """Collects nodes and constants; values are named by what makes them."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, kind, *inputs, output=None, **attributes):
        output = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def scaled(self, value, factor, offset, **names):
        product = self.add("Mul", value, self.constant(np.float32(factor)))
        return self.add("Add", product, self.constant(np.float32(offset)), **names)

    def gather(self, value, indices):
        return self.add("Gather", value, self.constant(np.asarray(indices, np.int64)), axis=1)


def activation(graph, spec, value):
    if not spec["polynomial"]:
        return graph.add("Sigmoid", value)
    above = graph.scaled(graph.add("Abs", value), 2, 2)  # a / (2 |a| + 2) + 1/2
    return graph.add(
        "Add", graph.add("Div", value, above), graph.constant(np.float32(0.5))
    )


def patch_of(unit, spec, side):
    """The indices of a unit's patch in a frame."""
    block, channels = spec["input_block_size"], spec["input_channels"]
    rows = np.arange(block) + unit["row"] * block
    columns = np.arange(block) + unit["column"] * block
    grid = (rows[:, None, None] * side + columns[None, :, None]) * channels
    return (grid + np.arange(channels)).reshape(-1)


def build(checkpoint):
    """The ONNX model of a `pvm.Checkpoint`'s network."""
    spec, units = checkpoint.spec, checkpoint.units
    if "own_activation" in spec:
        raise SystemExit("export_onnx: the network's activation is a program's own type")
    weights = checkpoint.weights
    side = spec["layer_shapes"][0] * spec["input_block_size"]
    channels = spec["input_channels"]
    pixels = side * side * channels
    hidden = spec["hidden_block_size"] ** 2
    total = len(units) * hidden
    graph = Graph()

    def values(unit_numbers, start):
        """The indices of units' hidden values, which begin at `start`."""
        return [start + u * hidden + i for u in unit_numbers for i in range(hidden)]

    # Everything that a unit's input may read: frame, frame before, squeezed values, those before,
    # and 1 for the bias.
    flat = graph.add("Reshape", "frame", graph.constant(np.array([-1, pixels], np.int64)))
    now = graph.scaled(
        graph.add("Cast", flat, to=TensorProto.FLOAT), 0.8 / 255, 0.1, output="next_frame_before"
    )
    first = graph.add(
        "Slice",
        now,
        graph.constant(np.array([0], np.int64)),
        graph.constant(np.array([1], np.int64)),
        graph.constant(np.array([1], np.int64)),
    )
    zero = graph.add("Mul", first, graph.constant(np.float32(0)))
    one = graph.add("Add", zero, graph.constant(np.float32(1)))
    inputs = graph.add("Concat", now, "frame_before", "squeezed", "squeezed_before", one, axis=1)
    at_squeezed, at_before, at_one = 2 * pixels, 2 * pixels + total, 2 * pixels + 2 * total

    activities, predictions, places = [], [], []
    for unit in units:
        if unit["layer"] == 0:
            patch = patch_of(unit, spec, side)
            read = [*patch, *(patch + pixels)]
        else:
            read = values(unit["primary"], at_squeezed) + values(unit["primary"], at_before)
        read += values(unit["context"], at_squeezed) + [at_one]
        size = hidden * unit["inputs"]
        w0 = weights[unit["w0"] : unit["w0"] + size].reshape(hidden, unit["inputs"])
        sums = graph.add("MatMul", graph.gather(inputs, read), graph.constant(w0.T))
        activities.append(activation(graph, spec, sums))
        if unit["layer"] > 0:
            continue
        representation = [activities[-1], one]
        if unit["representation"] > hidden + 1:
            representation.append(graph.gather("hidden", values(unit["context"], 0)))
        size = len(patch) * unit["representation"]
        w1 = weights[unit["w1"] : unit["w1"] + size].reshape(len(patch), -1)
        r = graph.add("Concat", *representation, axis=1)
        predictions.append(
            activation(graph, spec, graph.add("MatMul", r, graph.constant(w1.T)))
        )
        places.extend(patch)

    now_hidden = graph.add("Concat", *activities, axis=1, output="next_hidden")
    graph.scaled(now_hidden, 0.8, 0.1, output="next_squeezed")
    graph.add("Identity", "squeezed", output="next_squeezed_before")
    in_order = graph.gather(graph.add("Concat", *predictions, axis=1), np.argsort(places))
    plain = graph.scaled(in_order, 1.25, -0.125)
    clipped = graph.add(
        "Clip", plain, graph.constant(np.float32(0)), graph.constant(np.float32(1))
    )
    shape = graph.constant(np.array([-1, side, side, channels], np.int64))
    graph.add("Reshape", clipped, shape, output="prediction")

    def value(name, dimensions, kind=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, kind, ["n", *dimensions])

    state = {name: [total] for name in ("hidden", "squeezed", "squeezed_before")}
    state["frame_before"] = [pixels]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "pvm",
            [value("frame", [side, side, channels], TensorProto.UINT8)]
            + [value(name, shape) for name, shape in state.items()],
            [value("prediction", [side, side, channels])]
            + [value(f"next_{name}", shape) for name, shape in state.items()],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        producer_name="pvm",
        producer_version=pvm.__version__,
    )
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def initial_state(model, streams=1):
    """The state of streams that begin, by the names of the model's inputs."""
    starts = {"hidden": 1.0, "squeezed": 0.9, "squeezed_before": 1.0, "frame_before": 1.0}
    lengths = {i.name: i.type.tensor_type.shape.dim[1].dim_value for i in model.graph.input}
    return {
        name: np.full((streams, lengths[name]), value, np.float32)
        for name, value in starts.items()
    }


def main(arguments):
    if len(arguments) != 2:
        raise SystemExit("usage: export_onnx.py CHECKPOINT FILE.onnx")
    try:
        model = build(pvm.load_checkpoint(arguments[0]))
        onnx.save(model, arguments[1])
    except (pvm.Error, OSError) as error:
        raise SystemExit(f"export_onnx: {error}") from None
    nodes = len(model.graph.node)
    print(f"{arguments[1]}: {nodes} nodes, opset {model.opset_import[0].version}")


if __name__ == "__main__":
    main(sys.argv[1:])
