from __future__ import annotations

import numpy as np
import pytest

from engine.darknet.cfg import read
from engine.darknet.graph import build
from engine.errors import ConfigError
from engine.plan import ops
from engine.plan.activations import ACTIVATIONS
from engine.plan.shapes import Shape
from tests.darknet.small_networks import SOURCE, graph_of, plan_of


def only_op(layers, source=SOURCE):
    (op,) = plan_of(layers, source).ops
    return op


@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - {"linear"}))
def test_every_activation_can_be_a_layer(name):
    op = only_op(f"[activation]\nactivation={name}\n")
    assert isinstance(op, ops.Activate)
    assert op.activation == name


def test_activation_layer_is_linear_by_default():
    plan = plan_of("[activation]\n")
    assert plan.layers == (plan.source,)


def test_logistic_is_an_activation():
    assert only_op("[logistic]\n").activation == "logistic"


def test_batchnorm_normalises_each_channel():
    graph = graph_of("[batchnorm]\n")
    names = [(each.name, each.shape) for each in graph.nodes[0].parameters]
    assert names == [(name, (8,)) for name in ("bias", "scale", "mean", "variance")]
    assert isinstance(only_op("[batchnorm]\n"), ops.Normalise)


@pytest.mark.parametrize("section", ["normalization", "lrn"])
def test_neighbour_normalisation_has_darknets_defaults(section):
    op = only_op(f"[{section}]\n")
    assert (op.size, op.alpha, op.beta, op.kappa) == (5, 0.0001, 0.75, 1)
    op = only_op(f"[{section}]\nsize=4\nalpha=.5\nbeta=.25\nkappa=2\n")
    assert (op.size, op.alpha, op.beta, op.kappa) == (4, 0.5, 0.25, 2)


def test_l2norm():
    assert isinstance(only_op("[l2norm]\n"), ops.L2Norm)


@pytest.mark.parametrize(
    ("layers", "runs"),
    [
        ("[softmax]\n", (480,)),
        ("[soft]\ngroups=4\n", (120,)),
        ("[softmax]\nspatial=1\nnoloss=1\n", (480,)),
    ],
)
def test_softmax_runs_over_all_values_or_groups(layers, runs):
    op = only_op(layers)
    assert op.runs == runs
    assert (op.out.shape, op.temperature) == (Shape(480), 1)


def test_softmax_with_a_temperature():
    assert only_op("[softmax]\ntemperature=2.5\n").temperature == 2.5


TREE = "animal -1\nplant -1\ndog 0\ncat 0\noak 1\n"


def test_softmax_over_the_siblings_of_a_tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.tree").write_text(TREE)
    op = only_op("[softmax]\ntree=small.tree\n", Shape(5))
    assert op.runs == (2, 2, 1)


def test_tree_is_found_next_to_the_cfg(tmp_path):
    (tmp_path / "small.tree").write_text(TREE)
    path = tmp_path / "net.cfg"
    path.write_text("[net]\ninputs=5\n[softmax]\ntree=small.tree\n")
    assert build(read(path)).nodes[0].shape == Shape(5)


@pytest.mark.parametrize("name", ["no.tree", "x" * 5000])
def test_item_34_a_tree_that_cannot_be_read_is_refused(tmp_path, name):
    path = tmp_path / "net.cfg"
    path.write_text(f"[net]\ninputs=5\n[softmax]\ntree={name}\n")
    with pytest.raises(ConfigError, match=r"^net.cfg:4: \[softmax\] tree: .*cannot be read"):
        build(read(path))


def test_item_34_a_tree_with_another_number_of_entries_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.tree").write_text(TREE)
    with pytest.raises(ValueError, match="tree: expected 6 entries, one for each value, got 5"):
        graph_of("[softmax]\ntree=small.tree\n", Shape(6))


CONV = "[convolutional]\nfilters=4\nactivation=linear\n"


def test_channels_of_an_earlier_map_are_scaled():
    plan = plan_of(CONV + "[avgpool]\n[scale_channels]\nfrom=-2\nactivation=relu\n")
    multiply, activate = plan.ops[2:]
    assert (multiply.src, multiply.factor) == (plan.layers[0], plan.layers[1])
    assert activate.activation == "relu"


def test_cells_of_an_earlier_map_are_scaled():
    one = "[convolutional]\nactivation=linear\n"
    plan = plan_of(CONV + one + "[scale_channels]\nfrom=0\nscale_wh=1\n")
    assert plan.ops[2].factor.shape == Shape(1, 6, 10)
    assert plan.layers[2].shape == Shape(4, 6, 10)


def test_sam_multiplies_value_by_value():
    plan = plan_of(CONV + CONV + "[sam]\nfrom=-2\n")
    assert (plan.ops[2].src, plan.ops[2].factor) == (plan.layers[0], plan.layers[1])


def test_implicit_values_need_no_source():
    graph = graph_of("[implicit]\nfilters=3\natoms=2\nmean=1\nstd=.1\n")
    assert graph.nodes[0].sources == ()
    assert graph.nodes[0].parameter_count == 6
    op = only_op("[implicit]\nfilters=3\natoms=2\n")
    assert isinstance(op, ops.Load)
    assert op.out.shape == Shape(3, 2, 1)


def test_implicit_has_128_filters_by_default():
    assert graph_of("[implicit]\n").nodes[0].shape == Shape(128)


def test_random_weights_reach_the_constants():
    plan = plan_of("[implicit]\nfilters=3\n", seed=1)
    values = plan.constants["0.implicit.weight"]
    np.testing.assert_array_equal(
        values.reshape(-1), np.random.default_rng(1).random(3, np.float32)
    )
