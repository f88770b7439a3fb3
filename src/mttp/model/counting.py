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

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from mttp.model.episodes import Run

__all__ = [
    "COMPLETED",
    "LEFT_OUT",
    "NOT_COUNTED",
    "REASONS",
    "Reason",
    "counting",
    "is_counted",
    "is_return_counted",
    "is_reward_counted",
    "training_runs",
]

Reason: TypeAlias = Literal["counted", "error", "not_finished", "cut_off", "evaluation"]
"""
Why an episode counts or not.

counted: it ended, and its values count. error and not_finished: it has no value, and counts as missing.
cut_off and evaluation: it is left out, because it is no part of the learning curve.
"""
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
NOT_COUNTED: Final[Mapping[str, str]] = {
    "error": "ended by an error, no value",
    "not_finished": "not finished, no value",
    "cut_off": "cut off by the end of the training, left out",
    "evaluation": "that evaluate the policy during the training, left out",
}
"""What is said about the episodes that do not count, by reason."""
LEFT_OUT: Final[tuple[Reason, ...]] = ("cut_off", "evaluation")
"""The reasons of episodes that are not even missing."""
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


def is_reward_counted(status: str) -> bool:
    """Return whether the value of a reward of this status counts; missing: there is no reward."""
    return status in ("ok", "missing")


def is_return_counted(return_: float | None, reward: float | None, reward_status: str) -> bool:
    """Return whether the return counts: it is not the value of a reward that does not."""
    return reward is None or is_reward_counted(reward_status) or return_ != reward


def training_runs(
    runs: Iterable[Run],
    episodes: Iterable[tuple[str, str | None, str | None]],
    *,
    with_updates: Iterable[str],
) -> frozenset[str]:
    """
    Return the ids of the runs that train: with updates, or of kind train with episodes that may learn.

    Of the latter no episode names a task, and not all of them evaluate.
    `episodes` are the run, the task and the split of each; `with_updates` are ids of runs with updates.
    """
    of_kind = {run.id for run in runs if run.kind == "train"}
    distinct = {*episodes}
    with_tasks = {run for run, task, _ in distinct if task}
    learning = {run for run, _, split in distinct if not _is_evaluation(split)}
    evaluating = {run for run, _, _ in distinct} - learning
    return frozenset(of_kind.difference(with_tasks, evaluating).union(with_updates))


def counting(
    *, status: str, stop_reason: str | None, is_training: bool, task: str | None, split: str | None
) -> Reason:
    """
    Return whether an episode counts, or why not, from its columns.

    `is_training` states that its run is one of `training_runs`.
    """
    in_curve = is_training and not task
    if in_curve and _is_evaluation(split):
        return "evaluation"
    if status == COMPLETED:
        return "counted"
    if status == "error":
        return "error"
    if in_curve and (status != "aborted" or _ends_with_program(stop_reason)):
        return "cut_off"
    return "not_finished"


def _is_evaluation(split: str | None) -> bool:
    return bool(split) and str(split).lower() in _EVALUATIONS


def _ends_with_program(stop_reason: str | None) -> bool:
    return not stop_reason or stop_reason.rpartition(".")[2] in _ENDS_OF_PROGRAM
