"""Comparisons of recordings: pairing, units, verdicts, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mttp
from mttp.errors import ReadError, StudyError
from mttp.reading import parquet
from mttp.reading.scanning import Scan

Recorded = Callable[..., str]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """Record episodes: each a mapping with `reward`, and what else the episode states."""

    def write(name: str, episodes: Sequence[dict[str, Any]], updates: int = 0, **run: Any) -> str:
        path = str(tmp_path / f"{name}.jsonl")
        with mttp.configure(f"file://{path}", run_id=name, **{"kind": "eval", **run}):
            for facts in episodes:
                stated = dict(facts)
                reward, outcome = stated.pop("reward", None), stated.pop("outcome", None)
                scoring = stated.pop("scoring", {})
                with mttp.episode(**stated) as episode:
                    with episode.step() as step:
                        if reward is not None or scoring:
                            step.reward(reward, **scoring)
                    episode.end(outcome=outcome)
            for index in range(updates):
                mttp.update(index=index, loss=1.0)
        return path

    return write


def suite(values: Sequence[float], samples: int = 1, **facts: Any) -> list[dict[str, Any]]:
    return [
        {"env": "maths", "task": f"t{place}", "reward": value, **facts}
        for place, value in enumerate(values)
        for _ in range(samples)
    ]


def test_tasks_are_paired(recorded: Recorded) -> None:
    """
    Tasks that differ a hundred times more than the sides hide nothing.
    """
    tasks = np.linspace(0, 100, 30)
    noise = np.random.default_rng(1).normal(1, 0.5, 30)
    found = mttp.compare(recorded("a", suite(tasks)), recorded("b", suite(tasks + noise)))

    one = found["return"]
    assert ("better", "better", True, 30, (30, 30)) == (
        found.verdict,
        one.verdict,
        one.paired,
        one.clusters,
        one.n,
    )
    assert one.effect == pytest.approx(noise.mean())
    assert ("paired by task: 30 shared",) == found.notes


def test_worse_is_reported_in_the_other_direction(recorded: Recorded) -> None:
    """
    Also of what costs: there less is better.
    """
    values = np.random.default_rng(2).normal(size=30)
    base, candidate = recorded("a", suite(values)), recorded("b", suite(values - 1))

    assert "worse" == mttp.compare(base, candidate).verdict
    assert "better" == mttp.compare(candidate, base).verdict


def test_samples_of_a_task_are_no_more_tasks(recorded: Recorded) -> None:
    """
    Twenty samples of each of five tasks are five clusters.
    """
    base = recorded("a", suite([0, 1, 0, 1, 0], samples=20))
    candidate = recorded("b", suite([1, 1, 0, 1, 0], samples=20))
    found = mttp.compare(base, candidate)["return"]

    assert (5, (100, 100)) == (found.clusters, found.n)
    assert "inconclusive" == found.verdict


def test_seeds_are_paired_where_there_are_no_tasks(recorded: Recorded) -> None:
    """
    An environment's seed is what its episodes share.
    """
    values = np.random.default_rng(3).normal(size=20)
    sides = [
        recorded(
            name,
            [{"env": "walk", "seed": seed, "reward": value + shift} for seed, value in enumerate(values)],
        )
        for name, shift in (("a", 0.0), ("b", 1.0))
    ]

    found = mttp.compare(*sides)
    assert (True, "paired by seed: 20 shared") == (found["return"].paired, found.notes[0])


def test_without_tasks_and_seeds_nothing_is_paired(recorded: Recorded) -> None:
    """
    A note states it.
    """
    sides = [recorded(name, [{"reward": value} for value in range(10)]) for name in "ab"]
    found = mttp.compare(*sides)

    assert (False, (10, 10)) == (found["return"].paired, found["return"].clusters)
    assert ("not paired: the episodes name no task and no seed",) == found.notes


def test_several_runs_are_several_seeds(recorded: Recorded) -> None:
    """
    Each run is one value, however many episodes it has.
    """
    base = [recorded(f"a{seed}", suite([0.1 * seed] * 8)) for seed in range(5)]
    candidate = [recorded(f"b{seed}", suite([5 + 0.1 * seed] * 8)) for seed in range(5)]
    found = mttp.compare(base, candidate)["return"]

    assert ("better", (5, 5), "Welch t over 5 and 5 runs") == (found.verdict, found.clusters, found.method)


def test_one_training_run_a_side_proves_little(recorded: Recorded) -> None:
    """
    The last episodes of a learning curve are no independent sample.
    """
    base = recorded("a", [{"reward": value} for value in range(200)], updates=3, kind="train")
    candidate = recorded("b", [{"reward": value + 500} for value in range(200)], updates=3, kind="train")
    found = mttp.compare(base, candidate, window=50)

    assert ("inconclusive", None, 500) == (found.verdict, found["return"].interval, found["return"].effect)
    assert 174.5 == found["return"].base
    assert any("one run alone is no evidence" in note for note in found.notes)


def test_missing_rewards_do_not_drop_out_silently(recorded: Recorded) -> None:
    """
    They are counted, and a verdict needs the worst case, too.
    """
    base = suite([0.0] * 10 + [1.0] * 10)
    gained = suite([1.0] * 20)
    lost = [
        {**episode, "reward": math.nan} if place >= 15 else episode for place, episode in enumerate(gained)
    ]
    paths = [recorded(name, episodes) for name, episodes in (("a", base), ("b", gained), ("c", lost))]

    complete = mttp.compare(paths[0], paths[1])["return"]
    found = mttp.compare(paths[0], paths[2])["return"]
    allowed = mttp.compare(paths[0], paths[2], allow=["missing"])["return"]

    assert ("better", None) == (complete.verdict, complete.worst_case)
    assert ("inconclusive", (0, 5)) == (found.verdict, found.missing)
    assert found.worst_case == pytest.approx(5 / 20)
    assert found.worst_case_interval is not None
    assert found.worst_case_interval[0] < 0 < found.worst_case_interval[1]
    assert "5 of 20 of the candidate are missing" in str(allowed.reason)


def test_pass_at_k_is_of_tasks(recorded: Recorded) -> None:
    """
    Of 2 samples of which one passed: pass@1 is 0.5, pass@2 is 1, pass^2 is 0.
    """
    half = [{"task": f"t{n}", "outcome": outcome} for n in range(8) for outcome in ("success", "failure")]
    none = [{"task": f"t{n}", "outcome": "failure"} for n in range(8) for _ in range(2)]
    found = mttp.compare(
        recorded("a", none), recorded("b", half), metrics=["pass@1", "pass@2", "pass^2", "pass@3"]
    )

    assert [0.5, 1.0, 0.0, None] == [one.candidate for one in found]
    assert "k is larger than the number of samples" in str(found["pass@3"].reason)


def test_flips_name_both_episodes(recorded: Recorded) -> None:
    """
    A task that was solved and is not any more.
    """
    base = [{"task": name, "outcome": outcome} for name, outcome in (("a", "success"), ("b", "failure"))]
    candidate = [{"task": name, "outcome": outcome} for name, outcome in (("a", "failure"), ("b", "success"))]
    one, other = mttp.compare(recorded("x", base), recorded("y", candidate)).flips

    assert [("a", False), ("b", True)] == [(one.task, one.gained), (other.task, other.gained)]
    assert all(len(flip.base_episode) == len(flip.candidate_episode) == 32 for flip in (one, other))


def test_what_differs_is_reported(recorded: Recorded) -> None:
    """
    Configuration, policy and environment, by name.
    """
    base = recorded(
        "a", suite([1, 2], policy="p", policy_version=1), config={"lr": 0.1, "opt": {"name": "adam"}}
    )
    candidate = recorded(
        "b", suite([1, 2], policy="p", policy_version=2), config={"lr": 0.2, "opt": {"name": "adam"}}
    )
    found = {
        (one.kind, one.name): (one.base, one.candidate) for one in mttp.compare(base, candidate).differences
    }

    assert ("0.1", "0.2") == found["config", "lr"]
    assert ("config", "opt.name") not in found
    assert ("1", "2") == found["policy", "version"]


@pytest.mark.parametrize(
    ("kind", "base", "candidate"),
    [
        ("tasks", suite([1, 2]), suite([1, 2, 3])),
        (
            "spec",
            suite([1, 2], scoring={"spec": mttp.model.Spec(name="s", version="1")}),
            suite([1, 2], scoring={"spec": mttp.model.Spec(name="s", version="2")}),
        ),
    ],
    ids=["tasks", "spec"],
)
def test_sides_that_measure_different_things_are_refused(
    recorded: Recorded, kind: str, base: Any, candidate: Any
) -> None:
    """
    Unless that is allowed; the difference is named.
    """
    sides = recorded("a", base), recorded("b", candidate)
    with pytest.raises(StudyError, match=f"--allow {kind}"):
        mttp.compare(*sides)

    assert 2 == mttp.compare(*sides, allow=[kind])["return"].clusters


def test_a_slice_is_compared_by_itself(recorded: Recorded) -> None:
    """
    One that got worse is seen, though the whole did not.
    """
    random = np.random.default_rng(4)
    values = random.normal(size=20)
    facts = [{"split": "easy" if place % 2 else "hard"} for place in range(20)]
    base = [{**one, **more} for one, more in zip(suite(values), facts, strict=True)]
    moved = [value + (1 if place % 2 else -1) + random.normal(0, 0.01) for place, value in enumerate(values)]
    candidate = [{**one, **more} for one, more in zip(suite(moved), facts, strict=True)]
    found = mttp.compare(recorded("a", base), recorded("b", candidate), by="split")

    assert "inconclusive" == found.verdict
    assert {"easy": 1.0, "hard": -1.0} == {
        name: round(one.effect or 0, 1) for name, one in found.slices.items()
    }
    assert {"easy": "better", "hard": "worse"} == {name: one.verdict for name, one in found.slices.items()}


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("task.split", {"easy", "hard"}),
        ("mttp.task.split", {"easy", "hard"}),
        ("metadata.author", {"A", "B"}),
        ("mttp.metadata.author", {"A", "B"}),
        ("env.id", {"maths"}),
        ("status", {"completed"}),
        ("inputs.level", {"1", "2"}),
    ],
)
def test_slices_may_be_attributes_inputs_and_metadata(recorded: Recorded, by: str, names: set[str]) -> None:
    """
    By their names, with or without `mttp.`.
    """
    facts = [
        {
            "split": ["easy", "hard"][n % 2],
            "inputs": {"level": n % 2 + 1},
            "metadata": {"author": "AB"[n % 2]},
        }
        for n in range(8)
    ]
    episodes = [{**one, **more} for one, more in zip(suite(range(8)), facts, strict=True)]

    assert names == set(mttp.compare(recorded("a", episodes), recorded("b", episodes), by=by).slices)


def test_a_value_that_is_annotated_later_is_a_slice(tmp_path: Path) -> None:
    """
    It replaces the episode's own value, also in Parquet; a text of more than 100 characters is no slice.
    """
    path, copy = tmp_path / "run.jsonl", tmp_path / "run.parquet"
    with mttp.configure(f"file://{path}"):
        for place in range(3):
            metadata = {"author": "A", "long": "x" * 101}
            with mttp.episode(env="e", task=f"t{place}", metadata=metadata) as episode:
                episode.reward(place)
        mttp.annotate(episode, "author", "B")
    parquet.write(copy, Scan(path, arrays=True, as_written=True))

    for source in (path, copy):
        slices = mttp.compare(source, source, by="metadata.author").slices
        assert {"A": 2, "B": 1} == {name: found.clusters for name, found in slices.items()}
    with pytest.raises(StudyError, match=r"no episode has a value of 'metadata\.long'"):
        mttp.compare(path, path, by="metadata.long")


def test_a_notebook_shows_a_table(recorded: Recorded) -> None:
    """
    Of metrics and slices, with their text escaped.
    """
    episodes = [{**one, "split": "<b>"} for one in suite([1.0, 2.0, 4.0])]
    found = mttp.compare(recorded("a", episodes), recorded("b", episodes), by="split")._repr_html_()

    assert "<td>return</td><td>inconclusive</td>" in found
    assert "<td>return, &lt;b&gt;</td>" in found


def test_an_unknown_slice_has_a_nearest_name(recorded: Recorded) -> None:
    """
    In the error.
    """
    path = recorded("a", suite([1.0, 2.0]))

    with pytest.raises(StudyError, match=r"there is no slice by 'task\.spilt'; did you mean 'task\.split'"):
        mttp.compare(path, path, by="task.spilt")


def test_within_a_margin_the_sides_are_equivalent(recorded: Recorded) -> None:
    """
    Without one none are: not even equal values, whose range is not known.
    """
    values = np.random.default_rng(5).normal(size=50)
    sides = (
        recorded("a", suite(values)),
        recorded("b", suite(values + np.random.default_rng(6).normal(0, 0.01, 50))),
    )

    assert "equivalent" == mttp.compare(*sides, margin=0.1).verdict
    assert "inconclusive" == mttp.compare(*sides).verdict
    assert "inconclusive" == mttp.compare(sides[0], sides[0]).verdict


def test_other_metrics_are_corrected_for_their_number(recorded: Recorded) -> None:
    """
    Holm: the smallest p value counts as often as there are metrics.
    """
    random = np.random.default_rng(7)
    names = [f"c{number}" for number in range(4)]
    sides = []
    for name in "ab":
        episodes = suite(random.normal(size=30))
        for one in episodes:
            one["scoring"] = {"components": {key: float(random.normal()) for key in names}}
        sides.append(recorded(name, episodes))
    found = mttp.compare(*sides, metrics=["return", *(f"components.{key}" for key in names)])

    rest = [one for one in found if one.name != "return"]
    assert found["return"].p_value == found["return"].p_corrected
    assert min(one.p_corrected or 0 for one in rest) == pytest.approx(
        min(1.0, 4 * min(one.p_value or 1 for one in rest))
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": ["retrun"]}, "did you mean 'return'"),
        ({"metrics": ["pass@0"]}, "k is 1 or more"),
        ({"by": "splt"}, "no slice by 'splt'"),
        ({"by": "split"}, "no episode has a value of 'split'"),
        ({"allow": ["everything"]}, "is not a kind of difference"),
        ({"margin": -1.0}, "from 0 on"),
        ({"margin": math.nan}, "from 0 on"),
    ],
)
def test_a_wrong_question_is_an_error(recorded: Recorded, options: dict[str, Any], message: str) -> None:
    """
    That names the nearest that there is.
    """
    path = recorded("a", suite([1, 2, 3]))
    with pytest.raises(StudyError, match=message):
        mttp.compare(path, path, **options)


def test_nothing_is_no_side(recorded: Recorded, tmp_path: Path) -> None:
    """
    Neither a file that is missing, nor one without episodes.
    """
    path = recorded("a", suite([1]))
    with pytest.raises(ReadError, match="does not exist"):
        mttp.compare(path, tmp_path / "none.jsonl")
    with pytest.raises(ReadError, match="holds no episodes"):
        mttp.compare(path, recorded("b", []))


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [math.inf, math.nan, 1.0]])
def test_too_little_is_inconclusive(recorded: Recorded, values: list[float]) -> None:
    """
    One episode, two equal ones, values that are no numbers: no division by zero, and a reason.
    """
    found = mttp.compare(recorded("a", suite(values)), recorded("b", suite(values)))

    assert "inconclusive" == found.verdict
    assert found["return"].reason or found["return"].interval is not None


def test_recordings_and_sessions_are_sides(recorded: Recorded) -> None:
    """
    As are lists of either.
    """
    path = recorded("a", suite([1, 2, 3]))
    with mttp.configure("memory://") as session:
        for one in suite([1, 2, 3]):
            with mttp.episode(env=one["env"], task=one["task"]) as episode, episode.step() as step:
                step.reward(one["reward"])
        found = mttp.compare(mttp.read(path), session)

    assert 0.0 == found["return"].effect


def test_a_comparison_is_plain_data(recorded: Recorded) -> None:
    """
    And prints itself.
    """
    path = recorded("a", suite([1, 2, 3, 4, 5, 6, 7]))
    found = mttp.compare(path, path)

    assert "inconclusive" == found.to_dict()["verdict"]
    assert "return" == found.to_dict()["metrics"][0]["name"]
    assert repr(found).startswith("<Comparison: inconclusive")
    assert "7 episodes are on both sides" in found.notes
    with pytest.raises(KeyError, match="was not compared"):
        found["nothing"]


# The same experiment.


def refused(base: str, candidate: str) -> str:
    """Return why the sides are refused; empty if they are not."""
    try:
        mttp.compare(base, candidate)
    except StudyError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("base", "candidate", "reason"),
    [
        (
            {"env_kwargs": {"max_episode_steps": 500}},
            {"env_kwargs": {"max_episode_steps": 2000}},
            "max_episode_steps",
        ),
        ({"env_version": "1"}, {"env_version": "2"}, "version of maths"),
        (
            {"env_wrappers": ["TimeLimit"]},
            {"env_wrappers": ["TransformReward", "TimeLimit"]},
            "wrappers of maths",
        ),
        (
            {"env_spaces": {"action": "Discrete(2)"}},
            {"env_spaces": {"action": "Discrete(3)"}},
            "spaces of maths",
        ),
        ({"env_wrappers": []}, {"env_wrappers": ["Monitor", "RecordEpisodes", "RecordVectorEpisodes"]}, ""),
        ({"env_kwargs": {}}, {"env_kwargs": {"render_mode": "rgb_array"}}, ""),
        ({"inputs": {"a": 1}}, {"inputs": {"a": 2}}, "inputs"),
        ({"inputs": {"a": 1}}, {}, ""),
    ],
)
def test_another_environment_is_refused(recorded: Recorded, base: Any, candidate: Any, reason: str) -> None:
    """
    What only watches is shown; so is a side that was recorded without inputs.
    """
    values = [float(place % 3 > 0) for place in range(12)]
    sides = recorded("a", suite(values, **base)), recorded("b", suite(values, **candidate))

    assert reason in refused(*sides)
    assert bool(reason) == bool(refused(*sides))
    if reason:
        allowed = mttp.compare(*sides, allow=["env", "inputs"]).differences[0]
        assert allowed.is_refused
        assert "--allow env" in refused(*sides) or "--allow inputs" in refused(*sides)


@pytest.mark.parametrize("has_tasks", [True, False])
def test_mixed_graders_are_refused(tmp_path: Path, has_tasks: bool) -> None:
    """
    59 to 1 is another mixture than 1 to 59, with task names and without.
    """
    sides = []
    for name, mild in (("a", 59), ("b", 1)):
        sides.append(str(tmp_path / f"{name}.jsonl"))
        with mttp.configure(f"file://{sides[-1]}", run_id=name, kind="eval"):
            for place in range(60):
                with mttp.episode(env="maths", task=f"t{place}" if has_tasks else None) as episode:
                    episode.reward(float(place % 2), grader="mild" if place < mild else "strict")

    assert "grader" in refused(*sides)


def test_graders_of_steps_are_compared(recorded: Recorded) -> None:
    """
    Another grader of the steps is another experiment, as is another one of the episodes.
    """
    values = [float(place % 3 > 0) for place in range(12)]
    sides = [
        recorded(name, suite(values, scoring={"grader": grader}))
        for name, grader in (("a", "mild"), ("b", "strict"), ("c", "mild"))
    ]

    assert "the sides differ in their grader (grader): mild and strict" in refused(*sides[:2])
    assert "" == refused(sides[0], sides[2])


def mixed(shares: Sequence[int], **facts: Any) -> list[dict[str, Any]]:
    """Episodes without tasks in environments of several sizes, as many of each as its share says."""
    return [
        {"env": "maze", "reward": float(size), "env_kwargs": {"size": size}, **facts}
        for size, share in enumerate(shares)
        for _ in range(share)
    ]


@pytest.mark.parametrize(
    ("base", "candidate", "reason"),
    [
        ((30, 30), (30, 30), ""),
        ((60, 60), (30, 30), ""),
        ((30, 30), (29, 30), ""),
        ((55, 5), (5, 55), "env (mixture): maze size=0 (55 episodes), maze size=1 (5 episodes) and "),
        ((30, 30), (0, 60), "env (size of maze): 0, 1 and 1"),
    ],
)
def test_shares_of_environments_are_compared(
    recorded: Recorded, base: Sequence[int], candidate: Sequence[int], reason: str
) -> None:
    """
    A mixture is another experiment where a test tells its shares from those of the other side.
    """
    why = refused(recorded("a", mixed(base)), recorded("b", mixed(candidate)))

    assert reason in why
    assert bool(reason) == bool(why)


def test_a_lost_task_leaves_a_mixture_the_same(recorded: Recorded) -> None:
    """
    Of tasks in several environments a sample may be lost, or a reward: it is missing.
    """
    whole = [
        {**one, "env": f"e{place // 2 % 2}"} for place, one in enumerate(suite([1.0, 0.0] * 10, samples=2))
    ]
    lost = [{**one, **({"reward": None} if place == 3 else {})} for place, one in enumerate(whole[:-1])]

    assert "" == refused(recorded("a", whole), recorded("b", lost))


def test_a_registered_default_is_no_difference(recorded: Recorded) -> None:
    """
    An argument that one side states and that has this value without it, too.
    """
    pytest.importorskip("gymnasium")
    lake = {"env": "FrozenLake-v1", "task": None}
    sides = [
        recorded(name, [{**one, **lake, "env_kwargs": kwargs} for one in suite([0.0, 1.0] * 6)])
        for name, kwargs in (
            ("a", {"map_name": "4x4"}),
            ("b", {"map_name": "4x4", "is_slippery": True, "max_episode_steps": 100}),
            ("c", {"map_name": "4x4", "is_slippery": False}),
        )
    ]

    assert "" == refused(*sides[:2])
    assert "is_slippery of FrozenLake-v1" in refused(sides[0], sides[2])


def test_inputs_that_come_later_are_the_same(recorded: Recorded) -> None:
    """
    A task whose first samples were recorded without inputs has those of the others.
    """
    values = [0.0, 1.0] * 6
    known = suite(values, samples=2, inputs={"question": 1})
    late = [{**one, "inputs": None} if place % 2 == 0 else one for place, one in enumerate(known)]
    other = suite(values, samples=2, inputs={"question": 2})
    sides = recorded("a", known), recorded("b", late), recorded("c", other)

    assert "" == refused(*sides[:2])
    assert "" == refused(sides[1], sides[0])
    assert "inputs" in refused(sides[1], sides[2])


def test_equivalence_needs_the_missing_of_both_sides(recorded: Recorded) -> None:
    """
    Equal means within a margin are not equivalent while values that are missing could part them.
    """
    values: list[float | None] = [float(place % 2) for place in range(200)]
    few = [None if place % 100 == 0 else value for place, value in enumerate(values)]
    many = [None if place % 5 == 0 else value for place, value in enumerate(values)]
    for name, sides, verdict in (
        ("few", (few, few), "equivalent"),
        ("both", (many, many), "inconclusive"),
        ("one", (values, many), "inconclusive"),
    ):
        paths = [recorded(f"{name}{place}", suite(side)) for place, side in enumerate(sides)]  # type: ignore[arg-type]  # a missing reward

        assert verdict == mttp.compare(*paths, margin=0.1)["return"].verdict


def test_a_slice_of_one_side_has_no_verdict(recorded: Recorded) -> None:
    """
    There is nothing to compare its episodes with, and the table has its row.
    """
    values = [0.0, 1.0] * 6
    policies = [{**one, "metadata": {"level": "hard"}} for one in suite(values)]
    sides = (
        recorded("a", [{**one, "task": None} for one in suite(values)]),
        recorded("b", [{**one, "task": None} for one in policies]),
    )
    (row,) = mttp.compare(*sides, by="metadata.level").slices.values()

    assert ("inconclusive", None, (0, 12)) == (row.verdict, row.effect, row.n)


def test_missing_samples_count_against_pass_at_k(recorded: Recorded) -> None:
    """
    A pass@2 whose failures are missing on one side is not better.
    """
    base = suite([0.0] * 40, samples=4, outcome="failure")
    kept = [{**one, "outcome": "success" if place % 4 == 0 else None} for place, one in enumerate(base)]
    row = mttp.compare(recorded("a", base), recorded("b", kept), metrics=["pass@1"])["pass@1"]

    assert (
        "inconclusive" == mttp.compare(recorded("c", kept), recorded("d", base), metrics=["pass@2"]).verdict
    )
    assert (0, 120) == row.missing
    assert row.worst_case == pytest.approx(0.25)


def test_a_side_without_task_names_is_refused(recorded: Recorded) -> None:
    """
    Whichever side it is, and also where only some episodes lost their names with all samples of a task.
    """
    named = suite([0.0, 1.0] * 20, samples=2)
    nameless = [{**one, "task": None} for one in named]
    paths = recorded("a", named), recorded("b", nameless), recorded("c", [*named[:60], *nameless[60:]])

    for base, candidate in (paths[:2], paths[1::-1], paths[::2], paths[::-2]):
        with pytest.raises(StudyError, match="differ in their tasks"):
            mttp.compare(base, candidate)


def test_samples_whose_task_name_is_lost_are_missing(recorded: Recorded) -> None:
    """
    One named sample of each task is not what was planned, where the others lost the names: the failures may.
    """
    whole = suite([0.0, 1.0] * 50, samples=2)
    first = [{**one, "reward": 1.0} for one in whole[::2]]
    paths = [
        recorded(name, [*first, *others])
        for name, others in (
            ("nameless", [{**one, "task": None, "reward": 0.0} for one in first]),
            ("fewer", []),
        )
    ]
    found, fewer = (mttp.compare(recorded("base", whole), path) for path in paths)

    assert ("inconclusive", (0, 100)) == (found.verdict, found["return"].missing)
    assert "candidate: 100 samples of tasks are lost, and count as missing" in found.notes
    assert ("better", (0, 0)) == (fewer.verdict, fewer["return"].missing)


def test_lost_samples_are_missing(recorded: Recorded) -> None:
    """
    A candidate that records no failures is not better; one that was planned with fewer samples loses none.
    """
    full = [one for place in range(40) for one in suite_of(place, [1.0, float(place % 2)])]
    kept = [one for one in full if one["reward"] == 1.0 or one["task"] == "t0"]
    base = recorded("a", full)

    found = mttp.compare(base, recorded("b", kept), metrics=["return"])
    planned = mttp.compare(
        base, recorded("c", [one for place in range(40) for one in suite_of(place, [1.0])])
    )

    assert ("inconclusive", (0, 19)) == (found.verdict, found["return"].missing)
    assert "candidate: 19 samples of tasks are lost, and count as missing" in found.notes
    assert (0, 0) == planned["return"].missing


def suite_of(place: int, values: Sequence[float]) -> list[dict[str, Any]]:
    return [{"env": "maths", "task": f"t{place}", "reward": value} for value in values]


def test_another_label_of_a_task_is_shown(recorded: Recorded) -> None:
    """
    And the base's decides the slice.
    """
    values = [float(place % 3 > 0) for place in range(20)]
    base = recorded("a", suite(values, split="hard"))
    found = mttp.compare(base, recorded("b", suite(values, split="easy")), by="split")

    assert "labels" in [one.kind for one in found.differences]
    assert ["hard"] == [*found.slices]


def test_a_filled_p_value_is_corrected_for_all_metrics(recorded: Recorded) -> None:
    """
    Also where only one of the metrics has missing values.
    """
    rng = np.random.default_rng(5)
    noise = {f"components.c{number}": rng.normal(size=30) for number in range(6)}

    def side(name: str, shift: float, lost: int) -> str:
        episodes = []
        for place in range(30):
            components = {key.partition(".")[2]: float(column[place]) for key, column in noise.items()}
            components["c0"] += shift * (1 + place % 5)
            if place < lost:
                del components["c0"]
            episodes.append(
                {"env": "m", "task": f"t{place}", "reward": 1.0, "scoring": {"components": components}}
            )
        return recorded(name, episodes)

    names = ["return", *noise]
    found = mttp.compare(side("a", 0.0, 0), side("b", 1.0, 1), metrics=names)["components.c0"]

    assert (0, 1) == found.missing
    assert found.worst_case_p is not None
    assert ("better" == found.verdict) == (
        found.worst_case_p * 6 <= 0.05 and found.worst_case_interval[0] > 0
    )  # type: ignore[index]


def test_a_run_on_both_sides_is_noted(recorded: Recorded) -> None:
    """
    And a file that is listed three times counts once.
    """
    base = recorded("a", suite([0.0, 1.0, 0.0, 1.0]))
    found = mttp.compare([base] * 3, base)

    assert "4 episodes are on both sides" in found.notes
    assert "base: 8 episodes are there more than once and count once" in found.notes
    assert (4, 4) == found["return"].n
