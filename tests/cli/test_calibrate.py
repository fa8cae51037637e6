from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import engine
from engine import cli, scales
from engine.backends import open_device
from engine.cli import _output_files
from engine.darknet import cfg, graph, weights
from engine.models.digest import digest
from tests import needs
from tests.devices import open_or_skip
from tests.pictures import write_picture
from tests.small_models import write_model

NET = """
[net]
width=32
height=32
channels=3

[convolutional]
batch_normalize=1
filters=16
size=3
pad=1
activation=leaky

[maxpool]
size=2
stride=2

[convolutional]
batch_normalize=1
filters=16
size=3
pad=1
activation=leaky

[convolutional]
filters=16
size=1
activation=linear

[yolo]
mask=0,1
anchors=10,14, 23,27
classes=3
num=2
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("int8"), NET, ["cat", "dog", "cow"])


@pytest.fixture
def pictures(tmp_path):
    for seed in range(3):
        write_picture(tmp_path / f"set/images/{seed}.png", seed=seed)
        label = tmp_path / f"set/labels/{seed}.txt"
        label.parent.mkdir(exist_ok=True)
        label.write_text("0 0.5 0.5 0.6 0.8\n")
    return tmp_path / "set/images"


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.cuda)])
def device(request):
    if request.param != "cpu":
        open_or_skip(lambda: open_device(request.param)).close()
    return request.param


def calibrate(model, *words, device="cpu"):
    files = map(str, (model.cfg, model.weights, *words))
    return cli.main(["calibrate", *files, "--device", device])


def change_weights(model, change):
    """Rewrite the weights after `change` of the arrays of every layer."""
    network = graph.build(cfg.read(model.cfg))
    arrays = [dict(each) for each in weights.load(model.weights, network)]
    arrays = [
        {name: change(number, name, np.array(values)) for name, values in each.items()}
        for number, each in enumerate(arrays)
    ]
    weights.save(model.weights, network, arrays, overwrite=True)


def error_of_int8(model, scales, device):
    """Return the error of outputs in int8, relative to float32 on the CPU."""
    files = model.cfg, model.weights
    with (
        engine.load(*files, device=device, precision="int8", scales=scales) as small,
        engine.load(*files, device="cpu") as whole,
    ):
        x = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
        (found,), (expected,) = small.forward(x), whole.forward(x)
        return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def test_a_file_that_appears_during_the_run_is_not_replaced(
    model, pictures, tmp_path, capsys, monkeypatch
):
    path = tmp_path / "my.scales"
    path.write_text("mine")
    monkeypatch.setattr(_output_files, "check_output", lambda *_, **options: None)
    assert calibrate(model, pictures, "-o", path) == 2
    hint = "exists already. Name another, or add --overwrite"
    assert capsys.readouterr().err.splitlines()[-1] == f"Error: {path}: {hint}"
    assert path.read_text() == "mine"


def test_it_writes_scales_with_which_int8_runs(model, pictures, tmp_path, capsys):
    path = tmp_path / "my.scales"
    options = "-o", path, "--names", model.names, "--check", pictures, "--measure", 2
    assert calibrate(model, pictures, *options) == 0
    out = capsys.readouterr().out
    assert f"{path}: 3 pictures" in out
    assert [line.split()[:2] for line in out.splitlines()[1:3]] == [
        ["2", "convolutional"],
        ["3", "convolutional"],
    ]
    assert [line.split()[0] for line in out.splitlines()[-3:]] == ["precision", "float32", "int8"]
    assert 0 < error_of_int8(model, path, "cpu") < 0.07
    picture = pictures / "0.png"
    files = model.cfg, model.weights, model.names
    with (
        engine.load(*files, device="cpu", precision="int8", scales=path) as small,
        engine.load(*files, device="cpu") as whole,
    ):
        assert len(small.layer_outputs(np.zeros((1, 3, 32, 32), np.float32))) == 5
        assert len(small(picture)) == len(whole(picture))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["-o", "0.png", "--overwrite"],
            "--output 0.png: is the name of a picture. Try NAME.scales",
        ),
        (["-o", "-"], "--output -: expected a file: this output does not go to stdout"),
        (["-o", "a.scales", "--names", "net.names"], "--names: only with --check"),
        (["-o", "a.scales", "--check", "gone"], "--check gone: no such file or folder"),
        (
            ["-o", "a.scales", "--check", ".", "--names", "no.names"],
            "no.names: cannot be read: No such file or directory",
        ),
    ],
)
def test_options_are_checked_before_anything_is_measured(
    model, pictures, monkeypatch, capsys, options, message
):
    monkeypatch.chdir(pictures)
    before = (pictures / "0.png").read_bytes()
    assert calibrate(model, pictures, *options) in (2, 3)
    assert capsys.readouterr().err == f"Error: {message}\n"
    assert (pictures / "0.png").read_bytes() == before


@pytest.mark.parametrize("labels", ["no pictures", "no labels", "empty labels", "other classes"])
def test_a_check_without_labels_is_refused_first(model, pictures, tmp_path, capsys, labels):
    checked = tmp_path / "checked"
    (checked / "labels").mkdir(parents=True)
    if labels != "no pictures":
        write_picture(checked / "images/0.png")
    if labels == "empty labels":
        (checked / "labels/0.txt").write_text("")
    if labels == "other classes":
        (checked / "labels/0.txt").write_text("7 0.5 0.5 0.6 0.8\n")
    path = tmp_path / "a.scales"
    assert calibrate(model, pictures, "-o", path, "--check", checked) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith(f"Error: {checked}: ")
    assert "names no picture" in line or "expected labelled pictures, got none with a label" in line
    assert not told.out
    assert not path.exists()


def test_a_classifier_has_no_boxes_to_check(tiny_classifier, pictures, tmp_path, capsys):
    options = "-o", tmp_path / "a.scales", "--check", pictures
    assert calibrate(tiny_classifier, pictures, *options) == 2
    assert "--check: only for detectors, got a classifier: net.cfg" in capsys.readouterr().err


def test_a_network_without_boxes_or_classes_is_another_one(tmp_path, pictures, capsys):
    model = write_model(tmp_path, NET.partition("[yolo]")[0], [])
    options = "-o", tmp_path / "a.scales", "--check", pictures
    assert calibrate(model, pictures, *options) == 2
    assert "--check: only for detectors, got another network: " in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--pictures", "--measure"])
@pytest.mark.parametrize("count", ["0", "9" * 20, "9" * 5000, "\u00b2"])
def test_counts_that_nobody_means_are_one_line(model, pictures, capsys, option, count):
    assert calibrate(model, pictures, option, count) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{option}: expected a whole number from 1 to 1000000000, got '{count[:50]}" in line


@pytest.mark.parametrize("option", ["--names", "--check"])
def test_its_output_replaces_no_file_that_is_read(model, pictures, tmp_path, capsys, option):
    (tmp_path / "set.txt").write_text("".join(f"{pictures}/{n}.png\n" for n in range(3)))
    mine = Path(model.names if option == "--names" else tmp_path / "set.txt")
    before = mine.read_bytes()
    options = ["--check", tmp_path / "set.txt", "--names", model.names]
    assert calibrate(model, pictures, *options, "-o", mine, "--overwrite") == 2
    assert "would replace a file that is read" in capsys.readouterr().err
    assert mine.read_bytes() == before


def test_pictures_that_cannot_be_read_show_in_the_status(model, pictures, tmp_path, capsys):
    (pictures / "1.png").write_bytes(b"no picture")
    assert calibrate(model, pictures, "-o", tmp_path / "a.scales") == 1
    told = capsys.readouterr()
    assert told.err.count("Error: ") == 1
    assert "a.scales: 2 pictures" in told.out


def test_labelled_pictures_that_cannot_be_read_show_in_the_status(
    model, pictures, tmp_path, capsys
):
    picture = write_picture(tmp_path / "p.png")
    (pictures / "1.png").write_bytes(b"no picture")
    options = ["--check", pictures, "--names", model.names, "-o", tmp_path / "a.scales"]
    assert calibrate(model, picture, *options) == 1
    told = capsys.readouterr()
    assert told.err.count("1.png") == 1
    assert "a.scales: 1 picture\n" in told.out
    assert "\nint8 " in told.out


def test_a_network_without_such_convolutions_says_so(tmp_path, capsys):
    model = write_model(tmp_path, NET.replace("filters=16\nsize=3", "filters=15\nsize=3"), "abc")
    picture = write_picture(tmp_path / "p.png")
    assert calibrate(model, picture, "-o", tmp_path / "a.scales") == 0
    assert "no convolution of this network can multiply integers" in capsys.readouterr().out


def test_pictures_in_subfolders(model, pictures, tmp_path, capsys):
    options = [tmp_path / "set", "--recursive", "-o", tmp_path / "a.scales"]
    assert calibrate(model, *options) == 0
    assert "a.scales: 3 pictures" in capsys.readouterr().out


def test_layers_are_compared_with_float32(model, pictures, tmp_path, capsys):
    path = tmp_path / "my.scales"
    assert calibrate(model, pictures, "-o", path) == 0
    capsys.readouterr()
    ways = ["--first", "cpu", "--second", "cpu/int8", "--scales", str(path)]
    files = [str(pictures / "0.png"), str(model.cfg), str(model.weights)]
    assert cli.main(["compare", *files, *ways, "--tolerance", "0.1"]) == 0
    assert "cpu/float32 and cpu/int8 agree" in capsys.readouterr().out
    assert cli.main(["compare", *files, *ways, "--tolerance", "0"]) == 1
    assert "differ from layer 0 [convolutional]" in capsys.readouterr().out
    assert cli.main(["compare", *files, "--second", "cpu/int8"]) == 2
    assert "engine calibrate" in capsys.readouterr().err


def test_scales_next_to_the_weights_are_found_and_not_replaced(model, pictures, capsys):
    beside = model.weights.with_suffix(".scales")
    try:
        assert calibrate(model, pictures, "--pictures", 1) == 0
        assert "1 picture\n" in capsys.readouterr().out
        detect = ["detect", *model.options, "--precision", "int8", str(pictures / "0.png")]
        assert cli.main(detect) == 0
        assert calibrate(model, pictures) == 2
        assert "--overwrite" in capsys.readouterr().err
    finally:
        beside.unlink(missing_ok=True)


@pytest.mark.parametrize("place", ["engine.cli._network.read", "engine.backends.open_chosen"])
def test_scales_name_the_weights_that_were_measured(tmp_path, monkeypatch, pictures, capsys, place):
    """Training saves the weights again while they are read, or later."""
    (tmp_path / "net").mkdir()
    model = write_model(tmp_path / "net", NET, ["a", "b", "c"])
    measured = digest(model.weights, "sha256")
    owner, name = place.rsplit(".", 1)
    function = getattr(import_module(owner), name)

    def save_again(*given):
        found = function(*given)
        change_weights(model, lambda number, name, values: values / 2)
        return found

    monkeypatch.setattr(place, save_again)
    path = tmp_path / "my.scales"
    status = calibrate(model, pictures, "-o", path, "--measure", 1)
    if name == "read":
        assert (status, path.exists()) == (2, False)
        assert "changed while it was read. Try again" in capsys.readouterr().err
    else:
        assert (status, scales.parsed(path.read_bytes(), "a").weights) == (0, measured)


def changed_model(folder, change):
    folder.mkdir()
    model = write_model(folder, NET, ["a", "b", "c"])
    change_weights(model, change)
    return model


def test_one_grey_picture_is_enough(model, device, tmp_path, capsys):
    grey = tmp_path / "grey.png"
    Image.new("RGB", (40, 30), (128, 128, 128)).save(grey)
    path = tmp_path / "grey.scales"
    assert calibrate(model, grey, "-o", path, device=device) == 0
    assert "1 picture\n" in capsys.readouterr().out
    assert error_of_int8(model, path, device) < 1


def test_black_pictures_and_dead_channels(device, tmp_path, capsys):
    """Zeros in all of a layer, and in one channel of it."""

    def kill(number, name, values):
        channels = {0: slice(3, 4), 2: slice(None)}.get(number, slice(0))
        values[channels] = 0 if name in ("weight", "scale", "bias") else values[channels]
        return values

    model = changed_model(tmp_path / "dead", kill)
    black = tmp_path / "black.png"
    Image.new("RGB", (40, 30)).save(black)
    path = tmp_path / "dead.scales"
    assert (
        calibrate(model, black, write_picture(tmp_path / "p.png"), "-o", path, device=device) == 0
    )
    assert error_of_int8(model, path, device) < 0.07


def test_a_layer_with_infinite_values_stays_float(device, tmp_path, capsys, caplog):
    def overflow(number, name, values):
        # Weights are finite, and so are sums where the picture is black.
        changed = {"scale": 5e37, "mean": 0, "bias": 0}
        if number or name not in changed:
            return values
        return np.full_like(values, changed[name])

    model = changed_model(tmp_path / "infinite", overflow)
    path = tmp_path / "infinite.scales"
    Image.new("RGB", (40, 30)).save(tmp_path / "black.png")
    pictures = tmp_path / "black.png", write_picture(tmp_path / "p.png")
    assert calibrate(model, *pictures, "-o", path, device=device) == 0
    assert "\n0 convolutional inf - -" in path.read_text()
    told = capsys.readouterr()
    (line,) = caplog.messages
    assert line.startswith(f"{tmp_path}/p.png: 5 layers have values that are not finite")
    assert "int8" not in [word for line in told.out.splitlines() for word in line.split()[3:4]]
    assert "limits by max, 2 stay float" in told.out
    x = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
    files = model.cfg, model.weights
    with engine.load(*files, device=device, precision="int8", scales=path) as small:
        assert len(small.forward(x)) == 1


def test_outputs_that_are_not_finite_are_one_line(tmp_path, capsys):
    model = changed_model(tmp_path / "m", lambda number, name, values: np.full_like(values, 3e38))
    path = tmp_path / "m.scales"
    assert calibrate(model, write_picture(tmp_path / "p.png"), "-o", path, device="cpu") == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert "outputs are not finite in float32" in line
    assert not path.exists()


def test_no_picture_is_an_error_in_one_line(model, device, tmp_path, capsys):
    (tmp_path / "bad.png").write_bytes(b"no picture")
    assert calibrate(model, tmp_path / "bad.png", "-o", tmp_path / "a.scales", device=device) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert "no picture could be read" in last
    assert calibrate(model) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no picture named" in line
    assert not (tmp_path / "a.scales").exists()


def test_onnx_runtime_is_refused(model, pictures, tmp_path, capsys):
    needs.package("onnxruntime")
    words = ["calibrate", str(model.cfg), str(model.weights), str(pictures), "--device", "ort"]
    assert cli.main([*words, "-o", str(tmp_path / "a.scales")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "expected the CPU or one GPU" in line


def test_int8_without_scales_says_how_to_make_them(model, pictures, capsys):
    detect = ["detect", *model.options, "--precision", "int8", str(pictures / "0.png")]
    assert cli.main(detect) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "net.scales: no such file" in line
    assert "engine calibrate" in line
    with pytest.raises(engine.InputError, match="scales: only for precision int8"):
        engine.load(model.cfg, model.weights, device="cpu", scales="a.scales")


def test_benchmarks_of_random_weights_need_no_scales(model, capsys):
    words = ["--cfg", str(model.cfg), "--device", "cpu", "--precision", "int8", "--seconds", "0.01"]
    assert cli.main(["benchmark", *words, "--warm-up", "0", "--layers"]) == 0
    assert "int8" in capsys.readouterr().out


def test_a_benchmark_says_if_all_layers_stay_float(tmp_path, capsys):
    model = write_model(tmp_path, NET.replace("filters=16\nsize=3", "filters=15\nsize=3"), "abc")
    words = ["--cfg", str(model.cfg), "--device", "cpu", "--precision", "int8", "--seconds", "0"]
    assert cli.main(["benchmark", *words, "--warm-up", "0"]) == 0
    assert "net.cfg: int8: no layer multiplies integers" in capsys.readouterr().err
