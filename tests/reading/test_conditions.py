"""Conditions on episodes as text."""

from __future__ import annotations

import pytest

import mttp
from mttp.errors import ReadError
from mttp.reading.conditions import COLUMNS, condition

HOUR = 3_600_000_000_000
EPISODE = mttp.Episode(
    trace_id="ab" * 16,
    run_id="run-1",
    env="CartPole-v1",
    task="train/17",
    slices=["hard", "long"],
    seed=7,
    status="error",
    outcome="failure",
    error_type="ValueError",
    terminated=False,
    return_=0.5,
    length=12,
    metrics={"kl": 0.25},
    metadata={"level": "3", "flag": True, "none": None},
    reward=mttp.Reward(value=0.5, components={"format": 1.0}, failed_checks=("leak",)),
    start_time=12 * HOUR,
    end_time=12 * HOUR + 2_000_000_000,
)
NOTHING = mttp.Episode(trace_id="cd" * 16)


@pytest.mark.parametrize(
    "text",
    [
        "status=error",
        " status = error ",
        "status!=completed",
        "episode~^abab",
        "env=CartPole-v1",
        "task~^train/",
        "task!=train/1",
        "slice=hard",
        "slice!=easy",
        "slice~lon",
        "failed_check=leak",
        "return=0.5",
        "return=.50",
        "return>0.4",
        "return>=0.5",
        "return<=0.5",
        "return<1e3",
        "length~^1",
        "duration>1.9",
        "seed=7",
        "seed=7.0",
        "seed<8",
        "terminated=false",
        "terminated~false",
        "truncated=none",
        "verdict=none",
        "status!=none",
        "metrics.kl<0.3",
        "metrics.none=none",
        "metadata.level=3",
        "metadata.flag=true",
        "components.format=1",
        "start>=1970-01-01",
        "start<1970-01-01T12:00:01",
        "start=1970-01-01T13:00:00+01:00",
    ],
)
def test_a_condition_holds(text: str):
    """
    The negated operator gives the opposite result.
    """
    assert condition(text)(EPISODE)


@pytest.mark.parametrize(
    "text",
    [
        "return>0",
        "return<0",
        "return=0",
        "advantage>=-inf",
        "task~.",
        "start>1900-01-01",
        "terminated=true",
        "terminated=false",
        "metrics.kl<0.3",
        "slice=hard",
        "metadata.level>2",
    ],
)
def test_what_is_not_known_is_nothing(text: str):
    """
    An unknown value is neither less nor greater than any value, and matches no text.
    """
    assert not condition(text)(NOTHING)


def test_every_column_is_known_of_an_episode_of_nothing():
    """
    Every column can be compared with `none` for an empty episode.
    """
    for name in COLUMNS:
        assert condition(f"{name}=none")(NOTHING) is not condition(f"{name}!=none")(NOTHING)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a condition; write one such as status=error"),
        ("status", "is not a condition"),
        ("=error", "is not a condition"),
        ("colour=red", "there is no column 'colour'; the columns are episode, run, env,"),
        ("steps.kl=1", "metrics.NAME, metadata.NAME, components.NAME"),
        ("return>high", "'return>high': 'high' is not a number"),
        ("return=nan", "'nan' is not a number"),
        ("seed>x", "'x' is not a number"),
        ("outcome<success", "< compares numbers and times; text is compared by =, != and ~"),
        ("terminated=yes", "'yes' is neither true nor false"),
        ("task~[", "'[' is not a regular expression"),
        ("start>today", "'today' is not a time; write 2026-01-31"),
    ],
)
def test_a_wrong_condition_says_what_there_is(text: str, message: str):
    """
    The error names the value and the valid alternatives.
    """
    with pytest.raises(ReadError) as caught:
        condition(text)

    assert message in str(caught.value)
