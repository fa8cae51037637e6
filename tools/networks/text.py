"""The text of a network, section by section; a layer is known by its number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

NEAR = 9  # references this far back or less are relative, others name the layer's number

Option = int | float | str | Sequence[int] | Sequence[float]
Layers = tuple[int, ...]

NETWORKS: dict[str, Callable[[], Text]] = {}


def network(name: str) -> Callable[[Callable[[], Text]], Callable[[], Text]]:
    """Make a function known as the author of cfg/<name>.cfg."""

    def register(author: Callable[[], Text]) -> Callable[[], Text]:
        assert name not in NETWORKS, name
        NETWORKS[name] = author
        return author

    return register


class Text:
    """Grows by one section a call; each call of a layer returns the layer's number."""

    def __init__(self, about: str, *, size: int, activation: str = "leaky", **options: Option):
        self.activation = activation
        self.last = -1
        self._lines = [
            *(f"# {line}" for line in about.splitlines()),
            "# Only what inference reads stands here; whatever is left out has darknet's default.",
        ]
        self._section("net", width=size, height=size, channels=3, **options)

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"

    def heading(self, text: str) -> None:
        """A comment that also tells the number of the layer that follows."""
        self._lines += ["", f"# layer {self.last + 1}: {text}"]

    def layer(self, kind: str, **options: Option) -> int:
        self._section(kind, **options)
        self.last += 1
        return self.last

    def conv(
        self,
        filters: int,
        size: int = 1,
        stride: int = 1,
        *,
        activation: str = "",
        normalised: bool = True,
        groups: int = 1,
        pad: bool = True,
    ) -> int:
        options: dict[str, Option] = {"batch_normalize": 1} if normalised else {}
        options["filters"] = filters
        if size > 1:
            options["size"] = size
        if stride > 1:
            options["stride"] = stride
        if pad and size > 1:
            options["pad"] = 1
        if groups > 1:
            options["groups"] = groups
        return self.layer("convolutional", **options, activation=activation or self.activation)

    def maxpool(self, size: int = 2, stride: int = 2, **options: Option) -> int:
        return self.layer("maxpool", size=size, stride=stride, **options)

    def route(self, *layers: int) -> int:
        return self.layer("route", layers=[self._reference(each) for each in layers])

    def half(self, layer: int) -> int:
        """The second half of a layer's channels."""
        return self.layer("route", layers=[self._reference(layer)], groups=2, group_id=1)

    def add(self, layer: int, activation: str = "linear") -> int:
        options = {} if activation == "linear" else {"activation": activation}
        return self.layer("shortcut", **{"from": self._reference(layer)}, **options)

    def scale(self, layer: int) -> int:
        """Multiply each channel of that layer by the value just computed for it."""
        return self.layer("scale_channels", **{"from": self._reference(layer)})

    def upsample(self) -> int:
        return self.layer("upsample", stride=2)

    def _reference(self, layer: int) -> int:
        back = self.last + 1 - layer
        assert 0 < back <= self.last + 1, f"layer {layer} seen from {self.last + 1}"
        return -back if back <= NEAR else layer

    def _section(self, kind: str, **options: Option) -> None:
        self._lines += [
            "",
            f"[{kind}]",
            *(f"{key}={_text(value)}" for key, value in options.items()),
        ]


def _text(value: Option) -> str:
    if isinstance(value, (int, float, str)):
        return f"{value}"
    return ",".join(f"{each}" for each in value)
