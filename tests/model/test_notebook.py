"""Values as HTML for notebooks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mttp
from mttp.model import Evaluation, Grade, TaskResult
from mttp.model.notebook import html_table

EVIL = "<script>alert(1)</script>&\x1b[31m\ud800"
SAFE = "&lt;script&gt;alert(1)&lt;/script&gt;&amp;\\x1b[31m\\ud800"
USER = {"role": "user", "content": "2+2?"}


def chat() -> mttp.Episode:
    """An episode of two turns, whose second observation repeats the first turn."""
    answers = [{"role": "assistant", "content": "I count."}, {"role": "assistant", "content": "4"}]
    turns = [USER, answers[0], {"role": "tool", "name": "sum", "content": "4"}]
    return mttp.Episode(
        trace_id="1" * 32,
        env="maths",
        steps=(
            mttp.Step(index=0, observation=[USER], action=answers[0], reward=0.25),
            mttp.Step(index=1, observation=turns, action=answers[1]),
        ),
        reward=mttp.Reward(
            value=0.5,
            components={"correct": 1.0},
            weights={"correct": 0.5},
            component_statuses={"style": "error"},
            grades=(Grade(name="correct", kind="verifier", value=1.0, explanation="4 is right"),),
        ),
    )


def test_an_episode_is_read_as_a_chat():
    """
    Each message once, in order, with the rewards of steps and components.
    """
    found = chat()._repr_html_()
    texts = ["correct", "4 is right", "style", "error", "reward 0.5 (ok)", "step 0, reward 0.25", "2+2?"]
    texts += ["I count.", "step 1", "tool sum", ">4</pre>"]
    places = [found.index(text) for text in texts]

    assert sorted(places) == places
    assert [1, 1] == [found.count("2+2?"), found.count("I count.")]


def test_text_of_an_episode_is_text():
    """
    Markup, control characters and lone surrogates of any field do nothing.
    """
    steps = (
        mttp.Step(observation=[{"role": EVIL, "content": EVIL}], action=EVIL, error_type=EVIL),
        mttp.Step(observation={EVIL: EVIL}, action=np.zeros(3)),
    )
    reward = mttp.Reward(components={EVIL: 1.0}, error=EVIL, grader=EVIL, explanation=EVIL)
    episode = mttp.Episode(
        env=EVIL, task=EVIL, steps=steps, reward=reward, error_type=EVIL, error_message=EVIL
    )
    shown = episode._repr_html_()

    assert ("<script>" in shown, SAFE in shown) == (False, True)
    assert shown.encode()


def test_long_episodes_are_shortened():
    """
    With the number of steps and characters that are left out.
    """
    steps = tuple(mttp.Step(index=index, action="x" * 2_345) for index in range(60))
    shown = mttp.Episode(steps=steps)._repr_html_()

    assert ("50 of 60 steps are shown." in shown, "… (345 more characters)" in shown) == (True, True)
    assert 50 == shown.count("<details")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308, -0.0, None, 10**400])
def test_numbers_of_any_size_are_cells(value: object):
    """
    A missing value is an empty cell.
    """
    assert html_table("t", ["n"], [[value]]).count("<td>") == 1


def test_an_evaluation_is_a_table_of_results():
    """
    One row for each result, shortened and escaped.
    """
    results = tuple(TaskResult(task=f"t{number}{EVIL}", outcome="scored", score=0.5) for number in range(51))
    shown = Evaluation(suite=EVIL, status="completed", results=results)._repr_html_()

    assert (51, "50 of 51 results are shown." in shown) == (shown.count("<tr>"), True)
    assert ("<script>" in shown, SAFE in shown) == (False, True)


def test_a_summary_is_a_table_of_runs():
    """
    With counts and means.
    """
    with mttp.configure("memory://", run_id="r1") as session:
        for reward in (1.0, None):
            with mttp.episode(env="e") as episode:
                episode.reward(reward)
    shown = mttp.summarize(session)._repr_html_()

    assert "<td>r1</td><td>2</td><td>1</td><td>1</td>" in shown
    assert "completed 2" in shown


def test_findings_are_a_table():
    """
    One row for each, with its number of occurrences.
    """
    Path("a.jsonl").write_text(
        '{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"'
        + "1" * 32
        + '","spanId":"'
        + "2" * 16
        + '",'
        '"name":"episode","attributes":[{"key":"mttp.episode.<b>","value":{"stringValue":"x"}}]}]}]}]}'
    )
    findings = mttp.check("a.jsonl")
    shown = findings._repr_html_()

    assert len(findings) + 1 == shown.count("<tr>")
    assert ("<b>" in shown, "mttp.episode.&lt;b&gt;" in shown) == (False, True)
