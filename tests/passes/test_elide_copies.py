import pytest

from engine.passes.elide_copies import elide_copies
from engine.plan.build import View
from engine.plan.ops import Concat, ConcatPart, TakeStep
from engine.plan.shapes import Shape
from tests.passes.check import check_plan
from tests.passes.networks import Network


def concats(plan):
    return [op for op in plan.ops if isinstance(op, Concat)]


def test_sources_are_views_of_the_concatenation():
    net = Network()
    one, two = net.conv(net.source, 3), net.conv(net.source, 5)
    out = net.concat(one, two)
    plan = elide_copies(net.plan(net.activate(out)))
    check_plan(plan)
    assert plan.views == {one: View(out, 0), two: View(out, 3)}
    assert concats(plan) == []


def test_views_of_nested_concatenations_refer_to_the_outermost():
    net = Network()
    one, two, three = (net.conv(net.source, filters) for filters in (1, 2, 3))
    inner = net.concat(one, two)
    outer = net.concat(three, inner)
    plan = elide_copies(net.plan(outer))
    check_plan(plan)
    assert plan.views == {
        three: View(outer, 0),
        inner: View(outer, 3),
        one: View(outer, 3),
        two: View(outer, 4),
    }
    assert concats(plan) == []


def test_a_range_of_channels_is_a_view_of_the_tensor():
    net = Network()
    src = net.conv(net.source, 8)
    half = net.ranges((src, 4, 4))
    plan = elide_copies(net.plan(net.conv(half)))
    check_plan(plan)
    assert plan.views == {half: View(src, 4)}
    assert concats(plan) == []


def test_a_range_of_a_view_is_a_view_of_its_root():
    """Test a block of yolov4-tiny: half of a map is convolved, then concatenated with the map."""
    net = Network()
    whole = net.conv(net.source, 8)
    half = net.ranges((whole, 4, 4))
    one = net.conv(half)
    two = net.conv(one)
    inner = net.concat(two, one)
    last = net.conv(inner, 8, 1)
    outer = net.concat(whole, last)
    plan = elide_copies(net.plan(outer))
    check_plan(plan)
    assert plan.views == {
        whole: View(outer, 0),
        half: View(outer, 4),
        last: View(outer, 8),
        two: View(inner, 0),
        one: View(inner, 4),
    }
    assert concats(plan) == []


def test_kept_tensors_may_be_views():
    net = Network()
    one, two = net.conv(net.source, 3), net.conv(net.source, 5)
    out = net.concat(one, two)
    plan = elide_copies(net.plan(one, out))
    check_plan(plan)
    assert set(plan.views) == {one, two}


def test_a_second_concatenation_copies():
    net = Network()
    one, two, three = (net.conv(net.source) for _ in range(3))
    first, second = net.concat(one, two), net.concat(one, three)
    plan = elide_copies(net.plan(first, second))
    check_plan(plan)
    (concat,) = concats(plan)
    assert concat.out == second
    assert [(part.src, part.at) for part in concat.parts] == [(one, 0)]
    assert plan.views[three] == View(second, 4)


def test_rows_of_another_number_of_steps_are_copied():
    net = Network(steps=3)
    short = net.builder.tensor(Shape(4, 6, 6), steps=1)
    net.builder.emit(TakeStep(short, net.source, 0))
    long = net.builder.tensor(Shape(2, 6, 6), steps=3)
    net.builder.emit(Concat(long, (ConcatPart(short, 0, 2, 0),)))
    plan = net.plan(long)
    assert elide_copies(plan) == plan


def test_a_view_joined_with_the_tensor_it_is_part_of_is_copied():
    net = Network()
    whole = net.conv(net.source, 8)
    half = net.ranges((whole, 0, 4))
    out = net.concat(whole, half)
    plan = elide_copies(net.plan(out))
    check_plan(plan)
    (concat,) = concats(plan)
    assert [(part.src, part.at) for part in concat.parts] == [(half, 8)]
    assert plan.views == {whole: View(out, 0), half: View(out, 0)}


def twice_the_same(net):
    conv = net.conv(net.source)
    return net.plan(net.concat(conv, conv))


def the_source(net):
    return net.plan(net.concat(net.source, net.source), net.ranges((net.source, 1, 2)))


def ranges_of_several(net):
    one, two = net.conv(net.source), net.conv(net.source)
    return net.plan(net.ranges((one, 0, 2), (two, 2, 2)))


def a_state(net):
    state = net.state(Shape(4, 6, 6))
    out = net.concat(state, state)
    part = net.ranges((state, 0, 2))
    net.store(state, net.source)
    return net.plan(out, part)


@pytest.mark.parametrize(
    "build",
    [twice_the_same, the_source, ranges_of_several, a_state],
    ids=lambda build: build.__name__,
)
def test_a_copy_is_kept(build):
    plan = build(Network())
    elided = elide_copies(plan)
    check_plan(elided)
    assert elided.ops == plan.ops
    assert elided.views == {}
