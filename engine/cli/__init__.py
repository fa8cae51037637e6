"""The command line: each module in this folder is a command, except those whose names begin with _.

A command module has a docstring (its help), `add_arguments(parser)` and `run(arguments) -> status`.
It imports modules that load NumPy inside `run`, so that --help answers at once.

Exit status: 0 success, 1 some inputs failed, 2 usage, 3 model unreadable, 4 no device,
130 interrupted, 143 terminated. Errors are caught here and nowhere else.
"""

from __future__ import annotations

import argparse
import io
import os
import pkgutil
import sys
import warnings
from collections.abc import Collection, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn, TextIO

from engine.cli._darknet import options as darknet_options
from engine.cli._interrupts import Terminated, interruptible
from engine.cli._stderr import print_stderr, redirect_to_null
from engine.errors import EngineError, InputError, suggest, within_memory
from engine.version import __version__

FAILED = 1
USAGE = 2
INTERRUPTED, TERMINATED = 130, 143
CLOSED_PIPE = 141  # the status that a shell reports after SIGPIPE
_MAX_MESSAGE = 300  # characters of a message about an option
_ALIKE = 0.7  # high, because with many options more words are alike by chance


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    sys.stdout = sys.stdout or _null_stream()  # None if it was closed
    sys.stderr = sys.stderr or _null_stream()
    for stream in (sys.stdout, sys.stderr):
        # a label that the terminal cannot encode is not an error
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # NumPy warns about overflow with extreme weights; NaN results are reported anyway.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"engine\.|numpy\.")
    try:
        with interruptible(), within_memory("this run"):
            status = _dispatch(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
    except EngineError as error:
        print_stderr(f"Error: {error}")
        return error.exit_code
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
        return CLOSED_PIPE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else _missing_folder()
        print_stderr(f"Error: {where}{error.strerror or error}")
        return FAILED
    except KeyboardInterrupt as interrupt:
        return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED
    return status


def _missing_folder() -> str:
    """Return the subject of an OS error about a removed working folder, or ""."""
    try:
        os.getcwd()  # noqa: PTH109  pathlib is not needed for --help
    except OSError:
        return "the working folder: "
    return ""


def _null_stream() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


class Parser(argparse.ArgumentParser):
    """A parser that raises InputError instead of exiting and suggests options for misspelt ones."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.register("type", None, _not_empty)  # the default type

    def error(self, message: str) -> NoReturn:
        from engine.files.naming import without_logins  # has pathlib, not needed for --help

        message = without_logins(message)  # before truncation, which may cut off the @
        if len(message) > _MAX_MESSAGE:
            message = f"{message[:_MAX_MESSAGE]}…"
        raise InputError(f"{message}. See: {self.prog} --help")

    @property
    def actions(self) -> list[argparse.Action]:
        """Return all options and arguments."""
        return self._actions

    @property
    def spellings(self) -> Collection[str]:
        """Return the names of all options."""
        return self._option_string_actions

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        argv = _without_dashes(argv)
        argv = darknet_options.respelled(argv, self._option_string_actions)
        darknet_options.refuse(argv, self._option_string_actions)
        arguments, unknown = self.parse_known_intermixed_args(argv)
        if unknown:
            name = unknown[0].partition("=")[0]
            hint = suggest(name, self._option_string_actions, least=_ALIKE)
            raise InputError(f"unknown option {unknown[0]!r}.{hint} See: {self.prog} --help")
        return arguments


def _not_empty(text: str) -> str:
    """Refuse an empty argument: an unset shell variable must not mean that no file was named."""
    if not text:
        raise argparse.ArgumentTypeError("expected a name, got an empty one")
    return text


def _without_dashes(argv: Sequence[str]) -> list[str]:
    """Prefix ./ to file names after `--` that begin with a dash and would be taken for options."""
    if "--" not in argv:
        return list(argv)
    end = list(argv).index("--")
    files = (f"./{each}" if each.startswith("-") else each for each in argv[end + 1 :])
    return [*argv[:end], *files]


def commands() -> list[str]:
    return sorted(name for _, name, _ in pkgutil.iter_modules(__path__) if name[0] != "_")


def summary(command: str) -> str:
    """Return the first line of a command's help, which `python -OO` omits."""
    return (import_module(f"engine.cli.{command}").__doc__ or "").partition("\n")[0]


def parser_of(command: str, module: ModuleType | None = None) -> Parser:
    module = module or import_module(f"engine.cli.{command}")
    parser = Parser(
        prog=f"python -m engine {command}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    return parser


def _dispatch(argv: Sequence[str]) -> int:
    argv = darknet_options.after_command(argv)
    first = argv[0] if argv else None
    if first is None or first in ("-h", "--help"):
        print(_overview(), file=sys.stdout if first else sys.stderr)
        return 0 if first else USAGE
    if first == "--version":
        print(f"engine {__version__}")
        return 0
    if first not in commands():
        if first in darknet_options.COMMANDS:
            here = darknet_options.COMMANDS[first]
            raise InputError(f"{first} is darknet's command. Here it is {here}")
        if first in darknet_options.ULTRALYTICS_COMMANDS:
            here = darknet_options.ULTRALYTICS_COMMANDS[first]
            raise InputError(f"{first} is ultralytics' command. Here it is {here}")
        if first == "train":
            raise InputError(f"{first}: {darknet_options.NO_TRAINING}")
        hint = suggest(first, commands())
        raise InputError(f"no command {first!r}.{hint} See: python -m engine --help")
    module = import_module(f"engine.cli.{first}")
    parser = parser_of(first)
    if first == "detect" and darknet_options.is_typed_for_darknet(argv[1:], parser.spellings):
        module = import_module("engine.cli._darknet.detect")
        parser = parser_of(first, module)
    status: int = module.run(parser.parse(argv[1:]))
    return status


def _overview() -> str:
    summaries = [f"  {name:10} {summary(name)}" for name in commands()]
    return "\n".join(
        [
            "usage: python -m engine COMMAND …",
            "",
            "Run darknet networks: a .cfg, a .weights file, boxes.",
            "",
            *summaries,
            "",
            "See also: python -m engine COMMAND --help, python -m engine --version.",
        ]
    )
