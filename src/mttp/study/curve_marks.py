"""What is marked on learning curves: findings of a diagnosis, and new versions of the policy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from mttp.study.diagnosis import Diagnosis
from mttp.study.learning_curves import Axis, Columns, Timeline, columns_of
from mttp.tables import Database

MarkKind: TypeAlias = Literal["finding", "policy"]
_MOST_VERSIONS: Final = 12
"""Largest number of policy versions of a run that are marked; of more, some at even distances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveMark:
    """Something that happened in a run, and where that is on each axis."""

    run: str
    """The id of the run."""
    kind: MarkKind
    name: str
    """A label of a few words."""
    text: str
    """The evidence of a finding; the number of a version among all."""
    severity: str = ""
    """That of a finding."""
    update: int | None = None
    """The index of the update that made the version."""
    places: Mapping[Axis, float]
    """The place on each axis."""

    def to_dict(self) -> dict[str, Any]:
        """Return the mark as plain data."""
        return asdict(self)


def marks_of(database: Database, diagnoses: Mapping[str, Diagnosis | str]) -> tuple[CurveMark, ...]:
    """Return the marks of the runs of a database; `diagnoses` are by run id."""
    episodes, updates = columns_of(database, "NULL", "policy_version_after")
    names = ("run_id", "index", "policy_version_after")
    rows = [
        dict(zip(names, row, strict=True))
        for row in zip(*(updates[name].tolist() for name in names), strict=True)
    ]
    return tuple(curve_marks(Timeline(episodes, updates), episodes, rows, diagnoses))


def curve_marks(
    timeline: Timeline,
    episodes: Columns,
    updates: Sequence[Mapping[str, Any]],
    diagnoses: Mapping[str, Diagnosis | str],
) -> list[CurveMark]:
    """
    Return the marks of runs, those of findings first.

    `episodes` and `updates` are those of the timeline: columns with `run_id` and `trace_id`, and rows with
    `run_id`, `index` and `policy_version_after`. `diagnoses` are by run id; that of an empty id is of the
    only run. A finding is at the first of its example episodes; one without any is at the end of its run,
    since it is about the last part of it.
    """
    rows = {trace_id: row for row, trace_id in enumerate(episodes["trace_id"].tolist())}
    run_ids = episodes["run_id"].tolist()
    last = {run_id: row for row, run_id in enumerate(run_ids)}
    marks = []
    for run_id, diagnosis in diagnoses.items():
        for finding in () if isinstance(diagnosis, str) else diagnosis.findings:
            examples = [rows[trace_id] for trace_id in finding.episodes if trace_id in rows]
            row = min(examples) if examples else last.get(run_id, len(run_ids) - 1)
            if row >= 0:
                mark = CurveMark(
                    run=run_ids[row],
                    kind="finding",
                    name=finding.kind.replace("_", " "),
                    text=finding.evidence,
                    severity=finding.severity,
                    places=timeline.places(row),
                )
                marks.append(mark)
    return [*marks, *_versions(timeline, updates)]


def _versions(timeline: Timeline, updates: Iterable[Mapping[str, Any]]) -> Iterator[CurveMark]:
    """Yield the versions of the policy of each run, at the updates that made them."""
    changes: dict[str, dict[str, tuple[int, Mapping[str, Any]]]] = {}
    for row, update in enumerate(updates):
        version = update["policy_version_after"]
        if isinstance(version, str):  # a number is NaN where there is none
            changes.setdefault(update["run_id"], {}).setdefault(version, (row, update))
    for run_id, versions in changes.items():
        stride = -(-len(versions) // _MOST_VERSIONS)
        for number, (version, (row, update)) in enumerate(versions.items(), 1):
            if number % stride == 0:
                yield CurveMark(
                    run=run_id,
                    kind="policy",
                    name=f"policy {version}",
                    text=f"version {number:,} of {len(versions):,}",
                    update=None if math.isnan(update["index"]) else int(update["index"]),
                    places=timeline.places(row, of_updates=True),
                )
