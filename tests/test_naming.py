"""Names of files, taken apart."""

import time
from itertools import product
from pathlib import PurePath

import pytest

from engine.files.naming import shown, shown_text, stem_and_suffix, without_login, without_logins

PARTS = ("a", ".", "..", "...tar", "a.jpg", ".jpg", "a..b", ".a.b", "x.tar.gz", "", "a b.JPG", "…")


def test_stem_and_suffix_are_those_of_pathlib() -> None:
    for count in (1, 2, 3):
        for parts in product(PARTS, repeat=count):
            path = PurePath("/".join(parts))
            assert stem_and_suffix("/".join(parts)) == (path.stem, path.suffix)


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("rtsp://me:secret@camera:554/1?x=2", "rtsp://camera:554/1?x=2"),
        ("rtsp://me:se@cr et@camera/a@2x.png", "rtsp://camera/a@2x.png"),
        ("rtsp://me:sec/ret@camera/1", "rtsp://camera/1"),
        ("rtsp://me:sec#r?e/t@camera/1", "rtsp://camera/1"),
        ("rtsp://me:/secret@camera/1", "rtsp://camera/1"),
        ("rtsp://me:#secret@camera/1", "rtsp://camera/1"),
        ("http://me@[::1]:80/a.jpg", "http://[::1]:80/a.jpg"),
        ("http://[::1]/a@2x.jpg", "http://[::1]/a@2x.jpg"),
        ("http://camera:80/a@2x.jpg", "http://camera:80/a@2x.jpg"),
        ("http://camera/a@2x.jpg", "http://camera/a@2x.jpg"),
        ("a:b@c.mp4", "a:b@c.mp4"),
        ("0", "0"),
    ],
)
def test_user_and_password_of_an_address_are_left_out(name: str, without: str) -> None:
    assert without_login(name) == shown(name) == without


@pytest.mark.parametrize(
    ("message", "without"),
    [
        ("http://host:12/x@h/", "http://host:12/x@h/"),
        ("http://a:S@host/T@h/", "http://host/T@h/"),
        ("rtsp:/me@corp.de:S@host/1: is none", "rtsp:/host/1: is none"),
        ("no command 'http://u:P@h'. See: x", "no command 'http://h'. See: x"),
        ("--nope=http://u:P@h: is unknown", "--nope=http://h: is unknown"),
        ("http:/u:P@h: cannot be read", "http:/h: cannot be read"),
        ("http://a/b.jpg,http://u:P@h", "http://a/b.jpg,http://h"),
        ("http://u:P@h/a@2x.jpg", "http://h/a@2x.jpg"),
        ("C:/a:b@c.jpg", "C:/a:b@c.jpg"),
    ],
)
def test_a_message_leaves_out_logins(message: str, without: str) -> None:
    assert without_logins(message) == without


def test_a_message_keeps_the_words_after_an_address() -> None:
    message = "rtsp://camera:80: expected a port. Write @ as %40"
    assert without_logins(message) == message


@pytest.mark.parametrize(
    "text",
    [
        "@" + "://a:b/" * 200_000,
        "://a:b/" * 200_000 + "@",
        "ab:/a:b/" * 200_000 + "@",
        "@" + "ab:/a:b/" * 200_000,
        "ab:/x@b/" * 200_000,
        "ab:/x:" * 200_000 + "@",
        "ab://" + "a" * 1_000_000 + "@",
    ],
)
def test_long_hostile_texts_are_searched_in_linear_time(text: str) -> None:
    start = time.monotonic()
    without_login(text)
    without_logins(text)
    assert time.monotonic() - start < 5


def test_the_text_of_a_code_is_no_address() -> None:
    for text in ("http://shop:8080/p/@id42", "ftp://anonymous:me@host/a"):
        assert shown_text(text) == text
