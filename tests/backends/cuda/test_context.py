"""Opening and closing a device: its primary context never stays on the thread's stack."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from engine.backends.cuda.driver import context as context_module
from engine.backends.cuda.driver.context import Card, Context
from engine.errors import DeviceError


class Primary:
    """A primary context, which must be popped on the thread that pushed it."""

    handle = 1

    def __init__(self) -> None:
        self.pushed_on: threading.Thread | None = None
        self.detached = 0

    def push(self) -> None:
        self.pushed_on = threading.current_thread()

    def detach(self) -> None:
        assert threading.current_thread() is self.pushed_on
        self.detached += 1


class Driver:
    """The parts of pycuda.driver that opening uses; `trouble` runs when a stream is made."""

    def __init__(self, trouble: Callable[[], object] = lambda: None) -> None:
        self.primary = Primary()
        self.trouble = trouble
        self.is_lost = False

    def Device(self, index: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(retain_primary_context=lambda: self.primary)

    def Stream(self, flags: int) -> SimpleNamespace:  # noqa: N802
        self.trouble()
        return SimpleNamespace(handle=1, synchronize=self._synchronize)

    def _synchronize(self) -> None:
        if self.is_lost:
            raise RuntimeError("lost")


@contextmanager
def translated(name: str) -> Any:
    try:
        yield
    except RuntimeError as error:
        raise DeviceError(f"{name}: {error}") from None


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    loader = SimpleNamespace(
        load=lambda: made,
        count=lambda: 1,
        check_version=lambda version: None,
        translate_errors=translated,
        primary_context=lambda index: nullcontext(),
    )
    monkeypatch.setattr(context_module, "pycuda_loader", loader)
    monkeypatch.setattr(context_module.cublas, "named_version", lambda: "13.0")
    monkeypatch.setattr(context_module, "_describe", lambda *_: Card("host", (9, 0), 132, 1 << 40))
    monkeypatch.setattr(context_module, "DriverApi", lambda *_: SimpleNamespace())
    return made


def test_closing_releases_the_primary_context(driver: Driver) -> None:
    context = Context("cuda:0", 0)
    assert driver.primary.pushed_on is not None
    context.close()
    context.close()
    assert driver.primary.detached == 1


def test_a_device_that_opens_by_half_leaves_nothing_behind(driver: Driver) -> None:
    def fail() -> None:
        raise RuntimeError("out of streams")

    driver.trouble = fail
    with pytest.raises(DeviceError, match="cuda:0: out of streams"):
        Context("cuda:0", 0)
    assert driver.primary.detached == 1


def test_an_interrupt_while_a_device_opens_leaves_nothing_behind(driver: Driver) -> None:
    driver.trouble = lambda: time.sleep(0.3)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        Context("cuda:0", 0)
    assert driver.primary.detached == 1


def test_a_lost_card_is_released_and_said(driver: Driver) -> None:
    context = Context("cuda:0", 0)
    closed: list[str] = []
    context._kernels["float32"] = SimpleNamespace(close=lambda: closed.append("kernels"))  # type: ignore[assignment]
    driver.is_lost = True
    with pytest.raises(DeviceError, match="cuda:0: lost"):
        context.close()
    assert closed == ["kernels"]
    assert driver.primary.detached == 1
    context.close()
    assert driver.primary.detached == 1
