"""
Reads partitioned datasets by a query engine: it selects rows and columns, and only those come back.

What makes an episode's figures of its spans is not repeated here: rows hold digests, which were made when the
spans were written, and `SpanAggregator` merges them as it does those of a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from mttp.errors import ReadError
from mttp.model.spans import SpanRecord
from mttp.reading.engines.address import DatasetAddress
from mttp.reading.engines.failures import readable
from mttp.reading.engines.layout import EPISODES, REST, SPANS, partition_run

if TYPE_CHECKING:
    from mttp.reading.group_digest import GroupDigest

__all__ = ["Engine", "PartitionedDataset"]

_FEW = 1000
"""Largest number of ids that are part of a condition; more are joined."""
_CUT_SHORT = re.compile(
    r"No magic bytes found at end of file '(?P<one>[^']+)'|File '(?P<other>[^']+)' too small"
)
"""What DuckDB says of a Parquet file without its end."""
_NAMED = 3
"""Largest number of runs that a message names."""


class Engine(Protocol):
    """Reads the tables of a dataset by ibis."""

    unfinished_writes: int
    """Number of writes that have not ended; zero before the first table."""
    lacking_digests: list[str]
    """Runs of which files of digests are missing; empty before the first table."""

    def table(self, name: str, runs: Sequence[str]) -> Any:
        """
        The table, an ibis expression, with the columns `run` and `date` of its partitions.

        With `runs`, partitions of other runs may be left out.
        """

    def batches(self, expression: Any) -> Iterator[Any]:
        """The rows of an expression as Arrow batches."""

    def joinable(self, ids: Sequence[str]) -> Any:
        """A table with the column `trace_id` of these ids, an ibis expression."""


class PartitionedDataset:
    """The selected episodes of a dataset; the engine is asked when they are iterated over."""

    def __init__(self, address: DatasetAddress, engine: Engine) -> None:
        self.address = address
        self._engine = engine
        self._runs = tuple(map(partition_run, address.selection.run))

    def __repr__(self) -> str:
        return str(self.address)

    def check(self) -> None:
        """Raise ReadError unless there is a dataset that can be read."""
        with readable(self):
            self._table(EPISODES)

    @property
    def unfinished(self) -> str | None:
        """A description of what was not written, or is gone, when the dataset was opened, if anything was."""
        count, runs = self._engine.unfinished_writes, self._engine.lacking_digests
        found = [f"{_counted(count, 'conversion')} to it did not end"] if count else []
        if runs:
            named = ", ".join(map(repr, runs[:_NAMED])) + (", …" if len(runs) > _NAMED else "")
            found.append(f"digest files are missing for {_counted(len(runs), 'run')} ({named})")
        if not found:
            return None
        return f"{'; '.join(found)}: episodes may be missing; if no conversion is running, {self._remedy()}"

    def _remedy(self) -> str:
        place = shlex.quote(self.address.place)
        return f"`mttp convert {place} NEW --partition` writes its spans to another dataset, with digests"

    def digests(self, *, figures: bool) -> Iterator[GroupDigest | str]:
        """
        Digests of the episodes, then of all other spans, in the order in which they were written.

        A trace id stands for spans that no digest can hold. Raises ReadError if the engine can't read them.
        """
        with self._readable_digests():
            episodes = self._table(EPISODES, self._runs)
            columns = ["trace_id", "version", "digest", *(["figures"] if figures else [])]
            found = False
            for row in self._rows(self._matching(episodes), columns):
                found = True
                yield self._digest(row)
            rest = self._table(REST)
            if not self.address.selection.is_everything:
                rest = rest.semi_join(self._traces(), "trace_id")
            for row in self._rows(rest, columns[:3]):
                found = True
                yield self._digest(row)
            self._check_found(found)

    def records(self, *, arrays: bool = True, traces: Set[str] | None = None) -> Iterator[SpanRecord]:
        """
        The spans of the selected episodes and what is about them, in the order in which they were written.

        With `traces`, only the spans of these.
        """
        with readable(self):
            if traces is not None:
                spans = self._of_traces(sorted(traces))
            elif not self.address.selection.is_everything:
                spans = self._of_traces(*self._selected())
            else:
                spans = self._table(SPANS)
            found = False
            for record in self._spans(spans, arrays=arrays):
                found = True
                yield record
            self._check_found(found or traces is not None)

    # Expressions.

    def _table(self, name: str, runs: Sequence[str] = ()) -> Any:
        table = self._engine.table(name, runs)
        return table.mutate(run=table.run.fill_null(""))

    def _rows(self, table: Any, columns: list[str]) -> Iterator[dict[str, Any]]:
        for batch in self._engine.batches(table.order_by("position").select(*columns)):
            yield from batch.to_pylist()

    def _matching(self, table: Any) -> Any:
        """The rows of a table of episodes that the selection chooses."""
        import ibis

        chosen = self.address.selection
        columns = {"run": self._runs, "env": chosen.env, "task": chosen.task, "split": chosen.split}
        columns["trace_id"] = chosen.trace
        found = [table[name].isin(wanted) for name, wanted in columns.items() if wanted]
        if chosen.slice:
            found.append(ibis.or_(*(table.slices.contains(name) for name in chosen.slice)))
        if chosen.since is not None:
            found.append(table.start_time >= chosen.since)
        if chosen.until is not None:
            found.append(table.start_time < chosen.until)
        return table.filter(*found) if found else table

    def _traces(self) -> Any:
        """Trace ids of the selected episodes, of what is about them, and of the runs that they belong to."""
        import ibis

        episodes, rest = self._table(EPISODES, self._runs), self._table(REST)
        parts = rest.filter(rest.is_episode).anti_join(episodes, "trace_id")
        start = parts.start_time.min().over(ibis.window(group_by="trace_id"))
        whole, parts = self._matching(episodes), self._matching(parts.mutate(start_time=start))
        chosen = whole.select("trace_id", "run").union(parts.select("trace_id", "run"), distinct=True)
        late = rest.select("trace_id", about=rest.about.unnest())
        late = late.semi_join(chosen, late.about == chosen.trace_id)
        of_runs = rest.filter(rest.is_of_run).semi_join(chosen, "run")
        return chosen.select("trace_id").union(
            late.select("trace_id"), of_runs.select("trace_id"), distinct=True
        )

    def _selected(self) -> tuple[list[str], list[str]]:
        """The selected traces, and the runs of their partitions."""
        chosen = self._traces()
        tables = [self._table(name).select("trace_id", "run") for name in (EPISODES, REST)]
        found = tables[0].union(tables[1]).semi_join(chosen, "trace_id").distinct()
        rows = [row for batch in self._engine.batches(found) for row in batch.to_pylist()]
        return sorted({row["trace_id"] for row in rows}), sorted({row["run"] for row in rows})

    def _of_traces(self, traces: Sequence[str], runs: Sequence[str] = ()) -> Any:
        """The spans of these traces, in the partitions of these runs, by default of all."""
        spans = self._table(SPANS, runs)
        if runs:
            spans = spans.filter(spans.run.isin(runs))
        if len(traces) <= _FEW:
            return spans.filter(spans.trace_id.isin(traces))
        return spans.semi_join(self._engine.joinable(traces), "trace_id")

    # Rows.

    @contextmanager
    def _readable_digests(self) -> Iterator[None]:
        """Raise ReadError for any exception; for a file that was cut short, with how it is made again."""
        try:
            with readable(self):
                yield
        except ReadError as error:
            cut = _CUT_SHORT.search(str(error.__cause__))
            if cut is None:
                raise
            raise ReadError(
                f"{self}: {cut['one'] or cut['other']} was cut short; {self._remedy()}"
            ) from error

    def _spans(self, spans: Any, *, arrays: bool) -> Iterator[SpanRecord]:
        from mttp.reading import parquet

        names = parquet.span_columns(spans.schema().to_pyarrow(), arrays=arrays)
        for batch in self._engine.batches(spans.order_by("position").select(*names)):
            yield from parquet.spans_of(batch, arrays=arrays)

    def _digest(self, row: dict[str, Any]) -> GroupDigest | str:
        from mttp.reading import group_digest

        if row["version"] != group_digest.VERSION:
            raise ReadError(
                f"{self}: its digests have version {row['version']}, mttp here reads {group_digest.VERSION}; "
                f"{self._remedy()}"
            )
        if not row["digest"]:
            return str(row["trace_id"])
        digest = group_digest.decode(row["digest"])
        if row.get("figures") is not None:
            figures = group_digest.decode_figures(row["figures"])
            return digest._replace(summaries=[one._replace(figures=figures) for one in digest.summaries])
        return digest

    def _check_found(self, found: bool) -> None:
        if not found:
            reason = self.unfinished or "check the options of the address"
            raise ReadError(f"{self}: nothing was found; {reason}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
