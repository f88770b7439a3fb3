"""The integration with verifiers, with a stand-in for its environments, which always runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import pytest
import wrapt

import mttp
from mttp.formats import verifiers
from mttp.integrations.verifiers import EnvironmentPatches, attach_all

FILE = Path(__file__).parents[1] / "formats" / "files" / "verifiers.jsonl"
RECORDS: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text().splitlines()]


class Finished:
    """An episode of the library."""

    def __init__(self, number: int) -> None:
        self.number = number

    def to_record(self, float_decimals: int | None = 4) -> dict[str, Any]:
        """Return the record."""
        assert float_decimals is None, "full precision is recorded"

        return RECORDS[self.number]


class Env:
    """An environment, with the methods that run an episode."""

    __module__ = "verifiers.v1.env"

    async def run_episode(self, number: int) -> Finished:
        """Run an episode, inside which an environment of Gymnasium steps."""
        env = gymnasium.make("CartPole-v1")
        env.reset(seed=1)
        env.step(0)
        env.close()
        await asyncio.sleep(0)
        if number < 0:
            raise ValueError("no such task")
        return Finished(number)

    async def run_slot(self, number: int) -> Finished:
        """Run an episode until it succeeds."""
        await self.run_episode(number)
        return await self.run_episode(number)


class Renamed:
    """An environment of a later version, without `run_slot`."""

    __module__ = "verifiers.v1.env"
    run_episode = Env.run_episode


async def together(env: Any) -> list[Finished]:
    """Run three episodes at once."""
    return list(await asyncio.gather(*(env.run_slot(number) for number in range(3))))


def test_each_finished_episode_is_recorded_once() -> None:
    """
    Neither its attempts, nor an environment of Gymnasium inside it, are episodes of their own.
    """
    with mttp.configure("memory://") as session:
        env = Env()
        with mttp.instrument(), mttp.instrument(env, metadata={"mine": 1}), attach_all():
            found = asyncio.run(together(env))
        episodes = {episode.id: episode for episode in mttp.read(session)}

    assert [0, 1, 2] == [one.number for one in found]
    assert {record["id"] for record in RECORDS[:3]} == episodes.keys()
    assert {} == session.stats.faults
    assert RECORDS[0] == json.loads(json.dumps(verifiers.record(episodes[RECORDS[0]["id"]])))
    assert 1 == episodes[RECORDS[0]["id"]].metadata["mine"]


def test_an_exception_of_the_library_is_not_changed() -> None:
    """
    Nothing is recorded for it, and the next episode is.
    """
    with mttp.configure("memory://") as session, mttp.instrument(Env()) as handle:
        env = next(iter(handle._places.values())).owner  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="no such task"):
            asyncio.run(env.run_slot(-1))
        asyncio.run(env.run_slot(0))

    assert 1 == len(mttp.read(session))


def test_a_renamed_method_is_named() -> None:
    """
    The others are recorded.
    """
    with mttp.configure("memory://") as session:
        handle = mttp.instrument(env := Renamed())

        assert {"run_episode": True, "run_slot": False} == handle.status()

        asyncio.run(env.run_episode(0))

    assert 1 == len(mttp.read(session))


def test_the_library_is_patched_when_it_is_imported() -> None:
    """
    Until then the status names its module.
    """
    handle = EnvironmentPatches({})
    handle.patch_library()

    assert {"verifiers.v1.env": False} == handle.status()

    module = ModuleType("verifiers.v1.env")
    module.__dict__["Env"] = Env
    wrapt.notify_module_loaded(module)

    assert {"run_slot": True, "run_episode": True} == handle.status()

    handle.detach()

    assert {"run_slot": False, "run_episode": False} == handle.status()


def test_without_a_session_the_library_works() -> None:
    """
    After a detach, too.
    """
    with mttp.instrument(env := Env()):
        pass

    assert 0 == asyncio.run(env.run_slot(0)).number


def test_content_is_recorded_only_if_it_is_wanted() -> None:
    """
    The options are those of every library.
    """
    with mttp.configure("memory://") as session:
        with mttp.instrument(env := Env(), observations=False, task="mine"):
            asyncio.run(env.run_slot(0))
        (episode,) = mttp.read(session)

    assert "mine" == episode.task
    assert {None} == {step.observation for step in episode.steps}
    assert all(step.action for step in episode.steps)
