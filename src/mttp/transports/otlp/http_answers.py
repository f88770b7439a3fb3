"""Parses the bodies of successful OTLP requests over HTTP."""

from __future__ import annotations

import json
import re

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from mttp.otlp.replies import decoded

__all__ = ["otlp_answer"]

_MEMBERS = ("partialSuccess", "partial_success")
_NO_TEXT = re.compile(rb"[^\t-\r -~]")
"""A byte that is in no text of ASCII characters."""
_DONE = {"message": "OK"}
"""What Langfuse answers instead of an OTLP message."""


def otlp_answer(body: bytes) -> ExportTraceServiceResponse | None:
    """
    Return the OTLP answer in the body of a success, in protobuf or JSON; None if it is anything else.

    The content type says nothing: many receivers send a wrong one, or one with an empty body.
    """
    try:
        return _from_json(body) if decoded(body).lstrip().startswith(("{", "[")) else _from_bytes(body)
    except (DecodeError, ParseError, ValueError, RecursionError, SystemError):  # the last for lone surrogates
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
