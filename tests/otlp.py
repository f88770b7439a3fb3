"""Spans to send, and what came of sending them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

import mttp
from mttp import transports
from mttp.recording import configuration
from mttp.testing import OtlpReceiver
from mttp.transports.otlp import OtlpTransport
from mttp.transports.partial_export import PartialExport, RejectedSpans

PROTOCOLS = ("http", "grpc")
RESOURCE = Resource({"service.name": "test"})
SCOPE = InstrumentationScope("test")


class Spans(SpanExporter):
    """Keeps the spans themselves."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep the spans."""
        self.spans += spans
        return SpanExportResult.SUCCESS


def recorded(value: mttp.Episode, **options: Any) -> list[Any]:
    """The spans of a session that recorded an episode, its run's among them, in order of delivery."""
    exporter = Spans()
    with mttp.configure(transport=exporter, **options) as session:
        session.record(value)
    configuration.forget()
    return exporter.spans


def span(number: int = 0, *, trace: int = 1, scope: InstrumentationScope = SCOPE, **attributes: Any) -> Any:
    """A span of another library."""
    context = SpanContext(trace, number + 1, is_remote=False)
    return ReadableSpan(
        f"span {number}", context, resource=RESOURCE, attributes=attributes, instrumentation_scope=scope
    )


def transport(receiver: OtlpReceiver, protocol: str, **options: Any) -> OtlpTransport:
    """A transport to a receiver."""
    address = receiver.http_address if protocol == "http" else receiver.grpc_address
    return cast(OtlpTransport, transports.open(address, **{"timeout": 20, **options}))


@dataclass(frozen=True)
class Outcome:
    """What an export came to."""

    delivered: bool
    kept: int = 0
    rejections: tuple[RejectedSpans, ...] = ()
    retry_after: float | None = None
    message: str = ""


DELIVERED = Outcome(True)


def outcome(opened: OtlpTransport, spans: Sequence[ReadableSpan], *, message: bool = False) -> Outcome:
    """The outcome of one export; the message, which is in words, where it is asked for."""
    try:
        opened.export(spans)
    except PartialExport as refused:
        found = Outcome(False, len(refused.kept), refused.rejections, refused.retry_after, str(refused))
        return found if message else replace(found, message="")
    return DELIVERED


def names(receiver: OtlpReceiver) -> list[str]:
    """The names of the spans that a receiver took."""
    return [record.name for record in receiver.records()]
