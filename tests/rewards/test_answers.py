"""What components may answer, and what is an error of theirs."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from rewards.made import answering, raising, spec

import mttp
from mttp.rewards.scores import failed, read


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (0.5, 0.5),
        (2, 2.0),
        (True, 1.0),
        (False, 0.0),
        (np.float32(0.5), 0.5),
        (np.bool_(True), 1.0),
        (np.array(0.25), 0.25),
        (np.array([0.25]), 0.25),
        (Fraction(1, 4), 0.25),
        (Decimal("0.25"), 0.25),
        (mttp.Score(0.5), 0.5),
        ((0.5, "why"), 0.5),
        ({"value": 0.5}, 0.5),
        ({"score": 0.5}, 0.5),
    ],
)
def test_numbers_of_any_sort_are_values(answer, value):
    """
    A number or a bool of any library is the value, alone or with its reasons.
    """
    assert value == answering(answer).score().value


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (float("nan"), "returned nan"),
        (float("inf"), "returned inf"),
        (np.float64("nan"), "returned nan"),
        ("0.5", "returned '0.5', which is no number"),
        ([0.5], "returned [0.5], which is no number"),
        (np.array([0.5, 1.0]), "returned array([0.5, 1. ]), which is no number"),
        (1j, "returned 1j, which is no number"),
        (10**400, "which is no number"),
        ({"reward": 1.0}, "returned a mapping without a value"),
        ({"value": "high"}, "returned 'high', which is no number"),
        (mttp.Score("high"), "returned 'high', which is no number"),
    ],
)
def test_what_is_no_number_is_an_error(answer, words):
    """
    The sample is invalid, and says what came instead of a number: never a silent zero.
    """
    result = answering(answer).score()

    assert (None, "error", "error") == (result.value, result.status, result.components["it"].status)
    assert words in result.error


@pytest.mark.parametrize("answer", [None, mttp.Score(None, explanation="can't tell"), {"value": None}])
def test_nothing_is_an_abstention(answer):
    """
    A component that abstains makes the sample invalid without being at fault.
    """
    result = answering(answer).score()

    assert (None, "abstained", "abstained") == (
        result.value,
        result.status,
        result.components["it"].status,
    )


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("answer"), SystemExit(3), TimeoutError()])
def test_whatever_is_raised_is_in_the_result(error):
    """
    A component that raises hurts nobody else; the result names class and message.
    """
    result = answering(raising(error)).score()

    assert (None, "error") == (result.value, result.status)
    assert result.error.startswith(f"it: {type(error).__name__}")


def test_an_interrupt_goes_through():
    """
    Ctrl-C is for the training run, not for the component.
    """
    with pytest.raises(KeyboardInterrupt):
        answering(raising(KeyboardInterrupt())).score()


@pytest.mark.parametrize(
    "answer",
    [
        mttp.Score(0.5, label="half", explanation="why", evidence={"x": 1}),
        {"value": 0.5, "label": "half", "explanation": "why", "evidence": {"x": 1}},
        {"score": 0.5, "label": "half", "explanation": "why", "x": 1},
        (0.5, {"label": "half", "explanation": "why", "x": 1}),
    ],
)
def test_reasons_are_kept(answer):
    """
    Label, explanation and evidence come with the value, whichever way they are given.
    """
    grade = answering(answer).score().components["it"]

    assert (0.5, "half", "why", {"x": 1}) == (grade.value, grade.label, grade.explanation, grade.evidence)


def test_an_error_whose_text_raises_is_an_error():
    """
    Not even an exception without words gets out.
    """

    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError

    assert "it: MuteError" == answering(raising(MuteError())).score().error


def test_an_asynchronous_component_is_awaited():
    """
    `score` waits for it, on a loop of its own or beside one that runs already.
    """

    async def judge(completion):
        await asyncio.sleep(0)
        return len(completion)

    made = answering(judge, "judge")

    async def within() -> float | None:
        return made.score(completion="abc").value

    assert 3.0 == made.score(completion="abc").value
    assert 3.0 == asyncio.run(within())
    assert 3.0 == asyncio.run(made.ascore(completion="abc")).value


def test_ascore_runs_components_side_by_side():
    """
    Each of two components waits until the other has begun.
    """
    begun = [asyncio.Event(), asyncio.Event()]

    def waiting(mine: int, other: int):
        async def judge():
            begun[mine].set()
            await begun[other].wait()
            return 1.0

        return judge

    made = spec(
        {"name": "one", "kind": "judge", "use": waiting(0, 1)},
        {"name": "other", "kind": "judge", "use": waiting(1, 0)},
    )

    assert 2.0 == asyncio.run(asyncio.wait_for(made.ascore(), 20)).value


def test_an_asynchronous_component_is_cancelled_at_its_limit():
    """
    What waits forever is stopped, and the sample says so.
    """

    async def judge():
        await asyncio.Event().wait()

    made = answering(judge, "judge", timeout=0.01)

    assert "it: timed out after 0.01 s" == made.score().error
    assert "it: timed out after 0.01 s" == asyncio.run(made.ascore()).error


def test_a_late_answer_counts_and_is_marked():
    """
    Without a process of its own a function can't be stopped; its answer says that it came late.
    """
    import time

    def judge():
        time.sleep(0.02)
        return 0.5

    result = answering(judge, "judge", timeout=0.001).score()

    assert (0.5, "ok", True) == (result.value, result.status, result.components["it"].late)
    assert not answering(judge, "judge", timeout=600).score().components["it"].late


def test_a_component_that_scores_awaits_the_other_spec():
    """
    An asynchronous component that scores by another spec does it with `ascore`; else it is told so.
    """

    async def opinion():
        return 1.0

    inner = answering(opinion, "judge")

    async def blocking():
        return inner.score().error

    async def awaiting():
        return (await inner.ascore()).value

    assert "can't wait for another; use `await spec.ascore`" in answering(blocking, "judge").score().error
    assert 1.0 == answering(awaiting, "judge").score().value


def test_a_failure_has_a_type():
    """
    An exception's class, or a word for a result that is no finite number.
    """
    types = [failed(TimeoutError()).error_type, read(float("inf")).error_type]

    assert ["TimeoutError", "invalid_value"] == types
