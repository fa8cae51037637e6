"""tools/measure_int8.py: what it does with processes that fail; times need a card."""

import json
import sys

import pytest

from tools import measure_int8

ROW = {
    "kind": "int8",
    "batch": 1,
    "layer": "a layer",
    "best": "an algorithm",
    **dict.fromkeys(("us", "tera", "sustained_us", "watts", "mhz"), 1.0),
}


@pytest.mark.parametrize("status", [0, 3, -9])
def test_rows_are_written_only_if_no_process_fails(tmp_path, monkeypatch, capsys, status):
    code = f"import os; print({json.dumps(ROW)!r}, flush=True); "
    code += f"os.kill(os.getpid(), {-status})" if status < 0 else f"os._exit({status})"
    monkeypatch.setattr(measure_int8, "_command", lambda *_: [sys.executable, "-c", code])
    monkeypatch.setattr(measure_int8, "_card", lambda: "a card")
    path = tmp_path / "rows.json"
    path.write_text("earlier rows")
    words = ["--kinds", "float16", "int8", "--json", str(path)]
    assert measure_int8.main(words) == (status if status >= 0 else 1)
    if status:
        assert path.read_text() == "earlier rows"
        told = f"Error: float16: its process ended with status {status}\n"
        assert capsys.readouterr().err == told
    else:
        assert json.loads(path.read_text()) == {"card": "a card", "rows": [ROW, ROW]}
