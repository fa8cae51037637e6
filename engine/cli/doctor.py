"""Check the GPU backend: what is installed, what is missing, and how to install it."""

from __future__ import annotations

import argparse
import platform

from engine.cli._stderr import print_stderr


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verbose", action="store_true", help="list every place searched")


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if a GPU can be used, otherwise the status of a missing device."""
    from importlib import metadata  # slow to import, and --help imports this module

    from engine.backends.cpu import blas
    from engine.backends.cuda import doctor
    from engine.errors import DeviceError
    from engine.version import __version__

    print(f"engine      {__version__}, Python {platform.python_version()}, {platform.platform()}")
    print(f"numpy       {metadata.version('numpy')}, {blas.describe()}")
    findings = doctor.examine()
    for finding in findings:
        print(f"{finding.subject:11} {finding.found or 'missing'}")
        for line in finding.details if arguments.verbose else ():
            print(f"{'':11}   {line}")
    cures = [finding.cure for finding in findings if finding.cure]
    for cure in cures:
        print_stderr(f"missing: {cure}")
    return DeviceError.exit_code if cures else 0
