"""Comparisons of recorded values: each difference is named by its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from specimen import EVERYTHING

import mttp
from mttp.testing import assert_same, where_different

EPISODE = mttp.Episode(
    env="toy",
    metadata={"note": "first"},
    steps=(
        mttp.Step(action="left", reward=float("nan"), tokens=mttp.Tokens(ids=[1, 2], logprobs=[-0.5, -0.5])),
        mttp.Step(index=1, action="right"),
    ),
    reward=mttp.Reward(value=0.5, components={"correct": 0.5}),
)


def step(index: int, **changes: Any) -> mttp.Episode:
    """Return the episode with one step changed."""
    steps = [replace(one, **changes) if one.index == index else one for one in EPISODE.steps]
    return replace(EPISODE, steps=tuple(steps))


@pytest.mark.parametrize(
    ("actual", "place"),
    [
        (replace(EPISODE, env="maze"), "env: expected 'toy', was 'maze'"),
        (replace(EPISODE, return_=0.5), "return_: expected None, was 0.5"),
        (replace(EPISODE, length=True), "length: expected 0, was True"),
        (replace(EPISODE, metadata={}), "metadata['note']: expected 'first', was nothing"),
        (
            replace(EPISODE, reward=replace(EPISODE.reward, components={"correct": 0.25})),
            "reward.components['correct']: expected 0.5, was 0.25",
        ),
        (step(1, action="left"), "steps[1].action: expected 'right', was 'left'"),
        (step(1, action={"move": "right"}), "steps[1].action: expected 'right', was {'move': 'right'}"),
        (step(0, reward=1.0), "steps[0].reward: expected nan, was 1.0"),
        (
            step(0, tokens=mttp.Tokens(ids=[1, 3], logprobs=[-0.5, -0.5])),
            "steps[0].tokens.ids: expected 2 at [1], was 3 (1 of 2 elements differ)",
        ),
        (
            step(0, tokens=mttp.Tokens(ids=[1, 2], logprobs=np.array([-0.5, -0.5], np.float32))),
            "steps[0].tokens.logprobs: expected float64 array of shape (2,), was float32 array of shape (2,)",
        ),
        (
            replace(EPISODE, steps=EPISODE.steps[:1]),
            "steps[1]: expected Step(index=1, action='right'), was nothing",
        ),
    ],
    ids=lambda value: value.partition(":")[0] if isinstance(value, str) else "",
)
def test_a_difference_is_named_by_its_place(actual: mttp.Episode, place: str) -> None:
    """
    The message has the expected and the actual value.
    """
    assert [place] == where_different(EPISODE, actual)
    with pytest.raises(AssertionError) as raised:
        assert_same([EPISODE], [actual])
    assert f"what was recorded differs in one place:\n  [0].{place}" == str(raised.value)


def test_many_differences_are_abridged() -> None:
    """
    A comparison with many differences lists the first ones and counts the others.
    """
    with pytest.raises(AssertionError) as raised:
        assert_same(list(range(50)), list(range(50, 100)))

    lines = str(raised.value).splitlines()
    assert ("what was recorded differs in 50 places:", "  … and 30 more") == (lines[0], lines[-1])


def test_equal_values_have_no_differences() -> None:
    """
    Values that `==` finds equal have no differences, with NaN and arrays.
    """
    other = replace(EPISODE, span_id="00f067aa0ba902b7", start_time=1, end_time=2)

    assert_same(EPISODE, other)
    assert_same(EVERYTHING, replace(EVERYTHING))
    assert_same(np.array([[float("nan")]]), np.array([[float("nan")]]))
    assert_same({"a": [EPISODE]}, {"a": [other]})


def test_fields_may_be_ignored() -> None:
    """
    Ignored fields are ignored at every depth.
    """
    other = replace(EPISODE, trace_id="00", id="00", env="maze")

    assert ["env: expected 'toy', was 'maze'"] == where_different(EPISODE, other, ignore={"trace_id", "id"})
    assert_same([EPISODE], [step(1, action="left")], ignore=["action"])


def test_values_of_different_types_differ() -> None:
    """
    Also at the top level, where there is no path.
    """
    assert ["it: expected Reward(), was Call(operation='chat')"] == where_different(
        mttp.Reward(), mttp.model.Call(operation="chat")
    )
