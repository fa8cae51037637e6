"""The memory layout of a program."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.lower import lowering
from engine.backends.cuda.lower.weights import lay_out_weights
from engine.backends.cuda.ops.target import Target
from engine.backends.cuda.runtime.step_runner import next_weights
from engine.errors import InputError
from engine.passes import optimise
from engine.plan import ops
from engine.plan.build import Plan, PlanBuilder
from engine.plan.shapes import Shape
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice


def plan_of(shape: Shape) -> Plan:
    builder = PlanBuilder(shape)
    out = builder.emit(ops.Activate(builder.tensor(shape), builder.source, "leaky"))
    return builder.build((out,), (out,))


@pytest.mark.parametrize(
    ("channels", "side", "pitch"), [(1, 5, 1), (3, 5, 4), (3, 1, 3), (4, 5, 4), (6, 5, 6)]
)
def test_pixels_of_a_picture_in_colours_begin_on_whole_words(
    channels: int, side: int, pitch: int
) -> None:
    plan = optimise(plan_of(Shape(channels, side, side)), CudaDevice.passes)
    layout = lowering.place(lowering.fuse(plan, Target(2, "float16", (9, 0), 132))).layout
    source, (out,) = layout.slices[plan.source], plan.outputs
    assert source.pitch == pitch
    assert layout.slices[out].pitch == channels
    values = 2 * side * side * pitch
    assert source.pointer + 2 * values <= layout.size
    if pitch == channels:
        assert not layout.padded
    else:
        ((offset, size),) = layout.padded
        assert offset == source.pointer
        assert size >= 2 * values
        begins = layout.slices[out].pointer
        assert begins >= offset + size or begins + 2 * 2 * side * side * channels <= offset


def detection_layer(builder: PlanBuilder, src: ops.Tensor, name: str) -> ops.YoloOutput:
    """Return the output of a convolution that the optimiser lets it join."""
    shape = Shape(21, 5, 5)
    weight = builder.constant(name, np.zeros((21, 16, 1, 1), np.float32))
    conv = builder.emit(ops.Conv2d(builder.tensor(shape), src, weight))
    return ops.YoloOutput(builder.tensor(shape), conv, 3, 2)


@pytest.mark.parametrize(("is_within", "pitch"), [(False, 24), (True, 42)])
def test_what_a_detection_layer_puts_out_has_room_for_whole_eights(
    is_within: bool, pitch: int
) -> None:
    builder = PlanBuilder(Shape(16, 5, 5))
    out = builder.emit(detection_layer(builder, builder.source, "first"))
    if is_within:
        other = builder.emit(
            ops.Activate(builder.tensor(builder.source.shape), builder.source, "relu")
        )
        second = builder.emit(detection_layer(builder, other, "second"))
        parts = ops.ConcatPart(out, 0, 21, 0), ops.ConcatPart(second, 0, 21, 21)
        out = builder.emit(ops.Concat(builder.tensor(Shape(42, 5, 5)), parts))
    plan = optimise(builder.build((out,), (out,)), CudaDevice.passes)
    target = Target(2, "float16", (9, 0), 132)
    lowered = lowering.place(lowering.fuse(plan, target))
    op = next(op for op in plan.ops if isinstance(op, ops.Conv2d))
    assert op.yolo is not None
    assert lowered.layout.slices[op.out].pitch == pitch
    assert (op.out in lowered.target.misaligned) == is_within


def test_what_lies_between_pixels_counts() -> None:
    plan = plan_of(Shape(3, 1 << 14, 1 << 14))
    assert lowering.place(lowering.fuse(plan, Target(1, "float16", (9, 0), 132))).layout.size
    with pytest.raises(InputError, match="batch: 2 makes a tensor of 2147483648 values"):
        lowering.place(lowering.fuse(plan, Target(2, "float16", (9, 0), 132)))


def test_what_a_pool_reads_counts_though_it_may_never_be_stored() -> None:
    builder = PlanBuilder(Shape(64, 208, 208))
    weight = builder.constant("weight", np.broadcast_to(np.float32(0), (256, 64, 1, 1)))
    grid = builder.emit(ops.Conv2d(builder.tensor(Shape(256, 208, 208)), builder.source, weight))
    pooled = builder.tensor(Shape(256, 104, 104))
    out = builder.emit(ops.MaxPool(pooled, grid, ops.Window((2, 2), (2, 2))))
    plan = optimise(builder.build((out,), (out,)), CudaDevice.passes)
    assert len(plan.ops) == 1
    assert lowering.place(lowering.fuse(plan, Target(100, "float16", (9, 0), 132))).layout.size
    with pytest.raises(InputError, match="batch: 300 makes a tensor of 3322675200 values"):
        lowering.place(lowering.fuse(plan, Target(300, "float16", (9, 0), 132)))


def test_kernels_may_count_a_stride_too_far() -> None:
    plan = plan_of(Shape(1, 1024, 1024))
    assert lowering.place(lowering.fuse(plan, Target(2044, "float32", (9, 0), 132))).layout.size
    with pytest.raises(InputError, match="batch: 2047 makes"):
        lowering.place(lowering.fuse(plan, Target(2047, "float32", (9, 0), 132)))


@needs_gxx
@pytest.mark.parametrize("precision", ["float16", "float32"])
def test_what_lies_between_pixels_is_zero(host: HostDevice, precision: str) -> None:
    plan = plan_of(Shape(3, 5, 7))
    program = host.compile(plan, batch=2, precision=precision)
    images = np.ones((2, 3, 5, 7), np.float32)
    np.testing.assert_array_equal(program.forward(images)[0], images)
    assert program._device.runner is not None
    gpu = program._device.runner.gpu
    place = gpu.places[plan.source]
    kind = np.float16 if gpu.target.bytes_of(plan.source) == 2 else np.float32
    values = np.empty((2 * 5 * 7, 4), kind)
    host.context.driver.memcpy_dtoh(values, place.pointer)
    program.close()
    np.testing.assert_array_equal(values, [[1, 1, 1, 0]] * 70)


def test_each_op_knows_where_the_next_weights_begin() -> None:
    builder = PlanBuilder(Shape(8, 4, 4))
    made = builder.source
    for number, filters in enumerate((8, 16)):
        weight = builder.constant(str(number), np.ones((filters, made.shape.channels, 1, 1)))
        made = builder.emit(ops.Conv2d(builder.tensor(Shape(filters, 4, 4)), made, weight))
        made = builder.emit(ops.Activate(builder.tensor(made.shape), made, "leaky"))
    plan = builder.build((made,), (made,))
    lowered = lowering.place(lowering.fuse(plan, Target(1, "float32", (7, 0), 4)))
    weights = lay_out_weights(lowered)
    found = next_weights(lowered.steps, weights, 1 << 20)
    expected = (1 << 20) + weights.offsets[plan.ops[2], "weight"], 8 * 16 * 4
    assert [found[step.op] for step in lowered.steps] == [expected, expected, (0, 0), (0, 0)]
