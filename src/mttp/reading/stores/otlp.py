"""Decodes the OTLP JSON variants of stores: ids in hexadecimal or base64, names in snake case."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from mttp.errors import ReadError
from mttp.model.spans import SpanRecord
from mttp.otlp.json_decode import decode_line

__all__ = ["spans"]

_CAPITAL = re.compile(r"_([a-z])")
_IDS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def spans(where: str, document: Any) -> list[SpanRecord]:
    """
    The spans of a TracesData document, in which `batches` may stand for `resourceSpans`.

    Raises ReadError if the document has neither; `where` is the URL for the message.
    """
    fields = _spelled(document) if isinstance(document, dict) else {}
    blocks = fields.get("resourceSpans", fields.get("batches"))
    if not isinstance(blocks, list):
        raise ReadError(f"{where} returns no traces: {json.dumps(document)[:200]}")
    for span in _spans(blocks):
        _spell_ids(span)
        for link in span.get("links") or ():
            _spell_ids(link)
    return decode_line(json.dumps({"resourceSpans": blocks}).encode())


def _spans(blocks: list[Any]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        for scope in block.get("scopeSpans") or ():
            yield from scope.get("spans") or ()


def _spell_ids(item: dict[str, Any]) -> None:
    """Convert ids to hexadecimal, in place; base64 ids always end in padding."""
    for name, size in _IDS.items():
        identity = item.get(name) or ""
        if identity.endswith("="):
            with suppress(binascii.Error):  # decoding the span reports an invalid id
                identity = base64.b64decode(identity).hex()
        if identity:
            item[name] = identity.zfill(2 * size)
        else:
            item.pop(name, None)


def _spelled(item: Any) -> Any:
    """The document with OTLP JSON's names, without nulls."""
    if isinstance(item, dict):
        return {
            _CAPITAL.sub(lambda letter: letter[1].upper(), key): _spelled(value)
            for key, value in item.items()
            if value is not None
        }
    return [_spelled(value) for value in item] if isinstance(item, list) else item
