"""Spans are encoded together, here or in another process, as each says it by itself."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from exporters import taken
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from otlp import Spans
from specimen import EVERYTHING, episodes

import mttp
from mttp.codec.generators import GeneratorState
from mttp.codec.pending import TRANSITIONS
from mttp.codec.profiles import full, packed
from mttp.codec.transitions import RowSchema
from mttp.model.spans import SpanRecord
from mttp.model.values import same
from mttp.otlp import frames
from mttp.otlp import json as otlp_json
from mttp.otlp.frames import Frame
from mttp.otlp.json import encode_records
from mttp.otlp.json_decode import decode_line
from mttp.otlp.protobuf import encode_span
from mttp.otlp.spans.span_records import framed, record
from mttp.semconv import attributes as a

AT = 1_700_000_000_000_000_000
LIMIT = 1 << 16
FLOAT32 = RowSchema(np.dtype(np.float32), (2,), LIMIT)
SCALARS = RowSchema(None, (), LIMIT)
SHOWN = np.float32([0.5, -1]).tobytes()


def parcel(spans: Sequence[ReadableSpan | Frame]) -> bytes:
    """The spans as the other process gets them."""
    return frames.joined(list(map(framed, spans)))


def check(spans: Sequence[ReadableSpan | Frame]) -> None:
    """Lines and messages are those of each span's record, and the spans are asked for them first."""
    sent = parcel(spans)
    given = list(map(framed, spans))
    here = frames.lines(given)
    halfway = frames.encoded(given)
    whole = [record(span, full) for span in spans]
    alone = [b"".join(encode_records([record(span, packed)])) for span in spans]

    assert here == frames.answer(frames.LINES, sent)
    assert decoded(b"".join(alone)) == decoded(here)
    assert decoded(here) == decoded(frames.lines(halfway))
    for whole_frame, text_frame in zip(given, halfway, strict=True):
        assert whole_frame[17:21] == text_frame[17:21]
        assert (whole_frame.trace_id, whole_frame.is_last) == (text_frame.trace_id, text_frame.is_last)
    messages = msgspec.msgpack.decode(frames.answer(frames.MESSAGES, sent))
    assert list(map(encode_span, whole)) == messages
    for one, found in zip(whole, records(sent), strict=True):
        assert same(asdict(replace(one, events=list(one.events), links=list(one.links))), asdict(found))


def records(sent: bytes) -> list[SpanRecord]:
    """The spans of a parcel."""
    split, scopes = frames.split(sent)
    return [frames.record(frame, full, scopes) for frame in split]


def decoded(lines: bytes) -> list[str]:
    """What lines say of each span, in order."""
    return [repr(asdict(one)) for line in lines.splitlines() for one in decode_line(line)]


def recorded(value: mttp.Episode) -> list[ReadableSpan]:
    """The spans of a run with one episode."""
    keeping = Spans()
    with mttp.configure(keeping) as session:
        session.record(value)
    return keeping.spans


# Whatever is recorded.


def test_everything_is_encoded() -> None:
    """
    Every part of the vocabulary.
    """
    check(recorded(EVERYTHING))


@given(episodes())
@settings(deadline=None)
def test_any_episode_is_encoded(value: mttp.Episode) -> None:
    """
    Whatever it says.
    """
    check(recorded(value))


def test_encoding_makes_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Lines and messages are written from the fields of frames.
    """
    given = list(map(framed, recorded(EVERYTHING)))
    expected = frames.lines(given), frames.messages(given)
    monkeypatch.setattr(frames, "SpanRecord", None)

    assert expected == (frames.lines(given), frames.messages(given))
    with pytest.raises(TypeError):
        frames.record(given[0])


def test_chat_messages_are_written_as_any_mappings() -> None:
    """
    Lists of mappings of texts have templates of their own, with their names and their number.
    """
    span = record(recorded(mttp.Episode())[0], full)
    for messages in (
        [{"role": "user", "content": "50% ü"}],
        [{"role": "user", "content": "a"}, {"content": "b"}, {}],
        [{"role": "a", "content": "b"}] * 30,
        [{"%s": "%d"}, {"%s": "100%"}],
        [{"role": "user", "content": None}],
        [{}, {}],
    ):
        (line,) = encode_records([replace(span, attributes={"messages": messages})])
        (found,) = decode_line(line)
        assert messages == found.attributes["messages"]
    (line,) = encode_records([replace(span, attributes={"messages": [{"%s": "\ud800"}]})])
    (found,) = decode_line(line)
    assert [{"%s": r"\ud800"}] == found.attributes["messages"]


def test_other_libraries_spans_are_encoded() -> None:
    """
    State, events, links and what was dropped.
    """
    keeping = Spans()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(keeping))
    with provider.get_tracer("other", "1").start_as_current_span("a %d") as span:
        span.set_attributes({"text": "ü", "many": [1, 2], "number": 0.1})
        span.add_event("happened", {"x": True})
        span.add_link(trace.SpanContext(1, 2, is_remote=True), {"why": "so"})
        span.set_status(trace.StatusCode.ERROR, "broken")

    check(keeping.spans)


def test_nothing_is_encoded_as_nothing() -> None:
    """
    No line, and no message.
    """
    assert ([], {}) == frames.split(parcel([]))
    assert b"" == frames.lines([], {})


def test_what_msgpack_does_not_hold_is_json_in_its_frame() -> None:
    """
    Numbers of numpy's are Python's.
    """
    span = record(recorded(mttp.Episode())[0], full)
    for odd in (multiprocessing, 2**64, "\ud800", [object()]):
        changed = replace(span, attributes={**span.attributes, "odd": odd})
        frame = framed(changed)
        (line,) = map(decode_line, encode_records([changed]))
        assert frame.is_encoded
        assert line[0].attributes["odd"] == record(frame, full).attributes["odd"]
    for number, expected in ((np.float64(1), 1.0), ([np.str_("x")], ["x"]), (np.bool_(True), True)):
        frame = framed(replace(span, attributes={"odd": number}))
        assert repr(expected) == repr(record(frame, full).attributes["odd"])


# Steps with tokens.

INTEGERS = {
    "int64": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 150_000) | st.integers(-200, 200),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int8": st.integers(-128, 127),
    "uint32": st.integers(0, 2**32 - 1),
}
FLOATS = {
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "float16": st.floats(width=16),
}


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, Any]:
    """Token blocks of a few lengths, so that some are alike."""
    count = draw(st.sampled_from([0, 1, 3, 3, 3, 40]))
    integers, floats = draw(st.sampled_from([*INTEGERS])), draw(st.sampled_from([*FLOATS]))
    ids = draw(st.lists(INTEGERS[integers], min_size=count, max_size=count))
    logprobs = draw(st.lists(FLOATS[floats], min_size=count, max_size=count))
    if draw(st.booleans()):
        return {"ids": ids, "logprobs": logprobs}
    block = {"ids": np.array(ids, integers), "logprobs": np.array(logprobs, floats)}
    return {**block, "masks": [1] * count} if draw(st.integers(0, 5)) == 0 else block


STEPS = st.lists(
    st.tuples(
        st.none() | st.floats(allow_nan=False, allow_infinity=False), st.none() | blocks(), st.booleans()
    ),
    max_size=8,
)


@given(STEPS, st.sampled_from(["", "a", "50% of %d, %b"]))
@example([(0.5, {"ids": np.arange(9), "logprobs": np.full(9, -np.inf)}, False)] * 70, "a")
@settings(deadline=None)
def test_any_steps_are_encoded(steps: list[Any], agent: str) -> None:
    """
    Whatever their rewards and values are, also of an agent, and with others in between.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode(task="100% sure") as episode:
        for reward, block, is_unusual in steps:
            with (episode.agent(agent) if agent else episode).step() as step:
                if reward is not None:
                    step.reward(reward)
                if block is not None:
                    step.tokens(**block)
                if is_unusual:
                    step.metric("own", 1.0)

    check(keeping.spans)


def test_what_is_recorded_of_an_open_episode_is_encoded() -> None:
    """
    Numbers of the user's own, of an episode of which nothing else was stated, too.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as bare, mttp.episode(task="t") as episode:
        bare.metric("own", 1.0)
        episode.metric("own", 2.0)
    said = [span.attributes or {} for span in keeping.spans]

    assert [2.0, 1.0] == [each["mttp.metric.own"] for each in said if "mttp.metric.own" in each]
    check(keeping.spans)


def test_a_step_that_was_renamed_keeps_its_name() -> None:
    """
    Among others that were not.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as episode:
        for name in ("step", "mine %d", "step"):
            with episode.step() as step:
                step.span.update_name(name)

    assert ["step", "mine %d", "step"] == [
        record.name for record in records(parcel(keeping.spans)) if record.name in ("step", "mine %d")
    ]
    check(keeping.spans)


def test_templates_are_of_shapes_and_not_of_values() -> None:
    """
    However long blocks are, and whatever attributes they have.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as episode:
        for number, length in enumerate((20_000, 20_000, 3, 3)):
            with episode.step() as step:
                logprobs = np.full(length, -float(number))
                step.tokens(ids=np.arange(length), logprobs=logprobs, policy_version=f"{number}")
    steps = [span for span in keeping.spans if span.name == "step"]
    otlp_json._template.cache_clear()
    check(steps)

    assert 1 == otlp_json._template.cache_info().currsize


def test_numbers_beyond_64_bits() -> None:
    """
    An index that OTLP has no integer for is text, as anywhere.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as episode:
        for index in (2**63 - 1, 2**70):
            with episode.step(index=index) as step:
                step.reward(1.0)

    check(keeping.spans)


def test_lines_stay_short() -> None:
    """
    A trace takes several lines where it does not fit on one.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as episode:
        for _ in range(300):
            with episode.step() as step:
                step.tokens(ids=np.arange(1000), logprobs=np.zeros(1000, np.float32))
    lines = frames.answer(frames.LINES, parcel(keeping.spans)).splitlines(keepends=True)

    assert len(lines) > 2
    assert [] == [len(line) for line in lines if len(line) > otlp_json.MAX_LINE_BYTES]
    check(keeping.spans)


@pytest.mark.parametrize("lengths", [(1000,), (1000, 999, 129, 1)])
@pytest.mark.parametrize("count", [1, 7, 63, 64, 65, 130])
def test_means_are_those_of_a_block_alone(count: int, lengths: Sequence[int]) -> None:
    """
    To the last bit, however many are added up at once.
    """
    random = np.random.default_rng(count)
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode() as episode:
        for number in range(count):
            length = lengths[number % len(lengths)]
            with episode.step() as step:
                logprobs = random.normal(-1, 1, length).astype(np.float32)
                step.tokens(ids=random.integers(0, 9, length), logprobs=logprobs)

    check(keeping.spans)


def test_a_start_at_the_epoch_reads_as_it_was() -> None:
    """
    Zero nanoseconds are a time.
    """
    keeping = Spans()
    with mttp.configure(keeping), mttp.episode(start_time=0) as episode, episode.step(start_time=0) as step:
        step.reward(1.0)
    (line,) = decode_line(frames.answer(frames.LINES, parcel(keeping.spans[:1])))

    assert same(line.attributes, record(keeping.spans[0], packed).attributes)
    assert 0 == line.start_time


# Steps of environments, and their episodes.


class Played(NamedTuple):
    """One episode of an environment."""

    rows: Sequence[tuple[Any, Any, Any]]
    """Observation, action and reward of each step."""
    final: Any = None
    seed: int | None = None
    generator: GeneratorState | str | None = None
    outcome: str | None = None
    ends: tuple[bool, bool] = (True, False)
    scores: Mapping[str, Any] | None = None
    """The reward components of each second step."""


def spans_of(episodes: Sequence[Played], form: RowSchema = FLOAT32, **facts: Any) -> list[Any]:
    """Their spans, two each."""
    with mttp.configure("memory://", run_id="run", steps="packed") as session:
        spans = taken(session)
        template = session._template({"env": "Walk-v1", **facts}, [])
        for at, one in enumerate(episodes, AT):
            own = {"seed": one.seed, "env_rng_sha256": one.generator, "start_time": at}
            episode = session._episode_from_template(template, own)
            buffer = episode._open_buffer(form, at + 5)
            assert buffer is not None
            last = len(one.rows) - 1
            buffer.rows += [
                (
                    *(*row, *(one.ends if place == last else (False, False)), None),
                    *(one.scores if place % 2 else None, at + 7 * (place + 1)),
                )
                for place, row in enumerate(one.rows)
            ]
            if one.final is not None:
                episode.final_observation(shown(form, one.final), max_bytes=form.max_bytes)
            episode.end(outcome=one.outcome, end_time=at + 7 * len(one.rows))
        return list(spans)


def shown(form: RowSchema, value: Any) -> Any:
    """An observation as the environment showed it."""
    return value if form.dtype is None else np.frombuffer(value, form.dtype).reshape(form.shape)


def steps_of(given: Sequence[tuple[Any, ...]], form: RowSchema = FLOAT32) -> list[Frame]:
    """The span of these steps of an episode."""
    with mttp.configure("memory://", run_id="run", steps="packed") as session:
        spans = taken(session)
        with mttp.episode(start_time=AT) as episode:
            buffer = episode._open_buffer(form, AT)
            assert buffer is not None
            buffer.rows += [(*row, None, None, AT + number) for number, row in enumerate(given, 1)]
    return [span for span in spans if span.has_rows]


INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, -(2**31), 127, 128, -129])
FINITE = st.floats(allow_nan=False, allow_infinity=False)
DTYPES = st.sampled_from(["f4", "f8", "f2", "i1", "i8", "u1", "u2", "u8", "?"]).map(np.dtype)
SHAPES = st.sampled_from([(1,), (2,), (4,), (2, 3), (0,), (1, 0, 2), (2, 2, 2)])
FORMS = st.builds(RowSchema, DTYPES, SHAPES, st.just(LIMIT)) | st.sampled_from(
    [SCALARS, RowSchema(None, (), 8), RowSchema(None, (), 0)]
)
KINDS: list[st.SearchStrategy[Any]] = [
    st.none(),
    INT64,
    st.integers(-5, 5),
    st.booleans(),
    st.floats(),
    INT64.map(np.int64),
    st.floats().map(np.float64),
    st.floats(width=32).map(np.float32),
    st.booleans().map(np.bool_),
    st.integers(0, 255).map(np.uint8),
]
ODD: list[st.SearchStrategy[Any]] = [
    st.integers(),
    st.text(),
    st.lists(st.integers(0, 3) | st.text(max_size=2), max_size=3),
    st.lists(FINITE, min_size=2, max_size=2).map(np.array),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.none() | INT64 | FINITE | st.booleans(),
]
PAID: list[st.SearchStrategy[Any]] = [
    st.floats(-1e290, 1e290),
    st.integers(-3, 3),
    st.integers(-3, 3).map(float),
    st.floats(-1e290, 1e290).map(np.float64),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(np.float32),
    st.sampled_from([1e290, -1e290, 5e-324, -0.0, 0.1]),
]
UNPAID: list[st.SearchStrategy[Any]] = [
    FINITE,
    st.floats(),
    st.integers(),
    st.sampled_from([None, True, "much", float("nan"), 10**400, np.float32("inf")]),
]
SCORES = {f"{a.REWARD_SCORE}.no_fall": 0.5, f"{a.REWARD_COMPONENT_NAME}.no_fall": "no fall"}
FINALS = st.none() | INT64 | st.booleans() | st.floats()
GENERATORS = (
    st.none()
    | st.text("0123456789abcdef", min_size=64, max_size=64)
    | st.integers(0, 2**16).map(lambda seed: GeneratorState(dict(np.random.PCG64(seed).state)))
)
NAMES = st.text(max_size=8) | st.sampled_from(["Größe-v1", "50%d-v0", "%s", "\x00", '"', "日本/☃", "%(a)d"])


@st.composite
def plays(draw: st.DrawFn) -> tuple[RowSchema, list[Played]]:
    """Episodes of one environment, most of whose values are of one kind."""
    form = draw(FORMS)
    done = draw(st.sampled_from(3 * KINDS + ODD))
    paid = draw(st.sampled_from(3 * PAID + UNPAID))
    count = int(np.prod(form.shape))
    if form.dtype is None:
        shown = draw(st.sampled_from(3 * KINDS + ODD))
        final = FINALS if form.max_bytes else st.none()
    else:
        size = count * form.dtype.itemsize
        octets = st.binary(min_size=size, max_size=size)
        shown = octets if form.dtype.kind != "b" else octets.map(lambda data: bytes(one & 1 for one in data))
        final = shown | st.none()
    row = st.tuples(shown, done, paid)
    episode = st.builds(
        Played,
        st.lists(row, min_size=1, max_size=6),
        final,
        st.none() | st.integers(0, 2**70),
        GENERATORS,
        st.sampled_from([None, "success", "failure"]),
        st.sampled_from([(True, False), (False, True), (True, True)]),
        st.sampled_from([None, SCORES]),
    )
    return form, draw(st.lists(episode, min_size=1, max_size=5))


@given(plays(), NAMES, st.none() | NAMES, st.none() | NAMES)
@settings(deadline=None)
def test_any_episodes_of_an_environment_are_encoded(
    played: tuple[RowSchema, list[Played]], env: str, policy: str | None, group: str | None
) -> None:
    """
    For any observations, actions, rewards, and names of environment, policy and group.
    """
    form, episodes = played
    check(spans_of(episodes, form, env=env, policy=policy, group=group))


def test_columns_of_what_environments_do_most_are_left_to_the_encoder() -> None:
    """
    Arrays, whole numbers and finite rewards.
    """
    for action, reward in ((1, 1.0), (np.int64(1), np.float64(0.5)), (None, 2)):
        (block,) = steps_of([(SHOWN, action, reward, False, False)] * 3)
        assert TRANSITIONS in frames._fields(block)[7]
        check([block])


@pytest.mark.parametrize(
    ("form", "action", "reward"),
    [
        (RowSchema(None, (), None), 1, 1.0),
        (FLOAT32, 1, float("nan")),
        (FLOAT32, 1, 10**400),
        (FLOAT32, 2**63, 1.0),
        (FLOAT32, np.zeros(2), 1.0),
    ],
)
def test_what_may_be_wrong_is_laid_out_where_it_is_counted(form: RowSchema, action: Any, reward: Any) -> None:
    """
    In the process that recorded it.
    """
    shown = np.zeros(2, np.float32)
    (block,) = steps_of([(shown.tobytes() if form.dtype else 1, action, reward, False, False)] * 2, form)

    assert TRANSITIONS not in frames._fields(block)[7]
    check([block])
