"""Compare the int8 tensors of two devices, integer by integer, on trained networks and pictures.

    python tools/compare_int8.py [--first cpu] [--second cuda:0] [--only TEXT] [--json rows.json]

Networks, pictures and calibration are those of tools/check_precision.py; the first device
calibrates, so that both have the same scales. Every int8 tensor has two figures:

    alone       integers that differ if the first device computes the op from what the second
                device has read; only for ops that read nothing but int8 tensors
    in network  integers that differ if each device runs the whole network from the pictures:
                float ops, which are float16 on a card, make the first of these differences

The exit status is 1 if an integer differs alone, unless the op's activation has exponentials.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.arrays import Array
from engine.backends import open_device
from engine.backends.base import Device
from engine.backends.cpu.program import CpuProgram
from engine.passes.quantise import layers_of
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, Op, Tensor
from tools.check_precision import int8_plan, trained_cases

EXACT = {"linear", "relu", "leaky"}  # activations that devices compute bit for bit
PICTURES = 4


@dataclass(frozen=True)
class Row:
    net: str
    op: str
    values: int
    alone: int | None  # None if the op reads floats
    in_network: int
    largest: int  # difference of two integers in the network
    is_exact: bool

    def __str__(self) -> str:
        alone = "-" if self.alone is None else str(self.alone)
        share = self.in_network / self.values
        head = f"{self.net:31s} {self.op:22s} {self.values:9d}"
        return f"{head} {alone:>6s} {share:8.3%} {self.largest:4d}"


def compare(net: str, plan: Plan, first: Device, second: Device, images: Array) -> Iterator[Row]:
    """Yield a row for each op that writes int8."""
    written = [op for op in plan.ops if op.out in plan.scales]
    roots = {view.root for view in plan.views.values()} & plan.scales.keys()
    outputs = dict.fromkeys([*(op.out for op in written), *roots])
    shown = replace(plan, outputs=tuple(outputs), heads=())
    mine, other = (integers(shown, device, images) for device in (first, second))
    again = alone(shown, first, images, other)
    for op in written:
        a, b = mine[op.out], other[op.out]
        apart = np.abs(a - b)
        activations = {getattr(op, name, "linear") for name in ("activation", "last_activation")}
        yield Row(
            net,
            name_of(op),
            a.size,
            count_of(again[op.out] != b) if op.out in again else None,
            count_of(apart),
            int(apart.max()),
            activations <= EXACT,
        )


def count_of(values: Array) -> int:
    return int(np.count_nonzero(values))


def integers(plan: Plan, device: Device, images: Array) -> dict[Tensor, Array]:
    """Return the integers of all outputs of a plan."""
    with closing(device.compile(plan, batch=len(images), precision="int8")) as program:
        found = zip(plan.outputs, program.forward(images), strict=True)
        return {tensor: to_integers(values, plan.scales[tensor]) for tensor, values in found}


def to_integers(values: Array, scale: float) -> Array:
    whole = np.rint(values / np.float32(scale))
    np.testing.assert_allclose(whole * np.float32(scale), values, rtol=1e-6, atol=0)
    return whole.astype(np.int32)


def alone(
    plan: Plan, cpu: Device, images: Array, known: dict[Tensor, Array]
) -> dict[Tensor, Array]:
    """Return what the CPU makes of the integers of another device, op by op."""
    found: dict[Tensor, Array] = {}
    with closing(cpu.compile(plan, batch=len(images), precision="int8")) as program:
        assert isinstance(program, CpuProgram)
        bound = program._bind(images)
        outputs = {
            tensor: array for tensor, (array, _) in zip(plan.outputs, bound.outputs, strict=True)
        }
        for op, kernel in zip(plan.ops, bound.kernels, strict=True):
            if op.out in known and all(tensor in known for tensor in op.reads):
                for tensor in op.reads:
                    np.copyto(outputs[tensor], known[tensor], casting="unsafe")
                with program._workers.serial_blas():
                    kernel()
                found[op.out] = outputs[op.out].astype(np.int32)
    return found


def name_of(op: Op) -> str:
    kind = type(op).__name__
    return f"{kind} of {layers_of(op)}" if isinstance(op, Conv2d) else f"{kind} to {op.out.index}"


def main(words: Sequence[str] | None = None) -> int:
    shared = Path(__file__).resolve().parents[2] / "shared"
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shared", type=Path, default=shared)
    parser.add_argument("--first", default="cpu", help="the CPU, whose ops also run alone")
    parser.add_argument("--second", default="cuda:0")
    parser.add_argument("--only", default="", help="networks whose name contains this")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(words)
    rows: list[Row] = []
    with (
        closing(open_device(arguments.first)) as first,
        closing(open_device(arguments.second)) as second,
    ):
        for case in trained_cases(arguments.shared, arguments.only):
            plan = int8_plan(first, case)
            images = np.concatenate(case.calls)[:PICTURES]
            for row in compare(case.name, plan, first, second, images):
                rows.append(row)
                print(row, flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    failed = sum(bool(row.alone and row.is_exact) for row in rows)
    print(f"{len(rows)} ops, {failed} differ alone")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
