"""The code formats that the classes of a model stand for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

from engine import extras
from engine.errors import InputError
from engine.files.naming import shown

Look: TypeAlias = Literal["bars", "rows", "squares", "strips"]  # what a code is made of

_ROWS = "PDF417 CompactPDF417 MicroPDF417"
# 1-D codes that always have a checksum, or in which the pattern of each character checks it
_CHECKED = "EANUPC Code128 Code93 DataBar Code39 Codabar"
_MAX_SHOWN = 5  # classes in a message
# normalised class names (lower-case letters and digits) that zxing-cpp does not know
_GROUPS = {
    "AllLinear": ("barcode", "barcodes", "bars", "1d", "1dcode", "1dbarcode", "linear", "ean"),
    "AllMatrix": ("2d", "2dcode", "2dbarcode", "matrix"),
    "AllReadable": ("code", "codes"),
    "QRCode MicroQRCode RMQRCode": ("qr", "qrcode", "qrcodes"),
    "DataMatrix": ("datamatrixcode", "dmtx", "dm"),
    "Aztec AztecRune": ("aztec", "azteccode"),
    _ROWS: ("pdf417",),
    "UPCA UPCE": ("upc",),
}
_NO_FORMATS = ("none", "all")  # words with a meaning in zxing-cpp, which may name any class here
_GROUP_OF = {name: group for group, names in _GROUPS.items() for name in names}


def library() -> Any:
    """Return zxing-cpp's module, or raise an error with the command that installs it."""
    command = extras.command("read")
    if find_spec("zxingcpp") is None:
        raise InputError(f"read: zxing-cpp is not installed. Run: {command}")
    try:
        zxing = import_module("zxingcpp")
    except ImportError as error:
        raise InputError(f"read: zxing-cpp: {shown(str(error))}. Run: {command}") from error
    if not hasattr(zxing, "barcode_formats_list"):
        raise InputError(f"read: expected zxing-cpp 3.1 or later, got an older one. Run: {command}")
    return zxing


class ClassFormats:
    """The formats of each class that stands for codes."""

    def __init__(self, zxing: Any, labels: Sequence[str]) -> None:
        self._of_class: dict[int, frozenset[Any]] = {}
        for number, label in enumerate(labels):
            formats = _formats_of(zxing, label)
            if formats:
                self._of_class[number] = formats
        if not self._of_class:
            some = ", ".join(shown(each) for each in labels[:_MAX_SHOWN])
            more = ", …" if len(labels) > _MAX_SHOWN else ""
            raise InputError(
                f"read: expected a model with a class of codes, such as qr or barcode, got the "
                f"classes {some}{more}"
            )
        self.of_any = frozenset().union(*self._of_class.values())
        self.linear = frozenset(zxing.barcode_formats_list(zxing.BarcodeFormat.AllLinear))
        self.rows = frozenset(getattr(zxing.BarcodeFormat, each) for each in _ROWS.split())
        checked = frozenset(
            each
            for name in _CHECKED.split()
            for each in zxing.barcode_formats_list(getattr(zxing.BarcodeFormat, name))
        )
        self.checked = checked | self.rows
        # a part of its bars may be a valid code of the same format
        self.divisible = frozenset(zxing.barcode_formats_list(zxing.BarcodeFormat.ITF))
        self.strips = frozenset((zxing.BarcodeFormat.RMQRCode,))  # made of squares; hard to find
        self.easily_misread = self.linear | self.rows

    def of(self, class_id: int) -> frozenset[Any]:
        """Return the formats of a class; a class that is not a code has none."""
        return self._of_class.get(class_id, frozenset())

    def by_look(self, formats: Collection[Any]) -> Iterator[tuple[Look, Collection[Any]]]:
        """Yield the formats grouped by what their codes are made of."""
        chosen = frozenset(formats)
        groups: tuple[tuple[Look, frozenset[Any]], ...] = (
            ("bars", chosen & self.linear),
            ("rows", chosen & self.rows),
            ("squares", chosen - self.linear - self.rows),
        )
        for look, of_look in groups:
            if of_look:
                yield look, of_look

    def class_of(self, code_format: Any) -> int | None:
        """Return the class of a format; among several, the one with the fewest formats."""
        fitting = [
            (len(formats), number)
            for number, formats in self._of_class.items()
            if code_format in formats
        ]
        return min(fitting)[1] if fitting else None


def _formats_of(zxing: Any, label: str) -> frozenset[Any]:
    name = "".join(each for each in label.lower() if each.isalnum())
    if name in _NO_FORMATS:
        return frozenset()
    words = _GROUP_OF.get(name)
    if words is not None:
        formats = [getattr(zxing.BarcodeFormat, word) for word in words.split()]
    else:
        try:
            formats = [zxing.barcode_format_from_str(name)]
        except ValueError:
            return frozenset()
    found = frozenset(each for one in formats for each in zxing.barcode_formats_list(one))
    return found or frozenset(formats)
