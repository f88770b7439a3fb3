"""Drop-in exporters send what the official ones send."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans as official
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import mttp
from mttp.exporters.file import FileSpanExporter
from mttp.exporters.grpc import OTLPSpanExporter as GrpcExporter
from mttp.exporters.http import OTLPSpanExporter as HttpExporter


@pytest.fixture
def spans() -> tuple[ReadableSpan, ...]:
    """Spans that the SDK made."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    with provider.get_tracer("lib", "1").start_as_current_span("step") as span:
        span.set_attributes({"ids": list(range(300)), "logprobs": [-0.5] * 300, "text": "ü"})
        span.add_event("seen", {"at": 1.5})
    return kept.get_finished_spans()


class Endpoint:
    """Somewhere to send to."""

    def __init__(self) -> None:
        self.address = ""
        self.bodies: list[bytes] = []
        self.status = 200


@pytest.fixture
def http() -> Iterator[Endpoint]:
    """An HTTP server."""
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            endpoint.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(endpoint.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Not a word."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        endpoint.address = f"http://127.0.0.1:{server.server_port}/v1/traces"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield endpoint
        server.shutdown()
        thread.join()


@pytest.fixture
def grpc_endpoint() -> Iterator[Endpoint]:
    """A gRPC server."""
    endpoint = Endpoint()

    def export(request: bytes, context: Any) -> bytes:
        endpoint.bodies.append(request)
        return bytes(service.ExportTraceServiceResponse().SerializeToString())

    method = grpc.unary_unary_rpc_method_handler(export)
    name = "opentelemetry.proto.collector.trace.v1.TraceService"
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, {"Export": method})])
    endpoint.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield endpoint
    server.stop(None).wait()


def test_http_sends_the_official_bytes(http: Endpoint, spans: Any) -> None:
    """
    The request is the official exporter's, byte for byte.
    """
    exporter = HttpExporter(endpoint=http.address)

    assert SpanExportResult.SUCCESS is exporter.export(spans)
    exporter.shutdown()
    assert [official(spans).SerializeToString()] == http.bodies


def test_http_encodes_directly(monkeypatch: pytest.MonkeyPatch, http: Endpoint, spans: Any) -> None:
    """
    It is our encoder that is asked.
    """
    asked: list[Any] = []
    monkeypatch.setattr("mttp.exporters.retrying.encode_spans", lambda given: asked.append(given) or b"bytes")
    exporter = HttpExporter(endpoint=http.address)

    exporter.export(spans)

    exporter.shutdown()
    assert ([spans], [b"bytes"]) == (asked, http.bodies)


def test_http_takes_the_official_arguments(http: Endpoint, spans: Any) -> None:
    """
    Compression is the official exporter's business, as are headers, TLS and trying again.
    """
    exporter = HttpExporter(http.address, compression=Compression.Gzip, headers={"a": "b"}, timeout=5)

    exporter.export(spans)

    exporter.shutdown()
    assert [official(spans).SerializeToString()] == [gzip.decompress(body) for body in http.bodies]


def test_http_says_that_it_was_refused(http: Endpoint, spans: Any) -> None:
    """
    A receiver that does not take the spans is no success.
    """
    http.status = 400
    exporter = HttpExporter(endpoint=http.address)

    assert SpanExportResult.FAILURE is exporter.export(spans)
    exporter.shutdown()


def test_grpc_sends_the_official_bytes(grpc_endpoint: Endpoint, spans: Any) -> None:
    """
    The request is the official exporter's, byte for byte.
    """
    exporter = GrpcExporter(grpc_endpoint.address, insecure=True)

    assert SpanExportResult.SUCCESS is exporter.export(spans)
    exporter.shutdown()
    assert [official(spans).SerializeToString()] == grpc_endpoint.bodies


def test_a_file_of_any_library_s_spans_can_be_read(tmp_path: Path, spans: Any) -> None:
    """
    What a tracer provider of one's own writes is read like any recording.
    """
    exporter = FileSpanExporter(tmp_path / "traces.jsonl")

    exporter.export(spans)

    exporter.shutdown()
    (found,) = mttp.scan(tmp_path / "traces.jsonl", arrays=True)
    assert list(range(300)) == found.attributes["ids"]
