"""What is recorded is what is read, through every transport that keeps everything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from specimen import EVERYTHING, episodes

import mttp
from mttp.model.values import same
from mttp.recording import configuration
from mttp.testing import assert_same


def stated(value: mttp.Episode, flag: str) -> bool | None:
    """What the episode says of its end, or else the last step of its own that says anything."""
    said = [getattr(item, flag) for item in (*value.steps, value) if getattr(item, "agent", None) is None]
    return next((answer for answer in reversed(said) if answer is not None), None)


TRANSPORTS = (
    "memory://",
    "file://a.jsonl",
    "file://a.jsonl.gz",
    "file://a.jsonl.zst",
    "file://runs/",
    "mttp+file://a.mttp.jsonl",
    "mttp+file://a.mttp.jsonl.gz",
)


def through(transport: str, value: mttp.Episode) -> mttp.Episode:
    """The episode after recording and reading."""
    with mttp.configure(transport=transport) as session:
        session.record(value)
    assert not session.stats.lost
    source = session if transport == "memory://" else transport.rpartition("file://")[2]
    recording = mttp.read(source)
    configuration.forget()
    assert [] == recording.problems
    return recording.episodes[0]


def expected_of(value: mttp.Episode, found: mttp.Episode) -> mttp.Episode:
    """The value with what recording itself adds."""
    scorings = [*value.rewards]
    derived = {
        "trace_id": found.trace_id,
        "run_id": found.run_id,
        "id": value.id or found.trace_id,
        "index": 0 if value.index is None else value.index,
        "reward": scorings[-1] if scorings else mttp.Reward(),
        "step_count": len(value.steps),
        "terminated": stated(value, "terminated"),
        "truncated": stated(value, "truncated"),
    }
    return replace(value, **derived)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_everything_comes_back_equal(transport: str) -> None:
    """
    An episode that uses every part of the vocabulary survives every lossless transport.
    """
    found = through(transport, EVERYTHING)

    assert_same(expected_of(EVERYTHING, found), found)


def test_times_come_back_to_the_nanosecond() -> None:
    """
    The times of a finished episode are the ones that were given.
    """
    found = through("file://a.jsonl", EVERYTHING)

    assert (EVERYTHING.start_time, EVERYTHING.end_time) == (found.start_time, found.end_time)


def test_a_recording_can_be_recorded_again() -> None:
    """
    What was read is a value like any other: recorded once more, it reads the same.
    """
    first = through("file://a.jsonl", EVERYTHING)

    second = through("file://b.jsonl", first)

    assert_same(first, second, ignore=["run_id"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(episodes())
def test_any_episode_comes_back_equal_from_memory_and_files(value: mttp.Episode) -> None:
    """
    Whatever can be said without fault is read as it was said, and alike from memory and files.
    """
    with TemporaryDirectory() as directory:
        place = Path(directory)
        for transport in ("memory://", f"file://{place}/a.jsonl", f"mttp+file://{place}/b.jsonl"):
            found = through(transport, value)
            wanted = expected_of(value, found)
            unstated = {"return_", "return_basis", "step_reward_sum"}  # derived from the rewards

            assert_same(wanted, found, ignore=unstated)


def test_terminated_and_truncated_stay_apart(session: mttp.Session) -> None:
    """
    A time limit ends an episode without claiming that the task is done.
    """
    with mttp.episode() as episode:
        episode.end(truncated=True)

    found = mttp.read(session).episodes[0]

    assert (None, True) == (found.terminated, found.truncated)


def test_an_array_is_never_what_no_array_is() -> None:
    """
    Not even one of doubles, which is what numpy takes nothing for.
    """
    array = np.zeros(1)

    assert [False] * 4 == [same(array, other) for other in (None, [0.0], {"a": 0.0}, 0.0)]
