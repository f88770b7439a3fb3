"""
What a run ran with: code, packages, interpreter, host, accelerators, and its place among other processes.

Each fact is found by a function of its own; one that fails is noted and costs nothing else.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import socket
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from mttp.codec.plain import Faults

__all__ = ["DETECTORS", "Detection", "detect", "launch", "packages"]

Facts: TypeAlias = dict[str, Any]
Detector: TypeAlias = Callable[[str], Facts]
_GIT_SECONDS = 2.0
_STATED = re.compile(r"^(Name|Version):[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)


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
    """The git commit of the working directory, and whether tracked files have changed since."""
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None:
        return {}
    changes = _git(directory, "status", "--porcelain", "--untracked-files=no")
    return {"revision": commit} if changes is None else {"revision": commit, "dirty": bool(changes)}


def _git(directory: str, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", directory, *arguments],
            capture_output=True,
            timeout=_GIT_SECONDS,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except FileNotFoundError:
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None


def packages() -> dict[str, str]:
    """Version by name of the installed distributions that this process has imported."""
    installed = _installed()
    imported = {name.partition(".")[0] for name in list(sys.modules)} - sys.stdlib_module_names
    found = dict(one for module in imported for one in installed.get(module, ()))
    return {name: found[name] for name in sorted(found, key=str.lower)}


@functools.cache
def _installed() -> Mapping[str, list[tuple[str, str]]]:
    """
    Name and version of the distributions that install each top-level module; found out once.

    `importlib.metadata.packages_distributions` takes seconds where much is installed.
    """
    installed: dict[str, list[tuple[str, str]]] = defaultdict(list)
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions():
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        stated = dict(_STATED.findall(text.partition("\n\n")[0]))
        if stated.keys() == {"Name", "Version"} and stated["Name"] not in seen:  # the first one is imported
            seen.add(stated["Name"])
            for module in _modules(distribution) | {stated["Name"].lower().replace("-", "_")}:
                installed[module].append((stated["Name"], stated["Version"]))
    return installed


def _modules(distribution: importlib.metadata.Distribution) -> set[str]:
    stated = distribution.read_text("top_level.txt")
    if stated:
        return set(stated.split())
    files = (distribution.read_text("RECORD") or "").splitlines()
    return {file.partition(",")[0].partition("/")[0].removesuffix(".py") for file in files}


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


DETECTORS: tuple[Detector, ...] = (revision, interpreter, host, accelerators, imported)
"""What is looked for, each given the working directory."""


def detect(directory: str, faults: Faults, detectors: Sequence[Detector] | None = None) -> Facts:
    """All facts that could be found; `faults` says what could not."""
    facts: Facts = {}
    with _detecting:
        for detector in DETECTORS if detectors is None else detectors:
            try:
                facts |= detector(directory)
            except Exception as error:
                faults.append(f"detector_failed: {detector.__name__}: {error!r}")
    return facts


_detecting = threading.Lock()
"""Held while modules may be imported: a child forked meanwhile could never import them."""


def hold(timeout: float) -> bool:
    """Ahead of a fork: wait for what is being detected; whether `release` is due."""
    return _detecting.acquire(timeout=timeout)


def release() -> None:
    """After a fork, in the parent."""
    _detecting.release()


def renew() -> None:
    """After a fork, in the child: the detecting thread does not exist here."""
    global _detecting
    _detecting = threading.Lock()


class Detection:
    """Detect on a thread of its own, so that no caller waits for git or a slow disk; then call `then`."""

    def __init__(self, directory: str, then: Callable[[], None]) -> None:
        self._directory = directory
        self._then = then
        self._over = threading.Event()
        self._found: Facts = {}
        self._faults: Faults = ["detector_failed: detecting took too long"]
        try:
            threading.Thread(target=self._detect, name="mttp-detect", daemon=True).start()
        except RuntimeError:  # the interpreter is going down
            self._detect()

    @property
    def over(self) -> bool:
        """Whether everything was tried."""
        return self._over.is_set()

    def result(self, timeout: float) -> tuple[Facts, Faults]:
        """The facts that were found within `timeout` seconds, and what could not be."""
        self._over.wait(timeout)
        return self._found, self._faults

    def _detect(self) -> None:
        faults: Faults = []
        self._found = detect(self._directory, faults)
        self._faults = faults
        self._over.set()
        self._then()
