"""Generate random valid .cfg files, wired like real networks and in unusual ways."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

Shape = tuple[int, int, int]  # channels, height, width

MOST_CHANNELS = 24
MOST_EXTENT = 24

# smooth enough for float32 to stay close to float64; all are valid in [convolutional]
ACTIVATIONS = (
    *("linear", "leaky", "relu", "logistic", "mish", "swish", "tanh", "relu6", "relie", "ramp"),
    *("loggy", "hard_mish", "gelu", "elu", "selu", "plse", "hardtan", "lhtan", "revleaky"),
)
# not normalize_channels: it divides by a sum near zero, which amplifies rounding
ACROSS = ("normalize_channels_softmax", "normalize_channels_softmax_maxval")


@dataclass(frozen=True)
class Dialect:
    """The program that a network is for: its sections, and whether it has few options."""

    parts: tuple[Callable[["Net"], None], ...]
    recurrent_parts: tuple[Callable[["Net"], None], ...]
    ends: tuple[Callable[["Net"], None], ...]
    recurrent_ends: tuple[Callable[["Net"], None], ...]
    activations: tuple[str, ...] = ACTIVATIONS
    is_first: bool = False  # the original darknet, without the additions of its forks
    most_steps: int = 3
    starts: tuple[Callable[["Net"], None], ...] = ()
    inputs: tuple[Sequence[int], Sequence[int]] = range(1, 5), range(4, 25)  # channels, extents
    recurrent: int = 20  # percent of the networks
    channels: tuple[int, ...] = tuple(range(1, 17))  # of a convolution that may have any
    most_channels: int = MOST_CHANNELS


@dataclass
class Net:
    random: Random
    input: Shape
    dialect: Dialect
    time_steps: int = 1
    sections: list[str] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)

    @property
    def text(self) -> str:
        channels, height, width = self.input
        head = f"[net]\nwidth={width}\nheight={height}\nchannels={channels}\n"
        return "\n".join([head, *self.sections])

    @property
    def last(self) -> Shape:
        return self.shapes[-1] if self.shapes else self.input

    def add(self, kind: str, shape: Shape, **options: object) -> None:
        lines = [f"{key.rstrip('_')}={value}" for key, value in options.items()]
        self.sections.append("\n".join([f"[{kind}]", *lines, ""]))
        self.shapes.append(shape)

    def pick(self, *choices):
        return choices[self.random.randrange(len(choices))]

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def count(self, low: int, high: int) -> int:
        return self.random.randrange(low, high + 1)

    def number_of(self, index: int) -> int:
        """Return a layer's number in a .cfg: absolute, or relative to here."""
        return self.pick(index, index - len(self.shapes))

    def earlier(self, fits: Callable[[Shape], bool]) -> list[int]:
        """Return the layers with matching shapes, the latest first."""
        return [each for each in reversed(range(len(self.shapes))) if fits(self.shapes[each])]


def random_net(random: Random, *, size: int = 12, dialect: Dialect | None = None) -> Net:
    dialect = dialect or TODAY
    net = Net(random, (1, 1, 1), dialect)
    channels, extents = dialect.inputs
    net.input = (net.pick(*channels), net.pick(*extents), net.pick(*extents))
    is_recurrent = net.chance(dialect.recurrent)
    net.time_steps = net.count(1, dialect.most_steps) if is_recurrent else 1
    # gives layers that read earlier ones a source
    (net.pick(*dialect.starts) if dialect.starts else convolution)(net)
    for _ in range(net.count(2, size)):
        net.pick(*dialect.parts, *(dialect.recurrent_parts if is_recurrent else ()))(net)
    net.pick(*(dialect.recurrent_ends if is_recurrent else ()), *dialect.ends)(net)
    return net


def _extent(extent: int, size: int, stride: int, padding: int) -> int:
    return (extent + padding - size) // stride + 1


def activation(net: Net, *, across: bool = False) -> str:
    if across and not net.dialect.is_first and net.chance(10):
        return net.pick(*ACROSS)
    usual = ("leaky", "leaky", "relu", "mish", "linear")
    known = net.dialect.activations
    return net.pick(*(each for each in usual if each in known), *known)


# ---------------------------------------------------------------- sections on maps


def convolution(net: Net, *, filters: int = 0, keeps_size: bool = False) -> None:
    channels, height, width = net.last
    groups = net.pick(*(each for each in (1, 1, 1, 2, 3, channels) if channels % each == 0))
    per_group = -(-(filters or net.pick(*net.dialect.channels)) // groups)
    if filters and filters % groups:
        groups, per_group = 1, filters
    options: dict[str, object] = {"filters": groups * per_group}
    size = net.pick(1, 1, 3, 3, 5) if keeps_size else net.pick(1, 1, 2, 3, 3, 3, 4, 5, 7)
    if size % 2 and (keeps_size or net.chance(70)):
        options["pad"] = 1
    elif net.chance(50):
        options["padding"] = net.count(0, size // 2)
    padding = size // 2 if options.get("pad") else int(str(options.get("padding", 0)))
    if min(height, width) + 2 * padding < size:
        size, padding = 1, 0
        options.pop("pad", None)
        options.pop("padding", None)
    options["size"] = size
    is_first = net.dialect.is_first
    if size > 1 and options.get("pad") and not is_first and net.chance(15):
        options["dilation"] = net.count(2, 3)
    across = down = 1
    blur = 0
    if not keeps_size:
        # the original uses a stride of 1 for every size of 1
        across = down = 1 if is_first and size == 1 else net.pick(1, 1, 1, 1, 2, 3)
        options["stride"] = down
        if not is_first and net.chance(10):
            across = net.count(1, 3)
            options["stride_x"] = across
        blur = _blur(
            net,
            options,
            _extent(height, size, 1, 2 * padding),
            _extent(width, size, 1, 2 * padding),
        )
    if groups > 1:
        options["groups"] = groups
    if net.chance(60):
        options["batch_normalize"] = 1
    if net.chance(10) and not (is_first and groups > 1):  # the original would write past their end
        options["flipped"] = 1
    options["activation"] = activation(net, across=True)
    new_height = _extent(height, size, 1 if blur else down, 2 * padding)
    new_width = _extent(width, size, 1 if blur else across, 2 * padding)
    shape = (groups * per_group, new_height, new_width)
    net.add("convolutional", _blurred(shape, blur, (down, across)), **options)


def _blur(net: Net, options: dict[str, object], height: int, width: int) -> int:
    """Sometimes add antialiasing, if the map is large enough for the blur."""
    has_room = not net.dialect.is_first and min(height, width) >= 2
    blur = net.pick(1, 2) if has_room and net.chance(8) else 0
    if blur:
        options["antialiasing"] = blur
    return blur


def _blurred(shape: Shape, blur: int, strides: tuple[int, int]) -> Shape:
    if not blur:
        return shape
    size, padding = (2, 0) if blur == 2 else (3, 2)
    channels, height, width = shape
    return (
        channels,
        _extent(height, size, strides[0], padding),
        _extent(width, size, strides[1], padding),
    )


def shared_convolutions(net: Net) -> None:
    """Two convolutions that share their arrays."""
    channels = net.last[0]
    convolution(net, filters=channels, keeps_size=True)
    donor = len(net.sections) - 1
    lines = net.sections[donor].splitlines()
    if net.chance(50):
        net.add("activation", net.last, activation=activation(net))
    net.sections.append("\n".join([*lines, f"share_index={net.number_of(donor)}", ""]))
    net.shapes.append(net.last)


def pool(net: Net) -> None:
    channels, height, width = net.last
    size = net.pick(2, 2, 2, 3, 5)
    stride = net.pick(1, 2, 2, 3)
    options: dict[str, object] = {"size": size, "stride": stride}
    padding = size - 1
    if net.chance(25):
        padding = net.count(0, size - 1)
        options["padding"] = padding
    kind = "maxpool" if net.dialect.is_first or net.chance(75) else "local_avgpool"
    if min(height, width) + padding < size:
        return
    blur = 0
    if kind == "maxpool":
        blur = _blur(
            net, options, _extent(height, size, 1, padding), _extent(width, size, 1, padding)
        )
    shape = (
        channels,
        _extent(height, size, 1 if blur else stride, padding),
        _extent(width, size, 1 if blur else stride, padding),
    )
    net.add(kind, _blurred(shape, blur, (stride, stride)), **options)


def pool_over_channels(net: Net) -> None:
    channels, height, width = net.last
    outputs = net.count(1, channels)
    net.add("maxpool", (outputs, height, width), maxpool_depth=1, out_channels=outputs, size=1)


def convolution_and_pool(net: Net) -> None:
    convolution(net, keeps_size=True)
    channels, height, width = net.last
    shape = (channels, (height + 1) // 2, (width + 1) // 2)
    net.add("maxpool", shape, size=2, stride=2)


def spatial_pyramid(net: Net) -> None:
    start = len(net.shapes) - 1
    channels, height, width = net.last
    if channels > net.dialect.most_channels // 3:
        return
    ends = []
    for size in (3, 5):
        if ends:
            net.add("route", (channels, height, width), layers=net.number_of(start))
        net.add("maxpool", (channels, height, width), size=size, stride=1)
        ends.append(len(net.shapes) - 1)
    layers = [net.number_of(each) for each in (*reversed(ends), start)]
    net.add("route", (3 * channels, height, width), layers=",".join(map(str, layers)))


def residual(net: Net) -> None:
    start, shape = len(net.shapes) - 1, net.last
    convolution(net, keeps_size=True)
    convolution(net, filters=shape[0], keeps_size=True)
    net.add("shortcut", shape, from_=net.number_of(start), activation=activation(net))


def shortcut(net: Net) -> None:
    """Add any layers of the same height and width, with more or fewer channels, or weighted."""
    sources = net.earlier(lambda shape: shape[1:] == net.last[1:])[1:5]
    if not sources:
        return
    is_first = net.dialect.is_first
    chosen = [net.pick(*sources) for _ in range(1 if is_first else net.count(1, 3))]
    options: dict[str, object] = {"from_": ",".join(str(net.number_of(each)) for each in chosen)}
    if not is_first and net.chance(40):
        options["weights_type"] = net.pick("per_feature", "per_channel")
        options["weights_normalization"] = net.pick("relu", "softmax")
    net.add("shortcut", net.last, **options, activation=activation(net))


def route(net: Net) -> None:
    sources = net.earlier(lambda shape: shape[1:] == net.last[1:])[:6]
    chosen = [net.pick(*sources) for _ in range(net.count(1, 4))]
    groups = 1 if net.dialect.is_first else net.pick(1, 1, 2, 4)
    counts = [net.shapes[each][0] for each in chosen]
    if any(count % groups for count in counts):
        groups = 1
    if sum(counts) // groups > net.dialect.most_channels:
        chosen, counts = chosen[:1], counts[:1]
    options: dict[str, object] = {"layers": ",".join(str(net.number_of(each)) for each in chosen)}
    if groups > 1:
        options |= {"groups": groups, "group_id": net.count(0, groups - 1)}
    net.add("route", (sum(counts) // groups, *net.last[1:]), **options)


def partial_block(net: Net) -> None:
    """A block of yolov4-tiny: half of the channels pass two convolutions; all are concatenated."""
    convolution(net, filters=2 * net.count(1, 4), keeps_size=True)
    channels, height, width = whole = net.last
    start = len(net.shapes) - 1
    net.add("route", (channels // 2, height, width), layers=-1, groups=2, group_id=1)
    for _ in range(2):
        convolution(net, filters=channels // 2, keeps_size=True)
    net.add("route", whole, layers="-1,-2")
    convolution(net, filters=channels, keeps_size=True)
    net.add("route", (2 * channels, height, width), layers=f"{start},-1")


def squeeze_and_excite(net: Net, **options: object) -> None:
    shape = net.last
    start = len(net.shapes) - 1
    net.add("avgpool", (shape[0], 1, 1))
    if net.chance(50):
        net.add("convolutional", (4, 1, 1), filters=4, activation=activation(net))
        net.add("convolutional", (shape[0], 1, 1), filters=shape[0], activation="logistic")
    else:
        net.add("connected", (shape[0], 1, 1), output=shape[0], activation="logistic")
    options = {"from_": net.number_of(start), "activation": activation(net), **options}
    net.add("scale_channels", shape, **options)


def scale_cells(net: Net) -> None:
    shape = net.last
    start = len(net.shapes) - 1
    convolution(net, filters=1, keeps_size=True)
    net.add("scale_channels", shape, from_=net.number_of(start), scale_wh=1)


def scale_by_learned_factors(net: Net) -> None:
    shape = net.last
    start = len(net.shapes) - 1
    net.add("implicit", (shape[0], 1, 1), filters=shape[0])
    net.add("scale_channels", shape, from_=net.number_of(start))


def spatial_attention(net: Net) -> None:
    shape = net.last
    start = len(net.shapes) - 1
    net.add("convolutional", shape, filters=shape[0], batch_normalize=1, activation="logistic")
    net.add("sam", shape, from_=net.number_of(start), activation=activation(net))


def upsample(net: Net) -> None:
    channels, height, width = net.last
    if 2 * max(height, width) <= MOST_EXTENT:
        options = {"scale": net.pick(0.5, 2)} if net.chance(20) else {}
        net.add("upsample", (channels, 2 * height, 2 * width), stride=2, **options)
    elif height % 2 == width % 2 == 0:
        net.add("upsample", (channels, height // 2, width // 2), stride=-2, scale=0.25)


def reorg(net: Net) -> None:
    if net.last[1] % 2 or net.last[2] % 2:
        return
    kind = "reorg" if net.dialect.is_first else net.pick("reorg3d", "reorg")
    if kind == "reorg" or net.last[0] > net.dialect.most_channels // 4:
        convolution(net, filters=4 * net.count(1, 2), keeps_size=True)
    channels, height, width = net.last
    net.add(kind, (4 * channels, height // 2, width // 2), stride=2)


def deconvolution(net: Net) -> None:
    _, height, width = net.last
    if 2 * max(height, width) > MOST_EXTENT:
        return
    size = net.pick(2, 3, 4)
    shape = (net.count(1, 8), 2 * height - 2 + size, 2 * width - 2 + size)
    net.add(
        "deconvolutional",
        shape,
        filters=shape[0],
        size=size,
        stride=2,
        batch_normalize=net.count(0, 1),
        activation=activation(net),
    )


def local(net: Net) -> None:
    if net.dialect.is_first:
        _roomy_convolution(net)
    _, height, width = net.last
    size = min(3, height, width)
    pad = 1 if size == 3 and net.chance(50) else 0
    shape = (
        net.count(1, 4),
        _extent(height, size, 1, 2 * pad),
        _extent(width, size, 1, 2 * pad),
    )
    net.add(
        "local", shape, filters=shape[0], size=size, stride=1, pad=pad, activation=activation(net)
    )


def _roomy_convolution(net: Net) -> None:
    """Add a convolution whose workspace suffices for [local] in the original darknet."""
    filters = net.last[0]
    net.add("convolutional", net.last, filters=filters, size=3, pad=1, activation=activation(net))


def value_by_value(net: Net) -> None:
    kinds = ("activation", "dropout", "logistic")
    kind = net.pick(*kinds) if net.dialect.is_first else net.pick(*kinds, "batchnorm", "empty")
    options = {"activation": activation(net, across=True)} if kind == "activation" else {}
    net.add(kind, net.last, **options)


def length_one(net: Net) -> None:
    """Add [l2norm] after a bias, because the norm of an all-zero pixel is zero."""
    convolution(net, filters=net.count(2, 8), keeps_size=True)
    if net.dialect.is_first:  # its [batchnorm] has no bias
        net.add("logistic", net.last)
    else:
        net.add("batchnorm", net.last)
    net.add("l2norm", net.last)


def local_response(net: Net) -> None:
    size = net.pick(3, 5)
    if size // 2 <= net.last[0]:
        net.add("normalization", net.last, size=size, alpha=0.001, beta=0.75, kappa=1)


def crop(net: Net) -> None:
    channels, height, width = net.last
    shape = (channels, net.count(1, height), net.count(1, width))
    net.add(
        "crop",
        shape,
        crop_height=shape[1],
        crop_width=shape[2],
        noadjust=net.count(0, 1),
    )


def convolutional_recurrence(net: Net) -> None:
    channels = net.count(1, 6)
    net.add(
        "crnn",
        (channels, *net.last[1:]),
        hidden=net.count(1, 4),
        output=channels,
        size=3,
        pad=1,
        batch_normalize=net.count(0, 1),
        activation=net.pick("leaky", "tanh", "logistic"),
    )


# ---------------------------------------------------------------- what cards fuse


def convolutional_lstm(net: Net) -> None:
    channels = net.pick(*net.dialect.channels)
    options: dict[str, object] = {}
    if net.chance(30):
        channels = net.last[0]
        options = {"bottleneck": 1, "shortcut": int(channels % 2 == 0)}
    net.add(
        "conv_lstm",
        (channels, *net.last[1:]),
        output=channels,
        size=3,
        pad=1,
        batch_normalize=net.count(0, 1),
        peephole=net.count(0, 1),
        state_constrain=16,
        **options,
    )


def stem(net: Net) -> None:
    """The first two convolutions of yolov3, if the input suits them."""
    across = net.pick("leaky", "relu", "mish")
    for filters, stride in ((32, 1), (64, 2)):
        _, height, width = net.last
        shape = filters, _extent(height, 3, stride, 2), _extent(width, 3, stride, 2)
        net.add(
            *("convolutional", shape),
            filters=filters,
            size=3,
            stride=stride,
            pad=1,
            batch_normalize=1,
            activation=across,
        )


def bottleneck(net: Net) -> None:
    """A residual block of yolov3, of 64 channels."""
    if net.last[0] != 64:
        net.add("convolutional", (64, *net.last[1:]), filters=64, size=1, activation="leaky")
    for filters, size in ((32, 1), (64, 3)):
        shape = filters, *net.last[1:]
        net.add("convolutional", shape, filters=filters, size=size, pad=1, activation="leaky")
    net.add("shortcut", (64, *net.last[1:]), from_=-3, activation="linear")


def pool_of_a_map_that_is_read_again(net: Net) -> None:
    """A convolution and a pool that halves its map; both are put together in the end."""
    filters, size = net.pick(*net.dialect.channels), net.pick(1, 3)
    channels, height, width = whole = filters, *net.last[1:]
    across = net.pick("leaky", "relu", "linear", "mish")
    net.add("convolutional", whole, filters=filters, size=size, pad=1, activation=across)
    if height % 2 or width % 2 or 2 * channels > net.dialect.most_channels:
        return
    start = len(net.shapes) - 1
    net.add("maxpool", (channels, height // 2, width // 2), size=2, stride=2)
    for _ in range(net.count(0, 1)):
        convolution(net, filters=channels, keeps_size=True)
    net.add("upsample", whole, stride=2)
    net.add("route", (2 * channels, height, width), layers=f"-1,{net.number_of(start)}")


def mobile_block(net: Net) -> None:
    """A depthwise convolution, squeeze-and-excite by either kind of dense layer, and a 1 x 1."""
    channels, height, width = net.last
    stride = net.pick(1, 1, 2)
    shape = channels, _extent(height, 3, stride, 2), _extent(width, 3, stride, 2)
    net.add(
        *("convolutional", shape),
        filters=channels,
        groups=channels,
        size=3,
        stride=stride,
        pad=1,
        batch_normalize=1,
        activation=net.pick("swish", "relu"),
    )
    squeeze_and_excite(net, activation="linear")
    filters = net.pick(*net.dialect.channels)
    net.add(
        "convolutional", (filters, *shape[1:]), filters=filters, size=1, activation=activation(net)
    )


def factors_of_themselves(net: Net) -> None:
    """Squeeze-and-excite of one pixel, whose factors are multiplied with themselves."""
    net.add("avgpool", (net.last[0], 1, 1))
    filters = net.pick(*net.dialect.channels)
    net.add("convolutional", (filters, 1, 1), filters=filters, activation="linear")
    net.add("avgpool", net.last)
    net.add("convolutional", (4, 1, 1), filters=4, activation=activation(net))
    net.add("convolutional", (filters, 1, 1), filters=filters, activation="logistic")
    net.add("sam", net.last, from_=-1, activation=activation(net))


# ---------------------------------------------------------------- how a network ends


def end_with_a_map(net: Net) -> None:
    convolution(net)


def classifier(net: Net) -> None:
    groups = net.pick(1, 1, 2)
    convolution(net, filters=groups * net.count(2, 5))
    net.add("avgpool", (net.last[0], 1, 1))
    options = {"temperature": 2} if net.chance(20) else {}
    net.add("softmax", net.last, groups=groups, **options)


def dense(net: Net) -> None:
    for _ in range(net.count(1, 2)):
        outputs = net.count(1, 12)
        net.add(
            "connected",
            (outputs, 1, 1),
            output=outputs,
            batch_normalize=net.count(0, 1),
            activation=activation(net),
        )


def dense_over_maps_of_two_sizes(net: Net) -> None:
    chosen = [net.pick(*range(len(net.shapes))) for _ in range(2)]
    values = sum(_values(net.shapes[each]) for each in chosen)
    layers = ",".join(str(net.number_of(each)) for each in chosen)
    if net.shapes[chosen[0]][1:] != net.shapes[chosen[1]][1:]:
        net.add("route", (values, 1, 1), layers=layers)
    dense(net)


def recurrence(net: Net) -> None:
    outputs = net.count(1, 8)
    kind = "rnn" if net.dialect.is_first else net.pick("rnn", "gru", "lstm")
    options: dict[str, object] = {"output": outputs, "batch_normalize": net.count(0, 1)}
    if kind == "rnn":
        options["activation"] = net.pick("leaky", "tanh", "logistic")
        options["hidden"] = outputs
        if not net.dialect.is_first:
            options |= {"hidden": net.count(1, 6), "logistic": net.count(0, 2)}
    net.add(kind, (outputs, 1, 1), **options)
    dense(net)


def two_yolo_heads(net: Net) -> None:
    _yolo(net)
    if (sources := net.earlier(lambda shape: True)[2:]) and net.chance(60):
        chosen = net.pick(*sources)
        net.add("route", net.shapes[chosen], layers=net.number_of(chosen))
        convolution(net, keeps_size=True)
        _yolo(net)


def _yolo(net: Net) -> None:
    classes = net.count(1, 3)
    is_first = net.dialect.is_first
    kind, numbers = ("yolo", 5) if is_first or net.chance(67) else ("Gaussian_yolo", 9)
    anchors = net.count(1, 3)
    options: dict[str, object] = {"classes": classes, "num": 3, "anchors": "4,6,8,5,9,12"}
    options["mask"] = ",".join(str(each) for each in range(anchors))
    if not is_first and net.chance(50):
        options["scale_x_y"] = 1.05
    is_squashed = kind == "yolo" and not is_first and net.chance(30)
    if is_squashed:
        options["new_coords"] = 1
    filters = anchors * (numbers + classes)
    shape = (filters, *net.last[1:])
    squash = "logistic" if is_squashed else "linear"
    net.add("convolutional", shape, filters=filters, size=1, activation=squash)
    net.add(kind, shape, **options)


def region_head(net: Net) -> None:
    classes, anchors = net.count(1, 3), net.count(1, 3)
    filters = anchors * (5 + classes)
    shape = (filters, *net.last[1:])
    net.add("convolutional", shape, filters=filters, size=1, activation="linear")
    net.add(
        "region",
        shape,
        classes=classes,
        num=anchors,
        anchors="1,1.5,2,2,2.5,1",
        softmax=net.count(0, 1),
        background=net.count(0, 1),
    )


def _values(shape: Shape) -> int:
    channels, height, width = shape
    return channels * height * width


TODAY = Dialect(
    parts=(
        *(convolution,) * 6,
        *(convolution_and_pool,) * 2,
        *(residual,) * 3,
        *(route,) * 3,
        *(partial_block,) * 2,
        *(shortcut,) * 2,
        *(pool,) * 2,
        *(value_by_value,) * 3,
        *(reorg,) * 2,
        shared_convolutions,
        pool_over_channels,
        spatial_pyramid,
        squeeze_and_excite,
        scale_cells,
        scale_by_learned_factors,
        spatial_attention,
        upsample,
        deconvolution,
        local,
        local_response,
        length_one,
        crop,
    ),
    recurrent_parts=(convolutional_recurrence,) * 4,
    ends=(
        *(end_with_a_map,) * 2,
        *(two_yolo_heads,) * 3,
        classifier,
        dense,
        dense_over_maps_of_two_sizes,
        recurrence,
        region_head,
    ),
    recurrent_ends=(recurrence,) * 8,
)

# Layers that a card fuses or runs in packs of channels, and more recurrent ones. The reference does
# not know all of them.
ON_CARDS = replace(
    TODAY,
    parts=(
        *TODAY.parts,
        *(pool_of_a_map_that_is_read_again,) * 4,
        *(mobile_block,) * 4,
        *(bottleneck,) * 2,
        *(upsample,) * 2,
    ),
    ends=(*TODAY.ends, factors_of_themselves),
    recurrent_parts=(*(convolutional_recurrence,) * 4, *(convolutional_lstm,) * 4),
    starts=(convolution, stem),
    activations=("linear", "leaky", "relu", "mish", "swish", "logistic"),
    inputs=((3, 3, 8, 16), (4, 8, 8, 12, 16, 16, 24, 13)),
    recurrent=40,
    channels=(3, 8, 8, 16, 16, 16, 24, 32, 32, 64),
    most_channels=128,
)

# pjreddie's, of 2018. Its [gru], [lstm] and [batchnorm] have their arrays in another order, its
# [region] its output; [deconvolutional] divides by zero when it loads, and [crnn] gives NaN.
FIRST = Dialect(
    parts=(
        *(convolution,) * 6,
        *(convolution_and_pool,) * 2,
        *(residual,) * 3,
        *(route,) * 3,
        *(shortcut,) * 2,
        *(pool,) * 2,
        *(value_by_value,) * 3,
        *(reorg,) * 2,
        spatial_pyramid,
        upsample,
        local,
        local_response,
        length_one,
        crop,
    ),
    recurrent_parts=(),
    ends=(
        *(end_with_a_map,) * 2,
        *(two_yolo_heads,) * 3,
        classifier,
        dense,
        dense_over_maps_of_two_sizes,
        recurrence,
    ),
    recurrent_ends=(recurrence,) * 4,
    activations=(
        *("linear", "leaky", "relu", "logistic", "tanh", "relie", "ramp", "loggy", "elu", "selu"),
        *("plse", "hardtan", "lhtan"),
    ),
    is_first=True,
    most_steps=1,
)
