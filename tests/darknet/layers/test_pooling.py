from __future__ import annotations

import pytest

from engine.plan import ops
from engine.plan.shapes import Shape, Window
from tests.darknet.small_networks import plan_of, shapes_of


@pytest.mark.parametrize("section", ["local_avgpool", "local_avg"])
def test_local_avgpool_has_the_geometry_of_maxpool(section):
    layers = f"[{section}]\nsize=3\nstride=2\n"
    assert shapes_of(layers, Shape(8, 13, 19)) == [Shape(8, 7, 10)]
    (pool,) = plan_of(layers, Shape(8, 13, 19)).ops
    assert isinstance(pool, ops.AveragePool)
    assert pool.window == Window((3, 3), (2, 2), (1, 1, 1, 1))


def test_strides_of_local_averages_may_differ():
    layers = "[local_avgpool]\nstride=2\nstride_x=3\n"
    assert shapes_of(layers, Shape(8, 12, 12)) == [Shape(8, 6, 4)]


@pytest.mark.parametrize("section", ["avgpool", "avg"])
def test_avgpool_averages_each_channel(section):
    (pool,) = plan_of(f"[{section}]\n").ops
    assert isinstance(pool, ops.AveragePool)
    assert pool.window == Window((6, 10))
    assert pool.out.shape == Shape(8)
