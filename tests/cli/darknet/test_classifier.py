"""`classifier predict` and `classifier valid` print what darknet does."""

import pytest

from engine import cli
from tests.cli.darknet import small_networks
from tests.cli.darknet.parcel_set import recorded, without_times


@pytest.fixture
def model(here):
    (here / "class.names").write_text("one\ntwo\nthree\nfour\nfive\nsix\n")
    (here / "class.labels").write_text("a\n1.p\nb\n3.p\nc\n4.p\n")
    data = "classes=6\nvalid=list.txt\nlabels=class.labels\nnames=class.names\ntop=2\n"
    (here / "class.data").write_text(data)
    return "class.data", *small_networks.write(here, "class", small_networks.CLASSIFIER)


def test_predict(capsys, model):
    assert cli.main(["classifier", "predict", *model, "set/1.png", "-t", "3", "-nogpu"]) == 0
    assert without_times(capsys.readouterr().out) == without_times(recorded("predict.txt"))


def test_predict_asks_for_names(here, capsys, monkeypatch, model):
    (here / "names").write_text("set\nset/1.png\nset/none.png\n")
    with (here / "names").open() as names:
        monkeypatch.setattr("sys.stdin", names)
        assert cli.main(["classifier", "predict", *model, "-nogpu"]) == 1
    shown = capsys.readouterr()
    assert "Enter Image Path: Enter Image Path: 48 48\nset/1.png: Predicted in " in shown.out
    assert shown.out.endswith("\nsix: 0.221819\none: 0.201268\n" + 2 * "Enter Image Path: ")
    of_folder, of_none = shown.err.splitlines()
    assert of_folder == "Error: set: picture: expected a file, got a folder"
    assert of_none.startswith("Error: set/none.png: ")


def test_valid(capsys, model):
    assert cli.main(["classifier", "valid", *model, "-nogpu"]) == 0
    assert capsys.readouterr().out == recorded("top.txt") + "\n"


@pytest.mark.parametrize("names", ["names=class.labels\n", "names=./class.labels\n", ""])
def test_names_and_labels_of_one_file_are_read_once(here, capsys, caplog, model, names):
    with (here / "class.labels").open("a") as labels:
        labels.write("one more\n")
    (here / "class.data").write_text(f"valid=list.txt\nlabels=class.labels\n{names}top=2\n")
    assert cli.main(["classifier", "valid", *model, "-nogpu"]) == 0
    assert capsys.readouterr().out == recorded("top.txt") + "\n"
    assert caplog.text.count("class.labels: has 7 names") == 1


def test_the_number_of_classes_must_be_that_of_the_network(here, capsys, model):
    data = (here / "class.data").read_text().replace("classes=6", "classes=7")
    (here / "class.data").write_text(data)
    assert cli.main(["classifier", "predict", *model, "set/1.png", "-nogpu"]) == 3
    assert "classes: expected 6 as in the network, got 7" in capsys.readouterr().err


def test_a_network_of_the_other_kind_is_refused(capsys, model):
    assert cli.main(["detector", "test", *model, "set/1.png", "-nogpu"]) == 2
    assert "class.cfg: is not a detector. Try: classifier predict" in capsys.readouterr().err


def test_training_is_refused(capsys, model):
    assert cli.main(["classifier", "train", *model]) == 2
    assert "classifier train: the engine runs networks" in capsys.readouterr().err
    assert cli.main(["classifier", "predit", *model]) == 2
    assert "got 'predit'. Did you mean 'predict'?" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["predict", "valid"])
def test_a_negative_number_of_classes_is_refused(model, capsys, action):
    assert cli.main(["classifier", action, *model, "-t", "-1", "-nogpu"]) == 2
    assert "-t: expected a whole number above 0, got -1" in capsys.readouterr().err
