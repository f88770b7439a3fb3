"""What is wrong with a recording, as values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mttp.errors import ReadError

__all__ = ["Kind", "Problem", "Problems", "undecodable"]

Kind: TypeAlias = Literal[
    "broken_line",
    "broken_span",
    "wrong_type",
    "deep_value",
    "broken_message",
    "other_message",
    "unwritable_span",
    "truncated_line",
    "cut_stream",
    "damaged_file",
    "unverified_file",
    "not_traces",
    "empty_file",
    "unfinished_episode",
    "incomplete_episode",
    "broken_trace",
    "conflicting_spans",
    "conflicting_updates",
    "incomplete_group",
    "unknown_target",
    "unfinished_evaluation",
    "incomplete_evaluation",
    "lost_spans",
    "store_loss",
    "newer_convention",
]
"""What a problem is, in one word; `docs/reading.md` explains each."""


_SHOWN = 200
"""Characters of an error's message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with a recording; whatever it does not touch was read."""

    kind: Kind
    """What it is."""
    message: str
    """What happened, in a sentence."""
    file: str | None = None
    """The file that it is in, or the trace store."""
    line: int | None = None
    """The line of that file, from 1."""
    trace_id: str | None = None
    """The episode's trace, where it is about one."""

    def __str__(self) -> str:
        where = [self.file] if self.file is not None else []
        if self.line is not None:
            where.append(str(self.line))
        return f"{':'.join(where)}: {self.message}" if where else self.message


def undecodable(trace_id: str, error: Exception) -> str:
    """The message for a trace that can't be decoded; an error that quotes a whole array is shortened."""
    said = str(error)
    shortened = said if len(said) <= _SHOWN else f"{said[:_SHOWN]}…"
    return f"trace {trace_id} can't be decoded: {type(error).__name__}: {shortened}"


class Problems:
    """
    The problems found so far: at most `LIMIT` of a kind per file, the rest only counted.

    When reading strictly the first one raises ReadError.
    """

    LIMIT = 1000

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._kept: list[Problem] = []
        self._counts: Counter[tuple[Kind, str | None]] = Counter()

    def add(self, problem: Problem) -> None:
        """Take note of a problem."""
        if self._strict:
            raise ReadError(str(problem))
        key = (problem.kind, problem.file)
        self._counts[key] += 1
        if self._counts[key] <= self.LIMIT:
            self._kept.append(problem)

    def all(self) -> list[Problem]:
        """The problems in the order in which they were found; then how many more there are."""
        more = [
            Problem(kind=kind, message=f"{count - self.LIMIT:,} more problems of the kind {kind}", file=file)
            for (kind, file), count in self._counts.items()
            if count > self.LIMIT
        ]
        return self._kept + more
