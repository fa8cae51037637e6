from __future__ import annotations

import os
import socket
import time

import pytest

from engine.darknet import network_limits
from engine.darknet.cfg import parse, read
from engine.errors import ConfigError
from tests import needs

TEXT = "[net]\nwidth=4\n\n# a comment\n[convolutional]\nfilters=2\nsize = 3\n"


def flat(sections):
    return [(each.name, [(o.key, o.value) for o in each.options]) for each in sections]


EXPECTED = [("net", [("width", "4")]), ("convolutional", [("filters", "2"), ("size", "3")])]


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        TEXT.rstrip("\n").encode(),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r").encode(),
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.encode("utf-16"),
        TEXT.replace("a comment", "gr\u00f6\u00dfer").encode("latin-1"),
        TEXT.replace("a comment", "\u6ce8\u91ca").encode("gbk"),
        TEXT.replace("a comment", "\u6ce8\u91ca").encode(),
        TEXT.replace("[net]", "  [ net ] # first").encode(),
        TEXT.replace("size = 3", "\tsi ze\t=\t3").encode(),
        TEXT.replace("# a comment", "   ; a comment").encode(),
    ],
    ids=[
        *("plain", "no last newline", "crlf", "lone cr", "bom", "utf-16", "latin-1", "gbk"),
        *("utf-8", "spaces in a heading", "spaces in an option", "indented comment"),
    ],
)
def test_text_is_read_in_any_encoding_and_spacing(tmp_path, data):
    path = tmp_path / "net.cfg"
    path.write_bytes(data)
    assert flat(read(path)) == EXPECTED


def test_sections_and_options_have_line_numbers():
    net, convolutional = parse(TEXT)
    assert (net.line, net.options[0].line) == (1, 2)
    assert (convolutional.line, [each.line for each in convolutional.options]) == (5, [6, 7])


def test_first_of_two_equal_keys_wins():
    (section,) = parse("[net]\nwidth=4\nwidth=5\n")
    assert section.first["width"].value == "4"


def test_an_option_without_a_value_is_ignored_with_a_warning(caplog):
    (section,) = parse("[net]\nwidth=\nwidth=5\n", name="a.cfg")
    assert section.first["width"].value == "5"
    assert caplog.messages == ["a.cfg:2: 'width=' without a value is ignored"]


@pytest.mark.slow
def test_a_flood_of_options_without_a_value_is_counted_only(caplog):
    parse("[net]\n" + "".join(f"k{number}=\n" for number in range(290_000)), name="a.cfg")
    assert len(caplog.messages) == 11
    assert caplog.messages[-1] == "a.cfg: 289990 more options without a value"


def test_a_value_keeps_what_follows_its_first_equals_sign():
    (section,) = parse("[net]\npolicy=a=b#c\n")
    assert section.first["policy"].value == "a=b#c"


@pytest.mark.parametrize(
    ("item", "text", "message"),
    [
        (1, "", "net.cfg: expected a network, got no section at all"),
        (2, "# one\n; two\n\n", "net.cfg: expected a network, got no section at all"),
        (
            3,
            "\nwidth=4\n[net]\n",
            "net.cfg:2: expected [net] before the first option, got 'width=4'",
        ),
        (6, "[net]\n[conv\n", "net.cfg:2: expected [section], got '[conv'"),
        (6, "[net]\n[]\n", "net.cfg:2: expected [section], got '[]'"),
        (6, "[net]\n[conv]size=1\n", "net.cfg:2: expected [section], got '[conv]size=1'"),
        (6, "[\x1b[31m]\n", "net.cfg:1: expected [section], got '[\\x1b[31m]'"),
        (7, "[net]\nwidth\n", "net.cfg:2: [net]: expected key=value, got 'width'"),
        (8, "[net]\n=4\n", "net.cfg:2: [net]: expected key=value, got '=4'"),
        (12, "[net]\nwi\0dth=4\n", "net.cfg: expected text, got binary data. Is it the .weights f"),
        (14, "<!DOCTYPE html>\n<html>", "net.cfg: expected a network, got a web page."),
        (14, "\n\n <html>", "net.cfg: expected a network, got a web page."),
    ],
)
def test_a_damaged_text_is_refused_with_its_line(item, text, message):
    with pytest.raises(ConfigError) as caught:
        parse(text, name="net.cfg")
    assert str(caught.value).startswith(message), item
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[net]\n" + "x" * 10**7, "expected key=value, got 'xxx"),
        ("[" + "x" * 10**7 + "]", "expected [section], got '[xxx"),
        ("[a]\n" * (network_limits.SECTIONS + 2), f"more than {network_limits.SECTIONS} sections"),
        ("\n" * (network_limits.LINES + 1), f"expected at most {network_limits.LINES} lines"),
    ],
    ids=["long line", "long name", "many sections", "many lines"],
)
def test_item_13_a_huge_text_is_refused_quickly_and_briefly(text, message):
    start = time.process_time()
    with pytest.raises(ConfigError) as caught:
        parse(text, name="net.cfg")
    assert time.process_time() - start < 10
    assert message in str(caught.value)
    assert len(str(caught.value)) < 200


def test_item_13_a_huge_file_is_refused_unread(tmp_path):
    path = tmp_path / "net.cfg"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ConfigError, match="expected at most 16 MiB, got more"):
        read(path)


def test_item_10_damaged_utf16_is_refused(tmp_path):
    path = tmp_path / "net.cfg"
    path.write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(ConfigError, match=r"expected text, got damaged UTF-16"):
        read(path)


def odd_files(folder):
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "dangling").symlink_to(folder / "nowhere")
    (folder / "loop").symlink_to(folder / "loop")
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.path.relpath(folder / "socket"))
    return server


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pipe", "expected a file, got a pipe"),
        ("folder", "expected a file, got a folder"),
        ("socket", "expected a file, got a socket"),
        ("/dev/zero", "expected a file, got a device"),
        ("dangling", "cannot be read: No such file"),
        ("loop", "cannot be read: Too many levels"),
        ("missing", "cannot be read: No such file"),
        ("nul\0byte", "embedded null"),
        ("x" * 5000, "cannot be read: File name too long"),
        ("two\nlines", "cannot be read: No such file"),
    ],
)
def test_item_15_odd_paths_are_refused_at_once(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    with odd_files(tmp_path), pytest.raises(ConfigError) as caught:
        read(tmp_path / name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@needs.ordinary_user
def test_item_15_an_unreadable_file_is_refused(tmp_path):
    path = tmp_path / "net.cfg"
    path.write_text(TEXT)
    path.chmod(0)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        read(path)


def test_item_11_path_may_hold_undecodable_bytes(tmp_path):
    path = tmp_path / os.fsdecode(b"net\xff\xe9.cfg")
    path.write_text("[net]\nwidth\n")
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert str(caught.value).encode().startswith(b"net\\udcff\\udce9.cfg:2: [net]: expected key")
