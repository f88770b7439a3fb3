"""Problems of a recording, and its faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mttp.pages.blocks import Block, column, section, table
from mttp.reading.problems import Problem

__all__ = ["problems_section"]

_MOST_ROWS: Final = 200


def problems_section(problems: Sequence[Problem], counts: Mapping[str, int]) -> Block | None:
    """Return problems of the recording, and faults by kind."""
    columns = [column("kind"), column("message"), column("episode", kind="episode")]
    rows = [[problem.kind, str(problem), problem.trace_id] for problem in problems[:_MOST_ROWS]]
    left_out = len(problems) - len(rows)
    more = f"{left_out:,} more are not shown." if left_out else ""
    faults = table(
        "Faults",
        [column("kind"), column("count", kind="number")],
        sorted(counts.items(), key=lambda item: -item[1]),
        "Values that could not be recorded as they were given.",
    )
    return section("problems", "Problems", [table("Problems of the recording", columns, rows, more), faults])
