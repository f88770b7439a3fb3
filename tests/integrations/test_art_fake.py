"""The integration with ART with a stand-in for the library, which always runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import told

pytest.importorskip("openai")

TESTS = Path(__file__).parents[1]
FAKES = TESTS / "integrations" / "fakes"


def test_the_tests_of_the_library_hold_for_its_stand_in() -> None:
    """
    So that they always run.
    """
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            str(TESTS / "integrations" / "test_art.py"),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(FAKES), str(TESTS)])},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stdout
    assert "skipped" not in done.stdout


def test_training_is_an_update_of_the_groups() -> None:
    """
    The groups are recorded before the training starts, also those of a generator; metrics are the library's.
    """
    said = told(
        f"""
    import asyncio, json, sys
    sys.path[:0] = [{str(FAKES)!r}]
    import mttp

    async def main():
        import art
        from art.local.backend import LocalBackend

        async def rollout(reward):
            return art.Trajectory(messages_and_choices=[{{"role": "user", "content": "2+2?"}}], reward=reward)

        groups = await art.gather_trajectory_groups([art.TrajectoryGroup([rollout(0.0), rollout(1.0)])])
        model = art.Model(name="tiny", project="p", base_path="logs")
        return await LocalBackend().train(model, (group for group in groups), learning_rate=1e-5)

    with mttp.configure("memory://") as session:
        with mttp.instrument() as handle:
            result = asyncio.run(main())
            status = handle.status()
        recording = mttp.read(session)
    (update,), (group,) = recording.updates, recording.groups
    print(json.dumps({{
        "step": result.step,
        "update": [update.index, update.policy, update.loss, update.grad_norm, update.consumed],
        "groups": update.groups == (group.id,),
        "rewards": sorted(group.rewards),
        "consumed": [episode.consumed_by for episode in recording],
        "patched": [status["LocalBackend.train"], status["art.serverless.backend"]],
        "faults": dict(session.stats.faults),
    }}))
    """
    )

    assert {
        "step": 8,
        "update": [8, "tiny", 0.5, 2.0, 2],
        "groups": True,
        "rewards": [0.0, 1.0],
        "consumed": [[8], [8]],
        "patched": [True, False],
        "faults": {},
    } == said
