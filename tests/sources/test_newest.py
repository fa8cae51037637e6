"""Live sources drop items that arrive while the reader is busy."""

import threading

import pytest

from engine.sources.newest import newest


def test_the_newest_item_is_given_and_older_ones_are_dropped():
    looked = threading.Event()
    all_there = threading.Event()

    def items():
        yield 1
        looked.wait(5)
        yield from (2, 3, 4)
        all_there.set()
        threading.Event().wait(0.05)

    live = newest(items())
    assert next(live) == 1
    looked.set()
    assert all_there.wait(5)
    assert next(live) == 4
    assert next(live, "over") == "over"


def test_the_last_item_is_not_lost_at_the_end():
    assert list(newest(iter([1, 2, 3])))[-1] == 3


def test_failure_is_raised_in_the_reader():
    def items():
        yield 1
        raise ValueError("unplugged")

    with pytest.raises(ValueError, match="unplugged"):
        list(newest(items()))


def test_no_thread_is_left():
    live = newest(iter(int, 1))
    next(live)
    live.close()
    assert not [each for each in threading.enumerate() if each.name == "engine-live"]
