"""Recordings with a span of every kind, and with episodes that were recorded in every way."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

import mttp
from mttp.model.spans import SpanRecord
from mttp.reading.scanning import Scan
from tests.specimen import EVERYTHING

__all__ = ["every_kind", "every_way"]


def every_kind(directory: Path) -> list[SpanRecord]:
    """The spans of an episode that uses everything, of packed steps, and of what is apart from episodes."""
    path = directory / "every.jsonl"
    with mttp.configure(transport=f"file://{path}", config={"lr": 0.1}) as session:
        session.record(EVERYTHING)
        with mttp.episode(env="packed", steps="packed", seed=3) as packed:
            for index in range(3):
                with packed.step() as step:
                    step.observation(np.full(2, index, np.float32))
                    step.action(index)
                    step.reward(float(index))
        with mttp.episode(env="agents", policy="p") as played:
            agent = played.agent("a")
            with agent.step() as step:
                step.tokens([1, 2], logprobs=[-0.5, -0.1], prompt_ids=[3])
                step.reward(1.0)
            played.reward(1.0, components={"x": 0.5}, weights={"x": 2.0}, grader="g")
        mttp.score(played, 0.5, grader="me")
        mttp.annotate(played, "outcome", "success")
        mttp.annotate(played, "topic", {"deep": [1, None, "x"]})
        mttp.group("g", [packed, played], rewards=[0.0, 1.0]).end()
        mttp.update(0, sampled_versions=("1", "2"), episodes=[packed], loss=0.5, policy_version_before="1")
        with mttp.evaluate("suite", tasks=["t"], progress=False) as run:
            run.map(lambda task: 1.0)
    session.close()
    return list(Scan(path, arrays=True, as_written=True))


def every_way(session: mttp.Session) -> list[SpanRecord]:
    """Episodes of several processes, packed steps, agents, scorings that fail, and facts that come late."""
    session.record(EVERYTHING)
    for number in range(8):
        with mttp.episode(env=f"env-{number % 3}", steps="packed" if number % 2 else "spans") as opened:
            carrier = mttp.inject({})
            for index in range(number % 5):
                with opened.step() as step:
                    step.tokens([1, 2, 3], prompt_ids=[4]) if number == 4 else None
                    step.reward(index / 2, components={"a": 1.0, "b": math.nan} if number == 4 else None)
            match number % 4:
                case 1:
                    opened.reward(2.5, components={"x": 1.0})
                case 2:
                    opened.reward(None, status="abstained")
                case 3:
                    opened.reward(math.nan)
            for _ in range(number % 3):
                with mttp.extract(carrier) as part:
                    for index in range(3):
                        with part.step(index=10 + index) as step:
                            step.reward(math.nan if number == 5 else 1.5)
                    if number > 5:
                        part.reward(9.0, components={"y": 0.5})
            if number == 6:
                with opened.agent("bob") as agent:
                    agent.reward(3.0, components={"z": 2.0})
    late = mttp.read(session).episodes
    mttp.score(late[1], 0.5, grader="late", components={"q": 1.0})
    mttp.annotate(late[2], "outcome", "failure")
    mttp.annotate(late[2], "outcome", "success")
    return list(session.records())
