import pytest

from engine.plan.ops import Activate, Add, Constant, Conv2d, MaxPool, Tensor, Upsample
from engine.plan.shapes import Shape, Window
from engine.plan.tail import split_tail
from tests.tails import with_tail

CONV = Conv2d(Tensor(2, Shape(8, 6, 6)), Tensor(1, Shape(4, 6, 6)), Constant("w", (8, 4, 1, 1)))
HALVES = Window((2, 2), (2, 2))
LONG = with_tail(
    CONV, activation="leaky", pool=HALVES, residual=True, last_activation="relu", upsample=2
)


def test_a_convolution_without_a_tail_writes_its_sums():
    assert CONV.sums == CONV.out
    assert CONV.is_bare
    assert CONV.activation == CONV.last_activation == "linear"
    assert (CONV.pool, CONV.residual, CONV.yolo, CONV.upsample) == (None,) * 4


def test_a_tail_is_read_stage_by_stage():
    assert [type(step) for step in LONG.tail] == [Activate, MaxPool, Add, Upsample]
    assert LONG.sums == CONV.out
    assert (LONG.activation, LONG.last_activation) == ("leaky", "relu")
    assert (LONG.pool, LONG.upsample.stride) == (HALVES, 2)
    assert LONG.out.shape == Shape(8, 6, 6)
    assert not LONG.is_bare


def test_tensors_between_the_ops_of_a_tail_are_not_read():
    assert LONG.reads == (CONV.src, LONG.residual)


def test_a_second_activation_follows_the_first():
    twice = with_tail(CONV, activation="leaky", last_activation="tanh")
    assert (twice.activation, twice.last_activation) == ("leaky", "tanh")


@pytest.mark.parametrize("count", range(5))
def test_a_kernel_keeps_what_it_can_run(count):
    conv, rest = split_tail(LONG, lambda conv: len(conv.tail) <= count)
    assert conv.tail == LONG.tail[:count]
    assert rest == LONG.tail[count:]
    again = conv
    for step in rest:
        again = again.then(step)
    assert again == LONG


def test_nothing_is_split_from_a_tail_that_a_kernel_can_run():
    assert split_tail(LONG, lambda conv: True) == (LONG, ())


def test_a_tail_follows_another_output():
    out = Tensor(9, Shape(16, 6, 6))
    conv = with_tail(CONV, activation="leaky", upsample=1, last_activation="relu").writing(out)
    assert conv.out == out
    assert conv.sums.shape == Shape(16, 6, 6)
    assert (conv.activation, conv.last_activation) == ("leaky", "relu")


def test_a_residual_keeps_its_place():
    conv = with_tail(CONV, residual=True)
    moved = conv.writing(Tensor(9, CONV.out.shape))
    assert moved.residual == conv.residual


def test_a_stage_out_of_order_is_refused():
    conv = with_tail(CONV, upsample=2)
    with pytest.raises(AssertionError, match="out of order"):
        conv.then(Activate(Tensor(9, conv.out.shape), conv.out, "leaky"))
    assert isinstance(conv.tail[-1], Upsample)
