"""The health of graders: a table, and plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from mttp.model.gradings import OTHER, GraderHealth
from mttp.model.scorings import INVALID_VALUE, MISSING_INPUT, OUT_OF_RANGE
from mttp.pages.blocks import Block, column, table
from mttp.pages.words import count, shares

__all__ = ["documents", "graders_table"]

_STATES: Final = ("partial", "error", "invalid", "abstained", "missing")
_MOST_FAILURES: Final = 3
"""The maximum number of different errors that are listed for each grader."""
_NOT_RAISED: Final = {
    **{kind: f"failed: {kind}" for kind in (INVALID_VALUE, OUT_OF_RANGE, MISSING_INPUT)},
    OTHER: "failed",
}
_SCOPES: Final = {"episode": "", "agent": "agents: ", "step": "steps: ", "late": "late: "}


def documents(graders: Sequence[GraderHealth], episodes: int) -> list[dict[str, Any]]:
    """
    Return each grader as an object of plain data.

    `of` is the number of possible scores: for graders of episodes the number of episodes, or of gradings if
    that is larger; for others the number of gradings.
    """
    return [
        {name: getattr(health, name) for name in GraderHealth.__dataclass_fields__}
        | {"failures": [asdict(failure) for failure in health.failures]}
        | {"of": max(episodes, health.gradings) if health.scope == "episode" else health.gradings}
        for health in graders
    ]


def graders_table(graders: Sequence[Mapping[str, Any]]) -> Block | None:
    """Return the documents of graders as a table: scores, failures, and the most frequent errors."""
    columns = [
        *(column("grader"), column("component")),
        column("mean", kind="number", help="of the valid scores"),
        *(column(name, kind="number") for name in ("min", "max")),
        column("valid", kind="number", help="the valid scores, of the possible ones"),
        *(column(state, kind="number") for state in _STATES),
        *(column("pass", kind="number"), column("failed_checks"), column("errors")),
    ]
    rows = [
        (
            *(_whole(health), health["component"], health["mean"], health["min"], health["max"]),
            _share(health["count"], health["of"]),
            *(health[state] or None for state in _STATES),
            f"{verdicts.get('pass', 0):,} of {sum(verdicts.values()):,}" if verdicts else None,
            shares(health["failed_checks"]) if health["failed_checks"] else None,
            "; ".join(_errors(health, graders)),
        )
        for health in graders
        for verdicts in [health["verdicts"]]
    ]
    return table("Health of each grader and component", columns, rows)


def _share(part: int, whole: int) -> str:
    return f"{whole:,}" if part == whole else f"{part:,} of {whole:,}"


def _whole(health: Mapping[str, Any]) -> str:
    return f"{_SCOPES.get(health['scope'], '')}{health['grader'] or 'reward'}"


def _errors(health: Mapping[str, Any], graders: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """
    Yield the most frequent errors: class, message, count and examples.

    Errors are those of the components, not of the totals that lack them.
    """
    if any(other["failures"] and _is_below(other, health) for other in graders):
        return
    noun = health["scope"] if health["scope"] in ("step", "agent") else "completion"
    for failure in health["failures"][:_MOST_FAILURES]:
        kind = failure["error_type"]
        what = ": ".join(filter(None, (_NOT_RAISED.get(kind, f"raised {kind}"), failure["message"])))
        examples = ", ".join(trace_id[:8] for trace_id in failure["raised_by"])
        raised = f", raised by {examples}" if examples else ""
        yield f"{what} ({count(failure['count'], noun)}, first {failure['first'][:8]}){raised}"
    if (more := len(health["failures"]) - _MOST_FAILURES) > 0:
        yield f"{count(more, 'more error')}, listed by --json"


def _is_below(part: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    """Return whether a grader is a component, or the part of a component, of the other."""
    is_same = (part["scope"], part["grader"]) == (whole["scope"], whole["grader"])
    above = f"{whole['component']}." if whole["component"] else ""
    return is_same and part["component"] != whole["component"] and part["component"].startswith(above)
