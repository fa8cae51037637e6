"""Lay out the block of activations: tensors share memory if their lifetimes do not overlap.

Pitches and places inside wider tensors say which pixels do not begin on 16 bytes: TMA and packed
kernels cannot read those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.backends.cuda.conv.tensor_cores import whole_eights
from engine.backends.cuda.lower.lowered import Layout, Lowered
from engine.backends.cuda.ops.gpu import Place, Target, align
from engine.backends.cuda.ops.target import COLOUR_PITCH, COLOURS, VALUE_BYTES
from engine.errors import InputError
from engine.passes.packing import Lifetime, pack
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, Softmax, Tensor

MOST_VALUES = 2**31 - 2**22  # kernels count in int, and may count one grid's stride too far
_BYTES = 16


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

    A colour picture is padded to whole words, which the first layer reads at once. The output
    of a detection layer is padded to multiples of eight, which are stored at once.
    """
    found = {root: root.shape.channels for root in map(plan.root, plan.tensors)}
    found |= {root: whole_eights(found[root]) for root in _detected(plan) & found.keys()}
    if found.get(plan.source) == COLOURS and plan.source.shape.area > 1:
        found[plan.source] = COLOUR_PITCH
    return found


def _detected(plan: Plan) -> frozenset[Tensor]:
    """Return the outputs of convolutions that compute a detection layer as well."""
    return frozenset(op.out for op in plan.ops if isinstance(op, Conv2d) and op.yolo is not None)


def _check_counts(plan: Plan, target: Target, known: Mapping[Tensor, int]) -> None:
    counts = [target.rows(root) * root.shape.area * pitch for root, pitch in known.items()]
    # Some algorithms store what a fused pool reads.
    convs = (op for op in plan.ops if isinstance(op, Conv2d))
    counts += (target.rows(op.out) * op.grid.size for op in convs)
    if (most := max(counts, default=0)) > MOST_VALUES:
        raise InputError(
            f"batch: {target.batch} makes a tensor of {most} values, "
            f"expected at most {MOST_VALUES}. Try a smaller batch"
        )


def lay_out_memory(lowered: Lowered) -> Lowered:
    """Give every tensor a slice of the block, or a place inside another tensor."""
    plan, target = lowered.plan, lowered.target
    pitch, lives = pitches(plan), _lifetimes(lowered)
    slices: dict[Tensor, Place] = {}
    states, padded = [], []
    offsets = pack(tuple(lives.values()))
    for (root, life), offset in zip(lives.items(), offsets, strict=True):
        if root.is_state:
            states.append((offset, life.size))
        if pitch[root] != root.shape.channels:
            padded.append((offset, life.size))
        slices[root] = Place(offset, pitch[root])
    for tensor, view in plan.views.items():
        assert tensor.shape.sides[1:] == view.root.shape.sides[1:], tensor
        inside = view.channel * target.bytes_of(view.root)
        slices[tensor] = Place(slices[view.root].pointer + inside, slices[view.root].pitch)
    size = max(offset + life.size for offset, life in zip(offsets, lives.values(), strict=True))
    needs = [each.workspace(target) for each in lowered.launches]
    workspace = align(max(needs, default=0))
    layout = Layout(
        slices,
        states=tuple(states),
        padded=tuple(padded),
        returned=_returned(lowered),
        size=size,
        workspace=workspace,
    )
    return replace(lowered, layout=layout)


def _returned(lowered: Lowered) -> frozenset[Tensor]:
    """Find the probabilities of a classifier: floats in the host's layout, checked when written."""
    plan, target = lowered.plan, lowered.target
    return frozenset(
        op.out
        for op in plan.ops
        if isinstance(op, Softmax)
        and plan.outputs == (op.out,)
        and op.out not in plan.views
        and op.out.shape.area == 1
        and target.bytes_of(op.out) == VALUE_BYTES["float32"]
    )


def _lifetimes(lowered: Lowered) -> dict[Tensor, Lifetime]:
    """Return the first and the last step that use each tensor or a view of it.

    A step on the side stream starts after all steps before it, and ends at any time before the
    streams join: what it uses lives until the end. So do outputs. States, and the padding between
    pixels, which is zeroed once, must never be overwritten.
    """
    plan, target, pitch = lowered.plan, lowered.target, pitches(lowered.plan)
    start, end = -1, len(lowered.steps)
    spans: dict[Tensor, tuple[int, int]] = {}

    def use(tensor: Tensor, first: int, last: int) -> None:
        root = plan.root(tensor)
        if root.is_state or pitch[root] != root.shape.channels:
            first, last = start, end
        earliest, latest = spans.get(root, (first, last))
        spans[root] = min(earliest, first), max(latest, last)

    use(plan.source, start, start)
    for position, step in enumerate(lowered.steps):
        for tensor in step.tensors:
            use(tensor, position, end if step.is_on_side_stream else position)
    for tensor in plan.kept:
        use(tensor, end, end)
    return {
        root: Lifetime(_bytes(root, pitch[root], target), first, last)
        for root, (first, last) in spans.items()
    }


def _bytes(root: Tensor, pitch: int, target: Target) -> int:
    return align(target.rows(root) * root.shape.area * pitch * target.bytes_of(root))
