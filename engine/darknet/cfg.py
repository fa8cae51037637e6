"""Parse darknet's .cfg text into sections and options with their line numbers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.concurrency.cached_property import cached_property
from engine.darknet import network_limits
from engine.darknet.warnings_limit import warn_about_first
from engine.errors import ConfigError
from engine.files.naming import shown
from engine.files.regular import read_bytes

_log = logging.getLogger("engine")

_SPACES = str.maketrans("", "", " \t\r\n")
_COMMENT = ("#", ";")


@dataclass(frozen=True)
class Option:
    key: str
    value: str
    line: int


@dataclass(frozen=True)
class Section:
    name: str
    line: int
    options: tuple[Option, ...]
    file: str  # name of the .cfg in messages
    folder: Path | None = None  # folder of the .cfg; None for a network given as text

    @cached_property
    def first(self) -> Mapping[str, Option]:
        """Return the options by key; the first of equal keys wins, as in darknet."""
        return {option.key: option for option in reversed(self.options)}

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}: [{self.name}]"


def read(path: str | Path) -> tuple[Section, ...]:
    """Read the sections of the file at `path`."""
    return parse(read_text(path), name=Path(path).name, folder=Path(path).parent)


def read_text(path: str | Path) -> str:
    if Path(path).suffix.lower() == ".weights":
        raise ConfigError(
            f"{shown(path)}: expected a .cfg, got a .weights file. Are the two swapped?"
        )
    return decode(read_bytes(path, ConfigError, limit=network_limits.CFG_BYTES), shown(path))


def parse(text: str, *, name: str = "cfg", folder: Path | None = None) -> tuple[Section, ...]:
    """Parse the sections of a network given as text; messages call it `name`."""
    name = shown(name)
    _refuse_other_formats(text, name)
    sections: list[Section] = []
    heading: tuple[str, int] | None = None
    options: list[Option] = []
    empty: list[str] = []
    lines = lines_of(text)
    if len(lines) > network_limits.LINES:
        raise ConfigError(
            f"{name}: expected at most {network_limits.LINES} lines, got {len(lines)}"
        )

    def close() -> None:
        if heading is not None:
            sections.append(Section(*heading, tuple(options), name, folder))

    for number, raw in enumerate(lines, start=1):
        line = raw.translate(_SPACES)
        if not line or line.startswith(_COMMENT):
            continue
        if line.startswith("["):
            close()
            if len(sections) > network_limits.SECTIONS:
                raise ConfigError(f"{name}:{number}: more than {network_limits.SECTIONS} sections")
            heading, options = (_heading(line, f"{name}:{number}"), number), []
            continue
        if heading is None:
            raise ConfigError(
                f"{name}:{number}: expected [net] before the first option, got {_brief(line)}"
            )
        option = _option(line, f"{name}:{number}: [{heading[0]}]", number)
        if option.value:
            options.append(option)
        else:  # ignored, as in darknet
            empty.append(f"{name}:{number}: {_brief(line)} without a value is ignored")
    close()
    warn_about_first(_log, empty, name, "options without a value")
    if not sections:
        raise ConfigError(f"{name}: expected a network, got no section at all")
    return tuple(sections)


def lines_of(text: str) -> list[str]:
    """Split text into the lines that messages count from 1."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _heading(line: str, where: str) -> str:
    name, bracket, rest = line[1:].partition("]")
    has_junk = bool(rest) and not rest.startswith(_COMMENT)
    if not bracket or not name or has_junk or len(name) > 60 or not name.isprintable():
        raise ConfigError(f"{where}: expected [section], got {_brief(line)}")
    return name


def _option(line: str, where: str, number: int) -> Option:
    key, equals, value = line.partition("=")
    if not key or not equals:
        raise ConfigError(f"{where}: expected key=value, got {_brief(line)}")
    return Option(key, value, number)


def decode(data: bytes, name: str) -> str:
    """Decode UTF-8, or Latin-1 if it is not UTF-8: darknet uses only ASCII characters."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data.decode("utf-16")
        except UnicodeDecodeError:
            raise ConfigError(f"{name}: expected text, got damaged UTF-16") from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _refuse_other_formats(text: str, name: str) -> None:
    if "\0" in text:
        raise ConfigError(f"{name}: expected text, got binary data. Is it the .weights file?")
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        raise ConfigError(
            f"{name}: expected a network, got a web page. Download the raw file instead"
        )


def _brief(line: str) -> str:
    return repr(line if len(line) <= 60 else f"{line[:57]}...")
