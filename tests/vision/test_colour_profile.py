"""Annotated copies keep the ICC profile and resolution of a picture."""

import io

import pytest
from PIL import Image, ImageCms

import engine
from engine.vision.encode import encode
from engine.vision.image import read
from tests.pictures import write_picture

PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo.jpg"
    turned = Image.Exif()
    turned[0x0112] = 6
    with Image.open(write_picture(tmp_path / "plain.png", size=(70, 40))) as image:
        image.save(path, icc_profile=PROFILE, dpi=(300, 150), exif=turned)
    return path


@pytest.mark.parametrize("name", ["x.jpg", "x.png", "x.webp", "x.tif"])
def test_an_annotated_copy_keeps_profile_and_resolution(tiny_detector, photo, name):
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu") as detector:
        found = detector(photo)
    copy = photo.with_name(name)
    found.save(copy)
    with Image.open(copy) as image:
        assert image.size == (40, 70)
        assert image.info["icc_profile"] == PROFILE
        if name != "x.webp":  # WebP has no resolution
            assert image.info["dpi"] == pytest.approx((150, 300), abs=0.1)


@pytest.mark.parametrize("name", ["x.bmp", "x.gif", "x.ppm"])
def test_formats_without_a_profile_are_written_without(photo, name):
    image = read(photo).to_image()
    with Image.open(io.BytesIO(encode(image, name))) as copy:
        assert "icc_profile" not in copy.info


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("icc_profile", PROFILE[:16] + b"CMYK" + PROFILE[20:]),
        ("icc_profile", "text"),
        ("dpi", (0, 0)),
        ("dpi", (float("nan"), 1)),
        ("dpi", 72),
    ],
    ids=["CMYK", "text", "zero", "nan", "number"],
)
def test_values_that_do_not_describe_rgb_pixels_are_left_out(key, value):
    image = Image.new("RGB", (8, 8))
    image.info[key] = value
    assert getattr(read(image), key) is None
