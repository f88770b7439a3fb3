"""Labels of drawn episodes: rates over all candidates, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest

from mttp.model.draws import Label, label_rate, labels, preferences, weights
from mttp.model.episodes import Annotation

EPISODES = 400


def simulated(random: np.random.Generator, drawn: int, share: float) -> tuple[float, dict[str, Label]]:
    """
    Labels of a queue of the highest rewards with a share of random episodes, and the true rate.

    The higher the reward, the more likely is a label of 1.
    """
    reward = random.normal(size=EPISODES)
    truth = (random.random(EPISODES) < 1 / (1 + np.exp(-2 * reward))).astype(float)
    tail, pool = {*np.argsort(reward)[-80:].tolist()}, {*range(EPISODES)}
    found = {}
    for number in range(drawn):
        tailed = sorted(tail & pool)
        is_random = not tailed or random.random() < share
        episode = int(random.choice(sorted(pool) if is_random else tailed))
        targeted = (1 - share) * (episode in tail) / len(tailed) if tailed else 0.0
        probability = (share if tailed else 1.0) / len(pool) + targeted
        found[str(episode)] = Label(
            truth[episode],
            Annotation(
                episode=str(episode),
                selection="random" if is_random else "tail",
                selection_probability=probability,
                candidates=len(pool),
                revision=number,
            ),
        )
        pool.discard(episode)
    return float(truth.mean()), found


@pytest.mark.parametrize("drawn", [60, 200])
def test_a_rate_over_a_biased_queue_is_that_of_all_candidates(drawn: int) -> None:
    """
    The plain mean is far off; intervals hold the truth as often as they say.
    """
    random = np.random.default_rng(5)
    errors, plain, held = [], [], []
    for _ in range(200):
        truth, found = simulated(random, drawn, 0.3)
        rate = label_rate("score", "ada", found, weights(found))
        assert rate.mean is not None
        assert rate.interval is not None
        errors.append(rate.mean - truth)
        plain.append(np.mean([label.value for label in found.values()]) - truth)
        held.append(rate.interval[0] <= truth <= rate.interval[1])

    assert abs(np.mean(errors)) < 4 * np.std(errors) / len(errors) ** 0.5
    assert abs(np.mean(errors)) < 0.02
    assert np.mean(plain) > 0.1
    assert np.mean(held) > 0.92


def test_a_census_is_exact() -> None:
    """
    In whichever order all are drawn, the mean is that of all.
    """
    truth, found = simulated(np.random.default_rng(5), EPISODES, 0.3)
    rate = label_rate("score", "ada", found, weights(found))

    assert pytest.approx(truth) == rate.mean
    assert pytest.approx(EPISODES) == rate.effective


def chosen(value: float, selection: str | None, **facts: float) -> Label:
    return Label(value, Annotation(selection=selection, **facts))  # type: ignore[arg-type]


def test_random_draws_weigh_alike() -> None:
    """
    The rate is the plain one, with Wilson's interval of n.
    """
    found = {
        str(place): chosen(place % 2, "random", selection_probability=1 / (50 - place), candidates=50 - place)
        for place in range(10)
    }
    rate = label_rate("score", "ada", found, weights(found))

    assert (10, 0.5, {}) == (rate.labels, pytest.approx(rate.mean), rate.left_out)
    assert "labels of random episodes" == rate.method
    assert (pytest.approx(10), "Wilson, 95 %") == (rate.effective, rate.interval_method)


def test_labels_that_stand_for_no_rate_are_left_out_and_counted() -> None:
    """
    Those of tails without a probability, those by hand, and those of unknown choice beside known ones.
    """
    tails = {str(place): chosen(1.0, "tail", candidates=50) for place in range(3)}
    mixed = tails | {"r": chosen(0.0, "random"), "h": chosen(1.0, "hand"), "u": chosen(1.0, None)}
    of_tails = label_rate("score", "ada", tails, weights(tails))
    of_mixed = label_rate("score", "ada", mixed, weights(mixed))

    assert (0, {"tail": 3}, None, None) == (
        of_tails.labels,
        of_tails.left_out,
        of_tails.mean,
        of_tails.interval,
    )
    assert (1, {"tail": 3, "hand": 1, "unknown": 1}, 0.0) == (
        of_mixed.labels,
        of_mixed.left_out,
        of_mixed.mean,
    )


def test_labels_of_unknown_choice_count_alike() -> None:
    """
    Such as those of a table, which may have all episodes.
    """
    found = {"a": chosen(1.0, None), "b": chosen(0.5, None)}
    rate = label_rate("score", "ada", found, weights(found))

    assert (2, 0.75, {}) == (rate.labels, rate.mean, rate.left_out)
    assert "not recorded" in rate.method


def test_the_last_label_counts_and_keeps_its_draw() -> None:
    """
    One without a value withdraws those before it.
    """
    drawn = Annotation(episode="a", revision=1, selection="tail", selection_probability=0.1, candidates=9)
    later = Annotation(episode="a", revision=2, selection="hand")
    gone = Annotation(episode="a", revision=3)
    revised = labels([(later, 0.0), (drawn, 1.0)])

    assert {"a": Label(0.0, drawn)} == revised
    assert {} == labels([(drawn, 1.0), (gone, None), (later, 0.0)])


def test_a_preference_over_nothing_withdraws_earlier_ones() -> None:
    """
    Of the same person and episode only.
    """
    first = Annotation(kind="preference", episode="a", by="ada", rejected=("b",), revision=1)
    other = Annotation(kind="preference", episode="a", by="bob", rejected=("b",), revision=2)
    gone = Annotation(kind="preference", episode="a", by="ada", revision=3)
    last = Annotation(kind="preference", episode="a", by="ada", rejected=("c",), revision=4)

    assert [first, other] == preferences([other, first])
    assert [other, last] == preferences([first, other, gone, last])
