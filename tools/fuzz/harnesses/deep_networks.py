"""An untrusted .cfg with 3,000 layers: an input is a short .cfg whose layers are repeated."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from engine.darknet import cfg, graph, weights
from engine.darknet.lower import lower
from engine.passes import PASSES, optimise
from tools.fuzz.networks import is_small, mutate_text

MAX_SECONDS = 30.0

_LAYERS = 3000
_NET = "[net]\nwidth=4\nheight=4\nchannels=2\n"
_CONV = "[convolutional]\nfilters=2\nsize=1\nactivation=leaky\n"
_BODIES = (
    _CONV,
    f"{_CONV}batch_normalize=1\n{_CONV}[shortcut]\nfrom=-2\n",
    f"{_CONV}[route]\nlayers=-1,-2\n{_CONV}",
    f"{_CONV}[route]\nlayers=0,1,2,3,4,5,6,7,8,9\n{_CONV}",
    "[maxpool]\nsize=3\nstride=1\n[upsample]\nstride=1\n[dropout]\n",
    f"{_CONV.replace('filters=2', 'filters=6')}[yolo]\nclasses=1\nnum=1\nanchors=2,2\nmask=0\n",
    "[connected]\noutput=4\n[softmax]\n",
    f"{_CONV}xnor=1\nbin_output=1\n[shortcut]\nfrom=-1,0,1\n",
)


def seeds() -> Iterator[bytes]:
    yield from ((_NET + _CONV + body).encode() for body in _BODIES)


def mutate(data: bytes, random: Random) -> bytes:
    return mutate_text(data.decode("utf-8", "replace"), random).encode()


def run(data: bytes) -> None:
    network = graph.build(cfg.parse(_repeated(data.decode("utf-8", "replace"))))
    if is_small(network, layers=_LAYERS + 1):
        optimise(lower(network, weights.initial(network)), PASSES)


def _repeated(text: str) -> str:
    head, *layers = text.replace("\r", "").split("\n[")
    if not layers:
        return text
    return "\n[".join([head, *(layers * (_LAYERS // len(layers)))])
