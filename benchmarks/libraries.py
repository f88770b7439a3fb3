"""
Print what recording an episode of another library costs, with files that the libraries wrote.

    python benchmarks/libraries.py

The time is that of mapping the library's record and recording it to a file, in the process of the trainer.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mttp
from mttp.formats import inspect_ai, verifiers, verl
from mttp.formats.json_records import json_lines
from mttp.formats.zip_files import json_member

FILES = Path(__file__).parents[1] / "tests" / "formats" / "files"
EPISODES, ROUNDS = 500, 5


def cases() -> dict[str, Callable[[], mttp.Episode]]:
    """Return a function for each library that maps one record."""
    trace = next(json_lines(FILES / "verifiers.jsonl"))[1]
    log = FILES / "inspect.eval"
    header, sample = json_member(log, "header.json"), json_member(log, "samples/1_epoch_1.json")
    tokens = {"prompt_ids": list(range(512)), "response_ids": list(range(512)), "response_mask": [1] * 512}
    rollout: dict[str, Any] = {**tokens, "response_logprobs": [-0.5] * 512, "reward_score": 1.0, "step": 1}
    return {
        "verifiers": lambda: verifiers.episode(trace),
        "inspect_ai": lambda: inspect_ai.episode(header["eval"], sample),
        "verl, 512 tokens and a prompt of 512": lambda: verl.rollout(rollout),
    }


def measured(mapped: Callable[[], mttp.Episode]) -> tuple[float, int, int]:
    """Return the median of the rounds in microseconds for an episode, its steps and its bytes in the file."""
    times, size = [], 0
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.jsonl"
            with mttp.configure(f"file://{path}") as session:
                began = time.process_time()
                for _ in range(EPISODES):
                    session.record(mapped())
                times.append((time.process_time() - began) / EPISODES * 1e6)
            size = path.stat().st_size // EPISODES
    return statistics.median(times), mapped().step_count, size


if __name__ == "__main__":
    print("| library | steps | microseconds of CPU per episode | bytes per episode |")
    print("| --- | --- | --- | --- |")
    for name, mapped in cases().items():
        cost, steps, size = measured(mapped)
        print(f"| {name} | {steps} | {cost:.0f} | {size:,} |")
