"""The tasks of a suite, as they are given: names, or anything that has an id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mttp.codec.plain import scalar_text, text
from mttp.errors import ConfigureError

__all__ = ["SAMPLE", "Task", "task_id", "tasks_of"]

SAMPLE: ContextVar[int] = ContextVar("sample", default=0)
"""Which of its samples the task is done for, in this thread or coroutine."""

_NAMES = ("id", "task", "name")
"""Where a mapping or an object may have its id; the first of these that it has counts."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task."""

    id: str
    """Its id."""
    given: Any
    """The task as the suite has it: what a function that does it is called with."""
    slices: tuple[str, ...] = ()
    """Named subsets that it belongs to."""
    sample: int = 0
    """Which of its samples is to be done, where that matters."""


def tasks_of(given: Iterable[object]) -> dict[str, Task]:
    """The tasks by id, in order; raises ConfigureError for one without an id, and for several with one."""
    if isinstance(given, (str, bytes, Mapping)) or not hasattr(given, "__iter__"):
        raise ConfigureError(f"tasks={scalar_text(given):.80} is no list of tasks; write tasks=[...]")
    tasks: dict[str, Task] = {}
    for item in given:
        id_ = task_id(item)
        if not id_:
            raise ConfigureError(
                f"task {scalar_text(item):.80} has no id; give a name, or a mapping or an object that has "
                f"one of {', '.join(_NAMES)}"
            )
        if id_ in tasks:
            raise ConfigureError(f"several tasks have the id {id_!r:.80}; give each an id of its own")
        tasks[id_] = Task(id_, item, _slices(item))
    return tasks


def task_id(given: object) -> str:
    """The id of a task, or of what has one; empty where there is none."""
    if isinstance(given, Task):
        return given.id
    if not isinstance(given, (str, int)):
        given = next((found for name in _NAMES if (found := _part(given, name)) is not None), "")
    return text(given, []) if isinstance(given, (str, int)) and not isinstance(given, bool) else ""


def _part(given: object, name: str) -> Any:
    return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)


def _slices(given: object) -> tuple[str, ...]:
    found = None if isinstance(given, (str, int)) else _part(given, "slices")
    if found is None:
        return ()
    members = [found] if isinstance(found, str) or not hasattr(found, "__iter__") else found
    return tuple(text(name, []) for name in members)
