from __future__ import annotations

from dataclasses import dataclass

import pytest

from engine.darknet import network_limits
from engine.darknet.cfg import parse
from engine.darknet.options import activation_option, keys, option, read_options
from engine.errors import ConfigError


@dataclass(frozen=True)
class Sample:
    count: int = option(3, at_least=-5, at_most=100)
    maybe: int | None = None
    rate: float = 0.5
    flag: bool = False
    word: str = option("one", choices=("one", "two"))
    path: str | None = None
    indices: tuple[int, ...] = option((), key="from")
    numbers: tuple[float, ...] = ()
    short: tuple[int, ...] = option((), ends_at="#")
    activation: str = activation_option("linear")


def sample(line: str) -> Sample:
    (section,) = parse(f"[sample]\n{line}\n", name="net.cfg")
    return Sample(**read_options(Sample, section))


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("count=40#32", "count", 40),
        ("count=+7", "count", 7),
        ("count=-3", "count", -3),
        ("count=007", "count", 7),
        ("count=2.", "count", 2),
        ("count=2.0", "count", 2),
        ("count=" + "0" * 10000 + "1", "count", 1),
        ("maybe=4", "maybe", 4),
        ("rate=.5", "rate", 0.5),
        ("rate=1e-3", "rate", 0.001),
        ("rate=1.05#x", "rate", 1.05),
        ("flag=2", "flag", True),
        ("flag=0", "flag", False),
        ("word=two", "word", "two"),
        ("path=a/b.tree", "path", "a/b.tree"),
        ("from=-1, 61", "indices", (-1, 61)),
        ("from=180###P6", "indices", (180,)),
        ("numbers=10,13,  16.5,30", "numbers", (10, 13, 16.5, 30)),
        ("numbers=10,13,", "numbers", (10, 13)),
        ("short=0,1,2 # small, medium, large", "short", (0, 1, 2)),
        ("activation=normalize_channels", "activation", "normalize_channels"),
    ],
)
def test_a_value_is_read_as_darknet_reads_it(line, name, value):
    assert getattr(sample(line), name) == value


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("count=many", "count: expected an integer, got 'many'"),
        ("count=416.5", "count: expected an integer, got '416.5'"),
        ("count=0x1A0", "count: expected an integer, got '0x1A0'"),
        ("count=NaN", "count: expected an integer, got 'NaN'"),
        ("count=-", "count: expected an integer, got '-'"),
        ("count=101", "count: expected at most 100, got '101'"),
        ("count=-6", "count: expected at least -5, got '-6'"),
        ("count=2147483648", "count: expected an integer of at most 2147483647, got '2147483648'"),
        ("count=1" + "0" * 30, "count: expected an integer of at most 2147483647"),
        ("count=" + "9" * 10**6, "count: expected an integer of at most 2147483647"),
        ("rate=nan", "rate: expected a number, got 'nan'"),
        ("rate=inf", "rate: expected a number, got 'inf'"),
        ("rate=1e999", "rate: expected a number, got '1e999'"),
        ("rate=0.1.2", "rate: expected a number, got '0.1.2'"),
        ("word=tow", "word: unknown 'tow'. Did you mean 'two'?"),
        ("word=x" + "y" * 10**6, "word: unknown 'xyy"),
        ("activation=leeky", "activation: unknown 'leeky'. Did you mean 'leaky'?"),
        ("activation=leaky#x", "activation: unknown 'leaky#x'. Did you mean 'leaky'?"),
        ("from=-1,", "from: expected a list, each an integer, got '-1,'"),
        ("from=,,", "from: expected a list, each an integer, got ',,'"),
        ("numbers=1,x", "numbers: expected a list, each a number, got '1,x'"),
        (
            "from=" + "1," * network_limits.LIST + "1",
            f"expected a list of at most {network_limits.LIST} numbers",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(line, message):
    with pytest.raises(ConfigError) as caught:
        sample(line)
    assert message in str(caught.value)
    assert str(caught.value).startswith("net.cfg:2: [sample] ")
    assert len(str(caught.value)) < 200


def test_missing_options_have_their_default():
    assert sample("") == Sample()


def test_a_required_option_must_be_there():
    @dataclass(frozen=True)
    class Strict:
        layers: int = option()

    (section,) = parse("[route]\n", name="net.cfg")
    with pytest.raises(ConfigError, match=r"^net.cfg:1: \[route\] layers: is missing$"):
        read_options(Strict, section)


def test_keys_are_those_of_the_cfg():
    assert keys(Sample)[:3] == ["count", "maybe", "rate"]
    assert "from" in keys(Sample)
