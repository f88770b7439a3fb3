"""The values that a probe sends, each in its own trace, so that losing one loses no other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mttp.model import ids
from mttp.model.spans import Link, Scope, SpanEvent, SpanRecord
from mttp.model.version import __version__
from mttp.semconv import SCHEMA_URL
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["KEY", "SERVICE", "ProbeCase", "every_case"]

SERVICE = "mttp-probe"
"""A service of its own: Jaeger lists no traces of a service while one of them has NaN."""
KEY = f"{a.METADATA}.probe"
"""Key of the attribute with the case's value."""
MANY_SPANS = 2000
MANY_ATTRIBUTES = 200
LARGE_SPANS = 30
LARGE_DOUBLES = 19_000
"""Doubles per large span, about 200 kB each and 6 MB in total."""


@dataclass(frozen=True, slots=True)
class ProbeCase:
    """One value that is sent, and the spans that carry it."""

    name: str
    """Short description."""
    spans: list[SpanRecord]
    """Spans of the trace, the root last."""

    @property
    def trace_id(self) -> str:
        """Trace id, 32 hex digits."""
        return self.spans[-1].trace_id


def every_case(run_id: str, now: int) -> Iterator[ProbeCase]:
    """All cases, as spans that end at `now`, in nanoseconds since the Unix epoch."""
    for name, value in _VALUES.items():
        yield ProbeCase(name, [_span(run_id, now, {KEY: value})])
    many = {f"{KEY}_{number}": number for number in range(MANY_ATTRIBUTES)}
    yield ProbeCase(f"{MANY_ATTRIBUTES} attributes", [_span(run_id, now, many)])
    yield _framed(run_id, now)
    yield ProbeCase(f"{MANY_SPANS:,} steps", _steps(run_id, now, MANY_SPANS, {a.STEP_REWARD: 0.5}))
    doubles = np.random.default_rng(0).random(LARGE_DOUBLES)
    yield ProbeCase("a trace of 6 MB", _steps(run_id, now, LARGE_SPANS, {KEY: doubles}))


_VALUES: dict[str, Any] = {
    "short text": "right",
    "text of 1 kB": "x" * 1000,
    "text of 4 kB": "x" * 4000,
    "text of 64 kB": "x" * 64_000,
    "text of 1 MB": "x" * 1_000_000,
    "unicode": "ü 日本 🎲 \u202eright to left\u202c \u0301",
    "empty text": "",
    "text that is a number": "7",
    "text that is JSON": '{"answer":[1,2.5,null]}',
    "text with a huge integer": '{"big":1180591620717411303424}',
    "true": True,
    "double": 0.1,
    "int64, largest": 2**63 - 1,
    "int64, smallest": -(2**63),
    "integer beyond 2^53": 2**53 + 1,
    "NaN": math.nan,
    "infinity": math.inf,
    "array with NaN": np.array([0.5, math.nan]),
    "bytes": bytes(range(16)),
    "nested map": {"grid": [[1, 2], [3, 4]], "text": "hi", "none": None},
    "list of several kinds": [1, 2.5, True, "x"],
    "list of lists": [[1, 2], [3, 4]],
    "empty list": [],
    "array of texts": ["a", "b", "日本"],
    "10 integers": np.arange(10),
    "1,000 integers": np.arange(1000),
    "10,000 integers": np.arange(10_000),
    "100,000 integers": np.arange(100_000),
    "1,000 doubles": np.arange(1000) / 7,
}


def _span(run_id: str, now: int, values: Mapping[str, Any]) -> SpanRecord:
    """The root of a trace: an episode of 1,000,123 nanoseconds."""
    trace_id = f"{ids.trace_id():032x}"
    return SpanRecord(
        trace_id=trace_id,
        span_id=f"{ids.span_id():016x}",
        name=f"{names.EPISODE} probe",
        start_time=now - 1_000_123,
        end_time=now,
        attributes={a.RUN_ID: run_id, a.EPISODE_ID: trace_id, **values},
        scope=_scope(run_id),
    )


def _scope(run_id: str) -> Scope:
    resource = {a.SERVICE_NAME: SERVICE, a.RUN_ID: run_id}
    return Scope(name="mttp", version=__version__, schema_url=SCHEMA_URL, resource=resource)


def _framed(run_id: str, now: int) -> ProbeCase:
    """A case for the parts of a span besides its attributes."""
    root = _span(run_id, now, {KEY: "frame"})
    event = SpanEvent("exception", now - 1000, {a.EXCEPTION_MESSAGE: "odd"})
    link = Link(f"{ids.trace_id():032x}", f"{ids.span_id():016x}", {KEY: 1})
    child = replace(
        root,
        span_id=f"{ids.span_id():016x}",
        parent_id=root.span_id,
        name="chat probe",
        kind=3,
        status_code=2,
        status_message="it failed",
        events=(event,),
        links=(link,),
    )
    return ProbeCase("kind, status, event, link, times, scope", [child, root])


def _steps(run_id: str, now: int, count: int, values: Mapping[str, Any]) -> list[SpanRecord]:
    root = _span(run_id, now, {a.EPISODE_STEP_COUNT: count, a.EPISODE_SPAN_COUNT: count + 1})
    steps = [
        replace(
            root,
            span_id=f"{ids.span_id():016x}",
            parent_id=root.span_id,
            name=names.STEP,
            attributes={a.RUN_ID: run_id, a.EPISODE_ID: root.trace_id, a.STEP_INDEX: number, **values},
        )
        for number in range(count)
    ]
    return [*steps, root]
