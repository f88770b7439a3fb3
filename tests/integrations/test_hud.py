"""HUD itself: rollouts, grades and the spans that it writes."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hud")
pytestmark = pytest.mark.filterwarnings("default")  # the library has warnings of its own

os.environ["HUD_TELEMETRY_ENABLED"] = "false"
EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
import hud_sums  # noqa: E402
from hud.agents.base import Agent  # noqa: E402
from hud.eval import LocalRuntime, rollout  # noqa: E402
from hud.settings import settings  # noqa: E402

import mttp  # noqa: E402
from mttp import formats  # noqa: E402
from mttp.integrations.hud import attach_all  # noqa: E402

FIELDS = (
    "trace_id",
    "steps",
    "reward",
    "rewards",
    "return_",
    "inputs",
    "policy",
    "status",
    "error_type",
    "error_message",
    "cost_usd",
    "final_observation",
    "start_time",
    "end_time",
)


@pytest.fixture(autouse=True)
def spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the spans that HUD writes."""
    monkeypatch.setattr(settings, "telemetry_local_dir", str(tmp_path))
    return tmp_path


class Failing(Agent):
    """Raises after a turn."""

    async def __call__(self, run: Any) -> None:
        await hud_sums.Scripted()(run)
        raise RuntimeError("boom")


class Slow(Agent):
    """Exceeds any limit."""

    async def __call__(self, run: Any) -> None:
        await asyncio.sleep(60)


def essence(run: Any) -> Any:
    """A run without ids and times."""
    steps = [
        one.model_dump(mode="json", exclude={"started_at", "ended_at", "task_call"})
        for one in run.trace.steps
    ]
    return run.slug, run.reward, run.evaluation, run.trace.status, run.trace.content, steps


def test_runs_are_episodes_of_a_group() -> None:
    """
    Rewards are those of the runs; grades are HUD's tree.
    """
    with mttp.configure("memory://") as session, attach_all() as handle:
        job = asyncio.run(hud_sums.rollouts())
        status = handle.status()
        recording = mttp.read(session)

    assert {"rollout.set_trace_context": True, "rollout.trace_exit": True} == status
    assert {} == session.stats.faults
    assert sorted((run.trace_id, run.slug, run.group_id, run.reward) for run in job.runs) == sorted(
        (one.trace_id, one.task, one.group, one.return_) for one in recording
    )
    assert {"sums"} == {one.env for one in recording}
    assert {True} == {one.terminated for one in recording}
    for run in job.runs:
        episode = next(one for one in recording if one.trace_id == run.trace_id)
        tree = run.evaluation["subscores"]

        assert [(one["name"], one["value"], one["weight"]) for one in tree] == [
            (one.name, one.value, one.weight) for one in episode.reward.grades
        ]
        assert [(one["name"], one["value"]) for one in tree[1]["children"]] == [
            (one.name, one.value) for one in episode.reward.grades[1].parts
        ]


def test_files_read_as_what_was_recorded(spans: Path) -> None:
    """
    Live and imported, a run is the same episode.
    """
    with mttp.configure("memory://") as session, attach_all():
        asyncio.run(hud_sums.rollouts())
        recorded = {one.trace_id: one for one in mttp.read(session)}
    imported = [one for path in spans.iterdir() for one in formats.read(path)]

    assert 4 == len(imported)
    for one in imported:
        assert isinstance(one, mttp.Episode)
        for field in FIELDS:
            assert getattr(recorded[one.trace_id], field) == getattr(one, field), field


def test_results_are_the_same_without_recording() -> None:
    """
    Rewards, grades and steps.
    """
    plain = asyncio.run(hud_sums.rollouts())
    with mttp.configure("memory://"), attach_all():
        recorded = asyncio.run(hud_sums.rollouts())

    assert sorted(map(repr, map(essence, plain.runs))) == sorted(map(repr, map(essence, recorded.runs)))


@pytest.mark.parametrize(
    ("agent", "limit", "expected"),
    [
        (Failing(), None, ("error", 1.0, "ok", False, "[agent loop] RuntimeError: boom")),
        (Slow(), 0.3, ("error", None, "missing", True, "rollout timed out after 0.3s during agent loop")),
    ],
)
def test_failures(agent: Agent, limit: float | None, expected: Any, spans: Path) -> None:
    """
    An agent that raises is graded; a run that was not graded has no reward, where HUD's is 0.
    """
    with mttp.configure("memory://") as session, attach_all():
        runtime = LocalRuntime(hud_sums.sums)
        run = asyncio.run(rollout(hud_sums.add(a=2, b=2), agent, runtime=runtime, rollout_timeout=limit))
        (episode,) = mttp.read(session)
    (imported,) = formats.read(spans / f"{run.trace_id}.jsonl")

    assert isinstance(imported, mttp.Episode)
    for one in (episode, imported):
        assert expected[:3] == (one.status, one.return_, one.reward.status)
        assert expected[4] == one.error_message

    assert expected[3] == episode.truncated


def test_a_task_that_fails_to_grade_is_an_error(spans: Path) -> None:
    """
    It has no reward.
    """
    from hud import Environment

    broken = Environment("broken")

    @broken.template()
    async def ask() -> Any:
        yield "?"
        raise ValueError("no grader")

    with mttp.configure("memory://") as session, attach_all():
        run = asyncio.run(rollout(ask(), hud_sums.Scripted(), runtime=LocalRuntime(broken)))
        (episode,) = mttp.read(session)
    (imported,) = formats.read(spans / f"{run.trace_id}.jsonl")

    assert isinstance(imported, mttp.Episode)
    assert ("error", "error", None) == (episode.status, episode.reward.status, episode.return_)
    assert "no grader" in str(episode.reward.error)
    assert episode.reward == imported.reward
