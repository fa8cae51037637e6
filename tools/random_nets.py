"""Compare the engine with a reference on many random networks.

python -m tools.random_nets --count 10000                an independent float64 implementation
python -m tools.random_nets --count 1000 --darknet       Debian's darknet, for layers that it has
python -m tools.random_nets --count 500 --device cuda:0  float32 on a card
python -m tools.random_nets --count 5000 --device host   what the lowering makes for three cards in
                                                         three precisions, on the CPU, with g++

Differences from the float64 implementation are relative to the norm of each layer's output; those
from darknet are relative to each value of the last layer, if it is above 1. `--device host` takes
the CPU backend as the definition, on networks with what cards fuse and with more recurrent layers.
"""

import argparse
import sys
from random import Random

from engine.backends import open_device
from engine.backends.base import Device
from engine.errors import EngineError
from tests.property import darknet, on_cards
from tests.property.compare import Difference, measure
from tests.property.nets import random_net

_NETWORKS_PER_PROCESS = 50  # of darknet


class Tally:
    """The numbers of networks that agree and differ, and the largest difference of each kind."""

    def __init__(self, *, show: bool) -> None:
        self.show = show
        self.agree = self.differ = 0
        self.largest: dict[str, tuple[float, int, str]] = {}

    def add(self, seed: int, found: list[Difference], text: str) -> None:
        for each in found:
            known = self.largest.get(each.runs, (-1.0, 0, ""))
            self.largest[each.runs] = max(known, (each.error, seed, each.layer))
        self.add_result(seed, [str(each) for each in found if each.is_too_large], text)

    def add_result(self, seed: int, reasons: list[str], text: str) -> None:
        self.differ += bool(reasons)
        self.agree += not reasons
        if reasons:
            print(f"network {seed}:", *reasons, sep="\n  ", flush=True)
            if self.show:
                print(text)

    def report(self) -> None:
        for runs, (error, seed, layer) in self.largest.items():
            print(f"{runs}: at most {error:.2g} (network {seed}, {layer})")
        print(f"{self.agree} networks agree, {self.differ} do not")


def compare_with_reference(
    seeds: range, size: int, cpu: Device, device: Device, tally: Tally
) -> None:
    for seed in seeds:
        net = random_net(Random(seed), size=size)
        try:
            tally.add(seed, measure(net, seed=seed, cpu=cpu, device=device), net.text)
        except (EngineError, AssertionError) as error:
            tally.add_result(seed, [f"{type(error).__name__}: {error}"], net.text)


def compare_cards_on_host(seeds: range, cpu: Device, tally: Tally) -> None:
    for seed in seeds:
        try:
            tally.add(seed, on_cards.measure(seed, cpu=cpu), on_cards.text_of(seed))
        except (EngineError, AssertionError) as error:
            text = on_cards.text_of(seed)
            tally.add_result(seed, [f"{type(error).__name__}: {error}"], text)


def compare_with_darknet(seeds: range, cpu: Device, tally: Tally) -> None:
    library = darknet.find_darknet()
    if library is None:
        raise SystemExit("darknet: no library. Run: apt-get install darknet")
    for first in range(seeds.start, seeds.stop, _NETWORKS_PER_PROCESS):
        some = range(first, min(first + _NETWORKS_PER_PROCESS, seeds.stop))
        for seed, found in darknet.differences(library, some, cpu=cpu):
            tally.add(seed, [found], darknet.first_net(seed).text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, help="how many networks")
    parser.add_argument("--seed", type=int, default=0, help="number of the first network")
    parser.add_argument("--size", type=int, default=12, help="largest number of blocks")
    parser.add_argument("--device", default="cpu", help="where the float32 plan runs; host")
    parser.add_argument("--darknet", action="store_true", help="compare with darknet itself")
    parser.add_argument("--show", action="store_true", help="print the .cfg of each failure")
    arguments = parser.parse_args()

    seeds = range(arguments.seed, arguments.seed + arguments.count)
    tally = Tally(show=arguments.show)
    cpu = open_device("cpu:1")
    if arguments.darknet:
        compare_with_darknet(seeds, cpu, tally)
    elif arguments.device == "host":
        compare_cards_on_host(seeds, cpu, tally)
    else:
        device = cpu if arguments.device == "cpu" else open_device(arguments.device)
        compare_with_reference(seeds, arguments.size, cpu, device, tally)
        device.close()
    cpu.close()
    tally.report()
    return 1 if tally.differ else 0


if __name__ == "__main__":
    sys.exit(main())
