"""Spans that a transport does not take are retried, or counted as lost by cause; logs are limited."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from exporters import Exporter, Receiver, raising
from opentelemetry.sdk.trace import ReadableSpan
from polling import SECONDS, eventually

import mttp
from mttp.codec.redaction import ContentRule
from mttp.codec.withholding import Kept
from mttp.model import clock
from mttp.semconv import attributes as a
from mttp.transports.export_target import ExportTarget
from mttp.transports.partial_export import PartialExport, RejectedSpans
from mttp.transports.pipeline import losses, pipeline
from mttp.transports.stats import TransportStats


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that takes everything in the end."""
    made = Receiver()
    yield made
    made.answer = lambda spans: None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is offered again soon, at the end as well."""
    monkeypatch.setattr(pipeline, "INTERVAL", 0.02)
    monkeypatch.setattr(pipeline, "RESTS", (0.02, 0.04, 0.08))


def play(**facts: Any) -> None:
    """Record an episode of two spans."""
    with mttp.episode(**facts) as episode, episode.step():
        pass


def settle(session: mttp.Session) -> None:
    """Wait until the run has said all that it says of itself before its end."""
    session._recorder.wake()
    assert eventually(lambda: session._recorder._is_detected)
    session.flush()


def only(session: mttp.Session) -> TransportStats:
    """The counters of the one transport."""
    (stats,) = session.stats.transports.values()
    return stats


def steps(spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    """Those of the spans that are steps."""
    return [span for span in spans if span.name == "step"]


def rejecting(cause: str = "http_400") -> Callable[[Sequence[ReadableSpan]], None]:
    """Turns everything down for good."""

    def answer(spans: Sequence[ReadableSpan]) -> None:
        traces = {span.context.trace_id for span in spans if span.context is not None}
        raise PartialExport("bad request", rejections=[RejectedSpans(cause, len(spans), len(traces))])

    return answer


# Refused: kept.


def test_what_is_kept_is_offered_again_and_the_rest_is_not(receiver: Receiver) -> None:
    """
    Of one offer some spans may be delivered and others kept.
    """

    def answer(spans: Sequence[ReadableSpan]) -> None:
        if len(receiver.offered) == 1:
            raise PartialExport("busy", kept=steps(spans))

    with mttp.configure(receiver) as session:
        receiver.answer = answer
        play()
        assert eventually(lambda: not session.stats.pending)

    assert [1, 1] == [sum(name == "step" for name in offer) for offer in receiver.offered if "step" in offer]
    assert 1 == sum("episode" in offer for offer in receiver.offered)
    assert ({}, 0, session.stats.recorded) == (
        dict(session.stats.lost),
        session.stats.pending,
        session.stats.delivered,
    )


def test_what_is_kept_for_ever_is_never_given_up_before_the_end(receiver: Receiver) -> None:
    """
    However often an overloaded receiver says so, and whatever else it takes meanwhile.
    """

    def answer(spans: Sequence[ReadableSpan]) -> None:
        if any(span.name == "episode kept" for span in spans):
            raise PartialExport("busy", kept=spans)

    with mttp.configure(receiver) as session:
        receiver.answer = answer
        play(env="kept")
        for _ in range(20):
            play(env="other")
            session.flush()
        assert ({}, True) == (dict(session.stats.lost), session.stats.pending > 0)
        receiver.answer = lambda spans: None

    assert 1 == receiver.taken.count("episode kept")
    assert (0, {}) == (session.stats.pending, dict(session.stats.lost))


def test_what_is_kept_at_the_end_is_lost_and_counted(receiver: Receiver) -> None:
    """
    Closing asks a few times, and says that not everything was written.
    """

    def answer(spans: Sequence[ReadableSpan]) -> None:
        raise PartialExport("busy", kept=spans)

    receiver.answer = answer
    session = mttp.configure(receiver)
    play()

    assert not session.close()
    assert ({"write_failed": session.stats.recorded}, 1, 0, 1) == (
        dict(session.stats.lost),
        session.stats.lost_episodes,
        session.stats.pending,
        receiver.shutdowns,
    )


def test_a_receiver_that_asks_for_time_is_given_it(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Nothing is offered before, not even by a flush, which says that it could not.
    """
    now = 1000.0
    monkeypatch.setattr(clock, "seconds", lambda: now)

    def answer(spans: Sequence[ReadableSpan]) -> None:
        if now < 1060.0:
            raise PartialExport("too many requests", kept=spans, retry_after=60.0)

    with mttp.configure(receiver) as session:
        receiver.answer = answer
        play()
        assert not session.flush()
        before = len(receiver.offered)
        for _ in range(5):
            play()
            assert not session.flush()
        assert (1, 1) == (before, len(receiver.offered))
        now = 1061.0
        assert eventually(session.flush)

    assert 6 == receiver.taken.count("episode")


def test_the_end_does_not_wait_for_a_receiver_that_asks_for_time(receiver: Receiver) -> None:
    """
    It is asked once more instead: what it takes then is delivered.
    """

    def answer(spans: Sequence[ReadableSpan]) -> None:
        if len(receiver.offered) == 1:
            raise PartialExport("too many requests", kept=spans, retry_after=3600.0)

    with mttp.configure(receiver) as session:
        receiver.answer = answer
        play()
        assert not session.flush()

    assert (1, {}) == (receiver.taken.count("episode"), dict(session.stats.lost))


# Refused: rejections.


def test_what_is_rejected_is_lost_by_its_cause(receiver: Receiver) -> None:
    """
    The rest of the offer was delivered; the episode's other spans may still be.
    """

    def answer(spans: Sequence[ReadableSpan]) -> None:
        found = steps(spans)
        if found:
            raise PartialExport("too large", rejections=[RejectedSpans("too_large", len(found), 1)])

    with mttp.configure(receiver) as session:
        receiver.answer = answer
        play()
        session.flush()

    stats = only(session)
    assert ({"too_large": 1}, 1, 0) == (dict(stats.lost), stats.lost_episodes, stats.pending)
    assert stats.recorded == stats.delivered + 1


def test_one_offer_may_be_delivered_kept_and_rejected_in_parts(receiver: Receiver) -> None:
    """
    Each span has one fate.
    """

    def answer(spans: Sequence[ReadableSpan]) -> None:
        found = steps(spans)
        if len(found) == 3:
            raise PartialExport(
                "some",
                kept=found[:1],
                rejections=[RejectedSpans("http_400", 1, 1), RejectedSpans("http_413", 1, 1)],
            )

    monitored = mttp.configure(receiver)
    monitored._pipeline._owner.mark = lambda: None  # type: ignore[method-assign]
    with monitored as session:
        receiver.answer = answer
        with mttp.episode() as episode:
            for _ in range(3):
                with episode.step():
                    pass
        assert eventually(session.flush)

    stats = only(session)
    assert {"http_400": 1, "http_413": 1} == dict(stats.lost)
    assert [3, 1] == [sum(name == "step" for name in offer) for offer in receiver.offered if "step" in offer]
    assert (0, stats.recorded - 2) == (stats.pending, stats.delivered)


@pytest.mark.parametrize("claimed", [-3, 0, 1_000_000])
def test_a_receiver_that_miscounts_can_not_upset_the_sums(claimed: int, receiver: Receiver) -> None:
    """
    It can't reject more than there were, nor fewer than none.
    """

    def answer(spans: Sequence[ReadableSpan]) -> None:
        raise PartialExport(
            "?", kept=spans[:1], rejections=[RejectedSpans("partial_success", claimed, claimed)]
        )

    with mttp.configure(receiver) as session:
        receiver.answer = answer
        play()
        session.flush()
        stats = only(session)
        with stats.lock:
            assert stats.recorded == stats.delivered + stats.pending + sum(stats.lost.values())
            assert 0 <= stats.delivered <= stats.recorded
            assert 0 <= stats.lost_episodes <= stats.recorded
        receiver.answer = lambda spans: None

    assert 0 == stats.pending


def test_what_was_not_offered_can_not_be_kept(receiver: Receiver) -> None:
    """
    Spans of the exporter's own making, or the same twice, are not offered to it again.
    """

    def answer(spans: Sequence[ReadableSpan]) -> None:
        if len(receiver.offered) == 1:
            raise PartialExport("?", kept=[ReadableSpan("stranger"), *steps(spans), *steps(spans)])

    with mttp.configure(receiver) as session:
        receiver.answer = answer
        play()
        session.flush()

    offered = [name for offer in receiver.offered for name in offer]
    assert (2, 0) == (offered.count("step"), offered.count("stranger"))
    assert session.stats.recorded == session.stats.delivered


def test_a_receiver_that_rejects_everything_does_not_get_it(receiver: Receiver) -> None:
    """
    A gap that is lost makes no further gap: an idle session stays idle.
    """
    with mttp.configure(receiver) as session:
        receiver.answer = rejecting()
        play()
        settle(session)
        before = len(receiver.offered)
        for _ in range(10):
            session.flush()
        assert before == len(receiver.offered)

    offered = [name for offer in receiver.offered for name in offer]
    assert (0, session.stats.recorded) == (offered.count("gap"), only(session).lost["http_400"])
    assert (0, 1) == (session.stats.pending, session.stats.lost_episodes)


def test_an_episode_whose_first_spans_were_rejected_is_forgotten_with_its_last(receiver: Receiver) -> None:
    session = mttp.configure(receiver)
    settle(session)
    for number in range(5):
        receiver.answer = rejecting()
        with mttp.episode() as episode:
            with episode.step():
                pass
            session.flush()
            receiver.answer = lambda spans: None
        session.flush()
        assert session.stats.lost_episodes == number + 1
    (sent,) = [
        each for each in gc.get_objects() if type(each) is losses.Losses and each._stats is only(session)
    ]
    assert sent._counted == set()


def test_a_gap_that_is_rejected_is_counted_and_not_reported_repeatedly(receiver: Receiver) -> None:
    """
    Not until something else was taken: then the next gap has it.
    """
    rejected = 0

    def answer(spans: Sequence[ReadableSpan]) -> None:
        nonlocal rejected
        gaps = sum(span.name == "gap" for span in spans)
        if gaps:
            rejected += 1
            raise PartialExport("no", rejections=[RejectedSpans("http_403", gaps, 0)])
        if steps(spans):
            raise PartialExport("no", rejections=[RejectedSpans("http_400", 1, 1)])

    with mttp.configure(receiver) as session:
        settle(session)
        receiver.answer = answer
        with mttp.episode() as episode:
            episode.step().end()
        assert eventually(lambda: rejected == 1)
        for _ in range(10):
            session.flush()
        assert 1 == rejected
        receiver.answer = lambda spans: None
        play()
        session.flush()
        assert eventually(lambda: "gap" in receiver.taken)

    stats = only(session)
    assert {"http_400": 1, "http_403": 1} == dict(stats.lost)
    assert (0, 1) == (stats.pending, stats.lost_episodes)


def test_a_gap_says_how_many_spans_and_episodes_were_lost_and_by_which_transport() -> None:
    """
    One for each cause.
    """
    exporter = Exporter()
    causes = iter(list[tuple[str, int]]())

    class Picky(Exporter):
        def export(self, spans: Sequence[ReadableSpan]) -> Any:
            cause, count = next(causes, ("", 0))
            if not cause:
                return super().export(spans)
            raise PartialExport("no", rejections=[RejectedSpans(cause, count, 1)])

    picky = Picky()
    with mttp.configure([picky, exporter]) as session:
        settle(session)
        causes = iter([("http_400", 2), ("http_413", 1)])
        for _ in range(2):
            with session.stats.lock:  # so that nothing of it is written before the rest
                play()
            session.flush()
        assert eventually(lambda: session.flush() and picky.names().count("gap") == 2)

    gaps = [record.attributes for record in picky.records() if record.name == "gap"]
    assert {("http_400", 2, 1, "exporter"), ("http_413", 1, 1, "exporter")} == {
        (gap[a.GAP_REASON], gap[a.GAP_SPANS], gap[a.GAP_EPISODES], gap[a.TRANSPORT_NAME]) for gap in gaps
    }
    assert "gap" not in exporter.names()
    assert "lost_spans" in {problem.kind for problem in mttp.read(picky).problems}


# What the log says.


def test_a_transport_that_keeps_failing_is_mentioned_once_a_minute(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    However often it is asked; and once when it works again.
    """
    now = 1000.0
    monkeypatch.setattr(clock, "seconds", lambda: now)
    with caplog.at_level(logging.WARNING), mttp.configure(receiver, provenance=False) as session:
        receiver.answer = raising(OSError("no route"))  # type: ignore[assignment]
        play()
        for _ in range(20):
            session.flush()
        assert 1 == len(caplog.messages)
        now += 61.0
        for _ in range(20):
            session.flush()
        assert 2 == len(caplog.messages)
        receiver.answer = lambda spans: None
        assert session.flush()

    assert [True, True, False] == ["kept for later" in message for message in caplog.messages]
    assert "works again" in caplog.messages[2]


def test_a_transport_that_comes_and_goes_fills_no_log(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Trouble is mentioned once a minute, and its end as often.
    """
    with caplog.at_level(logging.WARNING), mttp.configure(receiver) as session:
        for number in range(20):
            receiver.answer = raising(OSError("down")) if number % 2 else lambda spans: None  # type: ignore[assignment]
            play()
            session.flush()
        receiver.answer = lambda spans: None

    assert [False, True] == ["works again" in message for message in caplog.messages]


def test_losses_by_one_cause_are_mentioned_once_a_minute(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Also where each was told in a gap at once.
    """
    now = 1000.0
    monkeypatch.setattr(clock, "seconds", lambda: now)
    stats = TransportStats("otlp")
    kept = losses.Losses(stats)
    with caplog.at_level(logging.WARNING):
        for number in range(100):
            kept.reject(RejectedSpans("http_400", 1, 1), [])
            kept.log()
            stats.delivered += 1
            assert 1 == len(kept.unreported())
            now += 61.0 if number == 50 else 0.1

    assert ["mttp: http_400: spans are lost, and counted in session.stats"] * 2 == caplog.messages


# An exporter that leaves.


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_an_exporter_that_leaves_takes_the_thread_not_with_it(
    error: BaseException, receiver: Receiver
) -> None:
    """
    It is trouble as any other: the spans are kept, and written once they are taken.
    """

    def answer(spans: Sequence[ReadableSpan]) -> None:
        raise error

    with mttp.configure(receiver) as session:
        receiver.answer = answer
        play()
        assert not session.flush()
        receiver.answer = lambda spans: None
        assert session.flush()

    assert ({}, 1) == (dict(session.stats.lost), receiver.taken.count("episode"))


# What may not be shown.


@dataclass(frozen=True)
class Hiding:
    """As much of a withholding as a veil looks at: every text becomes a star, and each look is counted."""

    looks: list[int]
    fails: Callable[[Mapping[str, Any]], bool] = lambda values: False

    rule = ContentRule()
    content = True

    def keep(self, values: Mapping[str, Any], *, spent: int = 0, **texts: Any) -> Kept:
        self.looks.append(spent)
        if self.fails(values):
            raise ValueError("can't tell")
        changed = a.OBSERVATION_VALUE in values
        kept = {**values, a.OBSERVATION_VALUE: "*"} if changed else dict(values)
        return Kept(kept, spent + 1, changed, **texts)

    def spend(self, *_: object) -> None:
        """It has to look at each."""


def hiding(exporter: Exporter, monkeypatch: pytest.MonkeyPatch, hides: Hiding) -> None:
    """Have one exporter see spans through `hides` only."""
    of = ExportTarget.of.__func__  # type: ignore[attr-defined]

    def veiled(cls: type[ExportTarget], transport: Any, **options: Any) -> ExportTarget:
        lane = of(cls, transport, **options)
        if transport is exporter:
            object.__setattr__(lane, "withholding", hides)
        return lane  # type: ignore[no-any-return]

    monkeypatch.setattr(ExportTarget, "of", classmethod(veiled))


def shown(exporter: Exporter) -> list[str]:
    """The observations that an exporter was given."""
    return [
        record.attributes[a.OBSERVATION_VALUE]
        for record in exporter.records()
        if a.OBSERVATION_VALUE in record.attributes
    ]


def observe(*texts: str) -> None:
    """Record an episode that sees these."""
    with mttp.episode() as episode:
        for text in texts:
            with episode.step() as step:
                step.observation(text)


def test_each_span_is_looked_at_once_however_often_it_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A redaction hook is the user's code, and a budget is spent once.
    """
    exporter, hides = Exporter(), Hiding([])
    hiding(exporter, monkeypatch, hides)
    exporter.trouble = raising(OSError("down"))
    with mttp.configure(exporter) as session:
        session._pipeline._owner.mark = lambda: None  # type: ignore[method-assign]
        observe("one", "two")
        for _ in range(5):
            assert not session.flush()
        assert [0, 1, 2] == hides.looks
        exporter.trouble = lambda segment: None
        assert session.flush()

    assert exporter.offers >= 6
    assert ["*", "*"] == shown(exporter)


def test_other_transports_are_given_the_originals(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    In whichever order they write.
    """
    veiled, plain = Exporter(), Exporter()
    hiding(veiled, monkeypatch, Hiding([]))
    for order in ([veiled, plain], [plain, veiled]):
        with mttp.configure(order) as session:
            for _ in range(5):
                observe("secret")
                session.flush()

    assert (["*"] * 10, ["secret"] * 10) == (shown(veiled), shown(plain))


def test_what_can_not_be_judged_is_lost_rather_than_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The whole episode and no other, for this transport and no other; counted, told and logged.
    """
    veiled, plain = Exporter(), Exporter()
    hiding(veiled, monkeypatch, Hiding([], lambda values: values.get(a.OBSERVATION_VALUE) == "poison"))
    with caplog.at_level(logging.WARNING), mttp.configure([veiled, plain]) as session:
        observe("fine")
        observe("before", "poison", "after")
        observe("fine")
        assert eventually(lambda: session.flush() and "gap" in veiled.names())

    lossy, whole = session.stats.transports.values()
    assert ["*", "*"] == shown(veiled)
    assert ["fine", "before", "poison", "after", "fine"] == shown(plain)
    assert (["withholding_failed"], 1, 0) == (list(lossy.lost), lossy.lost_episodes, lossy.pending)
    assert ({}, 0) == (dict(whole.lost), whole.pending)
    assert 4 <= lossy.lost["withholding_failed"] <= 5
    (gap,) = [record.attributes for record in veiled.records() if record.name == "gap"]
    assert ("withholding_failed", 1) == (gap[a.GAP_REASON], gap[a.GAP_EPISODES])
    assert 2 == len([line for line in caplog.messages if "mttp doctor" not in line])


def test_where_nothing_can_be_judged_nothing_is_shown_and_the_session_stays_idle(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Not even that something was lost, and that does not go on for ever.
    """
    exporter = Exporter()
    hides = Hiding([], lambda values: True)
    hiding(exporter, monkeypatch, hides)
    with caplog.at_level(logging.WARNING), mttp.configure(exporter) as session:
        observe("secret")
        settle(session)
        session.flush()
        before = len(hides.looks)
        for _ in range(10):
            session.flush()
        assert before == len(hides.looks)

    stats = only(session)
    assert [] == exporter.names()
    assert ({"withholding_failed": stats.recorded}, 0, 1) == (
        dict(stats.lost),
        stats.pending,
        stats.lost_episodes,
    )
    assert 2 == len([line for line in caplog.messages if "mttp doctor" not in line])


def test_a_view_that_takes_its_time_is_given_up_with_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A redaction hook that hangs can't hold up the end, and what it was looking at is counted.
    """
    exporter, go = Exporter(), threading.Event()
    hiding(exporter, monkeypatch, Hiding([], lambda values: not go.wait(SECONDS)))
    session = mttp.configure(exporter)
    observe("secret")
    written = session.close(0.2)
    stats = only(session)
    after = (written, dict(stats.lost), stats.pending)
    go.set()
    assert eventually(lambda: exporter.shutdowns)

    assert (False, {"session_closed": stats.recorded}, 0) == after
    assert ([], 0) == (exporter.names(), stats.delivered)


# Which episodes were lost.


def test_lost_episodes_are_episodes_and_not_the_run() -> None:
    """
    The run's own spans are spans that were lost, and no episode.
    """
    exporter = Exporter()
    exporter.trouble = raising(OSError("dead"))
    session = mttp.configure(exporter)
    for _ in range(3):
        play()
    session.close()

    assert (3, 3) == (session.stats.lost_episodes, only(session).lost_episodes)


def test_an_episode_that_is_open_at_the_end_is_lost_once() -> None:
    """
    However many of its spans come too late.
    """
    with mttp.configure("memory://") as session:
        episode = mttp.episode()
        steps = [episode.step() for _ in range(3)]
    for step in steps:
        step.end()
    episode.end()

    assert ({"session_closed": 4}, 1) == (dict(session.stats.lost), session.stats.lost_episodes)


def test_an_episode_of_which_parts_are_lost_by_several_causes_is_lost_once() -> None:
    """
    First to a dead transport, then to the session's end.
    """
    exporter = Exporter()
    exporter.trouble = raising(OSError("dead"))
    session = mttp.configure(exporter)
    episode = mttp.episode()
    episode.step().end()
    session.close()
    episode.end()

    assert {"write_failed", "session_closed"} == set(session.stats.lost)
    assert 1 == session.stats.lost_episodes
