"""
Fields of OpenTelemetry spans, for both encoders.

OpenTelemetry is imported for type checking only, so that a process that has only records starts faster.
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
"""A function that returns the attributes of a span."""

_REMEMBERED = 64


def shown(span: ReadableSpan) -> Mapping[str, Any] | None:
    """Return the attributes of a span."""
    return span.attributes


def pairs(attributes: Mapping[str, Any] | None) -> Iterable[tuple[str, Any]]:
    """Return names and values; a copy of the SDK's attributes is faster to iterate over."""
    if not attributes:
        return ()
    copy = getattr(attributes, "copy", None)
    return (copy() if copy else attributes).items()


def flags(other: SpanContext | None) -> int:
    """Return OTLP's flags of a span with this parent, or of a link to this span."""
    return 0x300 if other and other.is_remote else 0x100


def by_identity(describe: Callable[..., T]) -> Callable[..., T]:
    """
    Return a function that caches the results of `describe` by the identity of its arguments.

    The arguments must not change. Hashing a resource would cost more than encoding a span.
    """
    known: dict[tuple[int, ...], tuple[tuple[object, ...], T]] = {}

    def described(*objects: object) -> T:
        key = tuple(map(id, objects))
        found = known.get(key)
        if found is None:
            if len(known) >= _REMEMBERED:
                known.clear()
            found = known[key] = (
                objects,
                describe(*objects),
            )  # the cache holds the objects, so that their ids are not reused
        return found[1]

    return described
