"""Problems of a recording as values."""

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
    "missing_episodes",
    "unfinished_conversion",
    "store_loss",
    "newer_convention",
    "unknown_convention",
]
"""Kinds of problems; `docs/reading.md` explains each."""


_MAX_MESSAGE = 200
"""Characters of an error message that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """
    One problem of a recording; everything that it does not concern was read.

    `str(problem)` is `file:line: message`, without the parts that are None.
    """

    kind: Kind
    """Kind of the problem, such as `truncated_line`; `docs/reading.md` lists all kinds."""
    message: str
    """Description of the problem, for people."""
    file: str | None = None
    """Path of the file, or address of the trace store; None if the problem concerns no single file."""
    line: int | None = None
    """Line number in the file, from 1; None if unknown."""
    trace_id: str | None = None
    """Trace id, 32 hex digits; None if the problem concerns no single trace."""

    def __str__(self) -> str:
        where = [self.file] if self.file is not None else []
        if self.line is not None:
            where.append(str(self.line))
        return f"{':'.join(where)}: {self.message}" if where else self.message


def undecodable(trace_id: str, error: Exception) -> str:
    """The message for a trace that can't be decoded; a long error message is shortened."""
    text = str(error)
    shortened = text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"
    return f"trace {trace_id} can't be decoded: {type(error).__name__}: {shortened}"


class Problems:
    """
    The problems found so far: at most `LIMIT` per kind and file, further ones are only counted.

    With `strict`, the first problem raises ReadError.
    """

    LIMIT = 1000

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._kept: list[Problem] = []
        self._counts: Counter[tuple[Kind, str | None]] = Counter()

    def add(self, problem: Problem) -> None:
        """Add a problem."""
        if self._strict:
            raise ReadError(str(problem))
        key = (problem.kind, problem.file)
        self._counts[key] += 1
        if self._counts[key] <= self.LIMIT:
            self._kept.append(problem)

    def all(self) -> list[Problem]:
        """The problems in order of discovery; then, per kind and file, the number of further ones."""
        more = [
            Problem(kind=kind, message=f"{count - self.LIMIT:,} more problems of the kind {kind}", file=file)
            for (kind, file), count in self._counts.items()
            if count > self.LIMIT
        ]
        return self._kept + more
