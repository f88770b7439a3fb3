"""Outcomes of OTLP requests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from mttp.model.printable import one_line
from mttp.otlp.replies import decoded, printable

__all__ = ["ExportResponse", "OtlpSender", "otlp_answer", "partly"]

_MEMBERS = ("partialSuccess", "partial_success")
_NO_TEXT = re.compile(rb"[^\t-\r -~]")
"""A byte that is in no text of ASCII characters."""
_DONE = {"message": "OK"}
"""What Langfuse answers instead of an OTLP message."""


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


def otlp_answer(body: bytes) -> ExportTraceServiceResponse | None:
    """
    Return the OTLP answer in the body of a success, in protobuf or JSON; None if it is anything else.

    The content type says nothing: many receivers send a wrong one, or one with an empty body.
    """
    try:
        return _from_json(body) if decoded(body).lstrip().startswith(("{", "[")) else _from_bytes(body)
    except (DecodeError, ParseError, ValueError, RecursionError):
        return None


def _from_json(body: bytes) -> ExportTraceServiceResponse | None:
    document = json.loads(decoded(body))
    if not isinstance(document, dict) or not (
        document in ({}, _DONE) or any(member in document for member in _MEMBERS)
    ):
        return None
    answer = ExportTraceServiceResponse()
    ParseDict(document, answer, ignore_unknown_fields=True)
    return answer


def _from_bytes(body: bytes) -> ExportTraceServiceResponse | None:
    """Return an answer in protobuf; some texts could be parsed as one that has only unknown fields."""
    if not body.strip():
        return ExportTraceServiceResponse()
    answer = ExportTraceServiceResponse.FromString(body)
    is_text = _NO_TEXT.search(body) is None and not answer.HasField("partial_success")
    is_other = any(  # fields of other types: a server may repeat the request
        field.field_number in message.DESCRIPTOR.fields_by_number
        for message in (answer, answer.partial_success)
        for field in UnknownFieldSet(message)
    )
    return None if is_text or is_other else answer
