"""An untrusted .cfg with its .weights, through the whole engine to JSON.

An input is the text, a line with one NUL byte, and the weights.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np

import engine
from engine.darknet import cfg, graph
from engine.darknet.graph import Graph
from engine.errors import EngineError
from tools.fuzz import seeds as files
from tools.fuzz.networks import is_small, mutate_text, write_cfg

_SEPARATOR = b"\n\0\n"
_PICTURE = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
_MAX_BYTES = 1 << 20

_NUMBERS = (
    0.0,
    1.0,
    -1.0,
    1e-40,
    1e10,
    -1e10,
    3e38,
    -3e38,
    float("nan"),
    float("inf"),
    -float("inf"),
)
_STARTS = (b"\x80\x02", b"PK\3\4", b"<!DOCTYPE html>", b"version https://git-lfs", b"\x1f\x8b")


def seeds() -> Iterator[bytes]:
    for text in files.networks():
        network = _build(text.encode())
        if network is not None and is_small(network):
            yield text.encode() + _SEPARATOR + _random_weights(network, Random(0))
    small = [path for path in files.files("*.weights") if path.stat().st_size <= _MAX_BYTES]
    for path in small:
        text = path.with_suffix(".cfg")
        yield (text.read_bytes() if text.is_file() else b"") + _SEPARATOR + path.read_bytes()


def mutate(data: bytes, random: Random) -> bytes:
    text, _, weights = data.partition(_SEPARATOR)
    kind = random.random()
    if kind < 0.4:
        text = mutate_text(text.decode("utf-8", "replace"), random).encode()
        network = _build(text)
        if network is not None and network.weights_bytes <= _MAX_BYTES:
            weights = _random_weights(network, random)
    elif kind < 0.6:
        weights = _with_other_header(weights, random)
    elif kind < 0.7:
        weights = weights[: random.randrange(len(weights) + 1)]
    elif kind < 0.75:
        weights += bytes(random.randrange(1, 20))
    elif kind < 0.8:
        weights = random.choice(_STARTS) + weights[16:]
    else:
        weights = _with_other_numbers(weights, random)
    return text + _SEPARATOR + weights


def run(data: bytes) -> None:
    text, _, weights = data.partition(_SEPARATOR)
    with tempfile.TemporaryDirectory() as folder:
        path = write_cfg(text, Path(folder))
        file = path.with_suffix(".weights")
        file.write_bytes(weights)
        network = _build(text)
        if network is not None and not is_small(network):
            return
        with engine.load(path, file, device="cpu", threads=1, threshold=0.1) as detector:
            if detector.task == "other":
                sides = network.net.shape.sides if network else (1, 1, 1)
                detector.forward(np.full((1, *sides), 0.5, np.float32))
                return
            result = detector(_PICTURE)
            json.loads(result.to_json(), parse_constant=_reject_constant)
            if detector.task == "detector":
                result.plot(_PICTURE)


def _reject_constant(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def _build(text: bytes) -> Graph | None:
    try:
        return graph.build(cfg.parse(text.decode("utf-8", "replace")))
    except EngineError:
        return None


def _random_weights(network: Graph, random: Random) -> bytes:
    values = np.random.default_rng(random.randrange(2**32)).normal(
        0.1, random.choice((0.05, 1, 100)), network.parameter_count
    )
    return struct.pack("<iiiq", 0, 2, 5, 0) + np.abs(values).astype("<f4").tobytes()


def _with_other_header(weights: bytes, random: Random) -> bytes:
    numbers = (0, 1, 2, 5, 10, 1001, 2000, -1, 2**31 - 1, -(2**31), 0x02000000)
    header = struct.pack("<iii", *(random.choice(numbers) for _ in range(3)))
    return header + weights[len(header) :]


def _with_other_numbers(weights: bytes, random: Random) -> bytes:
    values = bytearray(weights)
    count = max((len(weights) - 20) // 4, 0)
    for _ in range(random.choice((1, 2, 20)) if count else 0):
        start = 20 + 4 * random.randrange(count)
        length = random.choice((1, 1, 8, 64))
        new = struct.pack("<f", random.choice(_NUMBERS)) * min(length, (len(weights) - start) // 4)
        values[start : start + len(new)] = new
    return bytes(values)
