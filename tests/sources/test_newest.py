"""Live sources drop items that arrive while the reader is busy."""

import threading
import time
from itertools import islice

import pytest

from engine.errors import EngineError
from engine.sources.newest import NewestOfEach


def test_the_newest_item_is_given_and_older_ones_are_dropped():
    looked = threading.Event()
    all_there = threading.Event()

    def items():
        yield 1
        looked.wait(5)
        yield from (2, 3, 4)
        all_there.set()
        threading.Event().wait(0.05)

    live = iter(NewestOfEach([items()]))
    assert next(live) == (0, 1)
    looked.set()
    assert all_there.wait(5)
    assert next(live) == (0, 4)
    assert next(live, "over") == "over"


def test_the_last_item_is_not_lost_at_the_end():
    assert list(NewestOfEach([iter([1, 2, 3])]))[-1] == (0, 3)


def test_failure_is_raised_in_the_reader():
    def items():
        yield 1
        raise ValueError("unplugged")

    with pytest.raises(ValueError, match="unplugged"):
        list(NewestOfEach([items()]))


def test_failure_is_raised_while_other_sources_go_on():
    def broken():
        yield 1
        raise ValueError("unplugged")

    live = NewestOfEach([iter(int, 1), broken()])
    with pytest.raises(ValueError, match="unplugged"):
        for _ in islice(live, 1_000_000):
            pass
    live.close()


def test_no_thread_is_left():
    live = NewestOfEach([iter(int, 1)])
    next(iter(live))
    live.close()
    assert not [each for each in threading.enumerate() if each.name == "engine-live"]


def test_a_thread_that_does_not_start_leaves_no_other_one(monkeypatch):
    begun, start = [], threading.Thread.start

    def refuse_the_second(thread):
        if begun:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_the_second)
    with pytest.raises(EngineError, match="live source"):
        NewestOfEach([iter(int, 1), iter(int, 1)])
    begun[0].join(5)
    assert not begun[0].is_alive()


def test_sources_take_turns():
    def camera():
        while True:
            time.sleep(0.0005)
            yield 1

    live = NewestOfEach([camera(), camera(), camera()])
    turns = []
    for number, _ in islice(live, 60):
        turns.append(number)
        time.sleep(0.003)  # all have a new item by then
    live.close()
    assert min(map(turns.count, range(3))) > 10


def test_a_silent_source_holds_nobody_up():
    quiet = threading.Event()

    def silent():
        quiet.wait(10)
        yield "late"

    live = NewestOfEach([silent(), iter(["a"])])
    found = iter(live)
    assert next(found) == (1, "a")
    quiet.set()
    assert list(found) == [(0, "late")]


def test_one_source_may_be_ended():
    live = NewestOfEach([iter(int, 1), iter([5])])
    seen = []
    for number, item in live:
        seen.append(item)
        if number == 0:
            live.end(0)
    assert seen.count(5) == 1


def test_waiting_can_be_stopped_from_another_thread():
    forever, stopped = threading.Event(), threading.Event()

    def silent():
        forever.wait(10)
        yield 1

    live = NewestOfEach([silent()], stopped=stopped)
    threading.Timer(0.05, stopped.set).start()
    assert list(live) == []
    forever.set()
    live.close()
