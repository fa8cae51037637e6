"""Downloads from a local server that truncates, stalls, redirects and lies."""

import hashlib
import shutil
import socket
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from engine.errors import DownloadError
from engine.models.download import ExpectedFile, RetryPolicy, _Transfer, download
from tests.dripping_server import DRIPS
from tests.models import misbehaving_server as answers
from tests.models.misbehaving_server import BODY

SHA256 = hashlib.sha256(BODY).hexdigest()
PATIENCE = RetryPolicy(attempts=3, backoff_seconds=0.01, stall_seconds=0.3, min_stall_bytes=10_000)
OF_THE_SIZE = ExpectedFile((len(BODY), len(BODY) - 4))
OF_THE_HASH = ExpectedFile((len(BODY), len(BODY) - 4), {"sha256": SHA256})


@pytest.fixture
def target(tmp_path):
    return tmp_path / "net.weights"


def bring(server, target, expected=OF_THE_HASH, paths=("/net.weights",), **more):
    more = {"policy": PATIENCE, "allow_http": True, **more}
    return download([server.address(path) for path in paths], target, expected, **more)


def refused(server, target, *arguments, **more):
    """Download, expect a failure without a file, and return the message."""
    with pytest.raises(DownloadError) as caught:
        bring(server, target, *arguments, **more)
    assert not target.exists()
    message = str(caught.value)
    assert "\n" not in message
    assert target.name in message
    return message


@pytest.mark.parametrize("expected", [OF_THE_SIZE, OF_THE_HASH], ids=["size", "hash"])
@pytest.mark.parametrize(
    "answer",
    [answers.whole, answers.ranged, answers.chunked],
    ids=["whole", "ranged", "chunked"],
)
def test_a_good_file_arrives_whole_and_alone(server, target, answer, expected):
    server.answers["/net.weights"] = [answer]
    assert bring(server, target, expected) == server.address()
    assert target.read_bytes() == BODY
    assert [path.name for path in target.parent.iterdir()] == ["net.weights"]


def test_a_file_with_the_old_header_is_four_bytes_shorter(server, target):
    server.answers["/net.weights"] = [partial(answers.whole, body=BODY[4:])]
    bring(server, target, OF_THE_SIZE)
    assert target.read_bytes() == BODY[4:]


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "[bad"])
def test_invalid_address_is_one_error_line(server, target, monkeypatch, host):
    for problem in ("proxy", "redirect"):
        if problem == "proxy":
            monkeypatch.setenv("http_proxy", f"http://{host}:3128")
            monkeypatch.setenv("no_proxy", "")
        else:
            monkeypatch.undo()
            server.answers["/net.weights"] = [answers.redirect(f"https://{host}/x")]
        with pytest.raises(DownloadError) as caught:
            bring(server, target)
        assert "\n" not in str(caught.value)


def test_request_has_a_user_agent_and_asks_for_no_encoding(server, target):
    server.answers["/net.weights"] = [answers.whole]
    bring(server, target)
    ((_, headers),) = server.requests
    assert headers["User-Agent"].startswith("engine/")
    assert headers["Accept-Encoding"] == "identity"


def test_progress_counts_up_to_the_whole(server, target):
    server.answers["/net.weights"] = [answers.whole]
    seen = []
    bring(server, target, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (len(BODY), len(BODY))


@pytest.mark.parametrize("expected", [OF_THE_SIZE, OF_THE_HASH], ids=["size", "hash"])
def test_interrupted_transfer_is_resumed(server, target, expected):
    server.answers["/net.weights"] = [
        *(answers.cut_after(1000), answers.cut_after(50_000)),
        answers.ranged,
    ]
    bring(server, target, expected)
    assert target.read_bytes() == BODY
    assert server.asked_ranges() == [None, "bytes=1000-", "bytes=51000-"]


@pytest.mark.parametrize("missing", [1, 4])
def test_a_cut_just_before_the_end_is_noticed(server, target, missing):
    server.answers["/net.weights"] = [answers.cut_after(len(BODY) - missing), answers.ranged]
    bring(server, target, OF_THE_SIZE)
    assert target.read_bytes() == BODY


def test_a_server_without_ranges_sends_all_again(server, target):
    server.answers["/net.weights"] = [answers.cut_after(1000), answers.whole]
    bring(server, target)
    assert target.read_bytes() == BODY


def test_wrong_range_is_refused(server, target):
    server.answers["/net.weights"] = [
        *(answers.cut_after(1000), answers.another_part),
        answers.ranged,
    ]
    bring(server, target, OF_THE_SIZE)
    assert target.read_bytes() == BODY


def test_changed_file_is_sent_again(server, target):
    changed = bytes(len(BODY))
    server.answers["/net.weights"] = [
        answers.cut_after(1000),
        partial(answers.ranged, body=changed, tag='"two"'),
    ]
    bring(server, target, OF_THE_SIZE)
    assert target.read_bytes() == changed


def test_a_changed_file_does_not_go_on_from_the_bytes_of_the_old_one(server, target, monkeypatch):
    changed = bytes(len(BODY))
    again = partial(answers.ranged, body=changed, tag='"two"')
    server.answers["/net.weights"] = [answers.cut_after(1000), again, again]
    append = _Transfer._append
    starts = []

    def killed_at_the_second(self, response, deadline, start, total):
        starts.append(start)
        if len(starts) == 2:
            raise KeyboardInterrupt
        return append(self, response, deadline, start, total)

    monkeypatch.setattr(_Transfer, "_append", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        bring(server, target, OF_THE_SIZE)
    bring(server, target, OF_THE_SIZE)
    assert target.read_bytes() == changed


def test_parts_of_two_servers_are_mixed_only_if_the_hash_is_known(server, target):
    server.answers["/a"] = [answers.cut_after(1000), answers.status(404)]
    server.answers["/b"] = [answers.ranged]
    bring(server, target, OF_THE_HASH, ["/a", "/b"])
    assert server.asked_ranges("/b") == ["bytes=1000-"]
    target.unlink()
    server.answers["/a"] = [answers.cut_after(1000), answers.status(404)]
    bring(server, target, OF_THE_SIZE, ["/a", "/b"])
    assert server.asked_ranges("/b")[-1] is None
    assert target.read_bytes() == BODY


def test_corrupt_partial_file_costs_one_more_transfer(server, target):
    server.answers["/net.weights"] = [answers.ranged]
    target.with_name("net.weights.part").write_bytes(bytes(1000))
    bring(server, target)
    assert target.read_bytes() == BODY
    assert server.asked_ranges() == ["bytes=1000-", None]


@pytest.mark.parametrize("size", [len(BODY), len(BODY) - 4, len(BODY) + 9])
def test_complete_looking_partial_file_is_verified(server, target, size):
    server.answers["/net.weights"] = [answers.ranged]
    target.with_name("net.weights.part").write_bytes(bytes(size))
    bring(server, target)
    assert target.read_bytes() == BODY


def test_a_whole_file_whose_origin_is_lost_is_taken_by_its_hash(server, target):
    server.answers["/net.weights"] = [answers.status(416)]
    target.with_name("net.weights.part").write_bytes(BODY)
    sizes = len(BODY), len(BODY) + 4  # with headers of two lengths
    bring(server, target, ExpectedFile(sizes, OF_THE_HASH.hashes))
    assert target.read_bytes() == BODY
    assert not server.requests


@pytest.mark.parametrize("trouble", [500, 502, 503, 429, 408])
def test_server_error_is_retried(server, target, trouble):
    server.answers["/net.weights"] = [
        *(answers.status(trouble), answers.status(trouble)),
        answers.ranged,
    ]
    bring(server, target)
    assert len(server.requests) == 3


def test_number_of_retries_is_bounded(server, target):
    server.answers["/net.weights"] = [answers.status(500)]
    assert "500 Internal Server Error" in refused(server, target)
    assert len(server.requests) == PATIENCE.attempts


def test_the_next_address_is_tried(server, target):
    server.answers["/a"] = [answers.status(404)]
    server.answers["/b"] = [answers.ranged]
    assert bring(server, target, paths=["/a", "/b"]) == server.address("/b")
    assert len(server.requests) == 2, "404 is final"


FINAL = {
    "404": (answers.status(404), "404 Not Found"),
    "403": (answers.status(403), "403 Forbidden"),
    "many lines": (answers.status(410, "Gone for good"), "410 Gone for good"),
    "colours": (answers.status(410, "\x1b[31mGone\x07"), "410 \\x1b[31mGone\\x07"),
    "page": (answers.web_page, "sends a web page instead of the file"),
    "short": (answers.says_length(7), f"expected a file of {len(BODY)} bytes, got one of 7"),
    "long": (answers.says_length(len(BODY) + 1), f"got one of {len(BODY) + 1}"),
    "endless": (partial(answers.chunked, body=BODY * 2), f"sends more than {len(BODY)} bytes"),
    "encoded": (answers.encoded, "sends a Content-Encoding that was not requested"),
    "file": (
        answers.redirect("file:///etc/passwd"),
        "Redirection to url 'file:///etc/passwd' is not allowed",
    ),
    "ftp": (answers.redirect("ftp://127.0.0.1/x"), "expected an https: URL, got ftp:"),
    "http": (answers.redirect("http://example.com/x"), "expected an https: URL, got http:"),
    "nowhere": (answers.redirect("http://127.0.0.1.example.com/"), "got http:"),
    "circle": (answers.redirect("/net.weights"), "302"),
}


@pytest.mark.parametrize(("answer", "message"), FINAL.values(), ids=FINAL)
def test_refused_answer_leaves_no_file(server, target, answer, message):
    server.answers["/net.weights"] = [answer]
    assert message in refused(server, target)


def test_wrong_content_is_refused_by_its_hash(server, target):
    server.answers["/net.weights"] = [partial(answers.ranged, body=BODY[::-1])]
    assert f"sha256: expected {SHA256}, got" in refused(server, target)
    assert not list(target.parent.iterdir())


@pytest.mark.parametrize("algorithm", ["sha1", "md5"])
def test_weaker_hashes_are_used_if_there_is_no_sha256(server, target, algorithm):
    server.answers["/net.weights"] = [partial(answers.ranged, body=BODY[::-1])]
    wanted = hashlib.new(algorithm, BODY).hexdigest()
    expected = ExpectedFile((len(BODY),), {algorithm: wanted})
    assert f"{algorithm}: expected {wanted}" in refused(server, target, expected)


def test_chunked_answer_without_its_end_is_incomplete(server, target):
    server.answers["/net.weights"] = [partial(answers.chunked, ends=False)]
    refused(server, target)


def test_a_redirect_on_this_machine_is_followed(server, target):
    server.answers["/net.weights"] = [answers.redirect(server.address("/b"))]
    server.answers["/b"] = [answers.ranged]
    bring(server, target)
    assert target.read_bytes() == BODY


def test_plain_http_is_refused_unless_a_test_allows_it(server, target):
    assert "expected an https: URL, got http:" in refused(server, target, allow_http=False)
    assert not server.requests


@pytest.mark.parametrize("count", [0, 1000])
def test_stall_counts_as_an_interruption(server, target, count):
    server.answers["/net.weights"] = [answers.stall_after(count, server), answers.ranged]
    start = time.monotonic()
    bring(server, target)
    assert time.monotonic() - start < 5
    assert target.read_bytes() == BODY


def test_trickle_counts_as_an_interruption(server, target):
    server.answers["/net.weights"] = [answers.drip, answers.ranged]
    start = time.monotonic()
    bring(server, target)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("kind", ["headers", "chunk extension", "100 Continue"])
def test_an_answer_that_never_begins_is_given_up(dripping, target, kind):
    url = dripping(*DRIPS[kind])
    once = RetryPolicy(attempts=1, stall_seconds=0.4)
    start = time.monotonic()
    with pytest.raises(DownloadError, match="timed out"):
        download([url], target, OF_THE_HASH, policy=once, allow_http=True)
    assert time.monotonic() - start < 4


def test_refused_connection_is_reported(server, target):
    gone = "http://127.0.0.1:1/net.weights"
    with pytest.raises(DownloadError, match="Connection refused"):
        download([gone], target, OF_THE_HASH, policy=PATIENCE, allow_http=True)


def test_unknown_host_is_reported_at_once(target, monkeypatch):
    def fail(*arguments, **keywords):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", fail)
    start = time.monotonic()
    with pytest.raises(DownloadError, match="host name not found"):
        download(["https://no-such-host.invalid/x"], target, OF_THE_HASH)
    assert time.monotonic() - start < 5


def test_full_disk_is_reported_before_the_transfer(server, target, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("", (), {"free": 10}))
    message = refused(server, target)
    assert f"the disk is full: 10 bytes are free, {len(BODY)} are needed" in message
    assert not server.requests


def test_disk_that_fills_up_is_reported(server, target, monkeypatch):
    server.answers["/net.weights"] = [answers.ranged]

    def fail(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    assert "the disk is full: No space left on device. ENGINE_CACHE" in refused(server, target)


def test_proxy_from_the_environment_is_used(server, target, monkeypatch):
    address = "http://127.0.0.1:1/net.weights"
    server.answers[address] = [answers.ranged]
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", server.address(""))
    download([address], target, OF_THE_HASH, policy=PATIENCE, allow_http=True)
    assert target.read_bytes() == BODY


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Return a file with the key and the self-signed certificate of 127.0.0.1."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not on PATH. Install it, for example: apt install openssl")
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=local"
    command += f" -addext subjectAltName=IP:127.0.0.1 -keyout {file} -out {file}.cert"
    subprocess.run(command.split(), check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + Path(f"{file}.cert").read_bytes())
    return file


def test_https_accepts_trusted_certificates_only(server, target, certificate, monkeypatch):
    server.answers["/net.weights"] = [answers.ranged]
    server.encrypt(certificate)
    address = server.address().replace("http:", "https:")
    with pytest.raises(DownloadError, match=r"certificate: self.signed certificate"):
        download([address], target, OF_THE_HASH)
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.cert")
    assert download([address], target, OF_THE_HASH) == address
    assert target.read_bytes() == BODY


def test_repeated_failure_of_one_host_is_reported_once(server, target):
    server.answers.update({"/a": [answers.status(404)], "/b": [answers.status(404)]})
    message = refused(server, target, paths=("/a", "/b"))
    assert message.count("404 Not Found") == 1
