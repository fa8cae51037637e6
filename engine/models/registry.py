"""The networks of zoo.ini."""

from __future__ import annotations

import re
from collections.abc import Mapping
from configparser import ConfigParser, SectionProxy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engine import shipped
from engine.errors import InputError, suggest
from engine.vision.naming import shown

ALGORITHMS = ("sha256", "sha1", "md5")  # the strongest first

_WIDTH = re.compile(r"^\s*width\s*=\s*(\d+)", re.MULTILINE)
_OLD_HEADER_IS_SHORTER = 4
_FILE = re.compile(r"\w[\w.-]*\.weights", re.ASCII)


@dataclass(frozen=True)
class Model:
    """A published network."""

    name: str
    task: str  # detector or classifier
    input: int  # width and height
    file: str  # the weights
    bytes: int  # their size with a header of 20 bytes
    hashes: Mapping[str, str]  # those that are stated in public, by algorithm
    addresses: tuple[str, ...]
    names_file: str | None
    note: str  # why there are no addresses

    @property
    def cfg(self) -> Path:
        return shipped.folder("cfg") / f"{self.name}.cfg"

    @property
    def names(self) -> Path | None:
        return shipped.folder("cfg") / self.names_file if self.names_file else None

    @property
    def sizes(self) -> tuple[int, int]:
        """What the file may count: its header is that of today or the old one."""
        return self.bytes, self.bytes - _OLD_HEADER_IS_SHORTER


@cache
def models() -> Mapping[str, Model]:
    """All of them, in the order of the file."""
    parser = ConfigParser(interpolation=None, delimiters="=")
    parser.read_string(Path(__file__).with_name("zoo.ini").read_text(encoding="utf-8"))
    return {name: _model(parser[name]) for name in parser.sections()}


def find(name: str) -> Model:
    """A network of the zoo, or the model in the box."""
    box = shipped.default_model()
    if box and name == box.cfg.stem:
        return _model_in(box)
    if name not in models():
        raise InputError(
            f"no model {shown(name)!r} in the zoo.{suggest(name, models())} "
            "See: python -m engine models list"
        )
    return models()[name]


def _model_in(box: shipped.Model) -> Model:
    width = _WIDTH.search(box.cfg.read_text(encoding="utf-8"))
    assert width, box.cfg
    return Model(
        name=box.cfg.stem,
        task="detector",
        input=int(width[1]),
        file=box.weights.name,
        bytes=box.weights.stat().st_size,
        hashes={},
        addresses=(),
        names_file=box.names.name,
        note="in the box",
    )


def _model(section: SectionProxy) -> Model:
    file = section["file"]
    assert _FILE.fullmatch(file), file
    return Model(
        name=section.name,
        task=section["task"],
        input=int(section["input"]),
        file=file,
        bytes=int(section["bytes"]),
        hashes={each: section[each] for each in ALGORITHMS if each in section},
        addresses=tuple(section.get("addresses", "").split()),
        names_file=section.get("names"),
        note=section.get("note", ""),
    )
