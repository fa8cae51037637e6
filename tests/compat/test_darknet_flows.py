"""Scripts for darknet.py that read pictures in batches or from a video: one changed line."""

import re
from pathlib import Path

import pytest
from PIL import Image

from engine.compat import darknet
from engine.errors import ConfigError
from tests.cli.darknet import parcel_set
from tests.cli.darknet.parcel_set import MODEL

FOLDER = Path(__file__).parent


def load(name):
    """Return the functions of a script, after the one change that a user makes."""
    source = (FOLDER / name).read_text(encoding="utf-8")
    changed = source.replace("import darknet\n", "from engine.compat import darknet\n")
    assert len(set(source.splitlines()) - set(changed.splitlines())) == 1
    functions = {"__name__": name}
    exec(compile(changed, name, "exec"), functions)
    return functions


@pytest.fixture
def here(tmp_path, monkeypatch):
    parcel_set.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    darknet.set_gpu(-1)


def test_the_flow_of_a_video(here, capsys):
    data, cfg, weights = MODEL
    words = ["--config_file", cfg, "--data_file", data, "--weights", weights]
    pictures = ["set/2.png", "set/3.png", "set/2.png"]
    drawn = load("darknet_video_script.py")["main"]([*words, "--thresh", "0.5", *pictures])
    texts = capsys.readouterr().out.split("\nObjects:\n")[1:]
    labels = [re.findall(r"^(\w+): \d", text, re.MULTILINE) for text in texts]
    expected = [["aztec", "barcode"], ["barcode", "qr"], ["aztec", "barcode"]]
    assert [sorted(each) for each in labels] == expected
    assert "(left_x: " in texts[0]
    assert texts[0] == texts[2]
    with Image.open("set/2.png") as before:
        assert drawn[0].shape == (before.height, before.width, 3)
        assert drawn[0].tobytes() != before.convert("RGB").tobytes()


def test_the_flow_of_a_batch(here, capsys):
    script = load("darknet_batch_script.py")
    found = script["main"](MODEL[1], MODEL[0], MODEL[2], ["set/2.png", "set/3.png"])
    assert [[label for label, *_ in each] for each in found] == [
        ["aztec", "barcode"],
        ["qr", "barcode"],
    ]
    lines = Path("set/3.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["0", "4"]


def test_the_flow_of_scripts_from_before_2020(here):
    data, cfg, weights = MODEL
    files = {"configPath": cfg, "weightPath": weights, "metaPath": data}
    assert darknet.performDetect(initOnly=True, **files) is None
    found = darknet.performDetect("set/2.png", 0.5, showImage=False)
    network, meta = darknet.load_net(cfg.encode(), weights.encode()), darknet.load_meta(data)
    assert found == darknet.detect(network, meta, "set/2.png", 0.5)
    assert [label for label, *_ in found] == ["aztec", "barcode"]

    shown = darknet.performDetect("set/2.png", 0.5)
    assert shown["detections"] == found
    percent = [f"{label}: {round(100 * score)}.0%" for label, score, _ in found]
    assert shown["caption"] == "\n<br/>".join(percent)
    with Image.open("set/2.png") as before:
        assert shown["image"].shape == (before.height, before.width, 3)
        assert shown["image"].tobytes() != before.convert("RGB").tobytes()


def test_old_scripts_may_change_the_network(here):
    data, cfg, weights = MODEL
    darknet.performDetect(initOnly=True, configPath=cfg, weightPath=weights, metaPath=data)
    with pytest.raises(ConfigError, match=r"^no\.cfg: "):
        darknet.performDetect("set/2.png", configPath="no.cfg", weightPath=weights, metaPath=data)
    assert darknet.performDetect("set/2.png", 0.5)["detections"]


@pytest.mark.slow
@pytest.mark.parametrize("given", [["configPath"], ["metaPath"], ["configPath", "weightPath"]])
def test_old_scripts_may_leave_out_some_files_of_a_kept_network(here, given):
    data, cfg, weights = MODEL
    files = {"configPath": cfg, "weightPath": weights, "metaPath": data}
    darknet.performDetect(initOnly=True, **files)
    expected = darknet.performDetect("set/2.png", 0.5, showImage=False)
    some = {name: files[name] for name in given}
    assert darknet.performDetect("set/2.png", 0.5, showImage=False, **some) == expected
