"""Tests that tables name, as `path::function`: whether they are there."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}


def missing(names: list[str]) -> list[str]:
    """Those that name no test."""
    parted = (name.partition("::") for name in names)
    return [
        f"{path}::{function}"
        for path, _, function in parted
        if not ((ROOT / path).exists() and function in functions(path))
    ]
