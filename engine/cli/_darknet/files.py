"""The file arguments of darknet's commands: DATA CFG WEIGHTS IMAGE, in this order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine.cli import _stdin
from engine.errors import EngineError, InputError
from engine.files.naming import shown

if TYPE_CHECKING:
    from engine.cli._output_files import ReservedPaths


class Files(NamedTuple):
    """The files of a command; without a `picture`, names are read from stdin."""

    data: str  # "" for commands without it
    cfg: str
    weights: str
    picture: str | None


def parse(command: str, words: Sequence[str], *, has_data: bool = True) -> Files:
    """Parse the words after a command as file names."""
    expected = ["DATA"] * has_data + ["CFG", "WEIGHTS"]
    if not len(expected) <= len(words) <= len(expected) + 1:
        got = " ".join(map(shown, words)) or "nothing"
        raise InputError(f"{command}: expected {' '.join(expected)} and perhaps IMAGE, got {got}")
    if has_data and Path(words[0]).suffix == ".cfg":
        raise InputError(f"{command}: expected a .data file before {shown(words[0])}")
    data, *rest = words if has_data else ("", *words)
    cfg, weights, picture = (*rest, None)[:3]
    if picture and Path(picture).suffix == ".txt":
        hint = "Darknet reads one from stdin: < LIST"
        raise InputError(f"{shown(picture)}: expected a picture, got a list. {hint}")
    assert cfg is not None
    assert weights is not None
    return Files(data, cfg, weights, picture)


def pictures(picture: str | None) -> Iterator[str]:
    """Yield the picture, or else prompt for names on standard input as darknet does."""
    if picture is not None:
        yield picture
        return
    names = _stdin.names(lambda lines: (each.rstrip("\r") for each in lines))
    print("Enter Image Path: ", end="", flush=True)
    for name in filter(None, names):
        yield name
        print("Enter Image Path: ", end="", flush=True)


def read_by(model: Files, names: object = None, *keys: str) -> list[str | None]:
    """Return the files that a run reads besides pictures; `keys` are further options of DATA.

    `names`, a file or a list of them, replaces those of DATA.
    """
    from engine.darknet.names import find_file

    found = [*model, str(names) if isinstance(names, str | Path) else None]
    for key in ("names", *keys) if model.data else ():
        with suppress(EngineError, OSError):  # reading the file will report it
            found.append(str(find_file(model.data, key)))
    return found


def listed(data: str, key: str) -> list[str]:
    """Return the paths in the list that an option of the .data file names."""
    from engine.darknet.names import find_file
    from engine.evaluate.dataset import read_list

    paths = [str(path) for path in read_list(find_file(data, key))]
    if not paths:
        raise InputError(f"{shown(data)}: {key}: the list names no picture")
    return paths


def write(path: str | Path, content: bytes, reserved: ReservedPaths, *, option: str) -> None:
    """Write a file, replacing an existing one as darknet does, unless the run uses it."""
    from engine.files.atomic import write_new

    reserved.reserve(option, str(path))
    write_new(path, content, overwrite=True)
