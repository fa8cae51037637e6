from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.backends.cuda.device import CudaDevice
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.passes import FUSING, optimise
from engine.passes.quantise import LayerRanges, candidates, layers_of, quantise, where_it_gains
from engine.plan import ops
from engine.plan.ops import Conv2d, Convert
from tests.passes.check import check_plan
from tests.passes.networks import Network

ROOT = Path(__file__).resolve().parents[2]


class Layers(Network):
    """A network of which every tensor that is a layer counts for calibration."""

    def quantised(self, *outputs, layers, largest=1.0, floats=()):
        plan = self.builder.build(layers=layers, outputs=outputs)
        ready = optimise(plan, FUSING)
        made = quantise(ready, LayerRanges(dict.fromkeys(range(len(layers)), largest), floats))
        check_plan(made)
        return made


def kinds(plan):
    return [type(op).__name__ for op in plan.ops]


def test_between_two_convolutions_values_are_int8():
    net = Layers(channels=3)
    first = net.activate(net.conv(net.source, 16), "leaky")
    last = net.conv(first, 16)
    plan = net.quantised(last, layers=[first, last])
    assert set(plan.scales) == {first}
    assert plan.scales[first] == np.float32(1 / 127)
    conv, convert, second = plan.ops
    assert isinstance(conv, Conv2d)
    assert conv.out not in plan.scales
    assert convert == Convert(first, conv.out)
    assert (second.src, second.out) == (first, last)


@pytest.mark.parametrize("filters", [8, 24])
def test_odd_numbers_of_channels_stay_float(filters):
    net = Layers(channels=3)
    first = net.conv(net.source, filters)
    last = net.conv(first, 16)
    assert not net.quantised(last, layers=[first, last]).scales


@pytest.mark.parametrize("largest", [0.0, np.inf])
def test_layers_without_a_range_stay_float(largest):
    net = Layers(channels=3)
    first = net.conv(net.source, 16)
    last = net.conv(first, 16)
    assert not net.quantised(last, layers=[first, last], largest=largest).scales


def test_broken_weights_stay_float():
    net = Layers(channels=3)
    first = net.conv(net.source, 16)
    weight = net.array(16, 16, 1, 1)
    net.builder._constants[weight.name][0] = np.nan
    last = net.conv(first, 16, weight=weight)
    assert not net.quantised(last, layers=[first, last]).scales


def test_pools_upsampling_concatenations_and_shortcuts_stay_int8():
    net = Layers(channels=3, side=8)
    stem = net.conv(net.source, 16)
    body = net.conv(stem, 16)
    total = net.add(body, stem)
    small = net.pool(total, 3, 1)
    deep = net.conv(small, 32, stride=2)
    wide = net.upsample(deep)
    joined = net.concat(wide, small)
    last = net.conv(joined, 16)
    plan = net.quantised(last, layers=[stem, body, total, small, deep, wide, joined, last])
    assert kinds(plan) == ["Conv2d", "Convert", "Conv2d", "MaxPool", "Conv2d", "Conv2d"]
    views = {wide, small}
    assert views <= plan.views.keys()
    assert {plan.scales[each] for each in (total, small, wide, joined)} == {plan.scales[total]}
    assert plan.scales[stem] == plan.scales[total]


def test_a_shortcut_has_a_scale_of_its_own():
    net = Layers(channels=3)
    stem = net.conv(net.source, 16)
    total = net.add(net.conv(stem, 16), stem)
    last = net.conv(total, 16)
    plan = net.builder.build(layers=[stem, total, last], outputs=[last])
    ranges = LayerRanges({0: 2.0, 1: 5.0, 2: 1.0})
    scales = quantise(optimise(plan, FUSING), ranges).scales
    assert scales == {stem: np.float32(2 / 127), total: np.float32(5 / 127)}


def test_a_shortcut_of_unequal_maps_is_float_and_writes_int8():
    net = Layers(channels=3)
    stem = net.conv(net.source, 16)
    small = net.conv(stem, 32, stride=2)
    total = net.add(small, stem)  # read as flat arrays
    last = net.conv(total, 16)
    plan = net.quantised(last, layers=[stem, small, total, last])
    assert {stem, total} <= plan.scales.keys()
    (add,) = (op for op in plan.ops if isinstance(op, ops.Add))
    assert not {add.out, *add.sources} & plan.scales.keys()


def test_an_addition_of_its_own_is_int8():
    net = Layers(channels=3)
    stem = net.conv(net.source, 16)
    left, right = net.conv(stem, 16), net.conv(stem, 16)
    total = net.add(left, right)
    last = net.conv(net.concat(total, left, right), 16)
    plan = net.quantised(last, layers=[stem, left, right, total, last])
    assert "Add" in kinds(plan)
    assert {stem, left, right, total} <= plan.scales.keys()


@pytest.mark.parametrize(("stride", "is_int8"), [(1, True), (2, False)])
def test_a_convolution_that_halves_the_first_map_stays_float(stride, is_int8):
    net = Layers(channels=3)
    first = net.conv(net.source, 16)
    second = net.conv(first, 32, stride=stride)
    last = net.conv(second, 16)
    plan = net.quantised(last, layers=[first, second, last])
    assert second in plan.scales
    assert (first in plan.scales) == is_int8


def test_depthwise_convolutions_are_float_and_so_is_what_they_write():
    net = Layers(channels=3)
    stem = net.conv(net.source, 16)
    wide = net.conv(stem, 32, 1)
    middle = net.conv(wide, is_depthwise=True)
    last = net.conv(middle, 16, 1)
    plan = net.quantised(last, layers=[stem, wide, middle, last])
    assert set(plan.scales) == {stem}


def test_what_float_ops_read_is_converted_once():
    net = Layers(channels=3)
    stem = net.conv(net.source, 16)
    body = net.conv(stem, 16)
    after = net.conv(body, 16)
    averages = [net.multiply(body, body), net.multiply(body, body)]
    plan = net.quantised(after, *averages, layers=[stem, body, after])
    assert body in plan.scales
    assert sum(isinstance(op, Convert) and op.src == body for op in plan.ops) == 1


@pytest.mark.parametrize(("name", "gains"), [("enet-coco", False), ("yolov4-tiny", True)])
def test_a_network_with_few_products_of_integers_stays_float(name, gains):
    network = graph.build(cfg.read(ROOT / "cfg" / f"{name}.cfg"), size=(64, 64))
    plan = optimise(lower(network, random_weights.arrays(network)), FUSING)
    ranges = LayerRanges(dict.fromkeys(range(len(plan.layers)), 1.0))
    assert quantise(plan, ranges).scales
    found = where_it_gains(plan, ranges)
    assert set(found.floats) == set(() if gains else candidates(plan))
    assert bool(quantise(plan, found).scales) is gains


def test_outputs_and_states_are_float():
    net = Layers(channels=3)
    stem = net.conv(net.source, 16)
    state = net.state(stem.shape)
    net.store(state, stem)
    last = net.conv(state, 16)
    assert not net.quantised(last, layers=[stem, last]).scales


def test_layers_may_be_left_float(tiny_yolo_plan):
    plan, ranges = tiny_yolo_plan
    assert candidates(plan) == [1, 3]
    made = quantise(plan, replace(ranges, floats=[1]))
    reading = [op for op in made.ops if isinstance(op, Conv2d) and op.src in made.scales]
    assert [layers_of(op) for op in reading] == [[3]]


@pytest.fixture
def tiny_yolo_plan():
    net = Layers(channels=3)
    tensors = [net.source]
    for number in range(4):
        net.builder.scope = f"{number}.convolutional."
        weight = net.builder.constant(
            "weights", np.ones((16, tensors[-1].shape.channels, 1, 1), np.float32)
        )
        tensors.append(net.conv(tensors[-1], weight=weight))
        if number == 1:
            tensors[-1] = net.builder.emit(
                ops.L2Norm(net.new(tensors[-1].shape, tensors[-1]), tensors[-1])
            )
    plan = net.builder.build(layers=tensors[1:], outputs=tensors[-1:])
    return optimise(plan, FUSING), LayerRanges(dict.fromkeys(range(4), 1.0))


def test_the_passes_before_are_those_of_a_card():
    assert CudaDevice.passes == FUSING
