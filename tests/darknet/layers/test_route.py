from __future__ import annotations

from engine.plan import ops
from engine.plan.shapes import Shape
from tests.darknet.small_networks import plan_of

TWO = "[maxpool]\nsize=3\n[convolutional]\nfilters=4\nactivation=linear\n"


def test_one_whole_layer_is_that_layer():
    plan = plan_of(TWO + "[route]\nlayers=0\n")
    assert plan.layers[2] == plan.layers[0]


def test_layers_are_concatenated_in_order():
    plan = plan_of(TWO + "[route]\nlayers=-1,0\n")
    (concat,) = plan.ops[2:]
    assert concat.parts == (
        ops.ConcatPart(plan.layers[1], 0, 4, 0),
        ops.ConcatPart(plan.layers[0], 0, 8, 4),
    )
    assert concat.out.shape == Shape(12, 6, 10)


def test_a_group_is_taken_from_each_layer():
    plan = plan_of(TWO + "[route]\nlayers=-1,0\ngroups=2\ngroup_id=1\n")
    (concat,) = plan.ops[2:]
    assert concat.parts == (
        ops.ConcatPart(plan.layers[1], 2, 2, 0),
        ops.ConcatPart(plan.layers[0], 4, 4, 2),
    )


def test_one_layer_may_come_twice():
    plan = plan_of(TWO + "[route]\nlayers=0,0\n")
    assert plan.layers[2].shape == Shape(16, 6, 10)


def test_maps_of_different_size_become_a_row_of_values_for_connected():
    plan = plan_of(TWO + "[maxpool]\nstride=2\n[route]\nlayers=-1,0\n[connected]\noutput=3\n")
    assert plan.layers[3].shape == Shape(4 * 15 + 8 * 60)
    first, second, concat = plan.ops[3:6]
    assert isinstance(first, ops.Reshape)
    assert [part.count for part in concat.parts] == [60, 480]
    assert [part.src for part in concat.parts] == [first.out, second.out]
