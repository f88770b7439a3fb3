"""Reads partitioned datasets by a query engine: it selects rows and columns, and only those come back."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence, Set
from typing import Any, Protocol

from mttp.errors import ReadError
from mttp.model.spans import SpanRecord
from mttp.reading.engines.address import DatasetAddress
from mttp.reading.engines.failures import readable
from mttp.reading.engines.layout import partition_run
from mttp.semconv import attributes as a

__all__ = ["Engine", "PartitionedDataset"]

_FEW = 1000
"""Largest number of ids that are part of a condition; more are joined."""
_FACTS = {"env": a.ENV_ID, "task": a.TASK_ID, "split": a.TASK_SPLIT}
"""Attributes of episodes by the option that selects by them."""
_NOT_OF_RUNS = (a.EPISODE_ID, a.GROUP_ID, a.ANNOTATION_TARGET_TRACE_ID, a.COMPONENT_NAME)
"""Attributes, any of which a span has that is not about its run as a whole."""


class Engine(Protocol):
    """Reads the spans of a dataset by ibis."""

    unfinished_writes: int
    """Number of writes that have not ended; zero before the first request."""

    def spans(self, runs: Sequence[str]) -> Any:
        """
        Return the table, an ibis expression, with the columns `run` and `date` of its partitions.

        With `runs`, files of other runs whose spans name no episodes of these may be left out.
        """

    def batches(self, expression: Any) -> Iterator[Any]:
        """Yield the rows of an expression as Arrow batches."""

    def cached(self, expression: Any) -> Any:
        """Return an expression that is computed once, since each use of a table opens all of its files."""

    def joinable(self, ids: Sequence[str]) -> Any:
        """Return a table with the column `trace_id` of these ids, an ibis expression."""


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
            self._table()

    @property
    def unfinished(self) -> str | None:
        """A description of what was not written when the dataset was opened, if anything was."""
        count = self._engine.unfinished_writes
        if not count:
            return None
        place = shlex.quote(self.address.place)
        return (
            f"{count} conversion{'' if count == 1 else 's'} to it did not end: episodes may be missing; "
            f"if no conversion is running, `mttp convert {place} NEW --partition` writes what is there to "
            "another dataset, to which the recording can be converted again"
        )

    def records(self, *, arrays: bool = True, traces: Set[str] | None = None) -> Iterator[SpanRecord]:
        """
        Yield the spans of the selected episodes and what is about them, in the order of writing.

        With `traces`, only the spans of these. Raises ReadError if the engine can't read them.
        """
        with readable(self):
            if traces is not None:
                spans = self._of_traces(sorted(traces))
            elif not self.address.selection.is_everything:
                spans = self._of_traces(*self._selected())
            else:
                spans = self._table()
            is_found = False
            for record in self._spans(spans, arrays=arrays):
                is_found = True
                yield record
            if not is_found and traces is None:
                reason = self.unfinished or "check the options of the address"
                raise ReadError(f"{self}: nothing was found; {reason}")

    def _table(self, runs: Sequence[str] = ()) -> Any:
        spans = self._engine.spans(runs)
        return spans.mutate(run=spans.run.fill_null(""))

    def _selected(self) -> tuple[list[str], list[str]]:
        """Return the traces of selected episodes and of what is about them or their runs, and these runs."""
        import ibis

        facts = (a.EPISODE_ID, a.RUN_ID, a.TASK_SLICES, *_NOT_OF_RUNS, *_FACTS.values())
        targets = (a.GROUP_EPISODES, a.ANNOTATION_REJECTED_TRACE_IDS, a.ANNOTATION_TARGET_TRACE_ID)
        columns = dict.fromkeys(("trace_id", "run", "start_time", *facts, *targets))
        spans = self._engine.cached(self._table(self._runs).select(*columns))
        chosen = self._matching(spans)
        lists = [spans[key].unnest() for key in (a.GROUP_EPISODES, a.ANNOTATION_REJECTED_TRACE_IDS)]
        named = (spans[a.ANNOTATION_TARGET_TRACE_ID], *lists)
        about = ibis.union(*(spans.select("trace_id", about=trace_id) for trace_id in named))
        about = about.semi_join(chosen, about.about == chosen.trace_id)
        of_runs = spans.filter(spans[a.RUN_ID].notnull(), *(spans[key].isnull() for key in _NOT_OF_RUNS))
        of_runs = of_runs.semi_join(chosen, "run")
        wanted = ibis.union(*(part.select("trace_id") for part in (chosen, about, of_runs)), distinct=True)
        found = spans.select("trace_id", "run").semi_join(wanted, "trace_id").distinct()
        rows = [row for batch in self._engine.batches(found) for row in batch.to_pylist()]
        return sorted({row["trace_id"] for row in rows}), sorted({row["run"] for row in rows})

    def _matching(self, spans: Any) -> Any:
        """Return trace and run of the episodes that are selected, by the facts in any of their spans."""
        import ibis

        chosen = self.address.selection
        conditions = [spans[a.EPISODE_ID].notnull()]
        if self._runs:
            conditions.append(spans.run.isin(self._runs))
        if chosen.trace:
            conditions.append(spans.trace_id.isin(chosen.trace))
        spans = spans.filter(*conditions)
        facts = {name: spans[key].isin(getattr(chosen, name)) for name, key in _FACTS.items()}
        holds = {name: fact.any() for name, fact in facts.items() if getattr(chosen, name)}
        if chosen.slice:
            slices = spans[a.TASK_SLICES]
            holds["slice"] = ibis.or_(*(slices.contains(name) for name in chosen.slice)).any()
        if chosen.since is not None:
            holds["since"] = spans.start_time.min() >= chosen.since
        if chosen.until is not None:
            holds["until"] = spans.start_time.min() < chosen.until
        episodes = spans.group_by("trace_id").agg(run=spans.run.max(), **holds)
        if holds:
            episodes = episodes.filter(*(episodes[name] for name in holds))
        return episodes.select("trace_id", "run")

    def _of_traces(self, traces: Sequence[str], runs: Sequence[str] = ()) -> Any:
        """Return the spans of these traces, in the partitions of these runs, by default of all."""
        spans = self._table(runs)
        if runs:
            spans = spans.filter(spans.run.isin(runs))
        if len(traces) <= _FEW:
            return spans.filter(spans.trace_id.isin(traces))
        return spans.semi_join(self._engine.joinable(traces), "trace_id")

    def _spans(self, spans: Any, *, arrays: bool) -> Iterator[SpanRecord]:
        from mttp.reading import parquet

        names = parquet.span_columns(spans.schema().to_pyarrow(), arrays=arrays)
        for batch in self._engine.batches(spans.order_by("position").select(*names)):
            yield from parquet.spans_of(batch, arrays=arrays)
