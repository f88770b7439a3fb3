"""Channels: two ends that say the same name meet, and nothing that was put in is lost in silence."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from otlp import Outcome, outcome, span
from polling import SECONDS, eventually
from programs import told

import mttp
from mttp import transports
from mttp.errors import SendError, TransportError
from mttp.mist import channels
from mttp.mist.messages import HealthPing, Message, TraceSpan
from mttp.transports.partial_export import RejectedSpans


def ping(number: int = 0) -> Message:
    """A message with a distinct number."""
    return Message.new("me", HealthPing(from_=str(number)), id=str(number))


def numbers(receiver: mttp.mist.Receiver) -> list[int]:
    """The numbers of what is received until the end."""
    return [int(message.id) for message in receiver]


@pytest.mark.parametrize("receives_first", [True, False])
def test_two_ends_meet_by_name(receives_first: bool) -> None:
    """
    Whichever comes first; the messages are the very same objects, in their order.
    """
    ends = [mttp.mist.receive, mttp.mist.dial] if receives_first else [mttp.mist.dial, mttp.mist.receive]
    first, second = (end("chan://meeting") for end in ends)
    receiver, sender = (first, second) if receives_first else (second, first)
    sent = [ping(number) for number in range(3)]
    for message in sent:
        sender.send(message)
    sender.close()
    found = list(receiver)
    receiver.close()

    assert all(one is other for one, other in zip(sent, found, strict=True))
    assert 3 == receiver.stats.received


def test_a_run_goes_through_a_channel() -> None:
    """
    Its spans are messages there; the end of the session is the end of the channel.
    """
    with mttp.mist.receive("chan://run") as receiver:
        session = mttp.configure("chan://run")
        with session, mttp.episode(env="toy") as episode, episode.step() as step:
            step.reward(1.0)
        payloads = [message.decode() for message in receiver]

    assert ["step", "episode toy", "run"] == [payload.operation for payload in payloads]
    assert all(isinstance(payload, TraceSpan) for payload in payloads)
    assert (3, 3, {}) == (session.stats.recorded, session.stats.delivered, dict(session.stats.lost))


def test_what_nobody_took_waits_for_the_next() -> None:
    """
    Both ends may be closed meanwhile; once it is empty too, the name is free again.
    """
    with mttp.mist.dial("chan://left") as sender:
        for number in range(3):
            sender.send(ping(number))
    with mttp.mist.receive("chan://left") as receiver:
        assert "0" == next(receiver).id
        assert 2 == receiver.pending

    with mttp.mist.receive("chan://left") as receiver:
        assert [1, 2] == numbers(receiver)
    assert "left" not in channels._named


def test_a_full_channel_holds_up_its_sender() -> None:
    """
    Until there is space.
    """
    with mttp.mist.dial("chan://full?capacity=2") as sender, mttp.mist.receive("chan://full") as receiver:
        thread = threading.Thread(target=lambda: [sender.send(ping(number)) for number in range(5)])
        thread.start()
        assert eventually(lambda: receiver.pending == 2)
        found = [int(next(receiver).id) for _ in range(5)]
        thread.join(SECONDS)

    assert [0, 1, 2, 3, 4] == found


def test_a_full_channel_may_turn_messages_down() -> None:
    """
    Which is an error for a sender, and a counted loss for a session.
    """
    with mttp.mist.dial("chan://small?full=refuse&capacity=2") as sender:
        sender.send(ping(0))
        sender.send(ping(1))
        with pytest.raises(SendError, match="'small' is full: it holds 2 of 2 messages") as refused:
            sender.send(ping(2))
        transport = transports.open("chan://small?full=refuse")
        found = outcome(transport, [span(1), span(2, trace=2)])
        transport.shutdown()
    with mttp.mist.receive("chan://small") as receiver:
        left = numbers(receiver)

    assert ("channel_full", False) == (refused.value.cause, refused.value.may_pass)
    assert Outcome(False, rejections=(RejectedSpans("channel_full", 2, 2),)) == found
    assert [0, 1] == left


def test_a_channel_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    But takes any single message.
    """
    monkeypatch.setattr(channels, "MAX_BYTES", 10)
    with mttp.mist.dial("chan://bytes?full=refuse") as sender, mttp.mist.receive("chan://bytes") as receiver:
        sender.send(ping(0))
        with pytest.raises(SendError, match="is full"):
            sender.send(ping(1))
        next(receiver)
        sender.send(ping(2))

        assert 1 == receiver.pending
        next(receiver)


def test_a_send_after_the_end_is_an_error() -> None:
    """
    That says so; a second end is none.
    """
    sender = mttp.mist.dial("chan://ended")
    sender.close()
    sender.close()
    with pytest.raises(SendError, match="this end of the channel 'ended' is closed") as closed:
        sender.send(ping())

    assert "closed" == closed.value.cause


def test_the_end_of_one_sender_is_not_that_of_others() -> None:
    """
    The other side comes to an end with the last.
    """
    with mttp.mist.receive("chan://several") as receiver:
        one, other = mttp.mist.dial("chan://several"), mttp.mist.dial("chan://several")
        one.send(ping(0))
        one.close()
        one.close()
        other.send(ping(1))
        other.close()

        assert [0, 1] == numbers(receiver)


def test_a_sender_that_waits_is_let_go_by_the_end() -> None:
    """
    A session that closes waits no longer than it may, and counts what did not fit.
    """
    session = mttp.configure("chan://stuck?capacity=1", close_timeout=0.2)
    with mttp.episode():
        pass
    closed = session.close()
    with mttp.mist.receive("chan://stuck") as receiver:
        taken = len(list(receiver))

    assert (False, 1) == (closed, taken)
    assert session.stats.recorded == session.stats.delivered + sum(session.stats.lost.values())
    assert {"session_closed"} == set(session.stats.lost)


def test_a_receiver_that_waits_is_let_go_by_its_end() -> None:
    """
    From another thread.
    """
    receiver = mttp.mist.receive("chan://waiting")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(list, receiver)
        receiver.close()
        receiver.close()

        assert [] == found.result(SECONDS)


def test_many_senders_and_receivers_lose_nothing() -> None:
    """
    Ten of each, over a channel of four places; each message is received once.
    """
    senders = [mttp.mist.dial("chan://busy?capacity=4") for _ in range(10)]
    with ThreadPoolExecutor(20) as pool, mttp.mist.receive("chan://busy") as receiver:
        found = [pool.submit(numbers, receiver) for _ in range(10)]
        for place, sender in enumerate(senders):
            pool.submit(
                lambda sender=sender, place=place: [
                    *(sender.send(ping(100 * place + number)) for number in range(100)),
                    sender.close(),
                ]
            )
        taken = [number for each in found for number in each.result(SECONDS)]

    assert list(range(1000)) == sorted(taken)


def test_both_ends_agree_on_the_capacity() -> None:
    """
    The end that is opened first sets it; a different number at the other end is an error.
    """
    with mttp.mist.dial("chan://agreed?capacity=3"):
        with mttp.mist.receive("chan://agreed"), mttp.mist.receive("chan://agreed?capacity=3"):
            pass
        with pytest.raises(TransportError, match="already exists with capacity=3"):
            mttp.mist.receive("chan://agreed?capacity=4")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("chan://", "no name; write chan://NAME"),
        ("chan://a?capacity=0", "expected a whole number above zero"),
        ("chan://a?full=maybe", "expected one of block, refuse"),
        ("chan://a?size=3", "unknown option 'size'; known are capacity, full"),
    ],
)
def test_wrong_addresses_are_errors_at_once(url: str, said: str) -> None:
    """
    That say what is wrong.
    """
    before = dict(channels._named)

    with pytest.raises(TransportError, match=said):
        transports.open(url)
    assert before == channels._named


def test_a_forked_child_has_channels_of_its_own() -> None:
    """
    What it puts in is not the parent's to take; its name is free there.
    """
    found = told(
        """
        import json, os, mttp
        from mttp.mist.messages import HealthPing, Message
        receiver = mttp.mist.receive("chan://forked")
        sender = mttp.mist.dial("chan://forked")
        sender.send(Message.new("me", HealthPing(), id="parent"))
        pid = os.fork()
        if not pid:
            with mttp.mist.receive("chan://forked") as mine, mttp.mist.dial("chan://forked") as other:
                other.send(Message.new("me", HealthPing(), id="child"))
                os._exit(0 if next(mine).id == "child" and not mine.pending else 1)
        status = os.waitpid(pid, 0)[1]
        sender.close()
        print(json.dumps([status, [message.id for message in receiver]]))
        """
    )

    assert [0, ["parent"]] == found
