"""Sixty-three kinds of bad input, as a user meets them: `detect` answers soon and in little memory.

Each is refused in one line with its status, or it is not so bad and runs. A number names a kind;
finer cases of the same numbers lie in tests/darknet and tests/vision.
"""

import io
import os
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import engine
from engine import cli
from engine.darknet import cfg, graph, limits, weights

resource = pytest.importorskip("resource")

CPU = ["--device", "cpu", "--threads", "1"]
SECONDS = 2  # of processor time, so that a busy machine does not count
MEMORY = 2**30  # of addresses, beyond what the process has already

NET = "[net]\nwidth=32\nheight=32\nchannels=3\n"
CONV = "[convolutional]\nfilters=6\nactivation=linear\n"
YOLO = "[yolo]\nclasses=1\nnum=1\nanchors=8,8\nmask=0\n"
END = CONV + YOLO
GOOD = NET + END


@pytest.fixture(autouse=True)
def little_memory():
    """Whatever asks for too much gets a MemoryError, and its test fails."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "street.png"
    Image.new("RGB", (40, 30), (200, 90, 30)).save(path)
    return path


@pytest.fixture
def detect(tmp_path, picture, capsys):
    """Run `detect`; return its status and the one line it complains in, which may be none."""

    def run(*more, network=GOOD, model=None, shown=picture):
        path = network
        if isinstance(network, str):
            path = tmp_path / "net.cfg"
            path.write_text(network)
        if model is None:
            model = blank_weights(tmp_path / "net.weights", path)
        start = time.process_time()
        status = cli.main(
            ["detect", *CPU, "--cfg", str(path), "--weights", str(model), *more, "--", str(shown)]
        )
        assert time.process_time() - start < SECONDS
        lines = capsys.readouterr().err.splitlines()
        assert not any("Traceback" in line for line in lines)
        errors = [line for line in lines if line.startswith("Error: ")]
        assert len(errors) == (status != 0)
        assert all(len(line) < 500 for line in errors)
        return status, "".join(errors)

    return run


def blank_weights(path, network):
    """Zeros that fit the network, or nothing where there is no network."""
    try:
        built = graph.build(cfg.read(network))
    except engine.EngineError:
        return path
    weights.save(path, built, weights.initial(built), overwrite=True)
    return path


def many_classes(count):
    return f"[net]\nwidth=1\nheight=1\nchannels={count + 5}\n[yolo]\nclasses={count}\n"


def many_anchors(count):
    return f"[net]\nwidth=1\nheight=1\nchannels={count * 6}\n[region]\nclasses=1\nnum={count}\n"


# ------------------------------------------------------------ 1 to 41: the .cfg

REFUSED = [
    (1, "", "net.cfg: expected a network, got no section"),
    (2, "# only\n; comments\n\n", "net.cfg: expected a network, got no section"),
    (3, "classes=1\n" + GOOD, "net.cfg:1: expected [net] before the first option"),
    (4, END, "net.cfg:1: expected [net] as the first section"),
    (5, NET + NET + END, "net.cfg:5: expected a layer, got a second [net]"),
    (6, NET + "[conv\n" + END, "net.cfg:5: expected [section], got '[conv'"),
    (7, NET + "batch\n" + END, "net.cfg:5: [net]: expected key=value, got 'batch'"),
    (8, NET + "=4\n" + END, "net.cfg:5: [net]: expected key=value, got '=4'"),
    (12, NET + "ba\0tch=1\n" + END, "expected text, got binary data"),
    (13, NET + "x" * 10**7, "net.cfg:5: [net]: expected key=value, got 'xxx"),
    (13, NET + "[dropout]\n" * 10**6, f"at most {limits.LINES} lines"),
    (13, NET + "[dropout]\n" * (limits.SECTIONS + 2), f"more than {limits.SECTIONS} sections"),
    (14, "<!DOCTYPE html>\n<html></html>", "got a web page. Download the raw file instead"),
    *(
        (16, GOOD.replace("width=32", f"width={value}"), message)
        for value, message in {
            "0": "net.cfg:1: [net]: expected width, height and channels",
            "": "net.cfg:1: [net]: expected width, height and channels",
            "-416": "net.cfg:2: [net] width: expected at least 0, got '-416'",
            "1000000000": "is too large",
            "1e9": "net.cfg:2: [net] width: expected an integer, got '1e9'",
            "416.5": "net.cfg:2: [net] width: expected an integer, got '416.5'",
            "0x1A0": "net.cfg:2: [net] width: expected an integer, got '0x1A0'",
            "NaN": "net.cfg:2: [net] width: expected an integer, got 'NaN'",
            "1" + "0" * 30: "net.cfg:2: [net] width: expected an integer of at most 2147483647",
        }.items()
    ),
    (17, NET + "[reorg]\nstride=5\n" + END, "stride: expected its square to divide 3 channels"),
    (17, NET + CONV + "[maxpool]\nstride=2\n[route]\nlayers=0,1\n" + END, "expected a map"),
    (18, GOOD.replace("channels=3", "channels=0"), "expected width, height and channels"),
    (19, NET + "batch=0\n" + END, "net.cfg:5: [net] batch: expected at least 1, got '0'"),
    *(
        (20, GOOD.replace("filters=6", f"filters={value}"), f"net.cfg:6: [convolutional] {message}")
        for value, message in {
            "0": "filters: expected at least 1, got '0'",
            "-1": "filters: expected at least 1, got '-1'",
            "2147483648": "filters: expected an integer of at most 2147483647",
        }.items()
    ),
    (21, GOOD.replace("32", "256").replace("filters=6", "filters=65536"), "is too large"),
    (22, NET + "[convolutional]\nsize=0\n" + END, "size: expected at least 1"),
    (22, NET + "[convolutional]\nsize=33\n" + END, "size: 33 is larger than the map"),
    (22, NET + "[convolutional]\nstride=0\n" + END, "stride: expected at least 1"),
    (22, NET + "[convolutional]\nstride=-1\n" + END, "stride: expected at least 1"),
    (22, NET + "[convolutional]\npadding=1000000\n" + END, "is too large"),
    (22, NET + "[convolutional]\nsize=3\ndilation=0\n" + END, "dilation: expected at least 1"),
    (22, NET + "[convolutional]\nsize=3\npad=1\ndilation=1000000\n" + END, "the padded input"),
    (22, NET + "[convolutional]\npadding=200000\nstride=100000\n" + END, "the padded input"),
    (22, NET + "[deconvolutional]\nstride=100000\npadding=1550000\n" + END, "the padded input"),
    (23, NET + "[convolutional]\ngroups=0\n" + END, "groups: expected at least 1"),
    (23, NET + "[convolutional]\ngroups=2\n" + END, "groups: expected a divisor of 3 channels"),
    (23, NET + "[convolutional]\ngroups=9\n" + END, "groups: expected a divisor of 3 channels"),
    (24, GOOD.replace("linear", "leeky"), "unknown 'leeky'. Did you mean 'leaky'?"),
    (25, NET + "[maxpol]\n" + END, "net.cfg:5: unknown section [maxpol]. Did you mean 'maxpool'?"),
    (26, NET + CONV + "[route]\nlayers=\n" + END, "layers: is missing"),
    (26, NET + CONV + "[route]\nlayers=-1,\n" + END, "layers: expected a list"),
    (26, NET + CONV + "[route]\nlayers=,,\n" + END, "layers: expected a list"),
    (27, NET + CONV + "[route]\nlayers=1\n" + END, "1 points at layer 1, which is not before"),
    (27, NET + CONV + "[route]\nlayers=2\n" + END, "2 points at layer 2, which is not before"),
    (27, NET + CONV + "[route]\nlayers=99\n" + END, "99 points at layer 99, which is not before"),
    (27, NET + CONV + "[route]\nlayers=-1000\n" + END, "-1000 points before the first layer"),
    (28, NET + CONV + "[route]\nlayers=0\ngroups=2\ngroup_id=2\n" + END, "group_id: expected less"),
    (28, NET + CONV + "[route]\nlayers=0\ngroup_id=-1\n" + END, "group_id: expected at least 0"),
    (29, NET + CONV + "[shortcut]\nfrom=1\n" + END, "from: 1 points at layer 1"),
    (29, NET + CONV + "[shortcut]\nfrom=2\n" + END, "from: 2 points at layer 2"),
    (29, NET + CONV + "[shortcut]\nfrom=-9\n" + END, "from: -9 points before the first layer"),
    (30, NET + CONV + "[softmax]\n" + END, "expected a map, got the row of values"),
    (31, GOOD.replace("mask=0", "mask=7"), "mask: expected 0 to 0 with num=1"),
    (31, GOOD.replace("mask=0", "mask=a"), "mask: expected a list, each an integer, got 'a'"),
    (31, GOOD.replace("8,8", "8,8,8"), "anchors: expected pairs of width and height"),
    (31, GOOD.replace("8,8", "8,0"), "anchors: expected numbers above 0, got 0"),
    (31, GOOD.replace("8,8", "8,-8"), "anchors: expected numbers above 0, got -8"),
    (31, GOOD.replace("8,8", "8,nan"), "anchors: expected a list, each a number"),
    (31, GOOD.replace("8,8", "8,inf"), "anchors: expected a list, each a number"),
    (32, GOOD.replace("classes=1", "classes=0"), "classes: expected at least 1"),
    (32, GOOD.replace("classes=1", "classes=-1"), "classes: expected at least 1"),
    (32, GOOD.replace("classes=1", "classes=1000000000"), "needs filters=1000000005"),
    (32, GOOD.replace("classes=1", "classes=80"), "needs filters=85 in the layer before, got 6"),
    (32, many_classes(limits.CLASSES + 1), f"classes: expected at most {limits.CLASSES}, got"),
    (31, many_anchors(59_652_323), f"num: expected at most {limits.LIST}, got 59652323"),
    (33, NET + YOLO, "needs filters=6 in the layer before, got 3"),
    (33, GOOD + "[detection]\nclasses=1\ncoords=4\nnum=1\nside=7\n", "side: 7 x 7 cells"),
    (34, NET + "[softmax]\ntree=none.tree\n", "none.tree: cannot be read"),
    (35, NET + CONV + CONV + "share_index=2\n" + END, "share_index: 2 points at layer 2"),
    (35, NET + CONV + CONV + "share_index=0\n" + END, "share_index: expected a layer with weight"),
    (36, "[net]\ninputs=4\ntime_steps=0\n[lstm]\noutput=2\n", "time_steps: expected at least 1"),
    (37, NET + "[upsample]\nstride=0\n" + END, "stride: expected a number other than 0"),
    (37, NET + "[upsample]\nstride=1000000\n" + END, "is too large"),
    (38, NET + "[maxpool]\nsize=2\npadding=1000000\n" + END, "is too large"),
    (38, NET + "[maxpool]\nsize=2000000000\nstride=1\n" + END, "the padded input"),
    (38, NET + "[local_avgpool]\nsize=2000000000\nstride=1\n" + END, "the padded input"),
    (39, NET + "[maxpool]\nsize=80\npadding=0\n" + END, "leaves nothing of its input"),
    (40, NET + "[connected]\noutput=0\n", "output: expected at least 1"),
    (40, NET + "[connected]\noutput=65536\n[connected]\noutput=65537\n", "weight: numbers: expect"),
    (40, NET.replace("32", "16384") + f"{CONV}size=512\nstride=1\n" * 3, "operations up to here"),
    (41, NET + CONV + f"[route]\nlayers={'0,' * 199}0\n" * 5000, "references to earlier layers"),
]

RUNS = [
    (7, NET + "batch=\n" + END),
    (9, NET + "width=1\nwidth=2\n" + END),
    (10, GOOD.replace("\n", "\r\n")),
    (10, GOOD.replace("\n", "\r").rstrip()),
    (10, "\ufeff" + GOOD),
    (18, GOOD.replace("channels=3", "channels=1")),
    (18, GOOD.replace("channels=3", "channels=4")),
    (19, NET + "batch=2\nsubdivisions=64\n" + END),
    (22, NET + "[convolutional]\nsize=3\npad=77\n" + END),
    (24, NET + "[convolutional]\nactivation=\n" + END),
    (25, NET + "[conv_lstm]\noutput=2\nsize=1\n" + END),
    (26, NET + CONV + "[route]\nlayers = - 1 , 0###P6\n" + END),
    (28, NET + CONV + "[route]\nlayers=-1\ngroups=2\ngroup_id=1\n" + END),
    (29, NET + CONV + f"[shortcut]\nfrom={'0,' * 63}0\n" + END),
    (29, NET + CONV + "[maxpool]\nstride=2\n[shortcut]\nfrom=0\n" + END),
    (30, NET + CONV + "[softmax]\n[route]\nlayers=-1\n" + END),
    (30, NET + END + "[route]\nlayers=-1\n" + END),
    (30, NET + END + CONV + "[shortcut]\nfrom=-2\n" + YOLO),
    (30, NET + CONV + "[dropout]\n[shortcut]\nfrom=-1\n" + END),
    (31, GOOD.replace("mask=0", "mask=")),
    (31, GOOD.replace("anchors=8,8", "anchors=")),
    (33, NET + END + CONV + "[region]\nclasses=1\nnum=1\nanchors=1,1\n"),
    (33, NET + END + "[maxpool]\nstride=2\n" + CONV),
    (34, NET + CONV + "[region]\nclasses=1\nnum=1\nanchors=1,1\nmap=none.map\n"),
    (41, NET + CONV + "[route]\nlayers=-1\n[dropout]\n[shortcut]\nfrom=-2\n" * 200 + END),
]


def short(value):
    return str(value) if isinstance(value, int) else ""


@pytest.mark.parametrize(("kind", "network", "message"), REFUSED, ids=short)
def test_a_bad_network_is_refused(detect, kind, network, message):
    status, line = detect(network=network)
    assert status == 3, line
    assert message in line


@pytest.mark.parametrize(("kind", "network"), RUNS, ids=short)
def test_an_odd_network_runs(detect, kind, network):
    assert detect(network=network) == (0, "")


TREES = {
    "cyclic": ("a 1\nb 0\n", "parent of 'a': expected -1"),
    "too few leaves": ("a -1\n", "tree"),
    "empty": ("", "names no class"),
    "binary": ("\0\0\0", "expected"),
}


@pytest.mark.parametrize("tree", TREES)
def test_34_a_tree_that_does_not_fit_is_refused(detect, tmp_path, tree):
    text, message = TREES[tree]
    (tmp_path / "odd.tree").write_text(text)
    region = "[region]\nclasses=2\nnum=1\nanchors=1,1\ntree=odd.tree\n"
    status, line = detect(network=NET + CONV.replace("6", "7") + region)
    assert status == 3
    assert message in line


ENCODINGS = {
    "utf-16": (10, GOOD.encode("utf-16")),
    "latin-1": (11, "# gr\u00f6\u00dfer\n".encode("latin-1") + GOOD.encode()),
    "gbk": (11, "# \u6ce8\u91ca\n".encode("gbk") + GOOD.encode()),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_10_11_a_network_in_another_encoding_runs(detect, tmp_path, encoding):
    path = tmp_path / os.fsdecode(b"gr\xf6\xdfer.cfg")
    path.write_bytes(ENCODINGS[encoding][1])
    assert detect(network=path) == (0, "")


def odd_path(folder, name):
    """A path that is no file to read; some have to be made first."""
    path = folder / name
    if name == "pipe":
        os.mkfifo(path)
    elif name == "loop":
        path.symlink_to(path)
    elif name == "dangling":
        path.symlink_to(folder / "gone")
    elif name == "folder":
        path.mkdir()
    return path


ODD_PATHS = {
    "pipe": "expected a file, got a pipe",
    "folder": "expected a file, got a folder",
    "/dev/zero": "expected a file, got a device",
    "loop": "cannot be read: Too many levels",
    "dangling": "cannot be read: No such file",
    "missing": "cannot be read: No such file",
    "x" * 4096: "cannot be read: File name too long",
}


@pytest.mark.parametrize("name", ODD_PATHS, ids=lambda name: name[:10])
def test_15_52_what_is_no_file_is_refused(detect, tmp_path, name):
    path = odd_path(tmp_path, name)
    status, line = detect(network=path, model="none")
    assert (status, ODD_PATHS[name] in line) == (3, True), line
    status, line = detect(model=path)
    assert (status, ODD_PATHS[name] in line) == (3, True), line


@pytest.mark.parametrize("channels", [2, 1000])
def test_18_pictures_have_no_such_channels(detect, channels):
    status, line = detect(network=GOOD.replace("channels=3", f"channels={channels}"))
    assert status in (1, 2)
    assert f"the network wants {channels}" in line


# ------------------------------------------------------------ 42 to 52: the .weights

HEADER = struct.pack("<iiiq", 0, 2, 5, 0)
NORMALISED = NET + CONV.replace("linear", "leaky\nbatch_normalize=1") + END
# 6 biases, scales, means and variances, 6 x 3 weights; then 6 biases and 6 x 6 weights
NUMBERS = np.full(24 + 18 + 42, 0.5, "<f4")


def changed(index, value):
    values = NUMBERS.copy()
    values[index] = value
    return HEADER + values.tobytes()


def cut(numbers, *, more=0):
    return HEADER + NUMBERS.tobytes()[: 4 * numbers + more]


BAD_WEIGHTS = [
    (42, b"", "expected weights, got an empty file"),
    (42, b"\0", "expected a header of 16 bytes or more, got 1 bytes"),
    (42, HEADER[:18], "expected a header of 20 bytes, got 18 bytes"),
    (43, cut(3), "layer 0 [convolutional] bias: needs 6 numbers, file has 3 left"),
    (43, cut(15), "layer 0 [convolutional] mean: needs 6 numbers, file has 3 left"),
    (43, cut(30), "layer 0 [convolutional] weight: needs 18 numbers, file has 6 left"),
    (43, cut(42), "ends after layer 0 [convolutional]"),
    (43, cut(42, more=-1), "layer 0 [convolutional] weight: needs 18 numbers, file has 17 left"),
    (43, cut(42, more=1), "layer 1 [convolutional] bias: needs 6 numbers, file has 0 left"),
    (44, cut(84) + bytes(12), "12 bytes more than net.cfg needs. Is it for another .cfg?"),
    *(
        (46, struct.pack("<iiiq", *version, 0) + NUMBERS.tobytes(), "got a header of version")
        for version in [(-1, 2, 5), (2**31 - 1, 0, 0), (0, -(2**31), 0)]
    ),
    (47, struct.pack(">iiiq", 0, 2, 5, 0) + NUMBERS.tobytes(), "written in big-endian order"),
    (48, changed(30, np.nan), "weight: 1 of 18 numbers are infinite or no number"),
    (48, changed(0, np.inf), "bias: 1 of 6 numbers are infinite or no number"),
    (48, changed(18, -1), "variance: expected no negative variance, got -1"),
    (49, b"<!DOCTYPE html><html>Google Drive - Virus scan warning", "got a web page"),
    (49, b"version https://git-lfs.github.com/spec/v1\noid", "got a Git LFS pointer"),
    (49, b"PK\x03\x04" + bytes(40), "got a zip archive or a PyTorch model"),
    (49, b"\x1f\x8b\x08" + bytes(40), "got a gzip archive"),
    (49, b"\x80\x02\x8a\nl\xfc" + bytes(40), "likely a PyTorch model"),
    (49, b"\x08\x07\x12\x07pytorch" + bytes(40), "got an ONNX model"),
]

GOOD_WEIGHTS = [
    (45, HEADER + NUMBERS[::-1].tobytes()),
    (46, struct.pack("<iiiq", 1001, 0, 0, 0) + NUMBERS.tobytes()),
    (47, struct.pack("<iiii", 0, 1, 0, 7) + NUMBERS.tobytes()),
    (48, changed(18, 0)),
    (48, changed(18, -1e-40)),
    (48, changed(slice(24, None), 1e-40)),
]


@pytest.mark.parametrize(("kind", "data", "message"), BAD_WEIGHTS, ids=short)
def test_bad_weights_are_refused(detect, tmp_path, kind, data, message):
    path = tmp_path / "bad.weights"
    path.write_bytes(data)
    status, line = detect(network=NORMALISED, model=path)
    assert status == 3
    assert message in line


@pytest.mark.parametrize(("kind", "data"), GOOD_WEIGHTS, ids=short)
def test_odd_weights_run(detect, tmp_path, kind, data):
    path = tmp_path / "odd.weights"
    path.write_bytes(data)
    assert detect(network=NORMALISED, model=path) == (0, "")


def test_51_a_terabyte_of_nothing_is_refused_unread(detect, tmp_path):
    path = tmp_path / "huge.weights"
    path.write_bytes(HEADER)
    os.truncate(path, 2**40)
    status, line = detect(model=path)
    assert status == 3
    assert "bytes more than net.cfg needs" in line


# ------------------------------------------------------------ 54 to 64: pictures

SMALL = Image.effect_noise((24, 16), 80).convert("RGB")


def saved(kind="PNG", image=SMALL, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png_header(width, height):
    def chunk(name, content):
        checked = name + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(bytes(9999)))


def gif_of(frames):
    """A GIF of one pixel, many times over."""
    frame = b",\0\0\0\0\1\0\1\0\0\2\2D\1\0"
    return b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff" + frame * frames + b";"


def tiff_with_tag(count):
    """One directory with one tag that promises `count` numbers."""
    return b"II*\0\x08\0\0\0\1\0" + struct.pack("<HHII", 273, 4, count, 26) + bytes(4)


def oriented(number):
    exif = Image.Exif()
    exif[0x0112] = number
    return saved("JPEG", exif=exif)


BAD_PICTURES = [
    (54, b"", "got an empty file"),
    (54, saved("JPEG")[:400], "picture: "),
    (54, saved()[:200], "picture: "),
    (54, np.random.default_rng(0).bytes(5000), "got something else"),
    (55, png_header(50_000, 50_000), "at most 89478485 pixels, got 50000 x 50000"),
    (55, png_header(1, 100_000_000), "at most 89478485 pixels"),
    (55, tiff_with_tag(2**31), "picture: "),
    (55, b"SIMPLE  =                    T", "got a FITS"),
    (55, b"\x1f\x8b\x08" + bytes(50), "got a gzip archive"),
    (55, b"%!PS-Adobe-3.0 EPSF-3.0\n", "got an EPS"),
    (55, b"%PDF-1.7\n", "got a PDF"),
    (64, b"\0\0\0\x18ftypheic" + bytes(50), "got a HEIC"),
    (64, b"\0\0\0\x18ftypavif" + bytes(50), "got an AVIF"),
]

GOOD_PICTURES = [
    (54, saved("BMP")),
    (55, gif_of(100_000)),
    *((56, saved(image=SMALL.convert(mode))) for mode in ("1", "L", "LA", "P", "RGBA")),
    *((56, saved("TIFF", SMALL.convert(mode))) for mode in ("CMYK", "YCbCr", "LAB", "PA")),
    (56, saved("PNG", SMALL.quantize(8), transparency=3)),
    (56, saved("JPEG", SMALL.convert("CMYK"))),
    (56, saved(image=Image.fromarray(np.full((9, 9), 40_000, np.uint16)))),
    (56, saved("TIFF", Image.fromarray(np.full((9, 9), 0.5, np.float32)))),
    *((57, oriented(number)) for number in range(10)),
    (57, saved("JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")),
    *((58, saved(kind, save_all=True, append_images=[SMALL] * 3)) for kind in ("GIF", "WEBP")),
    *((58, saved(kind, save_all=True, append_images=[SMALL] * 3)) for kind in ("PNG", "TIFF")),
    (59, saved(image=Image.new("L", (1, 1)))),
    (59, saved(image=Image.new("L", (1, 5000)))),
    (59, saved(image=Image.new("L", (5000, 1)))),
    (64, saved(icc_profile=b"not a profile", gamma=0.45)),
    (64, saved("JPEG", progressive=True)),
]


@pytest.mark.parametrize(("kind", "data", "message"), BAD_PICTURES, ids=short)
def test_a_bad_picture_is_refused(detect, tmp_path, kind, data, message):
    path = tmp_path / "bad.jpg"
    path.write_bytes(data)
    status, line = detect(shown=path)
    assert status == 1
    assert message in line


@pytest.mark.parametrize(("kind", "data"), GOOD_PICTURES, ids=short)
def test_an_odd_picture_is_looked_at(detect, tmp_path, kind, data):
    path = tmp_path / "odd.jpg"
    path.write_bytes(data)
    assert detect(shown=path) == (0, "")


ARRAYS = [
    (59, np.zeros((0, 9, 3), np.uint8), "at least 1 x 1"),
    (59, np.zeros((1, 1, 3), np.uint8), None),
    (60, np.zeros((3, 40, 50), np.uint8), "Channels come last"),
    (60, np.zeros((9, 9, 2), np.uint8), r"got \(9, 9, 2\)"),
    (60, np.zeros((2, 9, 9, 3), np.uint8), "pass a list of arrays"),
    (60, np.full((9, 9), 255.0, np.float32), "floats in 0..1"),
    (60, np.full((9, 9), np.nan, np.float32), "floats in 0..1"),
    (60, np.zeros((9, 9, 3), object), "object"),
    (60, np.zeros((9, 9, 3), complex), "complex"),
    (60, np.broadcast_to(np.uint8(0), (50_000, 50_000, 3)), "at most"),
    (60, np.zeros((9, 9), bool), None),
    (60, np.zeros((9, 9, 4), np.uint8), None),
    (60, np.zeros((9, 9, 3), ">u2")[::-1, ::2], None),
    (61, io.StringIO("text"), "text mode"),
    (61, b"street.png", "got something else"),
    (61, io.BytesIO(saved()), None),
]


@pytest.mark.parametrize(("kind", "source", "message"), ARRAYS, ids=short)
def test_arrays_and_files_are_pictures_or_refused(tiny_detector, kind, source, message):
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu") as detector:
        if message is None:
            detector(source)
        else:
            with pytest.raises(engine.ImageError, match=message):
                detector(source)


@pytest.mark.parametrize(
    "name",
    [
        "stra\u00dfe.png",
        "cafe\u0301.png",
        "\U0001f415.png",
        os.fsdecode(b"caf\xe9.png"),
        "a\nb.png",
        "-o.png",
        "a%20b.png",
        "~x.png",
        "CON",
    ],
    ids=ascii,
)
def test_62_an_odd_name_is_a_name(detect, picture, monkeypatch, name):
    monkeypatch.chdir(picture.parent)
    picture.rename(name)
    assert detect(shown=name) == (0, "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("~/street.png", "which only a shell expands"),
        ("file:///street.png", "expected a path, got an address"),
        (r"\\host\share\street.png", "No such file"),
        ("x" * 4096, "cannot be read"),
        ("a\0b", "cannot be read"),
    ],
    ids=short,
)
def test_62_a_path_that_leads_nowhere_is_refused(detect, name, message):
    status, line = detect(shown=name)
    assert status in (1, 2)
    assert message in line


def test_63_outputs_never_meet_inputs_or_one_another(detect, picture):
    before = picture.read_bytes()
    for _ in range(2):
        assert detect("-o", str(picture.parent)) == (0, "")
    assert picture.read_bytes() == before
    assert len(list(picture.parent.glob("street*.png"))) == 3


@pytest.mark.parametrize("folder", ["/proc/none/out", "/dev/null/out"])
def test_63_a_folder_that_cannot_be_made_is_refused(detect, folder):
    status, line = detect("-o", folder)
    assert status in (1, 2)
    assert folder.split("/")[1] in line


def test_no_kind_is_forgotten():
    tables = (REFUSED, RUNS, BAD_WEIGHTS, GOOD_WEIGHTS, BAD_PICTURES, GOOD_PICTURES, ARRAYS)
    covered = {row[0] for table in (*tables, ENCODINGS.values()) for row in table}
    covered |= {15, 51, 52, 62, 63}  # tests of their own above
    # a file that changes while it is read: tests/darknet/test_weights.py; 53 is about downloads
    assert covered | {50, 53} == set(range(1, 65))
