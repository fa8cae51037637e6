"""The ONNX Runtime backend: a plan as an ONNX model, on any hardware ONNX Runtime has."""

from __future__ import annotations

from engine.arguments import parse_integer
from engine.backends.ort.device import PROVIDERS, OrtDevice
from engine.errors import InputError, suggest
from engine.files.naming import shown


def open(argument: str) -> OrtDevice:
    """Open ONNX Runtime's CPU with `argument` threads, or the provider of that name."""
    if not argument or argument in PROVIDERS:
        return OrtDevice(argument or "cpu")
    threads = parse_integer(argument)
    if not threads:
        hint = suggest(argument, PROVIDERS)
        known = ", ".join(f"ort:{name}" for name in PROVIDERS)
        raise InputError(
            f"device: expected ort, ort:THREADS, {known}, got 'ort:{shown(argument)}'.{hint}"
        )
    return OrtDevice("cpu", threads)
