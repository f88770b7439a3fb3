"""Validation of specs against annotations of recorded episodes."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from rewards.factories import component, spec

import mttp
from mttp.model import Annotation
from mttp.rewards.validation import validate

ANSWERS = "11110000"
WORDS = ["good", "Pass", "correct", "bad", "bad", "fail", "wrong", "good"]


def paying(**fields):
    """A spec of a verifier that returns the answer as a number."""
    right = component("right", "verifier", lambda answer: float(answer), range=[0, 1])
    return spec(right, inputs={"answer": "string"}, combine="gated", **fields)


def recorded(answers=ANSWERS, **statements):
    """Episodes with these answers and annotations."""
    with mttp.configure(transport="memory://") as session:
        for place, answer in enumerate(answers):
            with mttp.episode(inputs={"answer": answer}, task=f"t{place}") as episode:
                pass
            for key, values in statements.items():
                if values[place] is not None:
                    state(episode, key, values[place])
    return mttp.read(session).episodes


def state(episode, key, value):
    """Add a person's annotation."""
    if key == "score":
        mttp.score(episode, value, grader="ada", grader_kind="human")
    else:
        mttp.annotate(episode, key, value, by="ada")


def test_labels_are_held_against_verdicts():
    """
    The measures equal those computed by hand.
    """
    (found,) = validate(recorded(label=WORDS), paying()).agreements

    assert ("label", "ada", "verdict", 8, 0) == (
        found.key,
        found.by,
        found.compared,
        found.episodes,
        found.left_out,
    )
    assert (6, 8) == (found.agreed, found.of)
    assert pytest.approx((0.75 - 0.5) / 0.5) == found.kappa
    assert pytest.approx(1 - 15 * 4 / (2 * 8 * 8)) == found.alpha
    assert found.tau_b is None


def test_scores_are_held_against_rewards():
    """
    By rank and on an interval scale; scores of 0 and 1 also against verdicts.
    """
    episodes = recorded("1100", score=[5.0, 4.0, 2.0, 2.0])
    (found,) = validate(episodes, paying()).agreements
    ratings = validate(recorded("1100", score=[1.0, 0.0, 0.0, 0.0]), paying()).agreements

    assert ("score", "ada", "reward", 4) == (found.key, found.by, found.compared, found.episodes)
    assert (4, 5) == (found.agreed, found.of)
    assert pytest.approx(4 / (4 * 5) ** 0.5) == found.tau_b
    assert ["reward", "verdict"] == [one.compared for one in ratings]
    assert (3, 4, pytest.approx(0.5)) == (ratings[1].agreed, ratings[1].of, ratings[1].kappa)


def test_labels_are_held_against_rewards_where_nothing_decides():
    """
    Without verdicts, pass counts as 1 and fail as 0.
    """
    grader = component("it", "rubric", lambda answer: float(answer) / 2, range=[0, 1])
    made = spec(grader, inputs={"answer": "string"})
    (found,) = validate(recorded(label=WORDS), made).agreements

    assert ("label", "reward", 8) == (found.key, found.compared, found.episodes)
    assert (pytest.approx(0.5), None) == (found.tau_b, found.kappa)


def test_what_the_spec_cannot_score_is_left_out_and_reported():
    """
    Errors are counted.
    """
    found = validate(recorded("1x10", outcome=["success", "failure", "success", "failure"]), paying())
    (one,) = found.agreements

    assert {"ok": 3, "error": 1} == dict(found.statuses)
    assert ["right: ValueError: could not convert string to float: 'x'"] == list(found.errors)
    assert (3, 1, 3) == (one.episodes, one.left_out, one.agreed)
    assert 2 / 3 == found.mean


def test_the_last_statement_of_a_rater_counts():
    """
    An earlier annotation is ignored.
    """
    with mttp.configure(transport="memory://") as session:
        for answer in "10":
            with mttp.episode(inputs={"answer": answer}) as episode:
                pass
            mttp.annotate(episode, "label", "bad", by="ada")
            mttp.annotate(episode, "label", "good" if answer == "1" else "bad", by="ada")
            mttp.annotate(episode, "label", "lengthy", by="bob")
    found = validate(mttp.read(session).episodes, paying())

    assert [("ada", 2, 2, 1.0, 1.0)] == [
        (one.by, one.agreed, one.of, one.kappa, one.alpha) for one in found.agreements
    ]
    assert {"lengthy": 2} == dict(found.unread_labels)


def test_there_is_no_measure_of_what_is_all_the_same():
    """
    Without variation the measures are None.
    """
    (label,) = validate(recorded("11", label=["good", "good"]), paying()).agreements
    (score,) = validate(recorded("11", score=[3.0, 3.0]), paying()).agreements
    nothing = validate(recorded("x", label=["good"]), paying()).agreements[0]

    assert (2, 2, None, None) == (label.agreed, label.of, label.kappa, label.alpha)
    assert (0, 0, None) == (score.agreed, score.of, score.tau_b)
    assert (0, 1, None, None) == (nothing.episodes, nothing.left_out, nothing.kappa, nothing.alpha)


def test_episodes_without_inputs_are_counted():
    """
    They can't be scored.
    """
    with mttp.configure(transport="memory://") as session, mttp.episode():
        pass
    found = validate(mttp.read(session).episodes, paying())

    assert (1, 0, None, ()) == (found.without_inputs, len(found.episodes), found.mean, found.agreements)


def test_repeats_show_what_is_unstable():
    """
    By episodes, whatever of the answer it is that differs.
    """
    answers = iter([0.0, 0.0, 1.0, 0.0])
    grader = component("it", "rubric", lambda answer: next(answers), range=[0, 1])
    unstable = validate(recorded("11"), spec(grader, inputs={"answer": "string"}), repeats=2).instability

    assert (2, 1, 2, 0.5) == (unstable.samples, unstable.unstable, unstable.repeats, unstable.rate)
    assert validate(recorded("11"), paying()).instability is None


@pytest.mark.parametrize("package", ["sklearn.metrics", "krippendorff", "scipy.stats"])
def test_a_missing_library_says_what_to_install(monkeypatch, package):
    """
    The extra that brings it.
    """
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(mttp.errors.MissingExtra, match=r"pip install 'mttp\[agreement\]'"):
        validate(recorded("10", label=["good", "bad"], score=[1.0, 2.0]), paying())


def labelled(*labels):
    """Episodes of which ada scored some, each with a score, and how and how likely it was chosen."""
    answers = "".join(answer for answer, *_ in labels)
    episodes = recorded(answers)
    found = []
    for place, (episode, (_, score, selection, probability)) in enumerate(zip(episodes, labels, strict=True)):
        annotation = Annotation(
            kind="score",
            key="score",
            value=score,
            by="ada",
            episode=episode.trace_id,
            revision=place,
            selection=selection,
            selection_probability=probability,
            candidates=None if probability is None else 100 - place,
        )
        found.append(replace(episode, annotations=(annotation,)))
    return found


def test_labels_of_drawn_episodes_are_weighted():
    """
    A label of an unlikely draw stands for more episodes; the number of those that are left out is given.
    """
    given = [
        *(("1", 1.0, "tail", 0.1) for _ in range(4)),
        *(("0", 1.0, "random", 0.0025) for _ in range(2)),
        ("0", 0.0, "random", 0.0025),
        *(("1", 0.0, "hand", None) for _ in range(3)),
        ("1", 0.0, None, None),
    ]
    found = validate(labelled(*given), paying())
    rewards, verdicts = found.agreements
    (rate,) = found.rates

    left_out = {"hand": 3, "unknown": 1}
    assert left_out == rate.left_out == rewards.left_out_by_selection == verdicts.left_out_by_selection
    assert (7, 7, 5, 7) == (rate.labels, verdicts.episodes, verdicts.agreed, verdicts.of)
    assert 0.3 < verdicts.share < 0.45  # unweighted it is 0.71
    assert 0.6 < rate.mean < 0.75
    assert rate.effective < 4
    assert (None, None, True) == (verdicts.alpha, rewards.alpha, rewards.tau_b is not None)


def test_labels_of_tails_alone_are_left_out():
    """
    No rate and no agreement is given for them.
    """
    found = validate(labelled(*[("1", 1.0, "tail", None), ("0", 0.0, "tail", None)]), paying())
    (rate,) = found.rates

    assert (0, {"tail": 2}, None) == (rate.labels, rate.left_out, rate.mean)
    assert [(0, 0, None, {"tail": 2})] == [
        (one.episodes, one.left_out, one.share, one.left_out_by_selection) for one in found.agreements
    ]


def test_a_score_without_a_value_withdraws_the_one_before():
    """
    By its grader, for its episode.
    """
    with mttp.configure(transport="memory://") as session:
        for answer in "10":
            with mttp.episode(inputs={"answer": answer}) as episode:
                pass
            mttp.score(episode, 1.0, grader="ada", grader_kind="human")
        mttp.score(episode, None, grader="ada", grader_kind="human")
    found = validate(mttp.read(session).episodes, paying())

    assert [1, 1] == [one.episodes for one in found.agreements]
