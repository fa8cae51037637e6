"""Read labelled pictures from folders and lists that may also hold outputs of runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.evaluate import dataset
from engine.evaluate.ground_truth import GroundTruth
from engine.files.naming import shown
from engine.outputs.record import files_in, warn_of_results
from engine.outputs.written_labels import WrittenLabels
from engine.sources.expand import warn_about_inner_folders


def read(source: str, names: Sequence[str], *, labels: str | None = None) -> GroundTruth:
    """Read a data set; skip annotated pictures, and find the labels that runs have written.

    `labels` is the folder of the labels, if given.
    """
    written = WrittenLabels()
    results = _results_in(source) if Path(source).is_dir() else frozenset()
    truth = dataset.read(source, names, labels=labels, left_out=results, written=written)
    truth.remarks.extend(_found_by_a_network(truth, written))
    return truth


def _results_in(source: str) -> frozenset[str]:
    """Return the files in a folder that are outputs of runs rather than pictures; log them."""
    folder = str(dataset.picture_folder(Path(source)))
    warn_about_inner_folders(folder, "Name one of them, or a list of pictures")
    results = frozenset(files_in(folder))
    if count := sum(Path(folder, each).exists() for each in results):
        warn_of_results(folder, count, "A list of pictures can name them")
    return results


def _found_by_a_network(truth: GroundTruth, written: WrittenLabels) -> Iterator[str]:
    """Yield a warning about labels that were written by a run and never corrected."""
    if found := list(filter(written.is_as_written, truth.label_files)):
        count = f"{len(found)} of {len(truth.label_files)}"
        what = f"detect wrote {count} label files, such as {shown(str(found[0]))}"
        hint = "Unless you checked them, a network is measured by its own results"
        yield f"{what}. {hint}"
