"""Pictures from paths, bytes, files, Pillow images and arrays; numbers are kinds of bad input."""

import io
import os
import socket
import struct
import threading
import warnings
import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import pytest
from PIL import Image

from engine.errors import ImageError
from engine.vision import decode
from engine.vision.image import Picture, read

RANDOM = np.random.default_rng(0)
COLOURS = RANDOM.integers(0, 256, (12, 20, 3), dtype=np.uint8)
# Blocks of one colour survive JPEG's chroma subsampling.
BLOCKS = np.kron(RANDOM.integers(0, 256, (3, 5, 3), dtype=np.uint8), np.ones((16, 16, 1), np.uint8))


def encoded(image, kind="PNG", **options):
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png(width, height, *, bits=8, colour=2, rows=b"", level=9):
    """Encode a PNG whose header may be wrong."""

    def chunk(name, content):
        checked = name + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, level)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


# ------------------------------------------------------------ formats and broken files


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP", "TIFF", "PPM"])
def test_lossless_formats_give_the_pixels_back(kind):
    options = {"lossless": True} if kind == "WEBP" else {}
    picture = read(encoded(COLOURS, kind, **options))
    np.testing.assert_array_equal(picture.pixels, COLOURS)
    assert picture.pixels.dtype == np.uint8
    assert picture.size == (20, 12)


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (33, 7), (2300, 2000)])
def test_every_pixel_of_a_pillow_image_is_read(size):
    """Test an image that Pillow stores in several blocks of memory, too."""
    pixels = np.random.default_rng(1).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    np.testing.assert_array_equal(read(Image.fromarray(pixels)).pixels, pixels)


@pytest.mark.skipif(not hasattr(Image.Image, "__arrow_c_array__"), reason="Pillow before 11.2")
def test_pixels_are_not_packed_by_pillow_under_the_gil(monkeypatch):
    image = Image.fromarray(COLOURS)
    monkeypatch.delattr(Image.Image, "tobytes")
    np.testing.assert_array_equal(read(image).pixels, COLOURS)


def test_gif_gives_its_palette_colours():
    image = Image.fromarray(COLOURS).quantize(16)
    np.testing.assert_array_equal(
        read(encoded(image, "GIF")).pixels, np.asarray(image.convert("RGB"))
    )


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"quality": 95, "subsampling": 0}])
def test_jpeg_gives_nearly_the_pixels_back(options):
    picture = read(encoded(BLOCKS, "JPEG", **options))
    assert np.abs(picture.pixels.astype(int) - BLOCKS).mean() < 8


def test_mpo_gives_its_first_picture():
    first, second = Image.fromarray(BLOCKS), Image.fromarray(255 - BLOCKS)
    content = encoded(first, "MPO", save_all=True, append_images=[second])
    assert np.abs(read(content).pixels.astype(int) - BLOCKS).mean() < 8


def test_54_wrong_file_extension_does_not_matter(tmp_path):
    path = tmp_path / "picture.jpg"
    path.write_bytes(encoded(COLOURS, "PNG"))
    np.testing.assert_array_equal(read(path).pixels, COLOURS)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "got an empty file"),
        (b"\x00" * 100, "got something else"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "got a web page. Fetch the file itself"),
        (b"\n <html lang='en'>", "got a web page"),
        (b"<?xml version='1.0'?><svg/>", "got an SVG"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "got a Git LFS pointer. Run: git lfs"),
        (b"%PDF-1.7", "got a PDF"),
        (b"%!PS-Adobe-3.0 EPSF-3.0", "got an EPS"),
        (b"8BPS\0\1", "got a Photoshop file"),
        (b"\0\0\0\x18ftypheic", "got a HEIC"),
        (b"\0\0\0\x18ftypavif", "got an AVIF"),
        (b"\0\0\0\x18ftypisom", "got an MP4 video"),
        (b"SIMPLE  =                    T", "got a FITS"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "got a JPEG 2000"),
        (b"PK\3\4aaaa", "got a zip archive"),
        (b"\x1f\x8b\x08", "got a gzip archive"),
        (b"\x93NUMPY", "got a NumPy array. Pass numpy.load"),
    ],
)
def test_54_55_64_invalid_pictures_are_named(tmp_path, content, expected):
    path = tmp_path / "odd.jpg"
    path.write_bytes(content)
    with pytest.raises(ImageError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: picture: expected JPEG, PNG, WebP, BMP, GIF, TIFF or PPM")
    assert expected in message
    assert "\n" not in message


def complaint(content):
    """Return the ImageError of reading `content`, or None; other exceptions fail the test."""
    try:
        read(content, max_pixels=1_000_000)
    except ImageError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM"])
def test_54_every_truncation_is_an_image_error(kind):
    """Truncate anywhere: an error, or the whole picture if only padding is missing."""
    content = encoded(COLOURS, kind)
    lengths = [*range(1, 16), *range(16, len(content), max(1, len(content) // 40))]
    found = [complaint(content[:length]) for length in lengths]
    failed = [each for each in found if each is not None]
    assert len(failed) >= 35
    assert all("incomplete, damaged or" in each or "expected JPEG" in each for each in failed)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM"])
def test_54_flipped_bytes_give_a_picture_or_an_image_error(kind, capfd):
    content = np.frombuffer(encoded(COLOURS, kind), np.uint8)
    random = np.random.default_rng(1)
    for _ in range(60):
        damaged = content.copy()
        places = random.integers(2, min(len(content), 400), 4)
        damaged[places] = random.integers(0, 256, 4)
        assert "\n" not in (complaint(damaged.tobytes()) or "")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("error", [zlib.error("bad\n code"), EOFError(), BadZipFile("Bad CRC-32")])
def test_any_failure_of_a_file_object_is_an_image_error(error):
    class Broken(io.BytesIO):
        def read(self, size=-1):
            raise error

    with pytest.raises(ImageError) as caught:
        read(Broken())
    assert "\n" not in str(caught.value)
    assert "picture: cannot be read: " in str(caught.value)


def test_pillow_warning_about_a_tiff_is_one_error(capfd):
    content = io.BytesIO()
    Image.new("RGB", (8, 8)).save(content, "TIFF")
    damaged = bytearray(content.getvalue())
    place = damaged.find(struct.pack("<HHI", 277, 3, 1))  # SamplesPerPixel
    damaged[place + 8 : place + 10] = struct.pack("<H", 2048)
    with pytest.raises(ImageError):
        read(bytes(damaged))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("size", [(50_000, 50_000), (10_000_000, 10), (1, 100_000_000)])
def test_55_a_bomb_is_refused_by_its_header(size):
    with pytest.raises(ImageError, match=r"size: expected at most 89478485 pixels, got \d+ x \d+"):
        read(png(*size, rows=b"\0" * 1000))


def test_55_limit_can_be_changed():
    content = encoded(COLOURS)
    assert read(content, max_pixels=240).size == (20, 12)
    with pytest.raises(ImageError, match=r"at most 239 pixels, got 20 x 12\. .*--max-pixels"):
        read(content, max_pixels=239)
    with pytest.raises(ImageError, match="at most 239 pixels"):
        read(COLOURS, max_pixels=239)
    with pytest.raises(ImageError, match="at most 239 pixels"):
        read(Image.fromarray(COLOURS), max_pixels=239)


def test_55_pillows_own_limit_does_not_warn(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)
    assert read(encoded(COLOURS)).size == (20, 12)


def test_55_only_the_first_of_many_frames_is_decoded():
    frames = [
        Image.fromarray(RANDOM.integers(0, 2, (8, 8), dtype=np.uint8) * 255) for _ in range(300)
    ]
    first = Image.new("RGB", (8, 8), (10, 200, 30))
    content = encoded(first, "GIF", save_all=True, append_images=frames)
    assert (read(content).pixels == (10, 200, 30)).all()


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_58_animations_and_pages_give_the_first(kind):
    first, second = Image.new("RGB", (9, 7), (0, 0, 255)), Image.new("RGB", (9, 7), (255, 0, 0))
    options = {"lossless": True} if kind == "WEBP" else {}
    content = encoded(first, kind, save_all=True, append_images=[second], **options)
    assert (read(content).pixels == (0, 0, 255)).all()


# ------------------------------------------------------------ modes


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(
    "mode",
    ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "La", "RGBa"],
)
def test_56_every_mode_gives_the_channels_of_the_network(mode, channels):
    image = Image.fromarray(COLOURS)
    if mode == "LAB":
        image = Image.frombytes("LAB", (20, 12), bytes([128, 0, 0]) * 240)
    elif mode in ("La", "RGBa", "PA"):
        image = image.convert({"La": "LA", "RGBa": "RGBA", "PA": "P"}[mode]).convert(mode)
    else:
        image = image.convert(mode)
    picture = read(image, channels=channels)
    assert picture.pixels.shape == (12, 20, channels)
    assert picture.pixels.dtype == np.uint8
    assert picture.pixels.flags.c_contiguous


def test_56_lab_keeps_its_lightness():
    image = Image.frombytes("LAB", (2, 1), bytes([0, 0, 0, 255, 0, 0]))
    black, white = read(image).pixels[0]
    assert black.max() < 5
    assert white.min() > 250


def test_56_alpha_is_dropped_not_blended():
    rgba = np.dstack([COLOURS, np.zeros((12, 20, 1), np.uint8)])
    np.testing.assert_array_equal(read(encoded(rgba)).pixels, COLOURS)
    np.testing.assert_array_equal(read(encoded(rgba), channels=4).pixels, rgba)


@pytest.mark.parametrize("transparency", [3, bytes(range(8))])
def test_56_a_transparent_palette_keeps_its_colours(transparency):
    image = Image.fromarray(COLOURS).quantize(8)
    content = encoded(image, "PNG", transparency=transparency)
    np.testing.assert_array_equal(read(content).pixels, np.asarray(image.convert("RGB")))


def test_56_64_inverted_adobe_cmyk_jpeg_is_corrected():
    image = Image.fromarray(BLOCKS).convert("CMYK")
    picture = read(encoded(image, "JPEG", quality=95))
    assert np.abs(picture.pixels.astype(int) - BLOCKS).mean() < 8


def test_56_sixteen_bits_keep_the_upper_byte_of_files_and_arrays():
    wide = (COLOURS[..., 0].astype(np.uint16) << 8) | 0x7F
    files = [encoded(Image.fromarray(wide), kind) for kind in ("PNG", "TIFF")]
    for content in (*files, b"P5 20 12 65535\n" + wide.astype(">u2").tobytes()):
        np.testing.assert_array_equal(read(content, channels=1).pixels[..., 0], COLOURS[..., 0])
    np.testing.assert_array_equal(read(wide, channels=1).pixels[..., 0], COLOURS[..., 0])
    integers = Image.fromarray(wide.astype(np.int32))
    assert integers.mode == "I"
    np.testing.assert_array_equal(read(integers, channels=1).pixels[..., 0], COLOURS[..., 0])


def test_56_sixteen_bit_colour_png_keeps_the_upper_byte():
    wide = (COLOURS.astype(">u2") << 8) | 0x7F
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in wide)
    content = png(20, 12, bits=16, rows=rows)
    np.testing.assert_array_equal(read(content).pixels, COLOURS)


def test_56_float_tiffs_follow_the_rule_of_float_arrays():
    values = RANDOM.random((5, 6), dtype=np.float32)
    np.testing.assert_array_equal(read(encoded(values, "TIFF"), channels=1).pixels[..., 0], values)
    with pytest.raises(ImageError, match=r"expected floats in 0\.\.1"):
        read(encoded(values * 300, "TIFF"))


def test_56_integers_of_more_than_16_bits_are_refused():
    with pytest.raises(ImageError, match=r"values: expected 16-bit integers, got -1\.\.70000"):
        read(Image.fromarray(np.array([[-1, 70000]], np.int32)))


def test_grey_is_weighted_as_darknets_decoder_does():
    red, green, blue = (COLOURS[..., i].astype(int) for i in range(3))
    expected = (77 * red + 150 * green + 29 * blue) >> 8
    np.testing.assert_array_equal(read(COLOURS, channels=1).pixels[..., 0], expected)
    floats = COLOURS / np.float32(255)
    np.testing.assert_allclose(read(floats, channels=1).pixels[..., 0] * 255, expected, atol=1.001)


@pytest.mark.parametrize("channels", [0, 2, 5, 1000])
def test_other_counts_of_channels_are_refused_clearly(channels):
    with pytest.raises(
        ImageError, match=f"1 .grey., 3 .RGB. or 4 .RGBA., the network wants {channels}"
    ):
        read(COLOURS, channels=channels)


# ------------------------------------------------------------ orientation

CORNERS = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 255, 255]], [[0] * 3, [9] * 3]])
CORNERS = CORNERS.astype(np.uint8)  # 2 wide, 3 high, no symmetry

# What a camera stores for each orientation: the inverse of the rotation for display.
STORED = {
    1: CORNERS,
    2: CORNERS[:, ::-1],
    3: CORNERS[::-1, ::-1],
    4: CORNERS[::-1],
    5: CORNERS.transpose(1, 0, 2),
    6: np.rot90(CORNERS),
    7: np.rot90(CORNERS, 2).transpose(1, 0, 2),
    8: np.rot90(CORNERS, -1),
}


def rotated(orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if kind == "WEBP" else {}
    return encoded(np.ascontiguousarray(STORED[orientation]), kind, exif=exif, **options)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", STORED)
def test_57_exif_orientation_is_applied_unless_switched_off(orientation, kind):
    content = rotated(orientation, kind)
    np.testing.assert_array_equal(read(content).pixels, CORNERS)
    np.testing.assert_array_equal(read(content, orient=False).pixels, STORED[orientation])


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("orientation", STORED)
def test_57_opened_pillow_image_is_rotated_like_its_file(orientation, kind):
    with Image.open(io.BytesIO(rotated(orientation, kind))) as image:
        np.testing.assert_array_equal(read(image).pixels, CORNERS)


def test_57_orientation_of_a_jpeg():
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(np.ascontiguousarray(np.rot90(BLOCKS)), "JPEG", exif=exif)
    assert read(content).size == (80, 48)
    assert np.abs(read(content).pixels.astype(int) - BLOCKS).mean() < 8
    assert read(content, orient=False).size == (48, 80)


@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\0\0garbage",
        b"Exif\0\0II*\0\xff\xff\xff\x7f",
        b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x63\0\0\0\0\0\0",
        b"Exif\0\0MM\0*\0\0\0\x08\0\xff\x01\x12",
    ],
)
def test_57_picture_with_broken_exif_is_read(exif):
    assert read(encoded(BLOCKS, "JPEG", exif=exif)).size == (80, 48)


# ------------------------------------------------------------ arrays


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (1, 1, 3), (1, 40, 3), (40, 1, 4)])
def test_59_thin_pictures_are_accepted(shape):
    assert read(np.zeros(shape, np.uint8)).pixels.shape == (*shape[:2], 3)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0, 3), (0, 0)])
def test_59_empty_arrays_are_refused(shape):
    with pytest.raises(ImageError, match="size: expected at least 1 x 1"):
        read(np.zeros(shape, np.uint8))


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((3, 40, 50), r"Channels come last here: array.transpose\(1, 2, 0\)"),
        ((1, 40, 50), "Channels come last here"),
        ((2, 40, 40, 3), "pass a list of arrays"),
        ((40, 50, 2), r"got \(40, 50, 2\)"),
        ((40,), r"got \(40,\)"),
        ((), r"got \(\)"),
    ],
)
def test_60_other_shapes_are_refused_with_a_hint(shape, hint):
    with pytest.raises(ImageError, match=hint):
        read(np.zeros(shape, np.uint8))


@pytest.mark.parametrize("shape", [(12, 20), (12, 20, 1), (12, 20, 3), (12, 20, 4)])
def test_60_picture_shapes_are_accepted(shape):
    array = RANDOM.integers(0, 256, shape, dtype=np.uint8)
    pixels = read(array).pixels
    expected = array.reshape(12, 20, -1)[..., :3]
    np.testing.assert_array_equal(pixels, np.broadcast_to(expected, (12, 20, 3)))


@pytest.mark.parametrize(
    "arrange",
    [
        lambda a: np.asfortranarray(a),
        lambda a: a[::-1, ::-1][::-1, ::-1],
        lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        lambda a: a.astype(">u2").byteswap().view("<u2").astype(">u2") * 256,
        lambda a: a.astype(np.uint16) * 257,
    ],
    ids=["fortran", "negative strides", "strided", "big-endian", "uint16"],
)
def test_60_memory_order_and_width_do_not_matter(arrange):
    array = arrange(COLOURS)
    array.flags.writeable = False
    picture = read(array)
    np.testing.assert_array_equal(picture.pixels, COLOURS)
    assert picture.pixels.flags.c_contiguous


def test_60_a_memory_mapped_array_is_an_array(tmp_path):
    np.save(tmp_path / "a.npy", COLOURS)
    np.testing.assert_array_equal(read(np.load(tmp_path / "a.npy", mmap_mode="r")).pixels, COLOURS)


def test_60_bool_arrays_are_black_and_white():
    np.testing.assert_array_equal(read(np.array([[True, False]])).pixels[..., 0], [[255, 0]])


@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8", "<f2"])
def test_60_floats_range_from_0_to_1(kind):
    values = RANDOM.random((4, 5, 3)).astype(kind)
    pixels = read(values).pixels
    assert pixels.dtype == np.float32
    np.testing.assert_array_equal(pixels, values.astype(np.float32))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (255.0, r"expected floats in 0\.\.1, got 0\.\.255\. Divide by 255, or pass uint8"),
        (1.5, r"got 0\.\.1\.5"),
        (-0.1, r"got -0\.1\.\.0"),
        (np.nan, "got nan"),
        (np.inf, "got 0..inf"),
    ],
)
def test_60_other_floats_are_refused(value, message):
    array = np.zeros((4, 5), np.float32)
    array[1, 1] = value
    with pytest.raises(ImageError, match=message):
        read(array)


@pytest.mark.parametrize(
    "kind", [object, np.complex64, np.int64, np.int8, np.uint32, "U3", "M8[s]"]
)
def test_60_other_types_are_refused(kind):
    with pytest.raises(ImageError, match="type: expected uint8, uint16, bool or a float type, got"):
        read(np.zeros((4, 5), kind))


def test_60_more_than_2_to_the_31_elements_are_refused_before_any_copy():
    huge = np.broadcast_to(np.uint8(0), (50_000, 50_000, 3))
    with pytest.raises(ImageError, match="expected at most"):
        read(huge)


def test_only_arrays_may_be_bgr_and_are_converted():
    np.testing.assert_array_equal(read(COLOURS[..., ::-1], bgr=True).pixels, COLOURS)
    bgra = np.dstack([COLOURS[..., ::-1], COLOURS[..., :1]])
    np.testing.assert_array_equal(read(bgra, bgr=True, channels=4).pixels[..., :3], COLOURS)
    with pytest.raises(ImageError, match="bgr: only an array"):
        read(encoded(COLOURS), bgr=True)


def test_arrays_of_other_libraries_are_accepted():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            return COLOURS

    class OnDevice:
        def __array__(self, dtype=None, copy=None):
            raise TypeError("can't convert a cuda tensor")

    np.testing.assert_array_equal(read(Tensor()).pixels, COLOURS)
    with pytest.raises(ImageError, match="can't convert a cuda tensor"):
        read(OnDevice())


# ------------------------------------------------------------ files and paths


def test_61_file_objects_need_only_read():
    class Pipe(io.RawIOBase):
        def __init__(self, content):
            self._left = content

        def readable(self):
            return True

        def seekable(self):
            return False

        def read(self, size=-1):
            content, self._left = self._left, b""
            return content

    np.testing.assert_array_equal(read(Pipe(encoded(COLOURS))).pixels, COLOURS)
    np.testing.assert_array_equal(read(io.BytesIO(encoded(COLOURS))).pixels, COLOURS)


@pytest.mark.parametrize("is_read", [True, False])
def test_a_file_at_its_end_is_read_from_its_start_as_pillow_does(tmp_path, is_read):
    memory = io.BytesIO()
    Image.fromarray(COLOURS).save(memory, "PNG")
    with (tmp_path / "a.png").open("w+b") as file:
        file.write(memory.getvalue())
        for each in (memory, file):
            for _ in range(2):
                if is_read:
                    each.read()
                np.testing.assert_array_equal(read(each).pixels, COLOURS)
    with pytest.raises(ImageError, match="an empty file"):
        read(io.BytesIO())


def test_a_file_that_does_not_tell_whether_it_can_seek_is_read_from_its_start():
    class Mapped:
        """A file such as mmap before Python 3.13, without seekable()."""

        def __init__(self, content):
            self._file = io.BytesIO(content)
            self.read, self.seek = self._file.read, self._file.seek

    mapped = Mapped(encoded(COLOURS))
    for _ in range(2):
        np.testing.assert_array_equal(read(mapped).pixels, COLOURS)


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_a_file_that_cannot_seek_after_all_is_empty(error):
    class Pipe:
        def read(self, size=-1):
            return b""

        def seek(self, offset):
            raise error("not seekable")

    with pytest.raises(ImageError, match="an empty file"):
        read(Pipe())


def test_61_closed_and_text_mode_files_are_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("text")
    with path.open() as file, pytest.raises(ImageError, match=r"in text mode\. Open it with 'rb'"):
        read(file)
    with pytest.raises(ImageError, match="closed file"):
        read(file)


def test_61_str_is_a_path_and_bytes_are_a_picture(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(encoded(COLOURS))
    for source in (str(path), path, encoded(COLOURS), bytearray(encoded(COLOURS))):
        np.testing.assert_array_equal(read(source).pixels, COLOURS)
    with pytest.raises(ImageError, match="got something else"):
        read(os.fsencode(path))


@pytest.mark.parametrize("source", [3, [1, 2], {"a": 1}])
def test_other_sources_are_refused(source):
    with pytest.raises(ImageError, match="source: expected a path, bytes, a file"):
        read(source)


def test_a_picture_that_imread_could_not_read_is_refused():
    with pytest.raises(ImageError, match=r"got None\. Could imread\(\) not read it\?"):
        read(None)


@pytest.mark.parametrize(
    "name",
    [
        "großes Bild.png",
        "cafe\u0301.png",
        "caf\u00e9.png",
        "\U0001f415.png",
        "-o.png",
        "a\nb.png",
        "a%20b.png",
        "~x.png",
    ],
)
def test_62_unusual_names_are_accepted(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(encoded(COLOURS))
    picture = read(str(path))
    assert picture.path == str(path)
    assert "\n" not in picture.name


def test_62_undecodable_name_can_be_read_and_printed(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")
    try:
        Path(path).write_bytes(encoded(COLOURS))
    except OSError:
        pytest.skip("this file system takes no such name")
    picture = read(path)
    assert picture.path == path
    assert picture.name.encode("ascii").endswith(b"caf\\udce9.png")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere/dog.jpg", "nowhere/dog.jpg: picture: cannot be read: No such file"),
        ("~/dog.jpg", "begins with ~, which only a shell expands"),
        ("# a comment", "# a comment: .* A list has no comments: each of its lines is a name"),
        ("s3://bucket/x.jpg", r"No such file or directory\. Only --ray reads from stores"),
        ("a\0b", r"a\\x00b: picture: cannot be read"),
        ("x" * 4096, "…xxx"),
        ("file:///dog.jpg", "expected a path, got an address"),
        ("https://example.org/dog.jpg", "expected a path, got an address"),
        (".", "expected a file, got a folder"),
    ],
)
def test_62_dangling_paths_are_refused(path, message):
    with pytest.raises(ImageError, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
def test_pipes_devices_and_sockets_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path / "socket", "/dev/zero"):
            with pytest.raises(ImageError, match="expected a file, got a pipe or device"):
                read(path)


def test_links_that_loop_or_dangle_are_refused(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    for name in ("loop", "dangling"):
        with pytest.raises(ImageError, match="cannot be read"):
            read(tmp_path / name)


def test_64_profile_and_gamma_change_no_pixel():
    profile = encoded(COLOURS, "PNG", icc_profile=b"not a profile", gamma=0.45)
    np.testing.assert_array_equal(read(profile).pixels, COLOURS)


# ------------------------------------------------------------ manners


def test_read_picture_is_converted_to_other_channels():
    picture = Picture(COLOURS, "a.png")
    assert read(picture).pixels is COLOURS
    assert read(picture, channels=1).pixels.shape == (12, 20, 1)
    assert read(picture, channels=1).path == "a.png"


def test_pillow_image_is_not_modified(tmp_path):
    image = Image.fromarray(COLOURS).quantize(8)
    image.info["transparency"] = 2
    read(image)
    assert image.mode == "P"
    assert image.info["transparency"] == 2


def test_pillow_warnings_do_not_leak_and_other_filters_are_kept():
    exif = b"Exif\0\0II*\0\x08\0\0\0\xff\0\x12\x01\x03\0\x01\0\0\0\x01\0\0\0"
    content = encoded(BLOCKS, "JPEG", exif=exif)
    before = list(warnings.filters)
    errors = []

    def work():
        try:
            for _ in range(20):
                read(content)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert list(warnings.filters) == before


def test_a_float_picture_becomes_an_image():
    assert (
        np.asarray(Picture(np.full((2, 3, 1), 0.5, np.float32)).to_image()).tolist()
        == [[[128] * 3] * 3] * 2
    )


def test_decoder_messages_are_printable(monkeypatch):
    def fail(image):
        raise ValueError("Token too long: 7\0\0\x1b[31m\n" + "x" * 500)

    content = encoded(Image.fromarray(COLOURS))
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", fail)
    with pytest.raises(ImageError) as caught:
        read(content)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.fixture(scope="module")
def photo():
    random = np.random.default_rng(0)
    blots = Image.fromarray(random.integers(0, 256, (30, 40, 3), dtype=np.uint8))
    return blots.resize((320, 240), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}])
@pytest.mark.parametrize("missing", [1, 2, 10, 100, 0.3, 0.6])
def test_a_jpeg_that_lacks_its_end_is_read_if_asked(photo, caplog, options, missing):
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=90, **options)
    whole = file.getvalue()
    lost = missing if isinstance(missing, int) else int(missing * len(whole))
    cut = whole[: len(whole) - lost]
    with pytest.raises(
        ImageError, match=r"To read a truncated JPEG: detect --lenient, load\(lenient=True\)$"
    ):
        read(cut)
    found, expected = (read(each, lenient=True).pixels for each in (cut, whole))
    assert "picture: is truncated: the missing part is grey" in caplog.text
    same = len(found) // 4
    if not options.get("progressive"):
        assert np.array_equal(found[:same], expected[:same])
    difference = np.abs(found.astype(int) - expected)[:same].mean()
    assert difference < (40 if options.get("progressive") or missing == 0.6 else 1)
    assert caplog.text.count("is truncated") == 1  # and not for the whole file


@pytest.mark.parametrize("content", [b"\xff\xd8\xff", b"\xff\xd8\xff\xe0" + bytes(50)])
def test_a_jpeg_without_a_head_is_an_error_even_if_lenient(content):
    for lenient in (False, True):
        with pytest.raises(ImageError, match=r"cannot be decoded.*\)$"):
            read(content, lenient=lenient)


@pytest.mark.parametrize("step", ["__enter__", "__exit__"])
def test_an_interrupt_while_warnings_are_suppressed_costs_no_later_picture(monkeypatch, step):
    content = encoded_for_interrupt()
    before = list(warnings.filters)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(warnings.catch_warnings, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            read(content)
    assert read(content).size == (3, 2)
    assert not decode._QUIET._inside
    assert decode._QUIET._saved is None
    warnings.filters[:] = before


def encoded_for_interrupt():
    buffer = io.BytesIO()
    Image.new("RGB", (3, 2)).save(buffer, "PNG")
    return buffer.getvalue()
