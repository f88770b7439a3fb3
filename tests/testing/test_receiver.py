"""The OTLP receiver: it accepts OTLP senders, and fails as configured."""

from __future__ import annotations

import gzip
import json
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import requests
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace.export import SpanExportResult
from otlp import DELIVERED, PROTOCOLS, names, outcome, recorded, span, transport
from polling import SECONDS

import mttp
from mttp.errors import ConfigureError, MttpError
from mttp.otlp.json import encode_records
from mttp.otlp.spans.span_records import record
from mttp.testing import Behaviour, OtlpReceiver


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """Open a receiver."""
    with OtlpReceiver() as opened:
        yield opened


def post(receiver: OtlpReceiver, body: bytes, kind: str = "application/x-protobuf", **options: Any) -> Any:
    """Post a body; return status, content type and content of the response."""
    headers = {"Content-Type": kind, "Connection": "close", **options}
    with requests.post(
        f"{receiver.http_address}/v1/traces", data=body, headers=headers, timeout=20
    ) as answer:
        return answer.status_code, answer.headers["content-type"], answer.content


def test_the_official_exporters_deliver_to_it(receiver: OtlpReceiver) -> None:
    """
    OpenTelemetry's own exporters, over HTTP and gRPC.
    """
    over_http = HttpExporter(f"{receiver.http_address}/v1/traces")
    over_grpc = GrpcExporter(receiver.grpc_address.replace("grpc", "http"))

    for number, exporter in enumerate((over_http, over_grpc)):
        assert SpanExportResult.SUCCESS is exporter.export([span(number)])
        exporter.shutdown()

    assert ["span 0", "span 1"] == names(receiver)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_received_spans_are_read_like_a_recording(receiver: OtlpReceiver, protocol: str) -> None:
    """
    In order of arrival, also after it was closed.
    """
    step = mttp.Step(observation=np.eye(2, dtype=np.float32), tokens=mttp.Tokens(ids=[1, 2]))
    spans = recorded(mttp.Episode(env="toy", steps=(step,)))
    opened = transport(receiver, protocol)
    opened.export(spans)
    opened.shutdown()

    receiver.close()

    assert [one.name for one in spans] == names(receiver)
    (episode,) = mttp.read(receiver).episodes
    assert [step] == list(episode.steps)


@pytest.mark.parametrize("compress", [lambda body: body, gzip.compress])
def test_it_accepts_json_and_responds_in_json(receiver: OtlpReceiver, compress: Any) -> None:
    """
    OTLP/JSON over HTTP.
    """
    body = b"".join(encode_records([record(span(7, answer=42))]))
    encoding = {} if compress(body) == body else {"Content-Encoding": "gzip"}
    receiver.behave(Behaviour(message="fine"))

    status, kind, content = post(receiver, compress(body), "application/json", **encoding)

    assert (200, "application/json") == (status, kind)
    assert {"partialSuccess": {"errorMessage": "fine"}} == json.loads(content)
    assert [{"answer": 42}] == [one.attributes for one in receiver.records()]


@pytest.mark.parametrize(
    ("body", "kind"), [(b"\xff\xff", "application/x-protobuf"), (b"[1", "application/json")]
)
def test_it_refuses_an_invalid_request(receiver: OtlpReceiver, body: bytes, kind: str) -> None:
    """
    The request is listed in `requests`.
    """
    assert 400 == post(receiver, body, kind)[0]

    assert [(0, "INVALID_ARGUMENT")] == [(one.spans, one.status) for one in receiver.requests]


def test_it_refuses_a_damaged_compressed_body(receiver: OtlpReceiver) -> None:
    """
    The response says so.
    """
    headers = {"Content-Encoding": "gzip", "Connection": "close"}
    address = f"{receiver.http_address}/v1/traces"
    with requests.post(address, data=b"no gzip", headers=headers, timeout=20) as answer:
        assert (400, True) == (answer.status_code, b"can't be decompressed" in answer.content)


@pytest.mark.parametrize(
    ("encoding", "compress"), [("", bytes), ("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_it_refuses_messages_above_the_limit(encoding: str, compress: Any) -> None:
    """
    The limit applies after decompression: 100 MB that arrive as 100 KB are not kept in memory.
    """
    headers = {"Content-Encoding": encoding} if encoding else {}
    tracemalloc.start()
    with OtlpReceiver(max_http_bytes=1 << 20) as receiver:
        body = compress(bytes(100_000_000 if encoding else 2_000_000))
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        answered = post(receiver, body, **headers)[0]
        peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()

    assert 413 == answered
    assert [(413, len(body), (1 << 20) + 1)] == [
        (each.status, each.wire_bytes, each.bytes) for each in receiver.requests
    ]
    assert peak < 20 << 20


def test_a_body_of_very_many_gzip_members_is_refused(receiver: OtlpReceiver) -> None:
    """
    At once: each member would copy the rest of the body.
    """
    status, _, content = post(receiver, gzip.compress(b"") * 100_000, **{"Content-Encoding": "gzip"})

    assert 400 == status
    assert b"it has more than 100 parts" in content


@pytest.mark.parametrize("encoding", ["zstd", "br", "gzip, gzip"])
def test_another_compression_is_refused_by_name(encoding: str, receiver: OtlpReceiver) -> None:
    """
    It is not read as if it were protobuf.
    """
    status, _, content = post(receiver, b"", **{"Content-Encoding": encoding})

    assert 415 == status
    assert b"gzip, deflate, or uncompressed" in content


def test_a_body_may_have_several_gzip_members(receiver: OtlpReceiver) -> None:
    """
    An incomplete one is refused.
    """
    body = b"".join(encode_records([record(span(1))]))
    parts = gzip.compress(body[:20]) + gzip.compress(body[20:])

    assert 200 == post(receiver, parts, "application/json", **{"Content-Encoding": "gzip"})[0]
    assert 400 == post(receiver, parts[:-9], "application/json", **{"Content-Encoding": "gzip"})[0]
    assert ["span 1"] == names(receiver)


@pytest.mark.parametrize("status", [0, 600, "OK", "UNAVAILBLE", ""])
def test_an_unknown_status_is_an_error(status: int | str) -> None:
    """
    A misspelled status raises when the behaviour is created.
    """
    with pytest.raises(ConfigureError, match="neither an HTTP status"):
        Behaviour(status=status)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_any_success_status_keeps_the_spans(receiver: OtlpReceiver, protocol: str) -> None:
    """
    Like 200.
    """
    receiver.behave(Behaviour(status=202), forever=True)
    with mttp.configure(transport=getattr(receiver, f"{protocol}_address")) as session, mttp.episode():
        pass

    assert (1, {}) == (len(mttp.read(receiver)), dict(session.stats.lost))


def test_another_path_is_not_found(receiver: OtlpReceiver) -> None:
    """
    A base URL without `/v1/traces` gets 404.
    """
    with requests.post(
        receiver.http_address, data=b"", headers={"Connection": "close"}, timeout=20
    ) as answer:
        assert 404 == answer.status_code


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_behaviours_apply_in_turn(receiver: OtlpReceiver, protocol: str) -> None:
    """
    Then requests succeed again, unless the last one stays forever.
    """
    bad = 400 if protocol == "http" else "INTERNAL"
    opened = transport(receiver, protocol)

    receiver.behave(Behaviour(status=bad), Behaviour())
    first = [outcome(opened, [span()]) == DELIVERED for _ in range(4)]
    receiver.behave(Behaviour(), Behaviour(status=bad), forever=True)
    second = [outcome(opened, [span()]) == DELIVERED for _ in range(4)]
    receiver.behave()
    last = outcome(opened, [span()]) == DELIVERED

    assert ([False, True, True, True], [True, False, False, False], True) == (first, second, last)
    opened.shutdown()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partial_success_drops_the_first_spans(receiver: OtlpReceiver, protocol: str) -> None:
    """
    The rejected spans are not kept.
    """
    receiver.behave(Behaviour(rejected=2))
    opened = transport(receiver, protocol)

    outcome(opened, [span(number) for number in range(5)])

    assert ["span 2", "span 3", "span 4"] == names(receiver)
    opened.shutdown()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_closing_releases_hanging_requests(protocol: str) -> None:
    """
    A test that fails before `release` does not block.
    """
    with OtlpReceiver() as receiver:
        receiver.behave(Behaviour(hang=True), forever=True)
        opened = transport(receiver, protocol, timeout=60)
        thread = threading.Thread(target=outcome, args=(opened, [span()]))
        thread.start()
        assert receiver.wait(1)
    thread.join(SECONDS)

    assert not thread.is_alive()
    opened.shutdown()


def test_waiting_for_requests_times_out(receiver: OtlpReceiver) -> None:
    """
    `wait` returns False then.
    """
    assert not receiver.wait(1, timeout=0.01)


def test_requests_are_listed(receiver: OtlpReceiver) -> None:
    """
    With path, headers, sizes, number of spans and status.
    """
    opened = transport(receiver, "http", compression="gzip", headers={"tenant": "a"})
    opened.export([span(filling="x" * 5000)])
    opened.shutdown()

    (request,) = receiver.requests

    assert ("/v1/traces", "a", 1, 200) == (
        request.path,
        request.headers["tenant"],
        request.spans,
        request.status,
    )
    assert request.wire_bytes < 1000 < 5000 < request.bytes


def test_before_it_is_open_it_has_no_address() -> None:
    """
    The error says how to open it.
    """
    with pytest.raises(MttpError, match="with OtlpReceiver"):
        _ = OtlpReceiver().http_address


def test_it_closes_twice_and_opens_again() -> None:
    """
    Received spans stay.
    """
    receiver = OtlpReceiver()
    for number in range(2):
        with receiver:
            opened = transport(receiver, "http")
            opened.export([span(number)])
            opened.shutdown()
        receiver.close()

    assert ["span 0", "span 1"] == names(receiver)
