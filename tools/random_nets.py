"""Run many random networks through the engine and a second reading of darknet, and compare.

python -m tools.random_nets --count 500 --seed 0 --device cuda:0
"""

import argparse
import sys
from random import Random

from engine.backends import open_device
from engine.errors import EngineError
from tests.property.compare import compare
from tests.property.nets import random_net


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="how many networks")
    parser.add_argument("--seed", type=int, default=0, help="number of the first network")
    parser.add_argument("--size", type=int, default=12, help="parts of a network at most")
    parser.add_argument("--device", default="cpu", help="where the float32 plan runs")
    parser.add_argument("--show", action="store_true", help="print the .cfg of each failure")
    arguments = parser.parse_args()

    failures = 0
    cpu, device = open_device("cpu:1"), open_device(arguments.device)
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        net = random_net(Random(seed), size=arguments.size)
        try:
            found = [str(each) for each in compare(net, seed=seed, cpu=cpu, device=device)]
        except (EngineError, AssertionError) as error:
            found = [f"{type(error).__name__}: {error}"]
        if found:
            failures += 1
            print(f"network {seed}:", *found, sep="\n  ")
            if arguments.show:
                print(net.text)
    device.close()
    cpu.close()
    print(f"{arguments.count - failures} networks agree, {failures} do not")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
