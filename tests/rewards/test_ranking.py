"""Relative components and groups."""

from __future__ import annotations

import hashlib

import pytest
from rewards.factories import component, raising, spec

import mttp
from mttp.errors import NeedsGroup, SpecError

GROUP = [{"answer": answer} for answer in ("bb", "a", "ccc", "dddd")]


def lengths(answers):
    """Return scores by length."""
    return {"scores": [float(len(answer)) for answer in answers], "model": "ruler-1", "prompt": "Measure."}


def ranked(*more, **fields):
    """A spec that compares lengths."""
    return spec(component("longest", "judge", lengths, relative=True, **fields), *more)


def test_a_relative_component_needs_a_group():
    """
    Scoring one sample raises with advice.
    """
    with pytest.raises(NeedsGroup, match=r"longest compares the samples of a group; .* rank\(group\)"):
        ranked().score(answer="a")
    with pytest.raises(NeedsGroup):
        ranked().score_batch(GROUP)


def test_a_group_is_ranked():
    """
    The judge is called once; each member has its own result.
    """
    ranking = ranked(component("clean", "check", lambda answer: "c" not in answer)).rank(GROUP)

    assert (2.0, 1.0, 0.0, 4.0) == ranking.values
    assert (3, 0, 1, 2) == ranking.order
    assert [(), (), ("clean",), ()] == [result.failed_checks for result in ranking.results]
    assert all(result.relative and result.components["longest"].relative for result in ranking.results)


def test_where_values_come_from_is_kept():
    """
    The provenance has members, order, model and prompt.
    """
    source = ranked().rank(GROUP).provenance["longest"]

    assert (4, (0, 1, 2, 3), None, "ruler-1") == (
        len(source.members),
        source.order,
        source.seed,
        source.model,
    )
    assert hashlib.sha256(b"Measure.").hexdigest() == source.prompt_sha256
    assert hashlib.sha256(b'{"answer":"a"}').hexdigest() == source.members[1]
    assert source.group != ranked().rank(GROUP[:3]).provenance["longest"].group


def test_a_seed_shuffles_whom_the_judge_sees_first():
    """
    A seed determines the order, and values return to their members.
    """
    seen = []

    def judge(answers, model, prompt):
        seen.append(list(answers))
        return [float(len(answer)) for answer in answers]

    made = spec(component("it", "judge", judge, relative=True, params={"model": "m", "prompt": "p"}))
    rankings = [made.rank(GROUP, seed=seed) for seed in (7, 7, 8)]
    source = rankings[0].provenance["it"]

    assert {(2.0, 1.0, 3.0, 4.0)} == {ranking.values for ranking in rankings}
    assert seen[0] == seen[1] == [GROUP[place]["answer"] for place in source.order]
    assert (7, "m") == (source.seed, source.model)


def test_a_judge_may_give_reasons_for_each():
    """
    Scores may have explanations.
    """

    def judge(answers):
        return [mttp.rewards.Score(1.0, explanation=f"{answer}?") for answer in answers]

    ranking = spec(component("it", "judge", judge, relative=True)).rank(GROUP[:2])

    assert ["bb?", "a?"] == [result.components["it"].explanation for result in ranking.results]
    assert None is ranking.provenance["it"].model


def test_a_judge_that_fails_leaves_no_winner():
    """
    No member gets a reward.
    """
    ranking = spec(component("it", "judge", raising(ValueError("no")), relative=True)).rank(GROUP)

    assert ((None,) * 4, ()) == (ranking.values, ranking.order)


def test_an_empty_group_can_t_be_ranked():
    """
    An empty group raises.
    """
    with pytest.raises(SpecError, match="the group is empty"):
        ranked().rank([])


def test_a_ranking_is_recorded_with_its_provenance(session):
    """
    Each reward is marked relative and has the provenance.
    """
    for result in ranked().rank(GROUP, seed=3).results:
        with mttp.episode(group="g") as ep:
            ep.reward(result)

    found = mttp.read(session).episodes
    assert [2.0, 1.0, 3.0, 4.0] == [episode.return_ for episode in found]
    assert {True} == {episode.reward.relative for episode in found}
    evidence = [episode.reward.evidence["longest"] for episode in found]
    assert 1 == len({one["group"] for one in evidence})
    assert (3, "ruler-1", 4) == (evidence[0]["seed"], evidence[0]["model"], len(evidence[0]["order"]))


def test_relative_values_are_not_averaged_across_groups(session):
    """
    A summary has means of other components only.
    """
    made = ranked(component("short", "rubric", lambda answer: 1.0 / len(answer)))
    for group in (GROUP[:2], GROUP[2:]):
        for result in made.rank(group).results:
            with mttp.episode() as ep:
                ep.reward(result)

    graders = mttp.summarize(session).graders

    assert {"short"} == {one.component for one in graders if one.component and one.mean is not None}


def test_a_pairwise_judge_is_shown_two_at_a_time():
    """
    A member's value is the mean of its comparisons, with 0.5 for a tie.
    """
    seen = []

    def better(answers):
        one, other = map(len, answers)
        seen.append(tuple(answers))
        return {"value": 0.5 if one == other else float(one > other), "model": "ruler-1"}

    made = spec(component("longer", "judge", better, relative="pairwise", range=(0, 1)))
    ranking = made.rank([{"answer": answer} for answer in ("bb", "a", "cc", "dddd")])
    grade = ranking.results[0].components["longer"]

    assert (0.5, 0.0, 0.5, 1.0) == ranking.values
    assert ({"model": "ruler-1", "won": 1, "tied": 1, "comparisons": 3}, True) == (
        grade.evidence,
        grade.relative,
    )
    assert (6, "ruler-1") == (len(seen), ranking.provenance["longer"].model)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (raising(ValueError("no")), "1 of 2 comparisons failed: ValueError: no"),
        (lambda: 2.0, "expected 0 to 1 for how much the first is better"),
        (lambda: float("nan"), "returned nan"),
    ],
)
def test_a_comparison_that_fails_fails_both(answer, said):
    """
    No member is ranked by fewer comparisons than others.
    """

    def better(answers):
        return answer() if "a" in answers and "b" in answers else 1.0

    made = spec(component("it", "judge", better, relative="pairwise"))
    results = made.rank([{"answer": one} for one in "abc"]).results

    assert ["error", "error", "ok"] == [one.status for one in results]
    assert said in results[0].error


def test_comparisons_that_abstain_are_left_out():
    """
    A member without comparisons has no value.
    """
    made = spec(
        component("it", "judge", lambda answers: None if "a" in answers else 1.0, relative="pairwise")
    )
    ranking = made.rank([{"answer": one} for one in "abc"])

    assert (None, 1.0, 0.0) == ranking.values
    assert "abstained" == ranking.results[0].status
    assert (None,) == made.rank([{"answer": "x"}]).values


def test_each_repeat_shows_another_order():
    """
    Orders differ between repeats and are in the provenance.
    """
    seen = []

    def first(answers):
        seen.append(tuple(answers))
        return [1.0] + [0.0] * (len(answers) - 1)

    made = spec(component("it", "judge", first, relative=True, repeats=5))
    for seed in (None, 7):
        seen.clear()
        ranking = made.rank(GROUP, seed=seed)
        source = ranking.provenance["it"]
        orders = [source.order, *source.repeats]

        assert seen == [tuple(GROUP[place]["answer"] for place in order) for order in orders]
        assert 1 < len(set(orders))
        assert pytest.approx(1.0) == sum(ranking.values)
        assert orders == [made.rank(GROUP, seed=seed).provenance["it"].order, *source.repeats]


def test_a_relative_judge_may_stand_in_an_included_spec(session):
    """
    It is called once for the group, with provenance under its path.
    """
    seen = []

    def judge(answers):
        seen.append(len(answers))
        return [float(len(answer)) for answer in answers]

    inner = mttp.RewardSpec(
        name="inner",
        version="1.0.0",
        combine="weighted_sum",
        components=[component("longest", "judge", judge, relative=True), component("neat", "rubric", 1.0)],
    )
    made = spec(
        component("clean", "check", lambda answer: "c" not in answer),
        include=[{"spec": inner, "as": "style", "version": "1.0.0"}],
    )
    ranking = made.rank(GROUP)
    with mttp.episode() as ep:
        ep.reward(ranking.results[0])

    assert (3.0, 2.0, 0.0, 5.0) == ranking.values
    assert ([3], (0, 1, 3)) == (seen, ranking.provenance["style.longest"].order)
    assert [True] * 4 == [result.relative for result in ranking.results]
    assert ["style.longest"] == list(mttp.read(session).episodes[0].reward.evidence)
    with pytest.raises(NeedsGroup, match=r"style\.longest compares"):
        made.score(answer="a")
    with pytest.raises(NeedsGroup, match="for_trl"):
        made.for_trl()
