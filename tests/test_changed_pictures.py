"""A result refuses to draw on a file that is not the one that its boxes were found in."""

import io
import os
import pickle
import shutil
import zipfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import engine
from engine.errors import ImageError
from tests.pictures import write_picture

SIZE = (100, 50)


@pytest.fixture
def detector(tiny_detector, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_picture("a.bmp", SIZE, seed=1)
    write_picture("other.bmp", SIZE, seed=2)
    with engine.load(
        tiny_detector.cfg, tiny_detector.weights, tiny_detector.names, device="cpu"
    ) as loaded:
        yield loaded


def write_over():
    shutil.copyfile("other.bmp", "a.bmp")


def move_over():
    """Give a new file the size and the time of the old one, as an archive may."""
    about = Path("a.bmp").stat()
    os.utime("other.bmp", ns=(about.st_atime_ns, about.st_mtime_ns))
    Path("other.bmp").replace("a.bmp")


WAYS = {
    "text": lambda detector: detector("a.bmp"),
    "path": lambda detector: detector(Path("a.bmp")),
}


@pytest.mark.parametrize("change", [write_over, move_over])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_changed_file_is_refused(detector, way, change):
    result = pickle.loads(pickle.dumps(way(detector)))[:1]
    before = result.plot(array="rgb")
    np.testing.assert_array_equal(result.plot("a.bmp", array="rgb"), before)
    change()
    for use in (result.plot, result.crops, lambda: result.save("out.png")):
        with pytest.raises(ImageError, match=r"^a\.bmp: has changed since it was read"):
            use()
    assert not Path("out.png").exists()
    assert result.plot("a.bmp").size == SIZE  # that picture was asked for
    assert result._repr_png_() is None


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
def test_files_that_other_processes_read(detector, workers):
    for number in range(80):
        write_picture(f"many/{number:03d}.bmp", SIZE, seed=number)
    names = sorted(map(str, Path("many").iterdir()))
    results = list(detector.stream(names, workers=workers))
    assert all(each.plot().size == SIZE for each in results)
    shutil.copyfile("a.bmp", names[70])
    with pytest.raises(ImageError, match=r"070\.bmp: has changed"):
        results[70].plot()
    kept = next(detector.stream(names, workers=workers, keep_pictures=True))
    shutil.copyfile("a.bmp", names[0])
    assert kept.plot().size == SIZE


def test_a_file_in_memory_is_not_the_file_of_its_name(detector):
    content = io.BytesIO(Path("other.bmp").read_bytes())
    content.name = "a.bmp"
    result = detector(content)
    assert result.path == "a.bmp"
    expected = detector("other.bmp").plot(array="rgb")
    np.testing.assert_array_equal(result.plot(array="rgb"), expected)


def drawn_on(stack):
    image = stack.enter_context(Image.open("a.bmp"))
    image.paste((0, 0, 0), (20, 10, 60, 40))
    return image


def another_page(stack):
    with Image.open("a.bmp") as first, Image.open("other.bmp") as second:
        first.save("a.tif", save_all=True, append_images=[second])
    image = stack.enter_context(Image.open("a.tif"))
    image.seek(1)
    return image


def in_an_archive(stack):
    with zipfile.ZipFile("a.zip", "w") as archive:
        archive.write("other.bmp", "a.bmp")
    archive = stack.enter_context(zipfile.ZipFile("a.zip"))
    return stack.enter_context(archive.open("a.bmp"))


def after_its_start(stack):
    Path("both.bin").write_bytes(Path("a.bmp").read_bytes() + Path("other.bmp").read_bytes())
    file = stack.enter_context(Path("both.bin").open("rb"))  # noqa: SIM115
    file.seek(Path("a.bmp").stat().st_size)
    return file


@pytest.mark.parametrize("source", [drawn_on, another_page, in_an_archive, after_its_start])
def test_what_has_the_name_of_a_file_is_not_that_file(detector, source):
    with ExitStack() as stack:
        with Image.open("other.bmp") as image:
            pixels = np.asarray(drawn_on(stack) if source is drawn_on else image)
        expected = detector(pixels)
        assert len(expected)
        result = detector(source(stack))
        (streamed,) = detector.stream([source(stack)])
        (kept,) = detector.stream([source(stack)], keep_pictures=True)
    np.testing.assert_array_equal(result.plot(array="rgb"), expected.plot(array="rgb"))
    for unkept in (streamed, pickle.loads(pickle.dumps(result))):
        with pytest.raises(ImageError, match=r"was not kept and .* Pass the picture"):
            unkept.plot()
    np.testing.assert_array_equal(kept.plot(array="rgb"), expected.plot(array="rgb"))


def test_an_edited_picture_is_never_drawn_from_its_file(detector):
    (first,) = detector.stream(["a.bmp"], keep_pictures=True)
    edited = np.array(first.picture.pixels)
    edited[:] = 7
    picture = replace(first.picture, pixels=edited)
    for result in (detector(picture), *detector([picture])):
        np.testing.assert_array_equal(result.picture.pixels, edited)
