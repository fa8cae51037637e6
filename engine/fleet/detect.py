"""Detect: what Ray Data calls with batches of pictures, a detector in each of its actors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.fleet import assigned, batches, rows

if TYPE_CHECKING:
    import pyarrow as pa


class Detect:
    """For map_batches: pictures in, rows out, of the columns in rows.SCHEMA.

        data = ray.data.read_binary_files("s3://bucket/pictures", include_paths=True)
        data.map_batches(
            Detect,
            fn_constructor_kwargs={"cfg": "yolov4-tiny", "batch": 8},
            batch_size=64, num_gpus=1, compute=ray.data.ActorPoolStrategy(min_size=1, max_size=8),
        )

    `column` holds the pictures: bytes, arrays, paths, addresses; see batches.COLUMNS for the
    usual ones. A picture that cannot be read is a row with its error. The options are those of
    engine.load(), with the device and the threads that Ray gave the actor.
    """

    def __init__(
        self,
        cfg: Any = None,
        weights: Any = None,
        names: Any = None,
        *,
        column: str | None = None,
        workers: int = 2,
        **options: Any,
    ) -> None:
        self._column = column
        self._workers = workers  # threads that read pictures
        self._detector = assigned.load(cfg, weights, names, **options)

    def __call__(self, batch: Any) -> pa.Table:
        pictures = batches.pictures(batch, self._column)
        outcomes = self._detector.stream(
            [wanted for _, wanted in pictures], on_error="yield", workers=self._workers
        )
        return rows.table([name for name, _ in pictures], list(outcomes))
