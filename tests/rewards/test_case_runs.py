"""Runs of a spec's cases."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from rewards.factories import component, raising, spec

import mttp
from mttp.rewards.agreement import agreement
from mttp.rewards.case_runs import CaseReport, run_cases

SPECS = Path(__file__).parents[2] / "examples" / "specs"


def case(name: str = "one", **fields: Any) -> dict[str, Any]:
    """Return a case with a number as its sample."""
    return {"name": name, "kind": "valid", "input": {"number": 0.5}, **fields}


def tried(*cases: dict[str, Any], grader: Any = None, repeats: int = 1, **fields: Any) -> CaseReport:
    """Run cases by a spec that returns each sample's number."""
    it = component("it", "rubric", grader or (lambda number: number), range=(0, 1))
    made = spec(it, cases=list(cases), **fields)
    return run_cases(made.plan, made.document.cases, repeats=repeats)


@pytest.mark.parametrize("name", ["gsm8k", "spreadsheet", "taste"])
def test_the_examples_hold(name):
    """
    All cases of all examples pass, and they cover every component.
    """
    made = mttp.RewardSpec.load(SPECS / f"{name}.yaml")
    trial = run_cases(made.plan, made.document.cases)

    assert [] == trial.failed
    assert [] == [(one.name, one.gap) for one in trial.coverage if one.gap]


@pytest.mark.parametrize(
    ("expect", "miss"),
    [
        ({"value": 0.5}, None),
        ({"value": 0.5000000001}, None),
        ({"value": 0.6}, "one: value is 0.5, expected 0.6"),
        ({"value": {"min": 0.4, "max": 0.6}}, None),
        ({"value": {"min": 0.6}}, "one: value is 0.5, expected 0.6 or more"),
        ({"value": {"max": 0.4}}, "one: value is 0.5, expected 0.4 or less"),
        ({"value": {"equals": 0.6, "tolerance": 0.2}}, None),
        ({"components": {"it": 0.5}}, None),
        ({"components": {"it": {"max": 0.4}}}, "one: it is 0.5, expected 0.4 or less"),
        ({"status": "error"}, "one: status is ok, expected error"),
        ({"verdict": "pass"}, "one: verdict is None, expected pass"),
        ({"failed_checks": ["leak"]}, "one: failed checks are none, expected leak"),
        ({"failed_checks": []}, None),
        (None, None),
    ],
)
def test_expectations(expect, miss):
    """
    Stated expectations are compared, others are not.
    """
    said = {} if expect is None else {"expect": expect}

    assert ([] if miss is None else [miss]) == tried(case(**said)).failed


def test_a_case_has_to_be_valid_unless_it_says_otherwise():
    """
    Every case detects a component that raises.
    """
    broken = raising(ValueError("no"))

    assert ["one: status is error, expected ok: it: ValueError: no"] == tried(case(), grader=broken).failed
    assert [] == tried(case(expect={"status": "error"}), grader=broken).failed


def test_an_expected_value_needs_a_value():
    """
    A component without a value does not match.
    """
    said = {"status": "abstained", "components": {"it": 0.5}}

    assert ["one: it has no value"] == tried(case(expect=said), grader=lambda: None).failed


@pytest.mark.parametrize(
    ("better", "miss"),
    [
        ({"better": "more", "than": "less"}, None),
        ({"better": "more", "than": "less", "by": 0.25}, None),
        (
            {"better": "more", "than": "less", "by": 0.3},
            "more over less: the margin is 0.25, expected 0.3 or more",
        ),
        ({"better": "less", "than": "more"}, "less over more: the margin is -0.25, expected more than 0"),
        ({"better": "more", "than": "more"}, "more over more: the margin is 0, expected more than 0"),
    ],
)
def test_orders(better, miss):
    """
    One case must get a higher reward than another, by any or a stated margin.
    """
    cases = [case("less"), case("more", input={"number": 0.75}), better]

    assert ([] if miss is None else [miss]) == tried(*cases).failed


def test_an_order_needs_both_rewards():
    """
    A case without a reward fails the order.
    """
    cases = [case("a"), case("b", input={"number": None}, expect={"status": "abstained"})]

    assert ["a over b: one of the cases has no reward"] == tried(*cases, {"better": "a", "than": "b"}).failed


def test_what_differs_from_time_to_time_is_shown():
    """
    Different values for one sample are reported by component.
    """
    answers = itertools.cycle([0.25, 0.5])
    (outcome,) = tried(case(), grader=lambda: next(answers), repeats=3).outcomes

    assert ({"it": (0.25, 0.5, 0.25)}, (0.25, 0.5, 0.25)) == (outcome.unstable, outcome.values)
    assert pytest.approx(1 / 3) == outcome.value
    assert {} == tried(case(), repeats=3).outcomes[0].unstable


def test_each_time_counts():
    """
    A case passes if every repeat does.
    """
    answers = itertools.cycle([0.5, 0.25])
    trial = tried(case(expect={"value": 0.5}), grader=lambda: next(answers), repeats=4)

    assert ["one: value is 0.25, expected 0.5"] == trial.failed


@pytest.mark.parametrize(
    ("kind", "answers", "gap"),
    [
        ("rubric", [0.5, 0.5], "is always 0.5"),
        ("rubric", [0.5, 1.0], None),
        ("check", [True, True], "never fails"),
        ("verifier", [True, True], "never fails"),
        ("check", [False, False], "never passes"),
        ("check", [True, False], None),
        ("judge", [None, None], "never has a value"),
    ],
)
def test_what_no_case_shows(kind, answers, gap):
    """
    A component without variation over all cases is a gap.
    """
    given = iter(answers)
    made = spec(component("it", kind, lambda: next(given)), cases=[case("a"), case("b")])
    (coverage,) = run_cases(made.plan, made.document.cases).coverage

    assert gap == coverage.gap


def test_cases_of_steps():
    """
    The cases of a spec with only step components are scored as steps.
    """
    made = spec(component("near", "shaping", 0.5, scope="step"), cases=[case(expect={"value": 0.5})])

    assert [] == run_cases(made.plan, made.document.cases).failed


def test_no_cases_are_no_trial():
    """
    A spec without cases has an empty report.
    """
    trial = tried()

    assert ((), (), None, []) == (trial.outcomes, trial.coverage, trial.agreement, trial.failed)


def test_people_are_asked():
    """
    People's scores are in the cases, or are passed separately and override them.
    """
    cases = [case(str(n), input={"number": n / 4}, human=n) for n in range(4)]
    made = spec(component("it", "rubric", lambda number: number), cases=cases)

    inside = run_cases(made.plan, made.document.cases).agreement
    beside = run_cases(
        made.plan, made.document.cases, human={"0": 4.0, "1": 3.0, "2": 2.0, "3": 1.0}
    ).agreement

    assert (4, 1.0, 1.0, 6) == (inside.cases, inside.tau_b, inside.accuracy, inside.pairs)
    assert (-1.0, 0.0) == (beside.tau_b, beside.accuracy)


def test_agreement_is_kendalls():
    """
    Tau-b with ties equals scipy's.
    """
    stats = pytest.importorskip("scipy.stats")
    ours, theirs = [0.1, 0.5, 0.5, 0.9, 0.3, 0.3], [1, 2, 3, 3, 2, 1]

    found = agreement(list(zip(ours, map(float, theirs), strict=True)))

    assert pytest.approx(stats.kendalltau(ours, theirs).statistic) == found.tau_b


@pytest.mark.parametrize(
    ("scored", "found"),
    [
        ([], None),
        ([(1.0, 1.0)], None),
        ([(1.0, 1.0), (1.0, 2.0)], (None, 0.0, 1)),
        ([(1.0, 1.0), (2.0, 1.0)], (None, None, 0)),
    ],
)
def test_agreement_of_few(scored, found):
    """
    Without variation there is no correlation.
    """
    got = agreement(scored)

    assert found == (None if got is None else (got.tau_b, got.accuracy, got.pairs))
