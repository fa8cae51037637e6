"""The kernels that a plan launches, found by a rehearsal: its op functions run on a stand-in.

Their units are compiled and loaded together before the first run. A unit that the rehearsal misses
is loaded at its launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from engine.backends.cuda.driver.compiler import Unit, unit_of
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.ops import border
from engine.errors import DeviceError

_ADDRESS = 1 << 40  # aligned as device memory is; nothing is read from there
_WITH_BOXES = ("list_scores", "suppress")  # which the program launches itself
_STORED = ("float16", "float32", "int8")  # precisions that one program may store
_FOR_HALVES = "largest"  # by which a float16 program is checked before its first run
# What the decoder of a head gets from its program, see runtime/step_runner.py.
_DECODING = ("counter", "records", "columns", "per_row", "threshold", "hierarchy", "first")


@dataclass
class Launched:
    """A stand-in for Kernels that records what op functions launch in one precision."""

    storing: Any = None
    units: set[Unit] = field(default_factory=set)

    def launch(self, name: str, *_: object, **__: object) -> None:
        self.units.add(unit_of(name))

    def tile(self, tile: Tile) -> Any:
        self.units.add(tile)
        return SimpleNamespace(launch=_do_nothing)


def units_of(lowered: Lowered) -> Mapping[str, set[Unit]]:
    """Return the units that a program of this plan launches, by precision."""
    precision = lowered.target.precision
    has_several = precision in ("float16", "int8")
    known = {each: Launched() for each in (precision, *(_STORED if has_several else ()))}
    own = known[precision]
    for launched in known.values():
        launched.storing = lambda precision: known.get(precision, own)
    if lowered.decoders:
        own.units.update(map(unit_of, _WITH_BOXES))
    if precision == "float16":
        own.units.add(unit_of(_FOR_HALVES))
        if lowered.target.floats:
            known["float32"].units.add(unit_of(_FOR_HALVES))
    context: Any = SimpleNamespace(
        kernels=lambda _: own,
        blas=SimpleNamespace(multiply=_do_nothing, allow_tf32=_do_nothing),
        stream=SimpleNamespace(handle=0),
    )
    gpu = lowered.on(
        context,
        activations=_ADDRESS,
        workspace=_ADDRESS,
        arrays={},
        decoding={each.op: dict.fromkeys(_DECODING, 0) for each in lowered.decoders},
    )
    border.read_images(gpu, lowered.plan.source, _ADDRESS)
    border.read_pictures(gpu, lowered.plan.source, _ADDRESS)
    for tensor in lowered.plan.outputs:
        if tensor not in lowered.layout.returned:
            border.write_output(gpu, tensor, _ADDRESS)
    for each in lowered.launches:
        with suppress(DeviceError):  # the driver may refuse to describe an array that is not there
            each.enqueue(gpu.of(each.op))
    for step in lowered.steps:
        tile = step.tile(lowered.target)
        if tile is not None:
            own.storing(lowered.target.of(step.op).precision).units.add(tile)
    return {each: launched.units for each, launched in known.items()}


def _do_nothing(*_: object, **__: object) -> None: ...
