"""Failure buckets, the Pareto view and strengths from preferences."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import mttp
from mttp.errors import ReadError, StudyError
from mttp.study import FailureBucket, failure_buckets, pareto, preference_strengths


def test_each_failed_episode_is_in_one_bucket(tmp_path: Path) -> None:
    """
    Named by its error, its failed checks, its lost components or its stop reason, and by its slice.
    """
    path = str(tmp_path / "run.jsonl")
    with mttp.configure(f"file://{path}"):
        for number in range(12):
            with mttp.episode(env="maths", split="hard" if number % 2 else "easy") as episode:
                if number < 4:
                    episode.reward(0.0, failed_checks=["no_secrets"])
                elif number < 6:
                    episode.reward(0.0, components={"correct": 0.0, "format": 1.0})
                elif number == 6:
                    episode.end(outcome="failure", truncated=True, stop_reason="length")
                else:
                    episode.reward(1.0)
                episode.end(outcome="failure" if number < 7 else "success")
        with pytest.raises(TimeoutError), mttp.episode(env="code"):
            raise TimeoutError("the sandbox did not answer")

    buckets = failure_buckets(path)
    assert [
        ("failed check no_secrets, split easy", 2),
        ("failed check no_secrets, split hard", 2),
        ("error TimeoutError, env code", 1),
        ("no score for correct, split easy", 1),
        ("no score for correct, split hard", 1),
        ("truncated (length), split easy", 1),
    ] == [(one.name, one.count) for one in buckets]
    assert (2 / 8, 2 / 6, 2) == (buckets[0].share, buckets[0].rate, len(buckets[0].episodes))
    assert buckets[0].to_dict()["count"] == 2


def test_without_failures_there_are_no_buckets(tmp_path: Path) -> None:
    """
    A success is in none, and neither is an episode of which nothing is known.
    """
    path = str(tmp_path / "run.jsonl")
    with mttp.configure(f"file://{path}"):
        for outcome in ("success", None):
            with mttp.episode(env="maths") as episode:
                episode.end(outcome=outcome)

    assert () == failure_buckets(path)
    with pytest.raises(ReadError):
        failure_buckets(str(tmp_path / "missing.jsonl"))


def test_a_bucket_is_frozen(tmp_path: Path) -> None:
    """
    As all results are.
    """
    bucket = FailureBucket(name="error", count=1, share=1.0, rate=1.0, episodes=())

    with pytest.raises(AttributeError):
        bucket.count = 2  # type: ignore[misc]  # that is what is tested


def versions(path: Path, components: dict[str, dict[str, float]]) -> str:
    """Three episodes of each policy version with these components."""
    with mttp.configure(f"file://{path}"):
        for version, parts in components.items():
            for _ in range(3):
                with mttp.episode(env="maths", policy_version=version) as episode:
                    episode.reward(sum(parts.values()), components=parts)
    return str(path)


def test_versions_that_no_other_dominates_come_first(tmp_path: Path) -> None:
    """
    b is worse than c by both components; a and c each have the best of one.
    """
    path = versions(
        tmp_path / "run.jsonl",
        {
            "a": {"correct": 1.0, "brief": 0.0},
            "b": {"correct": 0.4, "brief": 0.4},
            "c": {"correct": 0.5, "brief": 0.5},
        },
    )
    found = pareto(path)

    assert [("a", False), ("c", False), ("b", True)] == [(one.name, one.is_dominated) for one in found]
    assert {"components.brief": 0.5, "components.correct": 0.5} == found[1].values
    assert (3, 3) == (found[1].n, len(found[1].episodes))


def test_less_is_better_of_what_costs(tmp_path: Path) -> None:
    """
    An equal reward for more dollars is dominated.
    """
    path = str(tmp_path / "run.jsonl")
    with mttp.configure(f"file://{path}"):
        for version, cost in (("cheap", 0.1), ("dear", 0.2)):
            with mttp.episode(env="maths", policy_version=version) as episode:
                episode.reward(1.0)
                episode.end(cost_usd=cost)
    found = pareto(path, metrics=["reward", "cost"])

    assert [("cheap", False), ("dear", True)] == [(one.name, one.is_dominated) for one in found]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "colour"}, "is not a unit"),
        ({"metrics": ["components.corect"]}, "did you mean 'components.correct'"),
        ({"metrics": ["pass@2"]}, "numbers of a task"),
        ({"by": "task"}, "no episode has a task"),
    ],
)
def test_a_wrong_pareto_question_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    """
    With what there is.
    """
    path = versions(tmp_path / "run.jsonl", {"a": {"correct": 1.0}})

    with pytest.raises(StudyError, match=message):
        pareto(path, **options)


WINS = {
    "Milwaukee": (0, 7, 9, 7, 7, 9, 11),
    "Detroit": (6, 0, 7, 5, 11, 9, 9),
    "Toronto": (4, 6, 0, 7, 7, 8, 12),
    "New York": (6, 8, 6, 0, 6, 7, 10),
    "Boston": (6, 2, 6, 7, 0, 7, 12),
    "Cleveland": (4, 4, 5, 6, 6, 0, 6),
    "Baltimore": (2, 4, 1, 3, 1, 7, 0),
}


def preferred(path: Path, wins: dict[str, tuple[int, ...]]) -> str:
    """A recording with these preferences among policy versions."""
    with mttp.configure(f"file://{path}"):
        episodes = {}
        for name in wins:
            with mttp.episode(env="season", policy_version=name) as episode:
                episode.reward(0.0)
            episodes[name] = episode
        for winner, row in wins.items():
            for loser, count in zip(wins, row, strict=True):
                for _ in range(count):
                    mttp.prefer(episodes[winner], episodes[loser])
    return str(path)


def test_strengths_are_those_of_agresti(tmp_path: Path) -> None:
    """
    American League 1987 (Agresti 2013, table 11.10; coefficients of R's BradleyTerry2, Baltimore = 0).
    """
    published = {
        "Milwaukee": 1.5814,
        "Detroit": 1.4364,
        "Toronto": 1.2945,
        "New York": 1.2476,
        "Boston": 1.1077,
        "Cleveland": 0.6839,
    }
    found = {one.name: one for one in preference_strengths(preferred(tmp_path / "run.jsonl", WINS))}
    unit = 400 / 2.302585093

    assert [*published, "Baltimore"] == [*found]
    for name, strength in published.items():
        assert (found[name].elo - found["Baltimore"].elo) / unit == pytest.approx(strength, abs=1e-3)
    assert sum(one.elo for one in found.values()) / 7 == pytest.approx(1000)
    assert (50, 28, True) == (
        found["Milwaukee"].wins,
        found["Milwaukee"].losses,
        found["Milwaukee"].connected,
    )


def test_one_that_always_won_has_a_finite_strength(tmp_path: Path) -> None:
    """
    By virtual wins and losses, and said so.
    """
    found = preference_strengths(preferred(tmp_path / "run.jsonl", {"new": (0, 5), "old": (0, 0)}))

    assert [("new", 5, 0, False), ("old", 0, 5, False)] == [
        (one.name, one.wins, one.losses, one.connected) for one in found
    ]
    assert 1000 < found[0].elo < 2000
    assert found[0].interval[0] < found[0].elo < found[0].interval[1]


def test_preferences_within_a_version_say_nothing(tmp_path: Path) -> None:
    """
    By episode they do.
    """
    path = str(tmp_path / "run.jsonl")
    with mttp.configure(f"file://{path}"):
        episodes = []
        for _ in range(3):
            with mttp.episode(env="chat", policy_version="a") as episode:
                episode.reward(0.0)
            episodes.append(episode)
        for better, worse in combinations(episodes, 2):
            mttp.prefer(better, worse)

    with pytest.raises(StudyError, match="no recorded preference"):
        preference_strengths(path)
    with pytest.raises(StudyError, match="is not a unit"):
        preference_strengths(path, by="colour")
    assert 3 == len(preference_strengths(path, by="episode"))
