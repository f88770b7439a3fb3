"""Recording what Inspect runs, through its public hooks."""

from __future__ import annotations

import os
from importlib import import_module
from types import TracebackType
from typing import Any

from typing_extensions import Self

from mttp.formats import inspect_ai
from mttp.integrations.foreign_models import as_record
from mttp.integrations.options import Options
from mttp.model.evaluations import TaskResult
from mttp.recording import configuration

__all__ = ["InspectRecorder", "attach", "attach_all", "recorder"]

_active: InspectRecorder | None = None


class InspectRecorder:
    """The handle for what Inspect runs; Inspect calls it through the hooks."""

    def __init__(self) -> None:
        self._options = Options()
        self._attached: bool | None = None
        """Whether it is attached; None before the first time."""
        self._claims = 0
        self._specs: dict[str, dict[str, Any]] = {}
        """The `eval` of each running task, by its id."""
        self._results: dict[str, list[TaskResult]] = {}
        """The results of each running task so far, by its id."""

    @property
    def enabled(self) -> bool:
        """
        Whether Inspect's hooks record.

        Before the first `attach_all` they do where a session is open or MTTP_TRANSPORT names a transport.
        """
        if self._attached is not None:
            return self._attached
        has_session = configuration.current_session() is not None
        return has_session or bool(os.environ.get(configuration.TRANSPORT_VARIABLE))

    @property
    def attached(self) -> bool:
        """Whether the handle is attached."""
        return self._attached is True

    def use(self, options: Options) -> None:
        """Use new options from now on, and record again after a detach."""
        self._claims = self._claims if self._attached else 0
        self._options = options
        self._attached = True

    def claim(self) -> Self:
        """Return this handle for one more caller; the last `with` block that ends detaches it."""
        self._claims += 1
        return self

    def task_started(self, eval_id: str, spec: Any) -> None:
        """Keep the description of a task."""
        self._specs[eval_id] = as_record(spec)
        self._results[eval_id] = []

    def sample_ended(self, eval_id: str, sample: Any) -> None:
        """Record a sample as an episode."""
        session = configuration.recording_session()
        if session is None:
            return
        record = as_record(sample)
        value = self._options.applied(inspect_ai.episode(self._specs.get(eval_id, {}), record))
        session.record(value)
        self._results.setdefault(eval_id, []).append(inspect_ai.result(value))

    def task_ended(self, eval_id: str, log: Any) -> None:
        """Record a task as an evaluation with the results of its samples."""
        results = self._results.pop(eval_id, [])
        self._specs.pop(eval_id, None)
        if configuration.recording_session() is not None:
            from mttp.workflows.evaluations import record_evaluation

            document = as_record(log, exclude=frozenset({"samples"}))
            record_evaluation(inspect_ai.evaluation(document, results))

    def detach(self) -> None:
        """Record no more; a second call does nothing."""
        self._attached = False

    def status(self) -> dict[str, bool]:
        """Return whether Inspect calls the hooks, and they record."""
        from inspect_ai._util.registry import registry_lookup

        return {"hooks": self.enabled and registry_lookup("hooks", "mttp/mttp") is not None}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._claims -= 1
        if self._claims <= 0:
            self.detach()


def recorder() -> InspectRecorder:
    """Return the recorder that the hooks call."""
    global _active
    if _active is None:
        _active = InspectRecorder()
    return _active


def attach(target: Any, /, **options: Any) -> InspectRecorder:  # noqa: ARG001 - hooks are those of all tasks
    """Record all tasks, as `attach_all` does: Inspect's hooks do not belong to a task."""
    return attach_all(**options)


def attach_all(**options: Any) -> InspectRecorder:
    """
    Record every sample and task that Inspect runs from now on.

    A further call returns the same handle, and new options apply.
    """
    chosen = Options.of(options)
    handle = recorder()
    if options or not handle.attached:
        handle.use(chosen)
    import_module("mttp.integrations.inspect_ai.hooks")
    return handle.claim()
