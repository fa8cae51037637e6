"""python -m engine weights."""

import hashlib
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from engine import cli
from engine.darknet import cfg, graph, weights
from tests import needs
from tests.cli.child import engine_here
from tests.pictures import write_picture
from tests.small_models import write_model


def rows_of(out):
    return dict(line.split(maxsplit=1) for line in out.splitlines())


def test_info_prints_the_header_the_hash_and_whether_it_matches(tiny_detector):
    content = tiny_detector.weights.read_bytes()
    done = engine_here("weights", "info", tiny_detector.cfg, tiny_detector.weights)
    assert (done.status, done.err) == (0, "")
    rows = rows_of(done.out)
    numbers = (len(content) - 20) // 4
    assert rows["bytes"] == f"{len(content):,} (header: 20)"
    assert rows["sha256"] == hashlib.sha256(content).hexdigest()
    assert rows["version"] == "0.2.5"
    assert rows["seen"] == "0 pictures"
    assert rows["net.cfg"] == f"needs {numbers:,} numbers: fits"


def test_info_needs_no_network_and_reads_old_headers(tmp_path, capsys):
    path = tmp_path / "old.weights"
    path.write_bytes(struct.pack("<iiii", 0, 1, 0, 32_000) + bytes(8))
    assert cli.main(["weights", "info", str(path)]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert (rows["seen"], rows["numbers"]) == ("32,000 pictures", "2")


def test_info_reports_a_file_for_another_network(tiny_detector, tiny_classifier, capsys):
    assert cli.main(["weights", "info", str(tiny_detector.cfg), str(tiny_classifier.weights)]) == 0
    assert "does not fit" in rows_of(capsys.readouterr().out)["net.cfg"]


def test_a_network_may_be_named(tmp_path, capsys):
    assert cli.main(["weights", "verify", "codes"]) == 0
    assert capsys.readouterr().out.endswith("all finite\n")
    assert cli.main(["weights", "info", "codes"]) == 0
    assert rows_of(capsys.readouterr().out)["codes.cfg"].endswith("fits")
    part = tmp_path / "part.weights"
    assert cli.main(["weights", "cut", "codes", "3", "-o", str(part)]) == 0
    assert cli.main(["weights", "fuse", "-o", str(tmp_path / "fused.weights"), "codes"]) == 0
    assert cli.main(["weights", "verify", "codes", str(part)]) == 3


@pytest.mark.slow
def test_verify_reads_every_number(tiny_detector, tmp_path):
    done = engine_here("weights", "verify", tiny_detector.cfg, tiny_detector.weights)
    assert done.status == 0
    assert done.out.endswith(" numbers, all finite\n")
    damaged = tmp_path / "damaged.weights"
    content = bytearray(tiny_detector.weights.read_bytes())
    content[-4:] = struct.pack("<f", float("nan"))
    damaged.write_bytes(content)
    done = engine_here("weights", "verify", "--cfg", tiny_detector.cfg, "--weights", damaged)
    assert done.status == 3
    assert "layer 2 [convolutional] weight: 1 of 128 numbers are infinite" in done.err
    damaged.write_bytes(content[:-8])
    done = engine_here("weights", "verify", tiny_detector.cfg, damaged)
    assert done.status == 3
    assert "Is it for another .cfg?" in done.err


def test_cut_writes_the_first_layers_as_darknet_does(tiny_detector, tmp_path):
    out = tmp_path / "net.conv.2.weights"
    done = engine_here("weights", "cut", tiny_detector.cfg, tiny_detector.weights, 2, "-o", out)
    assert (done.status, done.err) == (0, "")
    assert "up to layer 1 [maxpool]" in done.out
    first = (8 * 4 + 8 * 27) * 4  # bias, scale, mean, variance, filters
    assert out.read_bytes() == tiny_detector.weights.read_bytes()[: 20 + first]


def test_cut_takes_a_partial_file_that_has_the_layers(tiny_detector, tmp_path):
    cut = "weights", "cut", tiny_detector.cfg
    part, whole, out = (tmp_path / f"{each}.weights" for each in ("part", "whole", "out"))
    assert engine_here(*cut, tiny_detector.weights, 2, "-o", part).status == 0
    assert engine_here(*cut, tiny_detector.weights, 1, "-o", whole).status == 0
    part = part.rename(tmp_path / "tiny.conv.2")  # as darknet's users call such files
    done = engine_here(*cut, part, 1, "-o", out)
    assert (done.status, done.err) == (0, "")
    assert out.read_bytes() == whole.read_bytes()
    done = engine_here(*cut, part, 3, "-o", tmp_path / "more.weights")
    message = "ends after layer 0 [convolutional]: expected weights for 3 layers. It is a partial"
    assert (done.status, message in done.err) == (3, True)
    assert not (tmp_path / "more.weights").exists()


def test_fuse_writes_a_network_of_the_same_outputs(tiny_detector, tmp_path):
    out = tmp_path / "fused.weights"
    done = engine_here("weights", "fuse", tiny_detector.cfg, tiny_detector.weights, "-o", out)
    assert (done.status, done.err) == (0, "")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["fused.cfg", "fused.weights"]
    assert "batch_normalize" not in (tmp_path / "fused.cfg").read_text()

    from engine import load

    given = np.random.default_rng(0).random((1, 3, 48, 64), np.float32)
    with load(tiny_detector.cfg, tiny_detector.weights, device="cpu") as before:
        expected = before.forward(given)
    with load(tmp_path / "fused.cfg", out, device="cpu") as after:
        found = after.forward(given)
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


def test_fuse_refuses_a_folder_without_the_tree_that_the_network_names(
    tmp_path, monkeypatch, capsys
):
    """A tree in the working folder is found, too, but not by a later command."""
    (tmp_path / "net").mkdir()
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "net")
    Path("some.tree").write_text("a -1\nb -1\nc 0\nd 0\n")
    text = "[net]\nwidth=4\nheight=4\nchannels=1\n[conv]\nbatch_normalize=1\nfilters=4\n"
    text += "[avgpool]\n[softmax]\ntree=some.tree\n"
    write_model(tmp_path / "net", text, list("abcd"))
    command = ["weights", "fuse", "net.cfg", "net.weights", "-o"]
    other = str(tmp_path / "out/fused.weights")
    for tree in (None, "a -1\nb -1\nc 1\nd 1\n"):
        if tree:
            (tmp_path / "out/some.tree").write_text(tree)
        assert cli.main([*command, other]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "tree: some.tree: expected the same file in the folder of the new .cfg" in line
        assert line.endswith(f"{tmp_path}/out. Copy it there first")
    shutil.copy("some.tree", tmp_path / "out")
    assert cli.main([*command, other]) == 0
    assert cli.main([*command, "fused.weights"]) == 0
    monkeypatch.chdir(tmp_path)
    for folder in ("net", "out"):
        assert (
            cli.main(["weights", "verify", f"{folder}/fused.cfg", f"{folder}/fused.weights"]) == 0
        )


def test_fuse_keeps_the_number_of_images_seen(tiny_detector, tmp_path):
    network = graph.build(cfg.read(tiny_detector.cfg))
    path = tmp_path / "seen.weights"
    weights.save(path, network, weights.load(tiny_detector.weights, network), seen=640)
    out = tmp_path / "fused.weights"
    command = ["weights", "fuse", str(tiny_detector.cfg), str(path), "-o", str(out)]
    assert cli.main(command) == 0
    assert weights.read_header(out).seen == 640


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["verfy"], "Did you mean 'verify'?"),
        (["verify", "CFG", "WEIGHTS", "3"], "unexpected '3'"),
        (["cut", "CFG", "WEIGHTS", "-o", "out.weights"], "expected a number of layers, got none"),
        (["cut", "CFG", "WEIGHTS", "9", "-o", "out.weights"], "expected 1 to 4 layers, got 9"),
        (["cut", "CFG", "WEIGHTS", "1"], "no output named: expected -o FILE"),
        (["fuse", "CFG", "WEIGHTS", "-o", "out.bin"], "expected a name that ends in .weights"),
        (["fuse", "CFG", "WEIGHTS", "-o", "here.weights"], "exists already"),
        (["fuse", "CFG", "WEIGHTS", "-o", "beside.weights"], "exists already"),
        (["cut", "CFG", "WEIGHTS", "1", "-o", "WEIGHTS", "--overwrite"], "would replace"),
        (["fuse", "CFG", "WEIGHTS", "-o", "WEIGHTS", "--overwrite"], "would replace"),
        (["info", "--cfg", "x.cfg"], "no model: name one with --model"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_misuse_is_one_error_line_and_writes_nothing(
    tiny_detector, tmp_path, monkeypatch, capsys, words, message
):
    monkeypatch.chdir(tmp_path)
    for name in ("here.weights", "beside.cfg"):
        (tmp_path / name).write_text("mine")
    content = tiny_detector.weights.read_bytes()
    files = {"CFG": str(tiny_detector.cfg), "WEIGHTS": str(tiny_detector.weights)}
    assert cli.main(["weights", *(files.get(word, word) for word in words)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "here.weights": "mine",
        "beside.cfg": "mine",
    }
    assert tiny_detector.weights.read_bytes() == content


@pytest.mark.parametrize("name", ["net.backup", "yolov4.conv.137", "net_last"])
@pytest.mark.parametrize(
    "words",
    [
        "weights info CFG NET",
        "weights info NET",
        "weights verify CFG NET",
        "weights cut CFG NET 2 -o out.weights",
        "export onnx CFG NET -o out.onnx",
        "benchmark CFG NET --device cpu --seconds 0 --warm-up 0",
        "calibrate CFG NET picture.png --device cpu --measure 1 -o out.scales",
        "compare CFG NET picture.png --second cpu",
        "detect CFG NET picture.png --device cpu",
        "detect --cfg CFG NET picture.png --device cpu",
    ],
)
def test_weights_may_have_any_name(tiny_detector, tmp_path, monkeypatch, capsys, words, name):
    """Darknet writes net.backup while it trains; others publish net.conv.137."""
    if words.startswith("export"):
        needs.package("onnx")
    monkeypatch.chdir(tmp_path)
    shutil.copy(tiny_detector.weights, name)
    write_picture(tmp_path / "picture.png")
    files = {"CFG": str(tiny_detector.cfg), "NET": name}
    status = cli.main([files.get(word, word) for word in words.split()])
    told = capsys.readouterr()
    assert status == 0, told.err
    assert "random weights" not in told.err


def test_another_file_is_not_taken_for_weights(tiny_detector, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("net.backup").write_text("These are no weights at all.\n")
    assert cli.main(["weights", "verify", str(tiny_detector.cfg), "net.backup"]) == 2
    assert capsys.readouterr().err == (
        "Error: unexpected 'net.backup': expected CFG and WEIGHTS, or a name of: models list. "
        "If it holds the weights: --weights net.backup\n"
    )
    assert cli.main(["weights", "verify", str(tiny_detector.cfg), "x" * 4096]) == 2


def test_names_of_files_are_printed_on_one_line(tiny_detector, tmp_path, monkeypatch, capsys):
    """A name may hold characters that move the cursor of a terminal, or a line's end."""
    monkeypatch.chdir(tmp_path)
    odd = "a\n\x1b[2J.weights"
    shutil.copy(tiny_detector.weights, odd)
    cfg_path = str(tiny_detector.cfg)
    for count, command in (
        (7, ["weights", "info", cfg_path, odd]),
        (1, ["weights", "verify", cfg_path, odd]),
        (1, ["weights", "cut", cfg_path, odd, "2", "-o", "b" + odd]),
        (2, ["weights", "fuse", cfg_path, odd, "-o", "c" + odd]),
        (1, ["average", cfg_path, "d" + odd, odd, odd]),
    ):
        assert cli.main(command) == 0
        out = capsys.readouterr().out
        assert out.count("\n") == count
        assert r"a\n\x1b[2J." in out
        assert "\x1b" not in out
    assert cli.main(["weights", "cut", cfg_path, odd, "2", "-o", "a\n.bin"]) == 2
    assert capsys.readouterr().err == (
        "Error: -o a\\n.bin: expected a name that ends in .weights\n"
    )


def test_overwrite_replaces_earlier_outputs(tiny_detector, tmp_path):
    out = tmp_path / "out.weights"
    out.write_text("mine")
    files = [str(tiny_detector.cfg), str(tiny_detector.weights)]
    assert cli.main(["weights", "cut", *files, "1", "-o", str(out), "--overwrite"]) == 0
    assert len(out.read_bytes()) > 20
