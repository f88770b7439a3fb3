"""What completions were paid: each reward function's part, and their sum before anything is normalized."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mttp.codec.plain import number, scalar_text
from mttp.integrations.trl.batch import CompletionBatch, RewardFunctionResult
from mttp.model.episodes import Grade, Reward

__all__ = ["Scoring", "answered", "combined"]

Array = np.ndarray[Any, Any]


def combined(rewards: Array, weights: Array) -> Array:
    """
    The weighted sums as TRL takes them, shape [completions].

    A function that pays no number counts for nothing; where none does, the sum is NaN and not zero.
    """
    with np.errstate(all="ignore"):  # what infinities make of it is what TRL has
        total: Array = np.nansum(rewards * weights, axis=1)
    total[np.isnan(rewards).all(axis=1)] = np.nan
    return total


def answered(batch: CompletionBatch, functions: int) -> Array | None:
    """The answers as TRL keeps them, shape [completions, functions]; None where not all are known."""
    answers = [batch.answers.get(position, RewardFunctionResult()).values for position in range(functions)]
    if not all(values is not None and len(values) == len(batch.completions) for values in answers):
        return None
    numbers = [[number(value) for value in values or ()] for values in answers]
    return np.array(numbers, np.float32).T


class Scoring:
    """
    The rewards of one process's completions, as values.

    `first` says which of all processes' completions is this process's first, `end` when scoring was over.
    """

    def __init__(
        self, batch: CompletionBatch, names: Sequence[str], weights: Array, *, first: int, end: int
    ) -> None:
        self.weights = weights
        """Of the reward functions, float32."""
        self.totals: Array | None = None
        """What this process's completions were paid in all, NaN where no function paid a number."""
        self._batch = batch
        self._names = names
        self._first = first
        self._end = end
        self._weights = {name: float(weight) for name, weight in zip(names, weights, strict=True)}
        if batch.rewards is not None:
            self._rewards = batch.rewards[first : first + len(batch.completions)]
            self.totals = combined(self._rewards, weights)

    def reward(self, row: int) -> Reward:
        """The whole scoring of a completion."""
        scores: dict[str, float] = {}
        statuses: dict[str, str] = {}
        for position, name in enumerate(self._names):
            value, status = self._part(row, position)
            if value is None:
                statuses[name] = status
            else:
                scores[name] = value
        total = math.nan if self.totals is None else float(self.totals[row])
        times: dict[str, Any] = {"start_time": self._batch.scoring, "end_time": self._end}
        paid: dict[str, Any] = {} if math.isnan(total) else {"value": total}
        by_spec = self._by_spec(row)
        if len(by_spec) == len(self._names) == 1 and self._weights[self._names[0]] == 1.0:
            whole: Reward = by_spec[self._names[0]].reward
            return replace(whole, **paid, **times)
        for name, result in by_spec.items():
            if result.status != "ok":  # a floor that is paid beside it is no score
                scores.pop(name, None)
                statuses[name] = result.status
        if paid and ("error" in statuses.values() or statuses.keys() & by_spec.keys()):
            paid["status"] = "partial"
        return Reward(
            components=scores,
            component_statuses=statuses,
            weights=self._weights,
            grades=tuple(_grade(name, result, self._weights[name]) for name, result in by_spec.items()),
            **(paid or {"status": _overall(statuses), "error": self._error()}),
            **times,
        )

    def _by_spec(self, row: int) -> dict[str, Any]:
        """What reward specs said of a completion, by the names of the functions that they stand for."""
        answers = (
            (name, self._batch.answers.get(place, RewardFunctionResult()))
            for place, name in enumerate(self._names)
        )
        return {name: answer.results[row] for name, answer in answers if row < len(answer.results)}

    def _part(self, row: int, position: int) -> tuple[float | None, str]:
        """What one function pays: the number that TRL has of it, else what its answer means."""
        answer = self._batch.answers.get(position, RewardFunctionResult())
        if self.totals is not None:
            paid = float(self._rewards[row, position])
            return (paid, "ok") if math.isfinite(paid) else (None, _meaning(answer, row, "error"))
        given = _given(answer, row)
        found = number(given)
        if found is not None and math.isfinite(found):
            return found, "ok"
        return None, "error" if answer.error is not None else _meaning(answer, row, "missing")

    def _error(self) -> str | None:
        """What a reward function raised, where one did."""
        raised = (answer.error for answer in self._batch.answers.values() if answer.error is not None)
        return next((scalar_text(error) for error in raised), None)


def _grade(name: str, result: Any, weight: float) -> Grade:
    """A spec's result as one component among others, its own components as parts of it."""
    return Grade(
        name=name,
        kind="rubric",
        value=result.value,
        status=result.status,
        error=result.error,
        error_type=result.error_type,
        weight=weight,
        verdict=result.verdict,
        range=result.range,
        clipped=result.clipped,
        label=f"{result.spec.name} {result.spec.version}",
        parts=tuple(result.components.values()),
        start_time=result.start_time,
        end_time=result.end_time,
    )


def _given(answer: RewardFunctionResult, row: int) -> Any:
    return answer.values[row] if answer.values is not None and row < len(answer.values) else None


def _meaning(answer: RewardFunctionResult, row: int, unknown: str) -> str:
    """What it means that there is no number: None is an abstention, anything else an error."""
    if answer.values is None or row >= len(answer.values):
        return unknown
    return "abstained" if answer.values[row] is None else "error"


def _overall(statuses: dict[str, str]) -> str:
    found = set(statuses.values())
    for status in ("error", "abstained"):
        if status in found:
            return status
    return "missing"
