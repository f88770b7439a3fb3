"""Recording rollouts of many worlds from arrays of a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mttp
from mttp.errors import InstrumentError
from mttp.integrations.arrays import ArrayRollouts


class OnDevice:
    """An array of a device, which counts the copies to the host and their size."""

    copies: list[tuple[int, ...]] = []  # noqa: RUF012 - shared by all arrays

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __getitem__(self, index: Any) -> OnDevice:
        return OnDevice(self.values[index])

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        self.copies.append(self.values.shape)
        return self.values


def numpy(values: Any) -> Any:
    """Return an array of numpy."""
    return np.asarray(values)


def torch(values: Any) -> Any:
    """Return a tensor that needs a gradient if it can."""
    found = pytest.importorskip("torch").as_tensor(np.asarray(values))
    return found.requires_grad_() if found.is_floating_point() else found


def jax(values: Any) -> Any:
    """Return an array of jax."""
    return pytest.importorskip("jax.numpy").asarray(values)


def rollout(make: Any, at: int = 0, worlds: int = 4) -> dict[str, Any]:
    """Return three times of four worlds: world 1 terminates after the second, world 2 is cut after each."""
    times = np.arange(at, at + 3)
    terminated = np.zeros((3, worlds), bool)
    terminated[1, 1] = True
    truncated = np.zeros((3, worlds), bool)
    truncated[:, 2] = True
    grid = times[:, None] * 10 + np.arange(worlds)
    return {
        "observations": make(np.stack([grid, -grid], -1).astype(np.float32)),
        "actions": make(grid % 3),
        "rewards": make(grid / 2.0),
        "terminated": make(terminated),
        "truncated": make(truncated),
        "logprobs": make(-grid / 4.0),
        "values": make(grid / 8.0),
    }


@pytest.mark.parametrize("make", [numpy, torch, jax, OnDevice])
def test_episodes_span_rollouts(session: mttp.Session, make: Any) -> None:
    """
    Each chosen world has its episodes, with the values of the arrays, in order and without gaps.
    """
    rollouts = ArrayRollouts("ant", [1, 2], seed=3, policy="p")

    rollouts.record(**rollout(make), policy_version=1)
    rollouts.record(**rollout(make, at=3), policy_version=2)
    rollouts.close()

    episodes = mttp.read(session).episodes
    facts = [
        (e.env_index, e.length, e.status, e.terminated, e.policy_version_start, e.policy_version_end)
        for e in sorted(episodes, key=lambda e: (e.env_index, e.steps[0].observation[0]))
    ]
    assert [
        (1, 2, "completed", True, "1", "1"),
        (1, 3, "completed", True, "1", "2"),
        (1, 1, "aborted", False, "2", None),
        *[(2, 1, "completed", False, "1", "1")] * 3,
        *[(2, 1, "completed", False, "2", "2")] * 3,
    ] == facts
    first = min(episodes, key=lambda e: (e.env_index, e.steps[0].observation[0]))
    assert [([1.0, -1.0], 1, 0.5, -0.25, 0.125), ([11.0, -11.0], 2, 5.5, -2.75, 1.375)] == [
        (step.observation.tolist(), step.action, step.reward, step.logprob, step.value_estimate)
        for step in first.steps
    ]
    assert (np.float32, 6.0, "ant", "p", 3) == (
        first.steps[0].observation.dtype,
        first.return_,
        first.env,
        first.policy,
        first.metadata["vector_seed"],
    )
    assert {} == dict(session.stats.faults)


def test_each_array_is_copied_once_and_only_the_chosen_worlds(session: mttp.Session) -> None:
    """
    Of thousands of worlds two leave the device, in one copy of each array.
    """
    OnDevice.copies.clear()

    ArrayRollouts("ant", [1, 2]).record(**rollout(OnDevice, worlds=4096))

    assert [(3, 2, 2), *[(3, 2)] * 6] == OnDevice.copies


def test_nothing_is_copied_where_nothing_is_recorded(session: mttp.Session) -> None:
    """
    Without a session no array is copied, nor are values that the options leave out.
    """
    OnDevice.copies.clear()
    ArrayRollouts("ant", [0], observations=False, actions=False).record(**rollout(OnDevice))
    assert [(3, 1)] * 5 == OnDevice.copies
    session.close()
    OnDevice.copies.clear()

    ArrayRollouts("ant", [0]).record(**rollout(OnDevice))

    assert [] == OnDevice.copies


def test_rewards_that_are_not_finite_are_errors(session: mttp.Session) -> None:
    """
    A reward of NaN is never a number.
    """
    given = rollout(numpy)
    given["rewards"][0, 1] = np.nan

    ArrayRollouts("ant", [1]).record(**given)

    first = mttp.read(session).episodes[0]
    assert [("error", None, "nan"), ("ok", 5.5, None)] == [
        (step.reward_status, step.reward, step.reward_raw) for step in first.steps
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"rewards": np.zeros(3)},
        {"rewards": np.zeros((2, 4))},
        {"rewards": None},
        {"actions": "text"},
        {"terminated": np.zeros((3, 1), bool)},
    ],
)
def test_wrong_arrays_harm_nothing(session: mttp.Session, wrong: dict[str, Any]) -> None:
    """
    Arrays of another shape are a fault, and later rollouts are recorded.
    """
    rollouts = ArrayRollouts("ant", [1])

    rollouts.record(**{**rollout(numpy), **wrong})
    rollouts.record(**rollout(numpy))

    assert {"integration_error": 1} == dict(session.stats.faults)
    assert 2 == mttp.read(session).episodes[0].length


@pytest.mark.parametrize("worlds", [[0, 0], [-1], ["a"], [1.5]])
def test_wrong_worlds_are_refused(worlds: list[Any]) -> None:
    """
    Worlds are different indices from 0.
    """
    with pytest.raises(InstrumentError, match="are not different indices from 0"):
        ArrayRollouts("ant", worlds)


def test_wrong_options_are_refused() -> None:
    """
    The limit of sizes does not apply.
    """
    with pytest.raises(InstrumentError, match="max_bytes does not apply"):
        ArrayRollouts("ant", [0], max_bytes=3)


def test_open_episodes_end_with_the_session() -> None:
    """
    They are aborted.
    """
    with mttp.configure("memory://") as session:
        ArrayRollouts("ant", [0]).record(**rollout(numpy))

    (episode,) = mttp.read(session)
    assert ("aborted", "training_ended", 3) == (episode.status, episode.stop_reason, episode.length)
