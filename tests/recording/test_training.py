"""Groups and updates: arguments, values and what is read back."""

from __future__ import annotations

import gc
import math
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specimen import int64s, names, optional, plain, texts

import mttp
from mttp.model.spans import SpanRecord
from mttp.model.values import differences
from mttp.recording import configuration, training

TRACES = [f"{number:032x}" for number in range(1, 9)]
trace_ids = st.integers(1, 2**128 - 1).map(lambda number: f"{number:032x}")
numbers = st.floats()


def play(reward: object = None, **facts: Any) -> mttp.recording.OpenEpisode:
    """Record an episode with this reward and return its handle."""
    with mttp.episode(env="toy", **facts) as episode:
        if reward is not None:
            episode.reward(reward)
    return episode


def spans(session: mttp.Session, name: str) -> list[SpanRecord]:
    """Return the spans of that name."""
    return [record for record in session.records() if record.name == name]


# Groups.


def test_a_group_is_recorded_with_its_last_member(session: mttp.Session):
    """
    It needs no call of `end`.
    """
    group = mttp.group(size=2)
    group.add(play(1.0))

    assert [] == spans(session, "group")
    group.add(play(0.0))
    assert ([1.0, 0.0], True) == (spans(session, "group")[0].attributes["mttp.group.rewards"], group.ended)


def test_a_group_is_read_as_it_was_recorded(session: mttp.Session):
    """
    The handle's value and the recording's are equal.
    """
    with mttp.group(
        "g1", metrics={"spread": 1.0}, metadata={"pass": [1, None]}, normalization="mean"
    ) as group:
        for reward in (1.0, 0.5, math.nan):
            group.add(play(reward, task="train/17"))
        group.metric("late", 2)

    (found,) = mttp.read(session).groups

    assert [] == differences(group.value, found)
    assert ("g1", 3, 2, 0.75, "train/17", "toy") == (
        found.id,
        found.size,
        found.valid_count,
        found.reward_mean,
        found.task,
        found.env,
    )
    assert (0.25, -0.25) == found.advantages[:2]
    assert {"spread": 1.0, "late": 2.0} == found.metrics
    assert (group.span_id, group.value.start_time) == (found.span_id, found.start_time)


def test_members_are_handles_values_or_trace_ids(session: mttp.Session):
    """
    For a trace id the reward must be given.
    """
    handle = play(1.0)
    value = mttp.Episode(trace_id=TRACES[1], reward=mttp.Reward(value=0.5), return_=0.25)
    summed = mttp.Episode(trace_id=TRACES[2], return_=0.25)

    group = mttp.group("g", [handle, value, summed, TRACES[3].upper(), TRACES[4]], rewards=[None] * 4 + [2])

    assert (handle.trace_id, *TRACES[1:5]) == group.value.episodes
    np.testing.assert_equal((1.0, 0.5, 0.25, math.nan, 2.0), group.value.rewards)


def test_a_member_s_reward_may_come_after_it_was_added(session: mttp.Session):
    """
    The reward at the time of recording counts.
    """
    with mttp.group() as group, mttp.episode() as episode:
        group.add(episode)
        episode.reward(0.5)

    assert (0.5,) == group.value.rewards


def test_the_group_id_is_that_of_the_members(session: mttp.Session):
    """
    If they differ, the group gets a new id.
    """
    agreed = mttp.group(None, [play(group="a"), play(group="a")])
    mixed = mttp.group(None, [play(group="a"), play(group="b")])
    unnamed = mttp.group(None, [play(), TRACES[0]])

    assert "a" == agreed.id == agreed.value.id
    assert 3 == len({agreed.id, mixed.id, unnamed.id})
    assert 16 == len(mixed.id) == len(unnamed.id)


def test_a_group_s_handle_can_be_given_to_an_episode(session: mttp.Session):
    """
    `group=group` records its id.
    """
    with mttp.group() as group:
        member = play(group=group)
        group.add(member)

    assert member.group == group.id == mttp.read(session).groups[0].id


def test_a_group_s_block_does_not_change_the_context(session: mttp.Session):
    """
    Its span has no children, and no episode is linked to it.
    """
    with mttp.group() as group:
        group.add(play())

    (root,) = [record for record in session.records() if record.name == "episode toy"]
    assert ("", []) == (root.parent_id, list(root.links))


def test_stated_advantages_are_kept(session: mttp.Session):
    """
    NaN is kept, too, because the trainer used it.
    """
    group = mttp.group(
        "g", TRACES[:3], rewards=np.array([1.0, 0.0, 0.5]), advantages=np.array([2.0, np.nan, -2])
    )

    np.testing.assert_equal((2.0, math.nan, -2.0), group.value.advantages)


def test_the_batch_s_deviation_is_not_computed(session: mttp.Session):
    """
    The group's rewards are not enough.
    """
    unknown = mttp.group("a", TRACES[:2], rewards=[1, 0], scope="batch", normalization="mean_std").value
    group = mttp.group(
        "b", TRACES[:2], rewards=[1, 0], scope="batch", normalization="mean_std", reward_std=0.25
    ).value

    assert (None, [True, True]) == (unknown.reward_std, [math.isnan(x) for x in unknown.advantages])
    assert (0.25, pytest.approx((0.5 / 0.2501, -0.5 / 0.2501))) == (group.reward_std, group.advantages)


def test_without_a_scope_advantages_are_not_scaled(session: mttp.Session):
    """
    With TRL's `scale_rewards="none"` the deviation is recorded and not used.
    """
    found = mttp.group("a", TRACES[:2], rewards=[1, 0], scope="none", normalization="mean_std").value

    assert ((0.5, -0.5), math.sqrt(0.5)) == (found.advantages, pytest.approx(found.reward_std))


def test_an_empty_group_is_recorded(session: mttp.Session):
    """
    It has no statistics.
    """
    mttp.group("g", [])
    with mttp.group("h"):
        pass

    found = mttp.read(session)
    assert [("g", 0, (), None, None), ("h", 0, (), None, None)] == [
        (group.id, group.size, group.episodes, group.reward_mean, group.reward_std) for group in found.groups
    ]
    assert ({}, []) == (dict(session.stats.faults), found.problems)


def test_an_open_group_is_recorded_when_its_session_closes():
    """
    It has its current members, and the fault group_incomplete.
    """
    with mttp.configure("memory://") as session:
        sized, unsized = mttp.group("a", size=4), mttp.group("b")
        for group in (sized, unsized):
            group.add(play(1.0))

    found = {group.id: group for group in mttp.read(session).groups}

    assert (4, 1, ("group_incomplete: 1 of 4",)) == (
        found["a"].size,
        len(found["a"].episodes),
        found["a"].faults,
    )
    assert (1, ("group_incomplete: it was not ended",)) == (found["b"].size, found["b"].faults)
    assert {"group_incomplete": 2} == dict(session.stats.faults)


@pytest.mark.parametrize("failed_at", [0, 1, 2])
def test_a_group_is_complete_with_the_members_that_failed(session: mttp.Session, failed_at: int):
    """
    Their handles may be lost with the exception; they have no valid reward, and adding them changes nothing.
    """
    group = mttp.group(size=3, normalization="mean")
    for place in range(3):
        try:
            with mttp.episode(group=group) as episode:
                if place == failed_at:
                    lost = episode
                    raise ConnectionError("gone")
                episode.reward(float(place))
            group.add(episode)
        except ConnectionError:
            pass

    assert group.ended
    group.add(lost)
    group.end()
    (found,) = mttp.read(session).groups
    assert (3, 2, lost.trace_id) == (found.size, found.valid_count, found.episodes[failed_at])
    assert ({}, ()) == (dict(session.stats.faults), found.faults)


def test_a_member_that_failed_may_be_added_with_a_reward_while_the_group_is_open(session: mttp.Session):
    """
    Whether the group is stated by its id or its handle; episodes of other groups stay where they are.
    """
    group = mttp.group("g", size=3)
    for name in ("g", "other"):
        with pytest.raises(ZeroDivisionError), mttp.episode(group=name) as episode:
            raise ZeroDivisionError
        if name == "g":
            group.add(episode, reward=-1.0)
    group.end()

    assert (-1.0,) == group.value.rewards
    assert ("group_incomplete: 1 of 3",) == group.value.faults


def test_a_group_whose_block_raises_is_recorded(session: mttp.Session):
    """
    It has its current members, and the exception is raised.
    """
    group = mttp.group("g", size=3)
    group.add(play(1.0))
    with pytest.raises(ZeroDivisionError), group:
        raise ZeroDivisionError

    assert (("group_incomplete: 1 of 3",), group.value) == (group.value.faults, mttp.read(session).groups[0])


def test_a_recorded_group_is_freed():
    """
    A long run keeps only open groups, and no recorded episodes of them.
    """
    with mttp.configure("memory://"):
        group = mttp.group(size=2)
        member = play(1.0)
        episode = weakref.ref(member)
        group.add(member)
        group.add(play(1.0))
        handle = weakref.ref(group)
        kept = group
        del member, group
        gc.collect()

        assert (None, True) == (episode(), handle() is kept)
        del kept
        gc.collect()
        assert handle() is None


def test_threads_can_add_members(session: mttp.Session):
    """
    Each counts once, and the group is recorded once.
    """
    group = mttp.group(size=32)
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for _ in range(4):
            group.add(play(1.0))

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    (found,) = mttp.read(session).groups
    assert (32, 32, {}) == (len(set(found.episodes)), found.valid_count, dict(session.stats.faults))


class Hostile:
    """An object that raises at every access."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("str")


@pytest.mark.parametrize(
    ("say", "fault"),
    [
        (lambda: mttp.group("g", TRACES[:2], size="many"), "size_invalid: 'many'"),
        (lambda: mttp.group("g", TRACES[:2], size=-1), "size_invalid: -1"),
        (lambda: mttp.group("g", TRACES[:2], size=1), "size_invalid: 1 for 2 episodes"),
        (lambda: mttp.group("g", TRACES[:2], size=3), "group_incomplete: 2 of 3"),
        (lambda: mttp.group("g", TRACES[:2], ddof=2), "ddof_invalid: 2"),
        (lambda: mttp.group("g", TRACES[:2], scope="grp"), "scope_unknown: grp"),
        (lambda: mttp.group("g", TRACES[:2], normalization="z"), "normalization_unknown: z"),
        (lambda: mttp.group("g", TRACES[:2], rewards=[1]), "rewards_unaligned: 1 for 2 members"),
        (lambda: mttp.group("g", TRACES[:2], advantages=[1]), "advantages_unaligned: 1 for 2 members"),
        (lambda: mttp.group("g", TRACES[:2], rewards=3.0), "rewards_invalid: 3.0 is not a list"),
        (lambda: mttp.group("g", TRACES[:2], rewards=["a", 1]), f"reward_invalid: 'a' of {TRACES[0]}"),
        (lambda: mttp.group("g", TRACES[:2], rewards=[math.nan, 1]), f"reward_invalid: nan of {TRACES[0]}"),
        (lambda: mttp.group("g", TRACES[:2], advantages=["a", 1]), f"advantage_invalid: 'a' of {TRACES[0]}"),
        (lambda: mttp.group("g", TRACES[:2], reward_mean="x"), "reward_mean_invalid: 'x'"),
        (
            lambda: mttp.group("g", [*TRACES[:2], TRACES[0]]),
            f"member_invalid: {TRACES[0]} is already a member",
        ),
        (lambda: mttp.group("g", [*TRACES[:2], (TRACES[2], 0)]), f"member_invalid: {TRACES[2]} is a step"),
        (
            lambda: mttp.group("g", [*TRACES[:2], "xyz"]),
            "target_invalid: 'xyz' is not an id of 32 hexadecimal digits",
        ),
        (
            lambda: mttp.group("g", [*TRACES[:2], None]),
            "target_invalid: None is not a recorded episode or step, or a trace id",
        ),
        (lambda: mttp.group("g", TRACES[:2], metrics={"a": "b"}), "metric_invalid: a is 'b'"),
        (lambda: mttp.group("g", TRACES[:2], metrics=3), "metrics_invalid: 3 is not a mapping"),
        (lambda: mttp.group("g", TRACES[:2], metadata="a"), "metadata_invalid: 'a' is not a mapping"),
        (lambda: mttp.group("g", TRACES[:2], ddof=np.zeros(2)), "ddof_invalid: array([0., 0.])"),
    ],
)
def test_an_invalid_argument_of_a_group_is_a_fault(
    session: mttp.Session, say: Callable[[], object], fault: str
):
    """
    The fault is counted and on the span, and the members are recorded.
    """
    say()

    (found,) = mttp.read(session).groups
    assert ((fault,), tuple(TRACES[:2])) == (found.faults, found.episodes)
    assert {fault.partition(":")[0]: 1} == dict(session.stats.faults)


def test_unaligned_numbers_of_a_group_are_kept(session: mttp.Session):
    """
    They give the group's statistics, and no member gets an advantage from them.
    """
    mttp.group("g", TRACES[:2], rewards=[1.0, 0.0, 0.5], normalization="mean")

    (found,) = mttp.read(session).groups
    assert ((1.0, 0.0, 0.5), 0.5, ()) == (found.rewards, found.reward_mean, found.advantages)


def test_hostile_arguments_are_faults(session: mttp.Session):
    """
    Objects that raise at every access never reach the trainer.
    """
    mttp.group(Hostile(), [Hostile()], rewards=Hostile(), metrics=Hostile())
    mttp.group("g").add(Hostile(), Hostile(), Hostile())
    mttp.update(Hostile(), loss=Hostile(), groups=Hostile(), lag=Hostile(), discarded=Hostile())
    mttp.update(groups=[Hostile()], episodes=[Hostile()], discarded={"x": Hostile()}, metadata=Hostile())

    assert session.stats.faults


def test_a_member_after_a_group_s_end_is_a_fault(session: mttp.Session):
    """
    The group is recorded once, however often it is ended.
    """
    group = mttp.group("g", TRACES[:2])
    group.add(TRACES[2])
    group.end()

    assert ({"after_end": 1}, 1) == (dict(session.stats.faults), len(mttp.read(session).groups))


def test_without_a_session_groups_and_updates_do_nothing():
    """
    The handle is false and accepts every call; values are empty.
    """
    mttp.configure("memory://").close()
    with mttp.group("g", size=1) as group:
        group.add("x")
        group.metric("a", 1)

    assert (False, "", mttp.model.Group(), mttp.model.Update()) == (
        bool(group),
        group.id,
        group.value,
        mttp.update(3),
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_record_its_parent_s_groups(tmp_path: Path):
    """
    The parent records them once.
    """
    with mttp.configure("file://runs/") as session:
        group = mttp.group("g", size=2)
        group.add(TRACES[0])
        pid = os.fork()
        if pid == 0:
            mttp.group("child", TRACES[:1])
            session.close()
            os._exit(0)
        os.waitpid(pid, 0)
        group.add(TRACES[1])

    assert ["child", "g"] == sorted(group.id for group in mttp.read("runs/").groups)


# Updates.


def test_an_update_is_read_as_it_was_recorded(session: mttp.Session):
    """
    This holds for every fact of an update.
    """
    group = mttp.group("g1", TRACES[:2], rewards=[1, 0])
    update = mttp.update(
        7,
        loss=math.nan,
        kl=0.1,
        entropy=0.2,
        grad_norm=math.inf,
        learning_rate=np.float32(0.5),
        clip_fraction=0,
        policy_loss=-0.1,
        value_loss=np.float64(3),
        explained_variance=-math.inf,
        policy_version_before=7,
        policy_version_after="8",
        groups=[group, "g2"],
        episodes=TRACES[2:4],
        discarded={"too long": TRACES[4:6], "stale": 3},
        consumed=9,
        lag=(0, 1.5, 4),
        sampled_versions=(5, 7),
        policy="main",
        metrics={"tokens/s": 10},
        metadata={"host": "a"},
        start_time=1_000,
        end_time=2_000,
    )

    (found,) = mttp.read(session).updates

    assert [] == differences(update, found)
    assert (7, "7", "8", "main", ("5", "7")) == (
        found.index,
        found.policy_version_before,
        found.policy_version_after,
        found.policy,
        found.sampled_versions,
    )
    np.testing.assert_equal(
        (math.nan, 0.1, 0.2, math.inf, 0.5, 0.0),
        (found.loss, found.kl, found.entropy, found.grad_norm, found.learning_rate, found.clip_fraction),
    )
    assert (-0.1, 3.0, -math.inf) == (found.policy_loss, found.value_loss, found.explained_variance)
    assert (("g1", "g2"), tuple(TRACES[2:4]), 9) == (found.groups, found.episodes, found.consumed)
    assert {"too_long": 2, "stale": 3} == found.discarded
    assert {"too_long": tuple(TRACES[4:6])} == found.discarded_episodes
    assert (0, 1.5, 4) == (found.lag_min, found.lag_mean, found.lag_max)
    assert ({"tokens_s": 10.0}, {"host": "a"}) == (found.metrics, found.metadata)
    assert (1_000, 2_000, ()) == (found.start_time, found.end_time, found.faults)


def test_an_update_links_its_episodes_and_groups(session: mttp.Session):
    """
    A marker has at most 100 links, which name the group or the discard reason.
    """
    episodes = [play() for _ in range(203)]
    group = mttp.group("g", episodes[:2])
    mttp.update(
        groups=[group, "elsewhere"], episodes=[*episodes[2:], TRACES[0]], discarded={"stale": episodes[:1]}
    )

    markers = spans(session, "update.links")
    links = [list(marker.links) for marker in markers]

    assert [1, 100, 100, 1, 1] == [len(found) for found in links]
    assert (group.span_id, {"mttp.group.id": "g"}) == (links[0][0].span_id, dict(links[0][0].attributes))
    assert (episodes[2].trace_id, episodes[2].span_id, {}) == (
        links[1][0].trace_id,
        links[1][0].span_id,
        dict(links[1][0].attributes),
    )
    assert {"mttp.update.discard_reason": "stale"} == dict(links[4][0].attributes)
    assert {spans(session, "update")[0].span_id} == {marker.parent_id for marker in markers}
    assert 202 == len(mttp.read(session).updates[0].episodes)


def test_the_default_index_counts_by_policy(session: mttp.Session):
    """
    It is one more than the policy's last index in this run.
    """
    indices = [
        mttp.update(index, policy=policy).index for index, policy in ((None, None), (None, "b"), (7, None))
    ]
    indices += [mttp.update().index, mttp.update(policy="b").index]

    assert [0, 0, 7, 8, 1] == indices


def test_the_lag_is_computed_from_policy_update_index(session: mttp.Session):
    """
    Episodes of the preceding update's policy have lag 0; discarded ones do not count.
    """
    group = mttp.group("g", [play(policy_update_index=9), play(policy_update_index=7)])
    old = play(policy_update_index=1)
    found = mttp.update(10, groups=[group], episodes=[old], discarded={"stale": [old]})

    assert (0, 1.0, 2) == (found.lag_min, found.lag_mean, found.lag_max)
    assert mttp.update(3, groups=[group]).lag_min is None, "a policy can't learn from later versions"


@pytest.mark.parametrize(
    ("lag", "expected"),
    [
        ([0, 1, 4], (0, 5 / 3, 4)),
        ((0, 1, 4), (0, 1.0, 4)),
        ((4, 1, 0), (0, 5 / 3, 4)),
        (np.array([2, 2]), (2, 2.0, 2)),
        ([], (None, None, None)),
    ],
)
def test_a_lag_is_a_list_or_a_summary(session: mttp.Session, lag: Any, expected: tuple[Any, ...]):
    """
    A tuple (min, mean, max) is recorded unchanged; any other sequence has one lag per episode.
    """
    found = mttp.update(lag=lag)

    assert expected == (found.lag_min, found.lag_mean, found.lag_max)


def test_consumed_counts_episodes_once_without_discarded_ones(session: mttp.Session):
    """
    A stated number has precedence; with unknown members there is none.
    """
    group = mttp.group("g", TRACES[:3])

    assert 4 == mttp.update(groups=group, episodes=TRACES[2:5], discarded={"stale": TRACES[4:5]}).consumed
    assert 2 == mttp.update(groups=[group.value], discarded={"stale": TRACES[:1]}).consumed
    assert (None, None) == (mttp.update(groups=["g"]).consumed, mttp.update().consumed)


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({"index": -1}, "index_invalid: -1"),
        ({"index": "a"}, "index_invalid: 'a'"),
        ({"index": 2**63}, f"index_invalid: {2**63}"),
        ({"loss": "low"}, "loss_invalid: 'low'"),
        ({"lag": "old"}, "lag_invalid: 'old' is not a list"),
        ({"lag": [1, math.nan]}, "lag_invalid: [1, nan]"),
        ({"consumed": -3}, "consumed_invalid: -3"),
        ({"groups": 3}, "groups_invalid: 3 is not a list"),
        ({"groups": [mttp.model.Group()]}, "group_invalid: the group was not recorded"),
        ({"episodes": ["x"]}, "target_invalid: 'x' is not an id of 32 hexadecimal digits"),
        ({"episodes": [(TRACES[0], 1)]}, f"target_invalid: a step of {TRACES[0]} is not an episode"),
        ({"discarded": [1]}, "discarded_invalid: [1] is not a mapping"),
        ({"discarded": {"stale": -1}}, "discarded_invalid: stale is -1"),
        ({"discarded": {"stale": 1.5}}, "discarded_invalid: stale is 1.5"),
        ({"sampled_versions": (1, 2, 3)}, "sampled_versions_invalid: (1, 2, 3) is not (oldest, newest)"),
        ({"metrics": {"a": None}}, "metric_invalid: a is None"),
        ({"metrics": 3}, "metrics_invalid: 3 is not a mapping"),
        ({"metadata": ["a"]}, "metadata_invalid: ['a'] is not a mapping"),
        ({"start_time": 5, "end_time": 4}, "time_invalid: the end is before the start"),
        ({"start_time": "now"}, "time_invalid: 'now'"),
    ],
)
def test_an_invalid_argument_of_an_update_is_a_fault(
    session: mttp.Session, facts: dict[str, Any], fault: str
):
    """
    The fault is counted and on the span, and the rest is recorded.
    """
    mttp.update(**{"policy_version_after": "next", **facts})

    (found,) = mttp.read(session).updates
    assert ((fault,), 0, "next") == (found.faults, found.index, found.policy_version_after)
    assert {fault.partition(":")[0]: 1} == dict(session.stats.faults)


def test_what_a_trainer_logs_is_recorded_under_any_name(session: mttp.Session):
    """
    Usual names of fields are the fields, other numbers metrics, and other values metadata.
    """
    usual = {"approx_kl": 0.25, "clipfrac": np.float32(0.5), "lr": np.array([3e-4]), "explained_var": 0.75}
    losses = {"losses/value_loss": 2.0, "train/policy_gradient_loss": -0.5, "v_loss": 3.0, "Loss": 1.0}
    mttp.update(7, **usual, **losses, kl=0.125, SPS=900, sampler="random", absent=None, sizes=[1, 2])

    (found,) = mttp.read(session).updates
    assert (7, 0.125, 0.5, 3e-4, 0.75) == (
        found.index,
        found.kl,
        found.clip_fraction,
        found.learning_rate,
        found.explained_variance,
    )
    assert (2.0, -0.5, 1.0) == (found.value_loss, found.policy_loss, found.loss)
    assert {"approx_kl": 0.25, "v_loss": 3.0, "sps": 900.0} == found.metrics
    assert {"sampler": "random", "sizes": [1, 2]} == found.metadata
    assert {} == session.stats.faults


def test_a_logged_value_that_no_field_can_hold_is_a_fault(session: mttp.Session):
    """
    It costs only itself, as do names that differ only in their signs.
    """
    mttp.update(approx_kl="much", lr=0.5, **{"a/b": 1.0, "a_b": 2.0, "": 3.0})

    (found,) = mttp.read(session).updates
    assert (None, 0.5, {"a_b": 1.0}) == (found.kl, found.learning_rate, found.metrics)
    assert {"kl_invalid": 1, "name_collision": 2} == session.stats.faults


# Round trips.


@st.composite
def groups(draw: st.DrawFn) -> dict[str, Any]:
    """Strategy for valid arguments of a group."""
    members = draw(st.lists(trace_ids, max_size=6, unique=True))
    floats = st.lists(
        st.floats(allow_nan=False, allow_infinity=False), min_size=len(members), max_size=len(members)
    )
    advantages = st.lists(numbers, min_size=len(members), max_size=len(members))
    return {
        "id": draw(texts.filter(bool)),
        "episodes": members,
        "rewards": draw(floats),
        "advantages": draw(optional(advantages)),
        "ddof": draw(st.sampled_from([0, 1])),
        "scope": draw(st.sampled_from(["group", "batch", "none"])),
        "normalization": draw(optional(st.sampled_from(["none", "mean", "mean_std", "leave_one_out"]))),
        "reward_mean": draw(optional(numbers)),
        "reward_std": draw(optional(numbers)),
        "task": draw(optional(texts.filter(bool))),
        "metrics": draw(st.dictionaries(names, numbers, max_size=3)),
        "metadata": draw(st.dictionaries(names, plain, max_size=3)),
    }


@st.composite
def updates(draw: st.DrawFn) -> dict[str, Any]:
    """Strategy for valid arguments of an update."""
    figures = ("loss", "kl", "entropy", "grad_norm", "learning_rate", "clip_fraction")
    figures += ("policy_loss", "value_loss", "explained_variance")
    lags = st.lists(st.integers(0, 2**40), min_size=1, max_size=4)
    return {
        "index": draw(int64s.filter(lambda number: number >= 0)),
        **{name: draw(optional(numbers)) for name in figures},
        "policy_version_before": draw(optional(texts)),
        "policy_version_after": draw(optional(texts)),
        "groups": draw(st.lists(texts, max_size=3)),
        "episodes": draw(st.lists(trace_ids, max_size=3)),
        "discarded": draw(
            st.dictionaries(names, st.integers(0, 2**62) | st.lists(trace_ids, max_size=3), max_size=3)
        ),
        "consumed": draw(optional(st.integers(0, 2**62))),
        "lag": draw(optional(lags)),
        "sampled_versions": draw(optional(st.tuples(texts, texts))),
        "policy": draw(optional(texts)),
        "metrics": draw(st.dictionaries(names, numbers, max_size=3)),
        "metadata": draw(st.dictionaries(names, plain, max_size=3)),
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(groups(), updates())
def test_groups_and_updates_round_trip_through_memory_and_file(
    of_group: dict[str, Any], of_update: dict[str, Any]
):
    """
    Groups and updates without faults are read back equal.
    """
    with TemporaryDirectory() as directory:
        for transport in ("memory://", f"file://{directory}/a.jsonl", f"file://{directory}/a.jsonl.gz"):
            with mttp.configure(transport) as session:
                group, update = mttp.group(**of_group).value, mttp.update(**of_update)
            found = mttp.read(session if transport == "memory://" else transport)
            configuration.forget()

            assert {} == dict(session.stats.faults)
            assert ([], []) == (differences(group, found.groups[0]), differences(update, found.updates[0]))


def test_update_indices_continue_in_a_resumed_run():
    """
    A later session of the same run continues the count.
    """
    for expected in (0, 1):
        with mttp.configure("memory://", run_id="one-and-the-same"):
            assert expected == mttp.update().index
    training._last.clear()
