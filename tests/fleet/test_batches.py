"""Pictures in every form that a Ray batch may have."""

from pathlib import Path

import pytest

from tests import needs

pytest.importorskip("pyarrow", reason=needs.advice("pyarrow"))

import numpy as np
import pyarrow as pa

import engine
from engine.errors import ImageError, InputError
from engine.fleet import batches, lazy_pictures, rows
from engine.fleet.batches import extract_pictures
from engine.fleet.detect import Classify, Detect
from engine.vision.image import read
from tests.fleet.expected import assert_rows_are, plain, write_pictures


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("batches") / "pictures", 9, broken=(2, 4))


@pytest.fixture(scope="module")
def detect(model):
    files = str(model.cfg), str(model.weights), str(model.names)
    return Detect(*files, device="cpu", threshold=0.65, batch=4)


@pytest.fixture(scope="module")
def expected(model, paths):
    found = plain(model, paths, threshold=0.65, batch=4)
    counts = {len(each) for each in found.values() if not isinstance(each, ImageError)}
    assert 0 in counts
    assert len(counts) > 2  # tied boxes depend on the last bit, so exact counts are not checked
    return found


def content(path):
    return Path(path).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("column", ["path", "item", "bytes"])
def test_paths_and_bytes(detect, paths, expected, column):
    values = [content(path) if column == "bytes" else path for path in paths]
    batch = {column: np.array(values, object), "path": np.array(paths, object)}
    assert assert_rows_are(detect(batch).to_pylist(), expected) == 2


def test_arrow_tables_and_structs_as_data_sets_have_them(detect, paths, expected):
    needs.package("ray")
    structs = pa.table({"image": [{"bytes": content(path), "path": path} for path in paths]})
    assert assert_rows_are(detect(structs).to_pylist(), expected) == 2
    frame = pa.table({"bytes": [content(path) for path in paths], "path": paths}).to_pandas()
    assert assert_rows_are(detect(frame).to_pylist(), expected) == 2


def test_arrays(detect, paths, expected):
    good = [path for path in paths if not isinstance(expected[path], ImageError)]
    pixels = [read(path).pixels for path in good]
    for images in (np.stack(pixels), pixels):
        found = detect({"image": images, "path": good}).to_pylist()
        assert_rows_are(found, {path: expected[path] for path in good})


def test_a_batch_without_names_has_rows_without_paths(detect, paths):
    (row,) = detect({"bytes": np.array([content(paths[0])], object)}).to_pylist()
    assert (row["path"], row["error"]) == (None, None)


def test_a_missing_name_costs_no_other_row(detect, paths):
    columns = {"bytes": [content(path) for path in paths[:2]], "path": ["a.jpg", None]}
    found = detect(pa.table(columns).to_pandas())  # in which the missing one is NaN
    assert found["path"].to_pylist() == ["a.jpg", None]
    assert found["error"].null_count == 2


def test_missing_or_invalid_picture_is_a_row_with_an_error(detect):
    values = np.array([None, b"no picture", 7], object)
    rows = detect({"bytes": values, "path": ["a", "b", "c"]}).to_pylist()
    assert [row["error"].split(":")[0] for row in rows] == ["a", "b", "picture"]
    assert rows[0]["error"] == "a: picture: missing"


def test_a_column_may_be_chosen(paths):
    batch = {"bytes": [b"thumbnail"] * len(paths), "where": paths}
    chosen = [name for name, _ in extract_pictures(batch, "where")]
    assert chosen == paths


def test_a_batch_without_pictures_is_refused():
    with pytest.raises(InputError, match=r"column: expected bytes or .* or path or item, got x"):
        extract_pictures({"x": [1]})
    with pytest.raises(InputError, match="column: expected photo, got path, x"):
        extract_pictures({"path": ["a"], "x": [1]}, "photo")


def test_addresses_are_fetched_when_they_are_read():
    assert lazy_pictures.open_lazily("http://camera/a.jpg").name == "http://camera/a.jpg"
    stored = lazy_pictures.open_lazily("file:///nowhere/a.jpg")
    with pytest.raises(ImageError, match=r"file:///nowhere/a\.jpg: picture: cannot be read"):
        read(stored)


def test_a_classifier_is_refused(tiny_classifier):
    with pytest.raises(InputError, match="expected a detector"):
        Detect(tiny_classifier.cfg, tiny_classifier.weights, device="cpu")


def test_errors_of_bytes_name_their_path():
    name, wanted = batches.to_picture(b"nothing", "a.jpg")
    with pytest.raises(engine.ImageError, match=r"a\.jpg: picture: expected JPEG"):
        read(wanted)
    assert name == "a.jpg"


FORMS = {
    "numpy": lambda columns: {name: np.array(each) for name, each in columns.items()},
    "pandas": lambda columns: pa.table(columns).to_pandas(),
    "arrow": pa.table,
}


RAYS_OWN = "ignore:`use_:DeprecationWarning"  # Ray reads its own deprecated settings


@pytest.mark.filterwarnings(RAYS_OWN)
@pytest.mark.parametrize("form", FORMS)
def test_all_other_columns_are_kept(detect, paths, expected, form):
    needs.package("ray")
    numbers = list(range(len(paths)))
    columns = {"path": paths, "camera": numbers, "labels": [f"mine {each}" for each in numbers]}
    found = detect(FORMS[form](columns))
    assert found.schema.names[:6] == rows.SCHEMA.names
    assert found.schema.names[6:] == ["camera", "input_labels"]
    assert found["camera"].to_pylist() == numbers
    assert found["input_labels"].to_pylist() == columns["labels"]
    assert assert_rows_are(found.to_pylist(), expected) == 2


@pytest.mark.filterwarnings(RAYS_OWN)
def test_web_data_sets_have_a_column_for_each_extension(detect, paths, expected):
    needs.package("ray")
    keys = [Path(each).stem for each in paths]
    batch = {
        "__key__": np.array(keys, object),
        "png": np.array([content(path) for path in paths], object),
        "cls": np.arange(len(paths)),
    }
    found = detect(batch)
    assert found["path"].to_pylist() == keys
    assert found["cls"].to_pylist() == list(range(len(paths)))
    counts = [None if isinstance(each, ImageError) else len(each) for each in expected.values()]
    scores = found["scores"].to_pylist()
    assert [None if each is None else len(each) for each in scores] == counts


def test_a_classifier_gives_its_best_classes(tiny_classifier, paths):
    files = str(tiny_classifier.cfg), str(tiny_classifier.weights), str(tiny_classifier.names)
    found = Classify(*files, device="cpu", top_k=2)({"path": np.array(paths, object)})
    assert found.schema == rows.SCHEMA_OF_CLASSES
    with engine.load(*files, device="cpu", top_k=2) as classifier:
        for row, outcome in zip(
            found.to_pylist(), classifier.stream(paths, on_error="yield"), strict=True
        ):
            if isinstance(outcome, ImageError):
                assert (row["error"], row["scores"]) == (str(outcome), None)
            else:
                assert row["labels"] == [each.label for each in outcome]
                assert row["scores"] == [each.score for each in outcome]
    with pytest.raises(InputError, match="expected a detector, got another network"):
        Detect(*files, device="cpu")
