"""Budgets of bytes: large users never take the share of small ones, and wait in order."""

import threading
import time

import pytest

from engine.serve.memory_budget import BodyMemory, BudgetClosedError, PictureMemory


class Waiter(threading.Thread):
    """Reserves in a thread of its own."""

    def __init__(self, memory, count):
        super().__init__(daemon=True)
        self._memory, self._count = memory, count
        self.got = self.error = None
        self.start()

    def run(self):
        try:
            self.got = self._memory.reserve(self._count)
        except BudgetClosedError as error:
            self.error = error

    def is_done(self, seconds):
        self.join(seconds)
        return not self.is_alive()


def wait_for_turn(memory, count):
    end = time.monotonic() + 10
    while memory._next_large != count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_large_bodies_leave_room_for_a_small_one_of_each_request():
    memory = BodyMemory(1000, requests=10)
    assert memory.try_reserve("a", 500)
    assert memory.try_reserve("b", 250)
    assert not memory.try_reserve("c", 26)
    assert all(memory.try_reserve("a", 25) for _ in range(10))
    assert not memory.try_reserve("c", 1)
    memory.release("a", 750)
    memory.release("b", 250)
    assert memory.held == 0


def test_large_bodies_of_one_address_leave_room_for_one_of_another():
    memory = BodyMemory(1000, requests=10)
    assert memory.try_reserve("a", 300)
    assert not memory.try_reserve("a", 201)
    assert memory.try_reserve("a", 200)
    assert not memory.try_reserve("a", 1, 300)
    assert all(memory.try_reserve("a", 25) for _ in range(5))  # small bodies still fit
    assert memory.try_reserve("b", 125)


def test_a_small_body_that_grows_becomes_a_large_one():
    memory = BodyMemory(1000, requests=10)
    assert memory.try_reserve("a", 480)
    assert memory.try_reserve("a", 25)
    assert not memory.try_reserve("a", 1, 25)


def test_small_pictures_do_not_wait_for_large_ones():
    memory = PictureMemory(800)
    large = memory.reserve(700)
    waiting = Waiter(memory, 600)
    wait_for_turn(memory, 600)
    small = [memory.reserve(50) for _ in range(2)]
    third = Waiter(memory, 50)
    assert not third.is_done(0.05)
    assert not waiting.is_done(0)
    large.release()
    assert waiting.is_done(10)
    assert third.is_done(10)
    assert memory.held == 600 + 3 * 50
    assert len(small) == 2


def test_small_pictures_make_way_for_a_large_one_beyond_their_share():
    memory = PictureMemory(800)
    held = [memory.reserve(50) for _ in range(16)]
    waiting = Waiter(memory, 700)
    wait_for_turn(memory, 700)
    for each in held[:14]:
        each.release()
        assert not held[-1].try_resize(100) or waiting.got
    assert waiting.is_done(10)


def test_a_reservation_shrinks_and_grows_within_its_kind():
    memory = PictureMemory(800)
    small = memory.reserve(20)
    assert small.try_resize(50)
    assert not small.try_resize(51)  # is large
    assert small.try_resize(10)
    assert memory.held == 10
    large = memory.reserve(600)
    assert large.try_resize(30)
    assert memory.reserve(670).count == 670  # the share of small pictures is not used by it
    small.release()
    small.release()
    assert memory.held == 700


def test_the_input_of_a_large_network_counts_towards_the_share():
    assert not PictureMemory(800).is_small(150)
    assert PictureMemory(800, input_bytes=75).is_small(150)
    assert PictureMemory(800, input_bytes=10**6).largest == 400


def test_closing_ends_all_waiting():
    memory = PictureMemory(800)
    memory.reserve(700)
    waiting = [Waiter(memory, 600) for _ in range(3)]
    wait_for_turn(memory, 600)
    memory.close()
    assert all(each.is_done(10) and each.error for each in waiting)
    with pytest.raises(BudgetClosedError):
        memory.reserve(1)
