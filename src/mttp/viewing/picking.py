"""The contents of an overview for the runs that a reader picks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mttp.tables.database import quoted
from mttp.tables.summary import Health
from mttp.viewing.diagnoses import ALL_RUNS
from mttp.viewing.figures import EpisodeDatabase
from mttp.viewing.overview import Contents

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PickedRuns", "contents_of", "of_all_runs"]


@dataclass(frozen=True, slots=True)
class PickedRuns:
    """A database whose table `episodes` has the episodes of some runs only."""

    database: EpisodeDatabase
    run_ids: Sequence[str]

    def rows(self, query: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        return self.database.rows(self._of_runs(query), parameters)

    def arrays(self, query: str) -> dict[str, NDArray[Any]]:
        """Return the columns of a query's result; a number that is null is NaN."""
        return self.database.arrays(self._of_runs(query))

    def _of_runs(self, query: str) -> str:
        run_ids = ", ".join(map(quoted, self.run_ids))
        return f"WITH episodes AS (FROM main.episodes WHERE run_id IN ({run_ids})) {query}"


def of_all_runs(contents: Contents) -> str:
    """Return a sentence of what `contents_of` leaves out; empty if that is nothing."""
    results = {"the comparison with the baseline": contents.comparison, "the gate": contents.gate}
    names = " and ".join(name for name, result in results.items() if result is not None)
    return names and f"Only for all runs: {names}."


def contents_of(contents: Contents, run_ids: Sequence[str], health: Health) -> Contents:
    """Return the contents of these runs; a comparison and a gate are of all runs, and not in them."""
    picked = {*run_ids}
    return replace(
        contents,
        episodes=PickedRuns(contents.episodes, run_ids),
        runs=[run for run in contents.runs if run.id in picked],
        graders=health.graders,
        faults=health.faults,
        verdicts=health.verdicts,
        updates=[row for row in contents.updates if row["run_id"] in picked],
        diagnoses={
            run_id: each for run_id, each in contents.diagnoses.items() if run_id in {*picked, ALL_RUNS}
        },
        comparison=None,
        gate=None,
    )
