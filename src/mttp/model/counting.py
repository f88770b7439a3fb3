"""
Which episodes count: one rule for every figure, comparison, test, curve and list.

| run | task | split | status | reason |
|---|---|---|---|---|
| training | none | eval, validation, test | any | `evaluation` |
| any | any | any | completed | `counted` |
| any | any | any | error | `error` |
| training | none | other | aborted by the end of the program, unfinished | `cut_off` |
| any | any | any | aborted, unfinished | `not_finished` |

The first row that fits holds. An episode that was truncated by a limit is completed.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

__all__ = ["COMPLETED", "REASONS", "Reason", "counting", "is_counted"]

Reason: TypeAlias = Literal["counted", "error", "not_finished", "cut_off", "evaluation"]
"""
Why an episode counts or not.

counted: it ended, and its values count. error and not_finished: it has no value, and counts as missing.
cut_off and evaluation: it is left out, because it is no part of the learning curve.
"""
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
COMPLETED: Final = "completed"
_EVALUATIONS = frozenset({"eval", "evaluation", "validation", "valid", "val", "test"})
"""Splits of the episodes that evaluate a policy while it is trained."""
_ENDS_OF_PROGRAM = frozenset(
    {"closed", "training_ended", "session_closed", "KeyboardInterrupt", "SystemExit"}
    | {"GeneratorExit", "CancelledError"}
)
"""Stop reasons of the episodes that are open when the training or its program ends."""


def is_counted(status: str) -> bool:
    """Return whether an episode of this status has a return, a length and an outcome for statistics."""
    return status == COMPLETED


def counting(
    *, status: str, stop_reason: str | None, is_training: bool, task: str | None, split: str | None
) -> Reason:
    """
    Return whether an episode counts, or why not, from its columns.

    `is_training` states that its run trains a policy: its kind is train and no episode names a task, or it
    recorded updates.
    """
    in_curve = is_training and task is None
    if in_curve and split is not None and split.lower() in _EVALUATIONS:
        return "evaluation"
    if status == COMPLETED:
        return "counted"
    if status == "error":
        return "error"
    if in_curve and (status != "aborted" or _ends_with_program(stop_reason)):
        return "cut_off"
    return "not_finished"


def _ends_with_program(stop_reason: str | None) -> bool:
    return stop_reason is None or stop_reason.rpartition(".")[2] in _ENDS_OF_PROGRAM
