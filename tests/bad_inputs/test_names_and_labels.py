"""67 and 68: class names, and labels for evaluation."""

import shutil

import pytest

from engine import cli
from tests.bad_inputs.small import CONV, NET

THREE = NET + CONV.replace("6", "8") + "[yolo]\nclasses=3\nnum=1\nanchors=8,8\nmask=0\n"

NAMES = {
    "as many": (b"cat\ndog\ncow\n", None),
    "no last line end": (b"cat\ndog\ncow", None),
    "blank last lines": (b"cat\ndog\ncow\n\n \n", None),
    "CRLF": (b"cat\r\ndog\r\ncow\r\n", None),
    "byte order mark": (b"\xef\xbb\xbfcat\ndog\ncow\n", None),
    "the same twice": (b"cat\ncat\ncow\n", None),
    "blank between": (b"cat\n\ncow\n", None),
    "no UTF-8": (b"cat\n\xe9cole\ncow\n", None),
    "controls": (b"cat\n\x1b[31mred\x07\ncow\n", None),
    "shorter": (b"cat\ndog\n", "net.names: expected 3 names, one for each class of the network, g"),
    "longer": (b"cat\ndog\ncow\nowl\n", "net.names: expected 3 names"),
    "empty": (b"", "net.names: expected 3 names, one for each class of the network, got 0"),
    "binary": (b"cat\ndog\n\0\n", "net.names: expected lines of text, got binary data"),
    "a web page": (b"<!DOCTYPE html>\n<html>\n", "net.names: expected 3 names"),
}


@pytest.mark.parametrize(("content", "message"), NAMES.values(), ids=NAMES)
def test_67_names_match_or_are_refused(detect, file, content, message):
    path = file("net.names", content)
    status, line = detect("--names", str(path), "--thresh", "0", network=THREE)
    assert status == (3 if message else 0), line
    assert (message or "") in line


CONTROLS = ("\x1b[31mred", "bell\x07", "\u202egod", "next\x85line", "ok", "five", "six")


@pytest.mark.parametrize("command", ["detect", "evaluate", "classify"])
def test_67_controls_in_names_do_not_reach_the_terminal(
    tiny_detector, tiny_classifier, picture, file, capsys, command
):
    model = tiny_classifier if command == "classify" else tiny_detector
    count = 6 if command == "classify" else 3
    names = file("net.names", "\n".join(CONTROLS[:count]).encode())
    file("street.txt", b"0 .5 .5 .9 .9\n1 .4 .4 .8 .8\n2 .6 .6 .7 .7\n")
    more = [] if command == "classify" else ["--threshold", "0", "--nms", "1"]
    source = str(picture.parent if command == "evaluate" else picture)
    options = [*model.options, "--names", str(names)]
    assert cli.main([command, *options, *more, source]) == 0
    out = capsys.readouterr().out
    assert r"\x1b[31mred" in out
    assert out.replace("\n", "").isprintable()


LABELS = {
    "good": (b"0 0.5 0.5 0.2 0.2\n", 0),
    "empty, a picture without objects": (b"", 0),
    "no file": (None, 0),
    "CRLF and blank lines": (b"\r\n0 .5 .5 .2 .2\r\n\r\n", 0),
    "words": (b"cat on a mat here\n", 1),
    "too few columns": (b"0 0.5 0.5 0.2\n", 1),
    "too many columns": (b"0 0.5 0.5 0.2 0.2 0.9\n", 1),
    "class too large": (b"3 0.5 0.5 0.2 0.2\n", 1),
    "class negative": (b"-1 0.5 0.5 0.2 0.2\n", 1),
    "class enormous": (b"9" * 5000 + b" 0.5 0.5 0.2 0.2\n", 1),
    "pixels": (b"0 320 240 100 100\n", 1),
    "outside": (b"0 1.7 0.5 0.1 0.1\n", 1),
    "NaN": (b"0 nan 0.5 0.2 0.2\n", 1),
    "infinite": (b"0 0.5 0.5 inf 0.2\n", 1),
    "no area": (b"0 0.5 0.5 0 0.2\n", 1),
    "negative area": (b"0 0.5 0.5 -0.2 0.2\n", 1),
    "binary": (b"\0\1\2\n", 1),
}


@pytest.mark.parametrize("kind", LABELS)
def test_68_labels_are_read_or_reported(detect, picture, tmp_path, capsys, kind):
    assert detect(network=THREE) == (0, "")  # writes the network and its weights
    folder = tmp_path / "set"
    folder.mkdir()
    for name in ("a", "b"):
        shutil.copy(picture, folder / f"{name}.png")
    (folder / "b.txt").write_bytes(b"1 0.4 0.4 0.2 0.3\n")
    content, problems = LABELS[kind]
    if content is not None:
        (folder / "a.txt").write_bytes(content)
    files = ["--cfg", str(tmp_path / "net.cfg"), "--weights", str(tmp_path / "net.weights")]
    status = cli.main(["evaluate", *files, "--device", "cpu", "--threads", "1", str(folder)])
    said = capsys.readouterr()
    assert status in (0, 1), said.err
    assert "Traceback" not in said.err
    assert all(len(line) < 500 for line in said.err.splitlines())
    told = [line for line in said.err.splitlines() if "a.txt" in line]
    assert bool(told) == bool(problems), said.err
