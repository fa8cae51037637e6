"""1 to 41: the .cfg."""

import os

import pytest

from engine.darknet import network_limits
from tests.bad_inputs.small import CONV, END, GOOD, NET, YOLO, short


def many_classes(count):
    return f"[net]\nwidth=1\nheight=1\nchannels={count + 5}\n[yolo]\nclasses={count}\n"


def many_anchors(count):
    return f"[net]\nwidth=1\nheight=1\nchannels={count * 6}\n[region]\nclasses=1\nnum={count}\n"


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
    (13, NET + "[dropout]\n" * 10**6, f"at most {network_limits.LINES} lines"),
    (
        13,
        NET + "[dropout]\n" * (network_limits.SECTIONS + 2),
        f"more than {network_limits.SECTIONS} sections",
    ),
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
    (17, NET + CONV + "[maxpool]\nstride=2\n[route]\nlayers=0,1\n" + END, "expected a feature map"),
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
    (30, NET + CONV + "[softmax]\n" + END, "expected a feature map, got the vector"),
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
    (
        32,
        many_classes(network_limits.CLASSES + 1),
        f"classes: expected at most {network_limits.CLASSES}, got",
    ),
    (31, many_anchors(59_652_323), f"num: expected at most {network_limits.LIST}, got 59652323"),
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
    (
        39,
        NET + "[maxpool]\nsize=40\nstride=4\npadding=0\nantialiasing=2\n" + END,
        "the blur would be",
    ),
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


@pytest.mark.parametrize(("kind", "network", "message"), REFUSED, ids=short)
def test_a_bad_network_is_refused(refuses, kind, network, message):
    refuses(message, network=network)


@pytest.mark.parametrize(("kind", "network"), RUNS, ids=short)
def test_unusual_network_runs(detect, kind, network):
    assert detect(network=network) == (0, "")


TREES = {
    "cyclic": (b"a 1\nb 0\n", "parent: expected -1"),
    "too few leaves": (b"a -1\n", "tree"),
    "empty": (b"", "expected at least one class, got none"),
    "binary": (b"\0\0\0", "expected"),
}


@pytest.mark.parametrize(("content", "message"), TREES.values(), ids=TREES)
def test_34_tree_that_does_not_match_is_refused(refuses, file, content, message):
    file("odd.tree", content)
    region = "[region]\nclasses=2\nnum=1\nanchors=1,1\ntree=odd.tree\n"
    refuses(message, network=NET + CONV.replace("6", "7") + region)


ENCODINGS = {
    "utf-16": (10, GOOD.encode("utf-16")),
    "latin-1": (11, "# gr\u00f6\u00dfer\n".encode("latin-1") + GOOD.encode()),
    "gbk": (11, "# \u6ce8\u91ca\n".encode("gbk") + GOOD.encode()),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_10_11_a_network_in_another_encoding_runs(detect, file, encoding):
    path = file(os.fsdecode(b"gr\xf6\xdfer.cfg"), ENCODINGS[encoding][1])
    assert detect(network=path) == (0, "")


def odd_path(folder, name):
    """Create and return a path that is not a regular file."""
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
def test_15_52_path_that_is_not_a_file_is_refused(refuses, tmp_path, name):
    path = odd_path(tmp_path, name)
    refuses(ODD_PATHS[name], network=path, model="none")
    refuses(ODD_PATHS[name], model=path)


@pytest.mark.parametrize("channels", [2, 1000])
def test_18_impossible_channels_are_refused(refuses, channels):
    network = GOOD.replace("channels=3", f"channels={channels}")
    refuses(f"the network wants {channels}", network=network, status=1)
