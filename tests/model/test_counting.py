"""Which episodes count, case by case."""

from __future__ import annotations

import pytest

from mttp.model.counting import REASONS, Reason, counting, is_counted, training_runs
from mttp.model.episodes import Run

CASES: list[tuple[bool, str | None, str | None, str, str | None, Reason]] = [
    # training, task, split, status, stop reason, reason
    (False, None, None, "completed", None, "counted"),
    (True, None, None, "completed", "time_limit", "counted"),
    (True, "t1", "eval", "completed", None, "counted"),
    (False, None, "eval", "completed", None, "counted"),
    (True, None, "eval", "completed", None, "evaluation"),
    (True, None, "Test", "error", None, "evaluation"),
    (True, None, "train", "completed", None, "counted"),
    (True, None, None, "error", None, "error"),
    (False, "t1", None, "error", None, "error"),
    (True, None, None, "unfinished", None, "cut_off"),
    (True, None, None, "aborted", "training_ended", "cut_off"),
    (True, None, None, "aborted", "closed", "cut_off"),
    (True, None, None, "aborted", "asyncio.exceptions.CancelledError", "cut_off"),
    (True, None, None, "aborted", "timeout", "not_finished"),
    (True, "t1", None, "aborted", "training_ended", "not_finished"),
    (True, "t1", None, "unfinished", None, "not_finished"),
    (False, None, None, "aborted", "closed", "not_finished"),
    (False, None, None, "unfinished", None, "not_finished"),
]


@pytest.mark.parametrize(("training", "task", "split", "status", "stop", "reason"), CASES)
def test_episode_counts_or_has_a_reason(
    training: bool, task: str | None, split: str | None, status: str, stop: str | None, reason: Reason
) -> None:
    """The reason follows from status, stop reason, task, split and whether the run trains."""
    assert reason == counting(status=status, stop_reason=stop, is_training=training, task=task, split=split)
    assert reason in REASONS
    assert is_counted(status) or reason != "counted"


@pytest.mark.parametrize(
    ("kind", "episodes", "updates", "trains"),
    [
        ("train", [(None, None)], 0, True),
        ("train", [(None, None), (None, "eval")], 0, True),
        ("train", [(None, "eval"), (None, "test")], 0, False),
        ("train", [(None, "eval")], 1, True),
        ("train", [("t1", None)], 0, False),
        ("train", [], 0, True),
        ("eval", [(None, None)], 0, False),
    ],
)
def test_run_trains_or_not(
    kind: str, episodes: list[tuple[str | None, str | None]], updates: int, trains: bool
) -> None:
    """A run of which all episodes evaluate, or one names a task, trains only where it recorded updates."""
    rows = [("r", task, split) for task, split in episodes]

    assert trains == ("r" in training_runs([Run(id="r", kind=kind)], rows, with_updates=["r"] * updates))
