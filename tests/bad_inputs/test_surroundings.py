"""71 to 76: missing GPUs and home folders, unusual terminals, invalid model names."""

import os

import numpy as np
import pytest
from PIL import Image

import engine
from engine import cli
from engine.backends.cuda.driver import library
from tests.faults.child import ENGINE, ROOT, run
from tests.lanes import slow_except

NOISE = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    "device",
    slow_except(["cuda:7", "gpu"], ["cuda", "cuda:0", "cuda:7", "cuda:x", "gpu", "cpu:0", "cpu:x"]),
)
def test_71_missing_device_is_one_error_line(tiny_detector, tmp_path, device):
    if device in ("cuda", "cuda:0") and library.find(library.DRIVER):
        pytest.skip("this machine has NVIDIA's driver")
    Image.fromarray(NOISE).save(tmp_path / "street.png")
    options = [each for each in tiny_detector.options if each not in ("--device", "cpu")]
    command = ["detect", *options, "--device", device, "street.png"]
    end = run(ENGINE, *command, cwd=tmp_path)
    assert end.status in (2, 4), end.err
    assert len(end.errors) == 1
    assert device.partition(":")[0] in end.errors[0]


LOCALES = {
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "POSIX": {"LC_ALL": "POSIX", "PYTHONUTF8": "0"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "none": {"LC_ALL": "xx_YY.nothing"},
}


@pytest.mark.parametrize("locale", slow_except(["C"], LOCALES))
def test_75_names_are_printable_in_any_terminal_encoding(tiny_detector, tmp_path, locale):
    Image.fromarray(NOISE).save(tmp_path / "street.png")
    (tmp_path / "names").write_text("кот\n犬\n\U0001f404\n", encoding="utf-8")
    command = ["detect", *tiny_detector.options, "--names", "names", "--thresh", "0.01"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **LOCALES[locale]}
    outputs = ["--json", "found.json", "--csv", "found.csv", "-o", "out", "--save-txt", "labels"]
    end = run(ENGINE, *command, *outputs, "street.png", cwd=tmp_path, env=environment)
    assert (end.status, end.err) == (0, "")
    assert "street.png" in end.out
    found = (tmp_path / "found.json").read_text(encoding="utf-8")
    assert any(name in found or ascii(name)[1:-1] in found for name in ("кот", "犬", "\U0001f404"))
    assert run(ENGINE, *command, "кот.png", cwd=tmp_path, env=environment).status == 1


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "..", "yolov4-tiny/../x", "", "a\nb", "x" * 5000]
)
def test_76_model_name_must_not_be_a_path(tmp_path, name):
    end = run(ENGINE, "models", "pull", name, cwd=tmp_path)
    assert end.status in (1, 2), end.err
    assert len(end.errors) == 1
    assert len(end.err) < 1000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "number", ["9" * 5000, "-1", "٣", "1_000", "0x10", " 3", "3.5", ""], ids=ascii
)
@pytest.mark.parametrize("option", ["--classes", "--device=cpu:", "--size", "--threads", "--batch"])
def test_invalid_numbers_are_one_error_line(tiny_detector, capsys, option, number):
    given = [option + number] if option.endswith(":") else [option, number]
    status = cli.main(["detect", *tiny_detector.options, *given, "none.png"])
    lines = capsys.readouterr().err.splitlines()
    assert status in (0, 1, 2)
    assert all(len(line) < 500 for line in lines)


def test_invalid_environment_variable_is_one_error_line(monkeypatch):
    monkeypatch.setenv("ENGINE_NUM_THREADS", "9" * 5000)
    with pytest.raises(engine.InputError, match=r"ENGINE_NUM_THREADS: expected a number"):
        engine.load(device="cpu")
