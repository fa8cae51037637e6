"""A run over any number of pictures: dealt into shards, gone on with where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import ray

import engine.errors
from engine.errors import EngineError, InputError
from engine.files.naming import shown
from engine.fleet import plan
from engine.fleet.listing import Entry
from engine.fleet.packed import PackedModel
from engine.fleet.pool import LOCAL, Share, answers, connected
from engine.fleet.rows import Tally
from engine.fleet.shards import FORMATS, Done, Shards, ShardWorker
from engine.fleet.storage import Folder

__all__ = ["LOCAL", "Run", "Share", "connected"]

FILE = "run.json"
VERSION = 1

_READERS = 16  # of finished shards, which may be far away


@dataclass(frozen=True)
class Run:
    """The shards of a folder, all of them planned and some of them finished."""

    files: Shards
    shards: int
    pictures: int

    @classmethod
    def begin(
        cls,
        out: str,
        entries: Iterable[Entry],
        about: Mapping[str, Any],
        *,
        form: str = "parquet",
        size: int | None = None,
        overwrite: bool = False,
    ) -> Run:
        """A run in a new folder; or the one that was begun there, if `about` is what it was then.

        `about` says of which sources, with which model and options; `entries` are only drawn for
        a new run.
        """
        if form not in FORMATS:
            raise InputError(f"format: expected {' or '.join(FORMATS)}, got {form!r}")
        if size is not None and size < 1:
            raise InputError(f"shard: expected 1 or more, got {size}")
        about = json.loads(json.dumps({"version": VERSION, "format": form, **about}))
        folder = Folder(out)
        there = folder.names()
        if overwrite:
            _forget(folder, there)
        elif FILE in there:
            return cls._again(folder, about)
        elif there - {plan.FILE}:
            hint = "Name another, or pass --overwrite"
            raise InputError(f"{shown(out)}: has files of something else. {hint}")
        count, pictures = plan.write(folder, entries, size)
        if not count:
            raise InputError("no picture named: the lists are empty")
        # the last file written: a run without it was not begun
        counts = {"shards": count, "pictures": pictures}
        folder.write(FILE, json.dumps({**about, **counts}, indent=1).encode())
        return cls(Shards(folder, about["format"]), count, pictures)

    @classmethod
    def _again(cls, folder: Folder, about: Mapping[str, Any]) -> Run:
        try:
            then = json.loads(folder.read(FILE))
            counts = int(then.pop("shards")), int(then.pop("pictures"))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{shown(folder.name)}: {FILE}: is damaged") from None
        for name in sorted({*then, *about}):
            if then.get(name) != about.get(name):
                was, now = (json.dumps(each.get(name))[:80] for each in (then, about))
                raise InputError(
                    f"{shown(folder.name)}: was begun with {name} {was}, not {now}."
                    " Name another, or pass --overwrite"
                )
        return cls(Shards(folder, about["format"]), *counts)

    def finished(self) -> dict[int, Tally]:
        """What is in the shards that are there."""
        there = self.files.folder.names()
        numbers = [each for each in range(self.shards) if self.files.name(each) in there]
        with ThreadPoolExecutor(_READERS) as readers:
            return dict(zip(numbers, readers.map(self.files.tally, numbers), strict=True))

    def work(
        self,
        numbers: Iterable[int],
        model: PackedModel,
        share: Share,
        *,
        workers: int = 2,
    ) -> Iterator[Done]:
        """Finish these shards on the Ray that this process is connected to."""
        rows = [{"shard": each} for each in numbers]
        if not rows:
            return
        sent = ray.put(model)  # held until the end: a worker that is replaced asks for it again
        settings = {
            "model": sent,
            "out": self.files.folder.name,
            "form": self.files.format,
            "workers": workers,
        }
        for row in answers(rows, ShardWorker, settings, share):
            done = Done(**row)
            if done.error:
                raise getattr(engine.errors, done.error)(done.message)
            yield done

    def check(self) -> None:
        """Refuse a folder in which shards are missing after all were finished."""
        there = self.files.folder.names()
        missing = sum(self.files.name(each) not in there for each in range(self.shards))
        if missing:
            raise EngineError(
                f"{shown(self.files.folder.name)}: {missing} of {self.shards} shards are not here."
                " Name a folder that all machines share"
            )


def _forget(folder: Folder, there: Iterable[str]) -> None:
    """Delete what a run leaves, its first file first."""
    endings = tuple(f".{form}" for form in FORMATS)
    of_shards = sorted(
        each for each in there if each.startswith("shard-") and each.endswith(endings)
    )
    for name in (FILE, plan.FILE, *of_shards):
        if name in there:
            folder.delete(name)
