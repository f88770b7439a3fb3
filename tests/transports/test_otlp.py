"""OTLP over HTTP and gRPC: what is sent is received, in requests that no receiver is too small for."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import trustme
import urllib3
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from otlp import DELIVERED, PROTOCOLS, SCOPE, Outcome, names, outcome, recorded, span, transport
from projection import project
from specimen import EVERYTHING

import mttp
from mttp import transports
from mttp.codec.withholding import Withholding
from mttp.model.values import differences
from mttp.otlp.spans.span_records import EndedSpan
from mttp.semconv import attributes as a
from mttp.testing import OtlpReceiver
from mttp.transports.otlp import OtlpTransport
from mttp.transports.partial_export import RejectedSpans
from mttp.transports.pipeline.content_filter import kept_of, with_kept

MIB = 2**20
WITHHOLDING = Withholding(content=False, max_elements=4096, max_episode_bytes=MIB)


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """A receiver with a collector's limits."""
    with OtlpReceiver() as opened:
        yield opened


def as_delivered(value: mttp.Episode, withholding: Withholding) -> list[Any]:
    """The spans of an episode, as a transport that withholds gets them."""
    delivered, spent = [], 0
    for one in recorded(value, config={"lr": 0.1}):
        kept = kept_of(withholding, one.record, spent)
        spent = kept.spent
        delivered.append(EndedSpan(with_kept(one.record, kept)))
    return delivered


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("withholding", [Withholding(), WITHHOLDING], ids=["whole", "otlp"])
def test_everything_comes_back_as_its_projection(
    receiver: OtlpReceiver, protocol: str, withholding: Withholding
) -> None:
    """
    The episode that uses every part of the vocabulary reads as `project` says, every omission named.
    """
    opened = transport(receiver, protocol)

    assert SpanExportResult.SUCCESS is opened.export(as_delivered(EVERYTHING, withholding))

    with mttp.configure(transport="memory://") as session:
        session.record(EVERYTHING)
    whole = mttp.read(session).episodes[0]
    found = mttp.read(receiver).episodes[0]
    assert ["trace_id", "run_id"] == differences(project(whole, withholding), found)
    assert ("mttp.inputs.json: content is off" in found.omissions) is not withholding.content
    opened.shutdown()


@pytest.mark.parametrize(
    ("protocol", "compression"),
    [("http", "none"), ("http", "gzip"), ("http", "deflate"), ("grpc", "none"), ("grpc", "gzip")],
)
def test_requests_may_be_compressed(receiver: OtlpReceiver, protocol: str, compression: str) -> None:
    """
    The receiver finds the same in them.
    """
    opened = transport(receiver, protocol, compression=compression)

    assert DELIVERED == outcome(opened, [span(filling="x" * 10_000)])

    (request,) = receiver.requests
    assert ["span 0"] == names(receiver)
    assert request.bytes > 10_000
    if protocol == "http":
        assert (compression == "none") is (request.wire_bytes == request.bytes)
    opened.shutdown()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_headers_go_with_every_request(receiver: OtlpReceiver, protocol: str) -> None:
    """
    Also those of a query; names are in lower case.
    """
    address = receiver.http_address if protocol == "http" else receiver.grpc_address
    opened = transports.open(f"{address}?headers=Authorization=Bearer%20x%3D,tenant=a")
    other = transport(receiver, protocol, headers={"Authorization": "Bearer y"})

    for each in (opened, other):
        each.export([span()])
        each.shutdown()

    found = [
        (request.headers["authorization"], request.headers.get("tenant")) for request in receiver.requests
    ]
    assert [("Bearer x=", "a"), ("Bearer y", None)] == found


# Sizes.


@pytest.mark.parametrize(("protocol", "mib"), [("http", 20), ("grpc", 10)])
def test_an_episode_beyond_the_limit_is_sent_in_requests_within_it(protocol: str, mib: int) -> None:
    """
    A receiver with a collector's limits refuses none of them, and gets every span, arrays and all.
    """
    steps = tuple(
        mttp.Step(index=index, observation=np.full(2048, index, np.float64)) for index in range(70 * mib)
    )
    spans = recorded(mttp.Episode(steps=steps))
    with OtlpReceiver() as receiver:
        opened = transport(receiver, protocol)

        assert DELIVERED == outcome(opened, spans)

        limit = opened.settings.max_bytes
        sizes = [request.bytes for request in receiver.requests]
        assert sum(sizes) > mib * MIB > limit
        assert len(sizes) == -(-sum(sizes) // limit)
        assert max(sizes) <= limit < (20 if protocol == "http" else 4) * MIB
        assert len(spans) == len(names(receiver))
        opened.shutdown()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_requests_are_as_large_as_they_may_be(receiver: OtlpReceiver, protocol: str) -> None:
    """
    Spans of many scopes, all of them told in each request that needs them, stay within the limit too.
    """
    scopes = [InstrumentationScope(f"library {number}", attributes={"a": "x" * 50}) for number in range(5)]
    spans = [span(number, scope=scopes[number % 5], filling="x" * (number % 97)) for number in range(1000)]
    opened = transport(receiver, protocol, max_bytes="10KB")

    assert DELIVERED == outcome(opened, spans)

    sizes = [request.bytes for request in receiver.requests]
    assert max(sizes) <= 10_000
    assert all(size > 9_000 for size in sizes[:-1])
    assert sorted(names(receiver)) == sorted(one.name for one in spans)
    opened.shutdown()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_receiver_that_takes_less_gets_halves(protocol: str) -> None:
    """
    Where it says that a request is too large, the spans are sent again in smaller ones, none of them lost.
    """
    with OtlpReceiver(max_http_bytes=20_000, max_grpc_bytes=20_000) as receiver:
        opened = transport(receiver, protocol)

        assert DELIVERED == outcome(opened, [span(number, filling="x" * 1000) for number in range(50)])

        assert [f"span {number}" for number in range(50)] == names(receiver)
        opened.shutdown()


def big_step() -> mttp.Episode:
    """An episode whose one step has arrays, content and facts, a megabyte each."""
    step = mttp.Step(
        observation=np.zeros(MIB // 8),
        action="a" * MIB,
        reward=0.5,
        tokens=mttp.Tokens(ids=np.arange(MIB // 8)),
        metadata={"note": "n" * MIB},
    )
    return mttp.Episode(env="big", steps=(step,))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("limit", "missing"),
    [
        ("4MB", [a.OBSERVATION_VALUE, a.TOKEN_IDS]),
        ("2MB", [a.ACTION_VALUE, a.OBSERVATION_VALUE, a.TOKEN_IDS]),
        ("500KB", [a.ACTION_VALUE, f"{a.METADATA}.note", a.OBSERVATION_VALUE, a.TOKEN_IDS]),
    ],
)
def test_a_span_over_the_limit_loses_its_payload_and_says_so(
    receiver: OtlpReceiver, protocol: str, limit: str, missing: list[str]
) -> None:
    """
    Arrays go first, then content, then whatever is long; identity, reward and counts arrive.
    """
    opened = transport(receiver, protocol, max_bytes=limit)

    assert DELIVERED == outcome(opened, recorded(big_step()))

    (episode,) = mttp.read(receiver).episodes
    (step,) = episode.steps
    assert (True, 0.5, "none" if a.TOKEN_IDS in missing else "array") == (
        episode.complete,
        step.reward,
        "none",
    )
    assert missing == [omission.partition(":")[0] for omission in step.omissions]
    assert step.tokens is not None
    assert (None, MIB // 8, True) == (
        step.tokens.ids,
        step.tokens.count,
        "more than a request may" in str(step.tokens.omitted_reason),
    )
    opened.shutdown()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_span_that_is_too_large_whatever_is_left_out_is_lost_alone(
    receiver: OtlpReceiver, protocol: str
) -> None:
    """
    It is counted, and the others are delivered.
    """
    giant = span(1, **{f"key{number}": "x" * 1000 for number in range(100)})
    opened = transport(receiver, protocol, max_bytes=20_000)

    found = outcome(opened, [span(0), giant, span(2)])

    assert Outcome(False, rejections=(RejectedSpans("too_large", 1, 1),)) == found
    assert ["span 0", "span 2"] == names(receiver)
    opened.shutdown()


@pytest.mark.parametrize(("protocol", "cause"), [("http", "http_413"), ("grpc", "grpc_resource_exhausted")])
def test_a_single_span_that_a_receiver_finds_too_large_becomes_smaller_too(protocol: str, cause: str) -> None:
    """
    Only when nothing more can be left out, it is lost.
    """
    with OtlpReceiver(max_http_bytes=5_000, max_grpc_bytes=5_000) as receiver:
        opened = transport(receiver, protocol)
        giant = span(2, **{f"key{number}": "x" * 1000 for number in range(10)})

        assert DELIVERED == outcome(opened, [span(1, filling="x" * 50_000)])
        assert Outcome(False, rejections=(RejectedSpans(cause, 1, 1),)) == outcome(opened, [giant])

        (found,) = receiver.records()
        (omission,) = found.attributes[a.OMISSIONS]
        assert re.fullmatch("filling: the span has 50[0-9]{3} bytes, more than a request may have", omission)
        opened.shutdown()


# TLS.


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's certificate and a client's, in files."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name, identity in (("server", "127.0.0.1"), ("client", "trainer@example.org")):
        issued = authority.issue_cert(identity)
        issued.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
        issued.private_key_pem.write_to_path(str(folder / f"{name}.key"))
    return folder


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_receiver_with_tls_is_checked_against_the_certificate(certificates: Path, protocol: str) -> None:
    """
    https:// and grpcs:// use TLS.
    """
    with OtlpReceiver(certificate=certificates / "server.pem", key=certificates / "server.key") as receiver:
        trusting = transport(receiver, protocol, certificate=certificates / "ca.pem")
        wary = transport(receiver, protocol)

        assert DELIVERED == outcome(trusting, [span()])
        doubted = outcome(wary, [span()], message=True)

        assert (1, (), True) == (doubted.kept, doubted.rejections, "check certificates" in doubted.message)
        assert str(trusting).startswith(("https://", "grpcs://"))
        trusting.shutdown()
        wary.shutdown()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_shows_its_certificate(certificates: Path, protocol: str) -> None:
    """
    A receiver that asks for one takes nothing without it.
    """
    pair = {"client_certificate": certificates / "client.pem", "client_key": certificates / "client.key"}
    server = {name: certificates / f"server.{end}" for name, end in (("certificate", "pem"), ("key", "key"))}
    with OtlpReceiver(**server, client_ca=certificates / "ca.pem") as receiver:
        known = transport(receiver, protocol, certificate=certificates / "ca.pem", **pair)
        unknown = transport(receiver, protocol, certificate=certificates / "ca.pem")

        assert DELIVERED == outcome(known, [span()])
        assert Outcome(False, kept=1) == outcome(unknown, [span()])
        known.shutdown()
        unknown.shutdown()


# Life.


def test_nothing_is_connected_before_the_first_export() -> None:
    """
    A receiver that isn't there is no error at set-up.
    """
    opened = transports.open("http://127.0.0.1:1")
    other = transports.open("grpc://127.0.0.1:1")

    assert ("http://127.0.0.1:1/v1/traces", "grpc://127.0.0.1:1") == (repr(opened), repr(other))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_after_shutdown_nothing_is_sent(receiver: OtlpReceiver, protocol: str) -> None:
    """
    What is offered all the same is handed back.
    """
    opened = transport(receiver, protocol)
    opened.export([span()])

    opened.shutdown()
    opened.shutdown()

    assert Outcome(False, kept=1) == outcome(opened, [span()])
    assert 1 == len(receiver.requests)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_forked_child_connects_anew(receiver: OtlpReceiver, protocol: str) -> None:
    """
    The parent's connection works on, and so does the child's own, at the second attempt where need be.
    """
    address = receiver.http_address if protocol == "http" else receiver.grpc_address
    script = f"""
import os, warnings
from otlp import span
from mttp import transports
from mttp.transports.partial_export import PartialExport
warnings.simplefilter("ignore")
opened = transports.open({address!r})
opened.export([span(1)])
if not (child := os.fork()):
    opened.after_fork()
    try:
        opened.export([span(2)])
    except PartialExport:
        opened.export([span(2)])
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
opened.export([span(3)])
opened.shutdown()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        timeout=60,
        cwd=Path(__file__).parents[1],
    )

    assert (0, ["span 1", "span 2", "span 3"]) == (done.returncode, names(receiver)), done.stderr


@pytest.mark.parametrize(("protocol", "loaded"), [("http", "grpc"), ("grpc", "urllib3")])
def test_only_the_protocol_that_is_used_is_imported(protocol: str, loaded: str) -> None:
    """
    And neither before something is sent.
    """
    script = f"""
import sys
from mttp import transports
opened = transports.open("{protocol}://127.0.0.1:1")
assert not {{"grpc", "urllib3", "requests"}} & sys.modules.keys()
opened._connected()
assert not {{{loaded!r}, "requests"}} & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)

    assert (0, "") == (done.returncode, done.stderr)


def test_no_instrumentation_records_what_is_sent(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    An instrumented HTTP client would record each export, and export that.
    """
    seen = []
    send = urllib3.HTTPConnectionPool.urlopen

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(otel_context.get_value(otel_context._SUPPRESS_INSTRUMENTATION_KEY))
        return send(self, *args, **kwargs)

    monkeypatch.setattr(urllib3.HTTPConnectionPool, "urlopen", watched)
    opened = transport(receiver, "http")

    opened.export([span()])

    assert [True] == seen
    assert otel_context.get_value(otel_context._SUPPRESS_INSTRUMENTATION_KEY) is None
    opened.shutdown()


def test_a_session_sends_its_episodes(receiver: OtlpReceiver) -> None:
    """
    The address is all that it takes.
    """
    with mttp.configure(transport=receiver.http_address) as session, mttp.episode(env="toy") as episode:
        episode.end(outcome="success")

    assert session.stats.delivered == session.stats.spans
    assert ["success"] == [found.outcome for found in mttp.read(receiver)]


def test_what_holds_of_the_transport_is_on_it() -> None:
    """
    The pipeline reads the limits of each transport from its attributes.
    """
    opened = cast(OtlpTransport, transports.open("http://127.0.0.1:1"))

    assert ("otlp", True, 64 * MIB, 0.0, 2 * MIB, replace(WITHHOLDING, non_finite=False)) == (
        opened.name,
        opened.sampled,
        opened.buffer_bytes,
        opened.max_block_seconds,
        opened.segment_bytes,
        opened.withholding,
    )
    assert opened.force_flush()


def test_spans_of_equal_scopes_stand_together(receiver: OtlpReceiver) -> None:
    """
    Each foreign span comes with a scope object of its own; a request tells it once.
    """
    opened = transport(receiver, "http")
    one, many = [span()], [span(number) for number in range(100)]

    opened.export(one)
    opened.export(many)

    first, second = (request.bytes for request in receiver.requests)
    scope = len(SCOPE.name) + len("service.name") + len("test")
    assert second < 100 * (first - scope)
    assert replace(receiver.requests[1], headers={}).spans == 100
    opened.shutdown()
