"""Pipelined items are prepared ahead, in order and in limited numbers."""

import threading
import time

import pytest

from engine.concurrency.pipeline import pipelined


def same(item):
    return item


@pytest.mark.parametrize("workers", [1, 3])
def test_order_is_kept_and_no_item_is_lost(workers):
    def slow_now_and_then(item):
        time.sleep(0.002 * (item % 3 == 0))
        return item

    made = pipelined(iter(range(50)), slow_now_and_then, workers=workers)
    assert list(made) == list(range(50))


def test_a_stream_that_is_closed_on_one_of_its_threads_does_not_wait_for_it():
    closed = threading.Event()

    def items():
        yield 0
        time.sleep(0.2)  # the caller has its result by then
        results.close()  # as the garbage collector does, wherever it happens to run
        closed.set()
        yield 1

    results = pipelined(items(), same)
    assert next(results) == 0
    assert closed.wait(5)


def test_closing_a_stream_within_another_one_waits_for_calls_under_way():
    under_way, waited = threading.Event(), []

    def slow():
        yield 0
        under_way.set()
        time.sleep(0.3)
        waited.append(True)
        yield 1

    def outer():
        inner = pipelined(slow(), same)
        yield next(inner)
        under_way.wait(5)
        inner.close()
        yield list(waited)

    assert list(pipelined(outer(), same)) == [0, [True]]


def test_none_is_a_valid_item():
    assert list(pipelined(iter([None, None]), same)) == [None, None]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_one_item_per_worker_is_drawn_ahead(workers):
    drawn = []
    last = threading.Event()

    def items():
        for number in range(10):
            drawn.append(number)
            if number == workers:
                last.set()
            yield number

    stream = pipelined(items(), same, workers=workers)
    assert next(stream) == 0
    assert last.wait(5)
    stream.close()
    assert drawn == list(range(workers + 1))


def test_results_may_wait_for_one_that_takes_long():
    """One of three threads is held up; the others go on with as many items as may wait."""
    made, is_over = [], threading.Event()

    def make(item):
        if item == 0:
            assert is_over.wait(5)
        made.append(item)
        if len(made) == 6:
            is_over.set()
        return item

    stream = pipelined(iter(range(20)), make, workers=3, waiting=4)
    assert next(stream) == 0
    assert sorted(made)[:7] == list(range(7))
    assert list(stream) == list(range(1, 20))


def test_workers_work_at_the_same_time():
    together = threading.Barrier(2, timeout=5)

    def meet(item):
        together.wait()
        return item

    assert list(pipelined(iter(range(4)), meet, workers=2)) == [0, 1, 2, 3]


@pytest.mark.parametrize("workers", [1, 3])
def test_source_failure_is_raised_in_its_place(workers):
    def items():
        yield 1
        yield 2
        raise ValueError("broken")

    stream = pipelined(items(), same, workers=workers)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(ValueError, match="broken"):
        next(stream)


def test_worker_failure_is_raised_in_its_place():
    stream = pipelined(iter([1, 0, 1]), lambda item: 1 // item, workers=2)
    assert next(stream) == 1
    with pytest.raises(ZeroDivisionError):
        next(stream)


def test_no_thread_keeps_running():
    stream = pipelined(iter(range(3)), same, workers=2)
    next(stream)
    assert kinds_at_work() >= {"stream-read", "stream-make"}
    stream.close()
    assert not kinds_at_work() & {"stream-read", "stream-make"}


def kinds_at_work():
    return {each.name.rpartition("_")[0] for each in threading.enumerate()}
