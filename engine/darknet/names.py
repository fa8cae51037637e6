"""Class names: the .names file, one name a line, and the .data file that points to it."""

from __future__ import annotations

from pathlib import Path

from engine.darknet.regular_file import read_bytes
from engine.errors import ConfigError
from engine.vision.naming import shown

LARGEST_BYTES = 16 << 20


def default_names(count: int) -> tuple[str, ...]:
    return tuple(f"class {index}" for index in range(count))


def read_names(path: str | Path, count: int, *, may_be_longer: bool = False) -> tuple[str, ...]:
    """The names of `count` classes; a blank line between names leaves a class without one.

    `may_be_longer` is for classifiers: ImageNet's list goes on after the 1000 classes in use.
    """
    lines = read_lines(path)
    if may_be_longer:
        lines = lines[:count]
    if len(lines) != count:
        raise ConfigError(
            f"{shown(path)}: expected {count} names, one for each class of the network, "
            f"got {len(lines)}. Is it for another .cfg?"
        )
    return tuple(name or unnamed for name, unnamed in zip(lines, default_names(count), strict=True))


def read_lines(path: str | Path) -> list[str]:
    """The lines of a .names file, however many; blank ones at its end do not count."""
    lines = [line.strip() for line in _text(path).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def find_names(data: str | Path) -> Path:
    """The file that the .data file calls `names`.

    Darknet takes it relative to the current folder. We also look from the .data file's own folder
    and from the one above, where darknet's cfg/coco.data means data/coco.names.
    """
    options = dict(_options(data))
    if "names" not in options:
        raise ConfigError(f"{shown(data)}: names: is missing")
    name = options["names"]
    folder = Path(data).parent
    candidates = [Path(name), folder / name, folder.parent / name]
    found = next((path for path in candidates if _is_file(path)), None)
    if found is None:
        raise ConfigError(f"{shown(data)}: names: no file {shown(name)!r}, here or beside it")
    return found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long, for instance
        return False


def _options(path: str | Path) -> list[tuple[str, str]]:
    """Keys and values; the first of equal keys comes last, so that it wins in a dict."""
    options: list[tuple[str, str]] = []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        text = line.strip()
        if not text or text.startswith(("#", ";")):
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{shown(path)}:{number}: expected key=value, got {text[:60]!r}")
        options.append((key.strip(), value.strip()))
    return options[::-1]


def _text(path: str | Path) -> str:
    """UTF-8 where it is, else byte for byte, with any kind of line end."""
    data = read_bytes(path, ConfigError, limit=LARGEST_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    if "\0" in text:
        raise ConfigError(f"{shown(path)}: expected lines of text, got binary data")
    return text.replace("\r\n", "\n").replace("\r", "\n")
