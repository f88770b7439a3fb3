"""
What a run ran with: code, packages, interpreter, host, accelerators, and its place among other processes.

Each fact is found by a function of its own; one that fails is noted and costs nothing else.
"""

from __future__ import annotations

import functools
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mttp.codec.plain import Faults

__all__ = ["DETECTORS", "detect", "launch", "packages"]

Facts = dict[str, Any]
_GIT_SECONDS = 2.0


def launch(environ: Mapping[str, str] = os.environ) -> Facts:
    """Rank, number of processes, attempt and shared run id, as torchrun or Slurm tell them."""
    if "RANK" in environ and "WORLD_SIZE" in environ:
        run_id = environ.get("TORCHELASTIC_RUN_ID")
        found = {
            "rank": _integer(environ, "RANK"),
            "world_size": _integer(environ, "WORLD_SIZE"),
            "attempt": _integer(environ, "TORCHELASTIC_RESTART_COUNT"),
            "run_id": run_id if run_id != "none" else None,
        }
    elif environ.get("SLURM_NTASKS", "1") != "1":
        job = environ.get("SLURM_JOB_ID")
        found = {
            "rank": _integer(environ, "SLURM_PROCID"),
            "world_size": _integer(environ, "SLURM_NTASKS"),
            "attempt": _integer(environ, "SLURM_RESTART_COUNT"),
            "run_id": f"slurm-{job}" if job else None,
        }
    else:
        return {}
    return {name: value for name, value in found.items() if value is not None}


def _integer(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    return int(value) if value.isdecimal() else None


def revision(directory: str) -> Facts:
    """The git commit of the working directory, and whether it has changes."""
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None:
        return {}
    return {"revision": commit, "dirty": bool(_git(directory, "status", "--porcelain"))}


def _git(directory: str, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", directory, *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def packages() -> dict[str, str]:
    """Version by name of the installed distributions that this process has imported."""
    from importlib.metadata import version

    owners = _owners()
    imported = {name.partition(".")[0] for name in list(sys.modules)}
    names = {owner for module in imported for owner in owners.get(module, ())}
    return {name: version(name) for name in sorted(names, key=str.lower)}


@functools.cache
def _owners() -> Mapping[str, list[str]]:
    """Distributions by the top-level modules they install; slow to find out, so found out once."""
    from importlib.metadata import packages_distributions

    return packages_distributions()


def interpreter(_: str) -> Facts:
    """Interpreter and version."""
    return {"python": f"{sys.implementation.name} {platform.python_version()}"}


def host(_: str) -> Facts:
    """Host name, operating system, processor architecture and process."""
    machine = f"{platform.system().lower()} {platform.machine()}"
    return {"host": socket.gethostname(), "platform": machine, "pid": os.getpid()}


def accelerators(_: str) -> Facts:
    """Names of the accelerators, as the driver lists them; nothing is initialized to find out."""
    names = []
    for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        model = [line for line in information.read_text().splitlines() if line.startswith("Model:")]
        names += [line.partition(":")[2].strip() for line in model]
    return {"accelerators": tuple(names)} if names else {}


def imported(_: str) -> Facts:
    """The packages that were imported so far."""
    return {"packages": packages()}


DETECTORS: tuple[Callable[[str], Facts], ...] = (revision, interpreter, host, accelerators, imported)
"""What is looked for, each given the working directory."""


def detect(directory: str, faults: Faults) -> Facts:
    """All facts that could be found; `faults` says what could not."""
    facts: Facts = {}
    for detector in DETECTORS:
        try:
            facts |= detector(directory)
        except Exception as error:
            faults.append(f"detector_failed: {detector.__name__}: {error!r}")
    return facts
