"""Lower bounds of the time of an op, and what limits it."""

from types import SimpleNamespace

import numpy as np
import pytest

from engine.backends.base import Peaks
from engine.backends.cpu.device import CpuDevice
from engine.benchmark import layers
from engine.benchmark.layers import LayerTime, Profile
from engine.benchmark.roofline import Bound, lower_bound
from engine.passes.quantise import LayerRanges
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import ConcatPart
from engine.plan.shapes import Shape
from tests.benchmark.test_benchmark import workload_of

CARD = Peaks(operations=1e13, bytes=1e11, value_bytes=2, multiprocessors=8, int8_operations=2e13)


def convolution(channels, filters, size, *, kernel=3, stride=1, groups=1):
    plan = PlanBuilder(Shape(channels, size, size))
    weight = plan.constant("w", np.zeros((filters, channels // groups, kernel, kernel)))
    out = plan.tensor(Shape(filters, size // stride, size // stride))
    padding = (kernel // 2,) * 4
    return ops.Conv2d(
        out, plan.source, weight, stride=(stride, stride), padding=padding, groups=groups
    )


def test_chain_does_the_work_of_its_links():
    links = convolution(8, 8, 16, groups=8), convolution(8, 4, 16, kernel=1)
    work = 2 * 256 * 8 * 9 + 2 * 256 * 4 * 8
    assert lower_bound(ops.Chain(links[-1].out, links), 3, CARD).operations == 3 * work


@pytest.mark.parametrize(
    ("op", "batch", "limit", "operations", "values"),
    [
        (convolution(64, 64, 64), 2, "compute", 2 * 2 * 4096 * 64 * 576, 4 * 262144 + 64 * 576),
        (convolution(512, 64, 8), 4, "tiles", 4 * 2 * 64 * 64 * 4608, 4 * 36864 + 64 * 4608),
        (convolution(16, 16, 64), 4, "memory", 4 * 2 * 4096 * 16 * 144, 8 * 65536 + 16 * 144),
        (convolution(4, 4, 4), 1, "launch", 2 * 16 * 4 * 36, 2 * 64 + 4 * 36),
    ],
)
def test_bound_is_compute_memory_or_launch(op, batch, limit, operations, values):
    found = lower_bound(op, batch, CARD)
    assert (found.limit, found.operations, found.bytes) == (limit, operations, 2 * values)
    assert found.milliseconds == pytest.approx(max(operations / 1e10, 2 * values / 1e8))
    assert found.reason


def test_a_stride_past_the_window_leaves_values_unread():
    whole = lower_bound(convolution(64, 64, 64, kernel=1), 1, CARD)
    some = lower_bound(convolution(64, 64, 64, kernel=1, stride=2), 1, CARD)
    assert some.bytes == 2 * (64 * 1024 * 2 + 4096)
    assert whole.bytes == 2 * (64 * 4096 * 2 + 4096)


def test_channel_range_counts_its_own_values_only():
    plan = PlanBuilder(Shape(8, 10, 10))
    op = ops.Concat(plan.tensor(Shape(2, 10, 10)), (ConcatPart(plan.source, 0, 2, 0),))
    assert lower_bound(op, 3, CARD).bytes == 2 * 3 * (200 + 200)


def row(milliseconds, least):
    limits = Bound(0, 0, least, "memory", "")
    return LayerTime(0, "maxpool", "MaxPool", "", milliseconds, 0.5, 0, "", limits)


def test_summary_names_the_ops_that_lose_most():
    rows = (row(3.0, 2.5), row(2.0, 0.5), row(1.0, 0.9), row(4.0, 1.1))
    profile = Profile(1, 8.0, rows)
    assert profile.bound == pytest.approx(5.0)
    assert profile.reached == pytest.approx(0.625)
    assert profile.losses() == [rows[3], rows[1], rows[0]]
    assert rows[1].reached == 0.25


class Peaked(CpuDevice):
    def peaks(self, precision):
        return CARD


def test_a_device_with_peaks_has_a_bound_for_every_op(tiny_detector):
    cpu = Peaked(1)
    profile = layers.measure(workload_of(tiny_detector, cpu), 1, repeats=1)
    assert all(each.bound.milliseconds > 0 for each in profile.layers)
    assert profile.reached == pytest.approx(profile.bound / profile.forward)
    cpu.close()


CFG = "[net]\nwidth=16\nheight=16\nchannels=64\n"
CONVOLUTION = "[convolutional]\nfilters=64\nsize=3\npad=1\nactivation=linear\n"


def test_ops_of_a_quantised_plan_are_int8_only_where_tensors_have_scales(tmp_path):
    path = tmp_path / "net.cfg"
    path.write_text(CFG + 3 * CONVOLUTION)
    cpu, ranges = Peaked(1), LayerRanges(dict.fromkeys(range(3), 1.0))
    workload = workload_of(SimpleNamespace(cfg=path), cpu, precision="int8", ranges=ranges)
    rows = layers.measure(workload, 1, repeats=1).layers
    cpu.close()
    assert [each.op for each in rows] == ["Conv2d", "Convert", "Conv2d", "Conv2d"]
    values, constants = 64 * 256, 64 * (64 * 9 + 1)
    assert [each.bound.bytes for each in rows] == [
        2 * values + 2 * constants + 2 * values,  # of a float input
        *(2 * values + values, values + constants + values, values + constants + 2 * values),
    ]
    rates = [each.operations * 1e3 / each.bound.milliseconds for each in rows]
    assert rates == pytest.approx([1e13, 0.0, 2e13, 2e13])
