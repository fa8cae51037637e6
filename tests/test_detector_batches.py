"""prepare() and run(): pictures of several callers in one run, each with its own settings."""

from dataclasses import replace

import numpy as np
import pytest

import engine
from engine.darknet import cfg, graph, random_weights, weights
from engine.errors import ImageError, InputError
from engine.inputs import Batch
from tests.small_models import CLASSIFIER, DETECTOR, Model

BACKBONE = DETECTOR[: DETECTOR.index("[yolo]")].replace("filters=16", "filters={}")
REGION = BACKBONE.format(2 * 8) + "[region]\nanchors=1,1, 3,2\nclasses=3\nnum=2\nsoftmax=1\n"
TREE = REGION + "tree=net.tree\n"
GRID = BACKBONE.format(8) + (
    f"[connected]\noutput={9 * (1 + 2 * 5)}\nactivation=linear\n"
    "[detection]\nclasses=1\ncoords=4\nside=3\nnum=2\n"
)
TEXTS = {
    "yolo": DETECTOR,
    "region": REGION,
    "tree": TREE,
    "grid": GRID,
    "classifier": CLASSIFIER,
}
NAMES = {"grid": ["thing"], "classifier": list("uvwxyz")}

CHOICES = [
    {"threshold": 0.3},
    {"threshold": 0.55, "nms": 0.1},
    {"threshold": 0.3, "max_detections": 2},
    {"threshold": 0.55, "nms": 0.1},
    {"threshold": 0.7, "top_k": 2, "classes": (0,)},
]


@pytest.fixture(params=list(TEXTS))
def model(request, tmp_path):
    made = Model(*(tmp_path / f"net.{kind}" for kind in ("cfg", "weights", "names")))
    made.cfg.write_text(TEXTS[request.param])
    made.names.write_text("\n".join(NAMES.get(request.param, ["cat", "dog", "cow"])))
    (tmp_path / "net.tree").write_text("cat -1\ndog -1\npuppy 1\n")
    network = graph.build(cfg.read(made.cfg))
    weights.save(made.weights, network, random_weights.arrays(network))
    return made


def pictures(count):
    random = np.random.default_rng(0)
    sizes = [(64, 48), (30, 70), (101, 33)]
    return [
        random.integers(0, 256, (*sizes[number % 3], 3), dtype=np.uint8) for number in range(count)
    ]


def load(model, **options):
    classes = options.pop("classes", None)
    return engine.load(
        *(model.cfg, model.weights, model.names), device="cpu", classes=classes, **options
    )


def facts(outcome):
    if isinstance(outcome, engine.Result):
        rows = zip(outcome.class_ids, outcome.scores, *outcome.xywhn.T, strict=True)
        return [tuple(float(value) for value in row) for row in rows]
    return [(each.class_id, each.score) for each in outcome]


def test_each_picture_of_a_run_gives_the_same_as_alone(model):
    given = pictures(len(CHOICES))
    with load(model, batch=len(given), threshold=0.0) as detector:
        batch = Batch.joined([detector.prepare(picture) for picture in given])
        settings = [replace(detector.settings, **chosen) for chosen in CHOICES]
        together = detector.run(batch, settings)
        assert detector.run(batch)[0].size == together[0].size
    counts = set()
    for picture, chosen, outcome in zip(given, CHOICES, together, strict=True):
        with load(model, **chosen) as detector:
            np.testing.assert_allclose(facts(outcome), facts(detector(picture)), 1e-4, 1e-5)
        counts.add(len(outcome))
    assert len(counts) > 1  # the settings make a difference


def test_run_needs_settings_for_each_picture(tiny_detector):
    with load(tiny_detector) as detector:
        batch = detector.prepare(pictures(1)[0])
        with pytest.raises(InputError, match="settings: expected 1, got 0"):
            detector.run(batch, [])


def test_a_picture_that_cannot_be_read_is_refused_before_a_run(tiny_detector):
    with load(tiny_detector) as detector:
        with pytest.raises(ImageError, match="expected JPEG"):
            detector.prepare(b"nothing")
        with pytest.raises(ImageError, match="expected at most 99 pixels, got 10 x 10"):
            detector.prepare(np.zeros((10, 10, 3), np.uint8), max_pixels=99)


def test_prepare_refuses_a_network_without_pictures(tiny_recurrent):
    with load(tiny_recurrent) as detector, pytest.raises(InputError, match="Use forward"):
        detector.prepare(np.zeros((5, 5, 3), np.uint8))
