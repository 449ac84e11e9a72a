# SPDX-FileCopyrightText: 2026 The pvm authors
# SPDX-License-Identifier: Apache-2.0
"""Predictive Vision Model: training, and prediction for many streams. See __init__.pyi."""

from ._pvm import (
    Checkpoint,
    Error,
    Found,
    Future,
    GpuArray,
    Moment,
    Predictor,
    Result,
    Source,
    Stream,
    Tracker,
    Trainer,
    __version__,
    devices,
    load_checkpoint,
    load_spec,
    open_source,
    synthetic,
)

__all__ = [
    "Checkpoint",
    "Error",
    "Found",
    "Future",
    "GpuArray",
    "Moment",
    "Predictor",
    "Result",
    "Source",
    "Stream",
    "Tracker",
    "Trainer",
    "__version__",
    "devices",
    "load_checkpoint",
    "load_spec",
    "open_source",
    "synthetic",
]
