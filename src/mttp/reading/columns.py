"""
Spans as columns and back: which attribute is a column of which type, and what becomes of the rest.

A value that isn't of its column's type stays in the span's `attributes`, as OTLP JSON; so do attributes without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from mttp.semconv.types import ATTRIBUTE_TYPES, TEMPLATE_TYPES
from mttp.spans import Scope, SpanRecord
from mttp.wire.otlp_json import encode_records
from mttp.wire.otlp_json_decode import decode_line

__all__ = ["ATTRIBUTES", "SPAN", "TEMPLATES", "columns", "records"]

SPAN: dict[str, str] = {
    "trace_id": "string",
    "span_id": "string",
    "parent_id": "string",
    "name": "string",
    "kind": "int",
    "start_time": "time",
    "end_time": "time",
    "status_code": "int",
    "status_message": "string",
    "trace_state": "string",
    "flags": "int",
}
"""Columns that every span fills, named as the fields of a span record, and their types."""

JSON = ("attributes", "events", "links", "scope", "resource")
"""Columns of OTLP JSON: what has no column of its own."""

URLS = ("schema_url", "resource_schema_url")

ATTRIBUTES = {key: "bytes" if type_ == "any" else type_ for key, type_ in ATTRIBUTE_TYPES.items()}
"""Columns of known attributes and their types; one that may hold anything has a column for its packed form."""

TEMPLATES = {prefix: type_ for prefix, type_ in TEMPLATE_TYPES.items() if type_ != "any"}
"""Columns of maps from the user's own names, and the types of their values."""

_INT64 = range(-(2**63), 2**63)


class _Block(msgspec.Struct, rename="camel"):
    """A span's parts as they stand in a line of OTLP JSON."""
