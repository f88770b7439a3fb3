"""Spans as plain records, which all readers return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from typing import Any, Final

from mttp.semconv import attributes as a
from mttp.semconv.registry import NO_SCALAR, is_scalar
from mttp.semconv.translation import earlier_names

__all__ = [
    "KEPT_LISTS",
    "SCORE_COLUMN",
    "Draft",
    "Link",
    "Scope",
    "SpanEvent",
    "SpanRecord",
    "frozen",
    "kept_columns",
    "without_arrays",
]

_KEPT_LISTS = frozenset(
    {
        a.FAULTS,
        f"{a.STEPS_COLUMN}.{a.FAULTS}",
        a.OMISSIONS,
        f"{a.STEPS_COLUMN}.{a.OMISSIONS}",
        a.REWARD_FAILED_CHECKS,
        a.TASK_SLICES,
        a.ENV_WRAPPERS,
        a.GROUP_EPISODES,
        a.GROUP_ADVANTAGES,
        a.RUN_PACKAGES,
        a.RUN_ACCELERATORS,
        a.SPEC_DOCUMENTS,
        a.ANNOTATION_REJECTED_TRACE_IDS,
    }
)

KEPT_LISTS: Final = _KEPT_LISTS | earlier_names(_KEPT_LISTS)
"""
Lists that are kept when arrays are dropped, because summaries, studies and selections need their items.

They include the names that these lists had in earlier versions.
"""

SCORE_COLUMN: Final = f"{a.STEPS_COLUMN}.{a.REWARD_SCORE}."
"""The beginning of the columns of reward components."""

_KEPT_COLUMNS = (
    SCORE_COLUMN,
    *(f"{a.STEPS_COLUMN}.{key}" for key in (a.STEP_REWARD, a.REWARD_COMPONENT_NAME)),
)


def kept_columns(keys: Iterable[str]) -> list[str]:
    """Return the columns of rewards and components, which are kept, too, if there is one of a component."""
    columns = [key for key in keys if key.startswith(_KEPT_COLUMNS)]
    return columns if any(key.startswith(SCORE_COLUMN) for key in columns) else []


class _Referable:
    """Can be referred to weakly, which dataclasses with slots cannot before Python 3.11."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True)
class Scope(_Referable):
    """The instrumentation scope and the resource of a span."""

    name: str = ""
    """The name of the scope."""
    version: str = ""
    """The version of the scope."""
    schema_url: str = ""
    """The schema URL of the scope's spans."""
    resource: Mapping[str, Any] = field(default_factory=dict)
    """The attributes of the resource."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """The attributes of the scope."""
    resource_schema_url: str = ""
    """The schema URL of the resource."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event of a span."""

    name: str
    time: int
    attributes: Mapping[str, Any]
    dropped_attributes: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """A link from a span to another."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, Any]
    flags: int = 0
    dropped_attributes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRecord:
    """A recorded span; ids are lower-case hex, times nanoseconds since the Unix epoch."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    """Empty for a root."""
    name: str
    kind: int = 1
    """The span kind as in OTLP: 1 internal, 2 server, 3 client, 4 producer, 5 consumer."""
    start_time: int = 0
    end_time: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    status_code: int = 0
    """0 unset, 1 ok, 2 error."""
    status_message: str = ""
    events: Sequence[SpanEvent] = ()
    links: Sequence[Link] = ()
    trace_state: str = ""
    flags: int = 0
    dropped_attributes: int = 0
    """The number of attributes that the SDK dropped."""
    dropped_events: int = 0
    """The number of events that the SDK dropped."""
    dropped_links: int = 0
    """The number of links that the SDK dropped."""
    scope: Scope = Scope()
    """The scope and resource, shared by spans that were read together."""


Draft: Any = make_dataclass(
    "Draft",
    [(item.name, item.type, item) for item in fields(SpanRecord)],
    slots=True,
    kw_only=True,
    repr=False,
    eq=False,
    match_args=False,
)
"""
A mutable `SpanRecord`, with the same arguments; `frozen` makes it a `SpanRecord`.

Readers create millions, and setting the fields of a frozen dataclass takes three times as long.
"""


def frozen(draft: Any) -> SpanRecord:
    """Turn a draft into a `SpanRecord`, in place, and return it."""
    draft.__class__ = SpanRecord
    record: SpanRecord = draft
    return record


def without_arrays(record: SpanRecord) -> SpanRecord:
    """
    Return the span without arrays, maps and bytes among its attributes, and without events and links.

    `KEPT_LISTS` and `kept_columns` are kept.
    `NO_SCALAR` replaces the value of an attribute that should be a scalar.
    """
    columns = kept_columns(record.attributes) if a.STEPS_COUNT in record.attributes else []
    scalars = {
        key: value if is_kept else NO_SCALAR
        for key, value in record.attributes.items()
        if (is_kept := isinstance(value, (str, bool, int, float)) or key in KEPT_LISTS or key in columns)
        or is_scalar(key)
    }
    return replace(record, attributes=scalars, events=(), links=())
