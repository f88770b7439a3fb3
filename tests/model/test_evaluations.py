"""What evaluations come to: summaries by outcome, of samples, of slices, and against a baseline."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from mttp.model import Evaluation, TaskResult


def passes(task: str, *verdicts: bool | str, slices: Sequence[str] = ()) -> list[TaskResult]:
    """A task's results: whether each sample passed, or the outcome of one without a score."""
    return [
        TaskResult(task=task, sample=sample, outcome=verdict, slices=tuple(slices))
        if isinstance(verdict, str)
        else TaskResult(task=task, sample=sample, score=float(verdict), passed=verdict, slices=tuple(slices))
        for sample, verdict in enumerate(verdicts)
    ]


def evaluated(*results: list[TaskResult], samples: int = 1) -> Evaluation:
    """An evaluation with these results."""
    tasks = tuple(dict.fromkeys(result.task for found in results for result in found))
    every = tuple(result for found in results for result in found)
    return Evaluation(suite="s", tasks=tasks, samples=samples, results=every)


def test_every_sample_counts():
    """
    Each task weighs alike, however many of its samples have a score; pass@1 is the pass rate.
    """
    found = evaluated(
        passes("a", True, True, False, False), passes("b", True, "errored", "errored", "errored"), samples=4
    )
    summary = found.summary()

    assert (2, 4, 5, 3, 0) == (
        summary.tasks,
        summary.samples,
        summary.scored,
        summary.errored,
        summary.pending,
    )
    assert (0.75, 0.75, 5, 2, 3) == (
        summary.mean,
        summary.pass_rate,
        summary.judged,
        summary.judged_tasks,
        summary.passed,
    )
    assert [(1, 2, 0.75, 0.75), (2, 1, 5 / 6, 1 / 6), (4, 1, 1.0, 0.0)] == [
        (one.k, one.tasks, one.pass_at_k, pytest.approx(one.pass_hat_k)) for one in summary.pass_estimates
    ]


def test_a_revision_wins_over_its_own_sample_alone():
    """
    Of one task and sample the last result counts; other samples stay.
    """
    results = (
        TaskResult(task="a", sample=0, score=0.0, revision=1),
        TaskResult(task="a", sample=1, score=0.5, revision=2),
        TaskResult(task="a", sample=0, score=1.0, revision=3),
    )
    found = Evaluation(tasks=("a",), samples=2, results=results)

    assert {("a", 0): 1.0, ("a", 1): 0.5} == {key: one.score for key, one in found.latest().items()}
    assert {"a": 0.75} == found.scores()


def test_samples_that_lack_results_are_pending():
    """
    Those of tasks that have some included.
    """
    found = Evaluation(tasks=("a", "b"), samples=3, results=tuple(passes("a", True)))

    assert (5, 6) == (found.summary().pending, found.summary().results)


def test_one_sample_has_no_pass_at_k_unless_asked_for():
    """
    It would be the pass rate.
    """
    found = evaluated(passes("a", True), passes("b", False))

    assert () == found.summary().pass_estimates
    assert [(1, 0.5), (2, None)] == [
        (one.k, one.pass_at_k) for one in found.summary(sizes=[1, 2]).pass_estimates
    ]


def test_accuracy_is_over_answered_results():
    """
    Abstentions are no failures; the coverage says how many were answered. What failed is in neither.
    """
    found = evaluated(
        passes("a", True), passes("b", False), passes("c", "abstained"), passes("d", "errored")
    ).summary()

    assert (0.5, 2 / 3, 1, 1) == (found.pass_rate, found.coverage, found.abstained, found.errored)
    assert "coverage 0.6667 (2 of 3)" in str(found)


def test_errors_are_counted_by_type():
    """
    The most frequent first; one that is only a text is of another type.
    """
    results = [
        TaskResult(task=str(place), outcome="errored", error_type=kind)
        for place, kind in enumerate(["OSError", None, "TimeoutError", "TimeoutError"])
    ]

    assert [("TimeoutError", 2), ("OSError", 1), ("_OTHER", 1)] == list(
        evaluated(results).summary().errors.items()
    )


def test_a_slice_is_a_summary_of_its_tasks():
    """
    A task in two slices counts in each; samples that lack results are pending there, too.
    """
    found = evaluated(
        passes("a", True, False, slices=["easy"]),
        passes("b", True, True, slices=["easy", "long"]),
        passes("c", False, False),
        samples=2,
    ).by_slice()

    assert {"easy": (2, 4, 0.75), "long": (1, 2, 1.0)} == {
        name: (one.tasks, one.scored, one.pass_rate) for name, one in found.items()
    }


# Against a baseline.


def compared(after: Sequence[float], before: Sequence[float]) -> Evaluation:
    """An evaluation with one sample of each task, against another."""
    there, here = (
        Evaluation(
            tasks=tuple(f"t{place}" for place in range(len(scores))),
            results=tuple(TaskResult(task=f"t{place}", score=score) for place, score in enumerate(scores)),
        )
        for scores in (before, after)
    )
    return here.against(there)


@pytest.mark.parametrize(
    ("after", "before", "said"),
    [
        ([1, 1, 1, 0.9] * 2, [0, 0.1, 0, 0] * 2, "better"),
        ([0, 0.1, 0, 0] * 2, [1, 1, 1, 0.9] * 2, "worse"),
        ([1, 1, 1, 0.9], [0, 0.1, 0, 0], "inconclusive"),
        ([1, 0, 1, 0], [0, 1, 0, 0], "inconclusive"),
        ([1, 1], [0, 0], "inconclusive"),
        ([1] * 5, [0] * 5, "inconclusive"),
        ([1] * 6, [0] * 6, "better"),
        ([1], [0], "inconclusive"),
        ([1, 0, 1], [1, 0, 1], "inconclusive"),
        ([1] * 8, [1] * 8, "inconclusive"),
    ],
    ids=repr,
)
def test_a_delta_is_called_better_or_worse_beyond_its_interval(
    after: list[float], before: list[float], said: str
):
    """
    A few tasks that all changed alike are no proof.
    """
    pytest.importorskip("scipy")

    assert said == compared(after, before).summary().comparison


def test_a_delta_has_scipy_s_paired_interval():
    """
    Over the differences of the tasks.
    """
    stats = pytest.importorskip("scipy.stats")
    after, before = [0.5, 1.0, 0.25, 0.75], [0.25, 0.5, 0.5, 0.25]
    expected = stats.ttest_rel(after, before).confidence_interval()
    summary = compared(after, before).summary()

    assert pytest.approx((expected.low, expected.high)) == summary.delta_interval
    assert (0.25, 4, 3, 1) == (summary.delta, summary.compared, summary.higher, summary.lower)


def test_samples_of_a_task_are_one_difference():
    """
    Eight samples of two tasks are no sixteen independent differences.
    """
    before = evaluated(passes("a", *[False] * 8), passes("b", *[True] * 8), samples=8)
    after = evaluated(passes("a", *[True] * 4, *[False] * 4), passes("b", *[True] * 8), samples=8)
    summary = after.against(before).summary()

    assert (2, 0.25, 0.25, "inconclusive") == (
        summary.compared,
        summary.delta,
        summary.delta_error,
        summary.comparison,
    )


def test_samples_may_differ_in_number():
    """
    The baseline's score of a task is the mean of its samples.
    """
    before = evaluated(passes("a", True, False), samples=2)
    found = evaluated(passes("a", True)).against(before)

    assert [(0.5, 0.5)] == [(one.baseline_score, one.delta) for one in found.results]


def test_errors_on_either_side_are_reported_as_bias():
    """
    How many there are here and there, and how many tasks are compared of how many.
    """
    before = evaluated(
        passes("a", True), passes("b", False), passes("c", "timed_out"), passes("x", "errored")
    )
    after = evaluated(passes("a", True), passes("b", "errored"), passes("c", True), passes("d", True))
    summary = after.against(before).summary()

    assert (1, 1) == (summary.compared, summary.baseline_failed)
    assert "errors may bias it: 1 here, 1 in the baseline" == summary.bias
    assert (
        "delta +0: inconclusive, 1 of 4 tasks compared, 0 higher and 0 lower "
        "(no interval for one task); errors may bias it: 1 here, 1 in the baseline" == summary.delta_text()
    )


def test_a_difference_beyond_a_float_is_not_compared():
    """
    That of the task counts, whose samples may each be too far from the baseline.
    """
    samples = tuple(
        TaskResult(task="a", sample=place, score=score) for place, score in enumerate((1e308, -1e308))
    )
    found = Evaluation(tasks=("a",), samples=2, results=samples)

    assert -1e308 == found.against({"a": 1e308}).summary().delta
    assert Evaluation(results=samples[:1]).against({"a": -1e308}).summary().delta is None


def test_errors_of_bare_scores_are_unknown():
    """
    A mapping does not say what failed there.
    """
    summary = evaluated(passes("a", True), passes("b", "errored")).against({"a": 0.0}).summary()

    assert "errors may bias it: 1 here, unknown in the baseline" == summary.bias


def test_nothing_that_failed_biases_nothing():
    """
    Abstentions and skipped tasks are listed separately.
    """
    assert compared([1, 1], [0, 1]).summary().bias is None


def test_without_scipy_the_delta_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    """
    And is called neither better nor worse.
    """
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    for after in ([1, 1, 0.9], [1] * 6):
        summary = compared(after, [0] * len(after)).summary()

        assert (None, "inconclusive") == (summary.delta_interval, summary.comparison)
        assert "no interval without scipy: pip install 'mttp[study]'" in summary.delta_text()


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ([1], "no interval for one task"),
        ([1.7e308, 1.7e308, -1.7e308], "no interval: the differences are too large"),
    ],
    ids=repr,
)
def test_the_reason_for_a_missing_interval_is_reported(after: list[float], reason: str):
    """
    Beside the delta.
    """
    assert f"({reason})" in compared(after, [0] * len(after)).summary().delta_text()


def test_a_summary_says_of_how_many_its_means_are():
    """
    Where they are fewer than there are.
    """
    whole = evaluated(passes("a", True), passes("b", False)).summary()
    part = evaluated(passes("a", True), passes("b", "errored")).summary()

    assert "2 tasks: 2 scored, mean 0.5, pass rate 0.5" == str(whole)
    assert "2 tasks: 1 scored, 1 errored, mean 1 (1 of 2), pass rate 1 (1 of 2)" == str(part)


def test_the_largest_scores_have_a_mean() -> None:
    """
    Their sum overflows; the mean does not, of either side of a comparison.
    """
    results = tuple(
        TaskResult(task=task, sample=sample, score=1.7e308) for task in ("a", "b") for sample in range(3)
    )
    evaluation = Evaluation(suite="s", tasks=("a", "b"), samples=3, results=results)
    summary = evaluation.against(evaluation).summary()

    assert summary.mean == pytest.approx(1.7e308)
    assert 0.0 == summary.delta
