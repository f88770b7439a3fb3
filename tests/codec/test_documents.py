"""Lists and mappings that a step shows are kept as they were when it was told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

import mttp
from mttp.codec import content, documents
from mttp.codec.documents import sealed
from mttp.model.values import same

MESSAGES = [{"role": "user", "content": "grüß dich"}, {"role": "assistant", "content": None, "n": 1.5}]


class Role(str, Enum):
    USER = "user"


class Level(IntEnum):
    LOW = 1


@dataclass
class Point:
    x: int = 1


class Name(str):
    __slots__ = ()


class Count(int):
    pass


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
WHOLES = st.lists(PLAIN, max_size=4) | st.dictionaries(st.text(max_size=4), PLAIN, max_size=4)


@given(WHOLES)
@settings(deadline=None)
def test_a_document_holds_the_recorded_value(value: Any) -> None:
    """
    Whatever is not plain through and through, or would be remarked on, is no document.
    """
    found = sealed(value)
    faults: list[str] = []
    expected = content.encode(content.OBSERVATION, value, faults, [])

    if found is not None:
        assert [] == faults
        assert same(expected, {content.OBSERVATION.value: documents.content(found)})


@pytest.mark.parametrize(
    "value",
    [
        [np.float64(1)],
        [np.zeros(2)],
        [Role.USER],
        [Level.LOW],
        [Point()],
        [datetime(2026, 1, 1)],
        [datetime(2026, 1, 1, tzinfo=timezone.utc)],
        [Decimal(1)],
        [UUID(int=1)],
        [Name("a")],
        [Count(1)],
        [{Name("a"): 1}],
        [b"bytes"],
        [bytearray(b"bytes")],
        {1: "a"},
        ["a\ud800"],
        {"a\ud800": 1},
        [2**63],
        [-(2**63) - 1],
        CYCLE,
        ["data:image/png;base64," + "A" * 1024],
        [(1, 2)],
        [{"name" * 1000: 1}] * 5000,
        (1, 2),
        np.zeros(3),
        {"s": {1, 2}},
    ],
    ids=lambda value: f"{value!r:.40}",
)
def test_a_value_that_needs_conversion_is_no_document(value: Any) -> None:
    """
    Numbers of other libraries would arrive as bytes, and classes of their own as what they are made of.
    """
    assert sealed(value) is None


@pytest.mark.parametrize(
    "value",
    [
        [float("nan"), float("inf"), -0.0, 2**63 - 1, -(2**63), True, None],
        {"grüße": "日本 😀", "": ""},
        [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
        [],
        {},
    ],
    ids=repr,
)
def test_plain_data_is_a_document(value: Any) -> None:
    """
    Numbers keep their types and bits.
    """
    document = sealed(value)

    assert document is not None
    assert repr(value) == repr(documents.content(document))


def test_a_deeply_nested_value_is_no_document() -> None:
    """
    Nor does looking at it end in a RecursionError.
    """
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]

    assert sealed(value) is None


def test_only_a_text_that_is_a_picture_keeps_a_value_from_being_a_document() -> None:
    """
    A message may speak of data; a data URL is a whole text.
    """
    text = "here is the data: " * 100

    assert [True, False] == [
        sealed([{"role": "user", "content": content}]) is not None
        for content in (text, f"data:image/png;base64,{'A' * 2000}")
    ]


@pytest.mark.parametrize("steps", ["spans", "packed"])
@pytest.mark.parametrize("transport", ["memory", "file"])
def test_a_value_may_go_on_changing(steps: str, transport: str, tmp_path: Path) -> None:
    """
    What is recorded is what it was, as a span of its own or packed with others.
    """
    target = "memory://" if transport == "memory" else f"file://{tmp_path}/a.jsonl"
    messages = [dict(message) for message in MESSAGES]
    with mttp.configure(target, steps=steps) as session:
        with mttp.episode() as episode:
            for _ in range(3):
                with episode.step() as step:
                    step.observation(messages)
                    step.action({"tool": "search", "arguments": {"n": [1, 2]}})
                messages.append({"role": "tool", "content": "more"})
        session.flush()
        (found,) = mttp.read(session if transport == "memory" else tmp_path / "a.jsonl").episodes

    assert [2, 3, 4] == [len(step.observation) for step in found.steps]
    assert MESSAGES == found.steps[0].observation
    assert {"tool": "search", "arguments": {"n": [1, 2]}} == found.steps[2].action


def test_the_span_has_the_value() -> None:
    """
    A processor, the holder of the span, and a transport that takes spans.
    """
    seen: list[Any] = []

    class Seeing(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            seen.append(dict(span.attributes or {}).get(content.OBSERVATION.value))

    session = mttp.configure("memory://", processors=[Seeing()])
    with session, mttp.episode() as episode, episode.step() as step:
        step.observation(MESSAGES)
        attributes: Any = step.span.attributes  # type: ignore[attr-defined]
        seen.append(attributes[content.OBSERVATION.value])

    for value in seen[:2]:
        assert MESSAGES == list(value)


def test_the_last_value_counts() -> None:
    """
    Of whatever kinds they are.
    """
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode, episode.step() as step:
            step.observation(np.zeros(3))
            step.observation(MESSAGES)
        (found,) = mttp.read(session).episodes

    assert MESSAGES == found.steps[0].observation
