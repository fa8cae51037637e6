"""Findings of fuzzing stay fixed, and each harness runs briefly."""

import time
from pathlib import Path
from random import Random

import pytest

from engine.errors import EngineError
from tests import needs
from tools.fuzz import __main__ as fuzzer
from tools.fuzz.harnesses import NAMES, check_input, harness, mutator_of
from tools.fuzz.oracle import check

CORPUS = Path(__file__).with_name("corpus")  # a folder for each harness, a file for each finding
FINDINGS = sorted(CORPUS.glob("*/*"))
CHANGED = 150  # inputs of each harness
FEWER = {"deep_networks": 2, "large_pictures": 10, "raw_http": 40, "videos": 40}  # costly ones


@pytest.fixture(autouse=True)
def silence(caplog):
    with caplog.at_level("CRITICAL", logger="engine"):
        yield


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_finding_stays_fixed(path):
    assert check_input(open_harness(path.parent.name), path.read_bytes()) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_mutated_seeds_are_accepted_or_refused(name):
    chosen = open_harness(name)
    change = mutator_of(chosen) or flip
    random = Random(0)
    seeds = sorted(chosen.seeds(), key=len)[:300]
    for _ in range(FEWER.get(name, CHANGED)):
        data = change(random.choice(seeds), random)
        found = check_input(chosen, data)
        assert found is None, f"{found.text}\n{data[:2000]!r}"


@pytest.mark.slow
def test_deep_networks_are_built():
    chosen = harness("deep_networks")
    assert all(chosen.plan_of(seed, layers=40) for seed in chosen.seeds())
    random = Random(0)
    changed = [chosen.mutate(random.choice([*chosen.seeds()]), random) for _ in range(20)]
    assert len([data for data in changed if is_built(chosen, data)]) >= 10


def is_built(chosen, data):
    try:
        return chosen.plan_of(data, layers=40) is not None
    except EngineError:
        return False


@pytest.mark.slow
def test_harness_detects_violations():
    assert check(work_too_long, b"").kind == "slow"
    assert check(lambda data: bytearray(1 << 30), b"").kind == "MemoryError"
    assert check(lambda data: 1 // len(data), b"").kind == "ZeroDivisionError"
    assert check(refuse_in_two_lines, b"").kind == "message"


def work_too_long(data):
    start = time.process_time()
    while time.process_time() - start < 1.1:
        pass


def refuse_in_two_lines(data):
    raise EngineError("one\ntwo")


def open_harness(name):
    if name in ("http_requests", "raw_http"):
        needs.package("starlette")
    if name == "videos":
        needs.package("av")
    return harness(name)


def flip(data, random):
    changed = bytearray(data)
    for _ in range(random.choice((1, 3, 9)) if data else 0):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(
        changed[: random.randrange(len(changed) + 1)] if random.random() < 0.2 else changed
    )


def test_a_harness_that_does_not_start_is_told_of(tmp_path, capsys):
    fuzzer._run_harness(tmp_path, "no_such_harness", 1)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("no_such_harness: ran no input: ")
    assert line.endswith(f". See {tmp_path}/last-no_such_harness.txt")
