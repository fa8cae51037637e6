"""A resumable run over any number of pictures, divided into shards."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import PurePath
from typing import Any

import ray

import engine.errors
from engine.errors import EngineError, InputError
from engine.files.naming import shown
from engine.fleet import shard_plan
from engine.fleet.listing import PLAN, RUN, Entry, absolute
from engine.fleet.packed_model import PackedModel
from engine.fleet.rows import Tally, tally
from engine.fleet.shard_files import (
    FORMATS,
    ShardFiles,
    ShardResult,
    ShardWorker,
    is_shard_name,
    shard_name,
)
from engine.fleet.storage import Folder
from engine.fleet.worker_pool import LOCAL, WorkerResources, map_tasks, ray_session
from engine.sources.media import without_file_scheme

__all__ = ["LOCAL", "DetectionRun", "WorkerResources", "ray_session"]

VERSION = 1

_LONGEST_VALUE = 300  # characters in a message
_READER_THREADS = 16  # for finished shards, whose storage may have a high latency


@dataclass(frozen=True)
class DetectionRun:
    """A folder of shards, all of them planned and some of them finished.

    `problems` say why sources could not be listed; these are not planned, so a later run retries
    them.
    """

    files: ShardFiles
    shards: int
    pictures: int
    problems: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        out: str,
        entries: Iterable[Entry],
        parameters: Mapping[str, Any],
        *,
        form: str = "parquet",
        size: int | None = None,
        overwrite: bool = False,
    ) -> DetectionRun:
        """Start a run in a new folder, or resume the one in it.

        `parameters` are the sources, the model and its options; a run is only resumed with the same
        ones. `entries` that its plan lacks become new shards.
        """
        if form not in FORMATS:
            raise InputError(f"format: expected {' or '.join(FORMATS)}, got {form!r}")
        if size is not None and size < 1:
            raise InputError(f"shard: expected 1 or more, got {size}")
        parameters = json.loads(json.dumps({"version": VERSION, "format": form, **parameters}))
        parameters = _from_anywhere(parameters)
        folder = Folder(out)
        existing = folder.names()
        old: Sequence[str] = ()
        if overwrite:
            old = _files_to_delete(folder, existing)
        elif RUN in existing:
            return cls._resume(folder, parameters, entries, size)
        elif existing - {PLAN} or (existing and not shard_plan.is_one(folder)):
            hint = "Name another folder, or pass --overwrite"
            raise InputError(f"{shown(out)}: contains other files. {hint}")
        return cls._planned(folder, parameters, entries, size, old=old)

    @classmethod
    def _planned(
        cls,
        folder: Folder,
        parameters: Mapping[str, Any],
        entries: Iterable[Entry],
        size: int | None,
        plan: shard_plan.ShardPlan | None = None,
        *,
        old: Sequence[str] = (),
    ) -> DetectionRun:
        """Plan the entries, after the shards of an earlier plan; then delete the `old` files."""
        problems: list[str] = []
        listed = _without_problems(entries, problems)
        made = shard_plan.make(listed, size, plan)
        if not made.shards:
            raise InputError(problems[0] if problems else "no picture named: the lists are empty")
        for name in old:
            folder.delete(name)
        if plan is None or made.shards > plan.shards:
            folder.write(PLAN, made.content)
        # Written last, so that a folder with this file has a complete plan.
        counts = {"shards": made.shards, "pictures": made.pictures}
        folder.write(RUN, json.dumps({**parameters, **counts}, indent=1).encode())
        return cls(_files(folder, parameters), made.shards, made.pictures, tuple(problems))

    @classmethod
    def _resume(
        cls,
        folder: Folder,
        parameters: Mapping[str, Any],
        entries: Iterable[Entry],
        size: int | None,
    ) -> DetectionRun:
        earlier = _about(folder)
        if earlier is None:
            raise InputError(
                f"{shown(folder.name)}: {RUN}: is damaged, or of another program."
                " Name another folder"
            )
        del earlier["shards"], earlier["pictures"]
        typed = _relative_sources(earlier)
        earlier = _as_named_now(earlier, parameters)
        for name in sorted({*earlier, *parameters}):
            if earlier.get(name) != parameters.get(name):
                old, new = _difference(earlier.get(name), parameters.get(name))
                raise InputError(
                    f"{shown(folder.name)}: was started with {name} {old}, not {new}."
                    " Name another folder, or pass --overwrite"
                )
        plan = shard_plan.ShardPlan(folder)
        if typed:
            entries = _of_the_same_pictures(entries, plan, folder, typed)
        return cls._planned(folder, parameters, entries, size, plan)

    def finished_shards(self) -> dict[int, Tally]:
        """Return the counts of the existing shards, without damaged ones."""
        existing = self.files.folder.names()
        plan = shard_plan.ShardPlan(self.files.folder)
        found = [each for each in range(self.shards) if self.files.name(each) in existing]
        pictures = [sum(entry.pictures for entry in plan.entries(each)) for each in found]
        with ThreadPoolExecutor(_READER_THREADS) as readers:
            tables = readers.map(self.files.read_if_whole, found, pictures)
            return {
                shard: tally(table)
                for shard, table in zip(found, tables, strict=True)
                if table is not None
            }

    def process(
        self,
        shards: Iterable[int],
        model: PackedModel,
        resources: WorkerResources,
        *,
        workers: int = 2,
    ) -> Iterator[ShardResult]:
        """Process these shards on the connected Ray cluster; yield results as they finish."""
        tasks = [{"shard": each} for each in shards]
        if not tasks:
            return
        model_ref = ray.put(model)  # kept alive until the end for replacement workers
        arguments = {
            "model": model_ref,
            "out": self.files.folder.name,
            "form": self.files.format,
            "task": self.files.task,
            "workers": workers,
        }
        for row in map_tasks(tasks, ShardWorker, arguments, resources):
            result = ShardResult(**row)
            if result.error:
                raise getattr(engine.errors, result.error)(result.message)
            yield result

    def check_complete(self) -> None:
        """Raise if shards are missing from the folder."""
        existing = self.files.folder.names()
        missing = sum(self.files.name(each) not in existing for each in range(self.shards))
        if missing:
            raise EngineError(
                f"{shown(self.files.folder.name)}: {missing} of {self.shards} shards are missing."
                " Name a folder that all machines share"
            )


def _without_problems(entries: Iterable[Entry], problems: list[str]) -> Iterator[Entry]:
    for entry in entries:
        if entry.problem is None:
            yield entry
        else:
            problems.append(entry.problem)


def _difference(*values: Any) -> list[str]:
    """Return two values as text; for lists, which may be long, only the first difference."""
    if all(isinstance(each, list) for each in values):
        counts = [f"({len(each)} in all)" for each in values]
        values = next(pair for pair in zip_longest(*values) if pair[0] != pair[1])
        if None in values:  # one list is a prefix of the other
            return counts
    return [json.dumps(each)[:_LONGEST_VALUE] for each in values]


def _from_anywhere(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Make the sources absolute: relative names depend on the working directory."""
    sources = parameters.get("sources")
    if not isinstance(sources, list):
        return {**parameters}
    return {**parameters, "sources": [absolute(str(each)) for each in sources]}


def _relative_sources(parameters: Mapping[str, Any]) -> list[str]:
    """Return the relative sources, which an earlier version kept without their folder."""
    sources = parameters.get("sources")
    names = map(str, sources) if isinstance(sources, list) else ()
    return [each for each in names if absolute(each) != each and not _is_absolute(each)]


def _is_absolute(source: str) -> bool:
    return PurePath(without_file_scheme(source)).is_absolute()


def _as_named_now(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the earlier parameters, replacing relative sources by matching current names."""
    sources, present = earlier.get("sources"), now.get("sources")
    if not (isinstance(sources, list) and isinstance(present, list)):
        return {**earlier}
    relative = _relative_sources(earlier)

    def named(source: str, name: str | None) -> str:
        if source not in relative:
            return absolute(source)
        end = os.sep + os.path.normpath(source)
        fits = name is not None and (name == absolute(source) or name.endswith(end))
        return str(name) if fits else source

    pairs = zip_longest(map(str, sources), present[: len(sources)])
    return {**earlier, "sources": [named(source, name) for source, name in pairs]}


def _of_the_same_pictures(
    entries: Iterable[Entry], plan: shard_plan.ShardPlan, folder: Folder, typed: Sequence[str]
) -> Iterator[Entry]:
    """Return the entries; refuse them if relative names now refer to other pictures."""
    planned = {each.name for shard in range(plan.shards) for each in plan.entries(shard)}
    listed = []
    remaining = iter(entries)
    for entry in remaining:
        listed.append(entry)
        if entry.name in planned:
            return chain(listed, remaining)
    raise InputError(
        f"{shown(folder.name)}: was started with {shown(typed[0])} in another folder, where it"
        " named other pictures. Run this in that folder, or name its pictures by absolute paths"
    )


def _files(folder: Folder, parameters: Mapping[str, Any]) -> ShardFiles:
    return ShardFiles(folder, parameters["format"], parameters.get("task", "detector"))


def _about(folder: Folder) -> dict[str, Any] | None:
    """Return the content of run.json, or None if it does not belong to a run."""
    try:
        about = json.loads(folder.read(RUN))
    except ValueError:
        return None
    is_of_run = isinstance(about, dict) and {"version", "format", "shards", "pictures"} <= {*about}
    return about if is_of_run and isinstance(about["shards"], int) else None


def _files_to_delete(folder: Folder, existing: Set[str]) -> list[str]:
    """Return the result files of the run in a folder, followed by its run.json.

    As long as run.json exists the old run can be resumed, so no run gets the plan of another one.
    Foreign files with the name of a run's file are refused, because they would be replaced or taken
    for results.
    """
    about = _about(folder) if RUN in existing else None
    shards: set[str] = set()
    if about:
        shards = {shard_name(each, about["format"]) for each in range(about["shards"])} & existing
    of_run = shards | ({RUN, PLAN} if about else set())
    if PLAN in existing and shard_plan.is_one(folder):
        of_run.add(PLAN)
    others = {each for each in existing if each in (RUN, PLAN) or is_shard_name(each)} - of_run
    if others:
        problem = f"contains {shown(min(others))}, which is not from a run of the engine"
        raise InputError(f"{shown(folder.name)}: {problem}. Name another folder")
    return [*sorted(shards), *([RUN] if about else [])]
