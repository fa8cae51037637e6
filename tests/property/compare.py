"""Run one network by the reference and by the engine in several ways, and compare."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.backends.base import Device
from engine.darknet import cfg, graph, lower, weights
from engine.passes import PASSES, optimise
from engine.plan.build import Plan
from tests.passes.check import check_plan
from tests.property.nets import Net
from tests.property.reference import Reference

# relative errors of whole tensors
SAME_ARITHMETIC = 1e-5  # factors of weighted shortcuts and outputs are float32
FOLDED_CONSTANTS = 1e-4  # folded constants are rounded to float32
FLOAT32 = 1e-4  # sums in another order, through up to fifty layers
ELSEWHERE = 5e-4  # the same on another device
CALLS = 2  # recurrent state must show


@dataclass(frozen=True)
class Difference:
    """The difference of two runs in a tensor, and its limit."""

    runs: str
    layer: str
    error: float
    tolerance: float

    @property
    def is_too_large(self) -> bool:
        return not self.error <= self.tolerance

    def __str__(self) -> str:
        return f"{self.runs}: {self.layer}: {self.error:.3g}"


def compare(net: Net, *, seed: int, cpu: Device) -> list[Difference]:
    """Return the differences from the reference, or between runs, that exceed their limits."""
    return [each for each in measure(net, seed=seed, cpu=cpu, device=cpu) if each.is_too_large]


def measure(net: Net, *, seed: int, cpu: Device, device: Device) -> list[Difference]:
    """Measure all differences; the float32 plan runs on `device`, the others on `cpu`."""
    pictures = _pictures(net, seed)
    reference = Reference(net.text, seed=seed, time_steps=net.time_steps)
    expected = [reference.run(each) for each in pictures]
    naive = _lower(net, reference.weights_file())
    whole = naive.keeping_layers()
    fast = optimise(naive, PASSES)
    fast_whole = optimise(whole, PASSES)
    for plan in (fast, fast_whole):
        check_plan(plan)

    names = [f"layer {index} [{kind}]" for index, (kind, _) in enumerate(reference.layers)]
    of_layer = dict(zip(naive.layers, names, strict=True))
    layers = [whole.outputs.index(tensor) for tensor in whole.layers]
    float64 = _run(cpu, whole, pictures, "float64")
    truth = [[call[index] for index in layers] for call in float64]
    ends = [[call[whole.outputs.index(each)] for each in naive.outputs] for call in float64]
    end_names = [of_layer[tensor] for tensor in naive.outputs]

    found = [*_differences("reference and engine", names, expected, truth, SAME_ARITHMETIC)]
    got = _run(cpu, fast, pictures, "float64")
    found += _differences("naive and fast", end_names, ends, got, FOLDED_CONSTANTS)
    got = _run(cpu, fast_whole, pictures, "float64")
    every = [of_layer[tensor] for tensor in whole.outputs]
    found += _differences("naive and fast, all layers", every, float64, got, FOLDED_CONSTANTS)
    passes = [name for name in PASSES if name in ("drop_unread", *device.passes)]
    got = _run(device, optimise(naive, passes), pictures, "float32")
    tolerance = FLOAT32 if device is cpu else ELSEWHERE
    found += _differences("float64 and fast float32", end_names, ends, got, tolerance)
    if naive.heads:
        found += _compare_boxes(naive, fast, pictures[0], cpu)
    return found


def _pictures(net: Net, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng([seed, 1])
    shape = (net.time_steps * int(random.integers(1, 3)), *net.input)
    return [random.random(shape, dtype=np.float32) for _ in range(CALLS)]


def _lower(net: Net, file: bytes) -> Plan:
    network = graph.build(cfg.parse(net.text, name="random.cfg"), time_steps=net.time_steps)
    assert [node.shape.size for node in network.nodes] == [
        channels * height * width for channels, height, width in net.shapes
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "random.weights")
        path.write_bytes(file)
        return lower.lower(network, weights.load(path, network))


def _run(
    device: Device, plan: Plan, pictures: Sequence[np.ndarray], precision: str
) -> list[Sequence[np.ndarray]]:
    batch = len(pictures[0]) // plan.steps
    program = device.compile(plan, batch=batch, precision=precision)
    try:
        return [program.forward(each) for each in pictures]
    finally:
        program.close()


def _differences(
    runs: str,
    names: Sequence[str],
    expected: Sequence[Sequence[np.ndarray]],
    got: Sequence[Sequence[np.ndarray]],
    tolerance: float,
) -> Iterable[Difference]:
    for call, (some, others) in enumerate(zip(expected, got, strict=True)):
        for name, one, other in zip(names, some, others, strict=True):
            yield Difference(runs, f"call {call}, {name}", error(one, other), tolerance)


def error(expected: np.ndarray, got: np.ndarray) -> float:
    """Return the error relative to a whole tensor."""
    expected = expected.astype(np.float64).ravel()
    size = float(np.linalg.norm(expected))
    # the scale of a nearly zero tensor is 1e-3
    floor = 1e-3 * np.sqrt(max(expected.size, 1))
    return float(np.linalg.norm(got.ravel() - expected)) / max(size, floor)


def _compare_boxes(
    naive: Plan, fast: Plan, pictures: np.ndarray, cpu: Device
) -> Iterable[Difference]:
    """Compare boxes at threshold 0, where rounding removes no box."""
    rows = []
    for plan in (naive, fast):
        program = cpu.compile(plan, batch=len(pictures), precision="float64")
        try:
            rows.append(program.detect(pictures, threshold=0.0))
        finally:
            program.close()
    for row, (one, other) in enumerate(zip(*rows, strict=True)):
        found = error(one, other) if one.shape == other.shape else np.inf
        yield Difference("boxes of naive and fast", f"row {row}", found, FOLDED_CONSTANTS)
