"""Groups whose members are compared."""

from __future__ import annotations

import hashlib

import pytest
from rewards.made import component, raising, spec

import mttp
from mttp.errors import NeedsGroup, SpecError

GROUP = [{"answer": answer} for answer in ("bb", "a", "ccc", "dddd")]


def lengths(answers):
    """The longest is best."""
    return {"scores": [float(len(answer)) for answer in answers], "model": "ruler-1", "prompt": "Measure."}


def ranked(*more, **fields):
    """A spec that compares lengths."""
    return spec(component("longest", "judge", lengths, relative=True, **fields), *more)


def test_a_relative_component_needs_a_group():
    """
    One sample alone can't be compared; the error says what to do.
    """
    with pytest.raises(NeedsGroup, match=r"longest compares the samples of a group; .* rank\(group\)"):
        ranked().score(answer="a")
    with pytest.raises(NeedsGroup):
        ranked().score_batch(GROUP)


def test_a_group_is_ranked():
    """
    The judge is asked once for all; each member has its own result.
    """
    ranking = ranked(component("clean", "check", lambda answer: "c" not in answer)).rank(GROUP)

    assert (2.0, 1.0, 0.0, 4.0) == ranking.values
    assert (3, 0, 1, 2) == ranking.order
    assert [(), (), ("clean",), ()] == [result.failed_checks for result in ranking.results]
    assert all(result.relative and result.components["longest"].relative for result in ranking.results)


def test_where_values_come_from_is_kept():
    """
    Whom the judge saw, in which order, by which model and prompt.
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
    The same seed gives the same order, and values go to whom they belong.
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
    Scores may come with explanations; provenance is the group's all the same.
    """

    def judge(answers):
        return [mttp.Score(1.0, explanation=f"{answer}?") for answer in answers]

    ranking = spec(component("it", "judge", judge, relative=True)).rank(GROUP[:2])

    assert ["bb?", "a?"] == [result.components["it"].explanation for result in ranking.results]
    assert None is ranking.provenance["it"].model


def test_a_judge_that_fails_leaves_no_winner():
    """
    Nobody is paid a zero for it.
    """
    ranking = spec(component("it", "judge", raising(ValueError("no")), relative=True)).rank(GROUP)

    assert ((None,) * 4, ()) == (ranking.values, ranking.order)


def test_nobody_can_t_be_ranked():
    """
    An empty group is a fault of the program.
    """
    with pytest.raises(SpecError, match="a group of nobody can't be ranked"):
        ranked().rank([])


def test_a_ranking_is_recorded_with_its_provenance(session):
    """
    Each member's reward says that it is relative, and what it was compared with.
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
    A summary has the means of the other components only.
    """
    made = ranked(component("short", "rubric", lambda answer: 1.0 / len(answer)))
    for group in (GROUP[:2], GROUP[2:]):
        for result in made.rank(group).results:
            with mttp.episode() as ep:
                ep.reward(result)

    graders = mttp.summarize(session).graders

    assert {"short"} == {one.component for one in graders if one.component and one.mean is not None}
