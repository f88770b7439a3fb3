"""
How benchmarks measure: cases by turns, each time in a fresh process, and the goals judged by the medians.

A benchmark is a script that hands its questions to `main`, which calls the script again for each
measurement. All cases of a question must have the same output, but for those that say that theirs is
another by nature. The reference is measured again under the name of `control`: how far apart the two are
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

__all__ = [
    "Case",
    "Environment",
    "Figures",
    "Goal",
    "Measure",
    "Question",
    "cpu_seconds",
    "figure",
    "main",
    "peak_mb",
    "run",
    "share",
    "times",
    "worked",
]

ROOT = Path(__file__).parent
ENVIRONMENTS = ROOT.parent / ".bench"
CONTROL = "control"
BASELINES_AGREE = 0.15
"""A control further from its reference than this is marked: the machine was too busy to tell."""
ROUNDS, SECONDS = 7, 0.3
QUICK_ROUNDS, QUICK_SECONDS = 1, 0.15

Measure: TypeAlias = Callable[[float], tuple[bytes, dict[str, float]]]
"""Measures for about so many seconds; what the case's output was, and its figures by name."""
Get: TypeAlias = Callable[[str, str], float]
"""Of a case, the figure of a name."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment of a peer's own, so that its pins are not ours."""

    name: str
    requirements: tuple[str, ...]
    """What is installed there, at the versions that were tried."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return ENVIRONMENTS / self.name / "bin" / "python"

    @property
    def is_ready(self) -> bool:
        """Whether it holds what it should."""
        return self._stamp.exists() and self._stamp.read_text() == self._wanted

    def install(self) -> None:
        """Make it, unless it is there; a peer that does not install ends the benchmark by its name."""
        if self.is_ready:
            return
        import venv

        venv.create(ENVIRONMENTS / self.name, with_pip=True)
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        if subprocess.run([*command, *self.requirements], check=False).returncode:
            sys.exit(f"{self.name} did not install: {', '.join(self.requirements)}")
        self._stamp.write_text(self._wanted)

    @property
    def _stamp(self) -> Path:
        return ENVIRONMENTS / self.name / "installed.txt"

    @property
    def _wanted(self) -> str:
        return "\n".join(self.requirements)


@dataclass(frozen=True, slots=True)
class Case:
    """One way to do the work."""

    measure: Measure
    """Does it, in a process of its own."""
    environment: Environment | None = None
    """Where it runs, if not here."""
    alike: bool = True
    """Whether its output is the other cases' output."""
    absent: Callable[[], str] | None = None
    """Why it can't be measured here; empty where it can."""
    thorough: bool = False
    """Whether a quick run leaves it out."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What should be reached."""

    number: str
    """Which of the project's goals it is a part of."""
    text: str
    """What is compared, a line."""
    value: Callable[[Get], float]
    """What was reached, from the cases' figures."""
    must: float | None = None
    """What has to be reached; None where the figure is only stated."""
    stretch: float | None = None
    """What would be better still."""
    at_least: bool = False
    """Whether more is better."""
    unit: str = "x"
    """What the numbers are."""
    unclear: Callable[[Get], str] | None = None
    """Why the figures don't tell; empty where they do."""

    def is_reached(self, value: float, bound: float | None) -> bool:
        """Whether `value` is as good as `bound`."""
        return bound is not None and (value >= bound if self.at_least else value <= bound)


def times(other: str, own: str, name: str) -> Callable[[Get], float]:
    """How many times ours the other's figure is."""
    return lambda get: get(other, name) / get(own, name)


def share(own: str, other: str, name: str) -> Callable[[Get], float]:
    """Which part of the other's figure ours is."""
    return lambda get: get(own, name) / get(other, name)


def figure(case: str, name: str) -> Callable[[Get], float]:
    """A figure as it is."""
    return lambda get: get(case, name)


@dataclass(frozen=True, slots=True)
class Question:
    """Cases that are compared."""

    text: str
    """What is asked, a line."""
    figures: Mapping[str, str]
    """What is shown: names of figures, the one that decides first, and what each is."""
    cases: Mapping[str, Case]
    """By name; the first one is the reference."""
    goals: Sequence[Goal] = ()
    """What should be reached."""
    own: str = "mttp"
    """The case that the others are compared with."""
    before: Callable[[bool], None] | None = None
    """
    Makes what the cases need, in a process of its own, in the folder above that in which each is measured.

    It is told whether the run is a quick one.
    """
    control: bool = True
    """Whether the reference is measured twice; not where a case of its own shows the noise."""
    once: bool = False
    """Whether one round is enough, since nothing is timed; then there is no control."""


# In the process of one measurement.


def worked(
    prepare: Callable[[], Callable[[], Any]],
    told: Callable[[Any], bytes],
    units: int,
    without: Sequence[int] = (),
) -> Measure:
    """
    A measure of work that is repeated: what `prepare` returns is timed, each time for so many units.

    `told` says what the work's result means; `without` are processes that don't count.
    """

    def measure(seconds: float) -> tuple[bytes, dict[str, float]]:
        work = prepare()
        said = told(work())
        runs, start, used = 0, time.perf_counter(), -cpu_seconds(without)
        while used + cpu_seconds(without) < seconds or not runs:
            work()
            runs += 1
        used += cpu_seconds(without)
        each = 1e6 / runs / units
        wall = (time.perf_counter() - start) * each
        return said, {"cpu_us": used * each, "wall_us": wall, "peak_mb": peak_mb(without)}

    return measure


def cpu_seconds(without: Sequence[int] = ()) -> float:
    """
    CPU seconds of this process and its children, those that still run included.

    `without` are children that don't count, such as a receiver. Where there is no /proc, none that runs does.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(_ticks(child) for child in _descendants(os.getpid()) if child not in without)
    return time.process_time() + ended.ru_utime + ended.ru_stime + running / os.sysconf("SC_CLK_TCK")


def peak_mb(without: Sequence[int] = ()) -> float:
    """
    The most memory that this process had, in MB, with that of its running children and the largest ended one.

    `without` are children that don't count; then those that have ended don't either.
    """
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss if not without else 0
    running = sum(_high_water(child) for child in _descendants(os.getpid()) if child not in without)
    return (own + ended + running) / 1024


def _descendants(process: int) -> Iterator[int]:
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from _descendants(child)


def _ticks(process: int) -> int:
    """Clock ticks of a process and of its children that have ended."""
    with suppress(OSError):
        after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, after_name[11:15]))
    return 0


def _high_water(process: int) -> int:
    """The most memory that a process had, in KiB."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1])
    return 0


# In the process that asks.

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
    parser.add_argument("--only", choices=sorted(set(names)), metavar="NAME", help="one file or question")
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
        if options.only in (None, path.stem, name)
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
        goals += _judged(question, rounds, skipped)
    machine = _machine(options)
    if goals:
        print("\n" + _goals(goals, machine), flush=True)
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
    reference = next(iter(question.cases))
    is_controlled = reference in present and question.control and not question.once
    turns = [*present, *([CONTROL] if is_controlled else [])]
    rounds: Figures = {turn: [] for turn in turns}
    with tempfile.TemporaryDirectory(prefix="mttp-bench-") as place:
        if question.before is not None:
            _process(path, ["--before", name, *(["--quick"] if options.quick else [])], Path(place), None)
        for number in range(1 if question.once else options.rounds):
            for turn in turns if number % 2 == 0 else reversed(turns):
                case = reference if turn == CONTROL else turn
                rounds[turn].append(_fresh(path, name, case, question.cases[case], place, options.seconds))
                _agree(question, rounds)
    return rounds, skipped


def _absent(case: Case, options: argparse.Namespace) -> str:
    if options.quick and case.thorough:
        return "left out of a quick run"
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
    """This process's environment without what would configure what is measured."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MTTP_", "OTEL_")) and not name.lower().endswith("_proxy")
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


def _by(choose: Callable[[list[float]], float], rounds: Figures) -> Get:
    """Of all rounds' figures the median, or the lowest."""
    return lambda case, name: choose([row[name] for row in rounds[case]])


def _apart(question: Question, rounds: Figures) -> float:
    """How far the control is from its reference, as a part of it."""
    if CONTROL not in rounds:
        return 0.0
    name, get = next(iter(question.figures)), _by(median, rounds)
    reference = get(next(iter(rounds)), name)
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
        middle, ours = median(values), question.own in rounds and _by(median, rounds)(question.own, first)
        ratio = f"{middle / ours:6.2f}x" if ours else f"{'':7}"
        more = "".join(f" {median(row[name] for row in rows):14.5g}" for name in others)
        lines.append(f"{case:28} {middle:12.5g} {min(values):10.5g} {_spread(values):7.0%} {ratio}{more}")
    lines += [f"{case:28} skipped: {reason}" for case, reason in skipped.items()]
    if (apart := _apart(question, rounds)) > BASELINES_AGREE:
        lines.append(f"the control is {apart:.0%} from its reference: the machine was too busy")
    return "\n".join(lines)


# Goals.


def _judged(question: Question, rounds: Figures, skipped: Mapping[str, str]) -> list[dict[str, Any]]:
    return [_judge(goal, question, rounds, skipped) for goal in question.goals]


def _judge(goal: Goal, question: Question, rounds: Figures, skipped: Mapping[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {"number": goal.number, "text": goal.text, "unit": goal.unit}
    row |= {"must": goal.must, "stretch": goal.stretch, "at_least": goal.at_least}
    try:
        reached = goal.value(_by(median, rounds))
    except KeyError as missing:
        case = str(missing.args[0])
        return row | {"verdict": f"{case}: {skipped.get(case, 'not measured')}"}
    every = [goal.value(_round(rounds, number)) for number in range(_count(rounds))]
    return row | {
        "reached": reached,
        "by_minima": goal.value(_by(min, rounds)),
        "lowest": min(every),
        "highest": max(every),
        "verdict": _verdict(goal, reached, question, rounds),
    }


def _verdict(goal: Goal, reached: float, question: Question, rounds: Figures) -> str:
    if goal.unclear is not None and (reason := goal.unclear(_by(median, rounds))):
        return reason
    if (apart := _apart(question, rounds)) > BASELINES_AGREE:
        return f"the machine was too busy: the control is {apart:.0%} off"
    if goal.must is None:
        return "stated"
    if goal.is_reached(reached, goal.stretch):
        return "stretch"
    return "yes" if goal.is_reached(reached, goal.must) else "MISSED"


def _count(rounds: Figures) -> int:
    return min(map(len, rounds.values()))


def _round(rounds: Figures, number: int) -> Get:
    return lambda case, name: rounds[case][number][name]


def _goals(goals: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> str:
    """The table of all goals, in Markdown."""
    header = ("#", "goal", "must", "stretch", "reached", "by minima", "lowest to highest", "")
    lines = [_row(*header), _row(*["---"] * len(header))]
    for goal in sorted(goals, key=_order):
        shown = {name: _shown(goal.get(name), goal["unit"]) for name in _NUMBERS}
        spread = f"{shown['lowest']} to {shown['highest']}" if shown["lowest"] else ""
        bounds = (shown["must"], shown["stretch"], shown["reached"], shown["by_minima"])
        lines.append(_row(goal["number"], goal["text"], *bounds, spread, goal["verdict"]))
    about = (
        "{processor}, {processors} processors, Python {python}, {system}; {rounds} rounds{quick}, medians."
    )
    quick = ", quick: small files, short windows" if machine["quick"] else ""
    return "\n".join([*lines, "", about.format_map({**machine, "quick": quick})])


_NUMBERS = ("must", "stretch", "reached", "by_minima", "lowest", "highest")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _order(goal: Mapping[str, Any]) -> tuple[int, str]:
    """By number, as 1, 1b, 2, …, 10."""
    number = goal["number"]
    return int(number.rstrip("b")), number


def _shown(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.3g}{unit if unit in ('x', '') else ' ' + unit}"


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
