"""Writes the C++ wrappers of Hopper's wgmma instruction: one asm line, an operand a register."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    name: str
    depth: int  # k of one instruction
    signs: str = ", 1, 1"  # of the factors
    transposes: str = ""  # operands as stored: k innermost
    sum: str = "float"
    register: str = "f"


MODES = {
    0: Kind("f32.f16.f16", 16, transposes=", 0, 0"),
    1: Kind("f32.tf32.tf32", 8),
    2: Kind("f32.tf32.tf32", 8),
    4: Kind("s32.s8.s8", 32, signs="", sum="int", register="r"),
}


def header(columns: int, mode: int) -> str:
    """`wgmma` and, for split floats, `wgmma_registers`, for 64 rows by `columns`."""
    return wrappers(columns, MODES[mode], from_registers=mode == 2)


def wrappers(columns: int, kind: Kind, *, from_registers: bool = False) -> str:
    count = columns // 2
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k{kind.depth}.{kind.name}"
    sums = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+{kind.register}"(sum[{i}])' for i in range(count))
    function = "DEVICE void"
    shared = (
        f"typedef {kind.sum} Sum;\n"
        f"{function} wgmma(Sum (&sum)[{count}], unsigned long long a, unsigned long long b)\n"
        f'{{\n    asm volatile("{name} {{{sums}}}, %{count}, %{count + 1}, 1'
        f'{kind.signs}{kind.transposes};"\n'
        f'                 : {outputs}\n                 : "l"(a), "l"(b));\n}}\n'
    )
    if not from_registers:
        return shared
    factors = ", ".join(f"%{count + i}" for i in range(4))
    inputs = ", ".join(f'"r"(a[{i}])' for i in range(4))
    registers = (
        f"{function} {{}}(float (&sum)[{count}], const unsigned (&a)[4], unsigned long long b)\n"
        f'{{{{\n    asm volatile("{name} {{{{{sums}}}}}, {{{{{factors}}}}}, %{count + 4}, "\n'
        f'                 "{{}}, 1, 1;"\n'
        f'                 : {outputs}\n                 : {inputs}, "l"(b));\n}}}}\n'
    )
    return (
        shared
        + registers.format("wgmma_registers", 1)
        + registers.format("wgmma_registers_zeroed", 0)
    )
