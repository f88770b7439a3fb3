"""Transitions that another process lays out in columns say what they say here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan

import mttp
from mttp.codec.profiles import full, packed
from mttp.codec.transitions import Form
from mttp.encoding import works
from mttp.encoding.parcels import pack
from mttp.encoding.unpacking import unpack
from mttp.livespan import LiveSpan
from mttp.readable import record
from mttp.recorder.block import Block
from mttp.recorder.live_block import LiveBlock
from mttp.spans import SpanRecord
from mttp.values import same
from mttp.wire.otlp_json import encode_records

AT = 1_700_000_000_000_000_000
FLOAT32 = Form(np.dtype(np.float32), (2,), 1 << 16)


def played(rows: list[tuple[Any, ...]], form: Form = FLOAT32) -> list[LiveSpan]:
    """The spans of an episode of these steps: observation, action, reward, terminated and truncated."""
    spans: list[LiveSpan] = []
    with mttp.configure("memory://", run_id="run", steps="packed") as session:
        session._share.take = spans.append  # type: ignore[method-assign]
        with mttp.episode(start_time=AT) as episode:
            episode.gather(block := Block(form, AT))
            block.rows += [(*row, AT + number) for number, row in enumerate(rows, 1)]
    return [span for span in spans if isinstance(span, LiveBlock)]


def check(spans: list[LiveSpan]) -> None:
    """By way of another process lines and attributes are the same; that one is asked first."""
    listed: list[ReadableSpan] = [*spans]
    parcel = pack(listed)
    (arrived,) = unpack(parcel, full)
    assert isinstance(arrived, SpanRecord)

    assert same(record(spans[0], full).attributes, arrived.attributes)
    lines = b"".join(encode_records(record(span, packed) for span in spans))
    assert lines == works.WORKS[works.LINES](parcel)


NUMBERS = st.integers(-(2**63), 2**63 - 1)
ACTIONS = (
    st.lists(NUMBERS, min_size=1)
    | st.lists(NUMBERS.map(np.int64), min_size=1)
    | st.lists(st.floats().map(np.float64), min_size=1)
    | st.lists(st.integers(0, 255).map(np.uint8), min_size=1)
    | st.lists(st.none() | st.booleans() | st.integers() | st.text(), min_size=1)
)
REWARDS = st.sampled_from(
    [
        st.floats(allow_nan=False, allow_infinity=False),
        st.floats(),
        st.integers(),
        st.integers(-9, 9).map(float),
        st.floats(width=32).map(np.float32),
        st.none() | st.text() | st.booleans(),
    ]
)


@given(ACTIONS, st.data())
@settings(max_examples=120, deadline=None)
def test_steps_are_laid_out_there_as_here(actions: list[Any], data: st.DataObject) -> None:
    """
    Whatever was done and paid.
    """
    rewards = data.draw(REWARDS)
    check(
        played(
            [
                (np.float32([number, -number]).tobytes(), action, data.draw(rewards), False, number > 3)
                for number, action in enumerate(actions)
            ]
        )
    )


def test_what_environments_do_most_travels() -> None:
    """
    Arrays, whole numbers and finite rewards; the other process makes columns of them.
    """
    shown = np.zeros(2, np.float32).tobytes()
    for action, reward in ((1, 1.0), (np.int64(1), np.float64(0.5)), (None, 2)):
        (block,) = played([(shown, action, reward, False, False)] * 3)
        assert block.unsaid() is not None
        check([block])


@pytest.mark.parametrize(
    ("form", "action", "reward"),
    [
        (Form(None, (), None), 1, 1.0),
        (FLOAT32, 1, float("nan")),
        (FLOAT32, 1, 10**400),
        (FLOAT32, 2**63, 1.0),
        (FLOAT32, np.zeros(2), 1.0),
    ],
)
def test_what_may_be_wrong_is_laid_out_here(form: Form, action: Any, reward: Any) -> None:
    """
    Here it is known who counts it.
    """
    shown = np.zeros(2, np.float32)
    (block,) = played([(shown.tobytes() if form.dtype else 1, action, reward, False, False)] * 2, form)

    assert block.unsaid() is None
    check([block])


def test_steps_that_somebody_looked_at_travel_as_they_are() -> None:
    """
    They may have been changed.
    """
    (block,) = played([(np.zeros(2, np.float32).tobytes(), 1, 1.0, False, False)])
    block.values["own"] = "said"

    assert block.unsaid() is None
    check([block])
