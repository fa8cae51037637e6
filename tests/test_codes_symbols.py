"""The bars that tools/codes/symbols.py draws without encoding have the structure of ZXing's."""

import runpy
from pathlib import Path

import numpy as np
import pytest

for name in ("segno", "pdf417gen", "barcode", "ppf.datamatrix", "aztec_code_generator"):
    pytest.importorskip(name)
zxingcpp = pytest.importorskip("zxingcpp")
SYMBOLS = runpy.run_path(str(Path(__file__).parents[1] / "tools/codes/symbols.py"))


def zxing_widths(name, text):
    code = zxingcpp.create_barcode(text, getattr(zxingcpp.BarcodeFormat, name))
    dark = np.array(zxingcpp.write_barcode_to_image(code, scale=1)).squeeze() < 128
    row = np.flatnonzero(dark.any(axis=1))[0]
    edges = np.flatnonzero(np.diff(dark[row].astype(int))) + 1
    return [1, *np.diff(edges).tolist()]  # the first element is a gap of one module


@pytest.mark.parametrize(
    ("name", "text", "kind", "pairs"),
    [
        ("DataBarOmni", "0950110153000", 15, 2),
        ("DataBarExp", "(01)09506000134352(10)12345678", 17, None),
    ],
)
def test_data_bars_have_a_finder_pattern_between_two_characters(name, text, kind, pairs):
    widths = zxing_widths(name, text)
    pairs = pairs or len(widths) // 21
    drawn = SYMBOLS["_data_bar"](np.random.default_rng(0), pairs, kind)
    for each in (widths, drawn):
        assert tuple(each[10:15]) in SYMBOLS["_FINDERS"][kind]
    assert sum(drawn[:-2]) == 2 + pairs * (46 if kind == 15 else 49)
    if kind == 15:
        assert (len(drawn), sum(drawn)) == (len(widths) + 1, 96)


def test_code_93_and_upc_e_have_as_many_modules_as_those_of_zxing():
    random = np.random.default_rng(1)
    drawn = {SYMBOLS["_unencoded"](random).modules.shape[1] for _ in range(300)}
    for name, text in (("UPCE", "01234565"), ("Code93", "J8FB"), ("Code93", "J8FBSJ2")):
        assert sum(zxing_widths(name, text)) - 1 in drawn
