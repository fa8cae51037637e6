"""docs/cluster.md: its commands are valid, and its programs use existing names."""

import ast
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from engine import cli
from engine.cli import _ray
from tests import needs

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^python -m engine ((?:detect|classify) .*)$", PAGE, re.M)
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command):
    name, *words = shlex.split(command)
    arguments = cli.parser_of(name).parse(words)
    assert _ray.is_wanted(arguments)
    _ray._separate_address(arguments)
    assert len(arguments.inputs) == 1
    assert arguments.out


def test_page_has_commands_and_programs():
    assert (len(COMMANDS), len(PROGRAMS)) == (4, 3)


@pytest.mark.parametrize("program", PROGRAMS, ids=["pipeline", "server", "client"])
def test_programs_import_existing_names(program):
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("engine"):
            if node.module == "engine.fleet.detect":
                needs.package("pyarrow")
            module = import_module(node.module)
            for each in node.names:
                assert hasattr(module, each.name) or import_module(f"{node.module}.{each.name}")
