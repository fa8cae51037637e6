"""Pictures cut into tiles: through every way to call a detector, the same boxes."""

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import engine
from engine.darknet import cfg, graph, random_weights, weights
from engine.errors import ImageError, InputError
from engine.inputs import Prepared
from engine.settings import Settings
from engine.vision import tiles
from tests.small_models import DETECTOR, write_model

PARCEL = Path(__file__).parents[1] / "docs/parcel.jpg"


def values(result):
    return result.xywhn.tolist(), result.scores.tolist(), result.labels


def random_picture(seed, width=300, height=170):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Write a detector whose scores vary widely."""
    made = write_model(tmp_path_factory.mktemp("model"), DETECTOR, ["cat", "dog", "cow"])
    network = graph.build(cfg.read(made.cfg))
    weights.save(made.weights, network, random_weights.arrays(network), overwrite=True)
    return made


def load(model, **options):
    options = {"device": "cpu", "threshold": 0.4, **options}
    return engine.load(model.cfg, model.weights, model.names, **options)


@pytest.fixture(scope="module")
def parcels():
    """Return a picture of 3 x 3 parcels, whose codes are too small in it for the network."""
    with Image.open(PARCEL) as image:
        one = np.asarray(image.convert("RGB"))
    return np.tile(one, (3, 3, 1))


def places_of(result):
    """Return the middles of the best boxes: some codes also have a weaker one of another class."""
    places = []
    for found in sorted(result, key=lambda each: -each.score):
        middle = np.array([found.box.left + found.box.right, found.box.top + found.box.bottom]) / 2
        if all(np.abs(middle - other).max() > 10 for other in places):
            places.append(middle)
    return places


@pytest.mark.slow
def test_codes_of_a_large_picture_are_found_in_its_tiles(parcels):
    with engine.load(device="cpu", batch=3) as detector:
        untiled, tiled = detector(parcels), detector(parcels, tiles="auto")
        alone = detector(PARCEL)
    assert (len(untiled.tiles), len(tiled.tiles)) == (0, 21)
    assert len(alone) == 7
    assert len(untiled) < 40
    assert 60 <= len(places_of(tiled)) <= 68
    assert "tiles" not in untiled.to_dict()
    assert tiled.to_dict()["tiles"] == 21


def test_the_example_of_the_page_finds_what_it_says():
    with engine.load(device="cpu", size=160) as detector:
        assert len(detector(PARCEL, tiles="auto")) == 7
        assert len(detector(PARCEL)) == 4


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_boxes_do_not_depend_on_the_batch(model, batch):
    pictures = [random_picture(seed, 300 + 40 * seed) for seed in range(3)]
    with load(model, tiles=100) as alone:
        expected = [values(alone(each)) for each in pictures]
    assert all(scores for _, scores, _ in expected)
    with load(model, batch=batch, tiles=100) as detector:
        assert [values(each) for each in detector(pictures)] == expected
        assert [values(each) for each in detector.stream(pictures, workers=3)] == expected
        joined = [detector.prepare(each) for each in pictures]
        found = detector.run(type(joined[0]).joined(joined))
        assert [values(each) for each in found] == expected


def test_a_detector_warns_once_of_boxes_that_are_left_out(model, monkeypatch, caplog):
    monkeypatch.setattr(tiles, "MOST_BOXES", 3)
    with load(model, tiles=100) as detector:
        for seed in range(2):
            assert len(detector(random_picture(seed))) <= 3
    (line,) = caplog.messages
    assert re.fullmatch(
        r"picture: only the best 3 of \d+ boxes are merged\. Raise the threshold", line
    )


def test_runs_are_filled_with_tiles_of_several_pictures(model, monkeypatch):
    with load(model, batch=8, tiles=(3, 1)) as detector:
        sizes = []
        submit = detector._program.submit

        def counted(rows, settings):
            sizes.append(len(rows))
            return submit(rows, settings)

        monkeypatch.setattr(detector._program, "submit", counted)
        assert len(detector([random_picture(seed) for seed in range(5)])) == 5
    assert sizes == [8, 8, 4]  # five pictures of 1 + 3 rows


def test_settings_of_a_call_replace_those_of_load(model):
    picture = random_picture(0)
    with load(model) as plain, load(model, tiles="4x3", overlap=0.3) as tiled:
        assert not plain(picture).tiles
        assert len(tiled(picture).tiles) == 13
        assert len(tiled(picture, tiles=(2, 1)).tiles) == 3
        assert values(tiled(picture, tiles="none")) == values(plain(picture))
        same = plain(picture, tiles="4X3", overlap=0.3)
        assert values(same) == values(tiled(picture))
        assert same.tiles == tiled(picture).tiles != tiled(picture, overlap=0.0).tiles
        (lazy,) = plain.stream([picture], tiles="4x3", overlap=0.3)
        assert values(lazy) == values(same)
        few = tiled(picture, max_detections=3)
        assert values(few) == values(tiled(picture)[:3])
        label = few.labels[0]
        assert set(tiled(picture, classes=[label]).labels) == {label}


def test_a_picture_that_is_not_cut_has_the_boxes_that_it_has_without_tiles(model):
    pictures = [random_picture(seed, 60, 50) for seed in range(3)]
    with load(model, batch=2) as plain, load(model, batch=2, tiles="auto") as tiled:
        for expected, found in zip(plain(pictures), tiled(pictures), strict=True):
            assert values(found) == values(expected)
            assert found.tiles == ()


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ((640, 640), "These are columns and rows: for tiles of 640 pixels, give 640 alone"),
        ((640, 480), "These are columns and rows: for tiles of 640 pixels, give 640 alone"),
        (5, "Try a size of 100 pixels"),
    ],
)
def test_too_many_tiles_are_refused_with_what_was_meant(wanted, hint):
    with pytest.raises(InputError, match=rf"for 720 x 720\. {hint}$"):
        tiles.areas_of((720, 720), (416, 416), wanted, 0.2)


def test_broken_pictures_keep_their_places(model):
    sources = [random_picture(0), b"nothing", random_picture(1), random_picture(2, 5000, 4000)]
    with load(model, batch=4, tiles=64) as detector:
        found = list(detector.stream(sources, on_error="yield"))
        assert [isinstance(each, ImageError) for each in found] == [False, True, False, True]
        assert "tiles: expected at most 1024 of a picture, got" in str(found[3])
        with pytest.raises(ImageError, match="tiles: expected at most 1024"):
            detector(sources[3])


@pytest.mark.parametrize(
    ("picture", "overlap"),
    [((9000, 9000), 0.2), ((30_000, 5000), 0.2), ((3000, 170_000), 0.2), ((100_000, 50), 0.8)],
)
def test_too_many_tiles_name_a_size_that_works(picture, overlap):
    with pytest.raises(InputError) as refused:
        tiles.areas_of(picture, (64, 64), "auto", overlap)
    (size,) = re.findall(r"Try a size of (\d+) pixels$", str(refused.value))
    assert len(tiles.areas_of(picture, (64, 64), int(size), overlap)) > 200


@pytest.mark.parametrize("batch", [1, 8])
def test_pictures_before_an_error_of_the_generator_get_their_results(model, batch):
    def sources():
        yield from map(random_picture, range(3))
        raise ConnectionError("the camera is gone")

    stream = load(model, batch=batch).stream(sources(), tiles="2x1")
    found = [values(next(stream)) for _ in range(3)]
    one = load(model, tiles="2x1")
    assert found == [values(one(random_picture(seed))) for seed in range(3)]
    with pytest.raises(ConnectionError, match="the camera is gone"):
        next(stream)


def test_thresholds_of_pictures_in_one_run_differ(model):
    pictures = [random_picture(0), random_picture(1), random_picture(2, 60, 50)]
    chosen = [
        Settings(threshold, tiles=tiles)
        for threshold, tiles in ((0.3, 100), (0.6, None), (0.5, 90))
    ]
    with load(model, batch=4) as detector:
        pairs = list(zip(pictures, chosen, strict=True))
        batches = [detector.prepare(each, settings=settings) for each, settings in pairs]
        found = detector.run(type(batches[0]).joined(batches), chosen)
        expected = [
            detector(each, threshold=settings.threshold, tiles=settings.tiles)
            for each, settings in pairs
        ]
    assert [values(each) for each in found] == [values(each) for each in expected]


def test_tiles_are_views_and_are_not_scaled_ahead(model):
    picture = random_picture(0, 640, 480)
    with load(model, batch=2, tiles=100) as detector:
        batch = detector.prepare(picture)
        (entry,) = batch.pictures
        assert isinstance(entry, Prepared)
        assert len(batch.placed) == len(entry.tiles) == entry.rows > 40
        for placed, (left, top, right, bottom) in zip(batch.placed, entry.tiles, strict=True):
            assert placed.row is None
            assert np.shares_memory(placed.pixels, picture)
            np.testing.assert_array_equal(placed.pixels, picture[top:bottom, left:right])


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_pictures_or_tiles(model):
    def peak(count, tiles):
        pictures = (random_picture(seed % 2, 640, 480) for seed in range(count))
        with load(model, batch=2, tiles=tiles, threshold=0.99) as detector:
            tracemalloc.start()
            for _ in detector.stream(pictures):
                pass
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return most

    few = peak(3, 320)
    assert peak(9, 320) < 1.3 * few
    assert peak(3, 130) < 1.5 * few


def test_only_detectors_without_state_cut_pictures(tiny_classifier, model):
    with pytest.raises(InputError, match="tiles: only for detectors, got a classifier"):
        load(tiny_classifier, tiles="auto")
    with (
        load(tiny_classifier) as classifier,
        pytest.raises(InputError, match="tiles: only for detectors"),
    ):
        next(classifier.stream([random_picture(0)], tiles=64))
    with load(model) as detector, pytest.raises(InputError, match="Did you mean 'auto'"):
        detector(random_picture(0), tiles="aut")


@pytest.mark.parametrize(
    ("given", "tiles"),
    [
        (None, None),
        ("none", None),
        ("auto", "auto"),
        ("640", 640),
        (np.int64(640), 640),
        ("4x3", (4, 3)),
        ("4X3", (4, 3)),
        ([4, 3], (4, 3)),
    ],
)
def test_tiles_have_several_spellings(given, tiles):
    assert Settings(tiles=given).tiles == tiles


@pytest.mark.parametrize("given", ["", "0", "4x", "4x3x2", "-5", "x", 0, 1.5, True, (1, 2, 3), {}])
def test_other_tiles_are_refused(given):
    with pytest.raises(InputError, match=r"tiles: expected auto, none, SIZE in pixels or COL.*got"):
        Settings(tiles=given)


@pytest.mark.parametrize("given", [-0.1, 0.81, 1, "much"])
def test_other_overlaps_are_refused(given):
    with pytest.raises(InputError, match="overlap: expected"):
        Settings(overlap=given)


def test_the_grid_is_drawn_only_if_asked(model):
    picture = np.zeros((170, 300, 3), np.uint8)
    with load(model, tiles=(3, 1), threshold=1.0) as detector:
        result = detector(picture)
    assert not np.asarray(result.plot(picture)).any()
    drawn = np.asarray(result.plot(picture, show_tiles=True)).any(axis=2)
    lines = {0, 299} | {edge for area in result.tiles[1:] for edge in (area[0], area[2] - 1)}
    assert set(np.flatnonzero(drawn[80]).tolist()) == lines
