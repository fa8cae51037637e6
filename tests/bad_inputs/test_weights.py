"""42 to 52: the .weights."""

import os
import struct

import numpy as np
import pytest

from tests.bad_inputs.small import CONV, END, NET, short

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
    (48, changed(30, np.nan), "weight: 1 of 18 numbers are infinite or NaN"),
    (48, changed(0, np.inf), "bias: 1 of 6 numbers are infinite or NaN"),
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
def test_bad_weights_are_refused(refuses, file, kind, data, message):
    refuses(message, network=NORMALISED, model=file("bad.weights", data))


@pytest.mark.parametrize(("kind", "data"), GOOD_WEIGHTS, ids=short)
def test_unusual_weights_run(detect, file, kind, data):
    assert detect(network=NORMALISED, model=file("odd.weights", data)) == (0, "")


def test_51_sparse_terabyte_is_refused_without_reading(refuses, file):
    path = file("huge.weights", HEADER)
    os.truncate(path, 2**40)
    refuses("bytes more than net.cfg needs", model=path)
