"""Layer-by-layer comparison of two ways to run a network."""

from dataclasses import replace

import numpy as np
import pytest

from engine import compare
from engine.compare import Way
from engine.darknet import cfg, graph, weights
from engine.darknet.lower import lower
from engine.errors import InputError


@pytest.fixture(scope="module")
def network(tiny_detector):
    built = graph.build(cfg.read(tiny_detector.cfg))
    return built, lower(built, weights.load(tiny_detector.weights, built))


def images(rows=1):
    return np.random.default_rng(0).random((rows, 3, 48, 64), np.float32)


def differences(network, *texts):
    return list(compare.compare(*network, images(), [Way.of(text) for text in texts]))


def test_passes_change_outputs_by_rounding_only(network):
    found = differences(network, "cpu", "cpu/no-passes")
    assert [each.kind for each in found] == ["convolutional", "maxpool", "convolutional", "yolo"]
    assert max(each.error for each in found) < 1e-5


def test_precisions_differ_by_rounding_only(network):
    found = differences(network, "cpu/float64", "cpu/float32")
    assert 0 < max(each.error for each in found) < 1e-5


def test_the_first_layer_that_differs_is_found(network, monkeypatch):
    _, plan = network
    name = "2.convolutional.weight"
    damaged = plan.constants[name].copy()
    damaged[2] = 7  # a filter of widths, whose output is linear
    other = replace(plan, constants={**plan.constants, name: damaged})
    run = compare._outputs
    plans = iter((plan, other))
    monkeypatch.setattr(compare, "_outputs", lambda _, *rest: run(next(plans), *rest))
    found = differences(network, "cpu", "cpu")
    assert [each.error > 1e-3 for each in found] == [False, False, True, True]
    worst = found[2]
    assert worst.place[1] == 2
    assert abs(worst.first - worst.second) > 1


def test_int8_without_passes_is_refused():
    with pytest.raises(InputError, match="a pass makes layers int8, so no-passes leaves none"):
        Way.of("cpu/int8/no-passes")


def test_infinities_hide_no_difference():
    left, right = np.array([np.inf, 3, 4]), np.array([np.inf, 3, 8])
    assert compare._error(left, right) == 0.8
    assert compare._error(left, left) == 0
    assert compare._error(left, -left) == compare._error(right[1:], left[:2]) == np.inf


def test_nan_against_a_number_is_an_infinite_error():
    left, right = np.zeros((1, 2, 1, 1)), np.zeros((1, 2, 1, 1))
    right[0, 1] = np.nan
    assert compare._error(left, right) == np.inf
    assert compare._furthest(left, right) == (0, 1, 0, 0)
    assert compare._error(right, right) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu", Way("cpu", "float32", True)),
        ("cuda:1/float16", Way("cuda:1", "float16", True)),
        ("cpu/int8", Way("cpu", "int8", True)),
        ("cpu/no-passes", Way("cpu", "float32", False)),
        ("cpu/no-passes/float64", Way("cpu", "float64", False)),
    ],
)
def test_way_is_parsed_and_printed(text, expected):
    assert Way.of(text) == expected
    assert Way.of(str(expected)) == expected


@pytest.mark.parametrize("text", ["", "/float16", "cpu/float99", "cpu/float32/float16"])
def test_invalid_ways_are_refused(text):
    with pytest.raises(InputError, match=r"expected DEVICE"):
        Way.of(text)
