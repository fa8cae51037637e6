"""Run one harness under Atheris: python -m tools.fuzz.child NAME FOLDER SECONDS."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from random import Random

import atheris

from tools.fuzz.harnesses import Harness
from tools.fuzz.oracle import silence

_STRUCTURED_MUTATIONS = 0.8  # share; the others are libFuzzer's


def main() -> None:
    name, folder, seconds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    atheris.enabled_hooks.add("str")
    with atheris.instrument_imports(include=["engine", "PIL", "xml"]):
        from tools.fuzz.harnesses import check_input, harness, mutator_of

        chosen = harness(name)
    corpus, findings = folder / "corpus" / name, folder / "findings" / name
    for each in (corpus, findings):
        each.mkdir(parents=True, exist_ok=True)
    for seed in chosen.seeds():
        (corpus / sha256(seed).hexdigest()[:20]).write_bytes(seed)
    silence()

    def test_one_input(data: bytes) -> None:
        found = check_input(chosen, data)
        if found is not None:
            label = sha256(found.key.encode()).hexdigest()[:12]
            path = findings / f"{found.kind}-{label}"
            if not path.exists() or path.stat().st_size > len(data):
                path.write_bytes(data)
                path.with_suffix(".why").write_text(f"{found.key}\n{found.text}")

    structured = mutator_of(chosen)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)
        if structured is not None and random.random() < _STRUCTURED_MUTATIONS:
            return structured(data, random)[:max_size]
        return bytes(atheris.Mutate(data, max_size))

    options = {"custom_mutator": mutate} if structured is not None else {}
    arguments = [
        *(sys.argv[0], str(corpus), f"-max_total_time={seconds}", "-print_final_stats=1"),
        *(f"-timeout={_timeout(chosen)}", "-rss_limit_mb=2500", "-max_len=2000000"),
        f"-artifact_prefix={findings}/",
        "-len_control=0",
    ]
    atheris.Setup(arguments, test_one_input, **options)
    atheris.Fuzz()


def _timeout(chosen: Harness) -> int:
    """Return seconds of the clock, many more than the limit of processor time."""
    return max(60, int(20 * getattr(chosen, "MAX_SECONDS", 1)))


if __name__ == "__main__":
    main()
