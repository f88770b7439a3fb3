"""verl's worker of agent loops, without Ray, engine and GPU; skipped where verl is not installed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import mttp
from mttp.formats import verl as format_
from mttp.integrations import verl as integration

pytestmark = pytest.mark.filterwarnings("default")  # the library has warnings of its own
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch")
    pytest.importorskip("verl")
    pytest.importorskip("verl.experimental.agent_loop")

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
import verl_sums  # noqa: E402


def run(temperature: float = 1.0) -> list[Any]:
    """Run a prompt's two rollouts at once."""
    found: list[Any] = asyncio.run(verl_sums.rollouts(["2+2?"], step=3, temperature=temperature))
    return found


def test_each_rollout_is_an_episode_with_its_tokens() -> None:
    """
    Without padding; samples of a prompt at one step have one group.
    """
    with mttp.configure("memory://") as session, integration.attach_all(policy="tiny") as handle:
        assert {"_run_agent_loop": True, "_agent_loop_postprocess": True} == handle.status()

        run()
        first, second = mttp.read(session)
    (step,) = first.steps

    assert {} == session.stats.faults
    assert [{"role": "user", "content": "2+2?"}] == step.observation
    assert {"role": "assistant", "content": "4"} == step.action
    assert ([50, 43, 50, 63], [52], [1], [-0.25]) == tuple(
        list(getattr(step.tokens, name)) for name in ("prompt_ids", "ids", "masks", "logprobs")
    )
    assert (1.0, "train", 3, "tiny", "train/3/0") == (
        first.return_,
        first.split,
        first.policy_update_index,
        first.policy,
        first.group,
    )
    assert {"acc": 1.0, "generate_sequences": 0.5}.items() <= first.metrics.items()
    assert first.group == second.group
    assert first.duration is not None


def test_what_verl_gets_is_unchanged() -> None:
    """
    Tensors, rewards and fields are equal with recording and without.
    """
    bare = run()
    with mttp.configure("memory://"), integration.attach_all():
        recorded = run()

    for one, other in zip(bare, recorded, strict=True):
        assert one.reward_score == other.reward_score
        assert one.extra_fields == other.extra_fields
        assert torch.equal(one.response_ids, other.response_ids)
        assert torch.equal(one.response_logprobs, other.response_logprobs)


def test_exceptions_of_an_agent_loop_and_of_a_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    verl sees its own; mttp's are counted.
    """

    def broken(_: object) -> None:
        raise ValueError("broken")

    with mttp.configure("memory://") as session, integration.attach_all():
        with pytest.raises(ValueError, match="too hot"):
            run(temperature=2)
        monkeypatch.setattr(format_, "rollout", broken)

        assert 2 == len(run())

    assert {"integration_error": 2} == session.stats.faults


def test_the_example_runs(tmp_path: Path) -> None:
    """
    Without findings, in under a minute.
    """
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "verl_sums.py"), "--out", str(tmp_path / "verl.jsonl")],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )

    assert 0 == done.returncode, done.stderr
    assert done.stdout.startswith("<Recording of 8 episodes, 1 run, 0 problems")
    assert [] == list(mttp.check(tmp_path / "verl.jsonl"))
