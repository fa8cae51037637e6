"""Threads of a pool avoid the processor of their caller."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from engine.backends.cpu import affinity, blas
from engine.backends.cpu.affinity import WorkerAffinity
from engine.backends.cpu.workers import Workers

pytestmark = pytest.mark.skipif(
    affinity._current_processor() is None, reason="the system does not place threads"
)


@pytest.fixture
def usable() -> Iterator[set[int]]:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one processor")
    yield before
    os.sched_setaffinity(0, before)


@pytest.fixture
def thread() -> Iterator[threading.Thread]:
    end = threading.Event()
    started = threading.Thread(target=end.wait)
    started.start()
    yield started
    end.set()
    started.join()


def on(monkeypatch: pytest.MonkeyPatch, processor: int) -> None:
    monkeypatch.setattr(affinity, "_current_processor", lambda: lambda: processor)


def place(thread: threading.Thread) -> set[int]:
    assert thread.native_id is not None
    return os.sched_getaffinity(thread.native_id)


def test_the_current_processor_is_known(usable):
    os.sched_setaffinity(0, {max(usable)})
    current = affinity._current_processor()
    assert current is not None
    assert current() == max(usable)


def test_threads_leave_the_processor_of_the_caller(monkeypatch, usable, thread):
    affinities = WorkerAffinity()
    for processor in sorted(usable)[:2]:
        on(monkeypatch, processor)
        affinities.avoid_caller([thread])
        assert place(thread) == usable - {processor}
    assert os.sched_getaffinity(0) == usable, "the caller itself may run anywhere"


def test_affinity_is_set_once_while_the_caller_stays(monkeypatch, usable, thread):
    affinities = WorkerAffinity()
    on(monkeypatch, min(usable))
    affinities.avoid_caller([thread])
    os.sched_setaffinity(thread.native_id, usable)
    affinities.avoid_caller([thread])
    assert place(thread) == usable


def test_one_usable_processor_changes_nothing(monkeypatch, usable, thread):
    os.sched_setaffinity(0, {min(usable)})
    on(monkeypatch, min(usable))
    WorkerAffinity().avoid_caller([thread])
    assert place(thread) == usable


def test_more_threads_than_processors_change_nothing(monkeypatch, usable, thread):
    on(monkeypatch, min(usable))
    WorkerAffinity().avoid_caller([thread] * len(usable))
    assert place(thread) == usable


def test_a_thread_that_has_ended_is_ignored(monkeypatch, usable):
    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join()
    on(monkeypatch, min(usable))
    WorkerAffinity().avoid_caller([ended])


@pytest.mark.skipif(blas.loaded() is None, reason="the pool works with OpenBLAS only")
def test_a_pool_avoids_the_processor_of_the_caller_in_every_op(monkeypatch, usable):
    workers = Workers(2)
    for processor in sorted(usable)[:2]:
        on(monkeypatch, processor)
        workers.run(lambda _, __: None, 2)
        (thread,) = workers._threads
        assert place(thread) == usable - {processor}
    workers.close()
