"""Fixtures that many tests share, and the two lanes: fast by default, everything with --all."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

# Threads of OpenBLAS that spin while they wait would take processors from the other workers. Child
# processes run as they do for users.
if "PYTEST_XDIST_WORKER" in os.environ:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        import numpy  # noqa: F401

from engine.backends import open_device
from engine.backends.base import Device
from engine.concurrency.cores import usable_cores
from tests.devices import open_or_skip

pytest_plugins = ["tests.dripping_server", "tests.small_models"]

# Algorithms must not change while a test runs on a card.
os.environ.setdefault("ENGINE_TUNE", "10")

# Set in many containers; every child process would compile the engine again.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.dont_write_bytecode = False

# A shell starts background processes with SIGINT ignored, and some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# ---------------------------------------------------------------- lanes

MOST_PROCESSES = 8  # for a run without -n, because each process collects all tests
MOST_CASES = 4  # of a parametrised test in the fast lane, evenly spread over its values


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the slow tests, too")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the number of processes
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run the whole suite on several processors if pytest-xdist is installed; -n 0 prevents it."""
    option = config.option
    is_worker = hasattr(config, "workerinput")
    is_whole = config.args_source is not pytest.Config.ArgsSource.ARGS
    is_watched = option.usepdb or option.capture == "no" or option.collectonly
    if is_worker or is_watched or not is_whole:
        return
    if getattr(option, "numprocesses", 0) is None:
        # Tests of servers and of processes wait, and most of those are slow ones.
        option.numprocesses = usable_cores() + (2 if option.all else 1)
        option.maxprocesses = option.maxprocesses or MOST_PROCESSES


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow tests and most cases of the others, except in files that are named."""
    if not _is_fast_lane(config):
        return
    named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not item.get_closest_marker("slow"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for each in cases.values() for item in each[:: -(-len(each) // MOST_CASES)]}
    left_out = [item for item in items if item not in kept and item.path not in named]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item in kept or item.path in named]


def pytest_collection_finish() -> None:
    """Keep thousands of collected tests out of every garbage collection that a test asks for."""
    gc.collect()
    gc.freeze()


def _is_fast_lane(config: pytest.Config) -> bool:
    """Return whether neither --all nor -m chooses the tests, and a whole folder is run."""
    names_folders = any(Path(argument).is_dir() for argument in config.args)
    return names_folders and not (config.option.all or config.option.markexpr)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each reason for skipping once, with the number of tests that it skips."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:5d}  {reason}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """End a run of the fast lane with how to run the rest."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and _is_fast_lane(session.config) and not session.config.option.collectonly:
        reporter.line(
            "Slow tests (real networks, Ray, a browser) and most cases of others did not run."
        )
        reporter.line("To run everything: python -m pytest --all")


# ---------------------------------------------------------------- devices


@pytest.fixture(
    scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)], ids=str
)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device of each kind; the test is skipped if this machine has none."""
    opened = open_or_skip(lambda: open_device(request.param))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def cpu() -> Iterator[Device]:
    """The reference: the CPU on one thread."""
    with closing(open_device("cpu:1")) as opened:
        yield opened
