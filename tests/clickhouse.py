"""
A ClickHouse server for tests: chdb's engine behind the HTTP interface.

It is filled with rows as the Collector's exporter writes them.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stores import Asked, serving

from mttp.model.spans import SpanRecord

SCHEMA = Path(__file__).parents[1] / "collector-config" / "clickhouse" / "schema.sql"
_KINDS = {0: "Unspecified", 1: "Internal", 2: "Server", 3: "Client", 4: "Producer", 5: "Consumer"}
_STATUSES = {0: "Unset", 1: "Ok", 2: "Error"}
_FORMAT = re.compile(r"\s+FORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)


class ClickHouse:
    """An engine with the table of `schema.sql`."""

    def __init__(self) -> None:
        from chdb.session import Session

        self._session = Session()
        self._lock = threading.Lock()
        self.bytes = 0
        """Bytes of the answers of queries of the table."""
        self.queries: list[str] = []
        for statement in re.sub(r"^--.*$", "", SCHEMA.read_text(), flags=re.MULTILINE).split(";"):
            if statement.strip():
                self._session.query(statement)
        self._session.query("CREATE DATABASE IF NOT EXISTS otel")
        self._session.query("CREATE TABLE IF NOT EXISTS otel.other (Timestamp DateTime64(9)) ENGINE = Memory")
        self.clear()

    def clear(self) -> None:
        """Delete all rows."""
        self._session.query("TRUNCATE TABLE mttp.spans")

    def insert(self, spans: Iterable[SpanRecord]) -> None:
        """Insert spans as the Collector's exporter does."""
        lines = "\n".join(json.dumps(row_of(span)) for span in spans)
        self._session.query(f"INSERT INTO mttp.spans FORMAT JSONEachRow {lines}")

    def ask(self, sql: str) -> list[list[str]]:
        """The rows of an answer, as text."""
        return [line.split("\t") for line in str(self._session.query(sql, "TSV")).splitlines()]

    @contextmanager
    def serve(self) -> Iterator[str]:
        """The address of the HTTP interface."""
        with serving(self._answer) as place:
            yield f"clickhouse://{place}/mttp?table=spans"

    def _answer(self, asked: Asked) -> tuple[int, str, bytes]:
        sql = asked.query.get("query", [""])[0] + asked.body.decode()
        found = _FORMAT.search(sql)
        kind = found[1] if found else asked.query.get("default_format", ["TabSeparated"])[0]
        self.queries.append(sql)
        with self._lock:
            try:
                self._session.query(f"USE {asked.query.get('database', ['default'])[0]}")
                answer = self._session.query(sql[: found.start()] if found else sql, kind).bytes() or b""
            except Exception as error:
                return 500, "text/plain", str(error).encode()
        self.bytes += len(answer) if "`spans`" in sql else 0
        return 200, "application/octet-stream", answer


class FilledByCollector(ClickHouse):
    """An engine that the Collector's exporter fills, over HTTP and in ClickHouse's own format."""

    def _answer(self, asked: Asked) -> tuple[int, str, bytes]:
        sql = asked.query.get("query", [""])[0] or asked.body.decode(errors="replace")
        revision = int(asked.query.get("client_protocol_version", ["0"])[0])
        if "displayName()" in sql:
            about = [
                ("name", ["chdb"]),
                ("version", ["26.9.2.1"]),
                ("revision", [54479]),
                ("timezone", ["UTC"]),
            ]
            return 200, "application/octet-stream", _native(about, revision)
        if sql.startswith("DESCRIBE TABLE"):
            with self._lock:
                columns = json.loads(str(self._session.query(sql, "JSONCompact")))["data"]
            described = [(name, [column[at] for column in columns]) for at, name in enumerate(_DESCRIPTION)]
            return 200, "application/octet-stream", _native(described, revision)
        if sql.upper().startswith("INSERT INTO"):
            into = re.sub(r"\s+(FORMAT\s+Native|VALUES).*$", "", sql, flags=re.IGNORECASE | re.DOTALL)
            with self._lock, tempfile.NamedTemporaryFile(suffix=".native") as rows:
                rows.write(asked.body)
                rows.flush()
                self._session.query(f"{into} SELECT * FROM file('{rows.name}', Native)")
            return 200, "text/plain", b""
        return super()._answer(asked)


_DESCRIPTION = (
    *("name", "type", "default_type", "default_expression"),
    *("comment", "codec_expression", "ttl_expression"),
)


def _native(columns: Sequence[tuple[str, Sequence[str | int]]], revision: int) -> bytes:
    """Return a block as a server of this revision writes it, of columns of text and of numbers."""
    _, first = columns[0]
    block = b"\x01\x00\x02\xff\xff\xff\xff\x00" if revision else b""
    block += _number(len(columns)) + _number(len(first))
    for name, values in columns:
        block += _bytes(name) + _bytes("UInt32" if isinstance(values[0], int) else "String")
        block += b"\x00" if revision >= 54454 else b""
        for value in values:
            block += struct.pack("<I", value) if isinstance(value, int) else _bytes(value)
    return block


def _bytes(text: str) -> bytes:
    return _number(len(text.encode())) + text.encode()


def _number(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def row_of(span: SpanRecord) -> dict[str, Any]:
    """A row as the Collector's exporter writes it: every attribute as text."""
    return {
        "Timestamp": f"{span.start_time // 10**9}.{span.start_time % 10**9:09}",
        "TraceId": span.trace_id,
        "SpanId": span.span_id,
        "ParentSpanId": span.parent_id,
        "TraceState": span.trace_state,
        "SpanName": span.name,
        "SpanKind": _KINDS[span.kind],
        "ServiceName": str(span.scope.resource.get("service.name", "")),
        "ResourceAttributes": _texts(span.scope.resource),
        "ScopeName": span.scope.name,
        "ScopeVersion": span.scope.version,
        "SpanAttributes": _texts(span.attributes),
        "Duration": str(max(span.end_time - span.start_time, 0)),
        "StatusCode": _STATUSES[span.status_code],
        "StatusMessage": span.status_message,
        "Events.Timestamp": [f"{one.time // 10**9}.{one.time % 10**9:09}" for one in span.events],
        "Events.Name": [one.name for one in span.events],
        "Events.Attributes": [_texts(one.attributes or {}) for one in span.events],
        "Links.TraceId": [one.trace_id for one in span.links],
        "Links.SpanId": [one.span_id for one in span.links],
        "Links.TraceState": ["" for _ in span.links],
        "Links.Attributes": [_texts(one.attributes or {}) for one in span.links],
    }


def _texts(attributes: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): _text(value) for key, value in attributes.items()}


def _text(value: Any) -> str:
    """A value as text, by the rules of the Collector's `Value.AsString`."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            word = {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
            return f"json: unsupported value: {word}"
        return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (list, tuple, Mapping)):
        try:
            return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
        except ValueError:  # NaN, of which Go's encoder makes nothing
            return ""
    return str(value)
