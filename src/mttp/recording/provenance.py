"""
Detects a run's surroundings: code revision, packages, interpreter, host, accelerators, and rank.

Each kind of fact has a function; if one fails, that is a fault, and the others run.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from mttp.codec.plain import Faults
from mttp.model.interrupts import raise_interrupt
from mttp.otlp import orphans

__all__ = ["DETECTORS", "Detection", "detect", "launch", "packages"]

Facts: TypeAlias = dict[str, Any]
Detector: TypeAlias = Callable[[str], Facts]
_GIT_SECONDS = 2.0
_COMMIT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})")
_NAME_OR_VERSION = re.compile(r"^(Name|Version):[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)


def launch(environ: Mapping[str, str] = os.environ) -> Facts:
    """Return rank, number of processes, attempt and shared run id from the variables of torchrun or Slurm."""
    if "RANK" in environ and "WORLD_SIZE" in environ:
        run_id = environ.get("TORCHELASTIC_RUN_ID")
        facts = {
            "rank": _integer(environ, "RANK"),
            "world_size": _integer(environ, "WORLD_SIZE"),
            "attempt": _integer(environ, "TORCHELASTIC_RESTART_COUNT"),
            "run_id": run_id if run_id != "none" else None,
        }
    elif environ.get("SLURM_NTASKS", "1") != "1":
        job = environ.get("SLURM_JOB_ID")
        facts = {
            "rank": _integer(environ, "SLURM_PROCID"),
            "world_size": _integer(environ, "SLURM_NTASKS"),
            "attempt": _integer(environ, "SLURM_RESTART_COUNT"),
            "run_id": f"slurm-{job}" if job else None,
        }
    else:
        return {}
    return {name: value for name, value in facts.items() if value is not None}


def _integer(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    return int(value) if value.isdecimal() else None


def revision(directory: str) -> Facts:
    """Return the git commit of the working directory, and whether tracked files have changed since."""
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None or not _COMMIT.fullmatch(commit):
        return {}
    changes = _git(directory, "status", "--porcelain", "--untracked-files=no")
    return {"revision": commit} if changes is None else {"revision": commit, "dirty": bool(changes)}


def _git(directory: str, *arguments: str) -> str | None:
    try:
        output = orphans.output(
            ["env", "GIT_OPTIONAL_LOCKS=0", "git", "-C", directory, *arguments], _GIT_SECONDS
        )
    except FileNotFoundError:
        return None
    return None if output is None else output.decode("utf-8", "replace").strip()


def packages() -> dict[str, str]:
    """Return versions by name of the installed distributions that this process has imported."""
    installed = _installed()
    imported = {name.partition(".")[0] for name in list(sys.modules)} - sys.stdlib_module_names
    versions = dict(name_and_version for module in imported for name_and_version in installed.get(module, ()))
    return {name: versions[name] for name in sorted(versions, key=str.lower)}


@functools.cache
def _installed() -> Mapping[str, list[tuple[str, str]]]:
    """
    Return names and versions of the distributions that install each top-level module.

    `importlib.metadata.packages_distributions` takes seconds in a large environment.
    """
    installed: dict[str, list[tuple[str, str]]] = defaultdict(list)
    names: set[str] = set()
    for distribution in importlib.metadata.distributions():
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        headers = dict(_NAME_OR_VERSION.findall(text.partition("\n\n")[0]))
        if (
            headers.keys() == {"Name", "Version"} and headers["Name"] not in names
        ):  # the first on the path is imported
            names.add(headers["Name"])
            for module in _modules(distribution) | {headers["Name"].lower().replace("-", "_")}:
                installed[module].append((headers["Name"], headers["Version"]))
    return installed


def _modules(distribution: importlib.metadata.Distribution) -> set[str]:
    top_level = distribution.read_text("top_level.txt")
    if top_level:
        return set(top_level.split())
    files = (distribution.read_text("RECORD") or "").splitlines()
    return {file.partition(",")[0].partition("/")[0].removesuffix(".py") for file in files}


def interpreter(_: str) -> Facts:
    """Return the interpreter and its version."""
    return {"python": f"{sys.implementation.name} {platform.python_version()}"}


def host(_: str) -> Facts:
    """Return host name, operating system, processor architecture and process id."""
    machine = f"{platform.system().lower()} {platform.machine()}"
    return {"host": socket.gethostname(), "platform": machine, "pid": os.getpid()}


def accelerators(_: str) -> Facts:
    """Return the names of the accelerators from the driver's files, without initializing a device."""
    names = []
    for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        model = [line for line in information.read_text().splitlines() if line.startswith("Model:")]
        names += [line.partition(":")[2].strip() for line in model]
    return {"accelerators": tuple(names)} if names else {}


def imported(_: str) -> Facts:
    """Return the packages that were imported so far."""
    return {"packages": packages()}


DETECTORS: tuple[Detector, ...] = (revision, interpreter, host, accelerators, imported)
"""All detectors; each gets the working directory."""


def detect(directory: str | None, faults: Faults, detectors: Sequence[Detector] | None = None) -> Facts:
    """Return the facts of all detectors, none without a directory; errors are added to `faults`."""
    facts: Facts = {}
    if directory is None:
        return facts
    with _lock:
        for detector in DETECTORS if detectors is None else detectors:
            try:
                facts |= detector(directory)
            except Exception as error:
                raise_interrupt(error)
                faults.append(f"detector_failed: {detector.__name__}: {error!r}")
    return facts


_lock = threading.Lock()
"""Held while detectors import modules, because a child forked meanwhile could never import them."""


def hold(timeout: float) -> bool:
    """Before a fork: wait for the detectors; returns whether `release` must be called."""
    return _lock.acquire(timeout=timeout)


def release() -> None:
    """After a fork, in the parent: release the lock."""
    _lock.release()


def replace_lock() -> None:
    """After a fork, in the child: replace the lock, whose holder does not exist here."""
    global _lock
    _lock = threading.Lock()


class Detection:
    """Runs the detectors on a thread, because git or a disk may be slow, and then calls `then`."""

    def __init__(self, directory: str | None, then: Callable[[], None]) -> None:
        self._directory = directory
        self._then = then
        self._done = threading.Event()
        self._found: Facts = {}
        self._faults: Faults = ["detector_failed: detection took too long"]
        try:
            threading.Thread(target=self._detect, name="mttp-detect", daemon=True).start()
        except RuntimeError:  # at the interpreter's exit
            self._detect()

    @property
    def done(self) -> bool:
        """Whether all detectors have run."""
        return self._done.is_set()

    def result(self, timeout: float) -> tuple[Facts, Faults]:
        """Return the facts and faults after at most `timeout` seconds."""
        self._done.wait(timeout)
        return self._found, self._faults

    def _detect(self) -> None:
        faults: Faults = []
        self._found = detect(self._directory, faults)
        self._faults = faults
        self._done.set()
        self._then()
