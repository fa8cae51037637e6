"""tools/bench_cuda.py: the document that it writes; host times are meaningless."""

import json
import os
from types import SimpleNamespace

import pytest

from engine.backends.base import Peaks
from engine.errors import EngineError
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tools import bench_cuda

PEER = """
import json, sys
variants = []
for line in sys.stdin:
    question = json.loads(line)
    answer = {"peer": "a peer 1.0"} if "about" in question else {}
    variants = question.get("variants", variants)
    if "time" in question:
        assert question["time"] in variants
        answer = {"ms": [2.0 - ("compile" in question["time"])] * question["repeats"]}
    print(json.dumps(answer), flush=True)
"""


NVIDIA_SMI = """#!/bin/sh
case "$3" in
*uuid*) echo "GPU of $2" ;;
*) echo 570.1 ;;
esac
"""


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A program of this name, which tells of a card what its address is."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return program


def peaks_of(precision):
    """A card that memory bounds."""
    return Peaks(1e18, 1e9, {"float32": 4, "float16": 2}[precision], 4, 2e18)


@pytest.mark.slow
@needs_gxx
def test_a_row_for_each_precision_and_batch(
    tiny_detector, tmp_path, monkeypatch, capsys, nvidia_smi
):
    (tmp_path / "peer.py").write_text(PEER)
    words = [f"{tiny_detector.cfg}@16", "--batches", "1,2", "--precisions", "float32,float16"]
    files = ["--peer", str(tmp_path / "peer.py"), "--json", str(tmp_path / "rows.json")]
    compiled = ["--compile", "net", "--ahead", "2"]
    monkeypatch.setattr(bench_cuda, "bus_of", lambda device: "0000:01:00.0")
    words += ["--repeats", "1"]

    def printed(*more):
        with on_tape(HostDevice()) as device:
            monkeypatch.setattr(bench_cuda, "open_device", lambda name: device)
            monkeypatch.setattr(device, "peaks", peaks_of)
            assert bench_cuda.main([*words, *files, *more]) == 0
        return capsys.readouterr().out.splitlines()

    assert len(printed()) == 4
    assert len(printed("--resume", *compiled)) == 2 + 2  # compiled ahead, rows without its times
    assert not printed("--resume")  # every row was there
    document = json.loads((tmp_path / "rows.json").read_text())
    rows = document["rows"]
    assert [(row["precision"], row["batch"]) for row in rows] == [
        *(("float32", 1), ("float32", 2), ("float16", 1), ("float16", 2))
    ]
    assert {row["network"] for row in rows} == {"net@16"}
    assert rows[1]["peers_ms"] == {bench_cuda.GRAPH: 2}
    assert rows[2]["peers_ms"] == {bench_cuda.GRAPH: 2, bench_cuda.COMPILE: 1}
    assert all(row["engine_ms"] > 0 for row in rows)
    assert all(row["boxes_ms"] > 0 for row in rows)
    single, double, single_halves, _ = (row["bound_ms"] for row in rows)
    assert 0 < single < double
    assert single_halves == pytest.approx(single / 2)
    assert document["peer"] == "a peer 1.0"
    assert len(document["commands"]) == 2


ROW = {
    "network": "a@32",
    "precision": "float32",
    "batch": 1,
    "engine_ms": 2.0,
    "ready_s": 1.0,
    "peers_ms": {},
}
CARD = "NVIDIA H200, driver for CUDA 13.0"


@pytest.mark.parametrize(
    ("peers_ms", "told"), [({"it": 4.0}, "it    4.000 ms: 2.00x"), ({}, "ms        500/s  (")]
)
def test_speed_up_is_printed_if_there_is_a_peer(peers_ms, told):
    row = {**ROW, "peers_ms": peers_ms}
    assert told in bench_cuda.format_row({**row, "boxes_ms": None})
    assert "to boxes    3.000 ms" in bench_cuda.format_row({**row, "boxes_ms": 3.0})


def opened(path, commit, *more, bus="0000:01:00.0"):
    words = ["a.cfg", "--json", str(path), "--commit", commit, *more]
    return bench_cuda.Document.open(bench_cuda.parse(words), words, CARD, bus)


def test_a_second_run_adds_its_rows_and_replaces_those_it_repeats(tmp_path, nvidia_smi):
    path = tmp_path / "rows.json"
    for ms, batch in (2.0, 1), (3.0, 8), (1.0, 1):
        opened(path, "abc1234").add({**ROW, "batch": batch, "engine_ms": ms})
    document = json.loads(path.read_text())
    assert (document["card"], document["cuda"]) == ("NVIDIA H200", "13.0")
    assert [(row["batch"], row["engine_ms"]) for row in document["rows"]] == [(8, 3.0), (1, 1.0)]
    assert len(document["commands"]) == 3


def test_a_document_of_another_commit_is_not_added_to(tmp_path):
    path = tmp_path / "rows.json"
    opened(path, "abc1234").add(ROW)
    with pytest.raises(EngineError, match="commit: expected def5678, got abc1234"):
        opened(path, "def5678")


@pytest.mark.parametrize(
    "content",
    ['{"card": ', "[]", '{"card": "A card", "rows": []}', "\xff", pytest.param(None, id="row")],
)
def test_a_file_that_is_no_document_is_one_error(tmp_path, content):
    path = tmp_path / "rows.json"
    opened(path, "abc1234").add({"engine_ms": 2.0, **dict.fromkeys(bench_cuda.Document.FIELDS, 1)})
    if content is not None:
        path.write_text(content, encoding="latin-1")
    with pytest.raises(EngineError, match=r"rows\.json: expected the rows of an earlier run"):
        opened(path, "abc1234")


def test_a_document_is_replaced_and_not_written_over(tmp_path):
    path = tmp_path / "rows.json"
    document = opened(path, "abc1234")
    document.add(ROW)
    before = path.read_text()
    with path.open() as earlier:
        document.add({**ROW, "batch": 8})
        assert earlier.read() == before
    assert [row["batch"] for row in json.loads(path.read_text())["rows"]] == [1, 8]


def test_a_document_of_another_card_is_only_replaced_to_resume_and_is_kept(tmp_path, nvidia_smi):
    path = tmp_path / "rows.json"
    opened(path, "abc1234").add(ROW)
    before = [path.read_bytes()]
    with pytest.raises(EngineError, match=r"another card .*GPU of 0000:02:00\.0.* add --resume"):
        opened(path, "abc1234", bus="0000:02:00.0")
    for bus in ("0000:02:00.0", "0000:03:00.0"):
        document = opened(path, "abc1234", "--resume", "--repeats", "8", bus=bus)
        assert (document.content["uuid"], document.content["rows"]) == (f"GPU of {bus}", [])
        assert path.read_bytes() == before[-1]  # until there is a row
        document.add(ROW)
        document.add({**ROW, "batch": 8})
        before.append(path.read_bytes())
    copies = sorted(tmp_path.glob("rows.earlier-*.json"))
    assert [each.read_bytes() for each in copies] == before[:2]
    document = opened(path, "abc1234", "--resume", "--repeats", "8", bus=bus)
    assert document.has(("a@32", "float32", 1))


def test_a_card_that_nvidia_smi_does_not_name_is_another(tmp_path, nvidia_smi):
    path = tmp_path / "rows.json"
    nvidia_smi.write_text("#!/bin/sh\ncase $3 in *uuid*) exit 1; esac; echo 570.1\n")
    opened(path, "abc1234").add(ROW)
    with pytest.raises(EngineError, match="which nvidia-smi does not name"):
        opened(path, "abc1234")
    assert not opened(path, "abc1234", "--resume").content["rows"]


def test_the_card_that_is_open_is_asked_for(monkeypatch):
    card = SimpleNamespace(pci_bus_id=lambda: "0000:03:00.0")
    driver = SimpleNamespace(Device={2: card}.__getitem__)
    monkeypatch.setattr(bench_cuda.pycuda_loader, "load", lambda: driver)
    assert bench_cuda.bus_of("cuda:2") == "0000:03:00.0"


def test_a_document_of_other_repeats_is_not_added_to(tmp_path, nvidia_smi):
    path = tmp_path / "rows.json"
    opened(path, "abc1234").add(ROW)
    with pytest.raises(EngineError, match="repeats: expected 8, got 200"):
        opened(path, "abc1234", "--repeats", "8")


def test_a_peer_that_died_before_a_question_is_one_error(tmp_path):
    (tmp_path / "peer.py").write_text("raise SystemExit(3)")
    arguments = bench_cuda.parse(["a.cfg", "--peer", str(tmp_path / "peer.py")])
    with bench_cuda.Peer(arguments) as peer:
        peer._process.wait()
        with pytest.raises(EngineError, match="the peer ended with status 3"):
            peer.ask({"about": True})


def test_programs_are_timed_in_turn():
    calls = []

    def timer(name, ms):
        return lambda repeats: calls.append((name, repeats)) or [ms] * repeats

    slow = bench_cuda.LONGEST_MS / 4
    timers = {"engine": timer("engine", 1.0), "peer": timer("peer", slow)}
    assert bench_cuda.measure_in_turn(timers, 40) == {"engine": 1.0, "peer": slow}
    assert calls[2:] == [("engine", 10), ("peer", 1)] * bench_cuda.ROUNDS
