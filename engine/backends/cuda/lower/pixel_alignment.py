"""Find the tensors whose pixels do not begin on 16 bytes: TMA and packed kernels cannot read them.

This depends on pitches and on places inside wider tensors, not on where a tensor lies in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.backends.cuda.conv.tensor_cores import whole_eights
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.ops.target import Target
from engine.errors import InputError
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, Tensor

MOST_VALUES = 2**31 - 2**22  # kernels count in int, and may count one grid's stride too far
_BYTES = 16
_RGB, _PADDED_RGB = 3, 4


def find_misaligned(lowered: Lowered) -> Lowered:
    """Record misaligned tensors in the target; raise if a tensor has too many values."""
    plan, target = lowered.plan, lowered.target
    known = pitches(plan)
    _check_counts(plan, target, known)

    def is_aligned(tensor: Tensor) -> bool:
        size, view = target.bytes_of(tensor), plan.views.get(tensor)
        first = 0 if view is None else view.channel * size
        return first % _BYTES == 0 and known[plan.root(tensor)] * size % _BYTES == 0

    misaligned = {tensor for tensor in plan.tensors if not is_aligned(tensor)}
    # The output of a detection layer inside a wider tensor has no padding of its own.
    misaligned |= _detected(plan) & plan.views.keys()
    return replace(lowered, target=replace(target, misaligned=frozenset(misaligned)))


def pitches(plan: Plan) -> dict[Tensor, int]:
    """Return the values from one pixel to the next of every tensor that owns memory.

    A picture in colours is padded to whole words, which the first layer reads at once. The output
    of a detection layer is padded to multiples of eight, which are stored at once.
    """
    found = {root: root.shape.channels for root in map(plan.root, plan.tensors)}
    found |= {root: whole_eights(found[root]) for root in _detected(plan) & found.keys()}
    if found.get(plan.source) == _RGB and plan.source.shape.area > 1:
        found[plan.source] = _PADDED_RGB
    return found


def _detected(plan: Plan) -> frozenset[Tensor]:
    """The outputs of convolutions that compute a detection layer as well."""
    return frozenset(op.out for op in plan.ops if isinstance(op, Conv2d) and op.yolo is not None)


def _check_counts(plan: Plan, target: Target, known: Mapping[Tensor, int]) -> None:
    for root, pitch in known.items():
        _check_count(target.rows(root) * root.shape.area * pitch, target)
    for op in plan.ops:
        if isinstance(op, Conv2d):  # some algorithms store what a fused pool reads
            _check_count(target.rows(op.out) * op.grid.size, target)


def _check_count(values: int, target: Target) -> None:
    if values > MOST_VALUES:
        raise InputError(
            f"batch: {target.batch} makes a tensor of {values} values, "
            f"expected at most {MOST_VALUES}. Try a smaller batch"
        )
