"""
Fields of OpenTelemetry spans for both encoders: attributes, flags, resource and scope.

The encoders take spans and records; records need no import of OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

__all__ = ["Attributes", "by_identity", "flags", "pairs", "shown"]

T = TypeVar("T")

Attributes: TypeAlias = Callable[[Any], "Mapping[str, Any] | None"]
"""Types that are used as the attributes of a span."""

_REMEMBERED = 64


def shown(span: ReadableSpan) -> Mapping[str, Any] | None:
    """Return the attributes that a span has for exporters."""
    return span.attributes


def pairs(attributes: Mapping[str, Any] | None) -> Iterable[tuple[str, Any]]:
    """Return names and values; the SDK's attributes are slow to iterate over and fast to copy."""
    if not attributes:
        return ()
    copy = getattr(attributes, "copy", None)
    return (copy() if copy else attributes).items()


def flags(other: SpanContext | None) -> int:
    """Return OTLP's flags of a span with this parent, or of a link: whether the context is remote."""
    return 0x300 if other and other.is_remote else 0x100


def by_identity(describe: Callable[..., T]) -> Callable[..., T]:
    """
    Cache the results of a function of immutable objects.

    Objects are compared by identity, because hashing a resource takes longer than encoding a span.
    """
    known: dict[tuple[int, ...], tuple[tuple[object, ...], T]] = {}

    def described(*objects: object) -> T:
        key = tuple(map(id, objects))
        entry = known.get(key)
        if entry is None:
            if len(known) >= _REMEMBERED:
                known.clear()
            entry = known[key] = (objects, describe(*objects))  # referenced, so that their ids are not reused
        return entry[1]

    return described
