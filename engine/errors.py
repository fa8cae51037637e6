"""The exceptions of the engine.

    EngineError
    ├── ConfigError    ValueError     a .cfg, .names, .data or .tree that cannot be used
    ├── WeightsError   ValueError     a .weights file that does not fit its .cfg
    ├── ImageError     ValueError     a picture that cannot be read
    ├── InputError     ValueError     an argument of the Python API or the command line
    ├── DeviceError    RuntimeError   a device that is missing, out of memory or lost
    └── DownloadError  OSError        weights that cannot be downloaded or fail verification

Messages have one shape: where: what: expected, got. Hint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])


class EngineError(Exception):
    """The base of every error that the engine raises on purpose.

    Examples:
        >>> try:
        ...     engine.load("missing.cfg", "my.weights")
        ... except engine.EngineError as error:
        ...     print(error)
        missing.cfg: cannot be read: No such file or directory
    """

    exit_code = 1


class ConfigError(EngineError, ValueError):
    """A .cfg, .names, .data or .tree file that cannot be used.

    Examples:
        >>> engine.load("missing.cfg", "my.weights")
        Traceback (most recent call last):
        engine.errors.ConfigError: missing.cfg: cannot be read: No such file or directory
    """

    exit_code = 3


class WeightsError(EngineError, ValueError):
    """A .weights file that is damaged or belongs to another .cfg.

    Examples:
        >>> engine.load("my.cfg", "classifier.weights")
        Traceback (most recent call last):
        engine.errors.WeightsError: classifier.weights: ... Is it for another .cfg?
    """

    exit_code = 3


class ImageError(EngineError, ValueError):
    """A picture that cannot be read, or that has no result because the network overflows.

    Examples:
        >>> engine.load()(b"Hello")
        Traceback (most recent call last):
        engine.errors.ImageError: picture: expected ...
    """

    result: Any = None
    """The result without boxes or classes of a picture that was read, if its scores are not finite.

    The probabilities of a classifier are all zero then.
    """

    def __init__(self, problem: str = "") -> None:
        """Create the error; avoid repeating "picture", the name of a picture without a path."""
        is_twice = problem.startswith("picture: picture: ")
        super().__init__(problem.removeprefix("picture: ") if is_twice else problem)


class InputError(EngineError, ValueError):
    """An invalid argument.

    Examples:
        >>> engine.load(threshold=50)
        Traceback (most recent call last):
        engine.errors.InputError: threshold: expected ... Did you mean 0.5?
    """

    exit_code = 2


class DeviceError(EngineError, RuntimeError):
    """A device that is missing, out of memory or lost.

    Examples:
        >>> engine.load(device="cuda:99")
        Traceback (most recent call last):
        engine.errors.DeviceError: cuda...
    """

    exit_code = 4


class DownloadError(EngineError, OSError):
    """Weights that cannot be downloaded or fail verification.

    Examples:
        >>> os.environ["ENGINE_OFFLINE"] = "1"
        >>> engine.load("yolov4-tiny")
        Traceback (most recent call last):
        engine.errors.DownloadError: ... does not exist, and ENGINE_OFFLINE forbids downloads
    """

    exit_code = 3


@contextmanager
def translate_thread_errors(where: str) -> Iterator[None]:
    """Raise a DeviceError if a thread cannot be started; Python has no error class for that."""
    try:
        yield
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        raise DeviceError(f"{where}: no more threads can be started. Use fewer at once") from None


class within_memory:  # noqa: N801  used like a function; a class is faster to enter
    """Turn a MemoryError inside a block or a function into a DeviceError of one line."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __call__(self, function: _Function) -> _Function:
        @wraps(function)
        def guarded(*given: Any, **named: Any) -> Any:
            try:
                return function(*given, **named)
            except MemoryError as error:
                raise self._translated(error) from None

        return cast("_Function", guarded)

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, MemoryError):
            raise self._translated(error) from None

    def _translated(self, error: MemoryError) -> DeviceError:
        asked = f": {error}" if str(error) else ""
        return DeviceError(
            f"{self._where}: out of memory{asked}. Try a smaller batch or input size"
        )


def suggest(word: object, known: Iterable[str], *, least: float = 0.6) -> str:
    """Return " Did you mean 'x'?" for the known word nearest to `word`, or nothing.

    `least` is the required similarity from 0 to 1; leading dashes are ignored.
    """
    from difflib import get_close_matches  # slow to import, and needed only for errors

    names = {each.lstrip("-"): each for each in known}
    near = get_close_matches(str(word).lstrip("-"), list(names), n=1, cutoff=least)
    return f" Did you mean {names[near[0]]!r}?" if near else ""
