"""What a receiver gets of a session: what the transport lets it have, and the rest is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from projection import project
from specimen import EVERYTHING, episodes

import mttp
from mttp.codec.withholding import Withholding
from mttp.model.values import differences
from mttp.recording import configuration
from mttp.testing import OtlpReceiver

CONTENT = Withholding(content=True, max_elements=4096, max_episode_bytes=1024 * 1024)
NO_CONTENT = Withholding(content=False, max_elements=4096, max_episode_bytes=1024 * 1024)


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    """One that takes both protocols."""
    with OtlpReceiver() as opened:
        yield opened


def through(receiver: OtlpReceiver, address: str, value: mttp.Episode, **view: Any) -> tuple[Any, Any]:
    """The episode as memory and as the receiver has it."""
    with mttp.configure(["memory://", mttp.Route(address, profile="collector", **view)]) as session:
        recorded = session.record(value)
    kept = {episode.trace_id: episode for episode in mttp.read(session)}
    got = {episode.trace_id: episode for episode in mttp.read(receiver)}
    assert {} == dict(session.stats.lost)
    configuration.forget()
    return kept[recorded.trace_id], got[recorded.trace_id]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(("content", "withholding"), [(None, NO_CONTENT), (True, CONTENT)])
def test_the_specimen_arrives_as_its_projection(
    protocol: str, content: bool | None, withholding: Withholding, receiver: OtlpReceiver
) -> None:
    """
    Content is off unless it is asked for, and every omission is named.
    """
    address = receiver.http_address if protocol == "http" else receiver.grpc_address
    kept, got = through(receiver, address, EVERYTHING, content=content)

    assert [] == differences(project(kept, withholding), got)
    assert (content is None) == any("content is off" in omission for omission in got.omissions)
    shown = ("recorded_fault", "grading_failed", "total_includes_failed_component")
    assert [] == [finding for finding in mttp.check(receiver).all if finding.id not in shown]


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(episodes())
def test_any_episode_arrives_as_its_projection(receiver: OtlpReceiver, value: mttp.Episode) -> None:
    """
    Whatever it holds.
    """
    kept, got = through(receiver, receiver.http_address, value)

    assert [] == differences(project(kept, NO_CONTENT), got)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_long_tokens_stay_behind_and_their_counts_arrive(protocol: str, receiver: OtlpReceiver) -> None:
    """
    Beyond 4,096 elements, or a megabyte per episode.
    """
    long = mttp.Tokens(ids=np.arange(5000), logprobs=np.zeros(5000))
    short = mttp.Tokens(ids=np.arange(4000), logprobs=np.zeros(4000))
    steps = tuple(mttp.Step(index=index, tokens=long if index == 0 else short) for index in range(30))
    address = receiver.http_address if protocol == "http" else receiver.grpc_address
    kept, got = through(receiver, address, mttp.Episode(env="long", steps=steps), token_ids=True)

    assert [] == differences(project(kept, replace(NO_CONTENT, token_ids=True)), got)
    (first, second, *_, last) = got.steps
    assert (5000, None, 4000) == (first.tokens.count, first.tokens.ids, len(second.tokens.ids))
    assert "the limit is 4096" in first.tokens.omitted_reason
    assert "beyond the episode's 1048576" in last.tokens.omitted_reason


def test_a_hook_sees_content_of_its_own_route_only(receiver: OtlpReceiver) -> None:
    """
    Memory has the recorded values; the receiver has those of the hook, and the span records that.
    """

    def redact(key: str, value: Any) -> Any:
        return value.replace("secret", "***") if isinstance(value, str) else None

    value = mttp.Episode(env="e", steps=(mttp.Step(observation="my secret", action=[1, 2]),))
    kept, got = through(receiver, receiver.http_address, value, content=True, redact=redact)

    assert ("my secret", [1, 2]) == (kept.steps[0].observation, kept.steps[0].action)
    assert ("my ***", None) == (got.steps[0].observation, got.steps[0].action)
    assert {"mttp.observation.value: redacted", "mttp.action.value: redacted"} == set(got.steps[0].omissions)


def test_of_the_episodes_that_sampling_leaves_out_only_the_wanted_arrive() -> None:
    """
    Memory has them all; a rule keeps what went wrong, whole.
    """
    with OtlpReceiver() as receiver:
        sampling = mttp.Sampling(0.0, keep=["failure", "invalid_reward"])
        with mttp.configure(["memory://", receiver.http_address], sampling=sampling) as session:
            for outcome, reward in (("success", 1.0), ("failure", 0.0), ("success", float("nan"))):
                with mttp.episode(env="e", task=f"{outcome} {reward}") as episode:
                    with episode.step() as step:
                        step.reward(reward)
                    episode.end(outcome=outcome)
        got = {episode.task: episode for episode in mttp.read(receiver)}
        memory, collector = session.stats.transports.values()

    assert 3 == len(mttp.read(session))
    assert {"failure 0.0", "success nan"} == got.keys()
    assert all(episode.complete and episode.step_count == 1 for episode in got.values())
    assert (0, True) == (memory.sampled_out, collector.sampled_out >= 2)
    assert collector.recorded == collector.delivered


def test_steps_that_sampling_looks_at_are_packed() -> None:
    """
    Sampling decisions do not create the ids of steps.
    """
    with OtlpReceiver() as receiver:
        sampling = mttp.Sampling(0.0, keep=["failure"])
        with (
            mttp.configure(receiver.http_address, sampling=sampling, steps="packed"),
            mttp.episode() as episode,
        ):
            for number in range(5):
                with episode.step() as step:
                    step.reward(number)
            episode.end(outcome="failure")
        named = [record.name for record in receiver.records()]
        (found,) = mttp.read(receiver).episodes

    assert (1, 0) == (named.count("steps"), named.count("step"))
    assert (5, True) == (len(found.steps), found.complete)


def test_groups_are_chosen_as_a_whole() -> None:
    """
    Members of one group share its fate.
    """
    with OtlpReceiver() as receiver:
        with mttp.configure(receiver.http_address, sampling=0.5, run_id="r"):
            for number in range(120):
                with mttp.episode(env="e", group=f"g{number // 4}"):
                    pass
        groups: dict[str, int] = {}
        for episode in mttp.read(receiver):
            groups[str(episode.group)] = groups.get(str(episode.group), 0) + 1

    assert {4} == set(groups.values())
    assert 5 < len(groups) < 25


def test_roots_state_the_share_of_episodes_like_them() -> None:
    """
    All that a rule wants are there, chosen or not; of the others the ratio. Memory has all, and states none.
    """
    with OtlpReceiver() as receiver:
        sampling = mttp.Sampling(0.25, keep=["failure"])
        with mttp.configure([receiver.http_address, "memory://"], sampling=sampling, run_id="r") as session:
            for number in range(80):
                with mttp.episode(env="e", group=f"g{number}") as episode, episode.step() as step:
                    step.reward(1.0)
                    episode.end(outcome="success" if number % 4 else "failure")
            mttp.update(0, loss=1.0)
        got = mttp.read(receiver)
        states = {record.trace_state for record in receiver.records() if record.name != "episode e"}

    assert {("failure", 1.0), ("success", 0.25)} == {(one.outcome, one.sampling_share) for one in got}
    assert 20 == sum(one.outcome == "failure" for one in got)
    assert 5 < sum(one.outcome == "success" for one in got) < 25
    assert {""} == states
    assert {None} == {one.sampling_share for one in mttp.read(session)}


def test_an_episode_of_which_the_rules_have_not_seen_all_states_no_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    A chosen one is sent as it goes on, and its spans are held for the rules up to a limit.
    """
    monkeypatch.setattr("mttp.transports.pipeline.tail_sampler.HELD_BYTES", 10_000)
    with OtlpReceiver() as receiver:
        with mttp.configure(receiver.http_address, sampling=1.0) as session:
            for length in (1, 100):
                with mttp.episode(env=f"{length}", steps="spans") as episode:
                    for _ in range(length):
                        with episode.step() as step:
                            step.reward(1.0)
        got = {one.env: (one.complete, one.sampling_share) for one in mttp.read(receiver)}

    assert {"1": (True, 1.0), "100": (True, None)} == got
    assert 0 == session.stats.sampled_out


def test_a_sampler_of_the_environment_states_shares_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It has no rules, so that each share is the ratio.
    """
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    with OtlpReceiver() as receiver:
        with mttp.configure(receiver.http_address, run_id="r"):
            for number in range(40):
                with mttp.episode(env="e", group=f"g{number}"):
                    pass
        got = mttp.read(receiver)

    assert {0.5} == {one.sampling_share for one in got}
    assert 5 < len(got) < 35
