"""A recording that has a span of every kind, and the values that an attribute of OTLP can hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import mttp
from mttp.model.spans import SpanRecord
from mttp.reading.scanning import Scan
from tests.specimen import EVERYTHING

__all__ = ["every_kind"]


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
