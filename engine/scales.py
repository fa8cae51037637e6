"""The .scales file: what `engine calibrate` found for the int8 precision of one network.

It is a text file. The digests say which .cfg and .weights it belongs to. A layer's line has the
largest magnitude of its output that int8 represents and, for a convolution, how it multiplies and
the relative error of the network's outputs if only this one multiplied in int8.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isnan, nan
from pathlib import Path

from engine.errors import ConfigError, InputError, WeightsError
from engine.files.naming import shown
from engine.files.regular import open_regular
from engine.models.digest import digest
from engine.passes.quantise import LayerRanges

_TITLE = "engine scales 1"
_MOST_BYTES = 4 << 20
_DIGEST = 64  # hexadecimal digits
_SMALLEST, _LARGEST = 1e-45, 3.4028235e38  # float32's, rounded as in the file
_WAYS = ("int8", "float", "-")


@dataclass(frozen=True)
class LayerScale:
    """The calibration of one layer."""

    kind: str
    largest: float  # infinite if the layer has infinite values
    way: str = "-"  # how a convolution multiplies: int8 or float; - for other layers
    error: float = nan  # of the outputs if only this convolution multiplies integers


@dataclass(frozen=True)
class Scales:
    """The contents of a file."""

    cfg: str  # digests
    weights: str
    layers: tuple[LayerScale, ...]
    about: Mapping[str, str] = field(default_factory=dict)  # how the scales were found

    @property
    def ranges(self) -> LayerRanges:
        """The ranges for passes/quantise.py; layers without an int8 measurement are float."""
        return LayerRanges(
            {number: each.largest for number, each in enumerate(self.layers)},
            frozenset(number for number, each in enumerate(self.layers) if each.way != "int8"),
        )

    def __str__(self) -> str:
        lines = [_TITLE, f"cfg {self.cfg}", f"weights {self.weights}"]
        lines += [f"{name} {value}" for name, value in self.about.items()]
        lines += ["# layer, kind, largest magnitude, multiplies in, error if only it is int8"]
        for number, each in enumerate(self.layers):
            error = "-" if isnan(each.error) else f"{each.error:.3g}"
            lines.append(f"{number} {each.kind} {each.largest:.9g} {each.way} {error}")
        return "\n".join(lines) + "\n"


def path_beside(weights: str | Path) -> Path:
    """Return the default path of the scales of a weights file."""
    return Path(weights).with_suffix(".scales")


def digests(cfg: str | Path, weights: str | Path) -> tuple[str, str]:
    """Return the digests that identify a .cfg and its .weights."""
    open_regular(cfg, ConfigError).close()
    open_regular(weights, WeightsError).close()
    return digest(Path(cfg), "sha256"), digest(Path(weights), "sha256")


def load(
    path: str | Path | None, cfg: str | Path, weights: str | Path, kinds: Sequence[str]
) -> Scales:
    """Read the scales of a network with layers of these kinds, by default next to its weights."""
    found = path_beside(weights) if path is None else Path(path)
    name = shown(str(found))
    files, output = map(_quoted, (cfg, weights)), "" if path is None else f" -o {_quoted(found)}"
    calibrate = f"engine calibrate {' '.join(files)} PICTURES{output}"
    if not found.exists():
        raise InputError(f"{name}: no such file, which int8 needs. Make it: {calibrate}")
    with open_regular(found, InputError) as file:
        content = file.read(_MOST_BYTES)
    try:
        scales = parsed(content, name)
        _check_network(scales, name, cfg, weights, kinds)
    except InputError as error:
        raise InputError(f"{error}. Make it again: {calibrate} --overwrite") from None
    return scales


def _check_network(
    scales: Scales, name: str, cfg: str | Path, weights: str | Path, kinds: Sequence[str]
) -> None:
    """Raise an InputError if the scales are those of another network."""
    measured = scales.cfg, scales.weights
    for own, then, now in zip((cfg, weights), measured, digests(cfg, weights), strict=True):
        if then != now:
            raise InputError(f"{name}: was made for another {shown(str(own))}")
    if len(scales.layers) != len(kinds):
        raise InputError(f"{name}: expected {len(kinds)} layers, got {len(scales.layers)}")
    for number, (kind, each) in enumerate(zip(kinds, scales.layers, strict=True)):
        if each.kind != kind:
            raise InputError(f"{name}: layer {number}: expected {kind}, got {shown(each.kind)}")


def parsed(content: bytes, name: str) -> Scales:
    """Parse the content of a file; `name` is for messages."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{name}: expected a text file of the calibrate command") from None
    if not lines or lines[0] != _TITLE:
        raise InputError(f"{name}: expected a file of this version's calibrate command")
    about: dict[str, str] = {}
    layers: list[LayerScale] = []
    for number, line in enumerate(lines[1:], 2):
        first, _, rest = line.partition(" ")
        if first.startswith("#"):
            continue
        if not first.isdigit():
            about[first] = rest
            continue
        if first != str(len(layers)) or (layer := _layer(rest.split(" "))) is None:
            expected = f"{len(layers)} KIND LARGEST int8|float|- ERROR"
            raise InputError(f"{name}:{number}: expected {expected}, got {shown(line)!r}")
        if not _is_float32(layer.largest):
            problem = f"expected a number that float32 holds, got {shown(rest.split(' ')[1])!r}"
            raise InputError(f"{name}:{number}: largest magnitude: {problem}")
        layers.append(layer)
    digests = [about.pop(each, "") for each in ("cfg", "weights")]
    if not all(len(each) == _DIGEST for each in digests):
        raise InputError(f"{name}: is incomplete: the digests of cfg and weights are missing")
    return Scales(digests[0], digests[1], tuple(layers), about)


def _quoted(path: str | Path) -> str:
    return shlex.quote(shown(str(path)))


def _layer(words: list[str]) -> LayerScale | None:
    if len(words) != 4 or words[2] not in _WAYS:
        return None
    kind, largest, way, error = words
    try:
        found = LayerScale(kind, float(largest), way, nan if error == "-" else float(error))
    except ValueError:
        return None
    is_valid = found.largest >= 0 and (error == "-" or found.error >= 0)  # not if it is NaN
    return found if is_valid else None


def _is_float32(value: float) -> bool:
    """Return whether a value is valid for a layer: 0, infinite, or within float32's range."""
    return value in (0, inf) or _SMALLEST <= value <= _LARGEST
