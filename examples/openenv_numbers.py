# mypy: disable-error-code="misc, untyped-decorator"
"""
An environment of OpenEnv behind its server, and a client: rubrics score in the server, in the client's steps.

    pip install 'mttp[openenv,cli]'
    python examples/openenv_numbers.py
    mttp show runs/openenv.jsonl
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

OUT = "runs/openenv.jsonl"
if __name__ == "__main__":  # before the imports, which take seconds
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default=OUT, help=f"where to record; by default {OUT}")
    OUT = parser.parse_args().out

import uvicorn
from openenv.core import GenericEnvClient
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from openenv.core.rubrics import Rubric, WeightedSum

import mttp


class Move(Action):
    """A number."""

    n: int


class Board(Observation):
    """The last number."""

    n: int = 0


class Even(Rubric):
    """Scores even numbers."""

    def forward(self, action: Any, observation: Any) -> float:  # noqa: ARG002 - OpenEnv passes it
        """Return 1 for an even number, else 0."""
        return float(action.n % 2 == 0)


class Small(Rubric):
    """Scores small numbers."""

    def forward(self, action: Any, observation: Any) -> float:  # noqa: ARG002 - OpenEnv passes it
        """Return 1 divided by the number."""
        return float(1 / action.n)


class Numbers(Environment):  # type: ignore[misc, type-arg, unused-ignore]  # untyped without the library
    """Ends at a number above 3."""

    def __init__(self) -> None:
        super().__init__(rubric=WeightedSum([Even(), Small()], [0.75, 0.25]))
        mttp.instrument(self)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Board:  # noqa: ARG002
        """Return the first observation."""
        return Board(reward=0.0, done=False)

    def step(self, action: Move, timeout_s: float | None = None, **_: Any) -> Board:  # noqa: ARG002
        """Return the number with its reward."""
        board = Board(n=action.n, done=action.n > 3)
        board.reward = self._apply_rubric(action, board)
        return board

    @property
    def state(self) -> State:
        """The state, which is empty."""
        return State()


@contextmanager
def serving() -> Iterator[str]:
    """Serve the environment in a thread, and yield its address."""
    server = uvicorn.Server(
        uvicorn.Config(create_app(Numbers, Move, Board), port=0, log_level="error", ws="websockets-sansio")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


def play(env: Any, numbers: tuple[int, ...] = (2, 5)) -> list[float]:
    """Play an episode, and return the rewards that the server sent."""
    rewards = []
    with mttp.episode(env="numbers") as episode:
        observation = env.reset().observation
        for number in numbers:
            with episode.step() as step:
                step.observation(observation)
                step.action({"n": number})
                result = env.step({"n": number})
                step.reward(result.reward)
            observation = result.observation
            rewards.append(result.reward)
    return rewards


if __name__ == "__main__":
    with (
        mttp.configure(f"file://{OUT}", run="openenv"),
        mttp.instrument(),
        serving() as address,
        GenericEnvClient(base_url=address) as env,
    ):
        play(env)
    recording = mttp.read(OUT)
    print(recording)
    for step in recording[0].steps:
        print(step.reward, dict(step.rewards[0].components))
