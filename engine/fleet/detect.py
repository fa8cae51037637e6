"""A detector and a classifier as classes for Ray Data's map_batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from engine.fleet import batches, ray_resources, rows

if TYPE_CHECKING:
    import pyarrow as pa


class Detect:
    """A class for map_batches: batches of pictures become tables with the columns of rows.SCHEMA.

    With read=True they have those of rows.CODE_SCHEMA, too.

        data = ray.data.read_binary_files("s3://bucket/pictures", include_paths=True)
        data.map_batches(
            Detect,
            fn_constructor_kwargs={"cfg": "yolov4-tiny", "batch": 8},
            batch_size=64, num_gpus=1, compute=ray.data.ActorPoolStrategy(min_size=1, max_size=8),
        )

    `column` holds the pictures: bytes, arrays, paths or URLs; see batches.COLUMNS for the default.
    All other columns of a batch are kept; one with the name of a result column becomes `input_…`. A
    picture that cannot be read becomes a row with its error. The options are those of
    engine.load(); the device and the threads are those that Ray assigned to the actor.
    """

    _task: ClassVar[str] = "detector"

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
        ray_resources.warn_if_no_cpu_is_left()
        self._detector = ray_resources.load(cfg, weights, names, task=self._task, **options)

    def __call__(self, batch: Any) -> pa.Table:
        pictures = batches.extract_pictures(batch, self._column)
        outcomes = self._detector.stream(
            [picture for _, picture in pictures],
            on_error="yield",
            workers=self._workers,
            expand=False,
        )
        names = [name for name, _ in pictures]
        return batches.with_other_columns(self._table(names, list(outcomes)), batch, self._column)

    def _table(self, names: list[str | None], outcomes: list[Any]) -> pa.Table:
        return rows.table(names, outcomes, has_codes=self._detector.settings.read)


class Classify(Detect):
    """A Detect for classifiers: tables have the columns of rows.SCHEMA_OF_CLASSES."""

    _task = "classifier"

    def _table(self, names: list[str | None], outcomes: list[Any]) -> pa.Table:
        return rows.table_of_classes(names, outcomes)
