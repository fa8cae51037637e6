"""Which tensors of a program of halves are floats, and that such programs compute right."""

from __future__ import annotations

from contextlib import closing
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends import open_device
from engine.backends.cuda.lower import lowering
from engine.backends.cuda.lower import precision_policy as floats_module
from engine.backends.cuda.lower.precision_policy import floats
from engine.backends.cuda.ops.target import Target, is_narrow
from engine.bundled import folder
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.errors import InputError
from engine.passes import optimise
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import Tensor
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice
from tests.lanes import slow_except

Array = NDArray[Any]

NET = "[net]\nwidth=32\nheight=24\nchannels=3\n"


def conv(filters: int, size: int = 1, *, stride: int = 1, more: str = "") -> str:
    return (
        f"[convolutional]\nfilters={filters}\nsize={size}\nstride={stride}\npad=1\n"
        f"activation=leaky\n{more}\n"
    )


YOLO = conv(16).replace("leaky", "linear") + (
    "[yolo]\nmask=0,1\nanchors=4,5,6,7\nclasses=3\nnum=2\nscale_x_y=1.05\n"
)
DETECTOR = NET + conv(16, 3, stride=2) + conv(24, 3) + YOLO
CLASSIFIER = NET + conv(16, 3, stride=2) + conv(10) + "[avgpool]\n[softmax]\n"
NARROW = (
    NET
    + conv(8, 3, stride=2)
    + conv(8, 3, more="groups=8")
    + conv(4)
    + conv(24)
    + conv(24, 3, more="groups=24")
    + conv(8)
    + conv(32)
    + conv(8)
    + "[shortcut]\nfrom=-3\nactivation=linear\n"
    + conv(24, 3, stride=2)
    + YOLO
)
SIGNS = NET + conv(16, 3, stride=2) + conv(24, 3, more="xnor=1") + YOLO
GRID = (
    NET
    + conv(16, 3, stride=2)
    + (
        "[connected]\noutput=135\nactivation=linear\n"
        "[detection]\nclasses=5\ncoords=4\nside=3\nnum=2\nsqrt=1\nsoftmax=0\nrescore=0\n"
    )
)


@pytest.fixture
def plan_of(tmp_path: Any) -> Any:
    def build(text: str, *, keeps_layers: bool = False) -> Plan:
        file = tmp_path / "net.cfg"
        file.write_text(text)
        network = graph.build(cfg.read(file))
        plan = lower(network, random_weights.arrays(network))
        plan = plan.keeping_layers() if keeps_layers else plan
        return optimise(plan, HostDevice.passes)

    return build


def layers_in(plan: Plan, tensors: frozenset[Tensor]) -> list[int]:
    """Sections whose outputs are among the tensors."""
    return [number for number, tensor in enumerate(plan.layers) if tensor in tensors]


def test_a_float_program_has_no_exceptions(plan_of: Any) -> None:
    for text in (DETECTOR, NARROW, SIGNS, GRID):
        assert not floats(plan_of(text), "float32")


def test_heads_are_floats_from_the_last_convolution_on(plan_of: Any) -> None:
    plan = plan_of(DETECTOR)
    chosen = floats(plan, "float16")
    assert layers_in(plan, chosen) == [3]
    assert plan.heads[0].src in chosen
    assert not floats(plan, "tf32")


def test_classes_are_floats_from_the_last_convolution_on(plan_of: Any) -> None:
    plan = plan_of(CLASSIFIER)
    assert layers_in(plan, floats(plan, "float16")) == [1, 2, 3]


@pytest.mark.parametrize(
    "name", slow_except(["enet-coco"], ["yolov3", "yolov4", "yolov7", "enet-coco", "resnet50"])
)
def test_of_common_networks_heads_alone_are_floats(name: str) -> None:
    network = graph.build(cfg.read(folder("cfg") / f"{name}.cfg"))
    plan = optimise(lower(network, random_weights.arrays(network)), HostDevice.passes)
    chosen = floats(plan, "float16")
    writers = [op for op in plan.ops if op.out in chosen]
    assert {type(op) for op in writers} <= {ops.Conv2d, ops.Softmax}
    assert len(chosen) == (len(plan.heads) or 2)
    assert len(writers) == len(chosen)


def test_kept_layers_that_others_read_stay_halves(plan_of: Any) -> None:
    plan = plan_of(DETECTOR, keeps_layers=True)
    assert layers_in(plan, floats(plan, "float16")) == [2, 3]


def test_what_lies_in_a_wider_tensor_is_stored_as_it_is(plan_of: Any) -> None:
    tail = conv(10) + "[route]\nlayers=-1,-2\n"
    plan = plan_of(NET + conv(16, 3) + tail)
    assert plan.views
    assert not floats(plan, "float16")


def test_narrow_maps_are_floats(plan_of: Any) -> None:
    plan = plan_of(NARROW)
    chosen = floats(plan, "float16")
    assert layers_in(plan, chosen) == [0, 1, 2, 5, 8, 11]
    assert plan.source in chosen


def test_pictures_that_go_into_a_wide_map_stay_halves(plan_of: Any) -> None:
    plan = plan_of(NARROW.replace("filters=8\nsize=3\nstride=2", "filters=16\nsize=3\nstride=2"))
    assert plan.source not in floats(plan, "float16")


@pytest.mark.parametrize("text", [SIGNS, GRID], ids=["signs", "grid"])
@pytest.mark.parametrize("precision", ["float16", "tf32"])
def test_brittle_networks_run_in_floats(plan_of: Any, text: str, precision: str) -> None:
    plan = plan_of(text)
    target = Target(1, precision, (9, 0), 132, floats=floats(plan, precision))
    assert {target.of(op).precision for op in plan.ops} == {"float32"}


def test_small_detectors_run_in_floats(plan_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two boxes are all but equal, suppression must not choose the other one."""
    monkeypatch.setattr(floats_module, "_SMALL", 24)
    plan = plan_of(DETECTOR)
    assert floats(plan, "float16") >= frozenset(plan.tensors)
    assert not floats(plan, "tf32")
    monkeypatch.setattr(floats_module, "_SMALL", 23)
    assert not floats(plan, "float16") >= frozenset(plan.tensors)


def test_narrow_sums_are_floats_among_tf32(plan_of: Any) -> None:
    plan = plan_of(DETECTOR)
    target = Target(1, "tf32", (9, 0), 132)
    convs = [op for op in plan.ops if isinstance(op, ops.Conv2d)]
    assert [is_narrow(op) for op in convs] == [True, False, True]
    assert [target.of(op).precision for op in convs] == ["float32", "tf32", "float32"]


# ---------------------------------------------------------------- programs


def run(device: Any, plan: Plan, images: Array, precision: str = "float32") -> list[Array]:
    program = device.compile(plan, batch=len(images), precision=precision)
    try:
        for _ in range(3):  # by op, recorded, replayed
            outputs = program.forward(images)
        return list(outputs)
    finally:
        program.close()


def error(got: Array, expected: Array) -> float:
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


@needs_gxx
@pytest.mark.parametrize("text", [DETECTOR, CLASSIFIER, NARROW], ids=["yolo", "classes", "narrow"])
def test_mixed_programs_agree_with_the_cpu(host: HostDevice, plan_of: Any, text: str) -> None:
    plan = plan_of(text)
    images = np.random.default_rng(1).random((2, *plan.source.shape.sides), np.float32)
    with closing(open_device("cpu:1")) as cpu:
        expected = run(cpu, plan, images)
    for got, want in zip(run(host, plan, images, "float16"), expected, strict=True):
        assert 0 < error(got, want) < 1e-3
        # of halves no value would have bits beyond the eleventh
        assert not np.array_equal(got.astype(np.float16).astype(np.float32), got)


@needs_gxx
def test_boxes_are_decoded_from_floats(host: HostDevice, plan_of: Any) -> None:
    """The decoders see what is handed back, to the last bit."""
    plan = plan_of(DETECTOR)
    images = np.random.default_rng(1).random((1, *plan.source.shape.sides), np.float32)
    program = host.compile(plan, precision="float16")
    values = program.forward(images)[0]
    (rows,) = program.detect(images, threshold=0.0)
    program.close()
    assert len(rows) == 2 * values.shape[2] * values.shape[3]
    objectness = values.reshape(2, 8, -1)[:, 4].T.ravel()
    np.testing.assert_array_equal(rows[:, 4], objectness)


@needs_gxx
def test_narrow_maps_go_through_the_kernels_for_two_kinds(host: HostDevice, plan_of: Any) -> None:
    run(host, plan_of(NARROW), np.zeros((1, 3, 24, 32), np.float32), "float16")
    assert {"direct_from_floats", "direct_to_floats"} <= host.context.launched


@needs_gxx
@pytest.mark.parametrize("text", [SIGNS, GRID], ids=["signs", "grid"])
def test_brittle_networks_are_equal_to_floats(
    host: HostDevice, plan_of: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    plan = plan_of(text)
    caplog.set_level("INFO", "engine")
    images = np.random.default_rng(1).random((1, *plan.source.shape.sides), np.float32)
    for left, right in zip(
        run(host, plan, images, "float16"), run(host, plan, images), strict=True
    ):
        np.testing.assert_array_equal(left, right)
    (line,) = caplog.messages
    assert line == "host: runs in float32: float16 would change its results"


@pytest.mark.parametrize("text", [SIGNS, GRID], ids=["signs", "grid"])
@pytest.mark.parametrize("precision", ["float16", "tf32"])
def test_brittle_networks_share_choices_with_floats(
    plan_of: Any, text: str, precision: str
) -> None:
    """Other algorithms would have other roundings, and YOLOv1 squares what differs."""
    plan = plan_of(text)
    with closing(HostDevice(runs_kernels=False)) as host:
        asked, plain = (host._fused(plan, 1, each).target for each in (precision, "float32"))
    assert asked == plain


def test_a_precision_of_cpus_is_told_where_it_is(plan_of: Any) -> None:
    with closing(HostDevice(runs_kernels=False)) as host, pytest.raises(InputError) as caught:
        host.compile(plan_of(DETECTOR), precision="float64")
    assert str(caught.value).endswith("got 'float64'. CPUs have it: device cpu")


def test_memory_holds_four_bytes_of_each_float(plan_of: Any) -> None:
    lowered = lowering.place(lowering.fuse(plan_of(DETECTOR), Target(2, "float16", (9, 0), 132)))
    assert lowered.target.floats
    for step in lowered.steps:
        places = {
            tensor: (
                lowered.layout.slices[tensor].pointer,
                2 * tensor.shape.size * (4 if tensor in lowered.target.floats else 2),
            )
            for tensor in step.tensors
        }
        for (one, size), (other, _) in permutations(places.values(), 2):
            assert other >= one + size or other < one
            assert one + size <= lowered.layout.size
