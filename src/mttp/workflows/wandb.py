"""Curves as runs of Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from mttp.errors import MissingExtra, TransportError
from mttp.model.interrupts import raise_interrupt
from mttp.transports.options import path_of, take
from mttp.workflows.curve_transport import CurveTransport

__all__ = ["WandbRuns", "open", "project_of"]

_AXES = {
    "episode": ("episode/number", ("episode/*", "component/*")),
    "update": ("update/number", ("update/*",)),
}
"""The curve that is the x axis, and the curves over it."""
_OFFLINE = ("offline", "disabled", "dryrun")


def open(address: str, options: Mapping[str, object]) -> CurveTransport:
    """
    Open `wandb://PROJECT` or `wandb://ENTITY/PROJECT`, which gets a W&B run for each run.

    Raises TransportError for another address, or if W&B has no key; and MissingExtra without wandb.
    """
    take(options, WandbRuns)
    project, entity = project_of(address)
    return CurveTransport("wandb", address, WandbRuns(project, entity))


def project_of(address: str) -> tuple[str, str]:
    """Return project and entity of an address; raises TransportError if it names no project."""
    entity, slash, project = unquote(path_of(address)).rstrip("/").rpartition("/")
    if not project or (slash and not entity) or "/" in entity:
        raise TransportError("write wandb://PROJECT or wandb://ENTITY/PROJECT")
    return project, entity


class WandbRuns:
    """A W&B run for each run; the program's own W&B run is left alone."""

    def __init__(self, project: str, entity: str = "") -> None:
        self._library = _library()
        self._project, self._entity = project, entity or None
        self._runs: dict[str, Any] = {}
        self._errors: dict[str, Exception] = {}
        """Why the run of an id could not be started; it is not tried again."""

    def write(
        self, run: str, run_id: str, points: Mapping[str, float], *, axis: str, number: int, time: int
    ) -> None:
        """Log all points at once."""
        x, _ = _AXES[axis]
        self._run(run, run_id).log({**points, x: number, "_timestamp": time / 1e9})

    def _run(self, name: str, run_id: str) -> Any:
        if run_id in self._errors:
            raise self._errors[run_id]
        if run_id not in self._runs:
            try:
                self._runs[run_id] = self._started(name, run_id)
            except Exception as error:
                raise_interrupt(error)
                self._errors[run_id] = error
                raise
        return self._runs[run_id]

    def _started(self, name: str, run_id: str) -> Any:
        settings = self._library.Settings(console="off", disable_git=True, x_disable_stats=True)
        run = self._library.init(
            project=self._project,
            entity=self._entity,
            name=name,
            config={"run_id": run_id},
            settings=settings,
            reinit="create_new",
        )
        for x, curves in _AXES.values():
            run.define_metric(x, hidden=True)
            for curve in curves:
                run.define_metric(curve, step_metric=x)
        return run

    def flush(self) -> None:
        """Do nothing: W&B sends in a process of its own."""

    def close(self) -> None:
        """Finish the runs."""
        runs, self._runs = self._runs, {}
        for run in runs.values():
            run.finish()

    def after_fork(self) -> None:
        """In a forked child: start runs of its own."""
        self._runs = {}


def _library() -> Any:
    """The library, logged in unless it is offline."""
    try:
        import wandb
    except ImportError as error:
        raise MissingExtra(package="wandb", extra="wandb", purpose="wandb://") from error
    if os.environ.get("WANDB_MODE", "").lower() in _OFFLINE:
        return wandb
    try:
        is_known = wandb.login()
    except Exception as error:  # wandb's own classes
        raise_interrupt(error)
        raise TransportError(f"W&B: {error}; run `wandb login`, or set WANDB_MODE=offline") from error
    if not is_known:
        raise TransportError("W&B has no key; run `wandb login`, or set WANDB_MODE=offline")
    return wandb
