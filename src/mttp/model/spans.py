"""One span as a plain record: what every reader yields, whatever it read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from typing import Any, Final

from mttp.semconv import attributes as a
from mttp.semconv.registry import NO_SCALAR, is_scalar

__all__ = ["KEPT_LISTS", "Draft", "Link", "Scope", "SpanEvent", "SpanRecord", "frozen", "without_arrays"]

KEPT_LISTS: Final = frozenset(
    {
        a.FAULTS,
        f"{a.STEPS_COLUMN}.{a.FAULTS}",
        a.OMISSIONS,
        f"{a.STEPS_COLUMN}.{a.OMISSIONS}",
        a.REWARD_FAILED_CHECKS,
        a.TASK_SLICES,
        a.GROUP_EPISODES,
        a.RUN_PACKAGES,
        a.RUN_ACCELERATORS,
        a.SPEC_DOCUMENTS,
    }
)
"""Lists that are read even where arrays are not wanted: summaries and studies need what is in them."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Who made the span, in which process: instrumentation scope and resource."""

    name: str = ""
    """The instrumentation library."""
    version: str = ""
    """Its version."""
    schema_url: str = ""
    """The convention that its attributes follow."""
    resource: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the process."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the instrumentation library."""
    resource_schema_url: str = ""
    """The convention that the resource follows."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened at one time within a span."""

    name: str
    time: int
    attributes: Mapping[str, Any]
    dropped_attributes: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """A reference from a span to another."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, Any]
    flags: int = 0
    dropped_attributes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRecord:
    """A span as it was recorded; ids are lower-case hex, times nanoseconds since the Unix epoch."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    """Empty for a root."""
    name: str
    kind: int = 1
    """OTLP's number: 1 internal, 2 server, 3 client, 4 producer, 5 consumer."""
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
    """How many attributes the recording library dropped; the same for the counts below."""
    dropped_events: int = 0
    dropped_links: int = 0
    scope: Scope = Scope()
    """Shared by the spans of one block."""


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
A record in the making: readers make millions, and to set each field of a frozen one takes thrice as long.

It takes what `SpanRecord` takes, and becomes one by `frozen`.
"""


def frozen(draft: Any) -> SpanRecord:
    """The draft as the record that it is of."""
    draft.__class__ = SpanRecord
    record: SpanRecord = draft
    return record


def without_arrays(record: SpanRecord) -> SpanRecord:
    """
    The span without attributes that are arrays, maps or bytes, without events and links.

    The `KEPT_LISTS` stay, and of what should be a scalar by the registry, `NO_SCALAR` is the value.
    """
    scalars = {
        key: value if is_kept else NO_SCALAR
        for key, value in record.attributes.items()
        if (is_kept := isinstance(value, (str, bool, int, float)) or key in KEPT_LISTS) or is_scalar(key)
    }
    return replace(record, attributes=scalars, events=(), links=())
