"""ART's trajectories and RULER; `test_art_fake.py` runs these tests with a stand-in for the library."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

art = pytest.importorskip("art")
pytest.importorskip("art.rewards") if hasattr(art, "TrajectoryGroup") else None
if not hasattr(art, "TrajectoryGroup"):
    pytest.skip("another distribution's package", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("default")  # the library has warnings of its own
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else LiteLLM fetches prices

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "scripted")]
from scripted_model import model_server  # noqa: E402

import mttp  # noqa: E402
from mttp.formats import art as format_  # noqa: E402
from mttp.integrations import art as integration  # noqa: E402
from mttp.integrations.ruler import scored_by  # noqa: E402

CHOICE = {
    "finish_reason": "stop",
    "index": 0,
    "logprobs": {
        "content": [
            {"token": f"token_id:{number}", "logprob": -0.5 * number, "bytes": None, "top_logprobs": []}
            for number in (1, 2, 3)
        ],
        "refusal": None,
    },
    "message": {"role": "assistant", "content": "4"},
}


@pytest.fixture
def handle() -> Iterator[Any]:
    """ART is recorded."""
    with integration.attach_all() as opened:
        yield opened


@pytest.fixture
def judge() -> Iterator[dict[str, Any]]:
    """Arguments of RULER for a judge on loopback, which prefers the first trajectory."""
    with model_server() as server:
        address = f"http://127.0.0.1:{server.server_port}/v1"
        yield {
            "judge_model": "openai/tiny",
            "extra_litellm_params": {"api_base": address, "api_key": "none"},
        }


def choice(content: str) -> Any:
    """A choice of the model, as the client returns it."""
    from openai.types.chat.chat_completion import Choice

    return Choice.model_validate({**CHOICE, "message": {"role": "assistant", "content": content}})


async def rollout(number: int, reward: float = 1.0) -> Any:
    """A rollout of a chat; the third task fails."""
    await asyncio.sleep(0)
    if number == 3:
        raise ValueError("no such task")
    messages = [{"role": "user", "content": f"What is {number} + {number}?"}, choice(str(reward))]
    return art.Trajectory(
        messages_and_choices=messages,
        reward=reward,
        metrics={"correct": True, "length": 1},
        metadata={"number": number},
        initial_policy_version=4,
        final_policy_version=5,
    ).finish()


async def gather(*numbers: int, after_each: Any = None) -> list[Any]:
    """Gather a group of two trajectories for each number, with rewards 0 and 1."""
    groups = (art.TrajectoryGroup([rollout(number, reward) for reward in (0.0, 1.0)]) for number in numbers)
    found: list[Any] = await art.gather_trajectory_groups(groups, max_exceptions=10, after_each=after_each)
    return found


def model(path: Path) -> Any:
    """A model that logs under a path."""
    return art.Model(name="tiny", project="tests", base_path=str(path))


def test_logged_groups_are_recorded(handle: Any, tmp_path: Path) -> None:
    """
    Each trajectory with messages, log probabilities, token ids, metrics and the policy; rollouts that raised,
    too.
    """

    async def main() -> None:
        groups = await gather(1, 2, 3)
        await model(tmp_path).log(groups, split="train", step=7)

    with mttp.configure("memory://") as session:
        asyncio.run(main())
        recording = mttp.read(session)
    good = [episode for episode in recording if episode.status == "completed"]
    failed = [episode for episode in recording if episode.status == "error"]
    first = good[0]

    assert {} == session.stats.faults
    assert (4, 2) == (len(good), len(failed))
    assert ("tiny", "train", 7, "4", "5") == (
        first.policy,
        first.split,
        first.policy_update_index,
        first.policy_version_start,
        first.policy_version_end,
    )
    assert {(0.0, 1.0)} == {tuple(sorted(group.rewards)) for group in recording.groups}
    assert [{"role": "user", "content": "What is 1 + 1?"}] == first.steps[0].observation
    assert [1, 2, 3] == list(first.steps[0].tokens.ids)
    assert [-0.5, -1.0, -1.5] == list(first.steps[0].tokens.logprobs)
    assert (1.0, 1.0) == (first.metrics["correct"], first.metrics["length"])
    assert {"number": 1} == first.metadata["art"]["metadata"]
    assert {("ValueError", "no such task")} == {
        (str(episode.error_type), str(episode.error_message)) for episode in failed
    }


def test_the_file_that_art_writes_reads_as_what_was_recorded(handle: Any, tmp_path: Path) -> None:
    """
    `mttp import` finds the same rewards, messages, split and step in it.
    """
    pytest.importorskip("pyarrow")

    async def main() -> None:
        groups = await gather(1, 2)
        await model(tmp_path).log(groups, split="train", step=7)

    with mttp.configure("memory://") as session:
        asyncio.run(main())
        recorded = list(mttp.read(session))
    (path,) = tmp_path.rglob("*.parquet")
    imported: list[Any] = list(format_.read(path))

    assert [(one.return_, one.task, one.split, one.policy_update_index) for one in recorded] == [
        (one.return_, one.task, one.split, one.policy_update_index) for one in imported
    ]
    assert [one.steps[0].action["content"] for one in recorded] == [
        one.steps[0].action["content"] for one in imported
    ]
    assert 2 == len({one.group for one in imported})


def test_what_is_only_gathered_is_recorded_at_the_end(handle: Any) -> None:
    """
    A trajectory that is logged twice is recorded once.
    """
    with mttp.configure("memory://") as session:
        asyncio.run(gather(1, 2))

        assert 0 == len(mttp.read(session))

        session.close()
        episodes = list(mttp.read(session))

    assert 4 == len(episodes)
    assert 2 == len({episode.group for episode in episodes})


def test_ruler_is_one_judge_call_of_a_group(handle: Any, judge: dict[str, Any], tmp_path: Path) -> None:
    """
    Rewards are RULER's, marked as relative, with explanations; the reward before is a scoring, too.
    """

    async def main() -> None:
        groups = await gather(
            1, after_each=lambda group: art.rewards.ruler_score_group(group, rubric="Be right.", **judge)
        )
        await model(tmp_path).log(groups, split="train", step=1)

    with mttp.configure("memory://") as session:
        asyncio.run(main())
        recording = mttp.read(session)
    first, second = sorted(recording, key=lambda episode: -episode.return_)
    (group,) = recording.groups

    assert {} == session.stats.faults
    assert (1.0, 0.5) == (first.return_, second.return_)
    assert [0.5, 1.0] == sorted(group.rewards)
    assert ("ruler", "judge", True) == (first.reward.grader, first.reward.grader_kind, first.reward.relative)
    assert ["It is number 1.", "It is number 2."] == [one.reward.explanation for one in (first, second)]
    assert {"model": "openai/tiny", "rubric": "Be right.", "order": [0, 1], "position": 1} == (
        second.reward.evidence
    )
    assert ["independent_reward", "ruler"] == [one.grader for one in first.rewards]
    assert [1, 0] == [len(one.reward.calls) for one in (first, second)]
    assert "openai/tiny" == first.reward.calls[0].name


def test_a_judge_that_fails_is_an_error_and_no_number(handle: Any, tmp_path: Path) -> None:
    """
    ART leaves the group out; it is recorded with the reason.
    """
    broken = {"extra_litellm_params": {"api_base": "http://127.0.0.1:9/v1", "api_key": "x", "num_retries": 0}}

    async def main() -> None:
        groups = await gather(
            1,
            after_each=lambda group: art.rewards.ruler_score_group(
                group, judge_model="openai/tiny", swallow_exceptions=True, **broken
            ),
        )

        assert [] == groups

    with mttp.configure("memory://") as session:
        asyncio.run(main())
        session.close()
        episodes = list(mttp.read(session))

    assert {} == session.stats.faults
    assert [("error", None)] * 2 == [(episode.reward.status, episode.return_) for episode in episodes]
    assert all(episode.reward.error_type for episode in episodes)
    assert 1 == len({episode.group for episode in episodes})


def test_ruler_is_a_component_of_a_reward_spec(handle: Any, judge: dict[str, Any]) -> None:
    """
    With repeats the order is another one for each call, and the reward is the mean.
    """
    params = {"judge_model": judge["judge_model"], "litellm_params": judge["extra_litellm_params"]}
    spec = mttp.RewardSpec.from_dict(
        {
            "mttp": "reward-spec/1",
            "name": "taste",
            "version": "1.0.0",
            "components": [
                {
                    "name": "ruler",
                    "kind": "judge",
                    "use": "mttp.integrations.ruler:ruler",
                    "relative": True,
                    "range": [0, 1],
                    "repeats": 3,
                    "params": params,
                }
            ],
        },
        trust=["mttp.integrations.ruler"],
    )
    samples = [{"messages": [{"role": "assistant", "content": str(number)}]} for number in range(3)]
    ranking = spec.rank(samples, seed=1)
    source = ranking.provenance["ruler"]

    assert all(value is not None for value in ranking.values)
    assert 3 * (1 + 1 / 2 + 1 / 3) / 3 == pytest.approx(sum(ranking.values))
    assert 2 == len(source.repeats)
    assert "openai/tiny" == source.model
    assert "partial" == spec.plan.identity.code_coverage


def test_a_reward_spec_scores_groups_of_art(handle: Any, tmp_path: Path) -> None:
    """
    Its components are recorded; what has no valid reward is left out of the group and is recorded, too.
    """

    @mttp.rewards.judge(relative=True, range=(0, 1))
    def longer(messages: list[Any]) -> list[Any]:
        return [0.25, None]

    spec = mttp.RewardSpec(name="length", version="1.0.0", components=[longer])

    async def main() -> list[Any]:
        groups = await gather(1, after_each=scored_by(spec))
        await model(tmp_path).log(groups, split="train", step=1)
        return groups

    with mttp.configure("memory://") as session:
        (group,) = asyncio.run(main())
        episodes = sorted(mttp.read(session), key=lambda episode: episode.return_ is None)

    assert [0.25] == [trajectory.reward for trajectory in group.trajectories]
    assert [0.25, None] == [episode.return_ for episode in episodes]
    assert {"longer": 0.25} == episodes[0].reward.components
    assert "length" == episodes[0].reward.spec.name
    assert 1 == len({episode.group for episode in episodes})


def test_a_failing_hook_harms_nothing(handle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    ART writes its file; the failure is counted.
    """

    def broken(_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(format_, "episode", broken)

    async def main() -> None:
        groups = await gather(1)
        await model(tmp_path).log((group for group in groups), split="train", step=1)

    with mttp.configure("memory://") as session:
        asyncio.run(main())

    assert session.stats.faults["integration_error"] >= 1
    assert [*tmp_path.rglob("*0001*")]


def test_the_patches_are_named_and_removed() -> None:
    """
    After a detach nothing is recorded, and ART's functions are its own.
    """
    before = art.gather_trajectory_groups
    with integration.attach_all() as handle:
        status = handle.status()

        assert before is not art.gather_trajectory_groups

    assert status["Model.log"]
    assert status["art.rewards.ruler.ruler_score_group"]
    assert before is art.gather_trajectory_groups
    assert not any(handle.status().values())


def test_the_example_runs(tmp_path: Path) -> None:
    """
    It takes seconds and needs neither a model nor a judge.
    """
    script = str(EXAMPLES / "art_sums.py")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True)
    episodes = list(mttp.read(tmp_path / "runs" / "art.jsonl"))

    assert "<Recording of 4 episodes, 1 run, 2 groups, 0 problems" in done.stdout
    assert {"ruler"} == {episode.reward.grader for episode in episodes}
