"""Pictures, of which some are broken, and the expected rows."""

import numpy as np
from PIL import Image

import engine


def plain(model, paths, **options):
    """Return the results of the local API: path → Result or ImageError."""
    with engine.load(model.cfg, model.weights, model.names, device="cpu", **options) as detector:
        return dict(zip(paths, detector.stream(paths, on_error="yield"), strict=True))


def write_pictures(folder, count, *, size=(64, 48), broken=()):
    """Write blots of colour as small files; those numbered in `broken` are truncated."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"{number:04}.png"
        blots = Image.fromarray(random.integers(0, 256, (3, 4, 3), dtype=np.uint8))
        blots.resize(size, Image.Resampling.NEAREST).save(path, compress_level=1)
        if number in broken:
            path.write_bytes(path.read_bytes()[: number % 3 * 30])
    return [str(path) for path in sorted(folder.iterdir())]


def assert_rows_are(rows, expected):
    """Check that the rows equal the expected results bit for bit; return the number of errors."""
    assert sorted(row["path"] for row in rows) == sorted(expected)
    broken = 0
    for row in rows:
        outcome = expected[row["path"]]
        if isinstance(outcome, engine.ImageError):
            broken += 1
            assert row["error"] == str(outcome)
            assert [row[name] for name in ("boxes", "scores", "class_ids", "labels")] == [None] * 4
        else:
            assert row["error"] is None
            assert row["boxes"] == outcome.boxes.tolist()
            assert row["scores"] == outcome.scores.tolist()
            assert row["class_ids"] == outcome.class_ids.tolist()
            assert row["labels"] == outcome.labels
    return broken
