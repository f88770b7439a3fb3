"""What a transport says when it did not take everything that it was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["PartialExport", "RejectedSpans"]


@dataclass(frozen=True, slots=True)
class RejectedSpans:
    """Spans that a receiver turned down for good."""

    cause: str
    """Why, in a word: http_400, grpc_unauthenticated, partial_success, too_large, …"""
    spans: int
    """How many."""
    episodes: int
    """How many traces are among them, at most."""


class PartialExport(Exception):  # noqa: N818 - reads as what it says
    """
    A transport did not take everything; what it names neither as kept nor as rejected was delivered.

    `kept` are the spans to offer again, `rejections` those that are lost for good.
    Nothing should be offered before `retry_after` seconds have passed.
    """

    def __init__(
        self,
        message: str,
        *,
        kept: Sequence[ReadableSpan] = (),
        rejections: Sequence[RejectedSpans] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kept = tuple(kept)
        self.rejections = tuple(rejections)
        self.retry_after = retry_after
