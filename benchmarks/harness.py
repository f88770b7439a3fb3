"""
How benchmarks measure: cases by turns, each time in a fresh process, and the goals judged by the medians.

A benchmark is a script that hands its questions to `main`, which calls the script again for each measurement.
All cases of a question must have the same output, but for those that say that theirs is another by nature.
One case, most often the reference, is measured again under the name of `control`: how far apart the two are
says how far to trust the rest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from goals import BASELINES_AGREE, by, judged, table
from questions import Case, Environment, Question

__all__ = ["main", "run"]

CONTROL = "control"
ROUNDS, SECONDS = 7, 0.22
QUICK_ROUNDS, QUICK_SECONDS = 1, 0.15

Figures: TypeAlias = dict[str, list[dict[str, Any]]]
"""Of each case by name, the figures of each round."""


class Failed(Exception):  # noqa: N818 - it is said of a case
    """A case failed, or had another output."""


def main(questions: Mapping[str, Question]) -> None:
    """Answer the command line of one file."""
    run({Path(sys.argv[0]).resolve(): questions})


def run(files: Mapping[Path, Mapping[str, Question]]) -> None:
    """Answer the command line for the questions of several files."""
    options = _options(files)
    if options.measure:
        question, case = options.measure
        _measure(next(iter(files.values()))[question].cases[case], options.seconds)
        return
    if options.before:
        made = next(iter(files.values()))[options.before].before
        if made is not None:
            made(options.quick)
        return
    chosen = _chosen(files, options)
    _install(chosen, only=options.install)
    if not options.install:
        _report(chosen, options)


def _options(files: Mapping[Path, Mapping[str, Question]]) -> argparse.Namespace:
    names = [name for path, questions in files.items() for name in (path.stem, *questions)]
    parser = argparse.ArgumentParser(prog="python benchmarks")
    parser.add_argument("--quick", action="store_true", help="a first impression, in under two minutes")
    parser.add_argument(
        "--only",
        action="append",
        choices=sorted(set(names)),
        metavar="NAME",
        help="one file or question; may be repeated",
    )
    parser.add_argument("--json", type=Path, help="write all figures there, too")
    parser.add_argument("--rounds", type=int, help=f"fresh processes for each case; by default {ROUNDS}")
    parser.add_argument("--seconds", type=float, help=f"how long each of them measures; by default {SECONDS}")
    parser.add_argument("--install", action="store_true", help="only make the peers' environments")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--before", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    options.seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    return options


_Chosen: TypeAlias = list[tuple[Path, str, Question]]


def _chosen(files: Mapping[Path, Mapping[str, Question]], options: argparse.Namespace) -> _Chosen:
    return [
        (path, name, question)
        for path, questions in files.items()
        for name, question in questions.items()
        if not options.only or {path.stem, name} & set(options.only)
    ]


def _install(chosen: _Chosen, *, only: bool) -> None:
    cases = [case for _, _, question in chosen for case in question.cases.values()]
    peers = {case.environment for case in cases if case.environment}
    for environment in sorted(peers, key=lambda one: one.name):
        if only:
            environment.install()
        elif not environment.is_ready:
            sys.exit(f"{environment.name} is not installed; run: python benchmarks --install")


def _measure(case: Case, seconds: float) -> None:
    """Measure, and tell the process that asks."""
    said, figures = case.measure(seconds)
    print(json.dumps({"told": hashlib.sha256(said).hexdigest(), **figures}))


def _report(chosen: _Chosen, options: argparse.Namespace) -> None:
    """Answer each question; what fails is said, and the others are answered all the same."""
    found: dict[str, dict[str, Any]] = {}
    goals: list[dict[str, Any]] = []
    failures: list[str] = []
    for path, name, question in chosen:
        start = time.perf_counter()
        try:
            rounds, skipped = _answered(path, name, question, options)
        except Failed as failure:
            failures.append(str(failure))
            print(f"\n{failure}", flush=True)
            continue
        found.setdefault(path.stem, {})[name] = {case: _summed(rows) for case, rows in rounds.items()}
        print(f"{_table(question, rounds, skipped)}\n({time.perf_counter() - start:.0f} s)", flush=True)
        apart = _apart(question, rounds)
        goals += [judged(goal, rounds, skipped, apart) for goal in question.goals]
    machine = _machine(options)
    if goals:
        print("\n" + table(goals, machine), flush=True)
    if options.json:
        report = {"machine": machine, "goals": goals, "questions": found, "failures": failures}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    if failures:
        sys.exit("failed: " + "; ".join(one.splitlines()[0] for one in failures))


def _answered(
    path: Path, name: str, question: Question, options: argparse.Namespace
) -> tuple[Figures, dict[str, str]]:
    """The figures of each case round by round, and why some were left out."""
    skipped = {case: reason for case, one in question.cases.items() if (reason := _absent(one, options))}
    present = [case for case in question.cases if case not in skipped]
    twice = _twice(question)
    is_controlled = twice in present and question.control and not question.once
    turns = [*present, *([CONTROL] if is_controlled else [])]
    rounds: Figures = {turn: [] for turn in turns}
    with tempfile.TemporaryDirectory(prefix="mttp-bench-") as place:
        if question.before is not None:
            _process(path, ["--before", name, *(["--quick"] if options.quick else [])], Path(place), None)
        for number in range(_rounds(question, options)):
            for turn in turns if number % 2 == 0 else reversed(present):
                case = twice if turn == CONTROL else turn
                if number >= (question.cases[case].rounds or options.rounds):
                    continue
                rounds[turn].append(_fresh(path, name, case, question.cases[case], place, options.seconds))
                _agree(question, rounds)
    return rounds, skipped


def _rounds(question: Question, options: argparse.Namespace) -> int:
    asked: int = options.rounds
    return 1 if question.once else min(asked, question.rounds or asked)


def _absent(case: Case, options: argparse.Namespace) -> str:
    if options.quick and case.thorough:
        return "left out of a quick run"
    if case.aside and not options.only:
        return "measured where its question is asked for by name"
    return case.absent() if case.absent else ""


def _fresh(path: Path, question: str, name: str, case: Case, place: str, seconds: float) -> dict[str, Any]:
    """The figures of one measurement, with those of the whole process."""
    folder = Path(place) / "here"
    folder.mkdir()
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    try:
        said = _process(
            path, ["--seconds", str(seconds), "--measure", question, name], folder, case.environment
        )
    finally:
        shutil.rmtree(folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    whole = {"process_ms": 1e3 * (time.perf_counter() - start), "process_cpu_ms": 1e3 * used}
    return {**json.loads(said.splitlines()[-1]), **whole}


def _process(path: Path, arguments: Sequence[str], folder: Path, environment: Environment | None) -> str:
    """Run a benchmark's script in `folder`; what it printed."""
    python = str(environment.python) if environment else sys.executable
    done = subprocess.run(
        [python, str(path), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=_variables(),
    )
    if done.returncode:
        raise Failed(f"{' '.join(arguments[-2:])} of {path.name} failed:\n{done.stderr}")
    return done.stdout


def _variables() -> dict[str, str]:
    """This process's environment without what would configure what is measured, or have it compiled anew."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MTTP_", "OTEL_", "PYTHONDONTWRITEBYTECODE"))
        and not name.lower().endswith("_proxy")
    }
    if "PYTHONPATH" in kept:  # it is another folder that the process runs in
        kept["PYTHONPATH"] = os.pathsep.join(
            str(Path(one).resolve()) for one in kept["PYTHONPATH"].split(os.pathsep)
        )
    return kept


def _agree(question: Question, rounds: Figures) -> None:
    alike: dict[str, str] = {}
    for turn, rows in rounds.items():
        case = question.cases.get(turn)
        own = {row["told"]: turn for row in rows}
        alike |= own if case is None or case.alike else {}
        if len(own) > 1:
            raise Failed(f"{question.text}: {turn} has another output each time")
    if len(alike) > 1:
        raise Failed(f"{question.text}: not the same output: {', '.join(alike.values())}")


def _summed(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = [name for name in rows[0] if name != "told"]
    columns = {name: [row[name] for row in rows] for name in names}
    return {
        name: {"median": median(values), "min": min(values), "spread": _spread(values), "rounds": values}
        for name, values in columns.items()
    }


def _spread(values: Sequence[float]) -> float:
    """How far apart lowest and highest are, as a part of the median."""
    middle = median(values)
    return (max(values) - min(values)) / abs(middle) if middle else 0.0


def _twice(question: Question) -> str:
    """The case that the control measures again."""
    return question.twice or next(iter(question.cases))


def _apart(question: Question, rounds: Figures) -> float:
    """How far the control is from the case that it measures again, as a part of it."""
    if CONTROL not in rounds:
        return 0.0
    name, get = next(iter(question.figures)), by(median, rounds)
    reference = get(_twice(question), name)
    return abs(get(CONTROL, name) / reference - 1) if reference else 0.0


def _table(question: Question, rounds: Figures, skipped: Mapping[str, str]) -> str:
    first, *others = question.figures
    about = ", ".join(question.figures.values())
    headers = "".join(f" {name:>14}" for name in others)
    lines = [
        f"\n{question.text}: {about}",
        f"{'':28} {first:>12} {'min':>10} {'spread':>7} {'ours':>7}{headers}",
    ]
    for case, rows in rounds.items():
        values = [row[first] for row in rows]
        middle, ours = median(values), question.own in rounds and by(median, rounds)(question.own, first)
        ratio = f"{middle / ours:6.2f}x" if ours else f"{'':7}"
        more = "".join(f" {median(row[name] for row in rows):14.5g}" for name in others)
        lines.append(f"{case:28} {middle:12.5g} {min(values):10.5g} {_spread(values):7.0%} {ratio}{more}")
    lines += [f"{case:28} skipped: {reason}" for case, reason in skipped.items()]
    if (apart := _apart(question, rounds)) > BASELINES_AGREE:
        lines.append(f"the control is {apart:.0%} from {_twice(question)}: the machine was too busy")
    return "\n".join(lines)


def _machine(options: argparse.Namespace) -> dict[str, Any]:
    import platform

    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "load": os.getloadavg(),
        "quick": options.quick,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _processor() -> str:
    import platform

    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
