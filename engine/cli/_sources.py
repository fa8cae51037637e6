"""Options for reading pictures, and the pictures that a command's arguments name."""

from __future__ import annotations

import argparse
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path, PurePath, PurePosixPath
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.cli._output_files import ReservedPaths
from engine.errors import InputError
from engine.files.naming import shown
from engine.files.real_paths import real

if TYPE_CHECKING:
    from engine.cli._output_names import OutputNames
    from engine.sources.card_decoder import CardDecoder
    from engine.sources.item import Item
    from engine.sources.media import Media, MediaKind
    from engine.sources.reader import FrameSelection

WHAT = (
    "pictures, folders, patterns, .txt lists, .tar files, URLs, videos, a camera's number,"
    " or - for names on stdin"
)

_NOTHING_NAMED = "no picture named: the lists are empty"

_log = logging.getLogger("engine")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    reading = parser.add_argument_group("reading")
    reading.add_argument("--recursive", action="store_true", help="look into subfolders, too")
    reading.add_argument(
        "--workers", type=int, default=2, metavar="N", help="how many pictures are read at once (2)"
    )
    reading.add_argument(
        "--stride", type=int, default=1, metavar="N", help="every N-th frame of a video (1)"
    )
    reading.add_argument("--max-frames", type=int, metavar="N", help="at most N frames of a video")
    reading.add_argument(
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="videos to read concurrently, with interleaved frames (1)",
    )
    reading.add_argument(
        "--reconnect",
        type=int,
        metavar="N",
        help="how often to reopen a lost camera or stream (without limit after its first frame)",
    )
    reading.add_argument(
        "--max-pixels", type=int, metavar="N", help="maximum pixels of a picture (89 million)"
    )
    reading.add_argument(
        "--lenient", action="store_true", help="accept truncated JPEGs; the missing part is grey"
    )
    add_decode(reading)
    add_untrusted(reading)
    reading.add_argument(
        "--fail-fast", action="store_true", help="stop at the first picture that cannot be read"
    )


def add_decode(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--decode",
        default="auto",
        metavar="auto|cpu|gpu",
        help="decode JPEGs and videos on the CPU or GPU: see docs/gpu.md (auto: cpu)",
    )


def add_untrusted(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--untrusted",
        action="store_true",
        help="decode pictures in processes with limits on time and memory; refuse videos",
    )


def trust(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the argument of load() only if given: a resumed run on Ray compares arguments."""
    return {"untrusted": True} if arguments.untrusted else {}


def decoding(arguments: argparse.Namespace) -> dict[str, Any]:
    """Do the same for the argument of load() that says where pictures are decoded."""
    return {} if arguments.decode == "auto" else {"decode": arguments.decode}


class NamedMedia(NamedTuple):
    """A source, and the beginning of its output files' names."""

    media: Media
    output: str


@dataclass(frozen=True)
class Feed:
    """The pictures that a run reads; videos and names on stdin have no known `total`."""

    sources: Iterable[NamedMedia]
    selection: FrameSelection
    total: int | None
    names: tuple[str, ...]  # as given by the user, for example lists
    found: tuple[NamedMedia, ...] = ()  # all sources that are known in advance
    is_untrusted: bool = False
    naming: OutputNames | None = None  # if the run writes a file for each picture
    stopped: Event = field(default_factory=Event)  # stops reading cameras and streams
    reserved: ReservedPaths = field(default_factory=ReservedPaths)

    @property
    def known_files(self) -> tuple[str, ...]:
        return *self.names, *(each.media.name for each in self.found)

    def decoded_by(self, card: CardDecoder | None) -> Feed:
        """Return the feed with its videos decoded by a GPU where possible."""
        return replace(self, selection=replace(self.selection, card=card))

    def items(self) -> Iterator[Item]:
        """Yield the pictures of one source after another; adjacent live ones are read together.

        Several videos are, too, if the user asks for it.
        """
        from engine.sources.reader import read_items, read_together

        for kind, sources in groupby(self.sources, self._kind_together):
            if kind is not None:
                together = list(sources)
                media = [each.media for each in together]
                for number, item in read_together(media, self.selection, stopped=self.stopped):
                    yield replace(item, output=together[number].output)
                continue
            for each, output in sources:
                items = read_items(
                    *((each,), self.selection),
                    is_untrusted=self.is_untrusted,
                    stopped=self.stopped,
                )
                for item in items:
                    if not item.output:
                        yield replace(item, output=output)
                        continue
                    name = f"{output}/{item.output}"  # a member of an archive
                    folder = PurePosixPath(name).parent.as_posix()
                    name = self.naming.name_of_member(name, item) if self.naming else name
                    yield replace(item, output=name, folder=folder)

    def _kind_together(self, source: NamedMedia) -> MediaKind | None:
        """Return the kind of a source that is read together with the next ones of that kind.

        Names on stdin are not: a next one may never come.
        """
        kind = source.media.kind
        is_one = bool(self.found) and self.selection.reads_together(kind)
        return kind if is_one and not self.is_untrusted else None


def feed(
    arguments: argparse.Namespace, names: list[str], *, output_folders: Sequence[str] = ()
) -> Feed:
    """Find the pictures; open only folders, lists and records of outputs.

    Pictures that a search finds in one of the `output_folders`, or among the outputs of an earlier
    run, are skipped: they are results.
    """
    from engine.cli import _stdin
    from engine.cli._output_names import common_folder
    from engine.sources import video
    from engine.sources.address_kinds import AddressKinds
    from engine.sources.expand import STDIN, expand
    from engine.sources.media import MediaKind
    from engine.sources.reader import FrameSelection

    if names.count(STDIN) > 1:
        raise InputError("-: standard input can be read only once")
    selection = FrameSelection(
        arguments.stride, arguments.max_frames, arguments.reconnect, at_once=arguments.at_once
    )
    untrusted = arguments.untrusted
    stopped = Event()
    kinds = AddressKinds(names, stopped)
    if STDIN in names:
        reserved = ReservedPaths(stdin=True)
        given = _reserving_lists(_stdin.names(), reserved)
        named_there = expand(names, recursive=arguments.recursive, stdin=given)
        from_stdin = _some(map(kinds.of, named_there))
        known = tuple(each for each in names if each != STDIN)
        naming = _naming(os.path.abspath("."), arguments, output_folders)  # noqa: PTH100
        lazily = naming.assign_lazily(_reserving(from_stdin, reserved, output_folders))
        return Feed(
            *(lazily, selection, None, known, (), untrusted, naming, stopped), reserved=reserved
        )
    found = tuple(map(kinds.of, expand(names, recursive=arguments.recursive)))
    if not found:
        raise InputError(_NOTHING_NAMED)
    goes_on = arguments.resume or arguments.overwrite
    found = _without_results(found, output_folders, goes_on=goes_on)
    found = _without_earlier_results(found)
    videos = [each for each in found if each.has_frames]
    if videos and not untrusted:
        video.require_pyav(videos[0].name)
    naming = _naming(common_folder(found), arguments, output_folders)
    named = naming.assign(found)
    is_counted = not any(each.has_frames or each.kind is MediaKind.ARCHIVE for each in found)
    total = len(found) if is_counted else None
    return Feed(named, selection, total, tuple(names), named, untrusted, naming, stopped)


def _reserving_lists(names: Iterable[str], reserved: ReservedPaths) -> Iterator[str]:
    """Yield names, and reserve the list files among them, whose contents will replace them."""
    from engine.sources.media import without_file_scheme

    for name in names:
        path = without_file_scheme(name)
        if path.lower().endswith(".txt"):
            reserved.add_input(path)
        yield name


def _reserving(
    media: Iterable[Media], reserved: ReservedPaths, output_folders: Sequence[str]
) -> Iterator[Media]:
    """Yield media, except results in `output_folders`, and reserve their files.

    From then on, no output may replace these files.
    """
    results = [(each, real(each), _results_below(each)) for each in output_folders]
    counts: Counter[str] = Counter()
    for each in media:
        where = Path(real(each.name))
        for folder, target, is_result in results:
            if where.is_relative_to(target) and (
                reserved.is_new_output(where)
                or (is_result and is_result(str(PurePath(folder, where.relative_to(target)))))
            ):
                counts[folder] += 1
                break
        else:
            reserved.add_input(each.name)
            reserved.has_source = reserved.has_source or not _is_missing(each)
            yield each
    for folder, count in counts.items():
        _warn_of_outputs(folder, count)


def _some(media: Iterable[Media]) -> Iterator[Media]:
    is_empty = True
    for each in media:
        is_empty = False
        yield each
    if is_empty:
        raise InputError(_NOTHING_NAMED)


def require_one(feed: Feed) -> None:
    """Raise an error if no source exists, before an output appears or is replaced."""
    if feed.found and all(_is_missing(each.media) for each in feed.found):
        media = feed.found[0].media
        problem = media.problem or f"{shown(media.name)}: no such file or folder"
        more = f", and {len(feed.found) - 1} more" if len(feed.found) > 1 else ""
        raise InputError(
            f"{problem.removesuffix('.')}{more}. Nothing is read, so nothing is written"
        )


def require_result(feed: Feed) -> None:
    """Raise an error if a finished run has no result and must not keep its outputs.

    With names on stdin, no file is replaced then. New files stay if a source exists, as for
    arguments: they may hold the reason why it was not read.
    """
    reserved = feed.reserved
    if reserved.has_stdin and (reserved.at_stake or not reserved.has_source):
        raise InputError("-: no picture has a result, so no output is written and none is replaced")


def _is_missing(media: Media) -> bool:
    from engine.sources.media import MediaKind, is_url

    if media.is_live or is_url(media.name):
        return False
    return media.kind is MediaKind.BROKEN or not os.path.exists(media.name)  # noqa: PTH110 - NUL


def _without_results(
    found: tuple[Media, ...], folders: Sequence[str], *, goes_on: bool
) -> tuple[Media, ...]:
    """Exclude what runs wrote into the output folders.

    A run that `goes_on` in a folder whose record was removed excludes everything in it.
    """
    resolved = lru_cache(maxsize=None)(os.path.realpath)
    for folder in folders:
        results = _results_below(folder) or (_any_file if goes_on else None)
        if results is None:
            continue
        target = Path(resolved(folder))

        def is_result(
            media: Media,
            folder: str = folder,
            target: Path = target,
            results: Callable[[str], bool] = results,
        ) -> bool:
            if media.root is None or resolved(media.root) == str(target):  # read on purpose
                return False
            parent, name = os.path.split(media.name)
            where = Path(resolved(parent), name)
            below = where.is_relative_to(target)
            return below and results(str(PurePath(folder, where.relative_to(target))))

        kept = tuple(each for each in found if not is_result(each))
        if len(kept) < len(found):
            _warn_of_outputs(folder, len(found) - len(kept))
        if not kept:
            raise InputError(f"{shown(folder)}: all pictures are in this folder of outputs")
        found = kept
    return found


def _warn_of_outputs(folder: str, count: int) -> None:
    what = "%s: pictures in this folder of outputs are skipped: %d"
    _log.warning(what, shown(folder), count)


def _without_earlier_results(found: tuple[Media, ...]) -> tuple[Media, ...]:
    """Exclude what earlier runs wrote into the searched folders."""
    from engine.outputs.record import files_in, warn_of_results

    results_below = lru_cache(maxsize=None)(_results_below)
    results_in = lru_cache(maxsize=None)(files_in)
    kept = []
    counts: Counter[tuple[str, str]] = Counter()
    for media in found:
        folder, name = os.path.split(media.name)
        folders = _folders_below_root(media)
        results = (each for each in folders if (of := results_below(each)) and of(media.name))
        if (result_folder := next(results, None)) is not None:
            counts[result_folder, "this folder"] += 1
        elif media.root is not None and name in results_in(folder or "."):
            counts[folder or ".", "the files"] += 1
        else:
            kept.append(media)
    for (folder, named), count in counts.items():
        warn_of_results(folder, count, f"Name {named} to read them")
    if not kept:
        raise InputError("all pictures are outputs of other runs. Name them to read them")
    return tuple(kept)


def _folders_below_root(media: Media) -> Iterator[str]:
    """Yield the folders between a picture and the folder that was searched."""
    if media.root is None:
        return
    ends = {"", ".", os.path.dirname(media.root + os.sep)}  # noqa: PTH120 - without slashes
    folder = os.path.dirname(media.name)  # noqa: PTH120 - Path would drop ./ and be slow here
    while folder not in ends and folder != os.path.dirname(folder):  # noqa: PTH120
        yield folder
        folder = os.path.dirname(folder)  # noqa: PTH120


def _results_below(folder: str) -> Callable[[str], bool] | None:
    """Return a test for the outputs of earlier runs in a folder, or None if no run wrote there."""
    from engine.cli._output_names import ending_of
    from engine.outputs.file_names import sources_of_crop, with_other_format
    from engine.outputs.record import FILE, owners_in
    from engine.sources.media import is_url, media_of

    if not os.path.lexists(os.path.join(folder, FILE)):  # noqa: PTH118 - fast
        return None
    owners = [each for each in owners_in(folder) if each.picture]
    there = os.path.realpath(folder)
    # Older records do not say what was written: anything, unless it is labels next to pictures.
    unknown = [each.picture for each in owners if not each.holds]
    if unknown and not any(
        Path(os.path.realpath(each)).is_relative_to(there) for each in unknown if not is_url(each)
    ):
        return _any_file
    pictures: set[str] = set()
    for each in owners:
        if "pictures" in each.holds:
            pictures.update(with_other_format(each.name + ending_of(media_of(each.picture))))
    crops = {each.name for each in owners if "crops" in each.holds}

    def is_result(name: str) -> bool:
        path = PurePath(name).relative_to(folder)
        is_crop = len(path.parts) > 1 and not crops.isdisjoint(
            sources_of_crop(PurePath(*path.parts[1:]))
        )
        return is_crop or path.as_posix() in pictures

    return is_result


def hidden_marks(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return what output records should say about the classes that --blur and --pixelate hide."""
    from engine.outputs.record import HIDDEN

    given = [each for way in ("blur", "pixelate") for each in getattr(arguments, way, None) or ()]
    classes = sorted({each.strip() for option in given for each in option.split(",")})
    return (HIDDEN + ",".join(classes),) if classes else ()


def _any_file(_: str) -> bool:
    return True


def _naming(
    common: str | None, arguments: argparse.Namespace, output_folders: Sequence[str]
) -> OutputNames:
    from engine.cli._output_names import OutputNames

    labels = getattr(arguments, "save_txt", None)
    hidden = hidden_marks(arguments)
    folders: dict[str, tuple[str, ...]] = {}
    by_path: dict[str, str] = {}  # one folder may be given under two names
    for kind, option in (("pictures", "output"), ("crops", "crops"), ("labels", "save_txt")):
        path = getattr(arguments, option, None)
        if path and (path in output_folders or kind == "labels"):
            folder = by_path.setdefault(os.path.realpath(path), path)
            folders[folder] = tuple(sorted((*folders.get(folder, ()), kind)))
            folders[folder] += hidden if kind != "labels" else ()
    return OutputNames(
        common,
        is_flat=getattr(arguments, "flat", False),
        needs_stems=bool(labels or getattr(arguments, "save_mot", None)),
        folders=folders,
        resumes=arguments.resume,
        replaces=arguments.overwrite,
    )
