from random import Random

import pytest

from tests import needs
from tests.lanes import slow_except
from tests.property import darknet
from tests.property.compare import compare
from tests.property.nets import random_net
from tests.property.reference import LAYERS

COUNT = 60
WITH_DARKNET = 40


@pytest.mark.parametrize("seed", slow_except(range(20), range(COUNT)))
def test_the_engine_agrees_with_a_second_reading_of_darknet(cpu, seed):
    net = random_net(Random(seed))
    assert compare(net, seed=seed, cpu=cpu) == [], net.text


def test_random_networks_use_every_section_of_the_reference():
    networks = [random_net(Random(seed)) for seed in range(COUNT)]
    found = {section[1 : section.index("]")] for net in networks for section in net.sections}
    assert found == set(LAYERS)


def test_networks_of_the_first_darknet_agree_with_it(cpu):
    library = darknet.find_darknet()
    if library is None:
        pytest.skip("darknet is not installed. On Debian: apt install darknet")
    found = dict(darknet.differences(library, range(WITH_DARKNET), cpu=cpu))
    assert {seed: str(each) for seed, each in found.items() if each.is_too_large} == {}
    assert len(found) == WITH_DARKNET


@pytest.mark.slow
def test_the_engine_agrees_on_small_networks_that_shrink(cpu):
    hypothesis = needs.package("hypothesis")

    @hypothesis.settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    @hypothesis.given(random=hypothesis.strategies.randoms(use_true_random=False))
    def agree(random):
        net = random_net(random, size=4)
        assert compare(net, seed=0, cpu=cpu) == [], net.text

    agree()
