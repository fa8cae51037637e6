"""Detectors of untrusted pictures decode in other processes, with the same results."""

import io

import numpy as np
import pytest

import engine
from engine.cli import main
from engine.errors import ImageError, InputError
from engine.vision import decode_pool
from tests.pictures import write_picture
from tests.vision.test_decode_pool import is_running


def load(model, **options):
    return engine.load(model.cfg, model.weights, model.names, device="cpu", **options)


@pytest.fixture(scope="module")
def detectors(tiny_detector):
    """Return a usual detector and one of untrusted pictures."""
    with load(tiny_detector) as usual, load(tiny_detector, untrusted=True) as untrusted:
        yield usual, untrusted


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    return [write_picture(folder / f"{number}.png", seed=number) for number in range(3)]


@pytest.fixture
def only_in_processes(monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("decoded in this process")

    monkeypatch.setattr("engine.vision.image.read_encoded", refuse)


def test_results_are_those_of_a_usual_detector(detectors, paths, only_in_processes, monkeypatch):
    usual, untrusted = detectors
    content = paths[0].read_bytes()
    got = [untrusted(paths[0]), untrusted(content), untrusted(io.BytesIO(content))]
    got += untrusted([paths[1], paths[2]])
    got += untrusted.stream(paths, workers=3)
    monkeypatch.undo()
    order = (0, 0, 0, 1, 2, 0, 1, 2)
    for result, number in zip(got, order, strict=True):
        expected = usual(paths[number])
        assert np.array_equal(result.boxes, expected.boxes)
        assert result.size == expected.size
    assert [result.path for result in got] == [
        str(paths[0]),
        None,
        None,
        *(str(paths[number]) for number in order[3:]),
    ]


def test_a_broken_picture_is_the_only_error(detectors, paths, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    outcomes = list(detectors[1].stream([paths[0], broken, paths[1]], on_error="yield"))
    assert [isinstance(each, ImageError) for each in outcomes] == [False, True, False]
    assert str(outcomes[1]).startswith(f"{broken}: picture: expected JPEG")


def test_pictures_are_not_decoded_again_to_be_drawn(detectors, paths, only_in_processes):
    untrusted = detectors[1]
    assert untrusted(paths[0]).plot().size == untrusted([paths[0]])[0].plot().size
    (kept,) = untrusted.stream([paths[0]], keep_pictures=True)
    assert kept.plot().size == kept.size
    (result,) = untrusted.stream([paths[0]])
    with pytest.raises(InputError, match="picture: is untrusted and was not kept"):
        result.plot()


def test_videos_are_refused(detectors, tmp_path):
    video = tmp_path / "film.mp4"
    video.write_bytes(bytes(100))
    reason = "film.mp4: expected a picture, got a video, which is not decoded as untrusted"
    with pytest.raises(ImageError, match=reason):
        detectors[1](video)
    (error,) = detectors[1].stream([video], on_error="yield")
    assert isinstance(error, ImageError)


def test_the_processes_end_with_the_detector(tiny_detector, paths):
    with load(tiny_detector, untrusted=True) as detector:
        detector(paths[0])
        processes = [each._child.pid for each in detector._decoders._workers]
        assert processes
    assert not any(map(is_running, processes))


def test_no_process_is_left_when_loading_fails(tiny_detector, tmp_path, monkeypatch):
    pools = []

    class Recorded(decode_pool.DecodePool):
        def __init__(self, count):
            super().__init__(count)
            pools.append([each._child.pid for each in self._workers])

    monkeypatch.setattr(decode_pool, "DecodePool", Recorded)
    with pytest.raises(engine.ConfigError):
        engine.load(tmp_path / "no.cfg", tiny_detector.weights, untrusted=True)
    assert pools[0]
    assert not any(map(is_running, pools[0]))


def test_a_usual_detector_starts_no_process(tiny_detector, paths, monkeypatch):
    monkeypatch.setattr(decode_pool, "DecodePool", None)
    with load(tiny_detector) as detector:
        assert detector(paths[0]).size


@pytest.mark.slow
@pytest.mark.parametrize("command", ["detect", "evaluate"])
def test_commands_decode_in_processes(
    command, tiny_detector, tmp_path, only_in_processes, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    write_picture(tmp_path / "images/dog.png", seed=1)
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/dog.txt").write_text("0 0.5 0.5 0.6 0.8\n")
    (tmp_path / "film.mp4").write_bytes(bytes(100))
    model = [*map(str, tiny_detector.options), "--names", str(tiny_detector.names)]
    sources = ["images/dog.png", "film.mp4"] if command == "detect" else ["images"]
    words = [command, *model, *sources, "--device", "cpu", "--untrusted"]
    assert main(words) == (command == "detect")
    error = "Error: film.mp4: expected a picture, got a video, which is not decoded as untrusted\n"
    told = capsys.readouterr().err
    assert told.startswith(error) if command == "detect" else told == ""


@pytest.mark.slow
def test_sizes_for_results_of_a_file_are_read_in_processes(
    tiny_detector, tmp_path, only_in_processes, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    write_picture(tmp_path / "images/7.png", seed=1)
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/7.txt").write_text("0 0.5 0.5 0.6 0.8\n")
    (tmp_path / "found.json").write_text("[]")
    words = ["evaluate", "images", "--detections", "found.json", "--untrusted"]
    assert main([*words, "--names", str(tiny_detector.names)]) == 0
    assert "1 picture" in capsys.readouterr().out
