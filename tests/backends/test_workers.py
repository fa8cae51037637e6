"""The thread pool of the CPU backend, and its control of the BLAS's threads."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from engine.backends.cpu import blas
from engine.backends.cpu.workers import THREADS_VARIABLE, Workers, thread_count
from engine.errors import InputError

needs_pool = pytest.mark.skipif(blas.loaded() is None, reason="the pool works with OpenBLAS only")


@pytest.fixture
def three():
    workers = Workers(3)
    yield workers
    workers.close()


def pool_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("engine-")]


@pytest.mark.parametrize("pieces", [0, 1, 2, 3, 100])
def test_every_piece_runs_once(three, pieces):
    done = []
    three.run(lambda _, piece: done.append(piece), pieces)
    assert sorted(done) == list(range(pieces))


@needs_pool
def test_pieces_run_at_the_same_time(three):
    barrier = threading.Barrier(3, timeout=20)
    seen = set()

    def meet(worker: int, _: int) -> None:
        seen.add(worker)
        barrier.wait()

    three.run(meet, 3)
    assert seen == {0, 1, 2}


@needs_pool
def test_a_worker_runs_one_piece_at_a_time(three):
    busy, clashes = set(), []

    def work(worker: int, _: int) -> None:
        if worker in busy:
            clashes.append(worker)
        busy.add(worker)
        time.sleep(0.001)
        busy.discard(worker)

    three.run(work, 30)
    assert not clashes


@pytest.mark.parametrize("bad", [0, 5, 19])
def test_an_error_is_raised_in_the_caller_and_the_pool_keeps_working(three, bad):
    def fail(_: int, piece: int) -> None:
        if piece == bad:
            raise ValueError("this piece")

    with pytest.raises(ValueError, match="this piece"):
        three.run(fail, 20)
    done = []
    three.run(lambda _, piece: done.append(piece), 20)
    assert len(done) == 20


def test_threads_start_when_needed_and_end_with_close():
    workers = Workers(2)
    before = len(pool_threads())
    workers.run(lambda _, __: None, 1)
    assert len(pool_threads()) == before, "one piece needs no other thread"
    workers.run(lambda _, __: None, 2)
    assert len(pool_threads()) == before + workers.count - 1
    workers.close()
    assert len(pool_threads()) == before
    workers.close()


@needs_pool
def test_threads_end_when_their_owner_is_deleted():
    workers = Workers(3)

    def task(_: int, __: int, carve=workers.carve) -> None:
        """Keep a reference to the workers, as tasks of ops do."""

    workers.run(task, 6)
    started = list(workers._threads)
    del workers, task
    gc.collect()
    for thread in started:
        thread.join(20)
    assert not any(thread.is_alive() for thread in started)


def test_numpy_does_not_warn_on_other_threads(three):
    def divide(_: int, __: int) -> None:
        np.divide(np.ones(4), np.zeros(4))

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        three.run(divide, 30)


@needs_pool
def test_an_idle_pool_lets_the_interpreter_end():
    code = (
        "from engine.backends.cpu.workers import Workers\n"
        "workers = Workers(4)\n"
        "workers.run(lambda worker, piece: None, 8)\n"
        "print('end')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert ended.stdout == "end\n"
    assert ended.stderr == ""


@needs_pool
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_the_pool_works_in_a_forked_child():
    code = (
        "import os, threading\n"
        "from engine.backends.cpu.workers import Workers\n"
        "workers = Workers(2)\n"
        "workers.run(lambda worker, piece: None, 2)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    barrier = threading.Barrier(2, timeout=20)\n"
        "    workers.run(lambda worker, piece: barrier.wait(), 2)\n"
        "    thread = workers._threads[0]\n"
        "    del workers\n"
        "    thread.join(20)\n"
        "    os._exit(1 if thread.is_alive() else 7)\n"
        "workers.close()\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "7\n"


# ---------------------------------------------------------------- scratch memory


def test_ops_share_scratch_and_workers_do_not(three):
    three.reserve(400, 40)
    three.reserve(1000)
    first, second = three.carve(0, np.float32, (10, 10), (10,))
    assert not np.shares_memory(first, second)
    assert np.shares_memory(first, three.carve(0, np.float32, (250,))[0])
    if three.count > 1:
        assert not np.shares_memory(first, three.carve(1, np.float32, (10, 10))[0])
    assert three.workspace_bytes >= three.count * 1000


def test_scratch_begins_at_cache_lines(three):
    three.reserve(4 * 7, 4 * 9, 4 * 11)
    for array in three.carve(0, np.float32, (7,), (9,), (11,)):
        assert array.ctypes.data % 64 == 0


def test_shared_scratch_is_separate_for_each_name(three):
    three.reserve_shared("columns", 80)
    three.reserve_shared("grid", 80)
    (columns,) = three.carve_shared("columns", np.float64, (10,))
    (grid,) = three.carve_shared("grid", np.float64, (10,))
    assert not np.shares_memory(columns, grid)
    assert np.shares_memory(columns, three.carve_shared("columns", np.float64, (5,))[0])


def test_arrays_are_valid_after_a_larger_reservation(three):
    three.reserve(80)
    (early,) = three.carve(0, np.float64, (10,))
    early.fill(3)
    three.reserve(8000)
    three.carve(0, np.float64, (1000,))[0].fill(4)
    assert np.all(early == 3)


# ---------------------------------------------------------------- numbers of threads


def test_the_variable_sets_the_number_of_threads(monkeypatch):
    monkeypatch.setenv(THREADS_VARIABLE, "3")
    assert thread_count() == 3


@pytest.mark.parametrize("text", ["", "  "])
def test_by_default_every_usable_processor_is_used(monkeypatch, text):
    monkeypatch.setenv(THREADS_VARIABLE, text)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert thread_count() == usable


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "٣"])
def test_a_wrong_number_of_threads_is_an_error(monkeypatch, text):
    monkeypatch.setenv(THREADS_VARIABLE, text)
    with pytest.raises(InputError, match=f"{THREADS_VARIABLE}: expected a number of threads"):
        thread_count()


@needs_pool
def test_the_blas_uses_one_thread_until_it_is_released():
    library = blas.loaded()
    before = library._get()
    library._put(2)
    set_to = library._get()  # 1 if the library allows no more
    try:
        with Workers(2).serial_blas():
            assert library._get() == 1
            with Workers(1).serial_blas():
                assert library._get() == 1
            assert library._get() == 1
        assert library._get() == set_to
        with pytest.raises(KeyError), Workers(1).serial_blas():
            raise KeyError
        assert library._get() == set_to
    finally:
        library._put(before)


@pytest.mark.slow
@needs_pool
@pytest.mark.parametrize("asked", ["Nehalem", None])
def test_the_kernels_and_the_variable_that_selects_them_are_described(asked):
    """Test a library with several kernels, which reads the variable when it is loaded."""
    others = {name: value for name, value in os.environ.items() if name != blas.KERNELS_VARIABLE}
    told = subprocess.run(
        [sys.executable, "-c", "from engine.backends.cpu import blas; print(blas.describe())"],
        env=others if asked is None else others | {blas.KERNELS_VARIABLE: asked},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.rstrip()
    assert told.startswith("OpenBLAS with kernels for ")
    assert told.endswith(f", as OPENBLAS_CORETYPE={asked} asks for") == bool(asked)


@pytest.mark.parametrize(("kernels", "products"), [("SkylakeX", 100**3), ("Haswell", 0)])
def test_kernels_for_avx_512_need_no_packing_for_small_matrices(monkeypatch, kernels, products):
    monkeypatch.setattr(blas, "_found", [SimpleNamespace(kernels=kernels)])
    assert blas.unpacked_products() == products


def test_another_blas_runs_without_the_pool(monkeypatch):
    monkeypatch.setattr(blas, "_found", [None])
    assert blas.describe() == "no OpenBLAS, so the CPU backend has one thread"
    assert blas.unpacked_products() == 0
    workers = Workers(4)
    assert workers.count == 1
    with workers.serial_blas():
        done = []
        workers.run(lambda worker, piece: done.append((worker, piece)), 2)
    assert done == [(0, 0), (0, 1)]
