"""Darknet's options: all are accepted by its commands, and every other command names ours."""

from importlib import import_module

import pytest

from engine import cli
from engine.cli._darknet import options
from tests.cli.darknet.parcel_set import MODEL, recorded


@pytest.mark.parametrize("command", ["detector", "classifier", "yolo"])
def test_every_option_is_accepted(command):
    parser = cli.parser_of(command)
    for name, kind, _ in (*options.OPTIONS, *options.IGNORED):
        words = ["test", "a", name, *(["1"] * (kind is not None))]
        value = getattr(parser.parse(words), name[1:])
        assert value == (True if kind is None else kind("1"))


def test_options_without_an_effect_change_nothing(capsys):
    ignored = [
        word for name, kind, _ in options.IGNORED for word in (name, *(["3"] * (kind is not None)))
    ]
    texts = []
    for more in ([], ignored):
        assert cli.main(["detector", "test", *MODEL, "set/2.png", "-nogpu", *more]) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        texts.append(shown.out.rpartition("milli-seconds.")[2])
    found = recorded("asked.txt").partition("set/2.png: ")[2].partition("Enter")[0]
    assert texts[0] == texts[1] == found.rpartition("milli-seconds.")[2]
    assert "aztec: " in found


@pytest.mark.parametrize(
    "words", [["--thresh", "0.5"], ["-threshold=0.5"], ["--iou-thresh", "0.5", "--Thresh=0.5"]]
)
def test_spellings_of_the_fork(words):
    parser = cli.parser_of("detector")
    assert parser.parse(["test", "a", *words, "--ext-output", "-noshow"]).thresh == 0.5
    assert parser.parse(["demo", "a", "-camera", "2"]).c == 2


@pytest.mark.parametrize("command", ["detector", "classifier", "yolo"])
def test_the_first_of_a_repeated_option_counts(command):
    parser = cli.parser_of(command)
    for name, kind, _ in (*options.OPTIONS, *options.IGNORED):
        if kind is not None:
            words = ["test", "a", name, "0", "b", name, "2", f"{name}=3"]
            parsed = parser.parse(words)
            assert getattr(parsed, name[1:]) == kind("0")
            assert parsed.files == ["a", "b"]
    detect = cli.parser_of("detect", import_module("engine.cli._darknet.detect"))
    assert detect.parse(["a", "-thresh", "0.5", "--threshold=0.25"]).thresh == 0.5


def test_the_last_of_a_repeated_option_counts_for_our_commands():
    assert cli.parser_of("detect").parse(["--nms", "0.5", "--nms", "0.25"]).nms == 0.25


def test_values_and_file_names_are_left_alone():
    parsed = cli.parser_of("detector").parse(
        ["test", "ext-output", "-out", "a=-thresh", "-i", "-1"]
    )
    assert (parsed.files, parsed.out, parsed.i) == (["ext-output"], "a=-thresh", -1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["detector", "test", "-thres=1"], "unknown option '-thres=1'. Did you mean '-thresh'?"),
        (["detector", "test", "-skip_classes", "1"], "unknown option '-skip_classes'."),
        (["detect", "a.jpg", "-thresh", "1", "--json", "-"], "Here it is --threshold"),
        (["detect", "a.jpg", "-thresh", "1", "-jsn"], "unknown option '-jsn'."),
        (["evaluate", "-points"], "-points is darknet's option. Here it is --points"),
        (["ops", "my.cfg"], "ops is darknet's command. Here it is info"),
    ],
)
def test_what_is_unknown_is_one_line_with_a_hint(capsys, words, message):
    assert cli.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.fixture
def asked(monkeypatch):
    """Collect the devices that networks are to be loaded on."""
    devices = []

    def load(*_, **more):
        devices.append(more["device"])
        raise KeyboardInterrupt

    monkeypatch.setattr("engine.load", load)
    return devices


@pytest.mark.parametrize(("words", "device"), [([], "auto"), (["-i", "0"], "auto")])
def test_the_first_gpu_is_optional(asked, words, device):
    assert cli.main(["detector", "test", *MODEL, "set/2.png", *words]) == 130
    assert cli.main(["detector", "test", *MODEL, "set/2.png", "-i", "1"]) == 130
    assert cli.main(["detector", "test", *MODEL, "set/2.png", "-i", "-1"]) == 130
    assert asked == [device, "cuda:1", "cpu"]


@pytest.mark.parametrize(
    ("words", "device"),
    [
        (["-i", "0"], "auto"),
        (["-i", "1"], "cuda:1"),
        (["-nogpu"], "cpu"),
        (["-nogpu", "-i", "1"], "cpu"),
    ],
)
def test_the_gpu_may_come_before_the_command(asked, words, device):
    assert cli.main([*words, "detector", "test", *MODEL, "set/2.png"]) == 130
    assert cli.main([*words, "detect", *MODEL, "set/2.png"]) == 130
    assert asked == [device, device]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-i", "0"], "no command '-i'."),
        (["-i", "x", "detector", "test"], "argument -i: invalid int value: 'x'"),
        (["-i", "0", "evaluate"], "-i is darknet's option. Here it is --device cuda:N"),
        (["-nogpu", "ops", "my.cfg"], "ops is darknet's command. Here it is info"),
    ],
)
def test_options_before_other_commands_are_one_line(capsys, words, message):
    assert cli.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
