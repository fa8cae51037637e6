from math import inf, nan

import pytest

from engine import scales
from engine.errors import ConfigError, InputError, WeightsError
from engine.models.digest import digest
from engine.scales import LayerScale, Scales

KINDS = ("convolutional", "convolutional", "yolo")


@pytest.fixture
def files(tmp_path):
    cfg, weights = tmp_path / "a.cfg", tmp_path / "a.weights"
    cfg.write_text("[net]")
    weights.write_bytes(b"1234")
    layers = (
        LayerScale("convolutional", 12.5),
        LayerScale("convolutional", inf, "float", 0.25),
        LayerScale("yolo", 3.25, "int8", nan),
    )
    made = Scales(digest(cfg, "sha256"), digest(weights, "sha256"), layers, {"pictures": "3"})
    (tmp_path / "a.scales").write_text(str(made))
    return cfg, weights


def test_a_file_is_found_next_to_the_weights_and_read_as_written(files):
    found = scales.load(None, *files, KINDS)
    assert str(found) == scales.path_beside(files[1]).read_text()
    assert found.about == {"pictures": "3"}
    assert found.ranges.largest == {0: 12.5, 1: inf, 2: 3.25}
    assert found.ranges.floats == {0, 1}  # the first one was not measured in int8


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(files):
    path = scales.path_beside(files[1])
    expected, text = str(scales.parsed(path.read_bytes(), "a")), path.read_text()
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert str(scales.parsed(path.read_bytes(), "a")) == expected


@pytest.mark.parametrize("which", [0, 1])
def test_scales_of_other_files_are_refused(files, which):
    files[which].write_bytes(b"changed")
    again = f"Make it again: engine calibrate {files[0]} {files[1]} PICTURES --overwrite"
    with pytest.raises(InputError) as caught:
        scales.load(None, *files, KINDS)
    assert str(caught.value).endswith(f": was made for another {files[which]}. {again}")


def test_the_command_that_makes_them_again_can_be_pasted(files, tmp_path):
    path = tmp_path / "with space.scales"
    path.write_text("engine scales 2\n")
    with pytest.raises(InputError) as caught:
        scales.load(path, *files, KINDS)
    again = f"engine calibrate {files[0]} {files[1]} PICTURES -o '{path}' --overwrite"
    assert str(caught.value).endswith(f". Make it again: {again}")


def test_missing_files_are_errors_of_their_kind(files, tmp_path):
    cfg, weights = files
    for given, error in (
        ((tmp_path / "no.cfg", weights), ConfigError),
        ((cfg, tmp_path / "no.weights"), WeightsError),
    ):
        with pytest.raises(error, match=r"no\.\w+: cannot be read: No such file"):
            scales.load(tmp_path / "a.scales", *given, KINDS)


def test_none_is_an_error_that_says_how_to_make_one(files, tmp_path):
    with pytest.raises(InputError, match=r"b\.scales: no such file.* Make it: engine calibrate"):
        scales.load(tmp_path / "b.scales", *files, KINDS)


def test_the_layers_must_be_those_of_the_network(files):
    with pytest.raises(InputError, match="expected 4 layers, got 3"):
        scales.load(None, *files, (*KINDS, "yolo"))
    expected = r"layer 1: expected maxpool, got convolutional\. Make it again: engine calibrate"
    with pytest.raises(InputError, match=expected):
        scales.load(None, *files, ("convolutional", "maxpool", "yolo"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a file of this version's calibrate command"),
        (b"engine scales 2\n", "expected a file of this version's calibrate command"),
        (b"\xff\xfe", "expected a text file of the calibrate command"),
        (b"engine scales 1\n0 maxpool 1\n", r":2: expected 0 KIND LARGEST"),
        (b"engine scales 1\n0 maxpool 1 - -\n2 maxpool 1 - -\n", ":3: expected 1 KIND"),
        (b"engine scales 1\n0 maxpool nan - -\n", ":2: expected"),
        (b"engine scales 1\n0 maxpool -1 - -\n", ":2: expected"),
        (b"engine scales 1\n0 maxpool 1e39 - -\n", r":2: largest magnitude: .* got '1e39'"),
        (b"engine scales 1\n0 maxpool 1e-60 - -\n", r":2: largest magnitude: .* got '1e-60'"),
        (b"engine scales 1\n0 maxpool 1 int8 -0.5\n", ":2: expected"),
        (b"engine scales 1\n0 maxpool 1 int8 nan\n", ":2: expected"),
        (b"engine scales 1\n0 maxpool 1 int4 -\n", ":2: expected"),
        (b"engine scales 1\n0 maxpool 1 int8 x\n", ":2: expected"),
        (b"engine scales 1\ncfg " + b"0" * 64, "is incomplete: the digests of cfg and weights"),
        (
            b"engine scales 1\ncfg " + b"0" * 64 + b"\nweights 12",
            "is incomplete: the digests of cfg and weights",
        ),
    ],
)
def test_other_content_is_an_error_in_one_line(content, message):
    with pytest.raises(InputError, match=message) as caught:
        scales.parsed(content, "bad.scales")
    assert "\n" not in str(caught.value)
