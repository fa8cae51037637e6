"""The options of a request: settings in its query string, the response format in Accept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from engine.errors import InputError, suggest
from engine.files.naming import shown
from engine.serve.rejection import RejectedError
from engine.serve.uploads import brief
from engine.settings import Settings
from engine.vision.classes import TypedClass, class_ids_of
from engine.vision.hide import hidden_classes

ResponseFormat: TypeAlias = Literal["json", "jpeg", "png"]

FORMATS: dict[str, ResponseFormat] = {
    "application/json": "json",
    "image/jpeg": "jpeg",
    "image/png": "png",
}
DETECTION_PARAMETERS = (
    "threshold",
    "nms",
    "classes",
    "max_detections",
    "read",
    "tiles",
    "overlap",
)
CLASSIFICATION_PARAMETERS = ("top_k",)
PICTURE_PARAMETERS = ("blur", "pixelate")
_FRACTIONS = ("threshold", "nms", "overlap")
_NUMBER = re.compile(r"[ -^`-~]+")  # ASCII without _, as Python also parses 1_0 and foreign digits


@dataclass(frozen=True)
class RequestOptions:
    settings: Settings
    format: ResponseFormat
    hiding: Mapping[str, Any] = field(default_factory=dict)  # for Result.plot()


def parse(
    parameters: Sequence[tuple[str, Any]],
    accept: str | None,
    *,
    defaults: Settings,
    labels: Sequence[str],
    has_boxes: bool,
    only_arrays: bool = False,
) -> RequestOptions:
    """Parse the settings in the query string or in JSON, and the Accept header of a request.

    A response of `only_arrays` cannot hold texts or drawings.
    """
    known: tuple[str, ...] = DETECTION_PARAMETERS if has_boxes else CLASSIFICATION_PARAMETERS
    if has_boxes and only_arrays:
        known = tuple(each for each in known if each != "read")
    elif has_boxes:
        known += PICTURE_PARAMETERS
    values: dict[str, Any] = {}
    hiding: dict[str, Any] = {}
    for key, value in parameters:
        name = key.replace("-", "_")
        if name not in known:
            expected = ", ".join(known)
            raise InputError(f"{shown(key)}: expected {expected}.{suggest(name, known)}")
        if name in values or name in hiding:
            raise InputError(f"{key}: expected once, got twice")
        if name in PICTURE_PARAMETERS:
            hiding[name] = _entries(name, value)
            hidden_classes(name, hiding[name], labels)
        else:
            values[name] = _value(name, value, labels)
    formats = FORMATS if has_boxes else {"application/json": FORMATS["application/json"]}
    settings = replace(defaults, **values) if values else defaults
    return RequestOptions(settings, negotiate_format(accept, formats), hiding)


def negotiate_format(accept: str | None, formats: dict[str, ResponseFormat]) -> ResponseFormat:
    """Return the format that `accept` prefers; among equals, the first of `formats`."""
    ranges = [_media_range(each) for each in (accept or "*/*").split(",") if each.strip()]
    quality, preferred = max(
        ((_quality(media_type, ranges), name) for media_type, name in formats.items()),
        key=lambda each: each[0],
    )
    if quality <= 0:
        raise RejectedError(
            406, f"Accept: expected {' or '.join(formats)}, got {shown(str(accept))!r}"
        )
    return preferred


def _media_range(text: str) -> tuple[str, float]:
    """Return the type and the quality of one entry of Accept, such as "image/*;q=0.5"."""
    media_type, *parameters = (part.strip().lower() for part in text.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return media_type, float(value)
            except ValueError:
                return media_type, 0.0
    return media_type, 1.0


def _quality(media_type: str, ranges: Iterable[tuple[str, float]]) -> float:
    """Return the quality of the most specific range that matches `media_type`, or 0."""
    matching = (media_type, media_type.partition("/")[0] + "/*", "*/*")
    found = [(matching.index(each), quality) for each, quality in ranges if each in matching]
    return min(found)[1] if found else 0.0


def _value(name: str, value: Any, labels: Sequence[str]) -> Any:
    if name == "classes":
        return _classes(value, labels)
    if name == "tiles":  # Settings checks them
        return value
    return _yes_or_no(name, value) if name == "read" else _number(name, value)


def _yes_or_no(name: str, value: Any) -> bool:
    """Return a truth value of JSON or of text; `?read` alone is true."""
    words = {"true": True, "1": True, "": True, "false": False, "0": False}
    word = str(value).lower()
    if word not in words or not isinstance(value, (str, bool)):
        raise InputError(f"{name}: expected true or false, got {_quoted(value)}")
    return words[word]


def _number(name: str, value: Any) -> float | int:
    kind: Callable[[Any], float | int] = float if name in _FRACTIONS else int
    try:
        is_whole = not isinstance(value, float) or kind is float or value.is_integer()
        is_odd = isinstance(value, str) and not _NUMBER.fullmatch(value)
        if isinstance(value, bool) or is_odd or not is_whole:
            raise ValueError
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        expected = "a number" if kind is float else "an integer"
        raise InputError(f"{name}: expected {expected}, got {_quoted(value)}") from None


def _quoted(value: Any) -> str:
    """Return text in quotes, and other values as JSON has them."""
    return repr(value[:40]) if isinstance(value, str) else brief(value)


def _classes(value: Any, labels: Sequence[str]) -> tuple[int, ...]:
    """Return the class numbers of a list of names and numbers, which may be text: "cat,3"."""
    numbers = class_ids_of(_entries("classes", value), labels)
    for number in numbers:
        if not 0 <= number < len(labels):
            raise InputError(f"classes: expected a number below {len(labels)}, got {number}")
    return tuple(sorted(set(numbers)))


def _entries(name: str, value: Any) -> list[Any]:
    """Return the names and numbers of classes in a list, or in text: "cat,3"."""
    if isinstance(value, str):
        value = [entry.strip() for entry in value.split(",") if entry.strip()]
    entries = value if isinstance(value, list) else [value]
    if not entries:
        raise InputError(f"{name}: expected at least one, got none")
    return [TypedClass(each) if isinstance(each, str) else each for each in entries]
