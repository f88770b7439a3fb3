"""The health of graders: how often each was ok, failed or abstained, and the mean of its valid scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from mttp.model.gradings import OTHER, GraderFailure, GraderHealth, Grading, gradings
from mttp.model.scorings import INVALID_VALUE, OUT_OF_RANGE, Grade, Reward, Spec
from mttp.tables.graders import MAX_GRADERS, MAX_NAMES, GradersOfRuns, graders_of_runs

duckdb = pytest.importorskip("duckdb")


def health(*found: Grading) -> dict[str, GraderHealth]:
    """The health of each grader of one scope, by component."""
    return {grader.component: grader for grader in of_all_runs(found).graders}


class Results:
    """A table of gradings, as a database has it."""

    def __init__(self, results: Sequence[Grading]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute(
            "CREATE TABLE gradings (scope VARCHAR, grader VARCHAR, component VARCHAR, status VARCHAR, "
            "error_type VARCHAR, value DOUBLE, verdict VARCHAR, failed_checks VARCHAR[], error VARCHAR, "
            'episode VARCHAR, "time" BIGINT, raised BOOLEAN, run_id VARCHAR)'
        )
        if results:
            rows = [(*result, "run") for result in results]
            self._connection.executemany(
                f"INSERT INTO gradings VALUES ({', '.join('?' * len(rows[0]))})", rows
            )

    def rows(self, query: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows of a query."""
        result = self._connection.execute(query, parameters or {})
        return [
            dict(zip([name for name, *_ in result.description], row, strict=True))
            for row in result.fetchall()
        ]


def of_all_runs(results: Sequence[Grading]) -> GradersOfRuns:
    """The health of the graders of these results."""
    return graders_of_runs(Results(results)).get(None, GradersOfRuns())


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


def test_hostile_names_stay_bounded():
    """
    Gradings of too many graders, and of too many types of error, are counted without their names.
    """
    results = [
        Grading("episode", f"grader {number}", "", "ok", value=1.0) for number in range(MAX_GRADERS + 5)
    ]
    results += [
        Grading("episode", "grader 0", "", "error", f"Error{number}") for number in range(MAX_NAMES + 7)
    ]

    of_all = of_all_runs(results)
    first = next(grader for grader in of_all.graders if grader.grader == "grader 0")

    assert (MAX_GRADERS, 5) == (len(of_all.graders), of_all.unlisted)
    assert (MAX_NAMES + 7, 7, MAX_NAMES + 1) == (first.error, first.errors[OTHER], len(first.errors))


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 5e-324])
def test_a_mean_of_extreme_scores_is_finite(value: float):
    """
    A mean lies between the lowest and the highest score, however large these are.
    """
    found = health(*[Grading("step", "", "", "ok", value=value)] * 3)[""]

    assert found.mean is not None
    assert math.isclose(value, found.mean)


def failing(episode: str, time: int, error: str = "ValueError: no", **facts: object) -> Grading:
    """A grading that failed."""
    stated = {"error_type": "ValueError", "error": error, "episode": episode, "time": time, **facts}
    return Grading("episode", "", "judge", "error", **stated)  # type: ignore[arg-type]


def test_errors_are_counted_by_class_and_message_with_their_first_episode():
    """
    Those that made a batch raise are named.
    """
    found = [
        failing("c", 3),
        failing("b", 2, raised=True),
        failing("a", 2, "ValueError: yes"),
        failing("a", 2, "ValueError"),
    ]

    assert (
        GraderFailure(error_type="ValueError", message="no", count=2, first="b", raised_by=("b",)),
        GraderFailure(error_type="ValueError", message="", count=1, first="a"),
        GraderFailure(error_type="ValueError", message="yes", count=1, first="a"),
    ) == of_all_runs(found).graders[0].failures


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
