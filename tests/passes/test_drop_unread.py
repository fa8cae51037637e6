from engine.passes.drop_unread import drop_unread
from engine.plan import ops
from engine.plan.shapes import Shape
from tests.passes.networks import Network


def test_ops_that_no_output_needs_are_dropped_with_their_constants():
    net = Network()
    wanted = net.conv(net.source)
    net.activate(net.norm(net.conv(wanted)))
    plan = drop_unread(net.plan(wanted))
    assert [op.out for op in plan.ops] == [wanted]
    assert list(plan.constants) == [plan.ops[0].weight.name]


def test_inputs_of_heads_are_kept():
    net = Network()
    first = net.conv(net.source)
    net.builder.head(ops.GridHead(first, 1, 1, 1))
    second = net.conv(first)
    plan = net.plan(second)
    assert drop_unread(plan).ops == plan.ops


def test_a_store_and_its_source_are_kept():
    net = Network()
    state = net.state(Shape(4, 6, 6))
    net.store(state, net.activate(net.source))
    out = net.conv(net.source)
    plan = net.plan(out)
    assert drop_unread(plan).ops == plan.ops


def test_the_order_is_kept():
    net = Network()
    one = net.conv(net.source)
    net.conv(one)
    two = net.add(one, net.conv(one))
    plan = net.plan(two)
    kept = drop_unread(plan).ops
    assert kept == (plan.ops[0], plan.ops[2], plan.ops[3])
