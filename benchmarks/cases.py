"""What is measured: cases of a workload, each in a fresh process, and the environments that some need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

__all__ = ["Case", "Environment", "Figures", "Measure"]

ROOT = Path(__file__).resolve().parents[1]

Figures: TypeAlias = dict[str, float]
"""What was measured, by name."""
Measure: TypeAlias = Callable[[float], Figures]
"""Measures for about so many seconds."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with packages at the versions that were tried."""

    name: str
    requirements: tuple[str, ...] = ()
    """What is installed there; nothing where another command makes it."""
    made_by: str = "make bench-install"
    """The command that makes it."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        if self.requirements:
            return ROOT / ".bench" / self.name / "bin" / "python"
        return ROOT / os.environ.get("MTTP_INTEGRATIONS", ".integrations") / self.name / "bin" / "python"

    @property
    def absent(self) -> str:
        """Why it can't be used; empty where it can."""
        is_there = self._stamp.exists() and self._stamp.read_text() == self._wanted
        if is_there if self.requirements else self.python.exists():
            return ""
        return f"{self.name} is not installed: {self.made_by}"

    def install(self) -> None:
        """Make it, unless it is there."""
        if not (self.requirements and self.absent):
            return
        import venv

        venv.create(self.python.parents[1], with_pip=True)
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        if subprocess.run([*command, *self.requirements], check=False).returncode:
            sys.exit(f"{self.name} did not install: {', '.join(self.requirements)}")
        self._stamp.write_text(self._wanted)

    @property
    def _stamp(self) -> Path:
        return self.python.parents[1] / "installed.txt"

    @property
    def _wanted(self) -> str:
        return "\n".join(self.requirements)


@dataclass(frozen=True, slots=True)
class Case:
    """One way to do a workload's work."""

    measure: Measure
    """Does it, in a process of its own, in an empty folder."""
    environment: Environment | None = None
    """Where it runs, if not in this one."""
    check: Callable[[Figures], Figures] | None = None
    """Looks at what the process left in its folder, in another process; more figures."""
    rounds: int | None = None
    """How many are enough; by default all."""
