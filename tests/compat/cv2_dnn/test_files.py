"""Which arguments of readNet() mean darknet's files, and in which order they are."""

from pathlib import Path

import numpy as np
import pytest

from engine.compat.cv2_dnn.files import in_order, is_buffer, is_darknet


@pytest.mark.parametrize(
    ("given", "framework", "expected"),
    [
        (("a.cfg", "a.weights"), "", True),
        (("a.weights", ""), "", True),
        ((Path("A.CFG"), Path("a.weights")), "", True),
        (("a.cfg", "a.backup"), "", True),
        (("a.backup", "a.cfg"), "", True),
        (("a_1000", "a.cfg"), "", True),
        (("a.weights", "a.txt"), "", True),
        (("a.txt", "a.bin"), "Darknet", True),
        (("a.txt", "a.bin"), "", False),
        (("a.pb", "a.cfg"), "", False),
        (("a.cfg", "a.weights"), "caffe", False),
        (("a.onnx", ""), "", False),
        (("a.cfg", "a.onnx"), "", False),
        (("", ""), "", False),
        ((object(),), "", False),
    ],
)
def test_darknet(given, framework, expected):
    assert is_darknet(*given, framework=framework) is expected


def test_order():
    assert in_order("a.cfg", "a.weights") == ("a.cfg", "a.weights")
    assert in_order("a.weights", "a.cfg") == ("a.cfg", "a.weights")
    assert in_order("a.weights", "") == ("", "a.weights")
    assert in_order("", "a.cfg") == ("a.cfg", "")
    assert in_order("a.txt", "a.bin") == ("a.txt", "a.bin")
    assert in_order(b"cfg", b"weights") == (b"cfg", b"weights")


def test_buffers():
    assert is_buffer(b"")
    assert is_buffer(np.zeros(2, np.uint8))
    assert not is_buffer("a.cfg")
