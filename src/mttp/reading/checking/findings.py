"""What a check found, as values; ids and levels are those of weaver's live-check, where it has them."""

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
"""How bad a finding is."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""From worst to least."""

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
"""What a finding is; `docs/checking.md` explains each."""

SignalType: TypeAlias = Literal["span", "resource", "instrumentation_scope"]
"""What it is about."""


class Issue(NamedTuple):
    """One thing that is wrong in one place."""

    id: Id
    """What it is."""
    level: Level
    """How bad it is."""
    message: str
    """What is wrong, in a sentence."""
    attribute: str | None = None
    """The attribute that it is about, if any."""
    value: Any = None
    """What that holds."""


class Place(NamedTuple):
    """Where an issue was found."""

    signal_type: SignalType
    """What it is about."""
    signal_name: str
    """The word that the span's name begins with, or the name of the scope; of a resource nothing."""
    trace_id: str
    """The trace, 32 hex digits."""
    span_id: str
    """The span, 16 hex digits; of a scope or a resource the first that was read with it."""


@dataclass(frozen=True, slots=True)
class Example:
    """One place where a finding was made."""

    trace_id: str
    """The trace, 32 hex digits."""
    span_id: str
    """The span, 16 hex digits."""
    value: str | None = None
    """What the attribute holds, as JSON of at most 80 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The same thing wrong in the same way, wherever it is."""

    id: Id
    """What it is."""
    level: Level
    """How bad it is: violation, improvement or information."""
    message: str
    """What is wrong, in a sentence."""
    signal_type: SignalType
    """What it is about: span, resource or instrumentation_scope."""
    signal_name: str
    """The word that the spans' name begins with, or the name of the scope; of a resource nothing."""
    attribute: str | None
    """The attribute that it is about, if any."""
    count: int
    """How many times it was found; a resource or a scope counts once per line of a file."""
    examples: tuple[Example, ...]
    """The first places where it was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything that a check found; iterate over it for the findings, the worst first."""

    all: list[Finding] = field(default_factory=list)
    """The findings, sorted by level, id, and what they are about."""
    levels: dict[Level, int] = field(default_factory=dict)
    """How many times each level was found, worst first; findings that are not listed count too."""
    ids: dict[Id, int] = field(default_factory=dict)
    """How many times each id was found, likewise."""
    unlisted: int = 0
    """How many times something was found after so many different findings that no more were listed."""
    spans: int = 0
    """Spans of ours that were checked."""
    foreign: int = 0
    """Spans of others, of which only the attributes of ours were checked."""
    omissions: dict[str, int] = field(default_factory=dict)
    """How many times spans of ours say of each attribute that it was left out, withheld or redacted."""
    problems: list[Problem] = field(default_factory=list)
    """What is wrong with the files themselves."""
    sources: list[Path] = field(default_factory=list)
    """The files that were read."""

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.all)

    @property
    def faults(self) -> int:
        """How many faults the recorder noted."""
        return self.ids.get("recorded_fault", 0)

    @property
    def failed_gradings(self) -> int:
        """How many gradings failed, and totals include a component that did."""
        return self.ids.get("grading_failed", 0) + self.ids.get("total_includes_failed_component", 0)

    def at_least(self, level: Level) -> int:
        """How many times something of this level, or worse, was found."""
        return sum(self.levels.get(each, 0) for each in LEVELS[: LEVELS.index(level) + 1])


class Register:
    """
    The findings so far: at most `LIMIT` different ones, the rest only counted, so that memory stays bounded.
    """

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
        """Attributes that had a value of a wrong type somewhere."""

    def add(self, issue: Issue, place: Place) -> None:
        """Take note of an issue."""
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
        """What was found, with `facts` about what was read."""
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
    """Where a finding stands: the worst first."""
    return LEVELS.index(finding.level), finding.id, finding.signal_name, finding.message
