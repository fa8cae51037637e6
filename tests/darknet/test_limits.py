"""Every limit can be lowered; larger values are refused before memory is allocated."""

import pytest

from engine.darknet import cfg, graph, network_limits
from engine.errors import ConfigError

NET = "[net]\nwidth=32\nheight=32\nchannels=3\n"
CONV = "[convolutional]\nfilters=16\nsize=3\npad=1\n"
YOLO = "[convolutional]\nfilters=6\n[yolo]\nclasses=1\nmask=0\nanchors=8,8\n"
ROUTE = "[route]\nlayers="
VECTOR = NET + "[avgpool]\n"
TREE = "[softmax]\ntree=a.tree\n"

# limit: (its lowered value, a network within it, a network beyond it, the message)
CASES = {
    "CFG_BYTES": (100, NET + "[dropout]\n", NET + "#" * 100, "expected at most 100 bytes"),
    "LINES": (8, NET + "[dropout]\n", NET + "\n" * 9, "expected at most 8 lines"),
    "SECTIONS": (3, NET + "[dropout]\n" * 3, NET + "[dropout]\n" * 4, "more than 3 sections"),
    "LIST": (4, NET + CONV + f"{ROUTE}0,0,0,0\n", NET + CONV + f"{ROUTE}0,0,0,0,0\n",
             "layers: expected a list of at most 4 numbers"),
    "INTEGER": (99, NET + CONV, NET + CONV.replace("16", "100"), "an integer of at most 99"),
    "VALUES": (20_000, NET + CONV, NET + CONV.replace("16", "20"), "expected at most 20000 values"),
    "PARAMETERS": (500, NET + CONV, NET + CONV * 2, "weights up to here: expected at most 500"),
    "ACTIVATIONS": (20_000, NET + CONV, NET + CONV * 2, "outputs up to here: expected at most 20"),
    "OPERATIONS": (10**6, NET + CONV, NET + CONV * 2, "operations up to here: expected at most 1"),
    "CLASSES": (1, NET + YOLO, NET + YOLO.replace("filters=6", "filters=7").replace("es=1", "es=2"),
                "[yolo] classes: expected at most 1, got 2"),
    "TREES": (2, VECTOR + TREE * 2, VECTOR + TREE * 3, "files in all: expected at most 2, got 3"),
    "REFERENCES": (3, NET + CONV * 3, NET + CONV * 2 + f"{ROUTE}0,1\n", "references to earlier"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_lowered_ceiling_is_respected(name, monkeypatch, tmp_path):
    ceiling, below, above, message = CASES[name]
    monkeypatch.setattr(network_limits, name, ceiling)
    (tmp_path / "a.tree").write_text("a -1\nb -1\nc -1\n")
    path = tmp_path / "net.cfg"
    path.write_text(below)
    graph.build(cfg.read(path))
    path.write_text(above)
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        graph.build(cfg.read(path))


def test_every_ceiling_is_tested():
    assert set(CASES) == {name for name in vars(network_limits) if name.isupper()}


def test_too_many_values_are_not_classes(monkeypatch):
    network = cfg.parse(NET + "[softmax]\n")
    assert graph.build(network).task == "classifier"
    monkeypatch.setattr(network_limits, "CLASSES", 3 * 32 * 32 - 1)
    assert graph.build(network).task == "other"
