"""Evaluations as spans and as messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specimen import finite, int64s, optional, texts
from vectors import LINES

import mttp
from mttp.codec import evals
from mttp.errors import PayloadError
from mttp.mist import eval_messages, span_messages
from mttp.mist.messages import EvalResult, EvalRun, Message, Payload, TraceSpan
from mttp.model import Evaluation, Spec, TaskResult
from mttp.model.evaluations import OUTCOMES
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a

TRACE, ROOT = "ab" * 16, "12" * 8
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def results(draw: st.DrawFn) -> TaskResult:
    """A result that says nothing impossible."""
    outcome = draw(st.sampled_from(OUTCOMES))
    is_scored = outcome == "scored"
    return TaskResult(
        task=draw(texts),
        sample=draw(st.integers(0, 2)),
        outcome=outcome,
        score=draw(finite) if is_scored else None,
        passed=draw(optional(st.booleans())) if is_scored else None,
        baseline_score=draw(optional(finite)),
        delta=draw(optional(finite)),
        duration=draw(optional(finite)),
        error=draw(optional(texts.filter(bool))),
        slices=tuple(draw(st.lists(texts, max_size=3))),
        episode=draw(st.sampled_from(["", TRACE])),
        revision=draw(int64s),
    )


@st.composite
def evaluations(draw: st.DrawFn) -> Evaluation:
    """An evaluation that says nothing impossible."""
    names = texts.filter(lambda name: name and "=" not in name)
    return Evaluation(
        id=draw(texts),
        suite=draw(texts),
        suite_version=draw(optional(texts)),
        run_id=draw(texts),
        run_name=draw(optional(texts)),
        tasks=tuple(draw(st.lists(texts, max_size=3))),
        samples=draw(st.integers(1, 3)),
        is_baseline=draw(st.booleans()),
        baseline_counts=draw(st.dictionaries(st.sampled_from(OUTCOMES), st.integers(1, 9), max_size=2)),
        tags=draw(st.dictionaries(names, texts, max_size=3)),
        spec=draw(optional(st.builds(Spec, name=texts, version=optional(texts), sha256=optional(texts)))),
        policy=draw(optional(texts)),
        policy_version=draw(optional(texts)),
        status="completed",
        results=tuple(sorted(draw(st.lists(results(), max_size=4)), key=lambda result: result.revision)),
    )


def spans(stated: Evaluation) -> list[SpanRecord]:
    """The evaluation's spans, the root last."""
    found = [
        SpanRecord(
            trace_id=TRACE,
            span_id=f"{place + 1:016x}",
            parent_id=ROOT,
            name="eval.result",
            attributes=evals.encode_result(stated, result, []),
        )
        for place, result in enumerate(stated.results)
    ]
    begun = evals.encode(stated, [])
    marker = SpanRecord(
        trace_id=TRACE, span_id="77" * 8, parent_id=ROOT, name="eval.run.start", attributes=begun
    )
    ended = begun | evals.ending(stated.status, stated.summary(), len(found))
    root = SpanRecord(trace_id=TRACE, span_id=ROOT, name=f"eval.run {stated.suite}", attributes=ended)
    return [marker, *found, root]


@PATIENT
@given(evaluations(), st.randoms())
def test_a_recorded_evaluation_is_read_back_equal(stated: Evaluation, random: Any):
    """
    In whatever order the spans come.
    """
    records = spans(stated)
    random.shuffle(records)

    assert stated == evals.decode(records)
    assert 0 == evals.lacking(records)


@PATIENT
@given(evaluations())
def test_without_its_root_it_is_unfinished(stated: Evaluation):
    """
    The start marker has its facts.
    """
    *records, _ = spans(stated)

    assert replace(stated, status="unfinished") == evals.decode(records)


def test_results_that_are_missing_are_counted():
    """
    The root says how many there should be.
    """
    stated = Evaluation(id="e", suite="s", results=(TaskResult(task="a"), TaskResult(task="b")))

    assert 1 == evals.lacking(spans(stated)[2:])


# As messages.


class Records:
    """Spans that `mttp.read` takes."""

    def __init__(self, found: Iterable[SpanRecord]) -> None:
        self._found = list(found)

    def records(self) -> Iterator[SpanRecord]:
        return iter(self._found)


def lines(session: mttp.Session) -> list[Message]:
    """The messages of a session, as a receiver gets them."""
    sent: list[tuple[Payload, str | None]] = []
    for span in mttp.scan(session, arrays=True):
        sent += [(span_messages.encode(span), None), *eval_messages.messages(span)]
    made = (Message.new("trainer", payload, id=id, checksum=True) for payload, id in sent)
    return [Message.from_bytes(message.to_bytes()) for message in made]


def received(messages: Iterable[Message]) -> mttp.Recording:
    """What is read of messages."""
    found = []
    for message in messages:
        payload = message.decode()
        record = (
            span_messages.decode(payload) if isinstance(payload, TraceSpan) else eval_messages.decode(message)
        )
        found += [] if record is None else [record]
    return mttp.read(Records(found))


@pytest.fixture
def evaluated(session: mttp.Session) -> mttp.Session:
    """A session with an evaluation."""
    with mttp.evaluate(
        "gsm",
        "1",
        tasks=["a", "b", "c", "d"],
        spec=Spec(name="exact", version="1.2.0", sha256="ab" * 32),
        policy="tiny",
        baseline={"a": 0.5},
        tags={"model": "tiny"},
    ) as run:
        run.result("a", 0.75, passed=True, duration=1.25)
        run.result("b", error="no")
        run.result("c", outcome="skipped", error="too hard")
        run.result("d", outcome="timed_out")
    return session


def test_an_evaluation_is_also_its_own_messages(evaluated: mttp.Session):
    """
    One as it begins and one per result, each with the id of the span that says the same.
    """
    (stated,) = mttp.read(evaluated).evals
    messages = [message for message in lines(evaluated) if message.type != "trace.span"]
    begun, *done = [message.decode() for message in messages]
    root = next(span for span in mttp.scan(evaluated) if span.name == "eval.run gsm")

    assert begun == EvalRun(
        suite="gsm",
        tasks=("a", "b", "c", "d"),
        tags={
            "model": "tiny",
            "mttp.run.id": evaluated.run_id,
            "mttp.run.name": "test",
            "mttp.eval.id": stated.id,
            "mttp.eval.suite.version": "1",
            "mttp.spec.name": "exact",
            "mttp.spec.version": "1.2.0",
            "mttp.spec.sha256": "ab" * 32,
            "mttp.policy.id": "tiny",
            "traceparent": f"00-{root.trace_id}-{root.span_id}-01",
        },
    )
    assert [
        EvalResult(
            suite="gsm",
            task="a",
            passed=True,
            score=0.75,
            baseline_score=0.5,
            delta=0.25,
            duration_ms=1250,
        ),
        EvalResult(suite="gsm", task="b", error="no"),
        EvalResult(suite="gsm", task="c", error="skipped: too hard"),
        EvalResult(suite="gsm", task="d", error="timed_out"),
    ] == done
    assert {message.id for message in messages} == {
        span.trace_id + span.span_id
        for span in mttp.scan(evaluated)
        if span.name in ("eval.run.start", "eval.result")
    }


def test_an_old_reader_takes_every_message(evaluated: mttp.Session):
    """
    Each has the fields that the protocol knows, in its types, and no other.
    """
    for message in lines(evaluated):
        message.validate()
        message.verify_checksum()
        payload = message.decode()

        assert not message.__pydantic_extra__
        assert not payload.__pydantic_extra__
        assert len(message.to_bytes()) < 1_048_576


@pytest.mark.parametrize("backwards", [False, True])
def test_spans_and_messages_count_once(evaluated: mttp.Session, *, backwards: bool):
    """
    Whichever comes first, the evaluation that is read is the one that was stated.
    """
    messages = lines(evaluated)
    recording = received(reversed(messages) if backwards else messages)

    assert mttp.read(evaluated).evals == recording.evals
    assert [] == recording.problems


def test_messages_alone_are_an_evaluation(evaluated: mttp.Session):
    """
    All their fields are read, with every outcome.
    """
    (stated,) = mttp.read(evaluated).evals
    (found,) = received(message for message in lines(evaluated) if message.type != "trace.span").evals

    assert found.status == "unknown"
    kept = ("id", "suite", "suite_version", "run_id", "run_name", "tasks", "tags", "spec", "policy")
    assert {name: getattr(stated, name) for name in kept} == {name: getattr(found, name) for name in kept}
    assert [
        ("a", "scored", 0.75, True, 0.5, 0.25, 1.25, None),
        ("b", "errored", None, None, None, None, None, "no"),
        ("c", "skipped", None, None, None, None, None, "too hard"),
        ("d", "timed_out", None, None, None, None, None, None),
    ] == [
        (
            result.task,
            result.outcome,
            result.score,
            result.passed,
            result.baseline_score,
            result.delta,
            result.duration,
            result.error,
        )
        for result in found.latest().values()
    ]


@PATIENT
@given(evaluations())
def test_every_evaluation_has_messages(stated: Evaluation):
    """
    Whatever its numbers are; a reader of its messages finds every result.
    """
    sent = [found for span in spans(stated) for found in eval_messages.messages(span)]
    messages = [Message.new("trainer", payload, id=id) for payload, id in sent]
    read = [Message.from_bytes(message.to_bytes()).decode() for message in messages]

    assert read == [payload for payload, _ in sent]
    assert len(stated.results) == sum(isinstance(payload, EvalResult) for payload in read)


@pytest.fixture
def sampled(session: mttp.Session) -> mttp.Session:
    """A session with an evaluation of two samples of each task."""
    with mttp.evaluate("gsm", tasks=["a", "b"], samples=2) as run:
        run.result("a", 0.75, passed=True)
        run.result("a", 0.25, passed=False)
        run.result("b", outcome="abstained", error="don't know")
        run.result("b", 0.5)
    return session


def test_messages_of_samples_have_different_ids(sampled: mttp.Session):
    """
    The protocol has no field for them, and a relay keeps the id; an old reader sees results of one task.
    """
    messages = [message for message in lines(sampled) if message.type != "trace.span"]
    begun, *done = messages
    spans = [span for span in mttp.scan(sampled, arrays=True) if span.name == "eval.result"]

    assert "2" == begun.decode().tags["mttp.eval.samples"]
    assert [f"{span.trace_id}{span.span_id}-{n}" for span, n in zip(spans, (0, 1, 0, 1), strict=True)] == [
        message.id for message in done
    ]
    assert ["a", "a", "b", "b"] == [message.decode().task for message in done]
    assert not any(message.decode().__pydantic_extra__ for message in done)


def test_samples_are_read_of_messages_alone(sampled: mttp.Session):
    """
    Which sample each is, and how many there are of each task.
    """
    (found,) = received(message for message in lines(sampled) if message.type != "trace.span").evals

    assert 2 == found.samples
    assert {
        ("a", 0): ("scored", 0.75, None),
        ("a", 1): ("scored", 0.25, None),
        ("b", 0): ("abstained", None, "don't know"),
        ("b", 1): ("scored", 0.5, None),
    } == {key: (one.outcome, one.score, one.error) for key, one in found.latest().items()}


@pytest.mark.parametrize("backwards", [False, True])
def test_samples_count_once(sampled: mttp.Session, *, backwards: bool):
    """
    Spans and messages of one result are one result.
    """
    messages = lines(sampled)

    assert mttp.read(sampled).evals == received(reversed(messages) if backwards else messages).evals


@pytest.mark.parametrize("said", ["0", "-1", "many", "1.5", "9" * 30])
def test_an_invalid_number_of_samples_counts_as_one(said: str):
    """
    Whatever the tag of another tool says.
    """
    message = asked("1", 1, suite="s", tasks=("a",), tags={"mttp.eval.samples": said})
    (found,) = received([message]).evals

    assert (1, 1) == (found.samples, found.summary().pending)


# Messages of others.


def asked(id: str, when: int, **said: Any) -> Message:
    """An evaluation that another tool asks for."""
    return Message.new("mist-cli", EvalRun(**said), id=id, timestamp_ns=when)


def told(id: str, when: int, **said: Any) -> Message:
    """A result that another tool states."""
    return Message.new("matchspec", EvalResult(**said), id=id, timestamp_ns=when)


def test_old_messages_read():
    """
    Those that the reference writes are rows of the same table.
    """
    vectors = [Message.from_bytes(line) for name, line in LINES.items() if name.startswith("eval")]
    recording = received(vectors)

    (found,) = recording.evals
    assert [] == recording.problems
    assert ("gsm-mini", ("t1", "t2"), True, "unknown") == (
        found.suite,
        found.tasks,
        found.is_baseline,
        found.status,
    )
    tags = {"reward.spec": "gsm-exact", "reward.spec_version": "1.2.0", "seed": "17"}
    assert tags | {"infer_url": "http://127.0.0.1:8600"} == found.tags
    result = found.latest()["t1", 0]
    assert ("scored", 0.95, True, 0.8, 0.15, 0.12) == (
        result.outcome,
        result.score,
        result.passed,
        result.baseline_score,
        result.delta,
        result.duration,
    )
    assert 1 == found.summary().pending


def test_a_result_belongs_to_the_last_evaluation_of_its_suite():
    """
    It does not say to which itself.
    """
    messages = [
        told("0", 5, suite="gsm", task="a", score=0.125, passed=True),
        asked("1", 10, suite="gsm"),
        asked("2", 11, suite="other"),
        told("3", 12, suite="gsm", task="a", score=0.25),
        asked("4", 20, suite="gsm"),
        told("5", 21, suite="gsm", task="a", score=0.5),
        told("6", 22, suite="gsm", task="b", error="connection refused"),
    ]
    found = received(messages).evals

    assert [
        ("gsm", {"a": 0.125}),
        ("gsm", {"a": 0.25}),
        ("other", {}),
        ("gsm", {"a": 0.5, "b": None}),
    ] == [(one.suite, {found.task: found.score for found in one.latest().values()}) for one in found]
    assert 4 == len({one.id for one in found})


def test_an_empty_baseline_is_none():
    """
    The reference leaves score and difference zero.
    """
    (found,) = received([told("1", 1, suite="s", task="t", score=0.5, passed=True)]).evals
    (result,) = found.results

    assert (None, None) == (result.baseline_score, result.delta)


def test_other_messages_are_no_evaluations():
    """
    And a payload that does not match its type is an error.
    """
    assert eval_messages.decode(Message.from_bytes(LINES["health_ping"])) is None
    with pytest.raises(PayloadError, match="score"):
        eval_messages.decode(Message(id="i", source="s", type="eval.result", payload=b'{"score":"1"}'))


@PATIENT
@given(st.text(max_size=12), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), texts)
def test_any_message_reads(id: str, when: int, duration: int, error: str):
    """
    Whatever a tool may write into the fields makes a span that can be read.
    """
    message = told(id or "1", when, suite="s", task="t", duration_ms=duration, error=error)
    (found,) = received([message]).evals

    assert ["t"] == [result.task for result in found.results]
    assert all(0 <= result.start_time <= result.end_time < 2**63 for result in found.results)  # type: ignore[operator]


def test_spans_say_which_messages_they_were(evaluated: mttp.Session):
    """
    The convention knows every attribute of theirs.
    """
    found = map(eval_messages.decode, lines(evaluated))
    records = [record for record in found if record is not None]

    assert 5 == len(records)
    assert all(a.MESSAGE_ID in record.attributes for record in records)
    assert [] == [issue for issue in mttp.check(Records(records)).all if issue.id == "missing_attribute"]
