"""Lay out the block of activations: two tensors share memory if they never live together."""

from __future__ import annotations

from dataclasses import replace

from engine.backends.cuda.lower.lowered import Layout, Lowered, Slice
from engine.backends.cuda.lower.pixel_alignment import pitches
from engine.backends.cuda.ops.target import Target
from engine.passes.packing import Lifetime, pack
from engine.plan.ops import Tensor

ALIGNMENT = 256  # bytes: what the driver's own allocations have


def lay_out_memory(lowered: Lowered) -> Lowered:
    """Give every tensor a slice of the block, or a place inside another tensor."""
    plan, target = lowered.plan, lowered.target
    pitch, lives = pitches(plan), _lifetimes(lowered)
    slices: dict[Tensor, Slice] = {}
    states, padded = [], []
    offsets = pack(tuple(lives.values()))
    for (root, life), offset in zip(lives.items(), offsets, strict=True):
        if root.is_state:
            states.append((offset, life.size))
        if pitch[root] != root.shape.channels:
            padded.append((offset, life.size))
        slices[root] = Slice(offset, pitch[root])
    for tensor, view in plan.views.items():
        assert tensor.shape.sides[1:] == view.root.shape.sides[1:], tensor
        root_slice = slices[view.root]
        inside = view.channel * target.bytes_of(view.root)
        slices[tensor] = Slice(root_slice.offset + inside, root_slice.pitch)
    size = max(offset + life.size for offset, life in zip(offsets, lives.values(), strict=True))
    needs = [each.workspace(target) for each in lowered.launches]
    workspace = align(max(needs, default=0))
    layout = Layout(slices, tuple(states), tuple(padded), size, workspace)
    return replace(lowered, layout=layout)


def align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _lifetimes(lowered: Lowered) -> dict[Tensor, Lifetime]:
    """From the step that first uses a tensor, or a view of it, to the one that last does.

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
