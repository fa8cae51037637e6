"""The thread of a device: whose functions it runs, in which order, and until when."""

import os
import signal
import threading
import time
import weakref
from contextlib import suppress

import pytest

from engine.backends.cuda.driver import worker as worker_module
from engine.backends.cuda.driver.worker import Worker
from engine.errors import DeviceError


@pytest.fixture
def worker():
    made = Worker("cuda:0")
    yield made
    made.close(lambda: None)


def test_functions_run_on_one_thread_that_is_not_the_callers(worker):
    threads = {worker.run(threading.get_ident) for _ in range(3)}
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_what_a_function_raises_is_raised_to_its_caller(worker):
    with pytest.raises(ZeroDivisionError):
        worker.run(lambda: 1 / 0)
    assert worker.run(lambda: 3) == 3


def test_a_function_may_hand_over_another_without_waiting_for_itself(worker):
    assert worker.run(lambda: worker.run(lambda: 5)) == 5


def test_every_caller_gets_its_own_answer(worker):
    answers = {}

    def ask(number):
        answers[number] = [worker.run(lambda: number) for _ in range(50)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: [number] * 50 for number in range(8)}


def interrupt_soon():
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()


def test_what_an_interrupted_caller_gave_up_is_never_done(worker):
    is_free, done = threading.Event(), []
    worker.post(is_free.wait)
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        worker.run(lambda: done.append("late"))
    is_free.set()
    assert worker.run(lambda: 3) == 3
    assert not done


def test_an_interrupted_caller_waits_for_what_has_begun(worker):
    done = []
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        worker.run(lambda: (time.sleep(0.6), done.append("whole")))
    assert done == ["whole"]


def test_who_interrupts_twice_does_not_wait(worker):
    is_free = threading.Event()
    interrupt_soon()
    threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        worker.run(is_free.wait)
    is_free.set()
    assert worker.run(lambda: 3) == 3


def test_what_an_interrupted_caller_does_not_get_is_undone_on_the_thread(worker):
    undone = []
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        worker.run(
            lambda: (time.sleep(0.6), "block")[1],
            lambda made: undone.append((made, threading.get_ident())),
        )
    assert worker.run(threading.get_ident) == undone[0][1]
    assert undone[0][0] == "block"
    with pytest.raises(ZeroDivisionError):
        worker.run(lambda: 1 / 0, undone.append)
    assert worker.run(lambda: 3, undone.append) == 3
    assert len(undone) == 1


def test_a_process_without_threads_left_gets_one_line(monkeypatch):
    def fail():
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(worker_module.thread_cache, "take", fail)
    with pytest.raises(DeviceError, match="cuda:0: no more threads can be started"):
        Worker("cuda:0")


def test_posted_functions_run_before_the_thread_ends():
    worker = Worker("cuda:0")
    done = []
    worker.post(lambda: done.append("posted"))
    worker.close(lambda: done.append("last"))
    assert done == ["posted", "last"]


def test_a_closed_worker_says_so_and_closes_once():
    worker = Worker("cuda:0")
    worker.close(lambda: None)
    worker.close(lambda: pytest.fail("closed twice"))
    with pytest.raises(DeviceError, match="cuda:0: the device is closed"):
        worker.run(lambda: None)


def test_a_forked_child_is_refused_instead_of_waiting_for_ever(worker, monkeypatch):
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(DeviceError, match=r"cuda:0: opened before a fork.*spawn"):
        worker.run(lambda: None)
    worker.close(lambda: pytest.fail("the parent's thread is not the child's to end"))
    monkeypatch.undo()
    assert worker.run(lambda: 1) == 1


def test_what_is_posted_to_a_closed_worker_is_dropped(worker):
    class Held:
        def __call__(self):
            pytest.fail("ran")

    held = Held()
    watch = weakref.ref(held)
    worker.close(lambda: None)
    worker.post(held)
    del held
    assert watch() is None


def test_a_thread_is_kept_for_the_next_device():
    first = Worker("cuda:0")
    thread = first.run(threading.get_ident)
    first.close(lambda: None)
    second = Worker("cuda:1")
    assert second.run(threading.get_ident) == thread
    assert second.run(threading.current_thread).name == "cuda:1"
    third = Worker("cuda:0")
    assert third.run(threading.get_ident) != thread
    for each in (second, third):
        each.close(lambda: None)


def test_what_was_posted_late_is_not_run_for_the_next_device():
    first = Worker("cuda:0")
    calls = first._calls
    first.close(lambda: None)
    second = Worker("cuda:0")
    calls.put(worker_module._Call(lambda: pytest.fail("ran")))
    assert second.run(lambda: 7) == 7
    second.close(lambda: None)
    assert calls.qsize() == 1


def test_a_finalizer_on_its_own_thread_may_close_it():
    worker = Worker("cuda:0")
    done = []
    worker.run(lambda: worker.close(lambda: done.append("last")))
    assert done == ["last"]
    with pytest.raises(DeviceError, match="closed"):
        worker.run(lambda: None)


def test_a_thread_that_something_may_be_left_on_is_not_kept():
    def fail():
        raise DeviceError("lost")

    for last, options in ((fail, {}), (lambda: None, {"is_clean": False})):
        worker = Worker("cuda:0")
        thread = worker.run(threading.current_thread)
        with suppress(DeviceError):
            worker.close(last, **options)
        thread.join(5)
        assert not thread.is_alive()


def test_threads_of_a_process_that_forked_are_not_the_childs(monkeypatch):
    worker = Worker("cuda:0")
    thread = worker.run(threading.get_ident)
    worker.close(lambda: None)
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    child = Worker("cuda:0")
    assert child.run(threading.get_ident) != thread
    child.close(lambda: None)
