"""tools/sanitize_cuda.sh with a fake compute-sanitizer: which results it accepts."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tools.run_op_cases_cuda import FAULTS, faulty_kernel

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tools" / "sanitize_cuda.sh"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("bash") is None, reason="a script for bash on Linux"
)

CASES = """#!/bin/sh
echo "${CASES:-12} cases in 0.1 s"
"""
SANITIZER = """#!/bin/sh
case "$*" in
*--fault*) errors=${FAULTS_FOUND:-1} ;;
*) errors=${ERRORS:-0}; echo "${CASES_WATCHED:-12} cases in 9.9 s" ;;
esac
echo "========= ERROR SUMMARY: $errors errors"
[ "$errors" = 0 ] || exit 9
"""


def sanitize(folder, *arguments, **said):
    for name, text in (("cases", CASES), ("compute-sanitizer", SANITIZER)):
        folder.joinpath(name).write_text(text)
        folder.joinpath(name).chmod(0o755)
    environment = {
        **os.environ,
        **said,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHON": str(folder / "cases"),
    }
    return subprocess.run(
        ["bash", SCRIPT, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_clean_run_covers_every_case_and_finds_each_seeded_fault(tmp_path):
    done = sanitize(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
        assert re.search(rf"{tool} +finds a planted fault: .* 1 errors", done.stdout)
        assert re.search(rf"{tool} +exit 0, .* 12 cases of 12 cases: .* 0 errors", done.stdout)


@pytest.mark.parametrize(
    "said",
    [
        {"FAULTS_FOUND": "0"},  # the tool misses the seeded fault
        {"ERRORS": "3"},
        {"CASES_WATCHED": "11"},
        {"CASES_WATCHED": "no"},
    ],
)
def test_anything_else_is_not_clean(tmp_path, said):
    assert sanitize(tmp_path, "memcheck", **said).returncode == 1


def test_every_tool_has_a_seeded_fault():
    (tools,) = re.findall(r"tools=\(([a-z ]+)\)$", SCRIPT.read_text(), re.MULTILINE)
    assert list(FAULTS) == tools.split()


@pytest.mark.slow
@needs.program("nvcc", "nvidia-cuda-toolkit")
@pytest.mark.parametrize(
    ("tool", "instruction"),
    [
        ("memcheck", r"st\.global"),
        ("racecheck", r"st\.volatile\.shared"),
        ("initcheck", r"ld\.global"),
        ("synccheck", r"bar\.warp\.sync"),
    ],
)
def test_compilers_keep_the_seeded_fault(tool, instruction, tmp_path):
    tmp_path.joinpath("fault.cu").write_text(faulty_kernel(tool))
    command = ["nvcc", "-arch=sm_90", "-ptx", "-o", "fault.ptx", "fault.cu"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert re.search(instruction, tmp_path.joinpath("fault.ptx").read_text())
