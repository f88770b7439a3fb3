"""One defined outcome for whatever a receiver answers, and for whatever is in between."""

from __future__ import annotations

import gzip
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from otlp import DELIVERED, PROTOCOLS, Outcome, names, outcome, span, transport
from polling import SECONDS
from stores import answering, dripping, redirecting, serving

from mttp import transports
from mttp.model import clock
from mttp.testing import Behaviour, OtlpReceiver
from mttp.transports.otlp import OtlpTransport
from mttp.transports.partial_export import PartialExport, RejectedSpans

REJECTED = bytes([0x0A, 0x02, 0x08, 0x02])
"""An answer in protobuf that rejects two spans."""
SPANS = [span(1), span(2), span(3, trace=2)]
KEPT = Outcome(False, kept=3)


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """A receiver that accepts everything until the test configures a failure."""
    with OtlpReceiver() as opened:
        yield opened


@contextmanager
def opened(receiver: OtlpReceiver, protocol: str, **options: object) -> Iterator[OtlpTransport]:
    """A transport while it is open."""
    made = transport(receiver, protocol, **options)
    yield made
    made.shutdown()


@contextmanager
def listener() -> Iterator[socket.socket]:
    """A port that answers only if the test accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def lost(cause: str, spans: int = 3, episodes: int = 2) -> Outcome:
    """Spans that were turned down for good."""
    return Outcome(False, rejections=(RejectedSpans(cause, spans, episodes),))


# What the receiver says.


@pytest.mark.parametrize(
    ("protocol", "status"),
    [("http", status) for status in (429, 502, 503, 504)]
    + [
        ("grpc", status)
        for status in (
            "UNAVAILABLE",
            "DEADLINE_EXCEEDED",
            "RESOURCE_EXHAUSTED",
            "ABORTED",
            "CANCELLED",
            "OUT_OF_RANGE",
            "DATA_LOSS",
        )
    ],
)
def test_what_may_be_taken_later_is_kept(receiver: OtlpReceiver, protocol: str, status: int | str) -> None:
    """
    The transport tries once and hands everything back; the pipeline waits as long as the receiver asks.
    """
    receiver.behave(Behaviour(status=status), Behaviour(status=status, retry_after=2.5))
    with opened(receiver, protocol) as made:
        assert KEPT == outcome(made, SPANS)
        assert Outcome(False, kept=3, retry_after=2.5) == outcome(made, SPANS)
        assert DELIVERED == outcome(made, SPANS)

    assert [status, status, 200] == [request.status for request in receiver.requests]


@pytest.mark.parametrize(
    ("protocol", "status", "cause"),
    [("http", status, f"http_{status}") for status in (302, 400, 401, 403, 404, 405, 415, 422, 500, 501)]
    + [
        ("grpc", status, f"grpc_{status.lower()}")
        for status in (
            "INVALID_ARGUMENT",
            "UNAUTHENTICATED",
            "PERMISSION_DENIED",
            "UNIMPLEMENTED",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "FAILED_PRECONDITION",
            "INTERNAL",
            "UNKNOWN",
        )
    ],
)
def test_what_will_never_be_taken_is_counted_by_cause(
    receiver: OtlpReceiver, protocol: str, status: int | str, cause: str
) -> None:
    """
    It is not sent again, and those after it are sent.
    """
    receiver.behave(Behaviour(status=status, message="no thanks"))
    with opened(receiver, protocol) as made:
        found = outcome(made, SPANS, message=True)
        assert DELIVERED == outcome(made, SPANS)

    assert lost(cause) == Outcome(False, rejections=found.rejections)
    assert "no thanks" in found.message
    assert 2 == len(receiver.requests)


def test_a_compression_that_a_receiver_does_not_know_is_named(receiver: OtlpReceiver) -> None:
    """
    Servers of Go refuse it with the status of a missing service.
    """
    message = 'grpc: Decompressor is not installed for grpc-encoding "gzip"'
    receiver.behave(Behaviour(status="UNIMPLEMENTED", message=message))
    with opened(receiver, "grpc") as made:
        found = outcome(made, SPANS, message=True)

    assert "does not know this compression: write compression=gzip or compression=none" in found.message


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (
            "application/x-protobuf",
            REJECTED + bytes([0x0A, 0x84, 0x80, 0x08, 0x12, 0x80, 0x80, 0x08]) + b"x" * (1 << 17),
        ),
        ("", REJECTED),
        ("text/plain", REJECTED),
        ("application/json", b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "no", "new": 1}}'),
    ],
)
def test_a_partial_success_is_understood_in_whichever_form(kind: str, body: bytes) -> None:
    """
    With a message of 128 KiB, without a content type, or as JSON.
    """
    with serving(lambda _: (200, kind, body)) as place:
        made = OtlpTransport(f"http://{place}")
        with pytest.raises(PartialExport) as caught:
            made.export(SPANS)
        made.shutdown()

    assert [("partial_success", 2)] == [(one.cause, one.spans) for one in caught.value.rejections]


@pytest.mark.parametrize("status", [200, 400, 503])
def test_what_a_receiver_says_acts_on_no_terminal(status: int, receiver: OtlpReceiver) -> None:
    """
    Escape sequences and newlines of its message are spaces in errors and in the log.
    """
    receiver.behave(Behaviour(status=status, message="a\x1b[2J\nb\x9bc", rejected=1), forever=True)
    for protocol in PROTOCOLS:
        with opened(receiver, protocol) as made, pytest.raises(PartialExport) as caught:
            made.export(SPANS)

        assert str(caught.value).isprintable()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partial_success_loses_what_the_receiver_did_not_take(receiver: OtlpReceiver, protocol: str) -> None:
    """
    The protocol does not tell which spans: they are counted, with the receiver's words.
    """
    receiver.behave(Behaviour(rejected=2, message="two are too old"))
    with opened(receiver, protocol) as made:
        found = outcome(made, SPANS, message=True)

    assert (RejectedSpans("partial_success", 2, 2),) == found.rejections
    assert found.message.endswith("two are too old")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_receiver_that_rejects_more_than_it_got_is_not_believed(
    receiver: OtlpReceiver, protocol: str
) -> None:
    """
    What is recorded, delivered and lost must add up.
    """
    receiver.behave(
        Behaviour(rejected=2**40, message="everything"), Behaviour(rejected=-7, message="nothing")
    )
    with opened(receiver, protocol) as made:
        assert lost("partial_success") == outcome(made, SPANS)
        assert DELIVERED == outcome(made, SPANS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_warning_of_the_receiver_is_logged_once(
    receiver: OtlpReceiver, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A partial success that rejects nothing is advice.
    """
    receiver.behave(Behaviour(message="slow down"), forever=True)
    with opened(receiver, protocol) as made:
        assert [DELIVERED] * 3 == [outcome(made, SPANS) for _ in range(3)]

    assert [f"mttp: {made!r}: slow down"] == caplog.messages


KINDS = ("application/x-protobuf", "application/json", "text/html; charset=utf-8", "text/plain", "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\r\n",
        b"\x0a\x00",
        b"\x0a\x00\x7a\x02ab",
        b"\x12\x02ab",
        b"{}",
        b" {}\n",
        b"\xef\xbb\xbf{}",
        b'{"partialSuccess": {}}',
        b'{"partialSuccess": null}',
        b'{"partial_success": {}}',
        b'{"partialSuccess": {}, "acceptedSpans": 3}',
        b'{"message": "OK"}',
    ],
)
def test_an_answer_of_otlp_is_a_delivery_whatever_its_type(body: bytes, kind: str) -> None:
    """
    Empty, in protobuf or in JSON, also with members of later versions; the last one is Langfuse's.
    """
    with serving(lambda _: (200, kind, body)) as place, sending(place) as made:
        assert DELIVERED == outcome(made, SPANS)


@pytest.mark.parametrize("status", [200, 202, 204])
def test_an_empty_success_is_a_delivery(status: int) -> None:
    """
    Receivers that have nothing to say answer so, often with the content type of a page.
    """
    with serving(lambda _: (status, "text/html", b"")) as place, sending(place) as made:
        assert DELIVERED == outcome(made, SPANS)


PAGE = "<html><body>Sign in</body></html>"
XHTML = '<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "x">'


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("body", "is_page"),
    [
        (PAGE.encode(), True),
        (f" \r\n\t{PAGE}".encode(), True),
        (f"<!DOCTYPE html>{PAGE}".encode("utf-8-sig"), True),
        (f"<!-- portal --> <!-- of the hotel -->{PAGE}".encode(), True),
        ((XHTML + PAGE).encode(), True),
        (PAGE.encode("utf-16"), True),
        (PAGE.encode("utf-16-le"), True),
        (PAGE.encode("utf-16-be"), True),
        (PAGE.encode("utf-32"), True),
        (b"<head><title>Sign in</title></head>", True),
        (b"<h1>Sign in</h1>", False),
        (b"OK", False),
        (b"Error", False),
        (b"1 welcome", False),
        (b"Sign in first", False),
        (b'"OK"', False),
        (b"[]", False),
        (b"true", False),
        (b'{"error": "Sign in"}', False),
        (b'{"message": "Sign in"}', False),
        (b'{"login": "https://portal/"}', False),
        (b'{"partialSuccess": 3}', False),
        (b'[{"partialSuccess": {}}]', False),
        (b'{"partialSuccess": {}', False),
        (b'{"partialSuccess": {"\\ud800": 1}}', False),
        (b"\xff\xfegarbage", False),
        (b"\x0a\x05hello", False),
    ],
)
def test_a_success_that_is_no_answer_of_otlp_is_no_delivery(body: bytes, is_page: bool, kind: str) -> None:
    """
    A proxy, a portal or another server says so to everything, and has taken nothing.
    """
    with serving(lambda _: (200, kind, body)) as place, sending(place) as made:
        found = outcome(made, SPANS, message=True)

    assert lost("not_otlp") == Outcome(False, rejections=found.rejections)
    assert ("an HTML page" if is_page else "not an answer of OTLP") in found.message


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_repeats_the_request_has_taken_nothing(kind: str) -> None:
    """
    A request can be parsed as an answer whose fields have other types.
    """
    with serving(lambda asked: (200, kind, asked.body)) as place, sending(place) as made:
        assert lost("not_otlp") == outcome(made, SPANS)


@pytest.mark.parametrize(
    ("body", "expected"), [(b"{}", DELIVERED), (b"\x0a\x00", DELIVERED), (PAGE.encode(), lost("not_otlp"))]
)
@pytest.mark.parametrize("form", ["gzip", "chunked"])
def test_an_answer_may_be_compressed_or_in_chunks(form: str, body: bytes, expected: Outcome) -> None:
    """
    What counts is what it holds.
    """
    if form == "gzip":
        packed = gzip.compress(body)
        head = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    else:
        packed = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        head = b"Transfer-Encoding: chunked\r\n\r\n"
    with answering(b"HTTP/1.1 200 OK\r\n" + head + packed) as place, sending(place) as made:
        assert expected == outcome(made, SPANS)


@contextmanager
def sending(place: str) -> Iterator[Any]:
    """A transport to a server over HTTP."""
    made = transports.open(f"http://{place}", timeout=60)
    yield made
    made.shutdown()


@pytest.mark.parametrize("kind", ["", "text/plain"])
def test_a_page_is_one_whatever_it_is_called(kind: str) -> None:
    """
    A proxy that says so to everything has taken nothing.
    """
    page = b" <!DOCTYPE html><html><style>p {}</style><script>x < 1</script><p>Sign <b>in</b></p></html>"
    with serving(lambda asked: (200, kind, page)) as place:
        found = outcome(transports.open(f"http://{place}"), SPANS, message=True)  # type: ignore[arg-type]

    assert lost("not_otlp") == Outcome(False, rejections=found.rejections)
    assert "200 OK: Sign in (an HTML page" in found.message


def test_where_a_redirect_leads_is_reported() -> None:
    """
    It is not followed: what was recorded is for the address that was given.
    """
    with redirecting("https://elsewhere.example/v1/traces") as (place, _):
        found = outcome(transports.open(f"http://{place}"), SPANS, message=True)  # type: ignore[arg-type]

    assert lost("http_302") == Outcome(False, rejections=found.rejections)
    assert "(redirects to https://elsewhere.example/v1/traces: use that address)" in found.message


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "does the server accept OTLP protobuf there?"),
        (413, "raise it, or write profile=strict"),
        (429, "send less, or later"),
        (500, "see the receiver's log"),
        (502, "is the server behind it running?"),
        (418, "is it an OTLP receiver?"),
    ],
)
def test_what_to_try_is_reported(receiver: OtlpReceiver, status: int, advice: str) -> None:
    """
    Of every answer that is none of those hoped for.
    """
    receiver.behave(Behaviour(status=status, message="no thanks"), forever=True)
    with opened(receiver, "http") as made:
        found = outcome(made, SPANS, message=True)

    assert f"{status} " in found.message
    assert "no thanks" in found.message
    assert advice in found.message


def test_a_retry_after_may_be_a_date(receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And what is neither date nor number is no answer.
    """
    from mttp.otlp.replies import seconds_to_wait

    monkeypatch.setattr(clock, "wall", lambda: 1_000_000 * 10**9)

    given = [
        formatdate(1_000_030, usegmt=True),
        formatdate(999_000, usegmt=True),
        "soon",
        "nan",
        "-3",
        "7",
        "",
        "Fri, 31 Dec 99999 23:59:59 GMT",
    ]
    assert [30.0, 0.0, None, None, 0.0, 7.0, None, None] == [seconds_to_wait(text) for text in given]


@pytest.mark.parametrize("given", ["99999999999999999999", "1e308", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_no_caller_waits_for_years(receiver: OtlpReceiver, given: str) -> None:
    """
    A receiver that asks for more has a wrong clock: the transport waits an hour at most.
    """
    from mttp.otlp.replies import seconds_to_wait

    assert 3600.0 == seconds_to_wait(given)


def test_retry_info_may_stand_by_itself(receiver: OtlpReceiver) -> None:
    """
    As the official exporters expect it; others put it among the details of the status.
    """
    from mttp.transports.otlp.grpc import _retry_after

    class Error:
        def trailing_metadata(self) -> list[tuple[str, bytes]]:
            info = RetryInfo()
            info.retry_delay.FromMilliseconds(1500)
            return [("google.rpc.retryinfo-bin", info.SerializeToString())]

    assert 1.5 == _retry_after(Error())


YEARS, BACK = (RetryInfo(retry_delay=Duration(seconds=count)) for count in (10**11, -5))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("google.rpc.retryinfo-bin", b"\xff\xff", None),
        ("grpc-status-details-bin", b"\xff\xff", None),
        ("google.rpc.retryinfo-bin", BACK.SerializeToString(), 0.0),
        ("google.rpc.retryinfo-bin", YEARS.SerializeToString(), 3600.0),
    ],
    ids=["garbage", "garbage as details", "negative", "years"],
)
def test_what_a_receiver_says_over_grpc_may_be_anything(
    key: str, value: bytes, expected: float | None
) -> None:
    """
    The spans are kept, and an hour at most is waited.
    """

    def busy(request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata(((key, value),))
        context.abort(grpc.StatusCode.UNAVAILABLE, "later")
        return b""

    with calling(busy) as place:
        made = OtlpTransport(f"grpc://{place}", timeout=20)
        assert Outcome(False, kept=3, retry_after=expected) == outcome(made, SPANS)
        made.shutdown()


def test_a_success_over_grpc_is_one_whatever_it_holds() -> None:
    """
    The status says that the request was taken.
    """
    with calling(lambda request, context: b"\xff\xfegarbage") as place:
        made = OtlpTransport(f"grpc://{place}", timeout=20)
        assert DELIVERED == outcome(made, SPANS)
        made.shutdown()


@contextmanager
def calling(export: Callable[[bytes, Any], bytes]) -> Iterator[str]:
    """A gRPC server that answers so; its host and port."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    method = grpc.unary_unary_rpc_method_handler(export)
    name = "opentelemetry.proto.collector.trace.v1.TraceService"
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, {"Export": method})])
    place = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield place
    server.stop(None).wait()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_credentials_that_a_receiver_repeats_are_not_shown(receiver: OtlpReceiver, protocol: str) -> None:
    """
    Nor are those in the address that a redirect leads to.
    """
    said = "Bearer hush-hush is wrong, and so is hush-hush"
    receiver.behave(Behaviour(status=401 if protocol == "http" else "UNAUTHENTICATED", message=said))
    with opened(receiver, protocol, headers={"authorization": "Bearer hush-hush"}) as made:
        found = outcome(made, SPANS, message=True)
    with redirecting("https://me:hush@elsewhere.example/?token=hush") as (place, _):
        led = outcome(OtlpTransport(f"http://{place}"), SPANS, message=True)

    assert "[redacted] is wrong, and so is [redacted]" in found.message
    assert "elsewhere.example" in led.message
    assert "hush" not in found.message + led.message


# What the network does.


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("host", ["127.0.0.1:1", "nowhere.invalid:4318"])
def test_where_no_receiver_is_everything_is_kept(protocol: str, host: str) -> None:
    """
    A receiver may come later, and so may a name.
    """
    made = transports.open(f"{protocol}://{host}", timeout=SECONDS)

    assert KEPT == outcome(made, SPANS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://127.0.0.1:1", "connection refused; is a receiver running there"),
        ("grpc://127.0.0.1:1", "connection refused; is a receiver running there"),
        ("http://nowhere.invalid:4318", "unknown host name"),
        ("grpc://nowhere.invalid:4317", "unknown host name; check the address"),
    ],
)
def test_why_there_is_no_answer_is_reported_in_plain_words(address: str, words: str) -> None:
    """
    What was tried, what came back and what to try, and nothing of the libraries in between.
    """
    found = outcome(transports.open(address, timeout=SECONDS), SPANS, message=True)  # type: ignore[arg-type]

    assert found.message.startswith(address)
    assert words in found.message
    assert [] == [word for word in ("Pool", "Error", "Errno", "ipv4") if word in found.message]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_how_long_was_waited_is_reported(protocol: str) -> None:
    """
    As it was asked for, whatever was left of it.
    """
    with listener() as server:
        made = transports.open(f"{protocol}://127.0.0.1:{server.getsockname()[1]}", timeout=0.3)

        found = outcome(made, SPANS, message=True)  # type: ignore[arg-type]
        made.shutdown()

    assert "no answer within 0.3 seconds; timeout=N waits longer" in found.message


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_receiver_that_hangs_is_left_at_the_timeout(receiver: OtlpReceiver, protocol: str) -> None:
    """
    What it was sent is kept, and it may answer again.
    """
    receiver.behave(Behaviour(hang=True))
    with opened(receiver, protocol, timeout=0.3) as made:
        assert KEPT == outcome(made, SPANS)
        receiver.release()
        assert DELIVERED == outcome(made, SPANS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_port_that_never_answers_is_left_at_the_timeout(protocol: str) -> None:
    """
    A server listens there and does not answer.
    """
    with listener() as server:
        made = transports.open(f"{protocol}://127.0.0.1:{server.getsockname()[1]}", timeout=0.3)

        assert KEPT == outcome(made, SPANS)  # type: ignore[arg-type]
        made.shutdown()


def test_a_connection_that_breaks_is_tried_once_more(receiver: OtlpReceiver) -> None:
    """
    It may be one that was kept open too long; a receiver that breaks every one keeps nothing from being kept.
    """
    with opened(receiver, "http") as made:
        receiver.behave(Behaviour(status=503, reset=True))
        assert DELIVERED == outcome(made, SPANS)
        receiver.behave(Behaviour(status=503, reset=True), forever=True)
        assert KEPT == outcome(made, SPANS)

    assert 4 == len(receiver.requests)


def test_a_connection_that_breaks_within_an_answer_had_its_status() -> None:
    """
    A success stays one, and a refusal too.
    """
    with OtlpReceiver() as receiver, opened(receiver, "http") as made:
        receiver.behave(Behaviour(body=b"\x0a", reset=True))
        assert DELIVERED == outcome(made, SPANS)
        receiver.behave(Behaviour(status=400, body=b"no", reset=True))
        assert lost("http_400") == outcome(made, SPANS)
        receiver.behave(Behaviour(status=503, body=b"no", reset=True))
        assert KEPT == outcome(made, SPANS)


@pytest.mark.parametrize(
    ("written", "expected"),
    [(b"", KEPT), (b"HTTP/1.1 503 No\r\nContent-Length: 5000\r\n\r\n", KEPT)],
    ids=["head", "body"],
)
def test_an_answer_that_comes_byte_by_byte_is_left_at_the_timeout(written: bytes, expected: Outcome) -> None:
    """
    The timeout is that of the whole answer; a status that came by then counts.
    """
    with dripping(written) as place:
        made = transports.open(f"http://{place}", timeout=0.3)

        assert expected == outcome(made, SPANS)  # type: ignore[arg-type]
        made.shutdown()


@pytest.mark.parametrize("answer", [b"", b"\x00" * 20, b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 abc\r\n\r\n"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_another_protocol_gets_nothing(protocol: str, answer: bytes) -> None:
    """
    An answer that can't be understood is none.
    """

    def serve(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(10)
                connection.sendall(answer)

    with listener() as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        made = transports.open(f"{protocol}://127.0.0.1:{server.getsockname()[1]}", timeout=1)

        assert KEPT == outcome(made, SPANS)  # type: ignore[arg-type]

        made.shutdown()
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    ("protocol", "advice"),
    [("http", "if it is a gRPC receiver"), ("grpc", "if it is an HTTP receiver")],
)
def test_the_other_protocol_s_port_is_pointed_out(receiver: OtlpReceiver, protocol: str, advice: str) -> None:
    """
    4317 and 4318 are easily confused.
    """
    other = receiver.grpc_address if protocol == "http" else receiver.http_address
    made = transports.open(f"{protocol}://{other.partition('://')[2]}", timeout=SECONDS)

    found = outcome(made, SPANS, message=True)  # type: ignore[arg-type]

    assert (3, True) == (found.kept, advice in found.message), found.message
    made.shutdown()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tls_with_a_receiver_that_has_none_is_pointed_out(receiver: OtlpReceiver, protocol: str) -> None:
    """
    The spans are kept: a certificate can be mended.
    """
    address = receiver.http_address if protocol == "http" else receiver.grpc_address
    made = transports.open(address.replace("://", "s://"), timeout=SECONDS)

    found = outcome(made, SPANS, message=True)  # type: ignore[arg-type]

    assert (3, True) == (found.kept, "whether the receiver uses TLS" in found.message), found.message
    made.shutdown()


# Several requests.


def test_a_span_that_can_t_be_sent_is_lost_alone(receiver: OtlpReceiver) -> None:
    """
    Spans of others may hold what the protocol has no room for.
    """
    broken = span(2)
    broken._start_time = -1
    with opened(receiver, "http") as made:
        found = outcome(made, [span(1), broken, span(3)], message=True)

    assert (RejectedSpans("invalid", 1, 1),) == found.rejections
    assert "can't be encoded" in found.message
    assert ["span 1", "span 3"] == names(receiver)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_after_a_refusal_nothing_more_is_tried(receiver: OtlpReceiver, protocol: str) -> None:
    """
    What was delivered before stays delivered, and the rest is kept, in order.
    """
    unavailable = 503 if protocol == "http" else "UNAVAILABLE"
    receiver.behave(Behaviour(), Behaviour(status=unavailable))
    spans = [span(number, filling="x" * 400) for number in range(9)]
    with opened(receiver, protocol, max_bytes=1600) as made:
        assert Outcome(False, kept=6) == outcome(made, spans)

    assert (["span 0", "span 1", "span 2"], 2) == (names(receiver), len(receiver.requests))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_rejected_request_does_not_take_others_along(receiver: OtlpReceiver, protocol: str) -> None:
    """
    Causes are counted over all requests of one export.
    """
    bad = 400 if protocol == "http" else "INVALID_ARGUMENT"
    receiver.behave(Behaviour(status=bad), Behaviour(), Behaviour(status=bad))
    spans = [span(number, filling="x" * 400) for number in range(9)]
    with opened(receiver, protocol, max_bytes=1600) as made:
        found = outcome(made, spans)

    assert [(6, 1)] == [(rejection.spans, rejection.episodes) for rejection in found.rejections]
    assert ["span 3", "span 4", "span 5"] == names(receiver)


# Patience, and noise.


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shutdown_does_not_wait_for_a_receiver_that_hangs(receiver: OtlpReceiver, protocol: str) -> None:
    """
    It comes from another thread; over gRPC it ends the call, over HTTP the answer is not waited for.
    """
    receiver.behave(Behaviour(hang=True))
    found: list[Outcome] = []
    made = transport(receiver, protocol, timeout=60)
    thread = threading.Thread(target=lambda: found.append(outcome(made, SPANS)))
    thread.start()
    assert receiver.wait(1)

    made.shutdown()

    if protocol == "http":
        receiver.release()
    thread.join(SECONDS)
    assert [DELIVERED if protocol == "http" else KEPT] == found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_exporters_own_log_stays_silent(
    receiver: OtlpReceiver, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The pipeline logs them, not OpenTelemetry's exporter; logs of other exporters are not suppressed.
    """
    unavailable, bad = (503, 400) if protocol == "http" else ("UNAVAILABLE", "INVALID_ARGUMENT")
    receiver.behave(Behaviour(status=unavailable), Behaviour(status=bad), Behaviour(rejected=1))
    with caplog.at_level(logging.INFO, "opentelemetry"), opened(receiver, protocol) as made:
        for _ in range(3):
            outcome(made, SPANS)
        logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").error("somebody else's")

    assert ["somebody else's"] == caplog.messages


def test_secrets_are_in_no_text(receiver: OtlpReceiver) -> None:
    """
    Headers are not in the repr of the transport, in the environment of child processes, or in messages.
    """
    receiver.behave(Behaviour(status=401))
    with opened(receiver, "http", headers={"authorization": "Bearer hush"}) as made:
        found = outcome(made, SPANS, message=True)

    assert not [text for text in (repr(made), made.address, found.message) if "hush" in str(text)]
