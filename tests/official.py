"""OTLP as protobuf's own library reads and writes it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

IDS = ("traceId", "spanId", "parentSpanId")


def parsed(line: bytes) -> TracesData:
    """A line of OTLP JSON as the official message."""
    document = json.loads(line.decode("utf-8"))
    return ParseDict(_transcoded(document, _base64), TracesData())


def unparsed(message: TracesData) -> Any:
    """The official message as OTLP's JSON."""
    return _transcoded(MessageToDict(message, use_integers_for_enums=True), _hex)


def told(message: TracesData) -> Iterator[bytes]:
    """Each span with all that is said about where it comes from; bytes, in which NaN equals NaN."""
    for block in message.resource_spans:
        for scoped in block.scope_spans:
            for span in scoped.spans:
                whole = TracesData()
                one = whole.resource_spans.add(resource=block.resource, schema_url=block.schema_url)
                one.scope_spans.add(scope=scoped.scope, schema_url=scoped.schema_url, spans=[span])
                yield whole.SerializeToString(deterministic=True)


def _transcoded(document: Any, change: Any) -> Any:
    """The document with every id changed: OTLP writes ids in hex, protobuf's JSON in base64."""
    if isinstance(document, dict):
        return {
            key: change(value) if key in IDS else _transcoded(value, change)
            for key, value in document.items()
        }
    return [_transcoded(item, change) for item in document] if isinstance(document, list) else document


def _base64(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


def _hex(encoded: str) -> str:
    return base64.b64decode(encoded).hex()
