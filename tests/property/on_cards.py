"""Run a random network on a card, or on one whose kernels run on the CPU, and compare.

The lowering chooses, fuses, moves and places by the card and the precision, so there are several of
both. Some networks are plans whose states are stored several times, which no .cfg asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends.base import Device, Program
from engine.backends.cuda import conv
from engine.backends.cuda.conv.tensor_cores import TURING
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.lower import precision_policy
from engine.backends.cuda.ops.target import Choice
from engine.darknet import cfg, graph, lower, random_weights
from engine.passes import optimise
from engine.passes.quantise import LayerRanges, quantise
from engine.plan.build import Plan
from engine.plan.ops import Conv2d
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.backends.cuda.played_tiles import playing
from tests.passes.networks import random_plan
from tests.property.compare import CALLS, Difference, error
from tests.property.nets import ON_CARDS, random_net

# The card and the precision of a network, by its number.
CASES = tuple(
    (capability, precision)
    for precision in ("float32", "float16", "int8")
    for capability in ((9, 0), (8, 6), (7, 0))
    if precision != "int8" or capability >= TURING
)
# Relative errors of whole tensors; what is read at the wrong time or place is wrong by more.
TOLERANCES = {"float32": 5e-4, "float16": 0.02, "int8": 0.1}
_DEFINED_BY = {"float32": "float64", "float16": "float64", "int8": "int8"}
_PLANS = 40  # percent of the networks that are no .cfg
_KEPT = 40  # percent whose layers are all outputs
_RECORDED = 70
_MEASURED = 60  # percent of the convolutions, as if a tuner had found another algorithm faster
_FEW = 32  # pixels: with a thread block for each value, more take the host seconds

Array = NDArray[np.float32]


@contextmanager
def open_host(capability: tuple[int, int]) -> Iterator[HostDevice]:
    """Open a card that is the CPU, on which small networks stand for larger ones."""
    with pytest.MonkeyPatch.context() as patch, playing():
        patch.setattr(precision_policy, "_SMALL", 0)
        with on_tape(HostDevice(capability=capability)) as device:
            yield device


def measure(seed: int, *, cpu: Device) -> list[Difference]:
    """Measure the differences of all outputs in runs that follow each other, and after a reset."""
    capability, precision = CASES[seed % len(CASES)]
    random = Random(seed)
    plan, _ = _network(seed, random)
    plan = plan.keeping_layers() if random.randrange(100) < _KEPT else plan
    batch = random.randrange(1, 4)
    is_recorded = random.randrange(100) < _RECORDED
    pictures = [_pictures(plan, batch, (seed, call)) for call in range(CALLS)]
    definition, made = plan, optimise(plan, CudaDevice.passes)
    if precision == "int8":
        definition = made = quantise(made, _ranges(plan, pictures[0], cpu))
    reference = cpu.compile(definition, batch=batch, precision=_DEFINED_BY[precision])
    with closing(reference), open_host(capability) as device:
        device.measured = _choices(random, device, made, batch, precision)
        program = device.compile(made, batch=batch, precision=precision, graph=is_recorded)
        pairs = _runs(reference, pictures), _runs(program, pictures)
        if plan.heads and precision == "float32":
            pairs[0].append(reference.detect(pictures[0], threshold=0.0))
            pairs[1].append(program.detect(pictures[0], threshold=0.0))
    return [
        Difference(
            f"{precision} on {capability}",
            f"run {number}, output {index} of {len(outputs[0])}",
            error(one, other) if one.shape == other.shape else np.inf,
            TOLERANCES[precision],
        )
        for number, outputs in enumerate(zip(*pairs, strict=True))
        for index, (one, other) in enumerate(zip(*outputs, strict=True))
    ]


def text_of(seed: int) -> str:
    """Return the .cfg of a network."""
    return _network(seed, Random(seed))[1]


def _network(seed: int, random: Random) -> tuple[Plan, str]:
    if random.randrange(100) < _PLANS:
        steps, channels = random.randrange(1, 4), random.choice((1, 8, 16))
        plan = random_plan(seed, 40, steps=steps, has_states=True, channels=channels)
        layers = tuple(op.out for op in plan.ops if not op.out.is_state)
        text = f"random_plan({seed}, 40, {steps=}, has_states=True, {channels=})"
        return replace(plan, layers=layers, constants=_smaller(plan.constants)), text
    net = random_net(random, dialect=ON_CARDS)
    network = graph.build(cfg.parse(net.text, name="random.cfg"), time_steps=net.time_steps)
    arrays = random_weights.arrays(network)
    noise = np.random.default_rng(seed)
    for name, values in (item for layer in arrays for item in layer.items()):
        if name.endswith("bias"):  # not zero, so that each has to be found
            values += noise.normal(0, 0.2, values.shape).astype(np.float32)
    return lower.lower(network, arrays), net.text


def _smaller(constants: Mapping[str, Array]) -> dict[str, Array]:
    """Return weights whose sums are near 1, as float16 asks for."""
    return {
        name: values / np.float32(np.sqrt(max(1, np.prod(values.shape[1:]) / 3)))
        for name, values in constants.items()
    }


def _pictures(plan: Plan, batch: int, seed: Sequence[int]) -> Array:
    shape = batch * plan.steps, *plan.source.shape.sides
    return np.random.default_rng(seed).random(shape, np.float32)


def _ranges(plan: Plan, pictures: Array, cpu: Device) -> LayerRanges:
    whole = plan.keeping_layers()
    with closing(cpu.compile(whole, batch=len(pictures) // plan.steps)) as program:
        outputs = dict(zip(whole.outputs, program.forward(pictures), strict=True))
    return LayerRanges({n: float(np.abs(outputs[t]).max()) for n, t in enumerate(plan.layers)})


def _choices(
    random: Random, device: CudaDevice, plan: Plan, batch: int, precision: str
) -> dict[str, Choice]:
    """Choose any algorithm for some convolutions."""
    fused = device._fused(plan, batch, precision)
    found = {}
    for op in fused.plan.ops:
        if isinstance(op, Conv2d) and random.randrange(100) < _MEASURED:
            target = fused.target.of(op)
            is_small = target.rows(op.out) * op.out.shape.area <= _FEW
            names = [each for each in conv.ALGORITHMS if is_small or each != "dot"]
            every = [Choice(name, unfused) for name in names for unfused in (False, True)]
            random.shuffle(every)
            found[conv.signature(target, op)] = next(
                each for each in every if conv.get(each).can_run(target, op)
            )
    return found


def _runs(program: Program, pictures: Sequence[Array]) -> list[Sequence[Array]]:
    """Return the outputs of runs that follow each other, and of the first ones after a reset."""
    fewer = pictures[1][: max(1, program.batch - 1) * program.plan.steps]
    found = [program.forward(each) for each in (*pictures, fewer, pictures[0])]
    program.reset()
    return [*found, program.forward(fewer), program.forward(pictures[0])]
