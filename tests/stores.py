"""Servers within the process that answer as trace stores do."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from mttp.model.spans import SpanRecord
from mttp.otlp.json import encode_records
from mttp.otlp.protobuf import encode_span
from mttp.otlp.protobuf_decode import decode_message


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    def one(self, name: str) -> str:
        """A parameter that is there once."""
        (value,) = self.query[name]
        return value


Answer: TypeAlias = "tuple[int, str, bytes]"
"""Status, content type and body."""


@contextmanager
def serving(answer: Callable[[Asked], Answer]) -> Iterator[str]:
    """An HTTP server while the block lasts; its host and port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = b"".join(self.chunks(headers))
            asked = Asked(
                self.command, parts.path, parse_qs(parts.query, keep_blank_values=True), headers, body
            )
            status, kind, content = answer(asked)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def chunks(self, headers: Mapping[str, str]) -> Iterator[bytes]:
            """The parts of the body: Go's clients say no length."""
            if headers.get("transfer-encoding") != "chunked":
                yield self.rfile.read(int(headers.get("content-length", 0)))
                return
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def redirecting(to: str) -> Iterator[tuple[str, list[Asked]]]:
    """A server that sends everybody elsewhere; its host and port, and what it was asked."""
    asked_for: list[Asked] = []

    def answer(asked: Asked) -> Answer:
        asked_for.append(asked)
        return 302, f"text/plain\r\nLocation: {to}", b""

    with serving(answer) as place:
        yield place, asked_for


@contextmanager
def talking(act: Callable[[socket.socket, threading.Event], None], host: str = "127.0.0.1") -> Iterator[str]:
    """A server that does so with each connection, until the event is set; its host and port."""
    over = threading.Event()

    def talk(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            act(connection, over)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=talk, args=(connection,), daemon=True).start()

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"{f'[{host}]' if ':' in host else host}:{server.getsockname()[1]}"
        over.set()
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def dripping(written: bytes) -> AbstractContextManager[str]:
    """A server that answers so, then byte by byte for as long as anybody listens."""

    def drip(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(written)
        while not over.wait(0.02):
            connection.sendall(b" " if written else b"H")

    return talking(drip)


def answering(written: bytes, host: str = "127.0.0.1") -> AbstractContextManager[str]:
    """A server that answers each request so, and closes the connection."""

    def answer(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(written)

    return talking(answer, host)


# Stores: what they take over OTLP they give back over their query APIs, as lossy as they are.

TAKEN: Answer = (200, "application/x-protobuf", b"")


def answered(document: object, status: int = 200) -> Answer:
    """A JSON document."""
    return status, "application/json", json.dumps(document).encode()


@dataclass
class Backend:
    """What every store here does: it takes spans at `/v1/traces`, and answers what its class knows."""

    traces: dict[str, list[SpanRecord]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def __call__(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        if asked.path == "/v1/traces":
            if asked.method != "POST":
                return 405, "text/plain", b"method not allowed"
            return self.take(decode_message(asked.body))
        if asked.path == "/v1/logs":
            return 404, "text/plain", b"404 page not found"
        return self.answer(asked)

    def take(self, records: list[SpanRecord]) -> Answer:
        for record in records:
            if (kept := self.kept(record)) is not None:
                self.traces.setdefault(kept.trace_id, []).append(kept)
        return TAKEN

    def kept(self, record: SpanRecord) -> SpanRecord | None:
        """The span as it is stored."""
        return record

    def answer(self, asked: Asked) -> Answer:
        raise NotImplementedError

    def of_run(self, run: str | None) -> dict[str, list[SpanRecord]]:
        """The traces of a run."""
        return {
            trace_id: spans
            for trace_id, spans in self.traces.items()
            if run is None or any(span.attributes.get("mttp.run.id") == run for span in spans)
        }


def otlp_json(records: Iterable[SpanRecord]) -> dict[str, list[Any]]:
    """A TracesData."""
    blocks = [json.loads(line)["resourceSpans"] for line in encode_records(records)]
    return {"resourceSpans": [block for several in blocks for block in several]}


WARNINGS = "@jaeger@warnings"
"""The attribute in which Jaeger lists what it changed."""
TOO_DEEP = "search depth must be greater than 0 and less than max traces"


@dataclass
class JaegerServer(Backend):
    """
    Jaeger 2 with its store in memory: `/api/traces` in its own JSON, `/api/v3/traces` as OTLP.

    What it has accepted it stores a moment later: after the next query. An older one has no newer API.
    """

    newer: bool = True
    max_traces: int = 100_000
    accepted: list[SpanRecord] = field(default_factory=list)

    def take(self, records: list[SpanRecord]) -> Answer:
        self.accepted += records
        return TAKEN

    def __call__(self, asked: Asked) -> Answer:
        answer = super().__call__(asked)
        if asked.method == "GET":
            records, self.accepted = self.accepted, []
            super().take([lasting(record) for record in records])
        return answer

    def answer(self, asked: Asked) -> Answer:
        if asked.path == "/api/services":
            names = {
                str(span.scope.resource.get("service.name", ""))
                for spans in self.traces.values()
                for span in spans
            }
            return answered({"data": [*sorted(names), "jaeger"], "total": len(names), "errors": None})
        if asked.path.startswith("/api/v3/traces"):
            return self.as_otlp(asked) if self.newer else (404, "text/plain", b"404 page not found")
        is_raw = asked.query.get("raw") == ["true"]
        if asked.path == "/api/traces":
            found = self.searched(asked, "service", "limit", "100")
            if found is None:
                return answered({"data": None, "errors": [{"code": 500, "msg": TOO_DEEP}]}, 500)
        elif asked.path.startswith("/api/traces/"):
            trace_id = asked.path.rpartition("/")[2]
            if trace_id not in self.traces:
                return answered({"data": None, "errors": [{"code": 404, "msg": "trace not found"}]}, 404)
            found = {trace_id: self.traces[trace_id]}
        else:
            return 404, "text/plain", b"404 page not found"
        shown = {key: spans if is_raw else adjusted(spans) for key, spans in found.items()}
        return self.written({"data": [jaeger_json(*trace) for trace in shown.items()], "errors": None})

    def as_otlp(self, asked: Asked) -> Answer:
        """A trace, or those that a search finds; the store keeps them as they were adjusted for it."""
        trace_id = asked.path.removeprefix("/api/v3/traces").strip("/")
        if trace_id:
            found: dict[str, list[SpanRecord]] | None = {
                key: spans for key, spans in self.traces.items() if key == trace_id
            }
        else:
            assert asked.one("query.start_time_min") < asked.one("query.start_time_max")
            found = self.searched(asked, "query.service_name", "query.num_traces", "0")
        if found is None:
            return answered({"error": {"httpCode": 500, "message": TOO_DEEP}}, 500)
        if not found:
            return answered({"error": {"httpCode": 404, "message": "No traces found"}}, 404)
        if asked.query.get("raw_traces" if trace_id else "query.raw_traces") != ["true"]:
            found = {key: adjusted(spans) for key, spans in found.items()}
            self.traces |= found
        document = otlp_json(span for spans in found.values() for span in spans)
        return 200, "text/plain", written_in_go({"result": document})

    def searched(self, asked: Asked, service: str, limit: str, default: str) -> dict[str, Any] | None:
        """The newest traces of a service, and of a run; None if the store holds fewer than the limit."""
        count = int(asked.query.get(limit, [default])[0])
        if not 0 < count <= self.max_traces:
            return None
        tags = json.loads(asked.one("tags")) if "tags" in asked.query else {}
        found = [
            (trace_id, spans)
            for trace_id, spans in reversed(self.of_run(tags.get("mttp.run.id")).items())
            if any(span.scope.resource.get("service.name") == asked.one(service) for span in spans)
        ]
        return dict(found[:count])

    def written(self, document: object) -> Answer:
        """Go's JSON has no NaN: it gives up."""
        try:
            return 200, "application/json", written_in_go(document)
        except ValueError:
            reason = "failed marshalling HTTP response to JSON: json: unsupported value: NaN"
            message = f"failed writing HTTP response: {reason}"
            return answered({"data": None, "errors": [{"code": 500, "msg": message}]}, 500)


def lasting(span: SpanRecord) -> SpanRecord:
    """A span that takes a nanosecond at least, as Jaeger stores it."""
    if span.start_time < span.end_time:
        return span
    return warned(replace(span, end_time=span.start_time + 1), "Negative duration detected")


def adjusted(spans: list[SpanRecord]) -> list[SpanRecord]:
    """The spans as Jaeger shows them: attributes sorted, and each span begins within its parent."""
    parents = {span.span_id: span for span in spans}
    shown = []
    for span in spans:
        parent = parents.get(span.parent_id, span)
        if not parent.start_time <= span.start_time <= span.end_time <= parent.end_time:
            span = warned(replace(span, start_time=parent.start_time), "This span's timestamps were adjusted")
        shown.append(replace(span, attributes=dict(sorted(span.attributes.items()))))
    return shown


def warned(span: SpanRecord, warning: str) -> SpanRecord:
    """The span with one more of Jaeger's warnings."""
    warnings = [*span.attributes.get(WARNINGS, ()), warning]
    return replace(span, attributes={**span.attributes, WARNINGS: warnings})


def written_in_go(document: object) -> bytes:
    """JSON as Go writes it, with doubles without their point where they are whole: -0.0 is -0."""
    return json.dumps(_without_points(document), allow_nan=False).encode().replace(b'"<-0>"', b"-0")


def _without_points(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _without_points(value) for key, value in item.items()}
    if isinstance(item, list):
        return [_without_points(value) for value in item]
    if isinstance(item, float) and item.is_integer():
        return "<-0>" if str(item) == "-0.0" else int(item)
    return item


def jaeger_json(trace_id: str, spans: list[SpanRecord]) -> dict[str, Any]:
    """A trace in Jaeger's own JSON."""
    resources = [dict(spans[0].scope.resource)]
    return {
        "traceID": trace_id,
        "spans": [jaeger_span(span) for span in spans],
        "processes": {
            "p1": {"serviceName": resources[0].pop("service.name", ""), "tags": jaeger_tags(resources[0])}
        },
        "warnings": None,
    }


def jaeger_span(span: SpanRecord) -> dict[str, Any]:
    """A span in Jaeger's own JSON."""
    references = [("CHILD_OF", span.trace_id, span.parent_id)] if span.parent_id else []
    references += [("FOLLOWS_FROM", link.trace_id, link.span_id) for link in span.links]
    said: dict[str, Any] = {"otel.scope.name": span.scope.name, "span.kind": KINDS[span.kind]}
    if span.status_code == 2:
        said |= {"error": True, "otel.status_code": "ERROR", "otel.status_description": span.status_message}
    return {
        "traceID": span.trace_id,
        "spanID": span.span_id,
        "operationName": span.name,
        "references": [dict(zip(("refType", "traceID", "spanID"), one, strict=True)) for one in references],
        "startTime": span.start_time // 1000,
        "duration": (span.end_time - span.start_time) // 1000,
        "tags": jaeger_tags({**span.attributes, **said}),
        "logs": [
            {
                "timestamp": event.time // 1000,
                "fields": jaeger_tags({"event": event.name, **event.attributes}),
            }
            for event in span.events
        ],
        "processID": "p1",
        "warnings": None,
    }


KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}


def jaeger_tags(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Attributes as tags: what is neither text, number nor truth is text."""
    tags = []
    for key, value in values.items():
        kind = {str: "string", bool: "bool", int: "int64", float: "float64", bytes: "binary"}.get(type(value))
        if kind == "int64" and abs(value) > 2**53:
            value = str(value)
        elif kind == "binary":
            value = base64.b64encode(value).decode()
        elif kind is None:
            kind, value = "string", json.dumps(value, separators=(",", ":"), default=str)
        tags.append({"key": key, "type": kind, "value": value})
    return tags


@dataclass
class TempoServer(Backend):
    """Tempo: text is cut at 2,048 bytes, and a trace of 5 MB takes no more spans; both in silence."""

    max_trace_bytes: int = 5_000_000
    partial: bool = False
    bytes: Counter[str] = field(default_factory=Counter)

    def kept(self, record: SpanRecord) -> SpanRecord | None:
        cut = {
            key: value.encode()[:2048].decode(errors="ignore") if isinstance(value, str) else value
            for key, value in record.attributes.items()
        }
        kept = replace(record, attributes=cut)
        size = len(encode_span(kept))
        if self.bytes[record.trace_id] + size > self.max_trace_bytes:
            return None
        self.bytes[record.trace_id] += size
        return kept

    def answer(self, asked: Asked) -> Answer:
        if asked.path == "/api/search":
            query = asked.one("q")
            wanted = re.fullmatch(r'\{ *span\.mttp\.run\.id *(?:= *"(.*)"|!= *nil) *\}', query)
            if wanted is None:
                return 400, "text/plain", f"invalid TraceQL query: parse error: {query}".encode()
            found = [{"traceID": trace_id.lstrip("0")} for trace_id in self.of_run(wanted[1])]
            return answered({"traces": found[: int(asked.one("limit"))], "metrics": {}})
        spans = self.traces.get(asked.path.removeprefix("/api/v2/traces/"))
        if spans is None:
            return 404, "text/plain", b"trace not found"
        document = otlp_json(spans)
        for block in document["resourceSpans"]:
            for scope in block["scopeSpans"]:
                for span in scope["spans"]:
                    protobuf_json(span)
        status = {"status": "PARTIAL", "message": "too large"} if self.partial else {}
        return answered({"trace": document, "metrics": {}, **status})


def protobuf_json(span: dict[str, Any]) -> None:
    """A span of OTLP JSON as protobuf's own JSON spells it: ids in base64, enums by name."""
    for item in [span, *span.get("links", ())]:
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in item:
                item[name] = base64.b64encode(bytes.fromhex(item[name])).decode()
    span["kind"] = f"SPAN_KIND_{KINDS[span['kind']].upper()}"
    if "code" in span.get("status", {}):
        span["status"]["code"] = ("STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR")[
            span["status"]["code"]
        ]
