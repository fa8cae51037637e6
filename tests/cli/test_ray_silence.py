"""A run on Ray says so once if no results come."""

import threading
import time
from queue import Queue

from engine.cli._ray_silence import Silence


def test_a_silence_is_told_once():
    said = Queue()
    with Silence(said.put, least=0.05) as silence:
        assert said.get(timeout=10).startswith("no results for 0 s. If workers hang, Ctrl-C ends")
        time.sleep(0.3)
        assert said.empty()
        silence.end()
        assert said.get(timeout=10)


def test_results_that_have_taken_long_before_are_waited_for():
    said = Queue()
    with Silence(said.put, least=0.4) as silence:
        time.sleep(0.2)
        silence.end()
        time.sleep(0.6)  # less than five times as long
    assert said.empty()


def test_its_thread_ends_with_the_run():
    with Silence(print):
        pass
    threads = [each for each in threading.enumerate() if each.name == "engine-silence"]
    for each in threads:
        each.join(timeout=10)
        assert not each.is_alive()
