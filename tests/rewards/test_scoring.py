"""The order of calls: gates before costly components."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from rewards.factories import component, raising, spec


class Calls(list[str]):
    """Records the names of components in call order."""

    def of(self, name: str, kind: str, answer: object, **fields: Any) -> dict[str, Any]:
        """Return a component that records its call."""

        def called() -> object:
            self.append(name)
            return answer() if callable(answer) else answer

        def called_for(answers: list[str]) -> object:
            self.append(name)
            return [answer] * len(answers)

        use = called_for if fields.get("relative") or fields.get("arity") == "batch" else called
        return component(name, kind, use, **fields)


SCORED = {
    "score": lambda made: made.score(answer="a"),
    "ascore": lambda made: asyncio.run(made.ascore(answer="a")),
    "score_batch": lambda made: made.score_batch([{"answer": "a"}])[0],
    "concurrent batch": lambda made: made.score_batch([{"answer": "a"}] * 2, concurrency=2)[0],
    "rank": lambda made: made.rank([{"answer": "a"}]).results[0],
}
every_way = pytest.mark.parametrize("way", SCORED.values(), ids=SCORED)


@every_way
def test_what_costs_is_not_called_once_a_check_failed(way):
    """
    The judge is missing, whatever its position; other components are graded.
    """
    calls = Calls()
    made = spec(
        calls.of("taste", "judge", 1.0),
        calls.of("neat", "rubric", 0.5),
        calls.of("no_leak", "check", False),
        combine="weighted_sum",
    )
    result = way(made)
    grade = result.components["taste"]

    assert {"no_leak", "neat"} == set(calls)
    assert ("no_leak", "taste") == (calls[0], next(iter(result.components)))
    assert ("missing", None, "not called: check no_leak failed") == (
        grade.status,
        grade.value,
        grade.explanation,
    )
    assert (0.0, "ok", ("no_leak",), None) == (
        result.value,
        result.status,
        result.failed_checks,
        result.error,
    )


@every_way
def test_what_is_always_called_is_called(way):
    """
    `always` calls a judge for a sample that failed a gate.
    """
    calls = Calls()
    made = spec(calls.of("taste", "judge", 1.0, always=True), calls.of("no_leak", "check", False))

    assert (1.0, 0.0) == (way(made).components["taste"].value, way(made).value)


@every_way
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_failed_gate_and_a_judge_that_raises_come_to_one_result(way, order):
    """
    The result does not depend on order or on the judge's call.
    """
    for always in (True, False):
        parts = [
            component("math", "verifier", 1.0, range=(0, 1)),
            component("no_leak", "check", False),
            component("taste", "judge", raising(ValueError("no")), always=always),
        ]
        result = way(spec(*[parts[place] for place in order]))

        assert (0.0, "ok", "fail", ("no_leak",)) == (
            result.value,
            result.status,
            result.verdict,
            result.failed_checks,
        )


@every_way
@pytest.mark.parametrize(
    ("answer", "said"), [(0.0, "verifier math failed"), (None, "verifier math has no verdict")]
)
def test_a_verifier_that_gates_decides_too(way, answer, said):
    """
    Under `gated` without partial credit no judge can change the floor.
    """
    calls = Calls()
    parts = [calls.of("taste", "judge", 1.0), calls.of("math", "verifier", answer, range=(0, 1))]
    gated, credited = spec(*parts, combine="gated"), spec(*parts, combine="gated", partial_credit=0.5)

    assert f"not called: {said}" == way(gated).components["taste"].explanation
    assert "taste" not in calls
    assert 1.0 == way(credited).components["taste"].value


@every_way
def test_a_failed_verifier_gates_whatever_else_raises(way):
    """
    The reward is the floor.
    """
    made = spec(
        component("neat", "rubric", raising(ValueError("no"))),
        component("math", "verifier", 0.0, range=(0, 1)),
        combine="gated",
    )

    assert (0.0, "ok", "fail") == (way(made).value, way(made).status, way(made).verdict)


@every_way
def test_a_check_of_an_include_is_called_before_the_judges(way):
    """
    Before those of both specs.
    """
    calls = Calls()
    inner = spec(calls.of("calm", "judge", 1.0), calls.of("no_leak", "check", False))
    made = spec(
        calls.of("taste", "judge", 1.0),
        include=[{"spec": inner, "as": "safety", "version": "1.0.0"}],
    )
    result = way(made)

    assert {"no_leak"} == set(calls)
    assert ("missing", "not called: check safety.no_leak failed") == (
        result.components["taste"].status,
        result.components["taste"].explanation,
    )
    assert ["missing", "ok"] == [part.status for part in result.components["safety"].parts]
    assert (0.0, ("safety.no_leak",)) == (result.value, result.failed_checks)


@every_way
def test_a_failed_check_outside_spares_the_judges_of_an_include(way):
    """
    They are not called for a sample with the floor.
    """
    calls = Calls()
    inner = spec(calls.of("calm", "judge", 1.0))
    made = spec(
        calls.of("clean", "check", False), include=[{"spec": inner, "as": "safety", "version": "1.0.0"}]
    )
    result = way(made)

    assert {"clean"} == set(calls)
    assert (0.0, "missing") == (result.value, result.components["safety"].status)


@every_way
def test_an_include_that_is_a_check_is_scored_before_what_costs(way):
    """
    Its own judges are called first, since its verdict depends on them.
    """
    calls = Calls()
    inner = spec(calls.of("calm", "judge", 0.5, range=(0, 1)))
    made = spec(
        calls.of("taste", "judge", 1.0),
        include=[{"spec": inner, "as": "safety", "kind": "check", "version": "1.0.0"}],
    )
    result = way(made)

    assert {"calm"} == set(calls)
    assert (("safety",), "missing") == (result.failed_checks, result.components["taste"].status)


def test_in_a_group_only_those_that_keep_the_checks_are_compared():
    """
    The judge's order has only members that passed.
    """
    seen = []

    def judge(answers):
        seen.append(list(answers))
        return [1.0] * len(answers)

    made = spec(
        component("best", "judge", judge, relative=True),
        component("clean", "check", lambda answer: answer != "b"),
    )
    ranking = made.rank([{"answer": answer} for answer in "abc"])

    assert ([["a", "c"]], (0, 2)) == (seen, ranking.provenance["best"].order)
    assert ((1.0, 0.0, 1.0), "missing") == (ranking.values, ranking.results[1].components["best"].status)


def test_a_batch_is_asked_for_those_that_keep_the_checks():
    """
    A batch judge is called once, for the samples that passed.
    """
    seen = []

    def judge(answers):
        seen.append(list(answers))
        return [1.0] * len(answers)

    made = spec(
        component("best", "judge", judge, arity="batch"),
        component("clean", "check", lambda answer: answer != "b"),
    )
    results = made.score_batch([{"answer": answer} for answer in "abc"])

    assert ([["a", "c"]], [1.0, 0.0, 1.0]) == (seen, [result.value for result in results])
