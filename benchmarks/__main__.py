"""
All questions, one after the other, and the table of the goals at the end.

    python benchmarks                  in about 15 minutes; --quick in under two
    python benchmarks --install        the peers' environments, in .bench
    python benchmarks --only NAME      one file or one question; --rounds N, --seconds S, --json FILE
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from harness import run

FILES = (
    "recording",
    "total",
    "encoders",
    "reading",
    "trainer",
    "burst",
    "size",
    "importing",
    "cartpole",
    "scoring",
    "completions",
    "integrations",
)

if __name__ == "__main__":
    folder = Path(__file__).resolve().parent
    run({folder / f"{name}.py": import_module(name).QUESTIONS for name in FILES})
