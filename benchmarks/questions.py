"""What a benchmark asks: cases that are compared, and the environments that peers have of their own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from goals import Goal
from usage import cpu_seconds, peak_mb

__all__ = ["Case", "Environment", "Measure", "Question", "worked"]

ENVIRONMENTS = Path(__file__).parents[1] / ".bench"

Measure: TypeAlias = Callable[[float], tuple[bytes, dict[str, float]]]
"""Measures for about so many seconds; what the case's output was, and its figures by name."""


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
    aside: bool = False
    """Whether it is left out unless its question is asked for by name."""
    rounds: int | None = None
    """How many are enough, where it takes long and nothing is compared with it; by default all."""


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
    """Whether a case is measured twice, every second round; not where one of its own shows the noise."""
    twice: str | None = None
    """That case, where it isn't the reference, which may take long."""
    rounds: int | None = None
    """How many are enough, where nothing that must be reached hangs on it; by default all."""
    once: bool = False
    """Whether one round is enough, since nothing is timed; then there is no control."""


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
        while (took := time.perf_counter() - start) < seconds or not runs:
            work()
            runs += 1
        used += cpu_seconds(without)
        each = 1e6 / runs / units
        return said, {"cpu_us": used * each, "wall_us": took * each, "peak_mb": peak_mb(without)}

    return measure
