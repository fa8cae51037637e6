"""Classes stand for formats, by their names."""

import pytest

from engine import extras
from engine.codes import formats
from engine.errors import InputError
from tests.codes.made import LABELS, zxing

FORMATS = zxing.BarcodeFormat


def of(*labels):
    return formats.ClassFormats(zxing, labels)


def test_classes_of_the_model_in_the_box():
    found = of(*LABELS)
    assert {FORMATS.QRCode, FORMATS.MicroQRCode} <= found.of(0)
    assert found.of(1) == {FORMATS.DataMatrix}
    assert {FORMATS.EAN13, FORMATS.Code128, FORMATS.ITF} <= found.of(4)
    assert found.of(3) >= {FORMATS.PDF417, FORMATS.CompactPDF417}
    assert found.class_of(FORMATS.EAN8) == 4
    assert found.class_of(FORMATS.MaxiCode) is None


def test_names_that_other_models_use():
    found = of("person", "QR-Code", "Data Matrix", "Code 128", "1D barcode", "none")
    assert found.of(0) == found.of(5) == frozenset()
    assert FORMATS.QRCode in found.of(1)
    assert FORMATS.Code128 in found.of(3)
    assert found.class_of(FORMATS.Code128) == 3  # and not the class of all bars
    assert found.class_of(FORMATS.EAN13) == 4


def test_every_format_has_one_look():
    found = of("code")
    groups = dict(found.by_look(found.of(0)))
    assert FORMATS.EAN13 in groups["bars"]
    assert FORMATS.PDF417 in groups["rows"]
    assert FORMATS.Aztec in groups["squares"]
    assert sum(map(len, groups.values())) == len(found.of(0))


def test_a_model_without_codes_is_refused_in_one_line():
    with pytest.raises(InputError, match=r"^read: expected a model .* got the classes cat, dog$"):
        of("cat", "dog")


def test_what_to_install_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    with pytest.raises(InputError) as raised:
        formats.library()
    told = f"read: zxing-cpp is not installed. Run: {extras.command('read')}"
    assert str(raised.value) == told


def test_an_old_library_is_refused(monkeypatch):
    monkeypatch.setattr(formats, "import_module", lambda name: object())
    with pytest.raises(InputError, match=r"expected zxing-cpp 3\.1 or later"):
        formats.library()
