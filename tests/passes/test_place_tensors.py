from time import process_time

import numpy as np
import pytest

from engine.passes import optimise
from engine.passes.elide_copies import elide_copies
from engine.passes.place_tensors import ALIGNMENT, lifetimes, place_tensors
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import ConcatPart
from engine.plan.shapes import Shape
from tests.passes.check import check_plan
from tests.passes.networks import Network, random_plan


def most_alive_at_once(plan):
    """Return the size below which no arena can be."""
    changes = np.zeros(len(plan.ops) + 3, dtype=np.int64)
    for life in lifetimes(plan).values():
        changes[life.first + 1] += life.size
        changes[life.last + 2] -= life.size
    return int(changes.cumsum().max())


def test_a_chain_needs_the_memory_of_two_tensors():
    net = Network(channels=4, side=6)
    tensor = net.source
    for _ in range(6):
        tensor = net.conv(tensor)
    plan = place_tensors(net.plan(tensor))
    check_plan(plan)
    assert plan.arena.size == 2 * 4 * 6 * 6


def test_a_tensor_that_is_read_late_keeps_its_memory():
    net = Network()
    early = net.conv(net.source)
    late = net.add(net.conv(net.conv(early)), early)
    plan = place_tensors(net.plan(late))
    check_plan(plan)
    assert plan.arena.size == 3 * 4 * 6 * 6


def test_outputs_live_to_the_end():
    net = Network()
    first = net.conv(net.source)
    plan = place_tensors(net.plan(first, net.conv(net.conv(net.conv(first)))))
    check_plan(plan)
    assert lifetimes(plan)[first].last == len(plan.ops)


def test_inputs_of_heads_live_to_the_end():
    net = Network()
    first = net.conv(net.source)
    net.builder.head(ops.GridHead(first, 1, 1, 1))
    plan = place_tensors(net.plan(net.conv(net.conv(net.conv(first)))))
    check_plan(plan)
    assert plan.arena.size == 3 * 4 * 6 * 6


def test_a_root_lives_while_any_of_its_views_does():
    net = Network()
    one = net.conv(net.source)
    other = net.conv(net.conv(net.conv(one)))
    out = net.concat(one, other)
    plan = place_tensors(elide_copies(net.plan(net.conv(out))))
    check_plan(plan)
    assert one not in plan.arena.offsets
    life = lifetimes(plan)[out]
    assert (life.first, life.last) == (0, 4)


def test_the_input_lives_before_the_first_op():
    net = Network()
    constant = net.builder.emit(ops.Load(net.new(Shape(4, 6, 6), net.source), net.array(4, 6, 6)))
    last = net.activate(net.activate(constant))
    plan = place_tensors(net.plan(net.add(last, net.source)))
    check_plan(plan)
    assert plan.arena.offsets[constant] != plan.arena.offsets[net.source]


def test_states_own_their_memory():
    net = Network()
    state = net.state(Shape(4, 6, 6))
    out = net.add(net.source, state)
    net.store(state, out)
    plan = place_tensors(net.plan(out))
    check_plan(plan)
    assert state not in plan.arena.offsets


def test_time_steps_multiply_the_size():
    net = Network(steps=5)
    plan = place_tensors(net.plan(net.activate(net.source)))
    check_plan(plan)
    assert plan.arena.size == 2 * 5 * 4 * 6 * 6


def test_offsets_are_aligned():
    net = Network(channels=1, side=3)
    tensor = net.source
    for filters in (1, 3, 2, 5):
        tensor = net.add(net.conv(tensor, filters), net.conv(tensor, filters))
    plan = place_tensors(net.plan(tensor))
    check_plan(plan)
    assert {offset % ALIGNMENT for offset in plan.arena.offsets.values()} == {0}


@pytest.mark.parametrize("seed", range(12))
def test_little_memory_is_wasted(seed):
    plan = optimise(random_plan(seed, length=60), ["drop_unread", "elide_copies", "place_tensors"])
    check_plan(plan)
    assert plan.arena.size <= 1.15 * most_alive_at_once(plan)


@pytest.mark.slow
def test_ten_thousand_ops_are_placed_in_linear_time():
    random = np.random.default_rng(0)
    builder = PlanBuilder(Shape(1))
    tensors = [builder.source]
    for number in range(10_000):
        if number % 2 and len(tensors) > 10:
            width = len(tensors) if number % 1000 == 999 else 8
            chosen = {tensors[each] for each in random.integers(len(tensors), size=width)}
            parts = tuple(ConcatPart(each, 0, 1, at) for at, each in enumerate(chosen))
            builder.emit(ops.Concat(builder.tensor(Shape(len(parts))), parts))
        else:
            src = tensors[int(random.integers(len(tensors)))]
            tensors.append(builder.emit(ops.Activate(builder.tensor(Shape(1)), src, "relu")))
    plan = builder.build(layers=tensors, outputs=tensors[-1:])
    start = process_time()
    placed = place_tensors(elide_copies(plan))
    assert process_time() - start < 10  # seconds; a quadratic algorithm takes a minute
    assert most_alive_at_once(placed) <= placed.arena.size <= 1.25 * most_alive_at_once(placed)
