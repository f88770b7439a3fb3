"""The rewards of completions: each reward function's component, and their sum before normalization."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mttp.codec.plain import number
from mttp.integrations.trl.batch import CompletionBatch, RewardFunctionResult
from mttp.model.batch_errors import about
from mttp.model.episodes import Grade, Reward
from mttp.model.reprs import exception_text

__all__ = ["BatchScoring", "combined", "returned_rewards"]

Array = np.ndarray[Any, Any]


def combined(rewards: Array, weights: Array) -> Array:
    """
    Return the weighted sums of rewards as TRL computes them, shape [completions].

    NaN components are left out of the sum; a sum without components is NaN.
    """
    with np.errstate(all="ignore"):  # infinities give the same results as in TRL
        total: Array = np.nansum(rewards * weights, axis=1)
    total[np.isnan(rewards).all(axis=1)] = np.nan
    return total


def returned_rewards(batch: CompletionBatch, functions: int) -> Array | None:
    """Return the functions' rewards as an array, shape [completions, functions]; None if any is unknown."""
    results = (batch.function_results.get(position, RewardFunctionResult()) for position in range(functions))
    rewards = [result.values for result in results]
    if not all(values is not None and len(values) == len(batch.completions) for values in rewards):
        return None
    numbers = [[number(value) for value in values or ()] for values in rewards]
    return np.array(numbers, np.float32).T


class BatchScoring:
    """
    The rewards of one process's completions.

    `first` is the index of the first one among those of all processes, `end` the end of the batch.
    """

    def __init__(
        self, batch: CompletionBatch, names: Sequence[str], weights: Array, *, first: int, end: int
    ) -> None:
        self.weights = weights
        """The weights of the reward functions, float32."""
        self.totals: Array | None = None
        """The total reward of each completion, NaN where no function returned a number."""
        self._batch = batch
        self._names = names
        self._first = first
        self._end = end
        self._functions = [
            batch.function_results.get(position, RewardFunctionResult()) for position in range(len(names))
        ]
        self._weights = {name: float(weight) for name, weight in zip(names, weights, strict=True)}
        if batch.rewards is not None:
            self._rewards = batch.rewards[first : first + len(batch.completions)]
            self.totals = combined(self._rewards, weights)

    def reward(self, row: int) -> Reward:
        """Return the reward of a completion, with components, statuses and grades."""
        scores: dict[str, float] = {}
        statuses: dict[str, str] = {}
        for position, name in enumerate(self._names):
            value, status = self._component(row, position)
            if value is None:
                statuses[name] = status
            else:
                scores[name] = value
        total = math.nan if self.totals is None else float(self.totals[row])
        times: dict[str, Any] = {"start_time": self._batch.scoring, "end_time": self._end}
        is_infinite = self.totals is not None and bool(np.isinf(self._rewards[row]).any())
        has_total = math.isfinite(total) and not is_infinite  # an infinite component is no part of a score
        outcome: dict[str, Any] = {"value": total} if has_total else {}
        by_spec = self._by_spec(row)
        if len(by_spec) == len(self._names) == 1 and self._weights[self._names[0]] == 1.0:
            whole: Reward = by_spec[self._names[0]].reward
            return replace(whole, **outcome, **times)
        for name, result in by_spec.items():
            if result.status != "ok":  # the number that TRL has then is a floor, not a score
                scores.pop(name, None)
                statuses[name] = result.status
        if outcome and any(status == "error" or self._weights[name] for name, status in statuses.items()):
            outcome["status"] = "partial"
        return Reward(
            components=scores,
            component_statuses=statuses,
            weights=self._weights,
            grades=tuple(self._grades(row, by_spec, scores)),
            **(outcome or {"status": _overall(statuses), **self._error()}),
            **times,
        )

    def _grades(self, row: int, by_spec: Mapping[str, Any], scores: Mapping[str, float]) -> Iterator[Grade]:
        """Yield the grades of reward specs, and of functions that raised or called a model."""
        for position, (name, function) in enumerate(zip(self._names, self._functions, strict=True)):
            weight = self._weights[name]
            if name in by_spec:
                yield _grade(name, by_spec[name], weight)
            elif (error := function.error) is not None:
                yield Grade(
                    name=name,
                    kind="",
                    status="error",
                    error=exception_text(error),
                    error_type=type(error).__name__,
                    weight=weight,
                    calls=() if row else tuple(function.calls),
                    **about(row, function.raised, len(self._batch.completions)),
                )
            elif function.calls and not row:
                yield Grade(
                    name=name,
                    kind="",
                    value=scores.get(name),
                    status="ok" if name in scores else self._component(row, position)[1],
                    weight=weight,
                    calls=tuple(function.calls),
                )

    def _by_spec(self, row: int) -> dict[str, Any]:
        """Return the results of reward specs for a completion, by the names of their functions."""
        named = zip(self._names, self._functions, strict=True)
        return {name: function.results[row] for name, function in named if row < len(function.results)}

    def _component(self, row: int, position: int) -> tuple[float | None, str]:
        """Return the value and the status of one function's component; TRL's number takes precedence."""
        function = self._functions[position]
        if self.totals is not None:
            value = float(self._rewards[row, position])
            return (value, "ok") if math.isfinite(value) else (None, _status(function, row, "error"))
        returned = number(_returned(function, row))
        if returned is not None and math.isfinite(returned):
            return returned, "ok"
        return None, "error" if function.error is not None else _status(function, row, "missing")

    def _error(self) -> dict[str, str]:
        """Return message and class of the first exception of a reward function."""
        for name, function in zip(self._names, self._functions, strict=True):
            if function.error is not None:
                message = f"{name}: {exception_text(function.error)}"
                return {"error": message, "error_type": type(function.error).__name__}
        return {}


def _grade(name: str, result: Any, weight: float) -> Grade:
    """Return a spec's result as the grade of one component, with the spec's components as parts."""
    return Grade(
        name=name,
        kind="rubric",
        value=result.value,
        status=result.status,
        error=result.error,
        error_type=result.error_type,
        weight=weight,
        contribution=None if result.value is None or result.status != "ok" else weight * result.value,
        verdict=result.verdict,
        range=result.range,
        clipped=result.clipped,
        label=f"{result.spec.name} {result.spec.version}",
        parts=tuple(result.components.values()),
        start_time=result.start_time,
        end_time=result.end_time,
    )


def _returned(function: RewardFunctionResult, row: int) -> Any:
    return function.values[row] if function.values is not None and row < len(function.values) else None


def _status(function: RewardFunctionResult, row: int, unknown: str) -> str:
    """Return the status of a component without a number: None is an abstention, other values an error."""
    if function.values is None or row >= len(function.values):
        return unknown
    return "abstained" if function.values[row] is None else "error"


def _overall(statuses: dict[str, str]) -> str:
    distinct = set(statuses.values())
    for status in ("error", "abstained"):
        if status in distinct:
            return status
    return "missing"
