"""Arguments of components."""

from __future__ import annotations

import operator

import pytest
from rewards.factories import answering, component, spec

SAMPLE = {"prompt": "5+3=?", "completion": "8", "answer": "8"}


def test_a_function_takes_what_it_names():
    """
    Other inputs of the sample are not passed.
    """

    def grader(answer, completion):
        return float(answer == completion)

    assert 1.0 == answering(grader).score(SAMPLE).value


def test_open_ended_functions_get_the_rest():
    """
    `**kwargs` receives all other inputs.
    """
    seen = {}

    def grader(completion, **rest):
        seen.update(rest)
        return 1.0

    answering(grader).score(SAMPLE)

    assert {"prompt": "5+3=?", "answer": "8"} == seen


def test_parameters_are_the_same_for_every_sample():
    """
    `params` are passed beside the inputs.
    """

    def grader(completion, limit, *, factor=1.0):
        return factor * (len(completion) <= limit)

    assert 0.5 == answering(grader, params={"limit": 3, "factor": 0.5}).score(SAMPLE).value


def test_a_default_stands_where_the_sample_has_nothing():
    """
    A missing input of an argument with a default is not an error.
    """

    def grader(completion, answer, state=None, info=None, task="default"):
        return float((state, info, task) == (None, {"x": 1}, "default"))

    assert 1.0 == answering(grader).score(SAMPLE, info={"x": 1}).value


def test_positional_parameters_are_given_by_position():
    """
    Positional-only arguments are supported.
    """

    def grader(completion, /, answer):
        return float(completion == answer)

    assert 1.0 == answering(grader).score(SAMPLE).value


def test_a_missing_input_is_an_error_of_the_sample():
    """
    The function is not called.
    """

    def grader(completion, reference, source):
        raise AssertionError

    result = answering(grader).score(SAMPLE)

    assert (None, "it: the sample lacks reference and source") == (result.value, result.error)


def test_output_and_truth_go_by_position():
    """
    The first and second input are passed, in the document's order.
    """
    inputs = {"completion": "string", "answer": "string"}
    made = spec(component("same", "verifier", operator.eq, arity="output-truth"), inputs=inputs)

    assert [1.0, 0.0] == [made.score(answer="8", completion=completion).value for completion in ("8", "9")]


def test_output_and_truth_need_two_inputs():
    """
    A sample without both is an error.
    """
    inputs = {"completion": "string", "answer": "string?"}
    made = spec(component("same", "verifier", operator.eq, arity="output-truth"), inputs=inputs)

    assert "same: the sample lacks answer" == made.score(completion="8").error


def test_a_batch_function_is_called_as_trl_calls_it():
    """
    Prompts and completions as lists, further columns under their own names, a list of numbers back.
    """
    seen = {}

    def grader(prompts, completions, answer, **rest):
        seen.update(prompts=prompts, completions=completions, answer=answer, rest=rest)
        return [float(one == other) for one, other in zip(completions, answer, strict=True)]

    made = answering(grader, arity="batch")
    results = made.score_batch([{**SAMPLE, "level": 1}, {**SAMPLE, "completion": "9", "level": 2}])

    assert [1.0, 0.0] == [result.value for result in results]
    assert {
        "prompts": ["5+3=?", "5+3=?"],
        "completions": ["8", "9"],
        "answer": ["8", "8"],
        "rest": {"level": [1, 2]},
    } == seen
    assert 1.0 == made.score(SAMPLE).value


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ([1.0], "returned 1 values for 2 samples"),
        (1.0, "returned 1.0, expected a list of 2"),
        ("ab", "returned 'ab', expected a list of 2"),
    ],
)
def test_a_batch_of_another_length_is_an_error_of_all(returned, words):
    """
    No sample gets the value of another.
    """
    made = answering(lambda completions: returned, arity="batch")
    results = made.score_batch([SAMPLE, SAMPLE])

    assert [None, None] == [result.value for result in results]
    assert all(words in result.error for result in results)


def test_one_of_a_batch_may_abstain():
    """
    As with TRL, None is not zero.
    """
    made = answering(lambda completions: [None, 1.0], arity="batch")

    assert ["abstained", "ok"] == [result.status for result in made.score_batch([SAMPLE, SAMPLE])]


def test_inputs_are_held_against_their_types():
    """
    A sample with a missing input, or one of another type, is not graded.
    """
    inputs = {"completion": "string", "turns": "integer?"}
    made = spec(component("it", "rubric", lambda completion: 1.0), inputs=inputs)

    assert 1.0 == made.score(completion="8").value
    assert 1.0 == made.score(completion="8", turns=None).value
    assert "the input completion is 8, expected string" == made.score(completion=8).error
    assert "the input turns is True, expected integer" == made.score(completion="8", turns=True).error
    assert (
        "the sample lacks the input completion; the spec's inputs are completion, turns" == made.score().error
    )
    assert {"it": "missing"} == {name: one.status for name, one in made.score().components.items()}


def test_repeats_are_aggregated_and_their_spread_kept():
    """
    A noisy judge is called several times.
    """
    answers = iter([0.0, 0.5, 1.0, 1.0])
    grade = answering(lambda: next(answers), "judge", repeats=4).score().components["it"]

    assert (0.625, (0.0, 0.5, 1.0, 1.0)) == (grade.value, grade.repeats)
    assert pytest.approx(0.4787135538781691) == grade.spread


@pytest.mark.parametrize(
    ("aggregate", "value"),
    [("mean", 0.625), ("median", 0.75), ("minimum", 0.0), ("maximum", 1.0), ("majority", 1.0)],
)
def test_each_aggregate(aggregate, value):
    """
    `aggregate` selects the aggregation of repeats.
    """
    answers = iter([0.0, 0.5, 1.0, 1.0])

    assert value == answering(lambda: next(answers), "judge", repeats=4, aggregate=aggregate).score().value


def test_a_tie_goes_to_the_lower_value():
    """
    Of several most frequent values the lowest counts.
    """
    answers = iter([1.0, 0.0])

    assert 0.0 == answering(lambda: next(answers), "judge", repeats=2, aggregate="majority").score().value


def test_one_failure_of_several_calls_is_a_failure():
    """
    A component with a failed call has no value.
    """
    answers = iter([1.0, float("nan"), 1.0])
    result = answering(lambda: next(answers), "judge", repeats=3).score()

    assert (None, "it: 1 of 3 calls failed: returned nan") == (result.value, result.error)


def test_those_who_abstain_leave_it_to_the_others():
    """
    Calls that abstain are left out of the aggregate.
    """
    answers = iter([None, 0.5, None])

    assert 0.5 == answering(lambda: next(answers), "judge", repeats=3).score().value


def test_beyond_its_range_a_value_is_an_error_or_clipped():
    """
    `clip` decides, and a clipped value is counted.
    """
    strict = answering(1.5, range=(0, 1)).score()
    clipped = answering(1.5, range=(0, 1), clip=True).score()

    assert (None, "it: 1.5 is outside of the component's range [0.0, 1.0]") == (strict.value, strict.error)
    assert (1.0, True, 1) == (clipped.value, clipped.components["it"].clipped, clipped.clips)


def test_a_step_is_scored_by_components_of_steps():
    """
    Components of the other scope are not called.
    """
    made = spec(component("end", "verifier", 1.0), component("step", "shaping", 0.125, scope="step"))

    assert (1.0, ["end"]) == (made.score().value, list(made.score().components))
    assert (0.125, ["step"]) == (made.score_step().value, list(made.score_step().components))


def test_a_spec_without_components_of_a_step_scores_none():
    """
    Scoring a scope without components raises.
    """
    with pytest.raises(ValueError, match="spec made has no component of scope step"):
        answering(1.0).score_step()


def test_many_samples_are_scored_in_their_order():
    """
    The order does not depend on concurrency.
    """
    made = answering(lambda completion: float(completion))
    samples = [{"completion": str(number)} for number in range(50)]

    assert list(map(float, range(50))) == [one.value for one in made.score_batch(samples, concurrency=8)]


def test_no_samples_are_no_rewards():
    """
    A batch may be empty; concurrency must be positive.
    """
    assert [] == answering(1.0).score_batch([])
    with pytest.raises(ValueError, match="concurrency is 0; pass 1 or more"):
        answering(1.0).score_batch([], concurrency=0)
