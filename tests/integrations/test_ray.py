"""Ray tasks and actors record parts of episodes, and nothing is lost when Ray kills its workers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import mttp

pytest.importorskip("ray")

PROGRAM = """
import os
import mttp, ray

@ray.remote
def act(carrier, name):
    with mttp.extract(carrier, flush=True), mttp.step() as step:
        step.action(name)
        step.reward(1.0)

@ray.remote
def delegate(carrier, name):
    with mttp.extract(carrier, flush=True), mttp.step() as step:
        step.action("delegate")
        ray.get(act.remote(mttp.inject(), name))

@ray.remote
def score(carrier):
    with mttp.extract(carrier, flush=True) as part:
        part.reward(0.5, grader="far")

@ray.remote
def call(function, *arguments):
    return function(*arguments)

@ray.remote
class Player:
    def __init__(self):
        self.played = 0

    def act(self, carrier, name):
        self.played += 1
        with mttp.extract(carrier, flush=True), mttp.step() as step:
            step.action(f"{name} {self.played}")
            step.reward(1.0)

@ray.remote
class Waiter:
    async def act(self, carrier, name):
        async with mttp.extract(carrier, flush=True), mttp.step() as step:
            step.action(name)
            step.reward(1.0)

def carried(name):
    with mttp.step() as step:
        step.action(name)
        step.reward(1.0)

with mttp.configure("file://runs/"):
    variables = {name: os.environ[name] for name in ("MTTP_RUN_ID", "MTTP_TRANSPORT")}
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": variables})
    player, waiter = Player.remote(), Waiter.remote()
    with mttp.episode(id="all"):
        ray.get([act.remote(mttp.inject(), f"task {number}") for number in range(3)])
        ray.get(call.remote(mttp.recording.bind_context(carried), "carried"))
        ray.get(delegate.remote(mttp.inject(), "nested"))
        ray.get([player.act.remote(mttp.inject(), "actor") for _ in range(2)])
    for number in range(2):
        with mttp.episode(id=f"mixed {number}"):
            asked = [waiter.act.remote(mttp.inject(), f"{number}") for _ in range(5)]
            asked.append(player.act.remote(mttp.inject(), f"{number}"))
            ray.get(asked)
    with mttp.episode(id="scored"):
        ray.get(score.remote(mttp.inject()))
    ray.kill(player)
    ray.shutdown()
"""


@pytest.fixture(scope="module")
def recording() -> Iterator[mttp.Recording]:
    """Return the recording of a program that uses Ray."""
    directory = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # names of Ray's sockets may not be long
    (directory / "program.py").write_text(PROGRAM)
    quiet = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(directory)}
    try:
        subprocess.run(
            [sys.executable, "program.py"], cwd=directory, env=os.environ | quiet, timeout=240, check=True
        )
        yield mttp.read(directory / "runs")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def actions(recording: mttp.Recording, name: str) -> list[str]:
    """Return the actions of an episode."""
    (episode,) = (episode for episode in recording if episode.id == name)
    return sorted(step.action for step in episode.steps)


def test_every_episode_is_complete(recording: mttp.Recording) -> None:
    """
    Each span is there once, in one run, although the workers were killed at once.
    """
    assert ["all", "mixed 0", "mixed 1", "scored"] == sorted(episode.id for episode in recording)
    assert all(episode.complete for episode in recording)
    assert (0, 1) == (recording.duplicates, len({run.id for run in recording.runs}))


def test_tasks_and_actors_continue_an_episode(recording: mttp.Recording) -> None:
    """
    With a carrier or a bound function, concurrently and nested.
    """
    assert [
        *("actor 1", "actor 2", "carried", "delegate", "nested", "task 0", "task 1", "task 2")
    ] == actions(recording, "all")


def test_an_actor_in_several_episodes(recording: mttp.Recording) -> None:
    """
    Concurrent calls of an asynchronous actor stay in their episodes.
    """
    assert [["0"] * 5 + ["0 3"], ["1"] * 5 + ["1 4"]] == [
        actions(recording, "mixed 0"),
        actions(recording, "mixed 1"),
    ]


def test_a_task_may_score_the_episode(recording: mttp.Recording) -> None:
    """
    Its reward of the episode is the return.
    """
    (episode,) = (episode for episode in recording if episode.id == "scored")

    assert ("far", 0.5) == (episode.reward.grader if episode.reward else None, episode.return_)
