"""Class names: the .names file with one name per line, and the .data file that points to it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from engine.errors import ConfigError
from engine.files import data_set_yaml
from engine.files.naming import shown
from engine.files.regular import read_bytes

_log = logging.getLogger("engine")
MAX_BYTES = 16 << 20


def default_names(count: int) -> tuple[str, ...]:
    return tuple(f"class {index}" for index in range(count))


def read_names(path: str | Path, count: int, *, allow_longer: bool = False) -> tuple[str, ...]:
    """Read the names of `count` classes; a blank line leaves its class unnamed.

    `allow_longer` is for classifiers: ImageNet's list has more entries than the 1000 in use.
    """
    data_set_yaml.refuse(path, "names", ConfigError)
    lines = read_lines(path)
    if allow_longer and len(lines) > count:
        what = "%s: has %d names, and the network %d classes: the first names are used"
        _log.warning(what, shown(path), len(lines), count)
        lines = lines[:count]
    if len(lines) != count:
        raise ConfigError(
            f"{shown(path)}: expected {count} names, one for each class of the network, "
            f"got {len(lines)}. Is it for another .cfg?"
        )
    return tuple(name or unnamed for name, unnamed in zip(lines, default_names(count), strict=True))


def read_lines(path: str | Path) -> list[str]:
    """Read all lines of a .names file except blank ones at the end."""
    lines = [line.strip() for line in _text(path).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def names_of(cfg: str | Path) -> Path | None:
    """Return the .names file with the same name as a .cfg, if there is one."""
    path = Path(cfg).with_suffix(".names")
    return path if _is_file(path) else None


def find_names(data: str | Path) -> Path:
    """Find the file that the `names` option of a .data file refers to."""
    return find_file(data, "names")


def find_file(data: str | Path, key: str) -> Path:
    """Find the file that an option of a .data file refers to.

    Darknet resolves it relative to the current folder. The .data file's own folder and its parent
    are tried as well: darknet's cfg/coco.data refers to data/coco.names.
    """
    options = read_data(data)
    if key not in options:
        raise ConfigError(f"{shown(data)}: {key}: is missing")
    name = options[key]
    # A relative name such as obj.data has no known parent without the current folder.
    folder = Path(data).absolute().parent
    candidates = [Path(name), folder / name, folder.parent / name]
    found = next((path for path in candidates if _is_file(path)), None)
    if found is None:
        hint = ". Folders are separated by / here" if "\\" in name and os.sep == "/" else ""
        raise ConfigError(
            f"{shown(data)}: {key}: no file {shown(name)!r} in the current folder, "
            f"in the folder of the .data file or in its parent{hint}"
        )
    return found


def read_data(path: str | Path) -> dict[str, str]:
    """Read the options of a .data file."""
    return dict(_options(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # for example, the name is too long
        return False


def _options(path: str | Path) -> list[tuple[str, str]]:
    """Return keys and values in reverse order, so that the first of equal keys wins in a dict."""
    data_set_yaml.refuse(path, "data", ConfigError)
    options: list[tuple[str, str]] = []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        text = line.strip()
        if not text or text.startswith(("#", ";")):
            continue
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{shown(path)}:{number}: expected key=value")
        options.append((key.strip(), value.strip()))
    return options[::-1]


def _text(path: str | Path) -> str:
    """Read UTF-8 text, or Latin-1 if it is not UTF-8, with any kind of line ending."""
    data = read_bytes(path, ConfigError, limit=MAX_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    if "\0" in text:
        raise ConfigError(f"{shown(path)}: expected lines of text, got binary data")
    return text.replace("\r\n", "\n").replace("\r", "\n")
