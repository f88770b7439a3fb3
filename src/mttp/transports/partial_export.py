"""The error for an export that was accepted in part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opentelemetry.sdk.trace import ReadableSpan

from mttp.otlp.frames import Frame

__all__ = ["PartialExport", "RejectedSpans"]


@dataclass(frozen=True, slots=True)
class RejectedSpans:
    """Spans that a receiver rejected permanently."""

    cause: str
    """The cause: http_400, grpc_unauthenticated, partial_success, too_large, …"""
    spans: int
    """The number of spans."""
    episodes: int
    """The largest number of traces among them."""


class PartialExport(Exception):  # noqa: N818 - reads as what it says
    """
    Not all spans were accepted; those neither kept nor rejected were delivered.

    `kept` are the spans to export again, `rejections` those that are lost.
    `retry_after` is the number of seconds to wait before the next export.
    """

    def __init__(
        self,
        message: str,
        *,
        kept: Sequence[ReadableSpan | Frame] = (),
        rejections: Sequence[RejectedSpans] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kept = tuple(kept)
        self.rejections = tuple(rejections)
        self.retry_after = retry_after
