"""docs/benchmarks*.md equal what the tool writes from the rows that each page names."""

import json
import re
from pathlib import Path

import pytest

from tools import write_benchmarks
from tools.bench_cuda import COMPILE, GRAPH

DOCS = Path(__file__).parents[1] / "docs"
PAGES = (write_benchmarks.CARD_PAGE, write_benchmarks.CPU_PAGE)


def results_of(page):
    """Return the file of rows that a page names as its source."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (path,) = re.findall(r"^- Every row.*\]\((\S+)\)$", text, re.MULTILINE)
    return DOCS / path


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_what_the_tool_writes_from_its_rows(page, tmp_path):
    assert write_benchmarks.main([str(results_of(page)), "--docs", str(tmp_path)]) == 0
    written = (tmp_path / page).read_text(encoding="utf-8")
    assert (DOCS / page).read_text(encoding="utf-8") == written, "python -m tools.write_benchmarks"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_at_most_100_lines_and_no_commits_in_its_tables(page):
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 100
    rows = [line for line in lines if line.startswith("|")]
    assert not re.search(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7}\b", "\n".join(rows))


def test_every_row_of_a_card_is_on_the_page():
    document = json.loads(results_of(write_benchmarks.CARD_PAGE).read_text(encoding="utf-8"))
    page = (DOCS / write_benchmarks.CARD_PAGE).read_text(encoding="utf-8")
    for row in document["rows"]:
        (line,) = (
            line
            for line in page.splitlines()
            if line.startswith(f"| {row['network']} | {row['batch']} |")
        )
        with_bound = write_benchmarks.has_bounds(document["rows"])
        cells = " | ".join(write_benchmarks.card_cells(row, row["peers_ms"], with_bound=with_bound))
        assert f"| {cells} |" in line


def document(*rows):
    about = {"card": "A card", "driver": "1", "cuda": "13.0", "commit": "abc1234"}
    return {**about, "date": "2026-01-01", "peer": "PyTorch 2", "repeats": 200, "rows": rows}


def row(precision="float16", batch=1, **peers_ms):
    return {
        "network": "a@32",
        "precision": precision,
        "batch": batch,
        "engine_ms": 2.0,
        "peers_ms": {
            {"graph": GRAPH, "compiled": COMPILE}[name]: ms for name, ms in peers_ms.items()
        },
    }


def test_precisions_are_adjacent_and_a_missing_row_is_a_dash():
    rows = (row(graph=5.0, compiled=3.0), row("float32", graph=8.0), row(batch=8, graph=6.0))
    page = write_benchmarks.card_page(document(*rows), "a.json")
    assert "| a@32 | 1 | 2.000 | 500 | 4.0x | 2.000 | 500 | 2.5x | 1.5x |" in page
    assert "| a@32 | 8 | - | - | - | 2.000 | 4,000 | 3.0x | - |" in page


def test_shares_of_the_roofline_are_shown_where_they_are_known():
    rows = ({**row(graph=5.0), "bound_ms": 0.5}, row(batch=8, graph=6.0))
    page = write_benchmarks.card_page(document(*rows), "a.json")
    assert "| float16 ms | images/s | roofline | vs PyTorch |" in page
    assert "| a@32 | 1 | 2.000 | 500 | 25% | 2.5x |" in page
    assert "| a@32 | 8 | 2.000 | 4,000 | - | 3.0x |" in page
    assert "- roofline: the share" in page


def test_a_row_that_was_measured_again_stays_with_its_network():
    other = {**row(), "network": "b@32"}
    rows = [row(batch=8), other, row(batch=1)]
    lines = write_benchmarks.table(rows, ["float16"]).splitlines()[2:]
    assert [line.split(" | ")[:2] for line in lines] == [
        ["| a@32", "1"],
        ["| a@32", "8"],
        ["| b@32", "1"],
    ]


def test_missing_measurements_are_reported():
    page = write_benchmarks.card_page(document(row(graph=5.0)), "a.json")
    assert "Not measured in this run: float32, tf32, torch.compile in float16." in page
    rows = (row(graph=5.0, compiled=5.0), row("tf32", graph=5.0), row("float32", graph=5.0))
    assert "Not measured" not in write_benchmarks.card_page(document(*rows), "a.json")


def test_the_history_has_the_form_of_a_run_in_each_document():
    path = Path(write_benchmarks.ROOT / "tools/results/history.json")
    for each in json.loads(path.read_text(encoding="utf-8")):
        assert set(each) >= set(document()), each["commit"]
        assert write_benchmarks.card_page(each, "a.json")
