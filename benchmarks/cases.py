"""Cases of a workload, each measured in a fresh process, and the virtual environments that some need."""

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
"""Figures by name."""
Measure: TypeAlias = Callable[[float], Figures]
"""A function that measures for about that many seconds."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with packages at the versions that were tried."""

    name: str
    requirements: tuple[str, ...] = ()
    """Requirements; empty if another command creates the environment."""
    made_by: str = "make bench-install"
    """The command that creates it."""

    @property
    def python(self) -> Path:
        """Path of the interpreter."""
        if self.requirements:
            return ROOT / ".bench" / self.name / "bin" / "python"
        return ROOT / os.environ.get("MTTP_INTEGRATIONS", ".integrations") / self.name / "bin" / "python"

    @property
    def absent(self) -> str:
        """Why the environment can't be used; empty if it can."""
        is_there = self._stamp.exists() and self._stamp.read_text() == self._wanted
        if is_there if self.requirements else self.python.exists():
            return ""
        return f"{self.name} is not installed: {self.made_by}"

    def install(self) -> None:
        """Create the environment, unless it exists."""
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
    """One recorder or tool on a workload."""

    measure: Measure
    """Runs in a process of its own, in an empty folder."""
    environment: Environment | None = None
    """The virtual environment, if not this one."""
    check: Callable[[Figures], Figures] | None = None
    """Reads the files of the process in another process, and returns further figures."""
    rounds: int | None = None
    """Maximum number of rounds; by default all."""
