"""Prints spans as JSON text like the SDK."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link

__all__ = ["printed"]


def printed(span: ReadableSpan, indent: int | None) -> str:
    """Return the span as JSON text like the SDK, with bytes as base64."""
    printable = ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=_printable(span.attributes),
        events=[Event(e.name, _printable(e.attributes), e.timestamp) for e in span.events],
        links=[Link(link.context, _printable(link.attributes)) for link in span.links],
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
    return str(printable.to_json(indent))


def _printable(value: Any) -> Any:
    """Convert bytes to base64, also in containers."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, (list, tuple)) else value
