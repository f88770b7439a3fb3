"""Two episodes side by side, and the first place in which they differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mttp.model.chat import from_text
from mttp.model.episodes import Episode, Step, Tokens
from mttp.study.differing import is_close

_AROUND = 5
_COMPARED = ("observation", "action", "reward", "terminated", "truncated", "metrics")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDifference:
    """The first token in which two blocks differ."""

    array: str
    """ids, prompt_ids, logprobs or another array of `mttp.Tokens`."""
    position: int
    """Index of the first token that differs, or of the end of the shorter block."""
    first: tuple[float, ...]
    """Up to five values before the position, and five from it on."""
    second: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDifference:
    """One value of a step that differs."""

    what: str
    """observation, action, reward, terminated, truncated, metrics, tokens, calls or missing."""
    first: Any
    second: Any
    token: TokenDifference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedStep:
    """The steps of both episodes with one index; None where an episode has none."""

    index: int
    agent: str | None
    first: Step | None
    second: Step | None
    differences: tuple[StepDifference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Two episodes step by step."""

    first: str
    """Trace id."""
    second: str
    steps: tuple[AlignedStep, ...]

    @property
    def first_difference(self) -> AlignedStep | None:
        """The first step in which the episodes differ; None if they are equal."""
        return next((step for step in self.steps if step.differences), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it; of the steps their differences."""
        from mttp.reading.jsonable import jsonable

        steps = [
            {
                "index": step.index,
                "agent": step.agent,
                "differences": [asdict(difference) for difference in step.differences],
            }
            for step in self.steps
            if step.differences
        ]
        document: dict[str, Any] = jsonable(
            {"equal": not steps, "first": self.first, "second": self.second, "steps": len(self.steps)}
            | {"differences": steps}
        )
        return document

    def __repr__(self) -> str:
        step = self.first_difference
        where = (
            "equal" if step is None else f"first difference at step {step.index}: {step.differences[0].what}"
        )
        return f"<Alignment of {self.first[:8]} and {self.second[:8]}: {where}>"


def align(first: Episode, second: Episode, *, tolerance: float = 1e-6) -> Alignment:
    """
    Put the steps of two episodes with the same index, and the same agent, side by side.

    Numbers are equal within `tolerance`, absolute and relative; token ids must be equal.
    """
    sides = [{(step.agent, step.index): step for step in episode.steps} for episode in (first, second)]
    keys = sorted({*sides[0], *sides[1]}, key=lambda key: (key[1], key[0] or ""))
    return Alignment(
        first=first.trace_id,
        second=second.trace_id,
        steps=tuple(
            AlignedStep(
                index=index,
                agent=agent,
                first=(left := sides[0].get((agent, index))),
                second=(right := sides[1].get((agent, index))),
                differences=tuple(_differences(left, right, tolerance)),
            )
            for agent, index in keys
        ),
    )


def _differences(first: Step | None, second: Step | None, tolerance: float) -> Iterator[StepDifference]:
    if first is None or second is None:
        yield StepDifference(what="missing", first=first is not None, second=second is not None)
        return
    for what in _COMPARED:
        left, right = getattr(first, what), getattr(second, what)
        if not is_close(left, right, tolerance):
            yield StepDifference(what=what, first=left, second=right)
    if (difference := _tokens(first.tokens, second.tokens, tolerance)) is not None:
        yield difference
    calls = [
        [(call.name, from_text(call.arguments), call.result) for call in step.calls]
        for step in (first, second)
    ]
    if not is_close(calls[0], calls[1], tolerance):
        yield StepDifference(what="calls", first=calls[0], second=calls[1])


def _tokens(first: Tokens | None, second: Tokens | None, tolerance: float) -> StepDifference | None:
    if first is None or second is None:
        if first is second:
            return None
        return StepDifference(what="tokens", first=first is not None, second=second is not None)
    sides = first.arrays(), second.arrays()
    for name in Tokens.ARRAYS:
        left, right = (side.get(name) for side in sides)
        if left is None and right is None:
            continue
        if left is None or right is None:
            return StepDifference(what="tokens", first=left is not None, second=right is not None)
        position = _first_difference(left, right, 0.0 if name in Tokens.INTEGER_ARRAYS else tolerance)
        if position is not None:
            around = slice(max(0, position - _AROUND), position + _AROUND)
            token = TokenDifference(
                array=name,
                position=position,
                first=tuple(left[around].tolist()),
                second=tuple(right[around].tolist()),
            )
            return StepDifference(what="tokens", first=len(left), second=len(right), token=token)
    return None


def _first_difference(left: Any, right: Any, tolerance: float) -> int | None:
    shared = min(len(left), len(right))
    equal = np.isclose(left[:shared], right[:shared], rtol=tolerance, atol=tolerance, equal_nan=True)
    if not equal.all():
        return int(np.argmin(equal))
    return None if len(left) == len(right) else shared
