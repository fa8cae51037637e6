"""python -m engine classify --list: the accuracy of a classifier."""

import json

import numpy as np
import pytest
from PIL import Image

from engine import cli


@pytest.fixture
def listing(tmp_path):
    """List six pictures in folders named after classes; one is broken, one unlabelled."""
    random = np.random.default_rng(1)
    paths = [tmp_path / f"of-{name}" / "1.png" for name in "uvwxyz"]
    paths += [tmp_path / "of-u" / "broken.png", tmp_path / "none" / "1.png"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(path)
    paths[6].write_bytes(b"no picture")
    (tmp_path / "list.txt").write_text("".join(f"{path}\n" for path in paths))
    (tmp_path / "labels.txt").write_text("".join(f"of-{name}\n" for name in "uvwxyz"))
    return tmp_path


@pytest.fixture
def classify(tiny_classifier, capsys):
    def run(*arguments):
        names = ["--names", str(tiny_classifier.names)]
        status = cli.main(["classify", *tiny_classifier.options, *names, *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


def test_top_1_and_top_k_use_the_labels_in_paths(classify, listing):
    accuracy = ["--list", listing / "list.txt", "--labels", listing / "labels.txt"]
    status, out, err = classify(*accuracy, "--top-k", "2", "--json", "-")
    document = json.loads(out)
    read = [image for image in document["images"] if "error" not in image]
    best = [[each["label"] for each in image["classes"]] for image in read]
    right = [image["right"].removeprefix("of-") for image in read]
    assert right == list("uvwxyz")
    assert document["pictures"] == 6
    assert document["top1"] == sum(b[0] == r for b, r in zip(best, right, strict=True)) / 6
    assert document["top2"] == sum(r in b for b, r in zip(best, right, strict=True)) / 6
    assert status == 1
    assert "broken.png" in err
    assert "contains no label" in err
    assert "2 of 8 pictures are left out" in err


def test_summary_line_has_both_accuracies(classify, listing):
    accuracy = ["--list", listing / "list.txt", "--labels", listing / "labels.txt"]
    _, out, _ = classify(*accuracy)
    assert out.startswith(f"{listing / 'list.txt'}: 6 pictures, top1 0.")
    assert ", top5 0." in out


def test_names_are_the_default_labels_and_the_first_match_counts(classify, listing):
    folder = listing / "u v"
    folder.mkdir()
    (listing / "of-v" / "1.png").rename(folder / "1.png")
    (listing / "two.txt").write_text(f"{folder / '1.png'}\n")
    status, out, err = classify("--list", listing / "two.txt", "--json", "-")
    assert status == 0
    assert json.loads(out)["images"][0]["right"] == "u"
    assert "1 of 1 paths contain several labels: the first class counts, as in darknet" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list.txt", "more.png"], "expected no other pictures, got 'more.png'"),
        (["none.txt"], "none.txt: cannot be read"),
        (["list.txt", "--csv", "a.csv"], "--csv: not with --list, whose output is --json"),
        (["list.txt", "--max-frames", "0"], "--max-frames: not with --list"),
        (["list.txt", "--actors", "2"], "--actors: not with --list"),
        (["list.txt", "--format", "jsonl"], "--format: not with --list"),
        (["list.txt", "--workers", "0"], "workers: expected"),
        (["list.txt", "--labels", "other.txt"], "no path contains a label. See --labels"),
        (["list.txt", "--labels", "short.txt"], "short.txt: expected 6 names"),
    ],
)
def test_misuse_is_one_error_line(classify, listing, monkeypatch, arguments, message):
    monkeypatch.chdir(listing)
    (listing / "short.txt").write_text("of-u\n")
    (listing / "other.txt").write_text("".join(f"label-{number}\n" for number in range(6)))
    status, out, err = classify("--list", *arguments)
    assert status in (2, 3)
    assert message in err
    assert not out
    assert len(err.splitlines()) == 1


def test_labels_are_those_of_a_list(classify, listing):
    told = classify(listing / "of-u" / "1.png", "--labels", listing / "labels.txt")
    assert told == (2, "", "Error: --labels: only with --list\n")


def test_detector_is_referred_to_evaluate(tiny_detector, listing, capsys):
    arguments = ["classify", *tiny_detector.options, "--list", str(listing / "list.txt")]
    assert cli.main(arguments) == 2
    assert "Try: evaluate" in capsys.readouterr().err


def test_cut_jpegs_count_if_told_so(classify, listing):
    path = listing / "of-u" / "cut.jpg"
    Image.fromarray(np.zeros((200, 200, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-40])
    (listing / "list.txt").write_text(f"{path}\n")
    chosen = ("--list", listing / "list.txt", "--labels", listing / "labels.txt")
    assert classify(*chosen)[0] == 1
    assert classify(*chosen, "--lenient")[0] == 0
