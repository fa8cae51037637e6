"""Request and batch metrics in the Prometheus text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Histogram:
    """A Prometheus histogram; a value counts in the first bucket whose bound it does not exceed."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # the last counts values above every bound
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        cumulative = 0
        prefix = f"{labels}," if labels else ""
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            cumulative += count
            yield f'{name}_bucket{{{prefix}le="{bound}"}} {cumulative}'
        suffix = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{suffix} {self._sum}"
        yield f"{name}_count{suffix} {cumulative}"


@dataclass(frozen=True)
class Labelled:
    """A metric with a value for each set of labels."""

    name: str
    kind: str
    help_text: str
    values: Mapping[str, float]


class Metrics:
    """Counters and histograms of a server; used by the event loop only, so without a lock."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._request_seconds: dict[str, Histogram] = {}
        self._batches = Histogram(_SIZES)
        self._run_seconds = Histogram(_SECONDS)
        self._pictures = 0

    def add_request(self, path: str, status: int, seconds: float) -> None:
        self._requests[path, status] += 1
        self._request_seconds.setdefault(path, Histogram(_SECONDS)).add(seconds)

    def add_run(self, pictures: int, seconds: float) -> None:
        self._pictures += pictures
        self._batches.add(pictures)
        self._run_seconds.add(seconds)

    def text(
        self,
        gauges: Mapping[str, tuple[str, float]],
        info: Mapping[str, str],
        labelled: Sequence[Labelled] = (),
    ) -> str:
        """Return all metrics; `gauges` maps a name to its help text and its value.

        `info` holds the labels of the metric engine_info.
        """
        lines = [*self._lines(gauges, info)]
        for each in labelled:
            lines += _head(each.name, each.kind, each.help_text)
            lines += [f"{each.name}{{{key}}} {value}" for key, value in each.values.items()]
        return "".join(f"{line}\n" for line in lines)

    def _lines(
        self, gauges: Mapping[str, tuple[str, float]], info: Mapping[str, str]
    ) -> Iterator[str]:
        yield from _head("engine_requests_total", "counter", "Responses by path and status.")
        for (path, status), count in sorted(self._requests.items()):
            yield f'engine_requests_total{{path="{path}",status="{status}"}} {count}'
        yield from _head(
            "engine_request_seconds",
            "histogram",
            "Time from the head of a request to the end of its response.",
        )
        for path, seconds in sorted(self._request_seconds.items()):
            yield from seconds.lines("engine_request_seconds", f'path="{path}"')
        yield from _head("engine_pictures_total", "counter", "Pictures that the network processed.")
        yield f"engine_pictures_total {self._pictures}"
        yield from _head("engine_batch_pictures", "histogram", "Pictures per batch.")
        yield from self._batches.lines("engine_batch_pictures")
        yield from _head("engine_run_seconds", "histogram", "Time of one batch, including NMS.")
        yield from self._run_seconds.lines("engine_run_seconds")
        for name, (help_text, value) in gauges.items():
            yield from _head(name, "gauge", help_text)
            yield f"{name} {value}"
        yield from _head("engine_info", "gauge", "Version, device and task.")
        yield f"engine_info{{{labels(**info)}}} 1"


def labels(**values: str) -> str:
    """Return labels in the syntax between the braces; class names may be any text."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items())


def _head(name: str, kind: str, help_text: str) -> Iterator[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"


def _escaped(text: str) -> str:
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
