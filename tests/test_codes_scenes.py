"""tools/codes/scenes.py: codes keep a size whatever is done to their sheet."""

from pathlib import Path

import numpy as np
import pytest

for name in ("cv2", "segno", "pdf417gen", "barcode", "ppf.datamatrix", "aztec_code_generator"):
    pytest.importorskip(name)


def test_a_thin_barcode_that_is_shrunk_keeps_its_height(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "tools/codes"))
    from label_printer import CodeMark, FlatObject
    from scenes import _module_size, _outline, _shrunk

    sheet = np.full((80, 400), 255, np.uint8)
    flat = FlatObject(sheet, (CodeMark(4, (40, 37, 142, 43), 2.0),))
    (mark,) = _shrunk(flat, sheet.size / 64).marks  # an eighth of each side
    assert mark.box == (5, 5, 18, 6)
    corners = _outline(mark.box)[::8]
    assert _module_size(mark, corners) == pytest.approx(0.25)
