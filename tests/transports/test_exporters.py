"""Drop-in exporters send what the official ones send."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans as official
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as OfficialGrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from otlp import names
from polling import SECONDS
from programs import told

import mttp
from mttp.errors import TransportError
from mttp.testing import Behaviour, OtlpReceiver
from mttp.transports.exporters.file import FileSpanExporter
from mttp.transports.exporters.grpc import GrpcSpanExporter as GrpcExporter
from mttp.transports.exporters.http import HttpSpanExporter as HttpExporter


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
    monkeypatch.setattr(
        "mttp.transports.exporters.retrying.encode_spans", lambda given: asked.append(given) or b"bytes"
    )
    exporter = HttpExporter(endpoint=http.address)

    exporter.export(spans)

    exporter.shutdown()
    assert ([spans], [b"bytes"]) == (asked, http.bodies)


def test_http_takes_the_official_arguments(http: Endpoint, spans: Any) -> None:
    """
    Its enumeration of compressions, too.
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


# What both exporters over the network do, whatever the receiver does.


MAKERS: dict[str, Callable[..., Any]] = {
    "http": lambda receiver, **options: HttpExporter(f"{receiver.http_address}/v1/traces", **options),
    "grpc": lambda receiver, **options: GrpcExporter(
        receiver.grpc_address.replace("grpc", "http"), **options
    ),
}


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """A receiver that accepts everything until the test configures a failure."""
    with OtlpReceiver() as opened:
        yield opened


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes an exporter to a receiver."""
    return MAKERS[request.param]


def busy(make: Any) -> int | str:
    """The status of a receiver that is to be asked again."""
    return "UNAVAILABLE" if make is MAKERS["grpc"] else 503


def test_a_receiver_that_is_busy_is_tried_again(make: Any, receiver: OtlpReceiver, spans: Any) -> None:
    """
    Not before it said, and as long as the timeout allows.
    """
    receiver.behave(*[Behaviour(status=busy(make), retry_after=0.3)] * 2)
    exporter = make(receiver)

    assert SpanExportResult.SUCCESS is exporter.export(spans)

    exporter.shutdown()
    first, second, third = (request.time for request in receiver.requests)
    assert first + 0.3 <= second <= third - 0.3


def test_a_receiver_that_asks_to_wait_longer_than_the_timeout_is_given_up(
    make: Any, receiver: OtlpReceiver, spans: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """
    At once, since the exporter has more to send.
    """
    receiver.behave(Behaviour(status=busy(make), retry_after=7200))
    exporter = make(receiver, timeout=3600)

    assert SpanExportResult.FAILURE is exporter.export(spans)

    exporter.shutdown()
    assert 1 == len(receiver.requests)
    assert "spans not delivered: 1: " in caplog.text


def test_shutdown_ends_the_wait_before_the_next_attempt(
    make: Any, receiver: OtlpReceiver, spans: Any
) -> None:
    """
    From another thread; what is exported after it fails, and a second call does nothing.
    """
    receiver.behave(Behaviour(status=busy(make), retry_after=3000))
    exporter = make(receiver, timeout=3600)
    found: list[SpanExportResult] = []
    thread = threading.Thread(target=lambda: found.append(exporter.export(spans)))
    thread.start()
    assert receiver.wait(1)

    exporter.shutdown()
    exporter.shutdown()

    thread.join(SECONDS)
    assert [SpanExportResult.FAILURE] == found
    assert SpanExportResult.FAILURE is exporter.export(spans)
    assert 1 == len(receiver.requests)


def test_what_a_receiver_does_not_take_of_a_request_is_logged(
    make: Any, receiver: OtlpReceiver, spans: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Once while it is the same; the request was taken, and is not sent again.
    """
    receiver.behave(Behaviour(rejected=1, message="too old"), forever=True)
    exporter = make(receiver)

    assert [SpanExportResult.SUCCESS] * 2 == [exporter.export(spans) for _ in range(2)]

    exporter.shutdown()
    assert [f"mttp: {exporter._place}: spans rejected: 1: too old"] == caplog.messages


def test_nothing_that_happens_to_an_export_is_raised(
    make: Any, spans: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Without a listener, or with a span that can't be encoded, it is a failure, and a line in the log.
    """
    with OtlpReceiver() as receiver:
        exporter = make(receiver, timeout=1)
    (broken,) = spans

    assert SpanExportResult.FAILURE is exporter.export(spans)
    broken._start_time = -1
    assert SpanExportResult.FAILURE is exporter.export([broken])

    exporter.shutdown()
    unreached, unencoded = caplog.messages
    assert f"mttp: {exporter._place}: spans not delivered: 1: " in unreached
    assert "connection refused" in unreached
    assert "can't be encoded" in unencoded


def test_variables_say_what_arguments_don_t(
    make: Any, receiver: OtlpReceiver, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    They are read once, when the exporter is made.
    """
    is_grpc = make is MAKERS["grpc"]
    base = receiver.grpc_address.replace("grpc", "http") if is_grpc else receiver.http_address
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", base)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x,tenant=a")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "7")
    exporter = GrpcExporter(headers={"tenant": "b"}) if is_grpc else HttpExporter(headers={"tenant": "b"})
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "tenant=c")

    assert SpanExportResult.SUCCESS is exporter.export(spans)

    exporter.shutdown()
    (request,) = receiver.requests
    assert ("Bearer x", "b") == (request.headers["authorization"], request.headers["tenant"])
    assert 7.0 == exporter._timeout


def test_headers_of_grpc_may_be_text_with_escapes(receiver: OtlpReceiver, spans: Any) -> None:
    """
    As in the variable of OpenTelemetry.
    """
    address = receiver.grpc_address.replace("grpc", "http")
    exporter = GrpcExporter(address, headers="Authorization=Bearer%20x, tenant=a")

    exporter.export(spans)

    exporter.shutdown()
    (request,) = receiver.requests
    assert ("Bearer x", "a") == (request.headers["authorization"], request.headers["tenant"])


@pytest.mark.parametrize("headers", ["Bearer hush", "tenant=a,hush", "authorization=hush\x01"])
def test_wrong_headers_of_grpc_are_an_error_without_their_values(
    caplog: pytest.LogCaptureFixture, headers: str
) -> None:
    """
    Neither the error nor the log repeats a value, which is often a secret.
    """
    with pytest.raises(TransportError, match="option headers: ") as caught:
        GrpcExporter("http://localhost:4317", headers=headers)

    assert "hush" not in str(caught.value) + caplog.text


def test_the_query_of_an_endpoint_is_not_logged(
    http: Endpoint, spans: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A query may hold a key.
    """
    http.status = 400
    exporter = HttpExporter(f"{http.address}?api_key=k3y")

    assert SpanExportResult.FAILURE is exporter.export(spans)

    exporter.shutdown()
    assert http.address in caplog.text
    assert "k3y" not in caplog.text


def test_a_wrong_argument_is_an_error_at_once(make: Any, receiver: OtlpReceiver) -> None:
    """
    As it is of a transport.
    """
    with pytest.raises(TransportError, match="option timeout=-1: expected a number of seconds above zero"):
        make(receiver, timeout=-1)


def test_a_request_over_the_limit_is_not_sent(receiver: OtlpReceiver, spans: Any) -> None:
    """
    64 MiB, or what is said; nothing is no limit.
    """
    assert [SpanExportResult.FAILURE, SpanExportResult.SUCCESS] == [
        MAKERS["http"](receiver, max_request_size=limit).export(spans) for limit in (100, 0)
    ]
    assert 1 == len(receiver.requests)


@pytest.mark.parametrize(
    ("endpoint", "insecure", "address"),
    [
        ("localhost:4317", None, "grpcs://localhost:4317"),
        ("localhost:4317", True, "grpc://localhost:4317"),
        ("http://localhost:4317", None, "grpc://localhost:4317"),
        ("http://localhost:4317", False, "grpcs://localhost:4317"),
        ("https://localhost:4317", True, "grpcs://localhost:4317"),
        (None, None, "grpc://localhost:4317"),
        ("collector", True, "grpc://collector:443"),
    ],
)
def test_grpc_uses_tls_as_the_official_exporter_does(
    endpoint: str | None, insecure: bool | None, address: str
) -> None:
    """
    By the scheme, then by the stated protocol.
    """
    official = OfficialGrpcExporter(endpoint, insecure=insecure)
    exporter = GrpcExporter(endpoint, insecure=insecure)

    assert (address, official._insecure) == (exporter._place, exporter._place.startswith("grpc://"))
    exporter.shutdown()
    official.shutdown()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_forked_child_exports_over_connections_of_its_own(make: Any, receiver: OtlpReceiver) -> None:
    """
    Both go on, without being told.
    """
    kind = "grpc" if make is MAKERS["grpc"] else "http"
    place = receiver.grpc_address.replace("grpc", "http") if kind == "grpc" else receiver.http_address
    found = told(
        f"""
        import json, os, warnings
        from mttp.transports.exporters.{kind} import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        warnings.simplefilter("ignore")
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = {place!r}
        exporter = OTLPSpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer = provider.get_tracer("forking")
        with tracer.start_as_current_span("before"):
            pass
        child = os.fork()
        with tracer.start_as_current_span("after" if child else "child"):
            pass
        if not child:
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        provider.shutdown()
        print(json.dumps(status))
        """
    )

    assert (0, ["after", "before", "child"]) == (found, sorted(names(receiver)))
