"""The table `episodes` of spans that keep arriving."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any, Final

from mttp.codec import kinds, summary_fields
from mttp.model.figures import EpisodeFigures
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.tables.arrow import arrow_tables
from mttp.tables.database import column_types, require_duckdb, rows_of
from mttp.tables.figures import FIGURES, figures_of
from mttp.tables.spans import CONTENT, SPAN_COLUMNS, SpanRows, all_rows, column_type
from mttp.tables.statements import in_order, statement, tables_of

__all__ = ["CHANGED", "GrowingEpisodes"]

_MEMORY: Final = "1GB"
_BATCH: Final = 4_000
"""Number of spans that wait in memory."""
CHANGED: Final = """
    FROM episodes
    WHERE trace_id IN (
        SELECT trace_id FROM parts WHERE coalesce(segment, '') = '' AND found >= recorded
    )
"""
"""The end of a query of the episodes that changed and have a row."""


class GrowingEpisodes:
    """
    The rows of episodes whose spans arrive bit by bit; those that changed are computed again.

    `queries` are those that `changed_tables` will be asked for, and `content` says whether texts are kept.
    Spans are kept on disk.
    An episode has a row once the process that started it has recorded its end.
    """

    def __init__(self, *queries: str, content: bool = False) -> None:
        duckdb = require_duckdb()
        self._folder = TemporaryDirectory(prefix="mttp-growing-")
        self._connection: Any = duckdb.connect(
            f"{self._folder.name}/spans.duckdb", config={"memory_limit": _MEMORY}
        )
        self._tables = in_order(["episodes", "parts", *tables_of(*queries)])
        self._types = column_types(self._tables, queries)
        texts = {name: column_type(name) for name in CONTENT}
        self._loaded = [*self._types, *(texts if content else ())]
        columns = {**SPAN_COLUMNS, **self._types, **texts}
        described = ", ".join(f'"{name}" {type_}' for name, type_ in columns.items())
        self._connection.execute(f"CREATE TABLE history (place BIGINT, {described})")
        self._connection.execute("CREATE TABLE wanted (trace_id VARCHAR)")
        self._connection.execute("CREATE VIEW arrivals AS FROM history SEMI JOIN wanted USING (trace_id)")
        self._count = 0
        self.new = 0
        """Number of spans that arrived since `changed` was called."""
        self._waiting: list[SpanRecord] = []
        self._changed: dict[str, None] = {}
        """Trace ids of the episodes of which something is new, in the order in which it arrived."""
        self._about: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Trace ids of groups and annotations by the episodes that they are about."""
        self._subjects: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Trace ids of these episodes by those of the groups and annotations."""

    def close(self) -> None:
        """Free memory and disk."""
        self._connection.close()
        self._folder.cleanup()

    def add(self, records: Sequence[SpanRecord]) -> None:
        """Add spans, in any order; they may repeat."""
        for record in records:
            self._waiting.append(record)
            for subject in _subjects(record):
                self._about[subject][record.trace_id] = None
                self._subjects[record.trace_id][subject] = None
            for trace_id in (record.trace_id, *self._subjects.get(record.trace_id, ())):
                self._changed.pop(trace_id, None)
                self._changed[trace_id] = None
        self.new += len(records)
        if len(self._waiting) >= _BATCH:
            self._store()

    def changed(self) -> list[EpisodeFigures]:
        """Return the figures that changed since the last call, in the order of their last spans."""
        if not (changed := [*self._changed]):
            return []
        rows = {row.trace_id: row for row in figures_of(self.changed_rows(FIGURES))}
        return [rows[trace_id] for trace_id in changed if trace_id in rows]

    def changed_rows(self, select: str, training: Collection[str] = ()) -> Any:
        """
        Return the rows that changed since the last call as an Arrow table.

        `select` is a query up to its `FROM`; `training` are the ids of the runs that train.
        """
        return self.changed_tables({"episodes": (f"{select} {CHANGED}", None)}, training)["episodes"]

    def changed_tables(
        self, queries: Mapping[str, tuple[str, str | None]], training: Collection[str] = ()
    ) -> dict[str, Any]:
        """
        Return what queries say of the traces that changed since the last call, as Arrow tables.

        A query may have the name of the column with the trace id, of which only those that changed are
        returned. The table `changed` has their ids. `training` are the ids of the runs that train.
        """
        self._store()
        self.new = 0
        changed, self._changed = self._changed, {}
        self._want({*changed, *(about for trace_id in changed for about in self._about.get(trace_id, ()))})
        for table, column, values in (("training", "run_id", training), ("changed", "trace_id", changed)):
            statement = f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT unnest($ids::VARCHAR[]) AS {column}"
            self._connection.execute(statement, {"ids": [*values]})
        self._compute(name for name in self._tables if name != "training")
        restricted = {
            name: query if key is None else f"FROM ({query}) WHERE {key} IN (FROM changed)"
            for name, (query, key) in {**queries, "changed": ("FROM changed", None)}.items()
        }
        return {name: self._connection.sql(query).to_arrow_table() for name, query in restricted.items()}

    @property
    def has_changed(self) -> bool:
        """Whether a span arrived, or `change` was called, since the last call of `changed`."""
        return bool(self._changed)

    def change(self, run_ids: Collection[str]) -> None:
        """Count all episodes of these runs as changed."""
        self._store()
        query = 'SELECT DISTINCT trace_id FROM history WHERE "mttp.run.id" IN (SELECT unnest($runs))'
        self._changed |= dict.fromkeys(row["trace_id"] for row in self.rows(query, {"runs": [*run_ids]}))

    def rows(self, query: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        return rows_of(self._connection, query, parameters)

    def forget(self, trace_ids: Collection[str]) -> None:
        """Free what is kept of episodes that are not wanted again."""
        if trace_ids:
            self._want(trace_ids)
            self._connection.execute("DELETE FROM history WHERE trace_id IN (FROM wanted)")
            for trace_id in trace_ids:
                self._about.pop(trace_id, None)

    def _compute(self, tables: Iterable[str]) -> None:
        """Compute tables of the wanted traces."""
        for table in ("spans", *tables):
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {statement(table)}")

    def _want(self, trace_ids: Collection[str]) -> None:
        self._connection.execute("DELETE FROM wanted")
        self._connection.execute("INSERT INTO wanted SELECT unnest(?::VARCHAR[])", [[*trace_ids]])

    def _store(self) -> None:
        rows = all_rows(self._waiting, SpanRows(self._loaded, unpack=False))
        for table in arrow_tables(rows, place=self._count):
            self._connection.register("batch", table)
            self._connection.execute("INSERT INTO history BY NAME SELECT * FROM batch")
            self._connection.unregister("batch")
            self._count += len(table)
        self._waiting = []


def _subjects(record: SpanRecord) -> Sequence[str]:
    """Return the trace ids of the episodes that a group or an annotation is about."""
    kind = kinds.kind(record)
    if kind == names.GROUP:
        return [*summary_fields.members(record)[1]]
    if kind == names.ANNOTATE:
        return [str(record.attributes.get(a.ANNOTATION_TARGET_TRACE_ID, ""))]
    return ()
