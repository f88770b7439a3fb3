"""Return values of components, and errors in them."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from rewards.factories import answering, component, raising, spec

import mttp
from mttp.rewards.component_results import failed, read


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
        (mttp.rewards.Score(0.5), 0.5),
        ((0.5, "why"), 0.5),
        ({"value": 0.5}, 0.5),
        ({"score": 0.5}, 0.5),
    ],
)
def test_numbers_of_any_sort_are_values(answer, value):
    """
    A number or bool of any library is a value, with or without reasons.
    """
    assert value == answering(answer).score().value


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (float("nan"), "returned nan"),
        (float("inf"), "returned inf"),
        (np.float64("nan"), "returned nan"),
        ("0.5", "returned '0.5', which is not a number"),
        ([0.5], "returned [0.5], which is not a number"),
        (np.array([0.5, 1.0]), "returned array([0.5, 1. ]), which is not a number"),
        (1j, "returned 1j, which is not a number"),
        (10**400, "which is not a number"),
        ({"reward": 1.0}, "returned a dict without `value`"),
        ({"value": "high"}, "returned 'high', which is not a number"),
        (mttp.rewards.Score("high"), "returned 'high', which is not a number"),
    ],
)
def test_what_is_no_number_is_an_error(answer, words):
    """
    The sample is invalid, and the error shows the returned value; it never counts as zero.
    """
    result = answering(answer).score()

    assert (None, "error", "error") == (result.value, result.status, result.components["it"].status)
    assert words in result.error


@pytest.mark.parametrize(
    "answer", [None, mttp.rewards.Score(None, explanation="can't tell"), {"value": None}]
)
def test_nothing_is_an_abstention(answer):
    """
    A component that returns None abstains: the sample is invalid without an error.
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
    An exception fails only its own component; the result has its class and message.
    """
    result = answering(raising(error)).score()

    assert (None, "error") == (result.value, result.status)
    assert result.error.startswith(f"it: {type(error).__name__}")


def test_an_interrupt_goes_through():
    """
    KeyboardInterrupt propagates to the training run.
    """
    with pytest.raises(KeyboardInterrupt):
        answering(raising(KeyboardInterrupt())).score()


@pytest.mark.parametrize(
    "answer",
    [
        mttp.rewards.Score(0.5, label="half", explanation="why", evidence={"x": 1}),
        {"value": 0.5, "label": "half", "explanation": "why", "evidence": {"x": 1}},
        {"score": 0.5, "label": "half", "explanation": "why", "x": 1},
        (0.5, {"label": "half", "explanation": "why", "x": 1}),
    ],
)
def test_reasons_are_kept(answer):
    """
    Label, explanation and evidence are on the grade, in whichever form they are returned.
    """
    grade = answering(answer).score().components["it"]

    assert (0.5, "half", "why", {"x": 1}) == (grade.value, grade.label, grade.explanation, grade.evidence)


def test_an_error_whose_text_raises_is_an_error():
    """
    An exception whose `str` raises is still an error of the component.
    """

    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError

    assert "it: MuteError" == answering(raising(MuteError())).score().error


def test_an_asynchronous_component_is_awaited():
    """
    `score` awaits it on the background loop, also while another loop runs.
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
    Each of two components waits until the other has started.
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
    A coroutine that never returns is cancelled, and the error names the time limit.
    """

    async def judge():
        await asyncio.Event().wait()

    made = answering(judge, "judge", timeout=0.01)

    assert "it: timed out after 0.01 s" == made.score().error
    assert "it: timed out after 0.01 s" == asyncio.run(made.ascore()).error


def test_a_late_answer_counts_and_is_marked():
    """
    A function without a worker can't be stopped; its value counts and the grade is late.
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
    An asynchronous component must use `ascore` of another spec; `score` is an error with this advice.
    """

    async def opinion():
        return 1.0

    inner = answering(opinion, "judge")

    async def blocking(spec):
        return spec.score().error

    async def awaiting(spec):
        return (await spec.ascore()).value

    told = answering(blocking, "judge").score(spec=inner).error
    assert "use `await spec.ascore(...)`" in told
    assert 1.0 == answering(awaiting, "judge").score(spec=inner).value


def test_a_failure_has_a_type():
    """
    The type is the exception's class, or a word for a value that is not a finite number.
    """
    types = [failed(TimeoutError()).error_type, read(float("inf")).error_type]

    assert ["TimeoutError", "invalid_value"] == types


LABELS = {"malformed": -1, "wrong": 0, "right": 1}


@pytest.mark.parametrize(
    "answer",
    ["wrong", mttp.rewards.Score("wrong"), ("wrong", "why"), {"value": "wrong", "explanation": "why"}],
)
def test_a_label_is_worth_what_the_spec_says(answer):
    """
    The value is that of the label, and the range that of all values.
    """
    made = answering(answer, values=LABELS)
    grade = made.score().components["it"]

    assert (0.0, "wrong", (-1.0, 1.0)) == (grade.value, grade.label, grade.range)
    assert (-1.0, 1.0) == made.range


@pytest.mark.parametrize("answer", ["wrnog", 1.0, True, 0])
def test_what_is_no_label_is_an_error(answer):
    """
    A misspelt label has no value.
    """
    grade = answering(answer, values=LABELS).score().components["it"]

    assert (None, "error", "invalid_value") == (grade.value, grade.status, grade.error_type)
    assert "malformed, wrong, right" in grade.error


def test_a_verifier_of_labels_passes_with_the_best():
    """
    None still abstains.
    """
    verdicts = [
        answering(answer, kind="verifier", values=LABELS).score().verdict
        for answer in ("right", "wrong", None)
    ]

    assert ["pass", "fail", None] == verdicts


CRITERIA = {"clear": 0.5, "deep": 0.3, "kind": 0.2}


def test_one_call_answers_several_criteria():
    """
    Each criterion is a grade with reasons, weight and contribution; the component's value is their mean.
    """
    calls = []

    def judge(answer):
        calls.append(answer)
        return {
            "clear": 1.0,
            "deep": (0.5, "so so"),
            "kind": mttp.rewards.Score(0.0, explanation="rude"),
            "model": "m",
        }

    made = answering(judge, kind="judge", criteria=CRITERIA, range=(0, 1), weight=2.0)
    result = made.score(answer="a")
    grade = result.components["it"]

    assert (["a"], pytest.approx(0.65), pytest.approx(1.3)) == (calls, grade.value, result.value)
    assert [("clear", 1.0, 0.5, None), ("deep", 0.5, 0.3, "so so"), ("kind", 0.0, 0.2, "rude")] == [
        (part.name, part.value, part.weight, part.explanation) for part in grade.parts
    ]
    assert pytest.approx(grade.value) == sum(part.contribution for part in grade.parts)
    assert {"model": "m"} == grade.evidence


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ({"clear": 1.0, "deep": float("nan"), "kind": 1.0}, "error", "deep: returned nan"),
        ({"clear": 1.0, "deep": 1.0}, "error", "kind: the returned dict lacks this criterion"),
        ({"clear": 1.0, "deep": None, "kind": 1.0}, "abstained", None),
        (0.5, "error", "clear: returned 0.5, expected a dict by criterion"),
        (None, "abstained", None),
        (
            {"clear": 2.0, "deep": 1.0, "kind": 1.0},
            "error",
            "clear: 2.0 is outside of the component's range [0.0, 1.0]",
        ),
    ],
)
def test_one_criterion_without_a_value_leaves_none(answer, status, said):
    """
    The component has no value; the grades of all criteria are available.
    """
    grade = answering(answer, kind="judge", criteria=CRITERIA, range=(0, 1)).score().components["it"]

    assert (None, status, said) == (grade.value, grade.status, grade.error)
    assert ["clear", "deep", "kind"] == [part.name for part in grade.parts]


def test_criteria_may_be_a_list_of_labels_that_are_repeated():
    """
    Names in a list weigh equally, and repeats apply to each criterion.
    """
    answers = iter([{"a": "right", "b": "wrong"}, {"a": "wrong", "b": "wrong"}])
    made = answering(lambda: next(answers), criteria=["a", "b"], values=LABELS, repeats=2)
    grade = made.score().components["it"]

    assert (0.25, [(1.0, 0.0), (0.0, 0.0)]) == (grade.value, [part.repeats for part in grade.parts])
    assert {"a": 1.0, "b": 1.0} == made.to_dict()["components"][0]["criteria"]


def test_a_check_of_several_criteria_names_the_one_that_failed():
    """
    The failed criterion is named by its path.
    """
    made = answering({"no_leak": False, "polite": True}, kind="check", criteria=["no_leak", "polite"])

    assert ("it", "it.no_leak") == made.score().failed_checks


def test_criteria_are_recorded_as_parts(session):
    """
    The parts are read back with their weights.
    """
    made = answering({"clear": 1.0, "deep": 0.5, "kind": 0.0}, kind="judge", criteria=CRITERIA)
    with mttp.episode() as ep:
        ep.reward(made.score())

    (grade,) = mttp.read(session).episodes[0].reward.grades
    assert {("clear", 1.0, 0.5), ("deep", 0.5, 0.3), ("kind", 0.0, 0.2)} == {
        (part.name, part.value, part.weight) for part in grade.parts
    }


def test_a_recorded_episode_is_an_input(session):
    """
    A component receives the episode; another type of value is an error.
    """
    for actions in ((1, 2), (1, 9)):
        with mttp.episode() as ep:
            for action in actions:
                with ep.step() as step:
                    step.action(action)

    def no_leap(episode):
        return all(step.action < 5 for step in episode.steps)

    made = spec(component("no_leap", "check", no_leap), inputs={"episode": "episode"})
    found = mttp.read(session).episodes

    assert [1.0, 0.0] == [made.score(episode=one).value for one in found]
    assert "expected episode" in made.score(episode="e").error


def test_a_stated_cost_is_that_of_all_calls():
    """
    Costs of repeats are summed; the cost of one call for many samples counts once.
    """
    priced = {"value": 1.0, "cost": 0.25}
    repeated = answering(lambda: dict(priced), kind="judge", repeats=3).score()
    batch = answering(lambda answers: {"scores": [1.0, 0.0], "cost": 0.5}, arity="batch")
    pairs = answering(lambda answers: dict(priced), kind="judge", relative="pairwise")
    group = [{"answer": one} for one in "abc"]

    assert 0.75 == repeated.components["it"].usage.cost
    assert [0.5, None] == [one.components["it"].usage.cost for one in batch.score_batch(group[:2])]
    assert 0.75 == sum(one.components["it"].usage.cost or 0.0 for one in pairs.rank(group).results)
    assert None is answering({"value": 1.0, "cost": "much"}).score().components["it"].usage.cost


def test_an_episodes_grading_cost_is_read_back(session):
    """
    It is the sum of the costs of all graders and their parts.
    """
    inner = mttp.RewardSpec(
        name="inner",
        version="1.0.0",
        components=[component("it", "judge", {"value": 1.0, "cost": 0.25})],
        combine="weighted_sum",
    )
    made = spec(
        component("taste", "judge", {"value": 1.0, "cost": 0.5}),
        include=[{"spec": inner, "as": "style", "version": "1.0.0"}],
    )
    with mttp.episode() as ep:
        ep.reward(made.score())

    assert (0.75, 0) == (
        mttp.read(session).grading_usage.cost,
        mttp.read(session).episodes[0].grading_usage.calls,
    )
