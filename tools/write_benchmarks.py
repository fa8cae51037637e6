"""Write the pages of figures from the rows that were measured.

    python -m tools.write_benchmarks tools/results/nvidia-h200.json
    python -m tools.write_benchmarks tools/results/amd-epyc.json

The rows of a card, as tools/bench_cuda.py writes them, become docs/benchmarks.md and
docs/speed.png; those of a processor become docs/benchmarks-cpu.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools import draw_speeds
from tools.bench_cuda import PEER_OF

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CARD_PAGE, CPU_PAGE = "benchmarks.md", "benchmarks-cpu.md"
NETWORKS = (
    *("cfg/yolov3-tiny.cfg@416", "cfg/yolov4-tiny.cfg@416", "cfg/yolov3.cfg@416"),
    *("cfg/yolov4.cfg@608", "cfg/yolov7.cfg@640", "cfg/enet-coco.cfg@416", "cfg/resnet50.cfg@256"),
)
WHAT_PRECISIONS_MEAN = {
    "float32": "the default; on Hopper three tf32 products of split operands make one product",
    "tf32": "float32 in memory, multiplications with a 10-bit mantissa",
    "float16": "float16 in memory, sums in float32; boxes are decoded from float32",
    "int8": "[8-bit integers](int8.md) in memory, exact sums, heads in float32; no peer.\n"
    "  A network in which int8 would not pay, such as enet-coco, runs in float16",
}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder to write to")
    arguments = parser.parse_args(words)
    content = arguments.results.read_bytes()
    document = json.loads(content)
    name = arguments.results.name
    if "card" in document:
        (arguments.docs / CARD_PAGE).write_text(card_page(document, name), encoding="utf-8")
        (arguments.docs / draw_speeds.PICTURE.name).write_bytes(draw_speeds.draw(content))
    else:
        (arguments.docs / CPU_PAGE).write_text(cpu_page(document, name), encoding="utf-8")
    return 0


def card_page(document: dict[str, Any], name: str) -> str:
    """Return docs/benchmarks.md, from the document tools/results/`name`."""
    rows = document["rows"]
    precisions = [each for each in PEER_OF if any(row["precision"] == each for row in rows)]
    means = "\n".join(f"- `{each}`: {WHAT_PRECISIONS_MEAN[each]}" for each in precisions)
    notes = document.get("notes", [])
    if missing := not_measured(document):
        notes = [f"Not measured in this run: {missing}.", *notes]
    card, cuda = document["card"], f"driver {document['driver']}, CUDA {document['cuda']}"
    return f"""\
# Benchmarks: {card}

Forward passes: medians of {document["repeats"]} replays of a CUDA graph, without copies to or from
the host, with random weights. "4.1x" means that the engine runs the network 4.1 times in the time
that the peer needs to run it once on the same card. PyTorch also replays a CUDA graph.
[On a CPU](benchmarks-cpu.md) · [where the time goes in your network](profiling.md)

- Engine: commit {document["commit"]}, {document["date"]}, {card}, {cuda}
- Peer: {document["peer"] or "none"}{_about_bounds(document["rows"])}
- Every row, with the peer's milliseconds: [{name}](../tools/results/{name})

![speed relative to the peer, by network, precision and batch](speed.png)

{table(rows, precisions)}

{means}

## Notes on this run

{bullets(notes)}

## Measure again

`--peer` runs a program in turn with the engine, with the same networks, weights and pictures:
`tools/torch_peer.py` is PyTorch, and `torch.compile` for the networks that `--compile` names. The
last command writes this page and its picture from the rows. The exact commands of this run, with
the seconds of tuning (`ENGINE_TUNE`), are in `commands` of [{name}](../tools/results/{name}).

    NETS="{" ".join(NETWORKS[:3])}"
    NETS="$NETS {" ".join(NETWORKS[3:])}"
    python -m tools.bench_cuda $NETS --batches 1,8,64 --precisions float32,float16,int8 \\
        --peer tools/torch_peer.py --compile yolov3-tiny,yolov4-tiny --ahead 3 \\
        --json tools/results/CARD.json
    python -m tools.write_benchmarks tools/results/CARD.json
"""


def table(rows: list[dict[str, Any]], precisions: Iterable[str]) -> str:
    """Return a line for each network and batch, with all precisions next to each other."""
    columns = [
        (
            precision,
            [peer for peer in PEER_OF[precision].values() if measured(rows, precision, peer)],
        )
        for precision in precisions
    ]
    headings, bound = ["network", "batch"], ["roofline"] * has_bounds(rows)
    for precision, peers in columns:
        headings += [f"{precision} ms", "images/s", *bound, *(f"vs {peer}" for peer in peers)]
    cells = {(row["network"], row["batch"], row["precision"]): row for row in rows}
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)]]
    networks = list(dict.fromkeys(row["network"] for row in rows))
    for network, batch in sorted(
        {(row["network"], row["batch"]) for row in rows},
        key=lambda pair: (networks.index(pair[0]), pair[1]),
    ):
        line = [network, str(batch)]
        for precision, peers in columns:
            row = cells.get((network, batch, precision))
            cells_of_row = card_cells(row, peers, with_bound=bool(bound)) if row else []
            line += cells_of_row or ["-"] * (2 + len(bound) + len(peers))
        lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def has_bounds(rows: list[dict[str, Any]]) -> bool:
    return any(row.get("bound_ms") for row in rows)


def _about_bounds(rows: list[dict[str, Any]]) -> str:
    if not has_bounds(rows):
        return ""
    return (
        "\n- roofline: the share of the card's peak that is reached: the sum of the lower"
        "\n  [bounds](profiling.md) of all ops, divided by the measured time"
    )


def card_cells(row: dict[str, Any], peers: Iterable[str], *, with_bound: bool = False) -> list[str]:
    ms = row["engine_ms"]
    bound = row.get("bound_ms")
    share = [f"{bound / ms:.0%}" if bound else "-"] * with_bound
    speed_ups = [
        f"{row['peers_ms'][peer] / ms:.1f}x" if peer in row["peers_ms"] else "-" for peer in peers
    ]
    return [f"{ms:.3f}", f"{row['batch'] * 1e3 / ms:,.0f}", *share, *speed_ups]


def measured(rows: list[dict[str, Any]], precision: str, peer: str) -> bool:
    return any(peer in row["peers_ms"] for row in rows if row["precision"] == precision)


def not_measured(document: dict[str, Any]) -> str:
    """Return the precisions and peers without a row, for readers who would look for them."""
    rows = document["rows"]
    missing = []
    for precision, peers in PEER_OF.items():
        if peers and not any(row["precision"] == precision for row in rows):
            missing.append(precision)
        else:
            missing += [
                f"{peer} in {precision}"
                for peer in peers.values()
                if not measured(rows, precision, peer)
            ]
    return ", ".join(missing)


def cpu_page(document: dict[str, Any], name: str) -> str:
    """Return docs/benchmarks-cpu.md, from the document tools/results/`name`."""
    kernels = list(dict.fromkeys(row["kernels"] for row in document["rows"]))
    tables = "\n\n".join(
        f"### OpenBLAS kernels: {each}\n\n{cpu_table(document, each)}" for each in kernels
    )
    return f"""\
# Benchmarks: CPU

Forward passes with one and two threads. The programs run in turn, one pass each, after a pause of
50 ms; figures are medians of three runs. "2.0x" means that the engine runs the network
twice in the time that the peer needs to run it once; below 1x the peer is faster. Memory is the
peak of each process. [On a GPU](benchmarks.md)

- Machine: {document["machine"]}, {document["date"]}
- NumPy {document["numpy"]}; {document["peers"]}
- Every row: [{name}](../tools/results/{name})

{tables}

OpenBLAS selects its kernels for the processor; `OPENBLAS_CORETYPE=Haswell` selects those without
AVX-512. The first line that the tool prints says which kernels ran.

{bullets(document["notes"])}

## Measure again

    python tools/bench_cpu.py --cfg cfg/codes.cfg --weights weights/codes.weights
"""


def cpu_table(document: dict[str, Any], kernels: str) -> str:
    rows = [row for row in document["rows"] if row["kernels"] == kernels]
    peers = list(dict.fromkeys(peer for row in rows for peer in row["peers"]))
    headings = ["network", "threads", "engine ms", "engine MB"]
    with_memory = [
        peer for peer in peers if any("mb" in row["peers"].get(peer, {}) for row in rows)
    ]
    for peer in peers:
        headings += [f"{peer} ms", "speed-up", *(["MB"] if peer in with_memory else [])]
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)]]
    for network, threads in dict.fromkeys((row["network"], row["threads"]) for row in rows):
        runs = [row for row in rows if (row["network"], row["threads"]) == (network, threads)]
        line = [network, str(threads)]
        line += [f"{middle(runs, 'engine_ms'):.1f}", f"{middle(runs, 'engine_mb'):.0f}"]
        for peer in peers:
            line += cpu_cells(runs, peer, with_memory=peer in with_memory)
        lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cpu_cells(runs: list[dict[str, Any]], peer: str, *, with_memory: bool) -> list[str]:
    found = [row["peers"][peer] for row in runs if peer in row["peers"]]
    if not found:
        return ["-"] * (2 + with_memory)
    ms = middle(found, "ms")
    is_interleaved = all("ratio" in each for each in found)
    speed_up = 1 / middle(found, "ratio") if is_interleaved else ms / middle(runs, "engine_ms")
    cells = [f"{ms:.1f}", f"{speed_up:.2g}x"]
    return [*cells, f"{middle(found, 'mb'):.0f}"] if with_memory else cells


def middle(rows: list[dict[str, Any]], key: str) -> float:
    return statistics.median(row[key] for row in rows)


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
