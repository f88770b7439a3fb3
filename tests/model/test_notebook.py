"""Values as HTML for notebooks."""

from __future__ import annotations

import numpy as np
import pytest

import mttp
from mttp.model import Evaluation, Grade
from mttp.model.notebook import html_table
from mttp.reading.checking import Findings
from mttp.study import Alignment, Comparison, Diagnosis, GateResult, Replay
from mttp.tables.summary import Summary
from mttp.viewing import Report

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


@pytest.mark.parametrize(
    "kind", [Evaluation, Findings, Summary, Replay, GateResult, Diagnosis, Alignment, Report]
)
def test_other_values_are_lines(kind: type):
    """
    Only an episode, a comparison and a recording's list are HTML.
    """
    assert not hasattr(kind, "_repr_html_")
    assert all(hasattr(other, "_repr_html_") for other in (mttp.Episode, Comparison, mttp.Recording))
