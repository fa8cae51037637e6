"""A builder of the text of a .cfg, section by section."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MAX_RELATIVE = 9  # layers; references farther back are absolute

Option = int | float | str | Sequence[int] | Sequence[float]
Layers = tuple[int, ...]

NETWORKS: dict[str, Callable[[], CfgBuilder]] = {}


def network(name: str) -> Callable[[Callable[[], CfgBuilder]], Callable[[], CfgBuilder]]:
    """Register the decorated function as the builder of cfg/<name>.cfg."""

    def register(build: Callable[[], CfgBuilder]) -> Callable[[], CfgBuilder]:
        assert name not in NETWORKS, name
        NETWORKS[name] = build
        return build

    return register


class CfgBuilder:
    """The text of a .cfg; methods that add a layer return its index."""

    def __init__(self, title: str, *, size: int, activation: str = "leaky", **options: Option):
        self.activation = activation
        self.last = -1
        self._lines = [
            *(f"# {line}" for line in title.splitlines()),
            "# Training options are omitted; all others that are missing have darknet's defaults.",
        ]
        self._section("net", width=size, height=size, channels=3, **options)

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"

    def heading(self, text: str) -> None:
        """Add a comment with the index of the next layer."""
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
        batch_norm: bool = True,
        groups: int = 1,
        pad: bool = True,
    ) -> int:
        options: dict[str, Option] = {"batch_normalize": 1} if batch_norm else {}
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
        """Add a route to the second half of a layer's channels."""
        return self.layer("route", layers=[self._reference(layer)], groups=2, group_id=1)

    def add(self, layer: int, activation: str = "linear") -> int:
        options = {} if activation == "linear" else {"activation": activation}
        return self.layer("shortcut", **{"from": self._reference(layer)}, **options)

    def scale(self, layer: int) -> int:
        """Multiply each channel of a layer by its value in the last layer."""
        return self.layer("scale_channels", **{"from": self._reference(layer)})

    def upsample(self) -> int:
        return self.layer("upsample", stride=2)

    def _reference(self, layer: int) -> int:
        back = self.last + 1 - layer
        assert 0 < back <= self.last + 1, f"layer {layer} from layer {self.last + 1}"
        return -back if back <= MAX_RELATIVE else layer

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
