"""Networks whose activations leave a half's range: refused, by name, and no others."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends import open_device
from engine.backends.cuda.runtime import overflow, program
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.errors import DeviceError, EngineError
from engine.passes import optimise
from engine.plan import ops
from engine.plan.build import Plan
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice
from tests.backends.cuda.test_floats import CLASSIFIER, NET, SIGNS, YOLO, conv

Array = NDArray[Any]

pytestmark = needs_gxx

TEXT = NET + conv(16, 3, stride=2) + conv(24, 3) + conv(16) + YOLO
RECURRENT = "[net]\ninputs=5\n[rnn]\noutput=4\nhidden=3\nactivation=tanh\n"


@pytest.fixture
def plan_of(tmp_path: Any) -> Any:
    def build(text: str = TEXT, *, scales: dict[int, float] | None = None) -> Plan:
        """A network; `scales` multiply what layers put out."""
        file = tmp_path / "net.cfg"
        file.write_text(text)
        network = graph.build(cfg.read(file))
        plan = lower(network, random_weights.arrays(network))
        constants = dict(plan.constants)
        for layer, scale in (scales or {}).items():
            for name in constants:
                if name.startswith(f"{layer}."):
                    constants[name] = constants[name] * np.float32(scale)
        return optimise(replace(plan, constants=constants), HostDevice.passes)

    return build


HUGE = {1: 1e5, 2: 1e-5}  # the second layer leaves the range, the third comes back


def images(plan: Plan, rows: int = 1) -> Array:
    return np.random.default_rng(1).random((rows, *plan.source.shape.sides), np.float32)


def test_a_network_is_refused_by_the_name_of_its_layer(host: HostDevice, plan_of: Any) -> None:
    plan = plan_of(scales=HUGE)
    with closing(open_device("cpu:1")) as cpu:
        second = replace(plan, arena=None, outputs=(plan.layers[1],))
        largest = np.abs(cpu.compile(second).forward(overflow.picture(plan))[0]).max()
    with pytest.raises(EngineError) as refusal:
        host.compile(plan, precision="float16")
    place, _, reach = str(refusal.value).partition(": activations reach ")
    number, _, rest = reach.partition(",")
    assert place == "net.cfg: layer 1 [convolutional]"
    assert float(number) == pytest.approx(largest, rel=2e-3)
    assert rest == " beyond float16 (65504); use float32 or tf32"


def test_a_refusal_leaves_no_memory_behind(host: HostDevice, plan_of: Any) -> None:
    with pytest.raises(EngineError, match="beyond float16"):
        host.compile(plan_of(scales=HUGE), precision="float16")
    assert not host.context.driver.live


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_other_precisions_take_it(host: HostDevice, plan_of: Any, precision: str) -> None:
    plan = plan_of(scales=HUGE)
    assert np.isfinite(host.compile(plan, precision=precision).forward(images(plan))[0]).all()


def test_weights_beyond_the_range_are_refused(host: HostDevice, plan_of: Any) -> None:
    plan = plan_of(scales={1: 1e9, 0: 1e-9})
    with pytest.raises(EngineError, match=r"layer 1 \[conv.*: weights or sums are beyond float16"):
        host.compile(plan, precision="float16")


def test_floats_among_halves_may_be_large(host: HostDevice, plan_of: Any) -> None:
    plan = plan_of(scales={3: 1e6})
    values = host.compile(plan, precision="float16").forward(images(plan))[0]
    assert np.abs(values).max() > overflow.LARGEST


@pytest.mark.slow
@pytest.mark.parametrize("text", [TEXT, TEXT.replace("leaky", "relu")], ids=["leaky", "relu"])
def test_a_run_that_leaves_the_range_is_refused(host: HostDevice, plan_of: Any, text: str) -> None:
    plan = plan_of(text)
    program = host.compile(plan, batch=2, precision="float16")
    given = images(plan, 2)
    expected = program.forward(given)[0]
    for _ in range(3):  # by op, recorded, replayed
        for call in (
            lambda: program.forward(given * np.float32(1e6)),
            lambda: program.detect(given * np.float32(1e6), threshold=0.5),
        ):
            with pytest.raises(
                EngineError, match=r"net.cfg: layer \d \[conv.*\]: activations reach"
            ):
                call()
            np.testing.assert_array_equal(program.forward(given)[0], expected)
            assert program.detect(given, threshold=0.0)


@pytest.mark.parametrize("rows", [1, 2])
def test_softmax_writes_what_is_returned_and_refuses_it(
    host: HostDevice, cpu: Any, plan_of: Any, rows: int
) -> None:
    plan = plan_of(CLASSIFIER)
    program = host.compile(plan, batch=2, precision="float16")
    given = images(plan, rows)
    expected = cpu.compile(plan, batch=2).forward(given)[0]
    for _ in range(3):  # by op, recorded, replayed
        np.testing.assert_allclose(program.forward(given)[0], expected, atol=1e-3)
        with pytest.raises(EngineError, match=r"net.cfg: layer \d \[conv.*\]: activations reach"):
            program.forward(given * np.float32(1e6))
    assert not {"leave", "leave_tiles"} & set(host.context.launched)


def test_a_run_ahead_of_its_answer_is_refused_and_no_other(host: HostDevice, plan_of: Any) -> None:
    """The flag stands until somebody looks at it: the next run finds it, too."""
    plan = plan_of()
    program = host.compile(plan, precision="float16")
    good, bad = images(plan), images(plan) * np.float32(1e6)
    expected = program.forward(good)[0]
    fetch = program._outputs
    first = program._start(program._images(bad), fetch)
    second = program._start(program._images(good), fetch)
    np.testing.assert_array_equal(second.result()[0], expected)
    with pytest.raises(EngineError, match="beyond float16"):
        first.result()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_floats_cannot_hold_either_is_handed_back(
    host: HostDevice, plan_of: Any, value: float
) -> None:
    plan = plan_of()
    program = host.compile(plan, precision="float16")
    given = images(plan)
    given[0, 0, 5, 5] = value
    assert not np.isfinite(program.forward(given)[0]).all()
    assert program.detect(given, threshold=0.5)


def test_without_memory_for_floats_the_number_is_left_out(
    host: HostDevice, plan_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = program.DeviceProgram

    def refuse_floats(context: Any, lowered: Any, weights: Any, **options: Any) -> Any:
        if lowered.target.precision == "float32":
            raise DeviceError("out of memory")
        return make(context, lowered, weights, **options)

    monkeypatch.setattr(program, "DeviceProgram", refuse_floats)
    expected = r"layer 1 \[convolutional\]: activations leave the range of float16 \(65504\); use"
    with pytest.raises(EngineError, match=expected):
        host.compile(plan_of(scales=HUGE), precision="float16")


def test_looking_leaves_a_state_as_it_was(host: HostDevice, plan_of: Any) -> None:
    plan = plan_of(RECURRENT)
    program = host.compile(plan, precision="float16")
    first = program.forward(images(plan))[0]
    program.reset()
    np.testing.assert_array_equal(program.forward(images(plan))[0], first)


def test_only_halves_are_looked_at(host: HostDevice, plan_of: Any) -> None:
    host.compile(plan_of(), precision="tf32")
    host.compile(plan_of(SIGNS), precision="float16")
    assert "largest" not in host.context.launched
    host.compile(plan_of(), precision="float16")
    assert "largest" in host.context.launched


def test_the_made_up_picture_has_flat_parts_edges_and_grain(plan_of: Any) -> None:
    made = overflow.picture(plan_of())
    assert made.shape == (1, 3, 24, 32)
    assert made.min() >= 0
    assert made.max() == 1
    left, right = np.split(made, 2, axis=3)
    assert set(np.unique(right)) == {0, 1}
    assert len(np.unique(left)) == left.size


def test_an_op_is_named_by_its_section_or_its_number(plan_of: Any) -> None:
    plan = plan_of()
    convs = [op for op in plan.ops if isinstance(op, ops.Conv2d)]
    assert plan.title_of(convs[2]) == "net.cfg: layer 2 [convolutional]"
    assert replace(plan, titles=()).title_of(convs[2]) == "layer 2"
