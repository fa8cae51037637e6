"""Options of a section, declared as dataclass fields: names, types, defaults and bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import Field, field, fields
from functools import cache
from typing import Any, Literal, TypeVar, get_type_hints

from engine.darknet import network_limits
from engine.darknet.cfg import Option, Section
from engine.errors import ConfigError, suggest
from engine.plan.activations import ACTIVATIONS

NOT_AN_OPTION = {"context": True}  # metadata of a field that the .cfg does not set

_REQUIRED = object()

_Number = TypeVar("_Number", int, float)

# darknet's activations that normalise across a pixel's channels, with the op's name for each
ACROSS_CHANNELS: dict[str, Literal["positive", "softmax", "softmax_max"]] = {
    "normalize_channels": "positive",
    "normalize_channels_softmax": "softmax",
    "normalize_channels_softmax_maxval": "softmax_max",
}


def option(
    default: Any = _REQUIRED,
    *,
    key: str = "",
    at_least: float | None = None,
    at_most: float | None = None,
    choices: Collection[str] = (),
    ends_at: str = "",
) -> Any:
    """Declare a field as an option; `key` is its name in the .cfg where Python cannot spell it.

    The value ends before the first `ends_at`.
    """
    rules = {"key": key, "at_least": at_least, "at_most": at_most, "choices": choices}
    rules["ends_at"] = ends_at
    rules["required"] = default is _REQUIRED
    return field(default=None if default is _REQUIRED else default, metadata=rules)


def activation_option(default: str) -> Any:
    """Declare a field that names an activation; unknown names are errors."""
    return option(default, choices=(*ACTIVATIONS, *ACROSS_CHANNELS))


def option_fields(cls: type) -> Iterator[Field[Any]]:
    return (each for each in fields(cls) if not each.metadata.get("context"))


def keys(cls: type) -> list[str]:
    """Return the keys of the options that `cls` declares."""
    return [_key(each) for each in option_fields(cls)]


def read_options(cls: type, section: Section) -> dict[str, Any]:
    """Parse and validate the fields of `cls` that `section` sets."""
    types = _types(cls)
    values: dict[str, Any] = {}
    for each in option_fields(cls):
        found = section.first.get(_key(each))
        if found is not None and found.value:
            values[each.name] = _parse(found, types[each.name], each, section)
        elif each.metadata.get("required"):
            raise ConfigError(f"{section.where} {_key(each)}: is missing")
    return values


def _key(each: Field[Any]) -> str:
    return each.metadata.get("key") or each.name


@cache
def _types(cls: type) -> dict[str, Callable[[str], Any]]:
    hints = get_type_hints(cls)
    return {each.name: _PARSERS[hints[each.name]] for each in option_fields(cls)}


def _parse(found: Option, parse: Callable[[str], Any], each: Field[Any], section: Section) -> Any:
    where = f"{section.file}:{found.line}: [{section.name}] {found.key}"
    text = found.value if len(found.value) <= 60 else f"{found.value[:57]}..."
    ends_at = each.metadata.get("ends_at")
    try:
        value = parse(found.value.partition(ends_at)[0].rstrip() if ends_at else found.value)
    except ValueError as error:
        raise ConfigError(f"{where}: expected {error}, got {text!r}") from None
    rules = each.metadata
    choices = rules.get("choices")
    if choices and value not in choices:
        raise ConfigError(f"{where}: unknown {text!r}.{suggest(text, choices)}")
    for number in value if isinstance(value, tuple) else (value,):
        if rules.get("at_least") is not None and number < rules["at_least"]:
            raise ConfigError(f"{where}: expected at least {rules['at_least']}, got {text!r}")
        if rules.get("at_most") is not None and number > rules["at_most"]:
            raise ConfigError(f"{where}: expected at most {rules['at_most']}, got {text!r}")
    return value


# C's atoi and atof stop at the first invalid character, and published files rely on that:
# filters=40#32. But a number followed by a letter, digit or dot is taken for a mistake.
_END = r"(?=$|[^\w.])"
_INTEGER = re.compile(r"([+-]?\d+)(?:\.0*)?" + _END, re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?" + _END, re.ASCII)


def _integer(text: str) -> int:
    match = _INTEGER.match(text)
    if not match:
        raise ValueError("an integer")
    digits = match[1].lstrip("+-0") or "0"
    if len(digits) > 10 or int(digits) > network_limits.INTEGER:
        raise ValueError(f"an integer of at most {network_limits.INTEGER}")
    return -int(digits) if text.startswith("-") else int(digits)


def _number(text: str) -> float:
    match = _NUMBER.match(text)
    if not match or not math.isfinite(float(match[0])):
        raise ValueError("a number")
    return float(match[0])


def _integers(text: str) -> tuple[int, ...]:
    return _list(text, _integer)


def _numbers(text: str) -> tuple[float, ...]:
    return _list(text.removesuffix(","), _number)


def _list(text: str, parse: Callable[[str], _Number]) -> tuple[_Number, ...]:
    if text.count(",") >= network_limits.LIST:
        raise ValueError(f"a list of at most {network_limits.LIST} numbers")
    try:
        return tuple(parse(item) for item in text.split(","))
    except ValueError as error:
        raise ValueError(f"a list, each {error}") from None


_PARSERS: dict[Any, Callable[[str], Any]] = {
    int: _integer,
    int | None: _integer,
    float: _number,
    float | None: _number,
    bool: lambda text: _integer(text) != 0,
    str: str,
    str | None: str,
    tuple[int, ...]: _integers,
    tuple[float, ...]: _numbers,
}
