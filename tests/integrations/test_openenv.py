"""OpenEnv itself: clients, servers and rubrics."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("openenv")
pytestmark = pytest.mark.filterwarnings("default")  # the library has warnings of its own

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
import openenv_numbers  # noqa: E402
from openenv.core import GenericEnvClient  # noqa: E402
from openenv.core.rubrics import Gate, Rubric, Sequential, WeightedSum  # noqa: E402

import mttp  # noqa: E402
from mttp.integrations.openenv import attach, attach_all  # noqa: E402


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of the example's server."""
    with openenv_numbers.serving() as found:
        yield found


class Fixed(Rubric):
    """A score."""

    def __init__(self, score: float) -> None:
        super().__init__()
        self.score = score

    def forward(self, action: Any, observation: Any) -> float:
        return self.score


class Later(Fixed):
    """A score that takes time."""

    async def forward(self, action: Any, observation: Any) -> float:  # type: ignore[override]
        await asyncio.sleep(0.001 * self.score)
        return self.score


def scored(rubric: Any) -> tuple[float, Any]:
    """A rubric's score of one step, and its recorded scoring."""

    async def call() -> float:
        result = rubric(SimpleNamespace(), None)
        return float(await result if asyncio.iscoroutine(result) else result)

    with mttp.configure("memory://") as session, attach(rubric):
        with mttp.episode() as episode, episode.step():
            result = asyncio.run(call())
        (scoring,) = mttp.read(session)[0].steps[0].rewards
    assert {} == session.stats.faults
    return result, scoring


def test_a_server_scores_in_the_step_of_the_client(address: str) -> None:
    """
    The rewards are the server's, with the components of its rubrics.
    """
    with mttp.configure("memory://") as session, attach_all() as handle:
        with GenericEnvClient(base_url=address) as env:
            rewards = openenv_numbers.play(env)
        status = handle.status()
        recording = mttp.read(session)
    (episode,) = recording

    assert {"_send_and_receive": True} == status
    assert [] == list(recording.problems)
    assert {} == session.stats.faults
    assert [0.875, 0.05] == rewards
    assert rewards == [step.reward for step in episode.steps]
    assert [[(0.875, {"rubric_0": 1.0, "rubric_1": 0.5})], [(0.05, {"rubric_0": 0.0, "rubric_1": 0.2})]] == [
        [(one.value, one.components) for one in step.rewards] for step in episode.steps
    ]


def test_results_are_the_same_without_recording(address: str) -> None:
    """
    The server gets and answers the same, with sessions in turn and at once.
    """

    async def play(number: int) -> list[Any]:
        async with GenericEnvClient(base_url=address) as env:
            with mttp.episode() as episode:
                results = [await env.reset()]
                for value in (number, number + 1):
                    with episode.step():
                        results.append(await env.step({"n": value}))
        return results

    async def main() -> list[Any]:
        return [await play(one) for one in (1, 2, 3)]

    with mttp.configure("memory://"):
        plain = asyncio.run(main())
    with mttp.configure("memory://") as session, attach_all():
        recorded = asyncio.run(main())
        recording = mttp.read(session)

    assert plain == recorded
    assert [[one.reward for one in results[1:]] for results in recorded] == [
        [step.rewards[0].value for step in episode.steps] for episode in recording
    ]


@pytest.mark.parametrize("kind", [Fixed, Later])
def test_scores_are_those_of_the_call(kind: Any) -> None:
    """
    A rubric that a sequence did not reach is in no grade, also if it was scored before.
    """
    first, second = kind(0.5), kind(1.0)
    rubric = WeightedSum([Sequential(first, second), Gate(kind(0.25), threshold=0.5)], [0.5, 0.5])
    result, scoring = scored(rubric)

    assert 0.5 == result == scoring.value
    assert [("rubric_0", 1.0, 0.5), ("rubric_1", 0.0, 0.5)] == [
        (one.name, one.value, one.weight) for one in scoring.grades
    ]
    assert [[0.5, 1.0], [0.25]] == [[part.value for part in one.parts] for one in scoring.grades]

    first.score = 0.0
    result, scoring = scored(rubric)

    assert 0.0 == result == scoring.value
    assert [[0.0], [0.25]] == [[part.value for part in one.parts] for one in scoring.grades]


def test_calls_at_once_keep_their_scores() -> None:
    """
    Each has those of its own call.
    """
    rubric = WeightedSum([Later(1.0), Fixed(1.0)], [0.5, 0.5])

    async def one() -> None:
        with mttp.episode() as episode, episode.step():
            await rubric(SimpleNamespace(), None)

    async def main() -> None:
        await asyncio.gather(*(one() for _ in range(8)))

    with mttp.configure("memory://") as session, attach(rubric):
        asyncio.run(main())
        recording = mttp.read(session)

    assert [{"rubric_0": 1.0, "rubric_1": 1.0}] * 8 == [
        episode.steps[0].rewards[0].components for episode in recording
    ]
