from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.darknet import network_limits
from engine.darknet.cfg import parse, read
from engine.darknet.graph import build
from engine.darknet.layers import LAYERS
from engine.errors import ConfigError, InputError
from engine.plan.shapes import Shape
from tests.darknet.small_networks import graph_of, refusal, refusal_of_text, shapes_of

CONV = "[convolutional]\nfilters=4\nsize=3\npad=1\nactivation=leaky\n"


def test_node_has_its_context():
    graph = graph_of(CONV + CONV + "[route]\nlayers=-1,0\n")
    route = graph.nodes[2]
    assert (route.index, route.kind, route.line) == (2, "route", 15)
    assert route.sources == (1, 0)
    assert route.shapes == (Shape(4, 6, 10), Shape(4, 6, 10))
    assert route.shape == Shape(8, 6, 10)


def test_the_first_layer_reads_the_input():
    assert graph_of(CONV).nodes[0].sources == (-1,)


def test_counts_of_weights_and_operations():
    graph = graph_of(CONV + "[connected]\noutput=5\n")
    conv, connected = graph.nodes
    assert conv.parameter_count == 4 * 8 * 9 + 4
    assert connected.parameter_count == 240 * 5 + 5
    assert graph.weights_bytes == 20 + 4 * graph.parameter_count
    assert graph.operations == 2 * 240 * 8 * 9 + 2 * 240 * 5


def test_the_size_of_the_input_can_be_another():
    graph = graph_of(CONV, size=(32, 16))
    assert (graph.net.width, graph.net.height) == (32, 16)
    assert graph.nodes[0].shape == Shape(4, 16, 32)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((300, 300), "size: expected a multiple of 32, got 300. Try 288 or 320"),
        ((416, 300), "size: expected a multiple of 32, got 416x300. Try 416x288 or 416x320"),
    ],
)
def test_a_size_between_two_strides_is_refused_with_the_nearest_sizes(size, message):
    folder = Path(__file__).parents[2] / "cfg"
    sections = read(folder / "yolov3-tiny.cfg")
    with pytest.raises(InputError) as caught:
        build(sections, size=size)
    assert str(caught.value) == message


def test_a_network_without_meeting_maps_takes_any_size():
    assert graph_of(CONV, size=(33, 17)).nodes[0].shape == Shape(4, 17, 33)


def test_a_layer_that_is_wrong_at_every_size_is_reported_itself():
    with pytest.raises(ConfigError, match="route"):
        graph_of(CONV + "[route]\nlayers=-7\n", size=(33, 33))


def test_time_steps_are_those_of_the_caller():
    sections = parse("[net]\ninputs=3\nbatch=8\ntime_steps=4\n[connected]\n")
    assert build(sections).net.time_steps == 1
    assert build(sections, time_steps=3).net.time_steps == 3


@pytest.mark.parametrize("name", ["net", "network"])
def test_a_network_without_an_image_has_inputs(name):
    graph = build(parse(f"[{name}]\ninputs=37\n[connected]\noutput=2\n"))
    assert graph.net.shape == Shape(37)


@pytest.mark.parametrize(
    ("layers", "task", "classes", "output"),
    [
        ("[avgpool]\n[softmax]\n", "classifier", 8, "softmax"),
        ("[avgpool]\n[softmax]\n[cost]\ntype=sse\n", "classifier", 8, "softmax"),
        (CONV, "other", 0, "convolutional"),
        (CONV + "[cost]\n[contrastive]\n", "other", 0, "convolutional"),
    ],
)
def test_task_of_a_network(layers, task, classes, output):
    graph = graph_of(layers)
    assert (graph.task, graph.classes, graph.output.kind) == (task, classes, output)


def test_text_model_is_not_a_classifier():
    graph = build(parse("[net]\ninputs=4\n[connected]\noutput=4\n[softmax]\n"))
    assert graph.task == "other"


def test_letter_box_comes_from_the_net():
    assert not graph_of(CONV).letter_box
    assert build(parse("[net]\ninputs=3\nletter_box=1\n[connected]\n")).letter_box


def test_unknown_options_are_reported_once_per_kind_of_section(caplog):
    graph_of(CONV + "fliters=2\n" + CONV + "fliters=3\n[maxpool]\nfliters=1\n")
    assert caplog.messages == [
        "net.cfg:10: [convolutional] unknown option 'fliters' is ignored. Did you mean 'filters'?",
        "net.cfg:18: [maxpool] unknown option 'fliters' is ignored.",
    ]
    assert {each.levelno for each in caplog.records} == {logging.WARNING}


def test_many_unknown_options_are_only_counted(caplog):
    start = time.process_time()
    graph_of(CONV + "".join(f"k{number}=1\n" for number in range(50_000)))
    assert time.process_time() - start < 10
    assert len(caplog.messages) == 11
    assert caplog.messages[-1] == "net.cfg: 49990 more unknown options"


def test_training_options_are_accepted_silently(caplog):
    graph_of(
        "[convolutional]\nsway=1\nonlyforward=1\nlearning_rate=2\n"
        "[dropout]\nprobability=.5\n[cost]\ntype=sse\n"
    )
    assert caplog.messages == []


NET = "[net]\nwidth=8\nheight=8\nchannels=3\n"
PLAIN = NET + "[convolutional]\n"

INPUTS = [
    (4, "[convolutional]\n[net]\n", ":1: expected [net] as the first section, got [convolutional]"),
    (4, NET, ":1: [net]: expected layers after it, got none"),
    (5, NET + "[net]\n", ":5: expected a layer, got a second [net]"),
    (16, PLAIN.replace("width=8", "width=0"), ":1: [net]: expected width, height and channels of"),
    (16, PLAIN.replace("width=8", "width=-416"), ":2: [net] width: expected at least 0"),
    (16, PLAIN.replace("width=8", "width=1e9"), ":2: [net] width: expected an integer, got '1e9'"),
    (
        16,
        PLAIN.replace("width=8", "width=1000000000"),
        ":1: [net]: the input of 3 x 8 x 1000000000",
    ),
    (16, PLAIN.replace("width=8", "width=416.5"), ":2: [net] width: expected an integer"),
    (16, PLAIN.replace("width=8", "width=0x1A0"), ":2: [net] width: expected an integer"),
    (16, PLAIN.replace("width=8", "width=NaN"), ":2: [net] width: expected an integer"),
    (16, PLAIN.replace("width=8", "width=1" + "0" * 30), ":2: [net] width: expected an integer of"),
    (16, PLAIN.replace("width=8", "width="), ":1: [net]: expected width, height and channels of"),
    (16, "[net]\n[connected]\n", ":1: [net]: expected width, height and channels, or inputs"),
    (16, NET + "inputs=5\n[connected]\n", ":1: [net] inputs: expected width * height * channels"),
    (18, PLAIN.replace("channels=3", "channels=0"), ":1: [net]: expected width, height and chann"),
    (19, NET + "batch=0\n[connected]\n", ":5: [net] batch: expected at least 1, got '0'"),
    (36, NET + "time_steps=0\n[connected]\n", ":5: [net] time_steps: expected at least 1"),
    (21, NET.replace("8", "65536") + "[convolutional]\n", ":1: [net]: the input of 3 x 65536 x"),
]


@pytest.mark.parametrize(("item", "text", "message"), INPUTS)
def test_a_wrong_net_is_refused(item, text, message):
    assert refusal_of_text(text).startswith(f"net.cfg{message}"), item


LAYER_ERRORS = [
    (17, "[reorg]\nstride=4\n", "stride: expected its square to divide 8 channels, got 4"),
    (
        17,
        CONV + "[maxpool]\nstride=2\n[route]\nlayers=-1,0\n" + CONV,
        "expected a feature map, got the vector",
    ),
    (20, "[convolutional]\nfilters=0\n", "filters: expected at least 1, got '0'"),
    (20, "[convolutional]\nfilters=-1\n", "filters: expected at least 1, got '-1'"),
    (20, "[convolutional]\nfilters=2147483648\n", "filters: expected an integer of at most 2147"),
    (20, "[convolutional]\nfilters=2147483647\n", "the output of 2147483647 x 6 x 10 is too large"),
    (21, "[upsample]\nstride=8192\n", "the output of 8 x 49152 x 81920 is too large"),
    (22, "[convolutional]\nsize=0\n", "size: expected at least 1, got '0'"),
    (22, "[convolutional]\nsize=7\n", "size: 7 is larger than the map of 8 x 6 x 10 with its padd"),
    (22, "[convolutional]\nstride=0\n", "stride: expected at least 1, got '0'"),
    (22, "[convolutional]\nstride=-2\n", "stride: expected at least 1, got '-2'"),
    (22, "[convolutional]\npadding=1000000\n", "the output of 1 x 2000006 x 2000010 is too large"),
    (22, "[convolutional]\ndilation=0\n", "dilation: expected at least 1, got '0'"),
    (
        22,
        "[convolutional]\nsize=3\ndilation=2\n",
        "dilation: expected an odd size and pad=1 with it",
    ),
    (22, "[maxpool]\nstride=0\n", "stride: expected at least 1, got '0'"),
    (23, "[convolutional]\ngroups=0\n", "groups: expected at least 1, got '0'"),
    (23, "[convolutional]\nfilters=6\ngroups=3\n", "groups: expected a divisor of 8 channels and"),
    (23, "[convolutional]\nfilters=8\ngroups=16\n", "groups: expected a divisor of 8 channels and"),
    (
        24,
        "[convolutional]\nactivation=leeky\n",
        "activation: unknown 'leeky'. Did you mean 'leaky'",
    ),
    (25, "[maxpol]\n", "unknown section [maxpol]. Did you mean 'maxpool'?"),
    (25, "[iseg]\n", "unknown section [iseg]."),
    (25, "[Convolutional]\n", "unknown section [Convolutional]. Did you mean 'convolutional'?"),
    (26, "[route]\nlayers=\n", "layers: is missing"),
    (26, "[route]\n", "layers: is missing"),
    (26, CONV + "[route]\nlayers=-1,\n", "layers: expected a list, each an integer, got '-1,'"),
    (26, "[route]\nlayers=,,\n", "layers: expected a list, each an integer, got ',,'"),
    (27, CONV + "[route]\nlayers=1\n", "layers: 1 points at layer 1, which is not before this lay"),
    (27, CONV + "[route]\nlayers=7\n", "layers: 7 points at layer 7, which is not before this lay"),
    (
        27,
        CONV + "[route]\nlayers=-9\n",
        "layers: -9 points before the first layer; this is layer 1",
    ),
    (27, "[route]\nlayers=-1\n", "layers: -1 points before the first layer; this is layer 0"),
    (
        28,
        CONV + "[route]\nlayers=-1\ngroups=2\ngroup_id=2\n",
        "group_id: expected less than groups",
    ),
    (28, CONV + "[route]\nlayers=-1\ngroup_id=-1\n", "group_id: expected at least 0, got '-1'"),
    (
        28,
        CONV + "[route]\nlayers=-1\ngroups=3\n",
        "groups: expected a divisor of 4 channels, got 3",
    ),
    (
        29,
        CONV + "[shortcut]\nfrom=1\n",
        "from: 1 points at layer 1, which is not before this layer",
    ),
    (29, CONV + "[shortcut]\nfrom=-3\n", "from: -3 points before the first layer; this is layer 1"),
    (29, CONV + "[shortcut]\n", "from: is missing"),
    (29, CONV + "[shortcut]\nfrom=-1\nweights_type=some\n", "weights_type: unknown 'some'."),
    (29, CONV + "[shortcut]\nfrom=-1\nweights_type=per_channel\n", "weights_normalization: expect"),
    (30, "[softmax]\n" + CONV, "expected a feature map, got the vector of layer 0 [softmax]"),
    (34, "[softmax]\ntree=no.tree\n", "no.tree"),
    (35, CONV + "[convolutional]\nshare_index=5\n", "share_index: 5 points at layer 5, which is n"),
    (35, CONV + "[convolutional]\nshare_index=0\n", "share_index: expected a layer with weight (1"),
    (35, "[avgpool]\n[convolutional]\nshare_index=0\n", "got layer 0 [avgpool] with None"),
    (37, "[upsample]\nstride=0\n", "stride: expected a number other than 0"),
    (37, "[upsample]\nstride=1000000\n", "the output of 8 x 6000000 x 10000000 is too large"),
    (37, "[upsample]\nstride=-4\n", "stride: expected a divisor of 10 and 6, got 4"),
    (38, "[maxpool]\npadding=-1\n", "padding: expected at least 0, got '-1'"),
    (
        38,
        "[maxpool]\nsize=2\npadding=1000000\n",
        "the output of 8 x 1000005 x 1000009 is too large",
    ),
    (38, "[local_avgpool]\nsize=2\npadding=4\n", "padding: 4 leaves windows of size 2 outside the"),
    (
        39,
        "[maxpool]\nsize=40\npadding=0\n",
        "leaves nothing of its input: the output would be 8 x ",
    ),
    (
        39,
        "[deconvolutional]\nsize=3\npadding=9\n",
        "leaves nothing of its input: the output would ",
    ),
    (40, "[connected]\noutput=0\n", "output: expected at least 1, got '0'"),
    (40, "[connected]\noutput=65536\n[connected]\noutput=65537\n", "weight: numbers: expected at "),
    (0, "[local]\nsize=5\npad=1\n", "pad: expected 0 or (size - 1) / 2, got 1"),
    (0, "[local]\nsize=9\n", "size: 9 is larger than the map of 8 x 6 x 10"),
    (0, "[crop]\ncrop_width=11\ncrop_height=2\n", "crop_width: expected at most 10, got 11"),
    (0, "[softmax]\ngroups=7\n", "groups: expected a divisor of 480 values, got 7"),
    (0, "[softmax]\ntemperature=0\n", "temperature: expected more than 0, got 0"),
    (0, "[normalization]\nsize=18\n", "size: 18 is too wide for the 8 channels before it"),
    (
        0,
        "[maxpool]\nmaxpool_depth=1\nout_channels=9\n",
        "out_channels: expected at most the 8 chan",
    ),
    (0, "[reorg3d]\nstride=4\n", "stride: expected a divisor of 10 and 6, got 4"),
    (
        0,
        "[reorg3d]\nstride=2\nreverse=1\n",
        "stride: expected its square to divide 2 channels, got",
    ),
    (
        0,
        CONV + "[avgpool]\n[scale_channels]\nfrom=0\nscale_wh=1\n",
        "expected factors of 1 x 6 x 10",
    ),
    (0, CONV + "[scale_channels]\nfrom=0\n", "expected factors of 4 x 1 x 1 from the layer before"),
    (0, CONV + "[avgpool]\n[sam]\nfrom=0\n", "expected a map of 4 x 6 x 10 from the layer before"),
]


@pytest.mark.parametrize(("item", "layers", "message"), LAYER_ERRORS)
def test_a_wrong_layer_is_refused(item, layers, message):
    text = refusal(layers)
    assert message in text, item
    assert text.startswith("net.cfg:") or "no.tree" in text


@pytest.mark.parametrize(
    ("item", "layers", "shape"),
    [
        (18, CONV, Shape(4, 6, 10)),
        (20, "[convolutional]\nfilters=40#32\n", Shape(40, 6, 10)),
        (22, "[convolutional]\nsize=3\nstride=100\npad=1\n", Shape(1, 1, 1)),
        (24, "[convolutional]\nactivation=\n", Shape(1, 6, 10)),
        (26, CONV + "[route]\nlayers = - 1 , 0\n", Shape(8, 6, 10)),
        (26, CONV + "[route]\nlayers=0###P6\n", Shape(4, 6, 10)),
        (28, CONV + "[maxpool]\nstride=2\n[route]\nlayers=0,1\n", Shape(4 * 60 + 4 * 15)),
        (29, CONV + "[shortcut]\nfrom=" + ",".join(["0"] * 64) + "\n", Shape(4, 6, 10)),
        (30, CONV + "[dropout]\n[shortcut]\nfrom=-2\n", Shape(4, 6, 10)),
        (30, CONV + "[softmax]\n[route]\nlayers=-1\n", Shape(240)),
        (38, "[maxpool]\nsize=2\nstride=2\npadding=3\n", Shape(8, 4, 6)),
    ],
)
def test_networks_that_darknet_runs_are_accepted(item, layers, shape):
    assert shapes_of(layers)[-1] == shape, item


@pytest.mark.parametrize(
    ("name", "limit", "message"),
    [
        (
            "REFERENCES",
            3,
            "[route]: references to earlier layers in all: expected at most 3, got 4",
        ),
        ("PARAMETERS", 300, "[convolutional]: weights up to here: expected at most 300, got 440"),
        ("ACTIVATIONS", 500, "[route]: outputs up to here: expected at most 500, got 720"),
    ],
)
def test_totals_are_limited(monkeypatch, name, limit, message):
    monkeypatch.setattr(network_limits, name, limit)
    assert message in refusal(CONV + CONV + "[route]\nlayers=-1\n[route]\nlayers=-1\n")


@pytest.mark.slow
def test_item_41_long_chains_of_wide_routes_end_soon():
    wide = ",".join(["0"] * 1000)
    text = "[avgpool]\n" + f"[route]\nlayers={wide}\n" * 9000
    assert "references to earlier layers in all" in refusal(text, Shape(1, 1, 1))


@pytest.mark.slow
def test_item_41_a_network_of_ten_thousand_layers_is_built_soon():
    start = time.process_time()
    graph = graph_of("[avgpool]\n" + "[route]\nlayers=-1,0\n[avgpool]\n[empty]\n" * 30)
    assert len(graph.nodes) == 91
    graph = graph_of(
        ("[route]\nlayers=0\n[empty]\n[dropout]\n" * 3333).replace(
            "[route]\nlayers=0", "[empty]", 1
        )
    )
    assert len(graph.nodes) == 9999
    assert time.process_time() - start < 10


def test_doubling_routes_hit_the_ceiling_before_memory():
    message = refusal("[empty]\n" + "[route]\nlayers=-1,-1\n" * 64)
    assert "is too large: expected at most 2147483647 values" in message


def test_every_section_is_a_file_of_the_same_name():
    for spelling, cls in LAYERS.items():
        assert cls.__module__ == f"engine.darknet.layers.{cls.kind.lower()}", spelling


def test_network_imports_only_the_files_of_its_sections(tmp_path):
    cfg_file = tmp_path / "net.cfg"
    cfg_file.write_text("[net]\nwidth=8\nheight=8\nchannels=3\n[maxpool]\n")
    script = f"""
import sys
from engine.darknet import cfg, graph
graph.build(cfg.read({str(cfg_file)!r}))
print(*(name.rpartition(".")[2] for name in sys.modules if ".layers." in name))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = done.stdout.split()
    assert "maxpool" in imported
    assert not {"convolutional", "yolo", "lstm"} & set(imported)


@pytest.mark.parametrize("name", ["base", "net", "__init__", "../maxpool", "maxpool.py", ""])
def test_no_other_file_is_a_section(name):
    assert name not in LAYERS
