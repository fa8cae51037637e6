from __future__ import annotations

import os
import struct

import numpy as np
import pytest

from engine.darknet import weights
from engine.darknet.cfg import read
from engine.darknet.graph import build
from engine.darknet.weights import initial, load, save
from engine.errors import WeightsError
from engine.plan.shapes import Shape
from tests.darknet.small_networks import graph_of, random_weights, shared_folder

CONV = "[convolutional]\nfilters=4\nsize=3\npad=1\nactivation=leaky\n"
NORMALISED = CONV + "batch_normalize=1\n"
LAYERS = NORMALISED + "[maxpool]\nstride=2\n" + CONV + "[connected]\noutput=5\n"
SOURCE = Shape(3, 6, 10)
FIRST = 4 * 4 + 4 * 3 * 9  # numbers of the first layer
NUMBERS = FIRST + 4 + 4 * 4 * 9 + 5 + 5 * 60


def network(layers=LAYERS):
    return graph_of(layers, SOURCE)


def header(major=0, minor=2, revision=5, order="<"):
    count = "q" if major * 10 + minor >= 2 else "i"
    return struct.pack(f"{order}iii{count}", major, minor, revision, 32013312)


def numbers(count=NUMBERS):
    return (np.arange(1, count + 1, dtype="<f4") / 64).tobytes()


def written(tmp_path, data):
    path = tmp_path / "net.weights"
    path.write_bytes(data)
    return path


def refusal(path, graph=None, **kwargs):
    with pytest.raises(WeightsError) as caught:
        load(path, graph or network(), **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_arrays_come_in_darknets_order(tmp_path):
    first, pool, second, dense = load(written(tmp_path, header() + numbers()), network())
    assert list(first) == ["bias", "scale", "mean", "variance", "weight"]
    assert first["variance"].tolist() == [13 / 64, 14 / 64, 15 / 64, 16 / 64]
    assert first["weight"].shape == (4, 3, 3, 3)
    assert first["weight"].reshape(-1)[:2].tolist() == [17 / 64, 18 / 64]
    assert pool == {}
    assert second["bias"][0] == (FIRST + 1) / 64
    assert dense["weight"].shape == (5, 60)
    assert dense["weight"][-1, -1] == NUMBERS / 64


def test_dense_layer_stores_its_statistics_after_its_weights(tmp_path):
    graph = graph_of("[connected]\noutput=2\nbatch_normalize=1\n", Shape(3, 1, 1))
    (dense,) = load(written(tmp_path, header() + numbers(14)), graph)
    assert list(dense) == ["bias", "weight", "scale", "mean", "variance"]
    assert (dense["weight"] * 64).tolist() == [[3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize(
    ("version", "size"),
    [((0, 1, 0), 16), ((0, 0, 0), 16), ((0, 2, 0), 20), ((0, 2, 5), 20), ((1, 0, 0), 20)],
)
def test_item_47_the_version_tells_how_long_the_header_is(tmp_path, version, size):
    start = header(*version)
    assert len(start) == size
    first, *_ = load(written(tmp_path, start + numbers()), network())
    assert first["bias"][0] == 1 / 64


@pytest.mark.parametrize("version", [(1001, 2, 5), (0, 1001, 5)])
def test_versions_above_1000_hold_transposed_dense_weights(tmp_path, version):
    graph = graph_of("[connected]\noutput=2\n" + CONV, Shape(3, 1, 1))
    count = 2 + 6 + 4 + 4 * 2 * 9
    dense, conv = load(written(tmp_path, header(*version) + numbers(count)), graph)
    assert (dense["weight"] * 64).tolist() == [[3, 5, 7], [4, 6, 8]]
    assert (conv["weight"].reshape(-1)[:2] * 64).tolist() == [13, 14]


def test_flipped_weights_are_transposed(tmp_path):
    graph = graph_of("[convolutional]\nfilters=2\nflipped=1\n", Shape(3, 1, 1))
    (conv,) = load(written(tmp_path, header() + numbers(8)), graph)
    assert (conv["weight"].reshape(2, 3) * 64).tolist() == [[3, 5, 7], [4, 6, 8]]


def test_dontloadscales_leaves_darknets_values(tmp_path):
    graph = network(NORMALISED + "dontloadscales=1\n")
    (conv,) = load(written(tmp_path, header() + numbers(FIRST - 12)), graph)
    assert [conv[name][0] for name in ("scale", "mean", "variance")] == [1, 0, 0]
    assert conv["weight"].reshape(-1)[0] == 5 / 64


def test_dontload_reads_nothing_from_the_file_and_warns(tmp_path, caplog):
    graph = network(CONV + "dontload=1\n" + CONV)
    first, second = load(written(tmp_path, header() + numbers(4 + 4 * 4 * 9)), graph)
    assert not first["weight"].any()
    assert second["bias"][0] == 1 / 64
    assert caplog.messages == [
        "net.cfg:5: [convolutional]: its weights stay zero because of dontload=1"
    ]


def test_layer_with_shared_weights_has_none_in_the_file(tmp_path):
    graph = graph_of(NORMALISED + CONV + "share_index=0\n", Shape(4, 6, 10))
    path = written(tmp_path, header() + numbers(graph.parameter_count))
    owner, borrower = load(path, graph)
    assert graph.nodes[1].parameter_count == 0
    assert borrower is owner


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected weights, got an empty file"),
        (b"\0", "expected a header of 16 bytes or more, got 1 bytes"),
        (header()[:15], "expected a header of 16 bytes or more, got 15 bytes"),
        (header()[:18], "expected a header of 20 bytes, got 18 bytes"),
        (header(), "layer 0 [convolutional] bias: needs 4 numbers, file has 0 left."),
    ],
)
def test_item_42_too_short_for_a_header(tmp_path, data, message):
    assert message in refusal(written(tmp_path, data))


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (3, "layer 0 [convolutional] bias: needs 4 numbers, file has 3 left. Is it for another"),
        (8, "layer 0 [convolutional] mean: needs 4 numbers, file has 0 left."),
        (20, "layer 0 [convolutional] weight: needs 108 numbers, file has 4 left."),
        (FIRST - 1, "layer 0 [convolutional] weight: needs 108 numbers, file has 107 left."),
        (FIRST + 1, "layer 2 [convolutional] bias: needs 4 numbers, file has 1 left."),
        (NUMBERS - 1, "layer 3 [connected] weight: needs 300 numbers, file has 299 left."),
    ],
)
def test_item_43_a_short_file_names_layer_and_array(tmp_path, kept, message):
    assert message in refusal(written(tmp_path, header() + numbers(kept)))
    assert message in refusal(written(tmp_path, header() + numbers(kept)), least=1)


@pytest.mark.parametrize("extra", [-1, 1])
def test_item_43_one_byte_off_a_layer_boundary_is_not_a_boundary(tmp_path, extra):
    data = (header() + numbers())[: 20 + 4 * FIRST + extra]
    message = refusal(written(tmp_path, data), least=1)
    assert "numbers, file has" in message


def test_a_file_that_ends_after_a_layer_is_refused_unless_asked_for(tmp_path):
    path = written(tmp_path, header() + numbers(FIRST))
    assert refusal(path) == (
        f"{path}: ends after layer 0 [convolutional]: expected weights for 4 layers. "
        "It is a partial file, made to start training from"
    )
    assert refusal(path, least=3).startswith(
        f"{path}: ends after layer 0 [convolutional]: expected weights for 3 layers."
    )
    first, _, second, dense = load(path, network(), least=2)  # the second has none
    assert first["weight"].reshape(-1)[-1] == FIRST / 64
    assert not second["weight"].any()
    assert not dense["weight"].any()


@pytest.mark.parametrize("extra", [1, 4, 20])
def test_item_44_surplus_bytes_are_counted(tmp_path, extra):
    message = refusal(written(tmp_path, header() + numbers() + bytes(extra)))
    assert f": {extra} bytes more than net.cfg needs. Is it for another .cfg?" in message


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        ((-1, 2, 5), "-1.2.5"),
        ((2**31 - 1, 0, 0), "2147483647.0.0"),
        ((0, 2, -5), "0.2.-5"),
        ((0, -(2**31), 0), "0.-2147483648.0"),
    ],
)
def test_item_46_invalid_version_is_refused(tmp_path, version, shown):
    start = struct.pack("<iiiq", *version, 0)
    assert f"got a header of version {shown}." in refusal(written(tmp_path, start + numbers()))


def test_item_47_a_big_endian_header_is_recognised(tmp_path):
    message = refusal(written(tmp_path, header(order=">") + numbers()))
    assert message.endswith("It is written in big-endian order.")


@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (20, np.nan, "layer 0 [convolutional] weight: 1 of 108 numbers are infinite or NaN"),
        (0, -np.inf, "layer 0 [convolutional] bias: 1 of 4 numbers are infinite or NaN"),
        (12, np.nan, "layer 0 [convolutional] variance: 1 of 4 numbers are infinite or NaN"),
        (12, -1.0, "layer 0 [convolutional] variance: expected no negative variance, got -1."),
        (12, -1e-5, "layer 0 [convolutional] variance: expected no negative variance, got -1e-05"),
    ],
)
def test_item_48_impossible_numbers_are_refused(tmp_path, index, value, message):
    values = np.frombuffer(numbers(), "<f4").copy()
    values[index] = value
    assert message in refusal(written(tmp_path, header() + values.tobytes()))


@pytest.mark.parametrize("value", [0.0, 1e-40, -1e-40, -9e-6])
def test_item_48_variance_just_below_zero_is_accepted(tmp_path, value):
    values = np.frombuffer(numbers(), "<f4").copy()
    values[12] = value
    first, *_ = load(written(tmp_path, header() + values.tobytes()), network())
    assert first["variance"][0] == np.float32(value)


def test_large_finite_numbers_whose_sum_overflows_are_fine(tmp_path):
    values = np.frombuffer(numbers(), "<f4").copy()
    values[16:100] = 3e38
    first, *_ = load(written(tmp_path, header() + values.tobytes()), network())
    assert first["weight"].max() == np.float32(3e38)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<!DOCTYPE html><html>", "got a web page. Download the raw file instead"),
        (b"\n<html><body>Quota exceeded", "got a web page."),
        (b"version https://git-lfs.github.com/spec/v1\n", "got a Git LFS pointer. Run: git lfs p"),
        (b"PK\x03\x04" + bytes(40), "got a zip archive or a PyTorch model."),
        (b"\x1f\x8b\x08" + bytes(40), "got a gzip archive. Run: gunzip"),
        (b"\x80\x02\x8a\nl\xfc" + bytes(40), "got a Python pickle, likely a PyTorch model."),
        (b"\x89HDF\r\n\x1a\n" + bytes(40), "got an HDF5 file, likely a Keras model."),
        (b"\x08\x07\x12\x07pytorch" + bytes(40), "got an ONNX model. Convert it first"),
        (b"\x40\0\0\0\0\0\0\0" + b'{"__metadata__":{}}', "got a safetensors model."),
        (b"\x1c\0\0\0TFL3" + bytes(40), "got a TensorFlow Lite model."),
        (b"[net]\nwidth=4\n", "got a .cfg file. Are the two arguments swapped?"),
        (b"# Testing\n[net]\nwidth=4\n", "got a text file. Is it the .cfg?"),
        (b"404: Not Found", "got a text file. Did the download fail?"),
    ],
)
def test_item_49_other_formats_are_named(tmp_path, data, message):
    assert message in refusal(written(tmp_path, data))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lmbalves_yolo.weights", "got a web page. Download the raw file instead"),
        ("git-lfs-pointer.weights", "got a Git LFS pointer. Run: git lfs pull"),
    ],
)
def test_item_49_files_that_people_really_published_by_mistake(name, message):
    assert message in refusal(shared_folder("fixtures_bad") / name)


def test_item_43_a_download_that_stopped_early():
    graph = build(read(shared_folder("cfgs") / "yolov3-tiny.cfg"))
    name = "throughheavenandearthimtheonlyone_yolov3-tiny_final.weights"
    message = refusal(shared_folder("fixtures_bad") / name, graph)
    assert "numbers, file has" in message or "ends after layer" in message


def test_item_51_a_sparse_terabyte_is_refused_by_its_size(tmp_path):
    path = written(tmp_path, header())
    os.truncate(path, 2**40)
    assert "bytes more than net.cfg needs" in refusal(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pipe", "expected a file, got a pipe"),
        (".", "expected a file, got a folder"),
        ("/dev/zero", "expected a file, got a device"),
        ("missing", "cannot be read: No such file"),
    ],
)
def test_item_52_odd_paths_are_refused_at_once(tmp_path, name, message):
    os.mkfifo(tmp_path / "pipe")
    assert message in refusal(tmp_path / name)


def test_item_50_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = written(tmp_path, header() + numbers())
    sizes = weights._last_whole_layer

    def cut_after_looking(*args, **kwargs):
        last = sizes(*args, **kwargs)
        os.truncate(path, 100)
        return last

    monkeypatch.setattr(weights, "_last_whole_layer", cut_after_looking)
    assert "the file became shorter while it was read" in refusal(path)


def test_saved_weights_can_be_loaded(tmp_path):
    layers = LAYERS + "[connected]\nbatch_normalize=1\n"
    graph = network("[convolutional]\nfilters=3\nsize=3\npad=1\nflipped=1\n" + layers)
    arrays = random_weights(graph)
    path = tmp_path / "new.weights"
    save(path, graph, arrays, seen=7)
    assert path.stat().st_size == graph.weights_bytes
    assert path.read_bytes()[:20] == struct.pack("<iiiq", 0, 2, 5, 7)
    for wrote, again in zip(arrays, load(path, graph), strict=True):
        assert wrote.keys() == again.keys()
        for name, array in wrote.items():
            np.testing.assert_array_equal(again[name], array)


def test_others_may_read_what_was_saved(tmp_path):
    graph = network()
    save(tmp_path / "net.weights", graph, initial(graph))
    (tmp_path / "usual").touch()
    modes = [(tmp_path / name).stat().st_mode for name in ("net.weights", "usual")]
    assert modes[0] == modes[1]


def test_saving_keeps_an_existing_file_unless_asked(tmp_path):
    path = written(tmp_path, b"precious")
    graph = network()
    with pytest.raises(WeightsError, match="exists already"):
        save(path, graph, initial(graph))
    assert path.read_bytes() == b"precious"
    save(path, graph, initial(graph), overwrite=True)
    assert path.stat().st_size == graph.weights_bytes


def test_failed_save_leaves_no_file(tmp_path):
    graph = network()
    wrong = list(initial(graph))
    wrong[3] = {"bias": np.zeros(4), "weight": np.zeros((5, 60))}
    with pytest.raises(WeightsError, match=r"bias: expected an array of \(5,\), got \(4,\)"):
        save(tmp_path / "new.weights", graph, wrong)
    assert list(tmp_path.iterdir()) == []


def test_saving_into_a_missing_folder_is_an_error(tmp_path):
    graph = network()
    with pytest.raises(WeightsError, match="cannot be written: No such file"):
        save(tmp_path / "no" / "new.weights", graph, initial(graph))
