"""Thread pools: order of work, number of threads, shutdown."""

import gc
import math
import os
import threading
import time
import weakref
from contextlib import closing

import pytest

from engine.concurrency import thread_cache
from engine.concurrency.thread_pool import ThreadPool
from engine.errors import DeviceError, EngineError
from tests.faults.child import run


def names_of(pool):
    return {each.name for each in threading.enumerate() if each.name.startswith(pool)}


def test_close_finishes_submitted_work_in_order():
    done = []
    with closing(ThreadPool(1, "one")) as threads:
        for number in range(20):
            threads.submit(done.append, number)
    assert done == list(range(20))
    assert names_of("one") == set()


def test_threads_start_on_demand_up_to_the_limit():
    together = threading.Barrier(3, timeout=5)
    with closing(ThreadPool(3, "many")) as threads:
        assert names_of("many") == set()
        for made in [threads.submit(together.wait) for _ in range(6)]:
            made.result()
        assert names_of("many") == {"many_0", "many_1", "many_2"}


def test_failure_is_raised_by_result_and_the_thread_continues():
    with closing(ThreadPool(1, "fails")) as threads:
        broken, whole = threads.submit(int, "x"), threads.submit(int, "7")
        with pytest.raises(ValueError, match="invalid literal"):
            broken.result()
        assert whole.result() == 7


def test_closed_pool_refuses_work():
    threads = ThreadPool(1, "shut")
    threads.close()
    threads.close()
    with pytest.raises(EngineError, match="shut: is closed"):
        threads.submit(print)


def test_thread_start_failure_names_the_pool(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(thread_cache, "_idle", [])
    monkeypatch.setattr(threading.Thread, "start", start)
    told = pytest.raises(DeviceError, match=r"^stream: no more threads can be started")
    with closing(ThreadPool(2, "stream-read")) as threads, told:
        threads.submit(print)


def test_unreferenced_pool_releases_its_threads():
    threads = ThreadPool(1, "left")
    threads.submit(time.monotonic).result()
    (over,) = threads._finished
    assert names_of("left") == {"left_0"}
    del threads
    gc.collect()
    assert over.wait(5)
    assert names_of("left") == set()


def test_next_pool_reuses_the_threads():
    seen = []
    for name in ("first", "second"):
        together = threading.Barrier(3, timeout=5)
        with closing(ThreadPool(3, name)) as threads:
            made = [threads.submit(ident_beside, together) for _ in range(3)]
            seen.append({each.result() for each in made})
    assert len(seen[0]) == 3
    assert seen[1] == seen[0]


def ident_beside(others):
    others.wait()
    return threading.get_ident()


def test_number_of_idle_threads_is_bounded(monkeypatch):
    monkeypatch.setattr(thread_cache, "_idle", [])
    monkeypatch.setattr(thread_cache, "_MOST_IDLE", 2)
    before = set(threading.enumerate())
    together = threading.Barrier(5, timeout=5)
    with closing(ThreadPool(5, "many")) as threads:
        for made in [threads.submit(together.wait) for _ in range(5)]:
            made.result()
    kept = {each.thread for each in thread_cache._idle}
    assert len(kept) == 2
    for each in set(threading.enumerate()) - before - kept:
        each.join(5)
        assert not each.is_alive()
    for hand in thread_cache._idle:
        hand.end()


def test_forked_child_does_not_wait_for_the_parents_threads(monkeypatch):
    with closing(ThreadPool(1, "parent")) as threads:
        is_free = threading.Event()
        threads.submit(is_free.wait)
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            threads.wait(math.inf)
        is_free.set()


def test_idle_thread_keeps_no_objects_alive():
    class Thing:
        pass

    released = threading.Event()
    with closing(ThreadPool(1, "idle")) as threads:
        thing = Thing()
        weakref.finalize(thing, released.set)
        threads.submit(id, thing).result()
        del thing
        assert released.wait(5)


BEGIN = """
import atexit, os, sys, threading, time
from engine.concurrency.thread_pool import ThreadPool
threads = ThreadPool(2, "x")
"""

ENDS = {
    "work that is under way is finished first": (
        "threads.submit(lambda: (time.sleep(0.3), print('done', flush=True)))",
        "done\n",
    ),
    "another thread may begin work when the main one is gone": (
        """
def late():
    threading.main_thread().join()
    print(ThreadPool(2, "y").submit(int, "5").result(), threads.submit(int, "6").result())
threading.Thread(target=late).start()
""",
        "5 6\n",
    ),
    "a daemon that goes on submitting is not heard of": (
        """
def endless():
    while True:
        threads.submit(int, "1").result()
threading.Thread(target=endless, daemon=True).start()
time.sleep(0.1)
""",
        "",
    ),
    "what the main thread submits too late is refused": (
        """
def late():
    try:
        threads.submit(print, "never")
    except Exception as error:
        print(error)
atexit._clear()
atexit.register(late)
import engine.concurrency.thread_pool
atexit.register(engine.concurrency.thread_pool._end)
""",
        "x: is closed\n",
    ),
    "a forked child ends too": (
        """
import warnings
warnings.simplefilter("ignore")  # of newer Pythons, that a child has one thread
threads.submit(int, "1").result()
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    print("both", flush=True)
""",
        "both\n",
    ),
}


@pytest.mark.parametrize("kind", ENDS)
def test_interpreter_exits(kind):
    if "fork" in kind and not hasattr(os, "fork"):
        pytest.skip("needs fork")
    program, said = ENDS[kind]
    end = run(BEGIN + program)
    assert (end.status, end.out, end.err) == (0, said, "")


@pytest.mark.slow
def test_interpreter_exit_waits_a_bounded_time():
    start = time.monotonic()
    end = run(BEGIN + "threads.submit(threading.Event().wait); time.sleep(0.2)")
    assert (end.status, end.out, end.err) == (0, "", "")
    assert 4 < time.monotonic() - start < 60
