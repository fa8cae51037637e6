from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from engine.backends import open_device
from engine.calibrate.choose import Measurement, choose
from engine.calibrate.collect import count_magnitudes, ranges_of_noise
from engine.passes.quantise import LayerRanges
from tests.passes.networks import Network


@pytest.fixture(scope="module")
def cpu():
    with closing(open_device("cpu")) as device:
        yield device


def network(*, outlier=1.0):
    """Four convolutions; one channel of the third has far larger values than the others."""
    net = Network(channels=3, side=8, seed=1)
    tensors = []
    src = net.source
    for number in range(4):
        net.builder.scope = f"{number}.convolutional."
        shape = 16, src.shape.channels, 3, 3
        values = net.random.uniform(-1, 1, shape).astype(np.float32)
        if number == 2:
            values[0] *= outlier
        if number == 3:
            values[:, 0] /= outlier
        src = net.conv(src, weight=net.builder.constant("weights", values))
        tensors.append(src)
    return net.builder.build(layers=tensors, outputs=tensors[-1:])


def rows(count=3):
    return list(np.random.default_rng(0).random((count, 1, 3, 8, 8), np.float32))


def test_all_layers_are_int8_where_that_is_good_enough(cpu):
    plan = network()
    measurement = Measurement(plan, cpu, rows())
    assert measurement.convolutions == [1, 2, 3]
    found = choose(measurement, count_magnitudes(plan, cpu, rows()), target=0.07)
    assert not found.ranges.floats
    assert found.error == min(found.error_by_method.values()) < 0.07
    assert found.errors.keys() == {1, 2, 3}
    assert all(0 < error < found.error * 1.5 for error in found.errors.values())


def test_the_layer_that_loses_most_stays_float(cpu):
    plan = network(outlier=300.0)
    measurement = Measurement(plan, cpu, rows())
    histograms = count_magnitudes(plan, cpu, rows())
    told = []
    found = choose(measurement, histograms, target=0.05, report=told.append)
    assert max(found.errors, key=found.errors.__getitem__) == 3  # which reads the outlier
    assert set(found.ranges.floats) == {3}
    assert found.error <= 0.05 < found.error_without_floats
    assert "layer 3 stays float" in told[-1]
    nothing = choose(measurement, histograms, target=0.0)
    assert set(nothing.ranges.floats) == {1, 2, 3}
    assert nothing.error == 0


def test_an_infinite_activation_leaves_its_readers_float(cpu):
    plan = network()
    broken = dict(plan.constants)
    name = next(each for each in broken if each.startswith("1."))
    broken[name] = np.full_like(broken[name], 3e38)
    plan = replace(plan, constants=broken)
    histograms = count_magnitudes(plan, cpu, rows())
    assert histograms[1].limit("max") == np.inf
    measurement = Measurement(plan, cpu, rows())
    assert not measurement.has_finite_outputs
    assert Measurement(network(), cpu, rows()).has_finite_outputs
    found = choose(measurement, histograms, target=0.05)
    assert found.error == 0  # the outputs are not finite either, which tells nothing
    assert measurement.error(LayerRanges({0: 1.0})) == 0


def test_noise_gives_every_layer_a_range():
    ranges = ranges_of_noise(network())
    assert sorted(ranges.largest) == [0, 1, 2, 3]
    assert all(0 < each < np.inf for each in ranges.largest.values())
