"""Combination of grades to a reward."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewards.factories import component, raising, spec

from mttp.model.episodes import Grade, Spec
from mttp.rewards.combining import combine, threshold
from mttp.rewards.document import ComponentEntry
from mttp.rewards.plan import Component, ScoringPlan
from mttp.rewards.spec import RewardSpec

COMBINES = ("gated", "weighted_sum", "product", "minimum", "lexicographic")


def test_the_contract_adds_up():
    """
    The reward is the sum of weighted values, which are the contributions.
    """
    result = spec(
        component("math", "verifier", True, weight=0.5, range=(0, 1)),
        component("format", "rubric", 0.5, weight=0.3, range=(0, 1)),
        component("language", "rubric", 1.0, weight=0.2, range=(0, 1)),
        component("no-tool-abuse", "check", True),
    ).score()

    assert (0.85, "ok", "pass", ()) == (result.value, result.status, result.verdict, result.failed_checks)
    assert {"math": 0.5, "format": 0.15, "language": 0.2, "no-tool-abuse": None} == {
        name: grade.contribution for name, grade in result.components.items()
    }


@pytest.mark.parametrize("how", COMBINES)
def test_a_failed_check_gives_the_floor(how):
    """
    It does under every `combine` and with every weight.
    """
    result = spec(
        component("math", "verifier", 1.0, range=(-1, 1), priority=1),
        component("clean", "check", False),
        component("honest", "check", False),
        combine=how,
    ).score()

    assert (-1.0, "ok", "fail", ("clean", "honest")) == (
        result.value,
        result.status,
        result.verdict,
        result.failed_checks,
    )


def test_the_floor_may_be_stated():
    """
    By default it is the lowest of the range.
    """
    made = spec(
        component("math", "verifier", 1.0, range=(0, 1)), component("clean", "check", False), floor=-2.0
    )

    assert -2.0 == made.score().value


@pytest.mark.parametrize("answer", [float("nan"), None, raising(ValueError("no")), "yes"])
@pytest.mark.parametrize("on_invalid", ["invalid", "skip"])
def test_a_check_that_errs_has_not_failed(answer, on_invalid):
    """
    The sample is invalid, and the check is not skipped.
    """
    result = spec(
        component("math", "verifier", 1.0), component("clean", "check", answer), on_invalid=on_invalid
    ).score()

    assert (None, ()) == (result.value, result.failed_checks)
    assert result.status in ("error", "abstained")


def test_a_failed_check_outweighs_what_errs():
    """
    The reward is the floor, and the error is in the result.
    """
    result = spec(
        component("math", "verifier", raising(ValueError("no"))), component("clean", "check", False)
    ).score()

    assert (0.0, "ok", ("clean",)) == (result.value, result.status, result.failed_checks)
    assert "math: ValueError: no" == result.error


def test_a_failed_verifier_gates():
    """
    Under `gated` the reward is the floor, or the sum up to the partial credit.
    """
    parts = (
        component("math", "verifier", 0.0, weight=0.5, range=(0, 1)),
        component("format", "rubric", 1.0, weight=0.5, range=(0, 1)),
    )

    assert (0.0, "fail") == (spec(*parts, combine="gated").score().value, spec(*parts).score().verdict)
    assert 0.2 == spec(*parts, combine="gated", partial_credit=0.2).score().value
    assert 0.5 == spec(*parts, combine="gated", partial_credit=0.9).score().value
    assert 0.5 == spec(*parts, combine="weighted_sum").score().value


def test_a_verifier_passes_at_its_threshold():
    """
    By default the threshold is the highest value of its range.
    """
    parts = {"kind": "verifier", "use": lambda: 0.6, "range": (0, 1)}

    assert "fail" == spec({"name": "tests", **parts}).score().verdict
    assert "pass" == spec({"name": "tests", **parts, "threshold": 0.5}).score().verdict
    assert (1.0, 2.0, 0.5, None) == (
        threshold("check", None, None),
        threshold("check", None, (0, 2)),
        threshold("verifier", 0.5, (0, 2)),
        threshold("rubric", 0.5, (0, 2)),
    )


@pytest.mark.parametrize(("value", "weight"), [(0.5, 0.4), (-0.5, 0.4), (0.5, -0.4)])
def test_a_penalty_takes_off(value, weight):
    """
    A penalty subtracts whatever the sign of value and weight.
    """
    made = spec(component("math", "verifier", 1.0), component("long", "penalty", value, weight=weight))

    assert 0.8 == made.score().value


@pytest.mark.parametrize(("how", "value"), [("product", 0.2), ("minimum", 0.4)])
def test_products_and_minima(how, value):
    """
    They use values without weights, and subtract penalties at the end.
    """
    made = spec(
        component("one", "rubric", 0.5, weight=7.0),
        component("other", "rubric", 0.6),
        component("long", "penalty", 0.1),
        combine=how,
    )

    assert pytest.approx(value) == made.score().value


@pytest.mark.parametrize(
    ("answers", "value"),
    [((1.0, 1.0, 0.5), 2.5), ((1.0, 0.9, 1.0), 1.9), ((0.9, 1.0, 1.0), 0.9)],
)
def test_lexicographic_counts_what_comes_next_once_all_before_is_reached(answers, value):
    """
    A lower level never makes up for a higher one.
    """
    safe, right, neat = answers
    made = spec(
        component("neat", "rubric", neat, range=(0, 1), priority=3),
        component("safe", "verifier", safe, range=(0, 1), priority=1),
        component("right", "verifier", right, range=(0, 1), priority=2),
        combine="lexicographic",
    )

    assert value == made.score().value


def test_the_users_own_function_combines():
    """
    It receives values and weights by name, and its return value is converted as a component's.
    """

    def best(values, weights):
        return max(values[name] * weights[name] for name in values)

    parts = (component("one", "rubric", 0.5, weight=3.0), component("other", "rubric", 1.0))

    assert 1.5 == spec(*parts, combine=best).score().value
    assert (None, "combine: KeyError: 'x'") == (
        (result := spec(*parts, combine=lambda values, weights: values["x"]).score()).value,
        result.error,
    )
    assert "combine: returned nan" == spec(*parts, combine=lambda values, weights: math.nan).score().error
    assert "abstained" in str(spec(*parts, combine=lambda values, weights: None).score().error)


def test_what_errs_may_be_skipped_or_give_the_floor():
    """
    Both need `on_invalid`; skipping scales weights, and the floor keeps the status.
    """
    parts = (
        component("math", "verifier", 1.0, weight=0.5, range=(0, 1)),
        component("style", "judge", raising(ValueError("no")), weight=0.5, range=(0, 1)),
    )
    invalid, skipped, floored = (spec(*parts, on_invalid=how).score() for how in ("invalid", "skip", "floor"))

    assert [(None, "error"), (1.0, "ok"), (0.0, "error")] == [
        (one.value, one.status) for one in (invalid, skipped, floored)
    ]
    assert {"style: ValueError: no"} == {one.error for one in (invalid, skipped, floored)}
    assert ("style",) == skipped.invalid


def test_a_gate_is_not_skipped():
    """
    A verifier with an error under `gated` makes the sample invalid.
    """
    made = spec(
        component("math", "verifier", None),
        component("style", "rubric", 1.0),
        combine="gated",
        on_invalid="skip",
    )

    assert (None, "abstained") == (made.score().value, made.score().status)


def test_when_nothing_answers_there_is_nothing_to_skip_to():
    """
    A sample without any value has no reward.
    """
    assert None is spec(component("style", "judge", None), on_invalid="skip").score().value


def test_beyond_its_range_a_reward_is_an_error_or_clipped():
    """
    `clip` decides; a difference by rounding is neither.
    """
    parts = (component("math", "verifier", 1.5), component("clean", "check", True))
    strict, clipped = spec(*parts, range=(0, 1)).score(), spec(*parts, range=(0, 1), clip=True).score()
    rounded = spec(*[component(f"c{i}", "rubric", 1.0, weight=0.1) for i in range(10)], range=(0, 1)).score()

    assert (None, "the reward 1.5 is outside of the spec's range [0.0, 1.0]") == (strict.value, strict.error)
    assert (1.0, True, 1) == (clipped.value, clipped.clipped, clipped.clips)
    assert (1.0, False) == (rounded.value, rounded.clipped)


def test_a_sum_beyond_a_float_is_an_error():
    """
    Finite values may have an infinite sum.
    """
    made = spec(component("one", "rubric", 1e308), component("other", "rubric", 1e308))

    assert (None, "the reward is too large for a float") == (made.score().value, made.score().error)


def test_only_checks_pay_all_or_nothing():
    """
    A spec of checks gives the ends of its range.
    """
    assert 1.0 == spec(component("clean", "check", True)).score().value
    assert 0.0 == spec(component("clean", "check", False)).score().value


def test_an_included_spec_is_a_component():
    """
    Its reward is the value and its grades are the parts.
    """
    inner = spec(component("words", "rubric", 0.5, range=(0, 1)), component("polite", "check", True))
    made = spec(
        component("math", "verifier", 1.0, weight=0.5, range=(0, 1)),
        include=[{"spec": inner, "as": "style", "weight": 0.5, "version": "1.0.0"}],
    )
    result = made.score()

    assert (0.75, "pass", ()) == (result.value, result.verdict, result.failed_checks)
    assert ["words", "polite"] == [part.name for part in result.components["style"].parts]


def test_an_included_spec_may_gate_as_a_check():
    """
    Its reward is compared with the highest of its range.
    """
    inner = spec(component("polite", "check", False))
    made = spec(
        component("math", "verifier", 1.0, range=(0, 1)),
        include=[{"spec": inner, "as": "manners", "kind": "check", "version": "1.0.0"}],
    )

    assert (0.0, ("manners", "manners.polite")) == (made.score().value, made.score().failed_checks)


@pytest.mark.parametrize("how", [*COMBINES, lambda values, weights: 1.0])
def test_a_failed_check_of_an_included_spec_gates(how):
    """
    It gives the outer floor under every `combine` and weight.
    """
    inner = spec(component("calm", "rubric", 1.0, range=(0, 1)), component("no_leak", "check", False))
    made = spec(
        component("math", "verifier", 1.0, weight=0.8, range=(0, 1), priority=1),
        include=[{"spec": inner, "as": "safety", "weight": 0.2, "version": "1.0.0", "priority": 2}],
        combine=how,
        floor=-1.0,
    )
    result = made.score()

    assert (-1.0, "ok", "fail", ("safety.no_leak",)) == (
        result.value,
        result.status,
        result.verdict,
        result.failed_checks,
    )


def test_a_failed_check_gates_through_every_level_of_includes():
    """
    It is named by its full path.
    """
    made = spec(component("no_leak", "check", False))
    for name in ("deep", "middle", "outer"):
        made = RewardSpec(
            name=name,
            version="1.0.0",
            components=[component("good", "rubric", 1.0, range=(0, 1))],
            include=[{"spec": made, "as": name, "version": "1.0.0"}],
        )

    assert (0.0, ("outer.middle.deep.no_leak",)) == (made.score().value, made.score().failed_checks)


@pytest.mark.parametrize("answer", [None, float("nan"), raising(ValueError("no"))])
@pytest.mark.parametrize("inner_policy", ["invalid", "floor", "skip"])
def test_an_include_whose_check_has_no_verdict_is_not_skipped(answer, inner_policy):
    """
    The sample is invalid, whatever the include's own `on_invalid`.
    """
    inner = spec(
        component("calm", "rubric", 1.0, range=(0, 1)),
        component("no_leak", "check", answer),
        on_invalid=inner_policy,
    )
    made = spec(
        component("math", "verifier", 1.0, range=(0, 1)),
        include=[{"spec": inner, "as": "safety", "version": "1.0.0"}],
        on_invalid="skip",
    )

    assert None is made.score().value


def test_a_verifier_does_not_hide_a_check():
    """
    Both failures are in the result.
    """
    made = spec(
        component("math", "verifier", 0.0, range=(0, 1)), component("clean", "check", False), combine="gated"
    )

    assert ("fail", ("clean",)) == (made.score().verdict, made.score().failed_checks)


def test_what_is_skipped_is_in_neither_sum_nor_weights():
    """
    Remaining weights are scaled to the total, and contributions sum to the reward.
    """
    made = spec(
        component("math", "verifier", 1.0, weight=0.5, range=(0, 1)),
        component("style", "judge", 0.5, weight=0.3, range=(0, 1)),
        component("taste", "judge", None, weight=0.2, range=(0, 1)),
        component("long", "penalty", 0.1),
        on_invalid="skip",
    )
    result = made.score()

    assert (pytest.approx((0.5 + 0.15) / 0.8 - 0.1), "ok") == (result.value, result.status)
    assert pytest.approx(result.value) == sum(
        grade.contribution for grade in result.components.values() if grade.contribution is not None
    )
    assert None is result.components["taste"].contribution


def test_what_is_left_of_no_weight_gives_no_reward():
    """
    Weights of zero can't be scaled.
    """
    made = spec(
        component("one", "rubric", 1.0, weight=0.0), component("other", "rubric", None), on_invalid="skip"
    )

    assert (None, "error") == (made.score().value, made.score().status)


@pytest.mark.parametrize("how", ["gated", "product", "minimum", "lexicographic", lambda values, weights: 1.0])
@pytest.mark.parametrize("answer", [None, float("nan"), raising(ValueError("no"))])
def test_a_verifier_that_decides_is_not_skipped(how, answer):
    """
    Otherwise the reward would claim an unverified success.
    """
    made = spec(
        component("math", "verifier", answer, range=(0, 1), priority=1),
        component("style", "rubric", 1.0, range=(0, 1), priority=2),
        combine=how,
        on_invalid="skip",
    )

    assert None is made.score().value


def test_under_lexicographic_nothing_is_skipped():
    """
    Each level depends on those before it.
    """
    made = spec(
        component("safe", "rubric", None, range=(0, 1), priority=1),
        component("neat", "rubric", 1.0, range=(0, 1), priority=2),
        combine="lexicographic",
        on_invalid="skip",
    )

    assert (None, "abstained") == (made.score().value, made.score().status)


def test_a_penalty_that_raises_is_not_free():
    """
    Only a penalty that abstains is skipped.
    """
    values = {
        answer: spec(
            component("math", "verifier", 1.0), component("long", "penalty", answer), on_invalid="skip"
        )
        .score()
        .value
        for answer in (None, float("nan"))
    }

    assert [1.0, None] == list(values.values())


def test_the_floor_keeps_the_status_beside_it():
    """
    The status marks it as no valid score.
    """
    found = [
        spec(component("it", "rubric", answer, range=(0, 1)), on_invalid="floor").score()
        for answer in (None, float("nan"), raising(KeyError("x")))
    ]
    lacking = spec(component("it", "rubric", 1.0), inputs={"answer": "string"}, on_invalid="floor").score()

    assert [(0.0, "abstained", None), (0.0, "error", "invalid_value"), (0.0, "error", "KeyError")] == [
        (one.value, one.status, one.error_type) for one in found
    ]
    assert (0.0, "error", "missing_input") == (lacking.value, lacking.status, lacking.error_type)


def test_the_floor_of_an_include_is_no_score_of_the_whole():
    """
    The `on_invalid: floor` of an included spec has no effect in the outer one.
    """
    inner = spec(component("style", "judge", None, range=(0, 1)), on_invalid="floor", floor=1.0)
    made = spec(
        component("math", "verifier", 1.0, range=(0, 1)),
        include=[{"spec": inner, "as": "style", "kind": "verifier", "version": "1.0.0"}],
    )
    result = made.score()

    assert (None, "abstained", None) == (result.value, result.status, result.verdict)
    assert (1.0, "abstained", None) == (
        result.components["style"].value,
        result.components["style"].status,
        result.components["style"].verdict,
    )


# Properties.

KINDS = ("verifier", "check", "rubric", "shaping", "penalty", "judge")
statuses = st.sampled_from(["ok", "ok", "ok", "ok", "error", "abstained"])


@st.composite
def graded(draw: st.DrawFn) -> tuple[ScoringPlan, list[Grade]]:
    """Return a plan and grades of its components."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
    components, grades = [], []
    for index, kind in enumerate(kinds):
        weight, priority = draw(st.floats(0, 10)), draw(st.integers(1, 3))
        fields: dict[str, Any] = {"name": f"c{index}", "kind": kind, "weight": weight, "range": (0, 1)}
        components.append(Component(entry=ComponentEntry(**fields, priority=priority)))
        status = draw(statuses)
        value = draw(st.floats(0, 1)) if status == "ok" else None
        grades.append(_grade(components[-1].entry, value, status))
    plan = ScoringPlan(
        identity=Spec(name="any"),
        components=tuple(components),
        combine=draw(st.sampled_from(COMBINES)),  # type: ignore[arg-type]  # each is one
        floor=draw(st.floats(-5, 0)),
        partial_credit=draw(st.none() | st.floats(0, 1)),
        on_invalid=draw(st.sampled_from(["invalid", "floor", "skip"])),
    )
    return plan, grades


def _grade(entry: ComponentEntry, value: float | None, status: str = "ok") -> Grade:
    least = threshold(entry.kind, entry.threshold, entry.range)
    verdict = None if least is None or value is None else ("pass" if value >= least else "fail")
    weight = None if entry.kind == "check" else entry.weight
    return Grade(name=entry.name, kind=entry.kind, value=value, status=status, weight=weight, verdict=verdict)


@settings(deadline=None)
@given(graded(), st.randoms())
def test_order_never_matters(given_: tuple[ScoringPlan, list[Grade]], random: Any) -> None:
    """
    Permuted grades give an equal reward, to the last bit.
    """
    plan, grades = given_
    shuffled = random.sample(grades, len(grades))
    turned = replace(plan, components=tuple(random.sample(plan.components, len(plan.components))))

    assert combine(plan, grades) == combine(turned, shuffled)


@settings(deadline=None)
@given(graded())
def test_gates_dominate(given_: tuple[ScoringPlan, list[Grade]]) -> None:
    """
    A failed check gives the floor for all other grades.
    """
    plan, grades = given_
    entry = ComponentEntry(name="gate", kind="check", range=(0, 1))
    closed = replace(plan, components=(*plan.components, Component(entry=entry)))
    found = combine(closed, [*grades, _grade(entry, 0.0)])

    assert (plan.floor, "ok", "fail") == (found.value, found.status, found.verdict)
    assert "gate" in found.failed_checks


@settings(deadline=None)
@given(graded(), st.integers(0, 5), st.floats(0, 1))
def test_more_of_what_is_wanted_never_pays_less(
    given_: tuple[ScoringPlan, list[Grade]], place: int, other: float
) -> None:
    """
    With weights and values of 0 or more, higher values never lower the reward, except of penalties.
    """
    plan, grades = given_
    place %= len(grades)
    grade, entry = grades[place], plan.components[place].entry
    if grade.value is None:
        return
    low, high = sorted((grade.value, other))
    rewards = [
        combine(plan, [*grades[:place], _grade(entry, value), *grades[place + 1 :]]).value
        for value in (low, high)
    ]
    if rewards[0] is None or rewards[1] is None:
        return
    less, more = rewards if entry.kind != "penalty" else reversed(rewards)

    assert less <= more + 1e-12 or more == plan.floor or less == plan.floor
