"""OTLP over HTTP: the official exporter, spans encoded in a fraction of its time."""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Official
from opentelemetry.sdk.trace import ReadableSpan

from mttp.wire.otlp_proto import encode_spans

__all__ = ["OTLPSpanExporter"]


class _Request:
    """Encoded spans, as the exporter expects them from the official encoder."""

    def __init__(self, spans: Sequence[ReadableSpan]) -> None:
        self._encoded = encode_spans(spans)

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        return self._encoded

    SerializePartialToString = SerializeToString


def _encoding_directly(export: Any) -> Any:
    """The same function with another encoder: the exporter has no place where bytes could be handed in."""
    known = {**export.__globals__, "encode_spans": _Request}
    return FunctionType(export.__code__, known, export.__name__, export.__defaults__, export.__closure__)


class OTLPSpanExporter(Official):
    """Takes the arguments of the official exporter, follows the same variables and sends the same bytes."""

    export = _encoding_directly(Official.export)
