"""What `mttp.diagnose` reads: the tables of a recording, and no episodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import training_runs as runs

import mttp
from mttp.codec import episodes as episode_codec
from mttp.model import Tokens
from mttp.model.chat import text_of
from mttp.study import Diagnosis, kl_estimates
from mttp.tables import Database


def without_source(diagnosis: Diagnosis) -> dict[str, Any]:
    return {**diagnosis.to_dict(), "source": "", "problems": ()}


@pytest.mark.parametrize(
    "disease", [None, runs.hacked, runs.leaking, runs.stable_answers, runs.noisy_grader, runs.with_validation]
)
def test_a_recording_that_is_values_has_the_diagnosis_of_its_file(
    disease: runs.Change | None, tmp_path: Path
) -> None:
    """
    Its episodes, with scores, grades and tokens, its groups and its updates become spans.
    """
    path = runs.record(tmp_path / "run.jsonl", 1, **({} if disease is None else {"episode": disease}))
    values = replace(mttp.read(path))

    assert not values.has_tables
    assert without_source(mttp.diagnose(path)) == without_source(mttp.diagnose(values))


def test_a_diagnosis_builds_no_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Its columns come from the tables, whose memory is bounded.
    """
    path = runs.record(tmp_path / "run.jsonl", 1, episode=runs.hacked)
    monkeypatch.setattr(episode_codec, "decode", None)

    assert mttp.diagnose(path).should_stop


def test_a_diagnosis_of_tables_is_that_of_their_source(tmp_path: Path) -> None:
    """
    So that a report diagnoses the tables that it has.
    """
    path = runs.record(tmp_path / "run.jsonl", 1, episode=runs.hacked)
    with Database(path) as database:
        assert mttp.diagnose(path) == mttp.diagnose(database)


@pytest.mark.parametrize("steps", ["spans", "packed"])
def test_actions_and_observations_are_those_of_the_steps(steps: Any, session: mttp.Session) -> None:
    """
    How often each action was taken, and the bounds of each dimension, also of steps in columns.
    """
    rng = np.random.default_rng(1)
    with mttp.episode(env="CartPole-v1", steps=steps) as episode:
        for _ in range(20):
            with episode.step() as step:
                step.observation(rng.normal(size=4))
                step.action(int(rng.integers(3)))
    (value,) = mttp.read(session)
    seen = np.array([step.observation for step in value.steps])
    actions, counts = np.unique([step.action for step in value.steps], return_counts=True)

    with Database(session) as database:
        rows = database.sql(
            'SELECT "observation_low" AS low, "observation_high" AS high, "observation_count" AS number, '
            '"action_counts" AS actions FROM spans WHERE "observation_count" > 0'
        ).rows()

    assert seen.min(axis=0).tolist() == np.array([row["low"] for row in rows]).min(axis=0).tolist()
    assert seen.max(axis=0).tolist() == np.array([row["high"] for row in rows]).max(axis=0).tolist()
    assert 20 == sum(row["number"] for row in rows)
    assert dict(zip(actions.tolist(), counts.tolist(), strict=True)) == {
        action: sum(row["actions"].get(action, 0) for row in rows) for action in actions.tolist()
    }


def test_tokens_are_summed_as_the_estimates_of_their_blocks(session: mttp.Session) -> None:
    """
    Tokens that were not sampled, and log probabilities that are not finite, do not count.
    """
    blocks = [
        {"ids": [1, 2, 3], "logprobs": [-1.0, -2.0, -3.0], "ref_logprobs": [-1.5, -np.inf, -2.0]},
        {"ids": [4], "logprobs": [-0.5], "ref_logprobs": [-0.25], "entropies": [0.75]},
    ]
    with mttp.episode(env="maths") as episode:
        for block in blocks:
            with episode.step() as step:
                step.tokens(**block)
                step.action("text that the ids say, too")
    estimates = kl_estimates(Tokens(**block) for block in blocks)

    with Database(session) as database:
        (row,) = database.sql("SELECT * FROM behavior").rows()

    assert estimates is not None
    k1, k2, k3, tokens = row["log_ratio_sums"]
    assert [estimates.k1, estimates.k2, estimates.k3] == pytest.approx(
        [sums / tokens for sums in (k1, k2, k3)]
    )
    assert (estimates.tokens, 0.75, None) == (tokens, row["entropy"], row["completion"])


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("4", "4"),
        ([{"role": "assistant", "content": "4"}], "4"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "4"}]}], "4"),
        (4, None),
        ({"move": "left"}, None),
        (np.array([1.0, 2.0]), None),
    ],
)
def test_only_text_is_an_answer(action: Any, text: str | None, session: mttp.Session) -> None:
    """
    A number or an array is an action, and no completion.
    """
    with mttp.episode(env="maths") as episode, episode.step() as step:
        step.action(action)

    with Database(session) as database:
        (row,) = database.sql("SELECT writes, completion FROM behavior").rows()

    assert text == text_of(action)
    assert {"writes": text is not None, "completion": text} == row
