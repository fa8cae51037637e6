"""An untrusted .cfg with 3,000 layers: an input is a short .cfg whose layers are repeated."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from engine.darknet import cfg, graph, weights
from engine.darknet.lower import lower
from engine.passes import PASSES, optimise
from engine.plan.build import Plan
from tools.fuzz.networks import is_small, mutate_text

MAX_SECONDS = 30.0

_LAYERS = 3000
_NET = "[net]\nwidth=4\nheight=4\nchannels=2\n"
_CONV = "[convolutional]\nfilters=2\nsize=1\nactivation=leaky\n"
_BODIES = (  # each reads maps and leaves one, so any can follow any
    _CONV,
    f"{_CONV}batch_normalize=1\n{_CONV}[shortcut]\nfrom=-2\n",
    f"{_CONV}{_CONV}[route]\nlayers=-1,-2\n",
    f"{_CONV}[route]\nlayers=-1,0,0,0,0,0,0,0,0,0\n",
    "[maxpool]\nsize=3\nstride=1\n[upsample]\nstride=1\n[dropout]\n",
    f"{_CONV.replace('filters=2', 'filters=6')}[yolo]\nclasses=1\nnum=1\nanchors=2,2\nmask=0\n",
    f"{_CONV}xnor=1\nbin_output=1\n[shortcut]\nfrom=-1,0\n",
)
_VECTORS = "[connected]\noutput=4\n[softmax]\n"


def seeds() -> Iterator[bytes]:
    yield from ((_NET + _CONV + body).encode() for body in _BODIES)
    yield (_NET + _VECTORS).encode()


def mutate(data: bytes, random: Random) -> bytes:
    """Combine bodies, or change the text, which is mostly refused before a network is built."""
    if random.random() < 0.7:
        bodies = random.choices(_BODIES, k=random.choice((1, 2, 3, 5)))
        return "".join((_NET, _CONV, *bodies)).encode()
    return mutate_text(data.decode("utf-8", "replace"), random).encode()


def run(data: bytes) -> None:
    plan_of(data)


def plan_of(data: bytes, layers: int = _LAYERS) -> Plan | None:
    """Build the network with its layers repeated, and optimise it; None if it is too much work."""
    text = _repeated(data.decode("utf-8", "replace"), layers)
    network = graph.build(cfg.parse(text))
    if not is_small(network, layers=layers + 1):
        return None
    return optimise(lower(network, weights.initial(network)), PASSES)


def _repeated(text: str, count: int) -> str:
    head, *layers = text.replace("\r", "").split("\n[")
    if not layers:
        return text
    return "\n[".join([head, *(layers * max(1, count // len(layers)))])
