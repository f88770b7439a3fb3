"""Spans as `trace.span` messages and back."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specimen import END, EVERYTHING, START
from vectors import LINES

import mttp
from mttp.codec import profiles
from mttp.errors import PayloadError
from mttp.mist import span_messages
from mttp.mist.messages import Message, TraceSpan
from mttp.model.spans import Link, Scope, SpanEvent, SpanRecord
from mttp.semconv import attributes as a
from mttp.testing.comparison import where_different

SPAN = SpanRecord(trace_id="1f" * 16, span_id="2e" * 8, name="step", start_time=5, end_time=7)


def through(span: SpanRecord) -> SpanRecord:
    """The span after its message was written and read."""
    message = Message.from_bytes(Message.new("us", span_messages.encode(span)).to_bytes())
    return span_messages.decode(message.decode(), source=message.source)


def attrs(span: SpanRecord) -> dict[str, Any]:
    """What a message says of a span."""
    return span_messages.encode(span).attrs


def test_every_span_of_the_specimen_survives_messages():
    """
    An episode that uses the whole vocabulary, with its run: each span, with arrays as lists.
    """
    with mttp.configure(transport="memory://", run="all") as session:
        session.record(EVERYTHING, start_time=START, end_time=END)
    spans = list(mttp.scan(session, arrays=True))

    assert len(spans) > 30
    for span in spans:
        expected = replace(
            span,
            attributes=profiles.arrays(span.attributes),
            events=tuple(span.events),
            links=tuple(span.links),
        )
        assert repr(expected) == repr(through(span))


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keys = st.text(max_size=5) | st.sampled_from(
    [
        a.STEP_REWARD,
        a.STEP_INDEX,
        a.TOKEN_LOGPROBS,
        a.TOKEN_IDS,
        f"{a.METRIC}.x",
        a.GEN_AI_OPERATION_NAME,
        "model",
    ]
)
attributes = st.dictionaries(keys, plain, max_size=4)
spans = st.builds(
    SpanRecord,
    trace_id=st.just("1f" * 16),
    span_id=st.just("2e" * 8),
    parent_id=st.sampled_from(["", "3d" * 8]),
    name=st.text(max_size=5),
    kind=st.integers(0, 5),
    start_time=st.integers(0, 2**63 - 1),
    end_time=st.integers(0, 2**63 - 1),
    attributes=attributes,
    status_code=st.integers(0, 2),
    status_message=st.text(max_size=5),
    events=st.lists(
        st.builds(SpanEvent, st.text(max_size=5), st.integers(0, 2**63 - 1), attributes, st.integers(0, 3)),
        max_size=2,
    ).map(tuple),
    links=st.lists(
        st.builds(
            Link, st.just("4c" * 16), st.just("5b" * 8), attributes, st.integers(0, 3), st.integers(0, 3)
        ),
        max_size=2,
    ).map(tuple),
    trace_state=st.text(max_size=5),
    flags=st.integers(0, 2**32 - 1),
    dropped_attributes=st.integers(0, 3),
    dropped_events=st.integers(0, 3),
    dropped_links=st.integers(0, 3),
    scope=st.builds(
        Scope,
        name=st.text(max_size=5),
        resource=st.dictionaries(keys, plain, min_size=1, max_size=2),
        attributes=attributes,
    ),
)


@given(spans)
def test_any_span_survives_messages(span: SpanRecord):
    """
    Values of every type where there may be any, NaN, -0.0 and bytes included.
    """
    assert repr(span) == repr(through(span))


@pytest.mark.parametrize("value", [0.0, 1, [0.0, -0.0], [1, 2.0], [], [True], "x", [[1.0]], math.inf])
@pytest.mark.parametrize("key", [a.TOKEN_LOGPROBS, a.TOKEN_IDS, a.STEP_REWARD, a.STEP_INDEX, "mine"])
def test_a_value_of_another_type_than_it_should_have_stays_as_it_is(key: str, value: object):
    """
    Whatever the convention says of its attribute.
    """
    span = replace(SPAN, attributes={key: value})

    assert repr(span.attributes) == repr(through(span).attributes)


def test_attributes_are_read_by_everybody():
    """
    Under their own names, as JSON writes them; what makes them exact stands beside.
    """
    span = replace(
        SPAN,
        attributes={
            a.STEP_REWARD: 1.0,
            a.STEP_INDEX: 3,
            a.TOKEN_LOGPROBS: [-0.5, -1.0],
            "mine": 2.0,
            "mixed": [1, 1.0],
            "nan": math.nan,
            "raw": b"\x00",
        },
    )
    expected = {
        "mttp.step.reward": 1.0,
        "mttp.step.index": 3,
        "mttp.token.logprobs": [-0.5, -1.0],
        "mine": 2.0,
        "mixed": [1, 1.0],
        "nan": "nan",
        "raw": "AA==",
        "mttp.message.rest": {
            "doubles": ["mine"],
            "values": {
                "mixed": {"arrayValue": [1, {"doubleValue": "1.0"}]},
                "nan": {"doubleValue": "nan"},
                "raw": {"bytesValue": "AA=="},
            },
        },
    }

    assert expected == attrs(span)
    assert {} == attrs(SPAN)


def test_a_model_call_says_what_the_stack_adds_up():
    """
    Beside its attributes, and not after it was read again; an attribute of that name is left alone.
    """
    call = replace(
        SPAN,
        status_code=2,
        status_message="too slow",
        attributes={
            a.GEN_AI_OPERATION_NAME: "chat",
            a.GEN_AI_REQUEST_MODEL: "tiny",
            a.GEN_AI_USAGE_INPUT_TOKENS: 3,
            a.GEN_AI_USAGE_OUTPUT_TOKENS: 4,
            a.GEN_AI_RESPONSE_FINISH_REASONS: ["stop"],
            "tokens_out": 5,
        },
    )
    found = attrs(call)

    assert ("tiny", 3, 5, "stop", "too slow") == tuple(
        found[name] for name in ("model", "tokens_in", "tokens_out", "finish_reason", "error")
    )
    assert "error" == span_messages.encode(call).status
    assert call.attributes == through(call).attributes


@pytest.mark.parametrize("name", ["trace_span_root", "trace_span_child"])
def test_a_span_of_another_tool_survives_messages(name: str):
    """
    With its ids; only the sender is added.
    """
    message = Message.from_bytes(LINES[name])
    sent = message.decode()
    assert isinstance(sent, TraceSpan)
    again = span_messages.encode(span_messages.decode(sent, source=message.source))
    rest = {"scope": {"resource": {"service.name": "trainer"}}}

    assert sent.model_copy(update={"attrs": sent.attrs | {a.MESSAGE_REST: rest}}) == again


def test_parents_are_found_though_their_ids_are_longer():
    """
    A span id of 32 digits becomes its last 16, in the span and in those below it.
    """
    root, child = (
        span_messages.decode(Message.from_bytes(LINES[name]).decode())
        for name in ("trace_span_root", "trace_span_child")
    )

    assert ("2222222222222222", "") == (root.span_id, root.parent_id)
    assert (root.trace_id, root.span_id) == (child.trace_id, child.parent_id)
    assert ("rl.episode", 1, 0.003) == (root.name, root.status_code, child.attributes["cost_usd"])


@pytest.mark.parametrize("given", ["", "run-17", "0" * 32, "z" * 32, "ab" * 20, "日本"])
def test_ids_of_any_sort_become_ids(given: str):
    """
    The same each time, and the sender's own comes back.
    """
    span = span_messages.decode(TraceSpan(trace_id=given, span_id=given, parent_id=given))

    assert 32 == len(span.trace_id.strip("ghijklmnopqrstuvwxyz"))
    assert 16 == len(span.span_id)
    assert span.parent_id == (span.span_id if given else "")
    assert (given, given, given) == (
        span_messages.encode(span).trace_id,
        span_messages.encode(span).span_id,
        span_messages.encode(span).parent_id,
    )


@pytest.mark.parametrize(
    ("status", "code"), [("ok", 1), ("error", 2), ("unset", 0), ("", 0), ("timeout", 0), ("OK", 0)]
)
def test_a_status_survives_messages(status: str, code: int):
    """
    Only `ok` and `error`, exactly, mean something.
    """
    span = span_messages.decode(TraceSpan(trace_id="1f" * 16, span_id="2e" * 8, status=status))

    assert code == span.status_code
    assert status == span_messages.encode(span).status


@pytest.mark.parametrize(
    "rest",
    [
        5,
        {"kind": "x"},
        {"events": [[1]]},
        {"scope": {"resource": 5}},
        {"values": {"x": {"what": 1}}},
        {"values": {"x": {"doubleValue": "x"}}},
        {"values": {"x": {"bytesValue": "a"}}},
        {"values": {"x": {}}},
        {"values": {"x": {"kvlistValue": 3}}},
        {"doubles": 3},
    ],
)
def test_a_rest_that_is_none_is_refused(rest: object):
    """
    Like any payload that does not match its type.
    """
    with pytest.raises(PayloadError, match=r"attrs\.mttp\.message\.rest"):
        span_messages.decode(TraceSpan(attrs={"x": 1, a.MESSAGE_REST: rest}))


@pytest.mark.parametrize("field", ["start_ns", "end_ns"])
def test_times_before_1970_are_refused(field: str):
    """
    OpenTelemetry has none.
    """
    with pytest.raises(PayloadError, match="-1"):
        span_messages.decode(TraceSpan(**{field: -1}))


def test_episodes_written_as_messages_read_as_episodes():
    """
    A program that knows only messages, with ids of its own, writes one; the attrs say what it is.
    """
    run = {a.RUN_ID: "r1", a.EPISODE_ID: "e1"}
    root = TraceSpan(
        trace_id="ab" * 16,
        span_id="11" * 16,
        operation="episode",
        start_ns=1,
        end_ns=9,
        status="ok",
        attrs=run
        | {
            a.EPISODE_STATUS: "completed",
            a.EPISODE_OUTCOME: "success",
            a.EPISODE_RETURN: 1.0,
            a.EPISODE_LENGTH: 1,
            a.EPISODE_STEP_COUNT: 1,
            a.EPISODE_SPAN_COUNT: 2,
        },
    )
    step = TraceSpan(
        trace_id="ab" * 16,
        span_id="22" * 16,
        parent_id="11" * 16,
        operation="step",
        start_ns=2,
        end_ns=8,
        status="ok",
        attrs=run | {a.STEP_INDEX: 0, a.STEP_REWARD: 1, a.ACTION_VALUE: "4"},
    )
    lines = [Message.new("agent", span).to_bytes() for span in (step, root)]
    found = written(
        [span_messages.decode(Message.from_bytes(line).decode(), source="agent") for line in lines]
    )

    assert ([], 1) == (found.problems, len(found.episodes))
    assert ("success", 1.0, "4", 1.0) == (
        found.episodes[0].outcome,
        found.episodes[0].return_,
        found.episodes[0].steps[0].action,
        found.episodes[0].steps[0].reward,
    )


def test_a_recorded_episode_survives_messages():
    """
    As values, numpy arrays included.
    """
    with mttp.configure(transport="memory://") as session:
        session.record(EVERYTHING, start_time=START, end_time=END)
    direct = mttp.read(session)
    relayed = written([through(span) for span in mttp.scan(session, arrays=True)])

    assert [] == where_different(direct.episodes[0], relayed.episodes[0])


def written(spans: list[SpanRecord]) -> mttp.Recording:
    """A recording of these spans."""
    from pathlib import Path

    from mttp.otlp.json import encode_records

    Path("spans.jsonl").write_bytes(b"".join(encode_records(spans)))
    return mttp.read("spans.jsonl")
