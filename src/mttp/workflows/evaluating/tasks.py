"""The tasks of a suite: names, or dicts and objects with an id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mttp.codec.plain import scalar_text, text
from mttp.errors import ConfigureError

__all__ = ["SAMPLE", "Task", "task_id", "tasks_of"]

SAMPLE: ContextVar[int] = ContextVar("sample", default=0)
"""The index of the sample that runs in this thread or coroutine."""

_NAMES = ("id", "task", "name")
"""The keys or attributes with a task's id, the first that is present counts."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a suite."""

    id: str
    """The task's id."""
    given: Any
    """The task as passed to `evaluate`, and as passed on to the function that runs it."""
    slices: tuple[str, ...] = ()
    """Names of the subsets that it belongs to."""
    sample: int = 0
    """The index of the sample to run."""


def tasks_of(given: Iterable[object]) -> dict[str, Task]:
    """Return the tasks by id, in order; raises ConfigureError for a missing or repeated id."""
    if isinstance(given, (str, bytes, Mapping)) or not hasattr(given, "__iter__"):
        raise ConfigureError(f"tasks={scalar_text(given):.80} is not a list of tasks; pass tasks=[...]")
    tasks: dict[str, Task] = {}
    for item in given:
        id_ = task_id(item)
        if not id_:
            raise ConfigureError(
                f"the task {scalar_text(item):.80} has no id; pass a name, or a dict or an object with one "
                f"of {', '.join(_NAMES)}"
            )
        if id_ in tasks:
            raise ConfigureError(f"several tasks have the id {id_!r:.80}; give each its own id")
        tasks[id_] = Task(id_, item, _slices(item))
    return tasks


def task_id(given: object) -> str:
    """Return the id of a task, or an empty string if it has none."""
    if isinstance(given, Task):
        return given.id
    if not isinstance(given, (str, int)):
        given = next((id_ for name in _NAMES if (id_ := _part(given, name)) is not None), "")
    return text(given, []) if isinstance(given, (str, int)) and not isinstance(given, bool) else ""


def _part(task: object, name: str) -> Any:
    return task.get(name) if isinstance(task, Mapping) else getattr(task, name, None)


def _slices(task: object) -> tuple[str, ...]:
    slices = None if isinstance(task, (str, int)) else _part(task, "slices")
    if slices is None:
        return ()
    members = [slices] if isinstance(slices, str) or not hasattr(slices, "__iter__") else slices
    return tuple(text(name, []) for name in members)
