"""
What `mttp.compare` takes: a whole process from its start to the answer, imports included, from the page
cache.

Each side has 10,000 episodes of 8 steps, with texts as observations and actions and one scoring of two
components, as OTLP JSON lines or as the Parquet file that `mttp convert` makes of them. 500 episodes are
different ones; their trace ids and tasks change from copy to copy.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from cases import Case, Figures, Measure

SECONDS, QUICK_SECONDS, ROUNDS = 10_000.0, 500.0, 5
"""Number of episodes on each side."""
SAME = ("effect",)
DISTINCT = 500
"""Number of different episodes."""
SIDES = ("base", "new")


# The files.


def prepare(quick: bool) -> None:
    """Write both sides in both formats."""
    import mttp
    from mttp.reading import parquet

    copies = int(QUICK_SECONDS if quick else SECONDS) // DISTINCT
    for shift, name in enumerate(SIDES):
        path = Path(f"{name}.jsonl")
        _record(path, shift / 10)
        lines = path.read_bytes()
        with path.open("ab") as file:
            for number in range(1, copies):
                file.write(_copied(lines, number))
        parquet.write(f"{name}.parquet", mttp.scan(path, arrays=True))


def _record(path: Path, shift: float) -> None:
    import numpy as np

    import mttp

    random = np.random.default_rng(0)
    with mttp.configure(f"file://{path}"):
        for number in range(DISTINCT):
            with mttp.episode(env="maths", task=f"task-{number}", inputs={"level": number % 5}) as episode:
                for index in range(8):
                    with episode.step() as step:
                        step.observation(f"question {number} {index}")
                        step.action(f"answer {number} {index}")
                        if index == 7:
                            scores = {"correct": float(random.random() < 0.5), "format": 1.0}
                            step.reward(float(random.normal() + shift), components=scores)


def _copied(lines: bytes, number: int) -> bytes:
    """Return the episodes with other trace ids and tasks."""
    end = hashlib.md5(str(number).encode()).hexdigest()[:12].encode()
    other = re.sub(
        rb'("traceId":"|"key":"mttp.episode.id","value":\{"stringValue":")([0-9a-f]{20})[0-9a-f]{12}',
        lambda found: found[1] + found[2] + end,
        lines,
    )
    return other.replace(b'"stringValue":"task-', b'"stringValue":"task-%d-' % number)


# What is measured.


def _compared(suffix: str) -> Measure:
    def measure(_: float) -> Figures:
        import mttp

        found = mttp.compare(*(Path("..") / f"{name}.{suffix}" for name in SIDES))
        return {"effect": round(found["return"].effect or 0.0, 9)}

    return measure


CASES = {
    "mttp, lines": Case(_compared("jsonl")),
    "mttp, Parquet": Case(_compared("parquet")),
}
