"""
Reads spans from the table that the Collector's exporter for ClickHouse fills.

The table keeps a row per span, and every attribute as text. ClickHouse selects episodes and attributes by
ibis expressions; only their rows come back, with the types of the convention.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache, lru_cache
from typing import Any
from urllib.parse import urlsplit

from mttp.errors import MissingExtra, ReadError
from mttp.model.spans import KEPT_LISTS, Link, Scope, SpanEvent, SpanRecord
from mttp.reading.engines.address import DatasetAddress
from mttp.reading.engines.failures import readable
from mttp.reading.stores.texts import TEXTS, StringLosses, typed
from mttp.semconv import attributes as a
from mttp.semconv import registry
from mttp.semconv import spans as names

__all__ = ["SpanTable"]

TABLE = "otel_traces"
"""The exporter's own name of the table."""
PASSWORD = "CLICKHOUSE_PASSWORD"
"""The variable of the password."""
_BATCH_ROWS = 2_000
_COLUMNS = (
    "Timestamp",
    "TraceId",
    "SpanId",
    "ParentSpanId",
    "TraceState",
    "SpanName",
    "SpanKind",
    "ResourceAttributes",
    "ScopeName",
    "ScopeVersion",
    "SpanAttributes",
    "Duration",
    "StatusCode",
    "StatusMessage",
)
_NESTED = (
    "Events.Timestamp",
    "Events.Name",
    "Events.Attributes",
    "Links.TraceId",
    "Links.SpanId",
    "Links.Attributes",
)
_CONVERTED = ("Timestamp", "Duration", "SpanAttributes", "ResourceAttributes")
_STATUSES = {"ok": 1, "error": 2}
_ABOUT_EPISODES = (names.GROUP, names.ANNOTATE, names.GRADE)
"""Kinds of spans outside of episodes that belong to the episodes that they name, not to the whole run."""
_ARRAYS = frozenset(
    key
    for key, definition in registry.attributes().items()
    if not (definition.is_template or registry.is_scalar(key))
    and key not in {*KEPT_LISTS, a.ANNOTATION_VALUE}
)
"""Attributes that are not fetched where no arrays are wanted."""


class SpanTable:
    """The selected spans of a table; ClickHouse is asked when they are iterated over."""

    def __init__(self, address: DatasetAddress) -> None:
        self.address = address
        self.losses: list[str] = [TEXTS]
        """Descriptions of what the table does not give back."""
        self._connection: Any = None
        self._table: Any = None

    def __repr__(self) -> str:
        return str(self.address)

    def records(self, *, arrays: bool = True, traces: Set[str] | None = None) -> Iterator[SpanRecord]:
        """
        The spans of the selected episodes and what is about them, in the order of their starts.

        With `traces`, only the spans of these. Raises ReadError if ClickHouse can't be asked or has none.
        """
        with readable(self, secret=os.environ.get(PASSWORD, "")):
            spans = self._spans()
            if traces is not None:
                spans = spans.filter(spans.TraceId.isin(sorted(traces)))
            elif not self.address.selection.is_everything:
                spans = _selected(spans, self._matching(spans))
            found, strings = False, StringLosses()
            for row in self._rows(_projected(spans, arrays=arrays)):
                found = True
                record = _record(row)
                self.losses += strings.of(record.attributes)
                yield record
            if not found and traces is None:
                raise ReadError(f"{self}: nothing was found; check the table and the options of the address")

    def check(self) -> None:
        """Raise ReadError unless the table can be read."""
        with readable(self, secret=os.environ.get(PASSWORD, "")):
            self._spans()

    def _spans(self) -> Any:
        """The table, an ibis expression."""
        if self._table is None:
            name = self.address.options.get("table", TABLE)
            found = self._connect().table(name)
            missing = [column for column in (*_COLUMNS, *_NESTED) if column not in found.columns]
            if missing:
                raise ReadError(
                    f"{self}: {name!r} is not a table of the Collector's exporter: it lacks {missing[0]!r}"
                )
            self._table = found
        return self._table

    def _connect(self) -> Any:
        try:
            import ibis
            import ibis.backends.clickhouse
        except ImportError as error:
            purpose = f"reading {self.address}"
            raise MissingExtra(package="clickhouse-connect", extra="clickhouse", purpose=purpose) from error
        parts = urlsplit(self.address.place)
        is_secure = self.address.options.get("tls", "false").lower() in ("true", "1", "yes")
        self._connection = ibis.clickhouse.connect(
            host=parts.hostname,
            port=parts.port or (8443 if is_secure else 8123),
            database=parts.path.strip("/") or "default",
            user=os.environ.get("CLICKHOUSE_USER") or "default",
            password=os.environ.get(PASSWORD, ""),
            secure=is_secure,
            connect_timeout=self.address.timeout,
            send_receive_timeout=self.address.timeout,
        )
        return self._connection

    def _rows(self, expression: Any) -> Iterator[dict[str, Any]]:
        for batch in self._connection.to_pyarrow_batches(expression, chunk_size=_BATCH_ROWS):
            yield from batch.to_pylist()

    def _matching(self, spans: Any) -> Any:
        """Trace and run of the episodes that the selection chooses, by the facts in any of their spans."""
        chosen = self.address.selection
        spans = spans.filter(spans.SpanAttributes.contains(a.EPISODE_ID))
        keys = {"run": a.RUN_ID, "env": a.ENV_ID, "task": a.TASK_ID, "split": a.TASK_SPLIT}
        facts = {
            name: _attribute(spans, key).max() for name, key in (keys | {"slices": a.TASK_SLICES}).items()
        }
        facts["start"] = _functions().toUnixTimestamp64Nano(spans.Timestamp).min()
        episodes = spans.group_by("TraceId").agg(**facts)
        conditions = [episodes[name].isin(wanted) for name in keys if (wanted := getattr(chosen, name))]
        if chosen.trace:
            conditions.append(episodes.TraceId.isin(chosen.trace))
        if chosen.slice:
            conditions.append(_contains_any(_listed(episodes.slices), chosen.slice))
        if chosen.since is not None:
            conditions.append(episodes.start >= chosen.since)
        if chosen.until is not None:
            conditions.append(episodes.start < chosen.until)
        return episodes.filter(*conditions).select("TraceId", "run")


# Expressions.


class _Functions:
    """ClickHouse's functions that ibis does not know."""

    def __init__(self) -> None:
        import ibis
        import ibis.expr.datatypes as dt

        builtin = ibis.udf.scalar.builtin

        @builtin(signature=((dt.timestamp,), dt.int64))
        def toUnixTimestamp64Nano(_): ...  # type: ignore[no-untyped-def] # noqa: N802

        @builtin(signature=((dt.string, dt.string), dt.Array(dt.string)))
        def JSONExtract(_, __): ...  # type: ignore[no-untyped-def] # noqa: N802

        self.toUnixTimestamp64Nano: Any = toUnixTimestamp64Nano
        self.JSONExtract: Any = JSONExtract


@cache
def _functions() -> _Functions:
    return _Functions()


def _attribute(spans: Any, key: str) -> Any:
    """An attribute as text; empty without it."""
    return spans.SpanAttributes.get(key, "")


def _listed(text: Any) -> Any:
    """A list of texts from its JSON."""
    return _functions().JSONExtract(text, "Array(String)")


def _contains_any(items: Any, wanted: Sequence[str]) -> Any:
    import ibis

    return ibis.or_(*(items.contains(name) for name in wanted))


def _selected(spans: Any, chosen: Any) -> Any:
    """The spans of chosen episodes, of what is about them, and of the runs that they belong to."""
    import ibis

    is_late = spans.SpanAttributes.contains(a.ANNOTATION_TARGET_TRACE_ID)
    late = spans.filter(is_late, _attribute(spans, a.ANNOTATION_TARGET_TRACE_ID).isin(chosen.TraceId))
    lists = [_naming(spans, key, chosen) for key in (a.GROUP_EPISODES, a.ANNOTATION_REJECTED_TRACE_IDS)]
    about = ibis.or_(*(spans.SpanName.startswith(name) for name in _ABOUT_EPISODES))
    of_runs = spans.filter(
        ~spans.SpanAttributes.contains(a.EPISODE_ID),
        ~about,
        spans.SpanAttributes.contains(a.RUN_ID),
        _attribute(spans, a.RUN_ID).isin(chosen.run),
    )
    return spans.filter(
        ibis.or_(*(spans.TraceId.isin(one.TraceId) for one in (chosen, late, *lists, of_runs)))
    )


def _naming(spans: Any, key: str, chosen: Any) -> Any:
    """The spans with a chosen trace in the list of an attribute."""
    found = spans.filter(spans.SpanAttributes.contains(key))
    found = found.select("TraceId", named=_listed(_attribute(found, key)).unnest())
    return found.filter(found.named.isin(chosen.TraceId))


def _projected(spans: Any, *, arrays: bool) -> Any:
    """The columns of the spans that are wanted."""
    pairs = spans.SpanAttributes.keys().zip(spans.SpanAttributes.values())
    if not arrays:
        pairs = pairs.filter(lambda pair: ~pair.f1.isin(sorted(_ARRAYS)))
    columns = {
        "start": _functions().toUnixTimestamp64Nano(spans.Timestamp),
        "attributes": pairs,
        "resource": spans.ResourceAttributes.keys().zip(spans.ResourceAttributes.values()),
        "duration": spans.Duration.cast("int64"),
    }
    if arrays:
        columns["event_times"] = spans["Events.Timestamp"].map(_functions().toUnixTimestamp64Nano)
        columns |= {name: spans[name] for name in _NESTED if name != "Events.Timestamp"}
    plain = [name for name in _COLUMNS if name not in _CONVERTED]
    return spans.select(*plain, **columns).order_by("start", "SpanId")


# Rows.


def _record(row: Mapping[str, Any]) -> SpanRecord:
    start = int(row["start"])
    return SpanRecord(
        trace_id=row["TraceId"],
        span_id=row["SpanId"],
        parent_id=row["ParentSpanId"],
        name=row["SpanName"],
        kind=registry.KINDS.get(_word(row["SpanKind"]), 0),
        start_time=start,
        end_time=start + int(row["duration"]),
        status_code=_STATUSES.get(_word(row["StatusCode"]), 0),
        status_message=row["StatusMessage"],
        trace_state=row["TraceState"],
        attributes=_typed(row["attributes"]),
        events=_events(row) if "event_times" in row else (),
        links=_links(row) if "event_times" in row else (),
        scope=_scope(row["ScopeName"], row["ScopeVersion"], _sorted(row["resource"])),
    )


def _word(text: str) -> str:
    """The word of a kind or status: `Internal`, or `SPAN_KIND_INTERNAL` by older exporters."""
    return text.rpartition("_")[2].lower()


def _typed(pairs: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    return typed({pair["f1"]: pair["f2"] for pair in pairs})


def _sorted(pairs: Sequence[Mapping[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((pair["f1"], pair["f2"]) for pair in pairs))


@lru_cache(maxsize=1024)
def _scope(name: str, version: str, resource: tuple[tuple[str, str], ...]) -> Scope:
    """One object per scope and resource, by which readers compare."""
    return Scope(name=name, version=version, resource=typed(dict(resource)))


def _events(row: Mapping[str, Any]) -> list[SpanEvent]:
    rows = zip(row["Events.Name"], row["event_times"], row["Events.Attributes"], strict=True)
    return [SpanEvent(name, int(time), typed(dict(found))) for name, time, found in rows]


def _links(row: Mapping[str, Any]) -> list[Link]:
    rows = zip(row["Links.TraceId"], row["Links.SpanId"], row["Links.Attributes"], strict=True)
    return [Link(trace_id, span_id, typed(dict(found))) for trace_id, span_id, found in rows]
