"""Kernels are compiled in child processes, which end when nobody waits for them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.backends.cuda.driver import compile_children, compiler
from engine.backends.cuda.driver.compile_cache import Cache
from engine.backends.cuda.driver.compiler import Source

# A toolkit for the children that turns each text into its capitals, and fails on "bad".
CHILD = """
import sys, os; sys.path[:] = sys.argv[1:]
from engine.backends.cuda.driver import compile_children, compiler
from engine.errors import DeviceError
def compile_now(self):
    if self.text == "bad":
        raise DeviceError("no")
    if self.text == "end":
        os._exit(1)
    print("noise")
    return self.text.upper().encode()
compiler.Source.compile_now = compile_now
compile_children.serve()
"""


@pytest.fixture(autouse=True)
def children(monkeypatch, tmp_path):
    monkeypatch.setattr(compile_children, "_PROGRAM", CHILD)
    monkeypatch.setattr(compile_children, "_same_compiler", dict)
    monkeypatch.setattr(compile_children, "usable_cores", lambda: 3)
    tools = compiler.Toolkit(str(Path(__file__)))
    monkeypatch.setattr(compiler, "toolkit", lambda *_: tools)
    cache = Cache(tmp_path / "kernels")
    monkeypatch.setattr(compiler, "_cache", lambda: cache)
    return cache


def of(*texts):
    return [Source(text, (), (9, 0)) for text in texts]


def test_all_are_in_the_cache_and_those_that_fail_are_left_out():
    wanted = of("a", "bad", "b", "c")
    ready = compile_children.compile_all(wanted, 60)
    assert ready == set(of("a", "b", "c"))
    assert [each.image() for each in of("a", "b", "c")] == [b"A", b"B", b"C"]
    assert not of("bad")[0].is_compiled


def test_what_is_there_needs_no_child(monkeypatch):
    (source,) = of("a")
    source.keep(b"A")
    monkeypatch.setattr(compile_children, "_start", None)
    assert compile_children.compile_all([source], 60) == {source}


def test_a_child_that_dies_or_cannot_start_loses_only_its_own(monkeypatch):
    monkeypatch.setattr(compile_children, "usable_cores", lambda: 2)  # one child
    assert compile_children.compile_all(of("end"), 60) == set()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")  # read when a child is started
    assert compile_children.compile_all(of("b"), 60) == set()


def test_nobody_waits_longer_than_asked():
    start = time.monotonic()
    compile_children.compile_all(of("a"), 0)
    assert time.monotonic() - start < 5


def test_a_child_ends_with_its_input():
    child = compile_children._start()
    assert child.poll() is None
    child.stdin.close()
    assert child.wait(60) == 0
    child.stdout.close()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "nice"), reason="needs priorities of processes")
def test_children_have_a_low_priority():
    child = compile_children._start()
    child.stdin.write(b'["a", [], [9, 0], false]\n')
    child.stdin.flush()
    assert child.stdout.readline() == b"1\n"
    assert os.getpriority(os.PRIO_PROCESS, child.pid) > os.getpriority(os.PRIO_PROCESS, 0)
    child.stdin.close()
    assert child.wait(60) == 0
    child.stdout.close()


def test_the_program_of_the_children_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    child = compile_children._start()
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (0, b"")
    assert isinstance(child, subprocess.Popen)
