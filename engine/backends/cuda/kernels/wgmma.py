"""Writes the C++ wrappers of Hopper's wgmma instruction: one asm line, an operand a register."""

from __future__ import annotations

MODES = {
    0: ("f16.f16", 16, ", 0, 0"),  # k of one instruction; operands as stored: k innermost
    1: ("tf32.tf32", 8, ""),
    2: ("tf32.tf32", 8, ""),
}


def header(columns: int, mode: int) -> str:
    """`wgmma` and, for split floats, `wgmma_registers`, for 64 rows by `columns`."""
    kinds, depth, transposes = MODES[mode]
    count = columns // 2
    name = f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.f32.{kinds}"
    sums = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(sum[{i}])' for i in range(count))
    function = "DEVICE void"
    shared = (
        f"{function} wgmma(float (&sum)[{count}], unsigned long long a, unsigned long long b)\n"
        f'{{\n    asm volatile("{name} {{{sums}}}, %{count}, %{count + 1}, 1, 1, 1{transposes};"\n'
        f'                 : {outputs}\n                 : "l"(a), "l"(b));\n}}\n'
    )
    if mode < 2:
        return shared
    factors = ", ".join(f"%{count + i}" for i in range(4))
    inputs = ", ".join(f'"r"(a[{i}])' for i in range(4))
    from_registers = (
        f"{function} {{}}(float (&sum)[{count}], const unsigned (&a)[4], unsigned long long b)\n"
        f'{{{{\n    asm volatile("{name} {{{{{sums}}}}}, {{{{{factors}}}}}, %{count + 4}, "\n'
        f'                 "{{}}, 1, 1;"\n'
        f'                 : {outputs}\n                 : {inputs}, "l"(b));\n}}}}\n'
    )
    return (
        shared
        + from_registers.format("wgmma_registers", 1)
        + from_registers.format("wgmma_registers_zeroed", 0)
    )
