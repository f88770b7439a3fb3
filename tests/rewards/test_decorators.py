"""Decorators of components."""

from __future__ import annotations

import pytest

import mttp
from mttp.rewards.decorators import ComponentMark, mark_of

KINDS = ("verifier", "check", "rubric", "shaping", "penalty", "judge")


@pytest.mark.parametrize("kind", KINDS)
def test_a_bare_mark_says_the_kind(kind):
    """
    Each decorator sets the kind of its own name.
    """

    @getattr(mttp.rewards, kind)
    def grader(completion):
        return 1.0

    assert ComponentMark(kind=kind) == mark_of(grader)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_takes_options(kind):
    """
    The mark has the options for a spec built in Python.
    """

    @getattr(mttp.rewards, kind)(name="other", weight=0.5)
    def grader(completion):
        return 1.0

    assert ComponentMark(kind=kind, options={"name": "other", "weight": 0.5}) == mark_of(grader)


def test_a_marked_function_is_the_function():
    """
    The decorated function can be called directly.
    """

    def grader(completion):
        return len(completion)

    assert mttp.rewards.rubric(grader) is grader
    assert 3 == grader("abc")


def test_only_a_function_is_marked():
    """
    A positional option is an error with advice.
    """
    with pytest.raises(TypeError, match=r"mttp\.rewards\.rubric decorates a function and got 0\.5"):
        mttp.rewards.rubric(0.5)


def test_check_checks_a_recording_as_well(session):
    """
    `mttp.check` is another function than the decorator and reads a session.
    """
    with mttp.episode():
        pass

    assert [] == list(mttp.check(session))


def test_marked_functions_make_a_spec():
    """
    Decorated functions need no other keys.
    """

    @mttp.rewards.verifier(weight=0.75, range=(0, 1))
    def right(completion, answer):
        return completion == answer

    @mttp.rewards.penalty(name="long", weight=0.25, range=(0, 1))
    def too_long(completion):
        return len(completion) > 3

    made = mttp.RewardSpec(name="made", version="1.0.0", components=[right, too_long], combine="weighted_sum")

    assert 0.75 == made.score(completion="8", answer="8").value
    assert 0.5 == made.score(completion="8888", answer="8888").value
