"""`yolo test` prints what darknet does for YOLO v1."""

from engine import cli
from tests.cli.darknet import small_networks
from tests.cli.darknet.parcel_set import recorded, without_times


def test_the_lines_are_darknets(here, capsys):
    model = small_networks.write(here, "v1", small_networks.YOLO_V1)
    command = ["yolo", "test", *model, "set/1.png", "-thresh", "0.3", "-nogpu"]
    assert cli.main(command) == 0
    assert without_times(capsys.readouterr().out) == without_times(recorded("yolo.txt"))
    assert (here / "predictions.jpg").is_file()
    command[4] = "set/none.png"
    assert cli.main(command) == 1
    assert "Error: set/none.png: " in capsys.readouterr().err
