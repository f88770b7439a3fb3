"""
How benchmarks measure: cases by turns, each time in a fresh process, by the CPU time of it and its children.

A benchmark is a script that hands its questions to `main`, which calls the script again for each measurement.
Before anything is timed, all cases of a question must have the same output.
The reference is measured again under the name of `control`: how far apart the two are says how far to trust
the rest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["Case", "Environment", "Question", "main"]

ROOT = Path(__file__).parent
ENVIRONMENTS = ROOT.parent / ".bench"
CONTROL = "control"
BASELINES_AGREE = 0.15
"""A control further from its reference than this is marked: the machine was too busy to tell."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment of a peer's own, so that its pins are not ours."""

    name: str
    requirements: tuple[str, ...]
    """What is installed there."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return ENVIRONMENTS / self.name / "bin" / "python"

    def install(self) -> None:
        """Make it, unless it is there."""
        if not self.python.exists():
            venv.create(ENVIRONMENTS / self.name, with_pip=True)
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        if subprocess.run([*command, *self.requirements], check=False).returncode:
            sys.exit(f"{self.name} did not install: {', '.join(self.requirements)}")


@dataclass(frozen=True, slots=True)
class Case:
    """One way to do the work."""

    prepare: Callable[[], Callable[[], Any]]
    """Gets everything ready, untimed; what it returns is timed."""
    told: Callable[[Any], bytes]
    """What the work's result means, to be compared with the other cases' results."""
    environment: Environment | None = None
    """Where it runs, if not here."""


@dataclass(frozen=True, slots=True)
class Question:
    """Cases that are compared."""

    text: str
    """What is asked, a line."""
    unit: str
    """What the times are for, e.g. `span`."""
    units: int
    """How many of these one piece of work has."""
    cases: Mapping[str, Case]
    """By name; the first one is the reference."""
    goals: Mapping[str, tuple[str, float]]
    """By name, a case that should take as many times what ours takes, and how many."""


def main(questions: Mapping[str, Question], ours: str = "mttp") -> None:
    """Answer the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7, help="fresh processes for each case")
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU seconds to measure in each of them")
    parser.add_argument("--only", choices=questions, help="one question")
    parser.add_argument("--json", type=Path, help="write all figures there, too")
    parser.add_argument("--install", action="store_true", help="only make the peers' environments")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = {options.only: questions[options.only]} if options.only else questions
    if options.measure:
        question, case = options.measure
        print(json.dumps(_measured(questions[question], case, options.seconds)))
        return
    peers = {case.environment for one in chosen.values() for case in one.cases.values() if case.environment}
    for environment in sorted(peers, key=lambda one: one.name):
        if options.install:
            environment.install()
        elif not environment.python.exists():
            sys.exit(f"{environment.name} is not installed; run {sys.argv[0]} --install")
    if options.install:
        return
    found = {}
    for name, one in chosen.items():
        found[name] = _answered(name, one, options.rounds, options.seconds)
        print(_table(one, found[name], ours), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"machine": _machine(), "questions": found}, indent=2) + "\n")


# In the process of one measurement.


def _measured(question: Question, name: str, seconds: float) -> dict[str, Any]:
    case = question.cases[name]
    work = case.prepare()
    told = hashlib.sha256(case.told(work())).hexdigest()
    runs, start, used = 0, time.perf_counter(), -_cpu()
    while used + _cpu() < seconds or not runs:
        work()
        runs += 1
    used += _cpu()
    each = 1e6 / runs / question.units
    wall = (time.perf_counter() - start) * each
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"told": told, "cpu_us": used * each, "wall_us": wall, "peak_mb": peak}


def _cpu() -> float:
    """Seconds of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


# In the process that asks.


def _answered(name: str, question: Question, rounds: int, seconds: float) -> dict[str, Any]:
    """The figures of each case, round by round."""
    reference = next(iter(question.cases))
    turns = [*question.cases, CONTROL]
    figures: dict[str, list[dict[str, Any]]] = {case: [] for case in turns}
    for number in range(rounds):
        for turn in turns if number % 2 == 0 else reversed(turns):
            case = reference if turn == CONTROL else turn
            figures[turn].append(_fresh(name, case, question.cases[case], seconds))
            _agree(question, figures)
    return {case: _summed(rows) for case, rows in figures.items()}


def _fresh(question: str, name: str, case: Case, seconds: float) -> dict[str, Any]:
    python = str(case.environment.python) if case.environment else sys.executable
    command = [python, sys.argv[0], "--seconds", str(seconds), "--measure", question, name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _agree(question: Question, figures: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    told = {row["told"]: case for case, rows in figures.items() for row in rows}
    if len(told) > 1:
        sys.exit(f"{question.text}: not the same output: {', '.join(told.values())}")


def _summed(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    times = [row["cpu_us"] for row in rows]
    middle = median(times)
    return {
        "cpu_us": {"median": middle, "min": min(times), "spread": (max(times) - min(times)) / middle},
        "wall_us": {"median": median(row["wall_us"] for row in rows)},
        "peak_mb": max(row["peak_mb"] for row in rows),
        "rounds": times,
    }


def _table(question: Question, found: Mapping[str, Any], ours: str) -> str:
    lines = [f"\n{question.text}, CPU µs per {question.unit}"]
    lines.append(
        f"{'':24} {'median':>9} {'min':>9} {'spread':>7} {'times ours':>10} {'by min':>7} {'peak MB':>8}"
    )
    own = found[ours]["cpu_us"]
    for case, figures in found.items():
        cpu = figures["cpu_us"]
        ratios = f"{cpu['median'] / own['median']:10.2f} {cpu['min'] / own['min']:7.2f}"
        row = f"{case:24} {cpu['median']:9.2f} {cpu['min']:9.2f} {cpu['spread']:7.0%} {ratios}"
        lines.append(f"{row} {figures['peak_mb']:8.0f}")
    for goal, (case, times) in question.goals.items():
        reached = found[case]["cpu_us"]["median"] / own["median"]
        lines.append(f"goal {goal}: {case} {times} times ours: {'reached' if reached >= times else 'MISSED'}")
    apart = abs(found[CONTROL]["cpu_us"]["median"] / found[next(iter(found))]["cpu_us"]["median"] - 1)
    if apart > BASELINES_AGREE:
        lines.append(f"the control is {apart:.0%} from its reference: the machine was too busy")
    return "\n".join(lines)


def _machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "load": os.getloadavg(),
    }
