"""Outcomes of OTLP requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from mttp.model.printable import one_line
from mttp.otlp.replies import printable

__all__ = ["ExportResponse", "OtlpSender", "partly"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResponse:
    """The outcome of one request."""

    verdict: Literal["taken", "again", "never", "smaller"]
    """Accepted; to be sent again later; rejected permanently; or to be sent in smaller requests."""
    cause: str = ""
    """The cause in counters: http_503, grpc_unavailable, connection, timeout, tls, …"""
    message: str = ""
    """The receiver's or the system's message with a suggestion, without control characters."""
    retry_after: float | None = None
    """The delay that the receiver asked for, in seconds."""
    rejected: int = 0
    """Number of rejected spans of an accepted request."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", one_line(self.message))


class OtlpSender(Protocol):
    """
    Sends requests by one protocol; failures of the receiver or the network are outcomes, not exceptions.

    A forked child opens its own connection.
    """

    def send(self, request: bytes, spans: int, timeout: float | None = None) -> ExportResponse:
        """Send a request with a number of spans, and wait for the answer up to `timeout` seconds."""

    def close(self) -> None:
        """Close the connection, from any thread, even while `send` waits."""


def partly(rejected: int, spans: int, message: str, sent: Mapping[str, str]) -> ExportResponse:
    """Return the outcome of an accepted request, of which `rejected` spans were rejected."""
    text = printable(message.encode(), sent)
    if rejected > 0 and not text:
        text = "it rejected spans without a reason"
    return ExportResponse(verdict="taken", message=text, rejected=min(max(rejected, 0), spans))
