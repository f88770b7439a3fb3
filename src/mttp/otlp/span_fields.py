"""
What both encoders ask of an OpenTelemetry span: its attributes, its flags, and who made it, once.

They take spans and records; who has only records has no need to import OpenTelemetry.
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
"""What a span's attributes are taken to be."""

_REMEMBERED = 64


def shown(span: ReadableSpan) -> Mapping[str, Any] | None:
    """The attributes that a span shows to any exporter."""
    return span.attributes


def pairs(attributes: Mapping[str, Any] | None) -> Iterable[tuple[str, Any]]:
    """Names and values. The SDK's attributes are slow to look through, but quick to copy."""
    if not attributes:
        return ()
    copy = getattr(attributes, "copy", None)
    return (copy() if copy else attributes).items()


def flags(other: SpanContext | None) -> int:
    """OTLP's flags of a span with this parent, or of a link: the other is remote or not, and it is known."""
    return 0x300 if other and other.is_remote else 0x100


def by_identity(describe: Callable[..., T]) -> Callable[..., T]:
    """
    The same function, asked once for the same objects, which must not change.

    They are told by identity: a resource's hash costs more than encoding a span.
    """
    known: dict[tuple[int, ...], tuple[tuple[object, ...], T]] = {}

    def described(*objects: object) -> T:
        key = tuple(map(id, objects))
        found = known.get(key)
        if found is None:
            if len(known) >= _REMEMBERED:
                known.clear()
            found = known[key] = (objects, describe(*objects))  # held, so that no other gets their ids
        return found[1]

    return described
