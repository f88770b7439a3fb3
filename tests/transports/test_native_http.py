"""Messages over HTTP: the stack's tools take them, and whatever a peer does has one defined outcome."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import trustme
from mist import Mist, break_off, drip, garbage, hang, hang_up, take_and_break_off
from opentelemetry.sdk.trace import ReadableSpan
from otlp import DELIVERED, Outcome, outcome, span
from polling import SECONDS, eventually
from programs import told

import mttp
from mttp import transports
from mttp.errors import SendError, TransportError
from mttp.mist.messages import HealthPing, Message, received
from mttp.otlp.spans.span_records import framed
from mttp.transports import backoff
from mttp.transports.partial_export import RejectedSpans

SPANS = [span(1), span(2), span(3, trace=2)]
PING = Message.new("me", HealthPing(from_="me"))


@pytest.fixture
def mist() -> Iterator[Mist]:
    """A peer that accepts everything until the test configures a failure."""
    with Mist() as opened:
        yield opened


@pytest.fixture
def transport(mist: Mist) -> Iterator[Any]:
    """A transport to it."""
    opened = transports.open(mist.address, timeout=SECONDS)
    yield opened
    opened.shutdown()


def lost(cause: str, spans: int = 1) -> Outcome:
    """So many spans of one trace that were turned down for good."""
    return Outcome(False, rejections=(RejectedSpans(cause, spans, 1),))


def kept(found: Outcome) -> int:
    """How many spans are to be offered again, none of the others being lost; after some seconds."""
    assert () == found.rejections
    assert found.retry_after is not None
    return found.kept


# What the stack's tools make of a run.


def test_the_counts_of_the_stacks_own_tool_are_ours(mist: Mist) -> None:
    """
    Spans, errors and tokens, of episodes that go well and badly, with calls of models.
    """
    with mttp.configure(["memory://", mist.address], run="counted") as session:
        for number in range(12):
            try:
                with mttp.episode(env="toy") as episode, episode.step() as step:
                    step.reward(float(number))
                    with step.model_call("policy", provider="local") as call:
                        call.response(input_tokens=10 + number, output_tokens=number)
                    if number % 4 == 0:
                        raise RuntimeError("the tool broke")
            except RuntimeError:
                pass

    spans = list(session.records())
    calls = [call for episode in mttp.read(session) for step in episode.steps for call in step.calls]
    assert {
        "total_spans": session.stats.transports[f"{mist.address}/mist"].delivered,
        "error_count": sum(each.status_code == 2 for each in spans),
        "total_tokens_in": sum(call.input_tokens for call in calls),
        "total_tokens_out": sum(call.output_tokens for call in calls),
        "by_operation": Counter(each.name for each in spans),
    } == mist.stats()
    assert (37, 6, 186) == (
        mist.stats()["total_spans"],
        mist.stats()["error_count"],
        mist.stats()["total_tokens_in"],
    )
    assert {} == dict(session.stats.lost)


def test_every_message_is_trusted_here_too(mist: Mist, transport: Any) -> None:
    """
    It has a checksum, names its program, and the same id however often it is sent.
    """
    transport.export(SPANS)
    transport.export(SPANS)

    first, again = [[received(body) for body in mist.bodies[place : place + 3]] for place in (0, 3)]
    assert [message.id for message in first] == [message.id for message in again]
    assert {"test"} == {message.source for message in first}
    assert all(message.checksum for message in first)
    assert 1 == mist.connections


def test_source_names_the_program(mist: Mist) -> None:
    """
    Instead of the service.
    """
    made = transports.open(f"{mist.address}?source=trainer")
    made.export(SPANS)
    made.shutdown()

    assert "trainer" == received(mist.bodies[0]).source
    assert f"{mist.address}/mist?source=trainer" == made.address


def test_content_stays_here(mist: Mist) -> None:
    """
    As with collectors, unless it is asked for; what is missing is named.
    """
    for content, expected in ((None, False), (True, True)):
        route = mttp.Route(mist.address, content=content)
        with mttp.configure(route), mttp.episode() as episode, episode.step() as step:
            step.action("left")
        said = [body for body in mist.bodies if b'"operation":"step"' in body]

        assert expected == (b"left" in said[-1])
        assert expected != (b"content is off" in said[-1])


# What the peer answers.


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_may_pass_is_kept(mist: Mist, transport: Any, status: int) -> None:
    """
    From the first span that was not taken; those before it are not sent again.
    """
    mist.answers = [202, status]

    assert 2 == kept(outcome(transport, SPANS))
    assert DELIVERED == outcome(transport, SPANS[1:])
    assert 4 == len(mist.bodies)


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 405, 410, 422])
def test_what_can_not_pass_is_lost_and_counted(mist: Mist, transport: Any, status: int) -> None:
    """
    It is sent once, and the others go on.
    """
    mist.answers = [202, status]

    assert lost(f"http_{status}") == outcome(transport, SPANS)
    assert 3 == len(mist.bodies)
    assert DELIVERED == outcome(transport, SPANS)


def test_nothing_is_sent_before_the_peer_has_replied(mist: Mist, transport: Any) -> None:
    """
    At least for so long, in seconds.
    """
    mist.answers = [(429, "7"), (503, "0")]

    assert 7.0 == outcome(transport, SPANS).retry_after
    assert 0.0 < outcome(transport, SPANS).retry_after < 1.0


def test_attempts_become_rarer(mist: Mist, transport: Any) -> None:
    """
    Twice as rare each time, by chance a little less, up to five seconds; a success begins anew.
    """
    mist.answers = [500] * 7
    waits = [outcome(transport, SPANS[:1]).retry_after for _ in range(7)]

    assert all(min(0.2 * 2**n, 5.0) / 2 <= wait <= min(0.2 * 2**n, 5.0) for n, wait in enumerate(waits))
    transport.export(SPANS)
    mist.answers = [500]
    assert outcome(transport, SPANS).retry_after <= 0.2


def test_no_seeded_number_is_used_up(mist: Mist, transport: Any) -> None:
    """
    A training run that is seeded stays as it is, whatever the network does.
    """
    import random

    random.seed(3)
    expected = random.random()
    random.seed(3)
    mist.answers = [500]
    outcome(transport, SPANS)

    assert expected == random.random()


@pytest.mark.parametrize("answers", [[hang_up, hang_up], [break_off], [garbage]])
def test_no_answer_is_one_that_may_come(mist: Mist, transport: Any, answers: list[Any]) -> None:
    """
    The connection ends without one, twice, or with something else.
    """
    mist.answers = answers

    assert 3 == kept(outcome(transport, SPANS))
    assert DELIVERED == outcome(transport, SPANS)


def test_a_connection_that_was_kept_open_too_long_is_no_failure(mist: Mist, transport: Any) -> None:
    """
    The message goes over a new one at once.
    """
    mist.answers = [202, hang_up]

    assert DELIVERED == outcome(transport, SPANS)
    assert (4, 2) == (len(mist.bodies), mist.connections)


def test_the_status_says_that_it_was_taken(mist: Mist, transport: Any) -> None:
    """
    Even where the answer breaks off after it.
    """
    mist.answers = [take_and_break_off] * 3

    assert DELIVERED == outcome(transport, SPANS)
    assert 3 == len(mist.spans)


@pytest.mark.parametrize("answer", [hang, drip])
def test_a_slow_peer_costs_no_more_than_the_time_that_it_is_given(mist: Mist, answer: Any) -> None:
    """
    Whether it says nothing or a byte at a time, for ever.
    """
    mist.answers = [answer]
    transport = transports.open(mist.address, timeout=0.3)
    found = outcome(transport, SPANS, message=True)
    transport.shutdown()

    assert 3 == found.kept
    assert "no answer within 0.3 seconds" in found.message


def test_no_receiver_listens() -> None:
    """
    Everything is kept, since a receiver may come back.
    """
    with Mist() as mist:
        transport = transports.open(mist.address)

    found = outcome(transport, SPANS, message=True)
    assert 3 == found.kept
    assert "refused" in found.message


def test_a_peer_that_is_killed_and_comes_back_has_everything(mist: Mist) -> None:
    """
    Episodes that ended meanwhile wait, and arrive once a receiver listens again.
    """
    with mttp.configure(mist.address) as session:
        with mttp.episode():
            pass
        assert session.flush(20)
        mist.__exit__()
        with mttp.episode():
            pass
        assert not session.flush(0.5)
        with mttp.mist.receive(f"mttp+http://127.0.0.1:{mist.port}") as second:
            assert eventually(lambda: second.pending)
            assert session.flush(20)
            session.close()
            second.close()
            operations = [message.decode().operation for message in second]

    markers = {"run.start"}
    assert ["episode"] == [each["operation"] for each in mist.spans if each["operation"] not in markers]
    assert ["episode", "run"] == [operation for operation in operations if operation not in markers]
    assert {} == dict(session.stats.lost)
    assert session.stats.recorded == session.stats.delivered


# Size.


def test_a_span_that_is_too_large_is_sent_without_its_arrays(mist: Mist) -> None:
    """
    It is never sent as it is, and says what is missing.
    """
    route = mttp.Route(mist.address, content=True, max_bytes=20_000)
    with mttp.configure(route) as session, mttp.episode() as episode, episode.step() as step:
        step.tokens(ids=list(range(4000)), logprobs=[0.5] * 4000)

    (step,) = mttp.read(mist).episodes[0].steps
    assert (4000, None) == (step.tokens.count, step.tokens.ids)
    assert any("larger than a message may be" in reason for reason in step.omissions)
    assert max(map(len, mist.bodies)) <= 20_000
    assert {} == dict(session.stats.lost)


def test_a_span_that_can_not_be_made_smaller_is_lost_and_named(mist: Mist) -> None:
    """
    With its size and the limit; the others arrive.
    """
    transport = transports.open(mist.address, max_bytes=2000)
    found = outcome(transport, [span(1), span(2, **{f"k{n}": "x" * 100 for n in range(100)})], message=True)
    transport.shutdown()

    assert (RejectedSpans("too_large", 1, 1),) == found.rejections
    assert "span 'span 2'" in found.message
    assert "at most 2,000 are allowed" in found.message
    assert 1 == len(mist.bodies)


def test_a_peer_that_takes_less_gets_less(mist: Mist, transport: Any) -> None:
    """
    A 413 is answered by a smaller form, as long as there is one.
    """
    import numpy as np

    with mttp.configure("memory://") as session, mttp.episode() as episode, episode.step() as step:
        step.observation(np.arange(100.0))
    mist.answers = [413]
    assert session.flush()
    transport.export([framed(next(each for each in session.records() if each.name == "step"))])

    assert len(mist.bodies[1]) < len(mist.bodies[0])
    mist.answers = [413] * 9
    assert lost("http_413") == outcome(transport, SPANS[:1])


def test_a_span_that_no_message_can_hold_is_lost_and_counted(mist: Mist, transport: Any) -> None:
    """
    For example, one without an id; half a surrogate pair is escaped.
    """
    assert lost("invalid") == outcome(transport, [ReadableSpan("odd"), span(1, text="\ud800")])
    assert 1 == len(mist.bodies)
    assert rb"\\ud800" in mist.bodies[0]


# Ends.


def test_after_the_end_nothing_is_sent(mist: Mist, transport: Any) -> None:
    """
    What is offered then is neither taken nor lost here; a second end is none.
    """
    transport.shutdown()
    transport.shutdown()

    assert 3 == outcome(transport, SPANS).kept
    assert [] == mist.bodies


def test_the_end_breaks_off_what_hangs(mist: Mist) -> None:
    """
    From another thread: a session that closes waits for no peer.
    """
    mist.answers = [hang]
    transport = transports.open(mist.address, timeout=60)
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.append(outcome(transport, SPANS)))
    thread.start()
    assert eventually(lambda: mist.bodies)
    transport.shutdown()
    thread.join(SECONDS)

    assert [3] == [each.kept for each in found]


def test_a_forked_child_has_a_connection_of_its_own() -> None:
    """
    Both go on, each with spans of its own.
    """
    found = told(
        """
        import json, os, mttp
        with mttp.mist.receive("mttp+http://127.0.0.1:0") as inbox:
            with mttp.configure(inbox.address, content=True) as session:
                with mttp.episode(env="before"):
                    pass
                session.flush()
                pid = os.fork()
                if not pid:
                    with mttp.episode(env="child"):
                        pass
                    session.close()
                    os._exit(0)
                os.waitpid(pid, 0)
                with mttp.episode(env="parent"):
                    pass
            inbox.close()
            found = sorted(message.decode().operation for message in inbox)
            print(json.dumps([operation for operation in found if operation != "run.start"]))
        """
    )

    assert ["episode before", "episode child", "episode parent", "run", "run"] == found


def test_a_proxy_that_the_environment_names_is_not_used(
    mist: Mist, transport: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Messages are for tools nearby.
    """
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    mist.answers = [202]
    with mttp.mist.dial(mist.address, max_retry_seconds=0) as sender:
        sender.send(PING)

    assert [PING.to_bytes()] == mist.bodies


# Addresses.


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("mttp+http://localhost:8700", "http://localhost:8700/mist"),
        ("mttp+http://localhost:8700/", "http://localhost:8700/mist"),
        ("mttp+http://localhost:8700/a/b", "http://localhost:8700/a/b"),
        ("mttp+http://[::1]:8700", "http://[::1]:8700/mist"),
        ("mttp+https://localhost", "https://localhost/mist"),
    ],
)
def test_messages_go_to_mist_unless_there_is_a_path(url: str, path: str) -> None:
    """
    Which is where the stack's tools take them.
    """
    transport = transports.open(url)

    assert f"mttp+{path}" == transport.address == repr(transport)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mttp+http://", "no host; write mttp+http://HOST:PORT"),
        ("mttp+http://a:b", "Port could not be cast"),
        ("mttp+http://user:secret@a", "an address can't contain credentials"),
        ("mttp+http://a?max_bytes=much", "expected a size"),
        ("mttp+http://a?timeout=0", "expected a number of seconds above zero"),
        ("mttp+http://a?retries=3", "unknown option 'retries'"),
        ("mttp+https://a?certificate=nowhere.pem", "can't read the file"),
        ("mttp+http://a?headers=x", "expected name=value"),
    ],
)
def test_wrong_addresses_are_errors_at_once(url: str, said: str) -> None:
    """
    That say what is wrong.
    """
    with pytest.raises(TransportError, match=re.escape(said)):
        transports.open(url)


def test_options_travel_to_other_processes_but_for_headers() -> None:
    """
    These are often secret.
    """
    transport = transports.open(
        "mttp+http://localhost:1", timeout=3, max_bytes="2MiB", headers={"authorization": "Bearer x"}
    )

    assert "mttp+http://localhost:1/mist?timeout=3.0&max_bytes=2097152" == transport.address


def test_over_tls() -> None:
    """
    Against the given certificates; an untrusted certificate is named as the reason.
    """
    import ssl

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path("ca.pem")
    with Mist() as mist:
        mist._server.socket = context.wrap_socket(mist._server.socket, server_side=True)
        address = mist.address.replace("http", "https")
        trusting = transports.open(address, certificate="ca.pem", timeout=SECONDS)
        assert DELIVERED == outcome(trusting, SPANS)
        trusting.shutdown()
        found = outcome(transports.open(address, timeout=SECONDS), SPANS, message=True)

    assert 3 == found.kept
    assert "check certificates" in found.message


# One message at a time.


def test_dial_sends_again_what_may_pass(mist: Mist, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    For as long as it has patience.
    """
    monkeypatch.setattr(backoff, "FIRST", 0.001)
    mist.answers = [503, hang_up, 202]
    with mttp.mist.dial(mist.address) as sender:
        sender.send(PING)

    assert [PING.to_bytes()] * 3 == mist.bodies


def test_a_connection_that_the_receiver_ends_is_opened_anew(mist: Mist) -> None:
    """
    After an answer that ends the connection, the message is sent again over another one.
    """

    def say_the_end(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 503 Full\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    with mttp.mist.dial(mist.address, max_retry_seconds=SECONDS) as sender:
        mist.answers = [say_the_end, 202]
        sender.send(PING)

    assert [PING.to_bytes()] * 2 == mist.bodies
    assert 2 == mist.connections


def test_dial_says_why_a_message_was_not_taken(mist: Mist) -> None:
    """
    At once where that can't pass, else when its patience is over.
    """
    with mttp.mist.dial(mist.address, max_retry_seconds=0) as sender:
        mist.answers = [400, 500]
        with pytest.raises(SendError, match="400 Bad Request") as refused:
            sender.send(PING)
        with pytest.raises(SendError, match="500") as failed:
            sender.send(PING)
    with pytest.raises(SendError, match="is closed") as closed:
        sender.send(PING)
    sender.close()

    assert ["http_400", "http_500", "closed"] == [each.value.cause for each in (refused, failed, closed)]
    assert [False, True, False] == [each.value.may_pass for each in (refused, failed, closed)]


def test_waits_stay_within_their_bounds() -> None:
    """
    However often it failed, and whatever the peer asks for.
    """
    assert all(backoff.wait(failures) <= backoff.LONGEST for failures in (1, 10, 10_000))
    assert 60.0 == backoff.wait(3, 60.0)
