"""The findings of a check as values; ids and levels follow `weaver registry live-check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from mttp.reading import Problem
from mttp.reading.jsonable import to_json

__all__ = ["LEVELS", "Example", "Finding", "Findings", "Id", "Issue", "Level", "Place", "Register"]

Level: TypeAlias = Literal["violation", "improvement", "information"]
"""Severity of a finding."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""All levels, worst first."""

Id: TypeAlias = Literal[
    "required_attribute_not_present",
    "conditionally_required_attribute_not_present",
    "entity_required_attribute_not_present",
    "type_mismatch",
    "undefined_enum_variant",
    "deprecated",
    "missing_attribute",
    "illegal_namespace",
    "invalid_format",
    "unexpected_attribute",
    "missing_span",
    "kind_mismatch",
    "missing_parent",
    "unexpected_parent",
    "schema_url_mismatch",
    "recorded_fault",
    "grading_failed",
    "total_includes_failed_component",
]
"""Ids of findings; `docs/checking.md` explains each."""

SignalType: TypeAlias = Literal["span", "resource", "instrumentation_scope"]
"""Kind of signal that a finding concerns."""


class Issue(NamedTuple):
    """One issue of one span, resource or scope."""

    id: Id
    """Id of the issue."""
    level: Level
    """Severity."""
    message: str
    """Description, for people."""
    attribute: str | None = None
    """Key of the attribute, if the issue concerns one."""
    value: Any = None
    """Value of that attribute."""


class Place(NamedTuple):
    """The location of an issue."""

    signal_type: SignalType
    """span, resource or instrumentation_scope."""
    signal_name: str
    """First word of the span's name, or name of the scope; empty for a resource."""
    trace_id: str
    """Trace id, 32 hex digits."""
    span_id: str
    """Span id, 16 hex digits; for a scope or a resource, of the first span that has it."""


@dataclass(frozen=True, slots=True)
class Example:
    """One occurrence of a finding."""

    trace_id: str
    """Trace id, 32 hex digits."""
    span_id: str
    """Span id, 16 hex digits."""
    value: str | None = None
    """Value of the attribute as JSON, at most 80 characters; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """All issues with equal id, level, message, attribute and signal."""

    id: Id
    """Id of the finding, such as `type_mismatch`; `docs/checking.md` lists all ids."""
    level: Level
    """Severity: violation, improvement or information."""
    message: str
    """Description, for people."""
    signal_type: SignalType
    """span, resource or instrumentation_scope."""
    signal_name: str
    """First word of the spans' name, or name of the scope; empty for a resource."""
    attribute: str | None
    """Key of the attribute; None if the finding concerns none."""
    count: int
    """Number of occurrences; a resource or a scope counts once per line of a file."""
    examples: tuple[Example, ...]
    """The first three occurrences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """
    The result of `mttp.check`; iterating yields the findings, worst first, and `len` is their number.

    A recording without findings has `list(findings) == []`.
    """

    all: list[Finding] = field(default_factory=list)
    """At most 1,000 findings, sorted by level (worst first), id, signal name and message."""
    levels: dict[Level, int] = field(default_factory=dict)
    """Number of issues by level, worst first, without zeros; includes unlisted issues."""
    ids: dict[Id, int] = field(default_factory=dict)
    """Number of issues by id, without zeros; includes unlisted issues."""
    unlisted: int = 0
    """Number of issues that belong to no listed finding."""
    spans: int = 0
    """Number of checked spans of mttp."""
    foreign: int = 0
    """Number of spans of other instrumentations, whose attributes under `mttp` were checked."""
    omissions: dict[str, int] = field(default_factory=dict)
    """How often spans state that each attribute was left out, withheld or redacted, most frequent first."""
    problems: list[Problem] = field(default_factory=list)
    """Problems of the files, such as truncated lines, and of the runs, such as missing episodes."""
    sources: list[Path] = field(default_factory=list)
    """Paths of the files that were read, in order."""

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.all)

    @property
    def faults(self) -> int:
        """Number of faults that the recorder noted."""
        return self.ids.get("recorded_fault", 0)

    @property
    def failed_gradings(self) -> int:
        """Number of failed gradings, and of totals that include a failed component."""
        return self.ids.get("grading_failed", 0) + self.ids.get("total_includes_failed_component", 0)

    def at_least(self, level: Level) -> int:
        """Number of issues of this level or worse."""
        return sum(self.levels.get(each, 0) for each in LEVELS[: LEVELS.index(level) + 1])


class Register:
    """Collects issues: lists at most `LIMIT` different findings and counts further issues."""

    LIMIT = 1000
    EXAMPLES = 3
    _LONGEST = 80

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], tuple[Issue, Place, list[Example]]] = {}
        self._times: Counter[tuple[Any, ...]] = Counter()
        self._levels: Counter[Level] = Counter()
        self._ids: Counter[Id] = Counter()
        self._unlisted = 0
        self.mismatched: set[str | None] = set()
        """Attributes with a value of a wrong type."""

    def add(self, issue: Issue, place: Place) -> None:
        """Add an issue."""
        self._levels[issue.level] += 1
        self._ids[issue.id] += 1
        if issue.id == "type_mismatch":
            self.mismatched.add(issue.attribute)
        key = (*issue[:4], *place[:2])
        if key not in self._found:
            if len(self._found) >= self.LIMIT:
                self._unlisted += 1
                return
            self._found[key] = issue, place, []
        self._times[key] += 1
        examples = self._found[key][2]
        if len(examples) < self.EXAMPLES:
            examples.append(self._example(issue, place))

    def _example(self, issue: Issue, place: Place) -> Example:
        value = None if issue.value is None else to_json(issue.value)
        if value is not None and len(value) > self._LONGEST:
            value = value[: self._LONGEST - 1] + "…"
        return Example(place.trace_id, place.span_id, value)

    def findings(self, **facts: Any) -> Findings:
        """The findings; `facts` are further fields of the result."""
        return Findings(
            all=sorted(map(self._finding, self._found), key=_order),
            levels={level: self._levels[level] for level in LEVELS if self._levels[level]},
            ids={id_: self._ids[id_] for id_ in get_args(Id) if self._ids[id_]},
            unlisted=self._unlisted,
            **facts,
        )

    def _finding(self, key: tuple[Any, ...]) -> Finding:
        issue, place, examples = self._found[key]
        return Finding(
            id=issue.id,
            level=issue.level,
            message=issue.message,
            signal_type=place.signal_type,
            signal_name=place.signal_name,
            attribute=issue.attribute,
            count=self._times[key],
            examples=tuple(examples),
        )


def _order(finding: Finding) -> tuple[Any, ...]:
    """The sort key of a finding: worst first."""
    return LEVELS.index(finding.level), finding.id, finding.signal_name, finding.message
