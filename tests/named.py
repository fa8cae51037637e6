"""Check that the tests that a table names, as `path::function`, exist."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}


def missing(names: list[str]) -> list[str]:
    """Return the names without a test."""
    parted = (name.partition("::") for name in names)
    return [
        f"{path}::{function}"
        for path, _, function in parted
        if not ((ROOT / path).exists() and function in functions(path))
    ]
