"""An untrusted .cfg: read, built, and run if it is small."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np

from engine.backends import open_device
from engine.darknet import cfg, graph, weights
from engine.darknet.lower import lower
from engine.passes import optimise
from tools.fuzz import seeds as files
from tools.fuzz.networks import is_small, mutate_text, write_cfg


def seeds() -> Iterator[bytes]:
    yield b""
    yield from (text.encode() for text in files.networks())


def mutate(data: bytes, random: Random) -> bytes:
    return mutate_text(data.decode("utf-8", "replace"), random).encode()


def run(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        network = graph.build(cfg.read(write_cfg(data, Path(folder))))
    if not is_small(network):
        return
    device = open_device("cpu:1")
    try:
        plan = optimise(lower(network, weights.initial(network)), device.passes)
        program = device.compile(plan)
        program.forward(np.zeros((plan.steps, *plan.source.shape.sides), np.float32))
    finally:
        device.close()
