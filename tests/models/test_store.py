"""The weights folder: downloads, offline use, trust on first use, concurrency, errors."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from engine import bundled
from engine.errors import DownloadError, InputError
from engine.models import file_lock, registry, store
from engine.models.download import RetryPolicy
from engine.models.registry import Model
from tests import needs
from tests.models import misbehaving_server as answers
from tests.models.misbehaving_server import BODY

ROOT = Path(__file__).parents[2]
SHA256 = hashlib.sha256(BODY).hexdigest()
PATIENCE = RetryPolicy(attempts=3, backoff_seconds=0.01, stall_seconds=5)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINE_CACHE", str(tmp_path))
    monkeypatch.delenv("ENGINE_OFFLINE", raising=False)
    return tmp_path / "models"


def model_at(*addresses, **hashes):
    return Model(
        name="net",
        task="detector",
        input=416,
        file="net.weights",
        bytes=len(BODY),
        hashes=hashes,
        urls=addresses,
        names_file=None,
        note="" if addresses else "nobody publishes weights",
    )


def pull(model):
    return store.pull(model, policy=PATIENCE, allow_http=True)


def test_a_good_file_is_fetched_once(server, folder):
    server.answers["/net.weights"] = [answers.ranged]
    model = model_at(server.address(), sha256=SHA256)
    for _ in range(2):
        assert pull(model) == folder / "net.weights"
    assert len(server.requests) == 1
    assert store.verify(model) == "verified"


@pytest.mark.parametrize("is_offline", ["0", "1"])
@pytest.mark.parametrize("is_published", [True, False])
def test_a_file_of_another_size_stays(server, folder, monkeypatch, is_offline, is_published):
    monkeypatch.setenv("ENGINE_OFFLINE", is_offline)
    folder.mkdir()
    (folder / "net.weights").write_bytes(b"mine")
    told = f"net.weights: expected {len(BODY)} bytes, got 4. Delete it, or name it with --weights"
    with pytest.raises(DownloadError, match=told):
        pull(model_at(*[server.address()] * is_published, sha256=SHA256))
    assert (folder / "net.weights").read_bytes() == b"mine"


def test_bundled_file_takes_precedence(tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "folder", lambda name: tmp_path / name)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "net.weights").write_bytes(BODY)
    assert pull(model_at()) == tmp_path / "weights" / "net.weights"


@pytest.mark.parametrize("value", ["1", "true"])
def test_offline_variable_prevents_requests(server, monkeypatch, value):
    monkeypatch.setenv("ENGINE_OFFLINE", value)
    with pytest.raises(DownloadError, match="ENGINE_OFFLINE forbids"):
        pull(model_at(server.address()))
    assert not server.requests


def test_unpublished_weights_can_be_placed_by_hand(folder):
    with pytest.raises(DownloadError, match=r"nobody publishes weights. Put the file at .*models"):
        pull(model_at())
    folder.mkdir()
    (folder / "net.weights").write_bytes(BODY)
    assert pull(model_at()) == folder / "net.weights"


def test_weights_without_any_hash_are_compared_with_nothing(folder):
    folder.mkdir()
    (folder / "net.weights").write_bytes(BODY)
    assert store.verify(model_at()) == "unknown"


def test_sha256_of_the_first_download_is_recorded(server, folder):
    server.answers["/net.weights"] = [answers.ranged]
    model = model_at(server.address())
    pull(model)
    assert store.verify(model) == "trusted"
    assert (folder / "known.json").stat().st_mode == (folder / "net.weights").stat().st_mode
    known = json.loads((folder / "known.json").read_text())
    assert known == {"net.weights": {"sha256": SHA256, "address": server.address()}}


def test_first_use_is_said_once_with_the_way_to_pin(server, caplog):
    server.answers["/net.weights"] = [answers.ranged]
    for _ in range(2):
        pull(model_at(server.address())).unlink()
    (record,) = caplog.records
    assert f"this first download is trusted: {SHA256}" in record.getMessage()
    assert "To pin a hash before a download, enter it in" in record.getMessage()


def test_nothing_is_said_about_a_published_hash(server, caplog):
    server.answers["/net.weights"] = [answers.ranged]
    pull(model_at(server.address(), sha256=SHA256))
    assert not caplog.records


def test_a_hash_that_was_pinned_by_hand_is_enforced(server, folder, caplog):
    server.answers["/net.weights"] = [answers.ranged]
    folder.mkdir()
    (folder / "known.json").write_text(json.dumps({"net.weights": {"sha256": "0" * 64}}))
    with pytest.raises(DownloadError, match="sha256: expected 000"):
        pull(model_at(server.address()))
    assert not caplog.records


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_pinned_hash_may_be_in_capitals(server, folder, encoding):
    """PowerShell writes hashes in capitals, and Notepad saves files with a BOM."""
    server.answers["/net.weights"] = [answers.ranged]
    folder.mkdir()
    pinned = json.dumps({"net.weights": {"sha256": SHA256.upper()}})
    (folder / "known.json").write_text(pinned, encoding=encoding)
    assert pull(model_at(server.address())).is_file()


def test_a_file_that_cannot_be_read_is_left_to_where_it_is_loaded(folder, monkeypatch):
    def refused(path, algorithm):
        raise PermissionError(errno.EACCES, "Permission denied")

    folder.mkdir()
    (folder / "net.weights").write_bytes(BODY)
    monkeypatch.setattr(store, "digest", refused)
    assert pull(model_at(sha256=SHA256)) == folder / "net.weights"


def test_a_record_of_checks_does_not_wait_for_a_lock(folder):
    folder.mkdir()
    (folder / "net.weights").write_bytes(BODY)
    with file_lock.hold(folder / "checked.json.lock"):
        pull(model_at(sha256=SHA256))
    assert not (folder / "checked.json").exists()


def test_different_file_later_is_noticed(server, folder):
    server.answers["/net.weights"] = [answers.ranged, partial(answers.ranged, body=BODY[::-1])]
    model = model_at(server.address())
    pull(model).unlink()
    with pytest.raises(DownloadError, match=f"sha256: expected {SHA256}"):
        pull(model)
    (folder / "net.weights").write_bytes(BODY[::-1])
    with pytest.raises(DownloadError, match=f"sha256: expected {SHA256}.*Delete it"):
        store.verify(model)


@pytest.mark.parametrize("text", ["{", "[]", '{"net.weights": 1}', "[" * 100_000])
def test_damaged_records_are_reported(folder, text):
    folder.mkdir()
    (folder / "known.json").write_text(text)
    with pytest.raises(DownloadError, match=r"known.json: .*Delete it to start over"):
        pull(model_at("https://127.0.0.1/x"))


def test_verify_reports_missing_damaged_and_truncated_files(folder):
    model = model_at(sha256=SHA256)
    assert store.verify(model) == "missing"
    folder.mkdir()
    (folder / "net.weights").write_bytes(BODY[::-1])
    with pytest.raises(DownloadError, match=f"sha256: expected {SHA256}"):
        store.verify(model)
    (folder / "net.weights").write_bytes(BODY[:9])
    with pytest.raises(DownloadError, match=f"expected {len(BODY)} bytes, got 9"):
        store.verify(model)


def hashing(monkeypatch):
    """Return the files that are hashed from now on."""
    hashed = []
    real = store.digest
    monkeypatch.setattr(
        store, "digest", lambda path, kind: hashed.append(path.name) or real(path, kind)
    )
    return hashed


@pytest.mark.parametrize("is_published", [True, False])
def test_a_download_that_was_changed_is_not_used(server, folder, is_published):
    server.answers["/net.weights"] = [answers.ranged]
    model = model_at(server.address(), **{"sha256": SHA256} if is_published else {})
    pull(model)
    (folder / "net.weights").write_bytes(BODY[::-1])
    told = f"net.weights: sha256: expected {SHA256}, got .* Delete it, so that it is downloaded"
    for _ in range(2):
        with pytest.raises(DownloadError, match=told):
            pull(model)


def test_a_file_that_has_not_changed_is_hashed_once(folder, monkeypatch):
    hashed = hashing(monkeypatch)
    folder.mkdir()
    (folder / "net.weights").write_bytes(BODY)
    for _ in range(3):
        pull(model_at(sha256=SHA256))
    assert hashed == ["net.weights"]
    os.utime(folder / "net.weights", ns=(1, 1))
    pull(model_at(sha256=SHA256))
    assert len(hashed) == 2


def test_a_download_is_not_hashed_again(server, monkeypatch):
    server.answers["/net.weights"] = [answers.ranged]
    model = model_at(server.address(), sha256=SHA256)
    pull(model)
    hashed = hashing(monkeypatch)
    pull(model)
    assert not hashed


def test_a_hash_that_changes_is_compared_anew(folder):
    folder.mkdir()
    (folder / "net.weights").write_bytes(BODY)
    pull(model_at(sha256=SHA256))
    with pytest.raises(DownloadError, match=r"sha256: expected 000.*Delete it or name it"):
        pull(model_at(sha256="0" * 64))


def test_a_file_that_verify_refused_is_compared_at_its_next_use(folder):
    folder.mkdir()
    weights = folder / "net.weights"
    weights.write_bytes(BODY)
    pull(model_at(sha256=SHA256))
    before = weights.stat()
    weights.write_bytes(BODY[::-1])
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    for use in (store.verify, pull):
        with pytest.raises(DownloadError, match=f"sha256: expected {SHA256}"):
            use(model_at(sha256=SHA256))


@pytest.mark.parametrize("text", ["{", "[]", '{"net.weights": 1}', "[" * 100_000])
def test_a_damaged_record_of_checks_costs_another_check(folder, monkeypatch, text):
    folder.mkdir()
    (folder / "net.weights").write_bytes(BODY)
    (folder / "checked.json").write_text(text)
    hashed = hashing(monkeypatch)
    for _ in range(2):
        pull(model_at(sha256=SHA256))
    assert hashed == ["net.weights"]


@needs.ordinary_user
def test_a_read_only_folder_is_hashed_every_time(folder, monkeypatch):
    folder.mkdir()
    (folder / "net.weights").write_bytes(BODY)
    folder.chmod(0o500)
    hashed = hashing(monkeypatch)
    for _ in range(2):
        pull(model_at(sha256=SHA256))
    assert len(hashed) == 2


@pytest.mark.parametrize("blocked", ["file", "folder"])
def test_folder_that_cannot_be_created_is_reported(server, tmp_path, monkeypatch, blocked):
    place = tmp_path / "taken"
    place.write_text("a file")
    monkeypatch.setenv("ENGINE_CACHE", str(place if blocked == "folder" else place / "below"))
    with pytest.raises(DownloadError, match=r"cannot be written: .*ENGINE_CACHE can name another"):
        pull(model_at(server.address()))


@needs.ordinary_user
def test_read_only_folder_is_reported(server, folder):
    folder.mkdir(mode=0o500)
    with pytest.raises(DownloadError, match="cannot be written: Permission denied"):
        pull(model_at(server.address()))


CHILD = """
import sys
from engine.models.registry import Model
from engine.models.store import pull
address, size, sha256 = sys.argv[1:]
model = Model("net", "detector", 416, "net.weights", int(size), {"sha256": sha256}, (address,),
              None, "")
print(pull(model, allow_http=True))
"""


def start_pull(server):
    command = [sys.executable, "-c", CHILD, server.address(), str(len(BODY)), SHA256]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_two_processes_download_once(server, folder):
    def slow(handler):
        time.sleep(0.5)
        answers.ranged(handler)

    server.answers["/net.weights"] = [slow]
    children = [start_pull(server), start_pull(server)]
    outputs = [child.communicate(timeout=30)[0] for child in children]
    assert outputs == [f"{folder / 'net.weights'}\n"] * 2
    assert len(server.requests) == 1
    assert (folder / "net.weights").read_bytes() == BODY


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_killed_process_leaves_its_partial_file_and_no_lock(server, folder):
    server.answers["/net.weights"] = [answers.stall_after(100_000, server), answers.ranged]
    child = start_pull(server)
    part = folder / "net.weights.part"
    wait_for(lambda: part.exists() and part.stat().st_size > 0)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=10)
    begun = part.stat().st_size
    pull(model_at(server.address(), sha256=SHA256))
    assert server.asked_ranges() == [None, f"bytes={begun}-"]
    assert (folder / "net.weights").read_bytes() == BODY


def test_locate_gives_the_files_of_a_model(folder, monkeypatch):
    model = replace(registry.find("yolov3-tiny"), hashes={})
    monkeypatch.setattr(registry, "models", lambda: {model.name: model})
    folder.mkdir()
    with (folder / model.file).open("wb") as file:
        file.truncate(model.bytes)
    located = store.locate("yolov3-tiny")
    assert located.weights == folder / model.file
    assert located.cfg.name == "yolov3-tiny.cfg"
    assert located.names.name == "coco.names"


def test_an_old_header_is_four_bytes_shorter(folder):
    model = replace(registry.find("yolov3-tiny"), hashes={})
    folder.mkdir()
    with (folder / model.file).open("wb") as file:
        file.truncate(model.bytes - 4)
    assert store.path(model)


@pytest.mark.parametrize("name", ["yolov4-tinny", "../yolov4", "/etc/passwd", "", "yolov4\n"])
def test_only_zoo_names_are_accepted(name):
    with pytest.raises(InputError, match=r"no model .* in the zoo"):
        store.locate(name)


def test_model_must_be_named_if_none_is_bundled(tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "_PACKAGE", tmp_path / "engine")
    with pytest.raises(InputError, match=r"no model named, .*See .*README\.md"):
        store.locate_default()


@pytest.mark.parametrize("name", ["yolov4-tny", "codes-larg"])
def test_a_misspelled_model_is_suggested(name):
    with pytest.raises(InputError, match=r"Did you mean '(yolov4-tiny|codes-large)'\?"):
        registry.find(name)
