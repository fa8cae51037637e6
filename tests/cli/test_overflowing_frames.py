"""Annotated videos with frames in which the network overflows: what is recorded and hidden."""

import json
from pathlib import Path

import numpy as np
import pytest

from engine import cli
from engine.outputs.record import FILE
from tests import needs
from tests.pictures import write_picture

av = needs.package("av")


@pytest.fixture
def detect(overflowing_when_bright, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = ["--names", str(overflowing_when_bright.names), "--quiet"]

    def run(*arguments):
        status = cli.main(["detect", *overflowing_when_bright.options, *names, *arguments])
        return status, capsys.readouterr().err

    return run


def write_video(path, *, bright, count=6):
    """Write dark frames and `bright` ones, which have fine stripes."""
    with av.open(path, "w") as container:
        stream = container.add_stream("png", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "rgb24"
        for number in range(count):
            pixels = np.zeros((48, 64, 3), np.uint8)
            if number in bright:
                pixels[:, ::2] = 255
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


def frames_of(path):
    with av.open(path) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def is_done(output):
    """Tell what the last line about an output in the record of its folder says."""
    lines = [json.loads(line) for line in Path("out", FILE).read_text().splitlines()]
    (*_, last) = (line for line in lines if line.get("output", line.get("file")) == output)
    return last.get("done", True)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_video_that_is_cut_short_while_its_frames_overflow_is_finished_later(detect, is_replaced):
    write_video("v.avi", bright=[] if is_replaced else [0])
    if is_replaced:
        assert detect("v.avi", "-o", "out")[0] == 0
        write_video("v.avi", bright=[0])
    assert detect("v.avi", "-o", "out", "--overwrite", "--fail-fast")[0] == 1
    assert len(frames_of("out/v.avi")) == 1
    assert not is_done("v")
    assert detect("v.avi", "-o", "out", "--resume")[0] == 1
    assert len(frames_of("out/v.avi")) == 6
    assert is_done("v")


@pytest.mark.parametrize("later", ["overflows.avi", "broken.png"])
def test_an_earlier_video_stays_complete(detect, later):
    write_video("a.avi", bright=[])
    write_video("overflows.avi", bright=[0])
    write_picture("broken.png", (64, 48))
    Path("broken.png").write_bytes(Path("broken.png").read_bytes()[:50])
    assert detect("a.avi", later, "-o", "out", "--fail-fast")[0] == 1
    assert is_done("a")
    assert len(frames_of("out/a.avi")) == 6


def test_a_video_whose_frames_all_overflow_has_a_record(detect):
    write_video("v.avi", bright=range(6))
    hiding = "v.avi", "-o", "out", "--blur", "all"
    assert detect(*hiding)[0] == 1
    assert is_done("v")
    status, error = detect(*hiding, "--resume")
    assert status == 0, error
    assert "--resume" not in error


@pytest.mark.parametrize("way", ["blur", "pixelate"])
def test_a_frame_in_which_nothing_could_be_found_is_hidden_whole(detect, way):
    write_video("v.avi", bright=[2])
    assert detect("v.avi", "-o", "seen.avi")[0] == 1
    assert detect("v.avi", "-o", "hidden.avi", f"--{way}", "cat")[0] == 1
    seen, hidden = frames_of("seen.avi")[2], frames_of("hidden.avi")[2]
    assert np.ptp(seen.astype(int), axis=1).min() > 150  # the stripes
    assert np.ptp(hidden.astype(int)) < 40
