"""Compares what the tables load from files with what they load from its spans."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reading.traces import write
from released import Held

import mttp
from mttp.reading import parquet
from mttp.semconv import registry
from mttp.tables import Database
from mttp.tables.spans import CONTENT, DERIVED, needs_arrays

__all__ = ["assert_converted", "loaded"]


_COLUMNS = [
    column for column in (*DERIVED.keys() - CONTENT, *registry.attributes()) if not needs_arrays([column])
]


def assert_converted(source: Any) -> None:
    """Check that the spans of a source, written as Parquet and as lines, load as these spans do."""
    spans = Held([*mttp.scan(source, arrays=True)])
    with TemporaryDirectory() as folder:
        path = Path(folder, "converted.parquet")
        parquet.write(path, spans.records())

        assert loaded(spans) == loaded(path)
        assert loaded(spans) == loaded(write(Path(folder, "converted.jsonl"), spans.records(), per_line=3))


def loaded(source: Any) -> dict[str, Any]:
    """Return the rows of spans with all columns but those of arrays, the spans of runs, and the problems."""
    with Database(source) as database:
        database.prepare("SELECT {} FROM episodes".format(", ".join(f'"{column}"' for column in _COLUMNS)))
        rows = database.rows("SELECT * FROM spans ORDER BY place")
        return {
            "rows": [repr(sorted(row.items())) for row in rows],
            "runs": database._run_records,
            "problems": [(problem.kind, problem.message) for problem in database.problems],
        }
