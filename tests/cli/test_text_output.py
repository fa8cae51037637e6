"""The files of --jsonl and --csv, which grow line by line."""

from contextlib import contextmanager

import pytest

from engine.cli import _run
from engine.cli._interrupts import Interrupts
from engine.cli._progress import Progress
from engine.cli._sinks.csv_rows import BoxRows
from engine.cli._sinks.earlier_lines import EarlierLines
from engine.cli._sinks.json_documents import JsonLines
from engine.cli._sinks.text_output import TextOutput
from engine.errors import InputError
from engine.files import locks


@pytest.mark.parametrize("existing", ["resume", "refuse"])
def test_a_file_that_another_run_made_meanwhile_is_refused(tmp_path, existing):
    path = tmp_path / "a.jsonl"
    output = TextOutput(str(path), existing=existing, incremental=True)
    path.write_text("line\n")
    with pytest.raises(InputError, match=r"another run is writing it\. Wait"):
        output.open()
    assert path.read_text() == "line\n"


def test_a_file_that_another_run_writes_is_not_emptied(tmp_path):
    path = tmp_path / "a.jsonl"
    first = TextOutput(str(path), existing="refuse", incremental=True)
    first.open()
    first.write("line\n")
    second = TextOutput(str(path), existing="replace", incremental=True)
    with pytest.raises(InputError, match="another run is writing it"):
        second.open()
    second.discard()
    first.write("another\n")
    first.keep()
    assert path.read_text() == "line\nanother\n"


@pytest.mark.parametrize("content", [None, "kept\n"])
def test_a_run_that_one_output_refuses_changes_no_other(tmp_path, content):
    rows, lines = tmp_path / "a.csv", tmp_path / "a.jsonl"
    if content is not None:
        rows.write_text(content)
    first = TextOutput(str(lines), existing="refuse", incremental=True)
    first.open()
    sinks = [BoxRows(str(rows), existing="replace"), JsonLines(str(lines), existing="replace")]
    progress = Progress(is_wanted=False, as_line=False)
    with (
        pytest.raises(InputError, match=r"a\.jsonl: another run is writing it"),
        _run._Outputs(sinks, {}, [], progress, Interrupts()).complete(),
    ):
        pass
    first.keep()
    assert (rows.read_text() if rows.exists() else None) == content


def test_other_hard_links_of_a_file_that_is_replaced_are_kept(tmp_path):
    (tmp_path / "photo.jpg").write_text("photo")
    (tmp_path / "target.csv").hardlink_to(tmp_path / "photo.jpg")
    (tmp_path / "a.csv").symlink_to("target.csv")
    first, second = (
        TextOutput(str(tmp_path / "a.csv"), existing="replace", incremental=True) for _ in range(2)
    )
    first.open()
    first.write("line\n")
    with pytest.raises(InputError, match="another run is writing it"):
        second.open()
    second.discard()
    first.keep()
    assert (tmp_path / "target.csv").read_text() == "line\n"
    assert (tmp_path / "a.csv").is_symlink()
    assert (tmp_path / "photo.jpg").read_text() == "photo"


@pytest.mark.parametrize(
    ("has_result", "is_complete"), [(False, False), (True, False), (False, True)]
)
def test_a_new_file_without_results_is_removed(tmp_path, has_result, is_complete):
    path = tmp_path / "a.csv"
    output = TextOutput(str(path), existing="refuse", incremental=True)
    output.open()
    output.write("head\n", is_result=False)
    if has_result:
        output.write("")  # of a picture without boxes
    if is_complete:
        output.keep()
    output.discard()
    assert path.exists() == (has_result or is_complete)


def test_a_link_to_a_missing_file_is_written_with_overwrite(tmp_path):
    link = tmp_path / "a.csv"
    link.symlink_to("target.csv")
    output = TextOutput(str(link), existing="replace", incremental=True)
    output.open()
    output.write("line\n")
    output.keep()
    assert (tmp_path / "target.csv").read_text() == "line\n"
    assert link.is_symlink()


@pytest.mark.skipif(not locks.EXIST, reason="needs locks of files")
def test_a_file_that_another_run_has_replaced_meanwhile_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_text('{"path": "a.jpg", "error": "x"}\n{"path": "b.jpg", "detections": []}\n')
    first, second = (JsonLines(str(path), existing="resume") for _ in range(2))
    first.lock()
    second.lock()
    seen = []
    real = EarlierLines._locked

    @contextmanager
    def late(earlier):
        with real(earlier):
            if earlier is first._earlier:  # the other run begins while this one writes its copy
                with pytest.raises(InputError, match="another run is writing it"):
                    second.begin({}, ())
                seen.append(True)
            yield

    monkeypatch.setattr(EarlierLines, "_locked", late)
    first.begin({}, ())
    assert seen
    with pytest.raises(InputError, match="another run is writing it"):
        second.begin({}, ())
    first.finish()
    second.discard()
