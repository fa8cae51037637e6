"""C++ wrappers of Hopper's wgmma instruction: one asm statement, one operand per register."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    name: str
    depth: int  # k of one instruction
    signs: str = ", 1, 1"  # imm-scale-a, imm-scale-b
    transposes: str = ""  # imm-trans-a, imm-trans-b: k is innermost
    sum: str = "float"
    register: str = "f"


MODES = {
    0: Kind("f32.f16.f16", 16, transposes=", 0, 0"),
    1: Kind("f32.tf32.tf32", 8),
    2: Kind("f32.tf32.tf32", 8),
    4: Kind("s32.s8.s8", 32, signs="", sum="int", register="r"),
}


def header(columns: int, mode: int) -> str:
    """Return `wgmma` and, for split floats, `wgmma_registers`, for 64 rows by `columns`."""
    kind, count = MODES[mode], columns // 2
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k{kind.depth}.{kind.name}"
    sums = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+{kind.register}"(sum[{i}])' for i in range(count))

    def wrapper(function: str, a: str, operands: str, adds: int, inputs: str) -> str:
        return (
            f"DEVICE void {function}(Sum (&sum)[{count}], {a}, unsigned long long b)\n"
            f'{{\n    asm volatile("{name} {{{sums}}}, {operands}, {adds}'
            f'{kind.signs}{kind.transposes};"\n'
            f'                 : {outputs}\n                 : {inputs}, "l"(b));\n}}\n'
        )

    operands = f"%{count}, %{count + 1}"
    made = wrapper("wgmma", "unsigned long long a", operands, 1, '"l"(a)')
    if mode == 2:
        factors = ", ".join(f"%{count + i}" for i in range(4))
        inputs = ", ".join(f'"r"(a[{i}])' for i in range(4))
        own = "const unsigned (&a)[4]", f"{{{factors}}}, %{count + 4}"
        made += wrapper("wgmma_registers", *own, 1, inputs)
        made += wrapper("wgmma_registers_zeroed", *own, 0, inputs)
    return f"typedef {kind.sum} Sum;\n{made}"
