"""The diagnosis of each run of a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from mttp.errors import ReadError, StudyError
from mttp.model.episodes import Run
from mttp.study import Diagnosis, diagnose
from mttp.tables import Database

__all__ = ["ALL_RUNS", "MOST_EPISODES", "Diagnoses", "diagnoses", "not_diagnosed"]

Diagnoses: TypeAlias = "Mapping[str, Diagnosis | str]"
"""Diagnoses by run id, of one run or none under the empty id; a text says why a run was not diagnosed."""
ALL_RUNS: Final = ""
"""The run id of a diagnosis of all, of one run, or of none."""
MOST_EPISODES: Final = 20_000
"""Recordings with more are not diagnosed: that takes longer than the rest of a page."""
_MOST_RUNS: Final = 12


def diagnoses(database: Database, runs: Sequence[Run]) -> Diagnoses:
    """Return the diagnosis of each run."""
    run_ids = [*dict.fromkeys(run.id for run in runs)]
    if len(run_ids) > _MOST_RUNS:
        return {ALL_RUNS: f"the recording has {len(run_ids)} runs; run `mttp diagnose --run ID` on it"}
    if len(run_ids) < 2:
        return {ALL_RUNS: _diagnosed(database, None)}
    return {run_id: _diagnosed(database, run_id) for run_id in run_ids}


def not_diagnosed(count: int) -> Diagnoses:
    """Return why a recording with so many episodes is not diagnosed."""
    return {ALL_RUNS: f"the recording has {count:,} episodes; run `mttp diagnose` on it"}


def _diagnosed(database: Database, run: str | None) -> Diagnosis | str:
    try:
        return diagnose(database, run=run)
    except (ReadError, StudyError) as error:
        return str(error)
