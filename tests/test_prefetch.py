"""engine/prefetch.py: one item ahead, in order, never more."""

import threading

import pytest

from engine.prefetch import one_ahead


def test_order_is_kept_and_nothing_is_lost():
    assert list(one_ahead(iter(range(100)))) == list(range(100))


def test_none_is_an_item_like_any_other():
    assert list(one_ahead(iter([None, None]))) == [None, None]


def test_the_next_item_is_made_meanwhile_and_only_that_one():
    made = []
    second = threading.Event()

    def items():
        for number in range(10):
            made.append(number)
            if number == 1:
                second.set()
            yield number

    stream = one_ahead(items())
    assert next(stream) == 0
    assert second.wait(5)
    stream.close()
    assert made == [0, 1]


def test_a_failure_comes_where_its_item_would_have_come():
    def items():
        yield 1
        raise ValueError("broken")

    stream = one_ahead(items())
    assert next(stream) == 1
    with pytest.raises(ValueError, match="broken"):
        next(stream)


def test_no_thread_is_left_behind():
    stream = one_ahead(iter(range(3)))
    next(stream)
    stream.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("engine-read")]
