import numpy as np
import pytest

from engine.backends import open_device
from engine.passes import PASSES, optimise
from engine.plan.build import Plan
from tests.lanes import slow_except
from tests.passes.check import check_plan
from tests.passes.networks import Network, random_plan

CALLS = 2  # what is left in a state must show


def run(plan: Plan, images: np.ndarray) -> list[np.ndarray]:
    device = open_device("cpu:1")
    try:
        program = device.compile(plan, batch=2, precision="float64")
        return [output for _ in range(CALLS) for output in program.forward(images)]
    finally:
        device.close()


def assert_same_numbers(naive: Plan, fast: Plan, *, tolerance: float = 1e-5) -> None:
    images = np.random.default_rng(1).normal(size=(2 * naive.steps, *naive.source.shape.sides))
    images = images.astype(np.float32)
    for expected, got in zip(run(naive, images), run(fast, images), strict=True):
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("seed", range(60))
def test_all_passes_return_a_valid_plan(seed):
    plan = optimise(random_plan(seed), PASSES)
    check_plan(plan)


@pytest.mark.parametrize("seed", range(60, 80))
def test_all_passes_together_keep_the_results(seed):
    naive = random_plan(seed)
    assert_same_numbers(naive, optimise(naive, PASSES))


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("seed", slow_except(range(24, 30), range(96)))
def test_states_that_are_stored_several_times_keep_their_values(seed, steps):
    naive = random_plan(seed, 40, steps=steps, has_states=True)
    fast = optimise(naive, PASSES)
    check_plan(fast)
    assert_same_numbers(naive, fast)


# only folding rounds, as its new constants are float32
@pytest.mark.parametrize(
    ("name", "tolerance"), [(name, 1e-5 if name == "fold_batchnorm" else 1e-7) for name in PASSES]
)
@pytest.mark.parametrize("seed", range(80, 88))
def test_each_pass_alone_keeps_the_results(name, tolerance, seed):
    naive = random_plan(seed)
    fast = optimise(naive, [name])
    assert_same_numbers(naive, fast, tolerance=tolerance)


@pytest.mark.parametrize("seed", range(88, 96))
def test_every_layer_can_be_an_output(seed):
    plan = random_plan(seed)
    every = plan.tensors[1:]
    naive = Plan(plan.source, plan.ops, layers=every, outputs=every, constants=plan.constants)
    fast = optimise(naive, PASSES)
    check_plan(fast)
    assert fast.outputs == naive.outputs
    assert_same_numbers(naive, fast)


def test_passes_run_in_the_order_of_the_table():
    net = Network()
    naive = net.plan(net.activate(net.norm(net.conv(net.source))))
    (op,) = optimise(naive, ["fuse_activation", "fold_batchnorm", "drop_unread"]).ops
    assert op.activation == "leaky"


def test_an_unknown_pass_fails_an_assertion():
    net = Network()
    with pytest.raises(AssertionError, match="fuse_everything"):
        optimise(net.plan(net.conv(net.source)), ["fuse_everything"])


def test_a_plan_is_not_optimised_twice():
    net = Network()
    placed = optimise(net.plan(net.conv(net.source)), ["place_tensors"])
    with pytest.raises(AssertionError, match="already"):
        optimise(placed, PASSES)
