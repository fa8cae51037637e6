"""Convolutions that add a map with four times the area, as where a network halves its maps."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.device import CpuDevice
from engine.backends.cuda.conv import ALGORITHMS
from engine.backends.cuda.conv.algorithm import adds_quarters
from engine.backends.cuda.conv.tensor_cores import HOPPER
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.lower import fusion, lowering
from engine.backends.cuda.ops.target import Target
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.passes import optimise
from engine.passes.quantise import LayerRanges, quantise
from engine.plan.build import Plan
from engine.plan.ops import Add, Conv2d, Tensor, Upsample
from engine.plan.shapes import Shape
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.backends.cuda.played_tiles import playing
from tests.backends.cuda.test_mma_kernels import check, convolution

CARD = Target(2, "float16", HOPPER, 132)
LAYER = "[convolutional]\nfilters={}\nsize=3\nstride={}\npad=1\nactivation={}\n"


def plan_of(*, filters: int = 64, before: int = 32, side: int = 16, inner: int = 0) -> Plan:
    """A block that halves the map, with `inner` convolutions before that, and adds the larger map.

    The larger map is the first convolution's; layer 2 + inner adds it.
    """
    text = f"[net]\nheight={side}\nwidth={side + 8}\nchannels=3\n"
    text += LAYER.format(before, 1, "leaky") * (1 + inner) + LAYER.format(filters, 2, "linear")
    text += f"[shortcut]\nfrom={-2 - inner}\nactivation=leaky\n" + LAYER.format(24, 1, "leaky")
    network = graph.build(cfg.parse(text))
    return optimise(lower(network, random_weights.arrays(network)), CudaDevice.passes)


def additions(plan: Plan, target: Target = CARD) -> tuple[int, int]:
    """Count the convolutions that add quarters, and the ops that add anything."""
    ops = lowering.fuse(plan, target).plan.ops
    fused = sum(isinstance(op, Conv2d) and adds_quarters(op) for op in ops)
    return fused, sum(isinstance(op, Add) for op in ops)


def test_a_convolution_adds_the_larger_map() -> None:
    assert additions(plan_of()) == (1, 0)


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"side": 15}, {}),  # an odd side: not four times the area
        ({"filters": 60}, {}),  # not in eights
        ({"before": 8}, {}),  # too few values for all channels
        ({}, {"capability": (8, 9)}),
    ],
    ids=str,
)
def test_other_additions_stay_kernels_of_their_own(
    options: dict[str, Any], change: dict[str, Any]
) -> None:
    assert additions(plan_of(**options), replace(CARD, **change)) == (0, 1)


def test_sums_of_integers_do_not_add_the_larger_map() -> None:
    """Their epilogue reads a residual like the result. Here only the middle layer reads int8."""
    plan = plan_of(inner=1)
    assert additions(plan) == (1, 0)
    made = quantise(plan, LayerRanges(dict.fromkeys(range(5), 4.0), floats={1, 4}))
    assert additions(made, replace(CARD, scales=made.scales)) == (0, 1)


@needs_gxx
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_the_network_gives_what_it_gives_on_a_cpu(cpu: CpuDevice, precision: str) -> None:
    plan = plan_of()
    images = np.random.default_rng(1).random((2, *plan.source.shape.sides), np.float32)
    with closing(cpu.compile(plan, batch=2)) as program:
        (expected,) = program.forward(images)
    with playing(), on_tape(HostDevice(capability=HOPPER)) as device:
        program = device.compile(plan, batch=2, precision=precision)
        assert any(isinstance(op, Conv2d) and adds_quarters(op) for op in program.plan.ops)
        (found,) = program.forward(images)
        program.close()
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3 * np.abs(expected).max())


def test_an_upsampled_sum_has_no_quarters() -> None:
    conv = convolution((32, 7, 6), 64)
    added = Add(replace(conv.out, index=8), (conv.out, replace(conv.out, index=9)))
    upsampled = Tensor(10, Shape(64, 14, 12))
    assert not adds_quarters(conv.then(added).then(Upsample(upsampled, added.out, 2)))


@needs_gxx
def test_two_kernels_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the tuner finds an algorithm faster that cannot add such a map."""
    plan = plan_of()
    images = np.random.default_rng(1).random((2, *plan.source.shape.sides), np.float32)
    results = []
    for is_fusible in (True, False):
        monkeypatch.setattr(fusion, "_is_fusible", lambda *_, fusible=is_fusible: fusible)
        with on_tape(HostDevice()) as device, closing(device.compile(plan, batch=2)) as program:
            fused = [op for op in program.plan.ops if isinstance(op, Conv2d) and adds_quarters(op)]
            assert len(fused) == is_fusible
            results.append(program.forward(images)[0])
    np.testing.assert_array_equal(results[0], results[1])


TILES = {
    "float16": (
        *("sm90_splitk_64x32x8x1_split1", "sm90_splitk_64x64x8x1_split2"),
        *("sm90_splitk_128x96x6x1_split1", "sm90_pingpong_128x64x8x1_teams2"),
    ),
    "tf32": ("sm90_splitk_128x32x4x2_split1", "sm90_pingpong_128x128x6x1_teams2"),
    "float32": ("sm90_splitk_64x32x4x3_split2", "sm90_splitk_128x64x5x1_split1"),
}


@needs_gxx
@pytest.mark.slow
@pytest.mark.parametrize("last", ["relu", "leaky"])
@pytest.mark.parametrize(
    ("precision", "name"), [(each, name) for each, names in TILES.items() for name in names]
)
def test_quarters_are_added_in_flat_order(precision: str, name: str, last: str) -> None:
    conv = convolution((512, 7, 6), 72, (1, 1), padding=(0, 0, 0, 0))
    larger = Tensor(8, Shape(24, 14, 12))  # the last six channels are not added
    summed = replace(conv.out, index=9)
    op = conv.then(Add(summed, (conv.out, larger), activation=last))
    check(ALGORITHMS[name], op, precision=precision, capability=HOPPER, rows=5, multiprocessors=1)
