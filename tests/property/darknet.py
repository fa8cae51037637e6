"""Run many networks by a darknet library and by the engine, and compare."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from ctypes.util import find_library
from pathlib import Path
from random import Random

import numpy as np

from engine.backends.base import Device
from engine.darknet import cfg, graph, lower, weights
from engine.passes import optimise
from tests.property import darknet_runner
from tests.property.compare import FLOAT32, Difference
from tests.property.nets import FIRST, Net, random_net
from tests.property.reference import Reference

CALLS = 2


def find_darknet() -> str | None:
    """Return the library of Debian's package, or the one that the environment names."""
    named = os.environ.get("DARKNET_LIBRARY", "/usr/lib/darknet/libdarknet.so")
    return named if Path(named).exists() else find_library("darknet")


def first_net(seed: int) -> Net:
    return random_net(Random(seed), dialect=FIRST)


def differences(
    library: str, seeds: Sequence[int], *, cpu: Device
) -> Iterator[tuple[int, Difference]]:
    """Yield each network's number and the largest difference in its last layer.

    Differences are relative to values above 1 and absolute below, because float32 sums that
    cancel have no better relative accuracy.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for seed in seeds:
            _write(folder / f"{seed}.cfg", first_net(seed), seed)
        runner = [sys.executable, darknet_runner.__file__, library, str(folder)]
        done = subprocess.run(runner, capture_output=True, text=True, errors="replace", check=False)
        for seed in seeds:
            outputs = folder / f"{seed}.outputs.npy"
            if not outputs.exists():
                raise RuntimeError(f"darknet died of network {seed}: {done.stderr[-500:]}")
            largest = _largest(folder / f"{seed}.cfg", np.load(outputs), cpu)
            yield seed, Difference("darknet and engine", "last layer", largest, FLOAT32)


def _write(path: Path, net: Net, seed: int) -> None:
    random = np.random.default_rng([seed, 1])
    inputs = random.random((CALLS, 1, *net.input), dtype=np.float32)
    reference = Reference(net.text, seed=seed)
    reference.run(inputs[0])  # the run draws the weights
    path.write_text(net.text)
    path.with_suffix(".weights").write_bytes(reference.weights_file())
    for_it = reference.weights_file(of_first_darknet=True)
    path.with_suffix(".first.weights").write_bytes(for_it)
    np.save(path.with_suffix(".inputs.npy"), inputs)
    path.with_suffix(".size").write_text(str(np.prod(net.shapes[-1])))


def _largest(path: Path, expected: np.ndarray, cpu: Device) -> float:
    network = graph.build(cfg.read(path))
    plan = lower.lower(network, weights.load(path.with_suffix(".weights"), network))
    program = cpu.compile(optimise(plan, cpu.passes))
    try:
        inputs = np.load(path.with_suffix(".inputs.npy"))
        got = np.stack([program.forward(x)[0].ravel() for x in inputs])
    finally:
        program.close()
    return float((np.abs(got - expected) / np.maximum(1, np.abs(expected))).max())
