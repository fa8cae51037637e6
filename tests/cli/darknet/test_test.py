"""`detector test` prints and writes what darknet does."""

import json
import re
import shutil
from pathlib import Path

import pytest

from engine import cli
from engine.backends.cuda.driver import pycuda_loader
from engine.outputs.record import files_in
from engine.vision.result import Result
from tests.cli.darknet.parcel_set import MODEL, assert_same_numbers, recorded, without_times

COMMAND = ["detector", "test", *MODEL]


def test_a_picture(here, capsys):
    options = ["-thresh", "0.1", "-ext_output", "-dont_show", "-out", "test.json", "-nogpu"]
    assert cli.main([*COMMAND, "set/1.png", *options]) == 0
    assert without_times(capsys.readouterr().out) == without_times(recorded("test.txt"))
    assert_same_numbers((here / "test.json").read_text(), recorded("test.json"))
    assert (here / "predictions.jpg").read_bytes()[:3] == b"\xff\xd8\xff"
    assert files_in(".") == {"predictions.jpg"}


def test_names_on_standard_input(capsys, monkeypatch):
    with Path("list.txt").open() as names:
        monkeypatch.setattr("sys.stdin", names)
        assert cli.main([*COMMAND, "-letter_box", "-nogpu"]) == 0
    assert without_times(capsys.readouterr().out) == without_times(recorded("asked.txt"))


def test_a_picture_that_cannot_be_read_does_not_end_the_run(here, capsys, monkeypatch):
    (here / "names").write_text("\ufeffset/none.png\r\n\nset/2.png\r\n")
    with Path("names").open() as names:
        monkeypatch.setattr("sys.stdin", names)
        assert cli.main([*COMMAND, "-out", "found.json", "-nogpu"]) == 1
    shown = capsys.readouterr()
    assert "aztec: " in shown.out
    (line,) = shown.err.splitlines()
    assert line.startswith("Error: set/none.png: ")
    assert [each["filename"] for each in json.loads((here / "found.json").read_text())] == [
        "set/2.png"
    ]


def test_a_picture_that_cannot_be_drawn_does_not_end_the_run(capsys, monkeypatch):
    def limited(result, plot=Result.plot):
        if result.path == "set/1.png":
            raise MemoryError
        return plot(result)

    monkeypatch.setattr(Result, "plot", limited)
    Path("names").write_text("set/1.png\nset/2.png\n")
    with Path("names").open() as names:
        monkeypatch.setattr("sys.stdin", names)
        assert cli.main([*COMMAND, "-nogpu"]) == 1
    out, err = capsys.readouterr()
    what = "the picture to draw on does not fit into memory"
    assert err == f"Error: set/1.png: predictions.jpg: {what}\n"
    assert "set/2.png: Predicted in" in out
    assert Path("predictions.jpg").is_file()


def test_label_files_are_written_but_never_replaced(here, capsys):
    command = [*COMMAND, "set/1.png", "-thresh", "0.1", "-save_labels", "-nogpu"]
    mine = (here / "set/1.txt").read_text()
    assert cli.main(command) == 1
    assert "set/1.txt: exists already. Move the labels away" in capsys.readouterr().err
    assert (here / "set/1.txt").read_text() == mine
    (here / "set/1.txt").unlink()
    for _ in range(2):  # the second time the same labels are there
        assert cli.main(command) == 0
    assert (here / "set/1.txt").read_text() == recorded("saved.txt")


def test_label_files_do_not_take_the_place_of_those_in_another_folder(here, capsys):
    for folder in ("images", "labels"):
        (here / folder).mkdir()
    (here / "images/1.png").write_bytes((here / "set/1.png").read_bytes())
    (here / "labels/1.txt").write_text("mine")
    assert cli.main([*COMMAND, "images/1.png", "-thresh", "0.1", "-save_labels", "-nogpu"]) == 1
    assert "labels/1.txt: exists already. Move the labels away" in capsys.readouterr().err
    assert (here / "labels/1.txt").read_text() == "mine"
    assert not (here / "images/1.txt").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-tresh", "1"], "unknown option '-tresh'. Did you mean '-thresh'?"),
        (["-outfile", "x"], "unknown option '-outfile'. Did you mean '-out_filename'?"),
        (["-out", "codes.data"], "-out codes.data: would replace a file that is read"),
        (["-thresh", "2", "set/1.png"], "threshold: expected"),
        (["-nms", "-1", "set/1.png"], "nms: expected"),
        (["-i", "seven"], "argument -i: invalid int value: 'seven'"),
        (["list.txt"], "list.txt: expected a picture, got a list. Darknet reads one from stdin"),
        (["a.png", "b.png"], "detector test: expected DATA CFG WEIGHTS and perhaps IMAGE, got"),
    ],
)
def test_mistakes_are_one_line(capsys, words, message):
    assert cli.main([*COMMAND, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_inputs_are_never_replaced(here, capsys):
    (here / "set/1.png").rename(here / "predictions.jpg")
    before = (here / "predictions.jpg").read_bytes()
    assert cli.main([*COMMAND, "predictions.jpg", "-nogpu"]) == 1
    assert "predictions.jpg: would replace a file that is read" in capsys.readouterr().err
    assert (here / "predictions.jpg").read_bytes() == before


@pytest.fixture
def run_names(here, monkeypatch):
    """Run `detector test` with a list on stdin."""

    def run(*names, options=()):
        (here / "list").write_text("".join(f"{each}\n" for each in names))
        with (here / "list").open() as file:
            monkeypatch.setattr("sys.stdin", file)
            return cli.main([*COMMAND, *options, "-nogpu"])

    return run


@pytest.mark.parametrize("out", ["set/1.png", "list"])
def test_names_on_standard_input_protect_their_files(here, run_names, capsys, out):
    before = (here / "set/1.png").read_bytes()
    assert run_names("set/2.png", "set/1.png", options=["-out", out]) == 2
    line = f"Error: -out {out}: would replace a file that is read"
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert (here / "set/1.png").read_bytes() == before
    assert (here / "list").read_text() == "set/2.png\nset/1.png\n"


def test_a_picture_called_predictions_is_put_back(here, run_names, capsys):
    shutil.copy(here / "set/1.png", here / "predictions.jpg")
    before = (here / "predictions.jpg").read_bytes()
    assert run_names("set/2.png", "predictions.jpg") == 2
    shown = capsys.readouterr()
    assert shown.err.endswith("predictions.jpg: would replace a file that is read\n")
    assert "predictions.jpg: Predicted" not in shown.out
    assert (here / "predictions.jpg").read_bytes() == before
    assert not list(here.glob(".*.part"))
    assert not files_in(".")
    assert run_names("set/2.png") == 0  # as darknet does
    assert (here / "predictions.jpg").read_bytes() != before


def test_results_of_an_earlier_run_are_not_read_from_a_list(run_names, capsys):
    assert run_names("set/2.png", "predictions.jpg", "set/1.png") == 0
    shown = capsys.readouterr()
    assert shown.err == "predictions.jpg: is skipped, because a run wrote it\n"
    assert shown.out.count("Predicted in") == 2
    assert run_names("./predictions.jpg", "set/2.png") == 0
    assert "./predictions.jpg: is skipped" in capsys.readouterr().err


def test_results_are_not_replaced_for_nothing(here, run_names, capsys):
    (here / "good.json").write_text("good")
    assert run_names(options=["-out", "good.json"]) == 2
    line = "Error: -out good.json: no picture named, so it is kept\n"
    assert capsys.readouterr().err == line
    assert (here / "good.json").read_text() == "good"
    assert run_names(options=["-out", "new.json"]) == 0


def test_outputs_are_different_files(here, capsys):
    command = [*COMMAND, "set/1.png", "-nogpu", "-out", "./predictions.jpg"]
    assert cli.main(command) == 2
    assert "expected different files, got one" in capsys.readouterr().err
    assert not (here / "predictions.jpg").exists()


def test_the_names_of_the_data_file_are_never_replaced(here, capsys):
    data = (here / "codes.data").read_text()
    names = here / "data/codes.names"
    names.parent.mkdir()
    names.write_text("a\nb\nc\nd\ne\n")
    (here / "data/codes.data").write_text(re.sub("names = .*", "names = data/codes.names", data))
    command = ["detector", "test", "data/codes.data", *COMMAND[3:], "set/1.png", "-nogpu"]
    assert cli.main([*command, "-out", "data/codes.names"]) == 2
    assert "-out data/codes.names: would replace a file that is read" in capsys.readouterr().err
    assert names.read_text() == "a\nb\nc\nd\ne\n"


@pytest.mark.slow
def test_a_list_in_a_folder_next_to_its_pictures_is_read_from_anywhere(here, monkeypatch, capsys):
    data = (here / "codes.data").read_text().replace("list.txt", "data/list.txt")
    (here / "data").mkdir()
    (here / "list.txt").rename(here / "data/list.txt")
    (here / "data/codes.data").write_text(data)
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    assert cli.main(["detector", "map", "../data/codes.data", *COMMAND[3:], "-nogpu"]) == 0
    assert "mAP@0.50) = 0.000000" not in capsys.readouterr().out
    assert cli.main(["detect", "../data/list.txt", "--device", "cpu", "--quiet"]) == 0


def test_detect_with_an_option_of_darknet_is_darknets_detect(here, capsys):
    assert cli.main(["detect", *MODEL, "set/2.png", "-thresh", "0.5", "-nogpu"]) == 0
    assert re.search(r"milli-seconds\.\naztec: \d\d%\nbarcode: \d\d%\n\Z", capsys.readouterr().out)
    assert cli.main(["detect", *MODEL[1:], "set/2.png", "-thresh", "0.5"]) == 2
    assert "cfg/coco.data: not found. Use: detector test" in capsys.readouterr().err
    (here / "cfg").mkdir()
    (here / "codes.data").rename(here / "cfg/coco.data")
    assert cli.main(["detect", *MODEL[1:], "set/2.png", "-ext_output", "-nogpu"]) == 0
    assert re.search(r"\naztec: \d\d%\t\(left_x: ", capsys.readouterr().out)


def test_the_heading_tells_of_batches_and_nms(here, capsys):
    """The lines are those of darknet for these options, junk after numbers included."""
    cfg = Path(MODEL[1]).read_text().replace("width=", "subdivisions=8\nwidth=")
    head = "[yolo]\nnms_kind=greedynms\nbeta_nms=0.7#x\n"
    (here / "my.cfg").write_text(cfg.replace("[yolo]\n", head))
    model = [MODEL[0], "my.cfg", MODEL[2]]
    assert cli.main(["detector", "test", *model, "set/2.png", "-nogpu"]) == 0
    assert capsys.readouterr().out.splitlines()[:7] == [
        " GPU isn't used ",
        "mini_batch = 1, batch = 8, time_steps = 1, train = 0 ",
        *["nms_kind: greedynms (1), beta = 0.700000 "] * 4,
        "",
    ]


def test_a_machine_without_a_driver_is_told_the_option_of_darknet(monkeypatch, capsys):
    monkeypatch.setattr(pycuda_loader.library, "_PLACES", (("nowhere", lambda wanted: None),))
    monkeypatch.setattr(pycuda_loader.library, "_known", {})
    pycuda_loader.load.cache_clear()
    assert cli.main([*COMMAND, "set/1.png", "-i", "3"]) == 4
    assert capsys.readouterr().err == (
        "Error: cuda: driver: libcuda.so.1 not found. Install NVIDIA's driver, or use -nogpu\n"
    )
