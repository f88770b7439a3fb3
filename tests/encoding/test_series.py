"""Episodes that are handed on as wholes are written together as each of their spans would be by itself."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import pytest
from exporters import taken
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan

import mttp
from mttp.codec.generators import State
from mttp.codec.profiles import full, packed
from mttp.codec.transitions import Form
from mttp.encoding import works
from mttp.encoding.parcels import gathered, pack
from mttp.encoding.play import Plays
from mttp.encoding.stretch import Stretch
from mttp.encoding.unpacking import unpack
from mttp.readable import record
from mttp.recorder import Play
from mttp.spans import SpanRecord
from mttp.values import same
from mttp.wire.otlp_json import encode_records
from mttp.wire.otlp_proto import encode_span

AT = 1_700_000_000_000_000_000
LIMIT = 1 << 16
FLOAT32 = Form(np.dtype(np.float32), (2,), LIMIT)
SCALARS = Form(None, (), LIMIT)
SHOWN = np.float32([0.5, -1]).tobytes()


class Played(NamedTuple):
    """One episode as a lane hands it on."""

    rows: Sequence[tuple[Any, Any, Any]]
    """Observation, action and reward of each step."""
    final: Any = None
    seed: int | None = None
    generator: State | str | None = None
    outcome: str | None = None
    ends: tuple[bool, bool] = (True, False)


def spans_of(episodes: Sequence[Played], form: Form = FLOAT32, **facts: Any) -> list[ReadableSpan]:
    """Their spans, two each."""
    with mttp.configure("memory://", run_id="run", steps="packed") as session:
        spans = taken(session)
        setting = session.setting(**{"env": "Walk-v1", **facts})
        for at, one in enumerate(episodes, AT):
            play = setting.play(at, one.seed, one.generator)
            assert isinstance(play, Play)
            block = play.gather(form, at + 5)
            last = len(one.rows) - 1
            block.rows += [
                (*row, *(one.ends if place == last else (False, False)), at + 7 * (place + 1))
                for place, row in enumerate(one.rows)
            ]
            assert play.conclude(one.outcome, one.final, at + 7 * len(one.rows))
        return list(spans)


def check(spans: Sequence[ReadableSpan]) -> None:
    """Told together, here or by way of a helper, they are what each is by itself."""
    alike = gathered(spans)
    parcel = pack(spans)
    here, there = list(records(alike)), list(records(unpack(parcel, full)))
    lines = works.lines(one if isinstance(one, Plays) else packed_record(one) for one in alike)
    whole = [record(span, full) for span in spans]

    assert_alike(whole, here)
    assert_alike(whole, there)
    assert b"".join(encode_records(map(packed_record, spans))) == lines
    assert lines == works.WORKS[works.LINES](parcel)
    assert list(map(encode_span, whole)) == marshal.loads(works.WORKS[works.MESSAGES](parcel))


def packed_record(span: Any) -> SpanRecord:
    """A span by itself, as files have it."""
    return record(span, packed)


def records(told: Iterable[Stretch | Plays | SpanRecord | ReadableSpan]) -> Iterator[SpanRecord]:
    """Each span, whichever way it is told."""
    for one in told:
        if isinstance(one, (Stretch, Plays)):
            yield from one.records(full)
        else:
            yield one if isinstance(one, SpanRecord) else record(one, full)


def assert_alike(expected: Sequence[SpanRecord], actual: Sequence[SpanRecord]) -> None:
    """They say the same, in the same order."""
    assert len(expected) == len(actual)
    for left, right in zip(expected, actual, strict=True):
        assert list(left.attributes) == list(right.attributes)
        assert same(asdict(left), asdict(right)), (left, right)


def are_together(spans: Sequence[ReadableSpan]) -> bool:
    """Whether all are told as one."""
    return [Plays] == [type(one) for one in gathered(spans)]


INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, -(2**31), 127, 128, -129])
FINITE = st.floats(allow_nan=False, allow_infinity=False)
DTYPES = st.sampled_from(["f4", "f8", "f2", "i1", "i8", "u1", "u2", "u8", "?"]).map(np.dtype)
SHAPES = st.sampled_from([(1,), (2,), (4,), (2, 3), (0,), (1, 0, 2), (2, 2, 2)])
FORMS = st.builds(Form, DTYPES, SHAPES, st.just(LIMIT)) | st.sampled_from(
    [SCALARS, Form(None, (), 8), Form(None, (), 0)]
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
FINALS = st.none() | INT64 | st.booleans() | st.floats()
GENERATORS = (
    st.none()
    | st.text("0123456789abcdef", min_size=64, max_size=64)
    | st.integers(0, 2**16).map(lambda seed: State(dict(np.random.PCG64(seed).state)))
)
NAMES = st.text(max_size=8) | st.sampled_from(["Größe-v1", "50%d-v0", "%s", "\x00", '"', "日本/☃", "%(a)d"])


@st.composite
def series(draw: st.DrawFn) -> tuple[Form, list[Played]]:
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
    )
    return form, draw(st.lists(episode, min_size=1, max_size=5))


@given(series(), NAMES, st.none() | NAMES, st.none() | NAMES)
@settings(max_examples=200, deadline=None)
def test_a_series_is_written_as_its_spans(
    played: tuple[Form, list[Played]], env: str, policy: str | None, group: str | None
) -> None:
    """
    Whatever was shown, done and paid, and whatever the environment, the policy and the group are called.
    """
    form, episodes = played
    check(spans_of(episodes, form, env=env, policy=policy, group=group))


USUAL: list[Played] = [
    Played([(SHOWN, 1, 1.0)], SHOWN),
    Played([(SHOWN, 300, 0.5), (SHOWN, -2, 0.5)], SHOWN, seed=2**63, outcome="success", ends=(False, True)),
    Played([(SHOWN, 2**40, 0.1)] * 3, SHOWN, generator="ab" * 32, outcome="failure", ends=(True, True)),
    Played([(SHOWN, 0, -1.0)], SHOWN, generator=State(dict(np.random.PCG64(7).state))),
]
"""Episodes of arrays and whole numbers, of which each width takes another form."""


def test_usual_episodes_are_told_together() -> None:
    """
    However long they are, however they ended, and whatever is known of their randomness.
    """
    spans = spans_of(USUAL)

    assert are_together(spans)
    check(spans)


@pytest.mark.parametrize("kind", [int, float, bool, np.int64, np.float64, np.bool_])
def test_numbers_are_told_together(kind: Any) -> None:
    """
    Those that are recorded as Python's are, as observations and as actions.
    """
    spans = spans_of(
        [Played([(kind(number), kind(1), 1), (kind(0), kind(1), 2)]) for number in (0, 1)], SCALARS
    )

    assert are_together(spans)
    check(spans)


@pytest.mark.parametrize(
    ("form", "row"),
    [
        (FLOAT32, (SHOWN, 1, float("nan"))),
        (FLOAT32, (SHOWN, 1, 10**400)),
        (FLOAT32, (SHOWN, 1, 1e308)),
        (FLOAT32, (SHOWN, 1, "much")),
        (FLOAT32, (SHOWN, 1, None)),
        (FLOAT32, (SHOWN, 2**63, 1.0)),
        (FLOAT32, (SHOWN, np.uint8(1), 1.0)),
        (FLOAT32, (SHOWN, np.zeros(2), 1.0)),
        (FLOAT32, (SHOWN, "left", 1.0)),
        (Form(None, (), 4), (1, 1, 1.0)),
        (SCALARS, ([1, 2], 1, 1.0)),
        (SCALARS, (-(2**63) - 1, 1, 1.0)),
    ],
    ids=str,
)
def test_what_is_unusual_is_told_by_itself(form: Form, row: tuple[Any, Any, Any]) -> None:
    """
    What has to be looked at, and what no column holds as it is.
    """
    spans = spans_of([Played([row, row])], form)

    assert not are_together(spans)
    check(spans)


def test_one_unusual_episode_leaves_others_as_they_are() -> None:
    """
    Those that come with it are told by themselves, too, and say what they said.
    """
    spans = spans_of([*USUAL, Played([(SHOWN, None, 1.0)]), *USUAL])

    assert not are_together(spans)
    check(spans)


def test_episodes_of_two_environments_are_two_series() -> None:
    """
    What one of them says is not what the other says.
    """
    first, second = spans_of(USUAL, env="50% of %s"), spans_of(USUAL, env="Größe", group="%d")
    spans = [*first, *second, *first]

    assert 3 * [Plays] == [type(one) for one in gathered(spans)]
    check(spans)


def test_an_episode_whose_spans_are_apart_is_none_of_a_series() -> None:
    """
    Of two that end at the same time the spans may come in any order.
    """
    spans = spans_of(USUAL[:2])
    mixed = [spans[0], spans[2], spans[1], spans[3]]

    assert mixed == gathered(mixed)
    check(mixed)


@pytest.mark.parametrize("place", [0, 1])
def test_an_episode_that_somebody_looked_at_is_told_by_itself(place: int) -> None:
    """
    A transport may have taken something out, of either span.
    """
    spans: list[Any] = spans_of(USUAL)
    spans[place].values["own"] = "said"

    found = gathered(spans)

    assert [*spans[:2], Plays] == [*found[:2], type(found[2])]
    assert "said" == next(records(found[place:])).attributes["own"]
    check(spans)


@pytest.mark.parametrize("place", [0, 1])
def test_a_span_that_was_changed_for_a_transport_is_told_as_changed(place: int) -> None:
    """
    The other of the two is what it was.
    """
    spans: list[Any] = spans_of(USUAL[:1])
    values = dict(record(spans_of(USUAL[:1])[place], full).attributes)
    spans[place] = spans[place].with_values(values | {"own": "said"})

    assert spans == gathered(spans)
    assert "said" == list(records(unpack(pack(spans), full)))[place].attributes["own"]
