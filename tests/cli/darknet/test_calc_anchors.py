"""`detector calc_anchors` prints what darknet does, up to the random start."""

import re

import pytest

from engine import cli

COMMAND = ["detector", "calc_anchors", "codes.data", "-width", "416", "-height", "416"]


def test_the_lines_are_darknets(here, capsys):
    for _ in range(2):  # the same anchors each time; files of the first run are replaced
        assert cli.main([*COMMAND, "-num_of_clusters", "2", "-show"]) == 0
        text = capsys.readouterr().out
    pattern = (
        "\n num_of_clusters = 2, width = 416, height = 416 \n read labels from 4 images \n"
        "\r loaded \t image: 4 \t box: 13\n all loaded. \n\n calculating k-means\\+\\+ ...\n"
        "\n iterations = \\d+ \n\n\ncounters_per_class = 4, 3, 2, 2, 2\n"
        "\n avg IoU = 6\\d.\\d\\d % \n\nSaving anchors to the file: anchors.txt \n"
        "anchors = [ \\d]{3},[ \\d]{3}, [ \\d]{3},[ \\d]{3}\n"
    )
    assert re.fullmatch(pattern, text)
    anchors = (here / "anchors.txt").read_text()
    assert text.endswith(f"anchors = {anchors}\n")
    assert (here / "counters_per_class.txt").read_text() == "counters_per_class = 4, 3, 2, 2, 2"


def test_one_cluster_is_the_mean(capsys):
    command = ["-num_of_clusters", "1", "-width", "13", "-height", "26"]
    assert cli.main([*COMMAND[:3], *command]) == 0
    assert capsys.readouterr().out.endswith("\nanchors = 2.1247,5.3000\n")


def test_a_file_that_is_no_list_of_numbers_is_kept(here, capsys):
    (here / "anchors.txt").write_text("my notes")
    assert cli.main(COMMAND) == 2
    shown = capsys.readouterr()
    assert "anchors.txt: exists already, and is not a list of numbers" in shown.err
    assert "Saving" not in shown.out
    assert (here / "anchors.txt").read_text() == "my notes"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (COMMAND[:3], "detector calc_anchors: expected -width and -height of the network"),
        ([*COMMAND, "-num_of_clusters", "14"], "anchors: expected 1 to 13, the number of boxes"),
        ([*COMMAND, "my.cfg"], "detector calc_anchors: expected DATA and no other file"),
    ],
)
def test_mistakes_are_one_line(capsys, words, message):
    assert cli.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
