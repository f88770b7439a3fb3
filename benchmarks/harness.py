"""
Measures workloads: their cases by turns, each in a fresh process and an empty folder, over several rounds.

A round measures every case once, in the order of the workload or in the opposite one. A ratio is that of two
cases of one round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from cases import Case, Environment, Figures
from usage import resident_mb

__all__ = ["Absent", "Failed", "Rounds", "environments", "measured"]

FOLDER = Path(__file__).resolve().parent
SAMPLED = 0.05
"""Seconds between two measurements of the memory of processes."""

Rounds: TypeAlias = list[dict[str, Figures]]
"""Figures of each case, by round."""


class Failed(Exception):  # noqa: N818 - the outcome of a case
    """A case could not be measured."""


class Absent(Failed):
    """A case needs an optional environment that does not exist."""


def environments(names: Sequence[str]) -> list[Environment]:
    """The virtual environments of the workloads."""
    cases = [case for name in names for case in import_module(name).CASES.values()]
    found = {case.environment for case in cases if case.environment is not None}
    return sorted(found, key=lambda one: one.name)


def measured(
    name: str, *, quick: bool, rounds: int | None, begins: tuple[str, ...], say: Callable[[str], object]
) -> Rounds:
    """Return the figures of a workload, of the cases whose names start with the prefix."""
    workload = import_module(name)
    cases = {case: one for case, one in workload.CASES.items() if case.startswith(begins)}
    for one in cases.values():
        if one.environment is not None and (absent := one.environment.absent):
            raise Failed(absent) if one.environment.requirements else Absent(absent)
    count = rounds or (1 if quick else workload.ROUNDS)
    seconds = workload.QUICK_SECONDS if quick else workload.SECONDS
    found: Rounds = []
    with tempfile.TemporaryDirectory(prefix="mttp-bench-") as place:
        if hasattr(workload, "prepare"):
            _run([sys.executable, name, "prepare", *(["quick"] if quick else [])], Path(place))
        for number in range(count):
            turns = [case for case, one in cases.items() if number < (one.rounds or count)]
            found.append({})
            for case in turns if number % 2 == 0 else reversed(turns):
                say(f"{name}, round {number + 1} of {count}: {case}")
                found[-1][case] = _fresh(name, case, cases[case], Path(place), seconds)
                _agree(name, found[-1], getattr(workload, "SAME", ()))
    return found


def _agree(name: str, found: dict[str, Figures], figures: Collection[str]) -> None:
    """Raise Failed if the cases did different work."""
    for figure in figures:
        values = {case: one[figure] for case, one in found.items() if figure in one}
        if len(set(values.values())) > 1:
            raise Failed(f"{name}: not the same {figure}: {', '.join(values)}")


def _fresh(name: str, case: str, one: Case, place: Path, seconds: float) -> Figures:
    """Measure a case in a process of its own."""
    python = str(one.environment.python) if one.environment else sys.executable
    with tempfile.TemporaryDirectory(dir=place) as folder:
        figures = _run([python, name, case, str(seconds)], Path(folder))
        if one.check is not None:
            figures |= _run(
                [sys.executable, name, case, "check", json.dumps(figures)], Path(folder), whole=False
            )
    return figures


def _run(command: Sequence[str], folder: Path, *, whole: bool = True) -> Figures:
    """Run `measure.py`; return its output, and the time and memory of the whole process."""
    python, *arguments = command
    output, errors = folder / "output.txt", folder / "errors.txt"
    start = time.perf_counter()
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            [python, str(FOLDER / "measure.py"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=folder,
            env=_variables(),
        )
        memory = _Memory(process.pid)
        memory.start()
        process.wait()
    took = time.perf_counter() - start
    if process.returncode:
        raise Failed(f"{' '.join(arguments[:2])} failed:\n{errors.read_text(errors='replace')}")
    lines = output.read_text().splitlines()
    figures: Figures = json.loads(lines[-1]) if lines else {}
    return figures | ({"process_s": took, "memory_mb": memory.most} if whole else {})


class _Memory(threading.Thread):
    """Measures the memory of a process and its children until it ends."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self._process, self.most = process, 0.0

    def run(self) -> None:
        """Measure repeatedly."""
        while (now := resident_mb(self._process)) > 0:
            self.most = max(self.most, now)
            time.sleep(SAMPLED)


def _variables() -> dict[str, str]:
    """Return the environment variables without those that configure the measured libraries."""
    kept: dict[str, Any] = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MTTP_", "OTEL_", "PYTHONDONTWRITEBYTECODE"))
        and not name.lower().endswith("_proxy")
    }
    return kept | {"PYTHONPATH": str(FOLDER.parent / "src")}
