"""Grader health: what gradings come to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mttp.model.gradings import (
    MAX_GRADERS,
    MAX_NAMES,
    OTHER,
    GraderFailure,
    GraderHealth,
    GraderTally,
    Grading,
    gradings,
)
from mttp.model.scorings import INVALID_VALUE, OUT_OF_RANGE, Grade, Reward, Spec


def health(*found: Grading) -> dict[str, GraderHealth]:
    """The health of each grader of one scope, by component."""
    tally = GraderTally()
    for grading in found:
        tally.add(grading)
    return {one.component: one for one in tally.health()}


def test_each_status_is_counted_apart_and_only_valid_scores_have_a_mean():
    """
    A floor that stands for an error or an abstention is not in the mean.
    """
    found = health(
        Grading("episode", "s 1", "a", "ok", value=1.0, verdict="pass"),
        Grading("episode", "s 1", "a", "ok", value=0.0, verdict="fail"),
        Grading("episode", "s 1", "a", "error", "TimeoutError", -1.0),
        Grading("episode", "s 1", "a", "error", "ValueError"),
        Grading("episode", "s 1", "a", "error", "TimeoutError"),
        Grading("episode", "s 1", "a", "error"),
        Grading("episode", "s 1", "a", "error", INVALID_VALUE),
        Grading("episode", "s 1", "a", "error", OUT_OF_RANGE),
        Grading("episode", "s 1", "a", "abstained", value=-1.0),
        Grading("episode", "s 1", "a", "missing"),
        Grading("episode", "s 1", "a", "partial", value=5.0),
    )["a"]

    expected = GraderHealth(
        scope="episode",
        grader="s 1",
        component="a",
        gradings=11,
        ok=2,
        partial=1,
        error=4,
        errors={"TimeoutError": 2, "ValueError": 1, OTHER: 1},
        failures=(
            GraderFailure(error_type="TimeoutError", message="", count=2, first=""),
            *(
                GraderFailure(error_type=kind, message="", count=1, first="")
                for kind in ("ValueError", OTHER, INVALID_VALUE, OUT_OF_RANGE)
            ),
        ),
        invalid=2,
        abstained=1,
        missing=1,
        verdicts={"fail": 1, "pass": 1},
        count=2,
        mean=0.5,
        min=0.0,
        max=1.0,
    )
    assert expected == found
    assert 7 == found.failed


def test_a_total_names_the_checks_that_failed():
    """
    Each check counts by its name, the most frequent first.
    """
    one, two = Reward(value=0.0, failed_checks=("b", "a")), Reward(value=0.0, failed_checks=("b",))

    found = health(*gradings(one), *gradings(two))[""]

    assert {"b": 2, "a": 1} == found.failed_checks
    assert ["b", "a"] == list(found.failed_checks)


def test_parts_of_an_included_spec_go_by_their_path():
    """
    A grade of a grade is `safety.no_leak`, and an error keeps its type.
    """
    part = Grade(name="no_leak", kind="check", status="error", error_type="KeyError")
    reward = Reward(
        value=1.0,
        status="partial",
        spec=Spec(name="answer", version="1.0"),
        components={"safety": 0.5, "correct": 1.0},
        grades=(
            Grade(name="safety", kind="rubric", value=0.5, parts=(part,)),
            Grade(name="correct", kind="verifier", value=1.0, verdict="pass"),
        ),
    )

    found = health(*gradings(reward))

    assert ["", "correct", "safety", "safety.no_leak"] == sorted(found)
    assert {"answer 1.0"} == {one.grader for one in found.values()}
    assert {"KeyError": 1} == found["safety.no_leak"].errors
    assert {"pass": 1} == found["correct"].verdicts
    assert (1, 0, None) == (found[""].partial, found[""].count, found[""].mean)


def test_a_component_given_by_hand_that_is_no_number_is_invalid():
    """
    By hand there is no exception: an error is a value that is not finite.
    """
    reward = Reward(
        value=5.0, status="partial", components={"x": 1.0}, component_statuses={"y": "error", "z": "missing"}
    )

    found = health(*gradings(reward))

    assert (0, 1) == (found["y"].error, found["y"].invalid)
    assert (1, 0) == (found["z"].missing, found["z"].invalid)


def test_relative_scores_are_counted_without_a_mean():
    """
    A score that means something only within its group is ok, and in no mean.
    """
    found = health(*gradings(Reward(value=3.0, relative=True, components={"rank": 2.0})))

    assert [(1, 0, None)] * 2 == [(one.ok, one.count, one.mean) for one in found.values()]


def test_a_tally_of_hostile_names_stays_bounded():
    """
    Gradings of too many graders, and of too many types of error, are counted without their names.
    """
    tally = GraderTally()
    for number in range(MAX_GRADERS + 5):
        tally.add(Grading("episode", f"grader {number}", "", "ok", value=1.0))
    for number in range(MAX_NAMES + 7):
        tally.add(Grading("episode", "grader 0", "", "error", f"Error{number}"))

    first = next(one for one in tally.health() if one.grader == "grader 0")

    assert (MAX_GRADERS, 5) == (len(tally.health()), tally.unlisted)
    assert (MAX_NAMES + 7, 7, MAX_NAMES + 1) == (first.error, first.errors[OTHER], len(first.errors))


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 5e-324])
def test_a_mean_of_extreme_scores_is_finite(value: float):
    """
    A mean lies between the lowest and the highest score, however large these are.
    """
    found = health(*[Grading("step", "", "", "ok", value=value)] * 3)[""]

    assert found.mean is not None
    assert math.isclose(value, found.mean)


_GRADINGS = st.builds(
    Grading,
    st.sampled_from(("episode", "step")),
    st.sampled_from(("a", "b")),
    st.sampled_from(("", "x")),
    st.sampled_from(("ok", "partial", "error", "abstained", "missing")),
    st.sampled_from((None, "KeyError", INVALID_VALUE)),
    st.none() | st.floats(-1e6, 1e6) | st.just(math.nan),
    st.sampled_from((None, "pass", "fail")),
    st.lists(st.sampled_from(("c", "d")), max_size=2).map(tuple),
)


@given(st.lists(_GRADINGS), st.lists(_GRADINGS))
def test_two_tallies_merge_to_the_tally_of_both(first: Sequence[Grading], second: Sequence[Grading]):
    """
    Totals over runs are those of all gradings together.
    """
    one, two, both = GraderTally(), GraderTally(), GraderTally()
    for grading in first:
        one.add(grading)
        both.add(grading)
    for grading in second:
        two.add(grading)
        both.add(grading)
    one.merge(two)

    for expected, found in zip(both.health(), one.health(), strict=True):
        assert (expected.gradings, expected.errors, expected.verdicts, expected.failed_checks) == (
            found.gradings,
            found.errors,
            found.verdicts,
            found.failed_checks,
        )
        assert (expected.count, expected.min, expected.max) == (found.count, found.min, found.max)
        assert (expected.mean is None) == (found.mean is None)
        assert math.isclose(expected.mean or 0, found.mean or 0, rel_tol=1e-9, abs_tol=1e-6)


def failing(episode: str, time: int, error: str = "ValueError: no", **facts: object) -> Grading:
    """A grading that failed."""
    stated = {"error_type": "ValueError", "error": error, "episode": episode, "time": time, **facts}
    return Grading("episode", "", "judge", "error", **stated)  # type: ignore[arg-type]


def test_errors_are_counted_by_class_and_message_with_their_first_episode():
    """
    However they are spread over tallies; those that made a batch raise are named.
    """
    found = [
        failing("c", 3),
        failing("b", 2, raised=True),
        failing("a", 2, "ValueError: yes"),
        failing("a", 2, "ValueError"),
    ]
    parts = [GraderTally(), GraderTally()]
    for place, grading in enumerate(found):
        parts[place % 2].add(grading)
    parts[0].merge(parts[1])

    assert (
        GraderFailure(error_type="ValueError", message="no", count=2, first="b", raised_by=("b",)),
        GraderFailure(error_type="ValueError", message="", count=1, first="a"),
        GraderFailure(error_type="ValueError", message="yes", count=1, first="a"),
    ) == parts[0].health()[0].failures


def test_errors_beyond_the_limit_are_counted_together():
    """
    A message for each completion does not fill the memory.
    """
    (found,) = health(*(failing("a", number, f"{number}") for number in range(MAX_NAMES + 5))).values()

    assert (MAX_NAMES + 1, 5) == (len(found.failures), found.failures[0].count)
    assert OTHER == found.failures[0].error_type


def test_components_without_a_grade_are_gradings_beside_grades():
    """
    Only those that failed have a grade.
    """
    reward = Reward(
        value=1.0,
        status="partial",
        components={"a": 1.0},
        component_statuses={"b": "error", "c": "error"},
        grades=(Grade(name="b", kind="", status="error", error="KeyError: 1", error_type="KeyError"),),
    )

    assert [
        ("", "partial", None),
        ("b", "error", "KeyError"),
        ("a", "ok", None),
        ("c", "error", INVALID_VALUE),
    ] == [(one.component, one.status, one.error_type) for one in gradings(reward)]
