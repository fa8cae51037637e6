"""A detector as a class for Ray Data's map_batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.fleet import batches, ray_resources, rows

if TYPE_CHECKING:
    import pyarrow as pa


class Detect:
    """A class for map_batches: batches of pictures become tables with the columns of rows.SCHEMA.

        data = ray.data.read_binary_files("s3://bucket/pictures", include_paths=True)
        data.map_batches(
            Detect,
            fn_constructor_kwargs={"cfg": "yolov4-tiny", "batch": 8},
            batch_size=64, num_gpus=1, compute=ray.data.ActorPoolStrategy(min_size=1, max_size=8),
        )

    `column` holds the pictures: bytes, arrays, paths or URLs; see batches.COLUMNS for the default.
    A picture that cannot be read becomes a row with its error. The options are those of
    engine.load(); the device and the threads are those that Ray assigned to the actor.
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
        self._workers = workers  # threads that decode pictures
        self._detector = ray_resources.load(cfg, weights, names, **options)

    def __call__(self, batch: Any) -> pa.Table:
        pictures = batches.extract_pictures(batch, self._column)
        outcomes = self._detector.stream(
            [picture for _, picture in pictures],
            on_error="yield",
            workers=self._workers,
            expand=False,
        )
        return rows.table([name for name, _ in pictures], list(outcomes))
