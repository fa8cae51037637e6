"""The networks that zoo.ini lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from configparser import ConfigParser, SectionProxy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engine import bundled
from engine.errors import InputError, suggest
from engine.files.naming import shown

ALGORITHMS = ("sha256", "sha1", "md5")  # strongest first

_WIDTH = re.compile(r"^\s*width\s*=\s*(\d+)", re.MULTILINE)
_OLD_HEADER_SAVING = 4  # bytes; old headers have 16 bytes instead of 20
_FILE = re.compile(r"\w[\w.-]*\.weights", re.ASCII)


@dataclass(frozen=True)
class Model:
    """A published network."""

    name: str
    task: str  # detector or classifier
    input: int  # width and height
    file: str  # name of the weights
    bytes: int  # size of the weights with a header of 20 bytes
    hashes: Mapping[str, str]  # published hashes by algorithm
    urls: tuple[str, ...]
    names_file: str | None
    note: str  # why there are no URLs

    @property
    def cfg(self) -> Path:
        return bundled.folder("cfg") / f"{self.name}.cfg"

    @property
    def names(self) -> Path | None:
        return bundled.folder("cfg") / self.names_file if self.names_file else None

    @property
    def sizes(self) -> tuple[int, int]:
        """The possible sizes of the weights, with the current or the old header."""
        return self.bytes, self.bytes - _OLD_HEADER_SAVING


@cache
def models() -> Mapping[str, Model]:
    """Return all networks by name, in the order of zoo.ini."""
    parser = ConfigParser(interpolation=None, delimiters="=")
    parser.read_string(Path(__file__).with_name("zoo.ini").read_text(encoding="utf-8"))
    return {name: _parse(parser[name]) for name in parser.sections()}


def bundled_models() -> list[Model]:
    """Return the models that are installed with the engine."""
    return [_bundled(files) for files in bundled.models().values()]


def knows(name: str) -> bool:
    """Return whether find() would return a network."""
    return name in models() or name in bundled.models()


def names() -> list[str]:
    """Return the names that find() takes."""
    return [*models(), *bundled.models()]


def find(name: str) -> Model:
    """Return a network of the zoo or a bundled model."""
    if name in (own := bundled.models()):
        return _bundled(own[name])
    if name not in models():
        raise InputError(
            f"no model {shown(name)!r} in the zoo.{suggest(name, names())} "
            "See: python -m engine models list"
        )
    return models()[name]


def _bundled(files: bundled.Model) -> Model:
    width = _WIDTH.search(files.cfg.read_text(encoding="utf-8"))
    assert width, files.cfg
    return Model(
        name=files.cfg.stem,
        task="detector",
        input=int(width[1]),
        file=files.weights.name,
        bytes=files.weights.stat().st_size,
        hashes={},
        urls=(),
        names_file=files.names.name,
        note="bundled",
    )


def _parse(section: SectionProxy) -> Model:
    file = section["file"]
    assert _FILE.fullmatch(file), file
    return Model(
        name=section.name,
        task=section["task"],
        input=int(section["input"]),
        file=file,
        bytes=int(section["bytes"]),
        hashes={each: section[each] for each in ALGORITHMS if each in section},
        urls=tuple(section.get("urls", "").split()),
        names_file=section.get("names"),
        note=section.get("note", ""),
    )
