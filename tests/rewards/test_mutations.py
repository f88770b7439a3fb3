"""Mutation testing of specs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rewards.factories import component, spec

import mttp
from mttp.rewards.mutations import Mutation, mutate

SPECS = Path(__file__).parents[2] / "examples" / "specs"

MATH = {"name": "math", "kind": "verifier", "use": lambda right: right, "weight": 0.5, "range": (0, 1)}
STYLE = {"name": "style", "kind": "rubric", "use": lambda style: style, "weight": 0.3, "range": (0, 1)}
LONG = {"name": "long", "kind": "penalty", "use": lambda long: long, "weight": 0.2, "range": (0, 1)}
CLEAN = {"name": "clean", "kind": "check", "use": lambda clean: clean}


def mutated(*cases: dict[str, Any], **fields: Any) -> Mutation:
    """Run mutation testing for a spec of four components."""
    made = spec(MATH, STYLE, LONG, CLEAN, cases=list(cases), **fields)
    return mutate(made.plan, made.document.cases)


def case(name: str, expect: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return a case whose sample is best unless stated."""
    sample = {"right": True, "style": 1.0, "long": 0.0, "clean": True, **changes}
    return {"name": name, "kind": "valid", "input": sample, "expect": expect or {}}


STRONG = (
    case("right", {"value": 0.8, "verdict": "pass"}),
    case("wrong", {"value": 0.3, "verdict": "fail"}, right=False),
    case("plain", {"value": 0.65}, style=0.5),
    case("long", {"value": 0.7}, long=0.5),
    case("dirty", {"failed_checks": ["clean"], "value": -0.2}, clean=False),
)


@pytest.mark.parametrize("name", ["gsm8k", "spreadsheet", "taste"])
def test_the_examples_notice_every_fault(name):
    """
    Cases of the examples leave no survivors.
    """
    made = mttp.RewardSpec.load(SPECS / f"{name}.yaml")
    found = mutate(made.plan, made.document.cases)

    assert [] == [one.fault for one in found.survivors]
    assert len(found.mutants) > 5


@pytest.mark.parametrize("how", ["gated", "weighted_sum"])
def test_strong_cases_notice_every_fault(how):
    """
    One expected value for each difference between samples is enough.
    """
    expect = {"value": -0.2} if how == "gated" else {"value": 0.3}
    found = mutated(STRONG[0], case("wrong", expect, right=False), *STRONG[2:], combine=how)

    assert [] == [one.fault for one in found.survivors]
    assert {"drop", "invert", "constant-maximum", "widened-range", "gate-removed", "weights-swapped"} == {
        one.kind for one in found.mutants
    }


def test_weak_cases_leave_survivors():
    """
    A single case for the right answer detects few faults.
    """
    found = mutated(case("right", {"value": {"min": 0.1}}))

    survivors = {(one.kind, one.components) for one in found.survivors}
    assert {
        ("drop", ("math",)),
        ("drop", ("long",)),
        ("gate-removed", ("clean",)),
        ("constant-maximum", ("style",)),
        ("weights-swapped", ("math", "style")),
    } <= survivors
    assert ("invert", ("clean",)) not in survivors


def test_a_survivor_says_whom_it_changes():
    """
    A survivor names the cases whose reward it changes, if any.
    """
    found = {one.fault: one for one in mutated(case("right", {"value": {"min": 0.1}})).survivors}

    assert ("right",) == found["style is removed"].changed
    assert () == found["clean does not gate"].changed


def test_detecting_cases_are_named():
    """
    Cases and orders that detect a fault are listed.
    """
    order = {"better": "right", "than": "dirty"}
    found = mutated(case("right"), case("dirty", clean=False), order)
    (gate,) = [one for one in found.mutants if one.kind == "gate-removed"]

    assert (("right over dirty",), ("dirty",)) == (gate.caught_by, gate.changed)


def test_cases_that_fail_try_nothing():
    """
    Mutation testing needs passing cases.
    """
    found = mutated(case("right", {"value": 0.0}))

    assert ((), ["right: value is 0.8, expected 0"]) == (found.mutants, found.report.failed)


def test_components_are_called_once_for_each_case():
    """
    Faults reuse the grades of one run.
    """
    calls = []
    judge = component("judge", "judge", lambda right: calls.append(right) or 1.0, range=(0, 1))
    made = spec(judge, MATH, cases=[{"name": "a", "kind": "valid", "input": {"right": True}}])

    assert len(mutate(made.plan, made.document.cases).mutants) > 5
    assert [True] == calls


def test_weights_that_do_not_count_are_not_swapped():
    """
    Under product and minimum weights have no effect.
    """
    kinds = {one.kind for one in mutated(case("right"), combine="minimum", floor=0.0).mutants}

    assert "weights-swapped" not in kinds
