"""The health of graders as a document, as a table and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from mttp.model.gradings import OTHER, GraderHealth
from mttp.model.scorings import INVALID_VALUE, MISSING_INPUT, OUT_OF_RANGE
from mttp.pages.listing import Listing
from mttp.pages.words import NOTHING, cell, count, number, printed, shares

__all__ = ["documents", "markdown", "notes", "table"]

_STATES = ("partial", "error", "invalid", "abstained", "missing")
_MOST_FAILURES = 3
"""The maximum number of different errors that are listed for each grader."""
_NOT_RAISED = {kind: f"failed: {kind}" for kind in (INVALID_VALUE, OUT_OF_RANGE, MISSING_INPUT)}
_NOT_RAISED[OTHER] = "failed"
_UNITS = {"step": "step", "agent": "agent"}
_SCOPES = {"episode": "", "agent": "agents: ", "step": "steps: ", "late": "late: "}
_FAILED = ("partial", "error", "invalid")
_IMPORTANT = ("grader", "mean", "valid", *_FAILED, "abstained", "missing", "pass", "min", "max")


def documents(graders: Sequence[GraderHealth], episodes: int) -> list[dict[str, Any]]:
    """
    Return each grader as an object of plain data.

    `of` is the number of possible scores: for graders of episodes the number of episodes, or of gradings if
    that is larger; for others the number of gradings.
    """
    return [
        {name: getattr(one, name) for name in GraderHealth.__dataclass_fields__}
        | {"failures": [asdict(failure) for failure in one.failures]}
        | {"of": max(episodes, one.gradings) if one.scope == "episode" else one.gradings}
        for one in graders
    ]


class _Row(NamedTuple):
    name: str
    cells: list[str]


def _columns(graders: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the columns with values."""
    states = [state for state in _STATES if any(one[state] for one in graders)]
    verdicts = ["pass"] if any(one["verdicts"] for one in graders) else []
    return ["mean", "min", "max", "valid", *states, *verdicts]


def _rows(graders: Sequence[Mapping[str, Any]]) -> Iterator[_Row]:
    columns = _columns(graders)
    above = None
    for one in graders:
        whole = one["scope"], one["grader"]
        if one["component"] and whole != above:
            yield _Row(_whole(one), [""] * len(columns))
        above = whole
        yield _Row(f"  {one['component']}" if one["component"] else _whole(one), _cells(one, columns))


def _whole(one: Mapping[str, Any]) -> str:
    return f"{_SCOPES.get(one['scope'], '')}{one['grader'] or 'reward'}"


def _cells(one: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    found = {name: number(one[name]) for name in ("mean", "min", "max")}
    found["valid"] = f"{one['count']:,} of {one['of']:,}" if one["count"] != one["of"] else f"{one['of']:,}"
    found |= {state: f"{one[state]:,}" if one[state] else NOTHING for state in _STATES}
    verdicts = one["verdicts"]
    found["pass"] = f"{verdicts.get('pass', 0):,} of {sum(verdicts.values()):,}" if verdicts else NOTHING
    return [found[name] for name in columns]


def notes(graders: Sequence[Mapping[str, Any]]) -> list[str]:
    """
    Return lines with the errors and the failed checks of each grader.

    Errors are those of the components, not of the totals that lack them.
    """
    lines: list[str] = []
    for one in graders:
        if not any(other["failures"] and _is_below(other, one) for other in graders):
            lines += _failures(one)
        if one["failed_checks"]:
            lines.append(f"failed checks of {_whole(one)}: {shares(one['failed_checks'])}")
    return lines


def _is_below(part: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    """Return whether a grader is a component, or the part of a component, of the other."""
    is_same = (part["scope"], part["grader"]) == (whole["scope"], whole["grader"])
    above = f"{whole['component']}." if whole["component"] else ""
    return is_same and part["component"] != whole["component"] and part["component"].startswith(above)


def _failures(one: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each of the most frequent errors: class, message, count and examples."""
    above = f"{_SCOPES.get(one['scope'], '')}{one['grader']}".removesuffix(": ")
    name = _whole(one)
    if one["component"]:
        name = f"{above}: {one['component']}" if above else one["component"]
    for failure in one["failures"][:_MOST_FAILURES]:
        kind = failure["error_type"]
        what = _NOT_RAISED.get(kind, f"raised {kind}")
        text = ": ".join(filter(None, (what, failure["message"])))
        samples = count(failure["count"], _UNITS.get(one["scope"], "completion"))
        raised = f", raised by {', '.join(shown)}" if (shown := [*map(_short, failure["raised_by"])]) else ""
        yield f"{name} {text} ({samples}, first {_short(failure['first'])}){raised}"
    if (more := len(one["failures"]) - _MOST_FAILURES) > 0:
        yield f"{name}: {count(more, 'more error')}, listed by --json"


def _short(trace_id: str) -> str:
    return trace_id[:8]


def table(graders: Sequence[Mapping[str, Any]]) -> Listing:
    """Return the graders as a table, with their errors and failed checks below."""
    columns = _columns(graders)
    rows = []
    for row in _rows(graders):
        cells = zip(columns, row.cells, strict=True)
        texts = {name: printed(text or NOTHING, style=_style(name, text)) for name, text in cells}
        rows.append({"grader": printed(row.name), **texts})
    lines = [printed(line).plain for line in notes(graders)]
    return Listing(rows=rows, important=_IMPORTANT, right=columns, notes=lines)


def _style(column: str, text: str) -> str:
    return "red" if column in _FAILED and text not in ("", NOTHING) else ""


def markdown(graders: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table of graders as lines of Markdown."""
    columns = _columns(graders)
    lines = [f"| grader | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    lines += [f"| {cell(row.name.strip())} | {' | '.join(row.cells)} |" for row in _rows(graders)]
    items = [f"- {cell(line)}" for line in notes(graders)]
    return [*lines, *([""] if items else []), *items]
