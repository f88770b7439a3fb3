"""Recorded functions: rollouts as episodes, and reward functions."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import math
import pickle
from typing import Any

import pytest
from integrations.specimen import (
    COMPLETIONS,
    PLAYS,
    Completion,
    Play,
    completed,
    encode,
    only,
    pay,
    started,
    told,
)

import mttp
from mttp.errors import InstrumentError


class Bonus:
    """A callable object with a reward of its own."""

    def __init__(self, amount: float) -> None:
        self.amount = amount

    def __call__(self) -> float:
        return self.amount


class Player:
    """A class with recorded methods."""

    def __init__(self, skill: float) -> None:
        self.skill = skill

    @mttp.instrument(records="reward")
    def judge(self) -> float:
        return self.skill

    @staticmethod
    @mttp.instrument(records="reward")
    def even() -> float:
        return 0.5


def play(found: Play) -> float:
    """Record a play by hand."""
    for turn in found.turns:
        with mttp.step() as step:
            step.observation(turn.observation)
            step.action(turn.action)
            step.reward(turn.reward)
            step.end(terminated=turn.terminated, truncated=turn.truncated)
    mttp.current_episode().final_observation(found.last)
    return found.total


@mttp.instrument(records="reward")
def exact(answer: str, expected: str) -> float | None:
    """Return whether two values are equal; abstain for an empty one."""
    return float(answer == expected) if answer else None


def test_a_call_of_a_rollout_is_an_episode(session: mttp.Session) -> None:
    """
    The shared plays read back, from any loop.
    """
    rollout = mttp.instrument(play, inputs=False, policy="p")

    assert [found.total for found in PLAYS] == [rollout(found) for found in PLAYS]

    episodes = started(session)
    assert list(PLAYS) == [told(episode) for episode in episodes]
    assert {("play", "p", "completed")} == {(e.env, e.policy, e.status) for e in episodes}


def test_completions_of_a_rollout(session: mttp.Session) -> None:
    """
    The shared completions and their rewards read back, from a loop of one's own.
    """
    scored = mttp.instrument(pay, records="reward")

    @mttp.instrument(records="episode")
    def rollout(found: Completion) -> None:
        with mttp.step() as step:
            step.observation(found.prompt)
            step.action(found.text)
            step.tokens(encode(found), prompt_ids=[*map(ord, found.prompt)], logprobs=found.logprobs)
            step.end(terminated=found.ended, truncated=not found.ended)
        scored(found.prompt, found.text)

    for found in COMPLETIONS:
        rollout(found)

    assert list(COMPLETIONS) == [completed(episode) for episode in started(session)]


def test_arguments_are_the_episode_s_inputs(session: mttp.Session) -> None:
    """
    By name; task and group may be functions of them.
    """

    def rollout(prompt: str, *, answer: str = "4") -> None:
        """Play."""

    recorded = mttp.instrument(
        rollout, env="toy", task=lambda prompt, **_: f"task/{prompt}", group=lambda *_, **__: "g1"
    )
    recorded("2+2=?", answer="5")

    episode = only(session)
    assert ("toy", "task/2+2=?", "g1") == (episode.env, episode.task, episode.group)
    assert {"prompt": "2+2=?", "answer": "5"} == episode.inputs


def test_a_rollout_looks_like_the_original() -> None:
    """
    Name, docstring and signature stay; it can be pickled if the original can.
    """
    assert ("exact", True) == (exact.__name__, "abstain for an empty" in (exact.__doc__ or ""))
    assert ["answer", "expected"] == list(inspect.signature(exact).parameters)
    assert exact is pickle.loads(pickle.dumps(exact))


def test_a_reward_is_recorded_on_the_current_step_or_episode(session: mttp.Session) -> None:
    """
    The function's name is the grader; None is an abstention, not zero.
    """

    @mttp.instrument
    def rollout() -> None:
        with mttp.step():
            exact("4", "4")
        exact("", "4")

    rollout()

    episode = only(session)
    assert (1.0, "exact") == (episode.steps[0].reward, episode.steps[0].rewards[0].grader)
    assert ("abstained", None, "exact") == (
        episode.reward.status,
        episode.reward.value,
        episode.reward.grader,
    )


def test_without_records_a_call_inside_an_episode_is_a_reward(session: mttp.Session) -> None:
    """
    And a call outside an episode is an episode.
    """
    scored = mttp.instrument(lambda: 0.5)

    @mttp.instrument(records="episode")
    def rollout() -> float:
        return scored()

    assert 0.5 == rollout()

    assert 0.5 == only(session).return_


def test_a_reward_for_an_episode_in_the_arguments(session: mttp.Session) -> None:
    """
    An ended episode gets a later score.
    """

    @mttp.instrument(records="reward")
    def judge(episode: mttp.recording.OpenEpisode) -> float:
        return 0.25

    @mttp.instrument(records="reward")
    def batch(episodes: list[mttp.recording.OpenEpisode], scale: float) -> list[float]:
        return [scale * position for position, _ in enumerate(episodes)]

    episodes = []
    for _ in range(2):
        with mttp.episode() as episode:
            pass
        episodes.append(episode)
    judge(episodes[0])
    batch(episodes, scale=2.0)

    scores = [{name: scoring.value for name, scoring in e.scores.items()} for e in started(session)]
    assert [{"judge": 0.25, "batch": 0.0}, {"batch": 2.0}] == scores


def test_a_reward_without_an_episode_is_counted(session: mttp.Session) -> None:
    """
    The caller gets the result all the same.
    """
    assert 1.0 == exact("4", "4")

    assert {"reward_without_episode": 1} == dict(session.stats.faults)
    assert [] == mttp.read(session).episodes


def test_a_wrong_number_of_rewards_is_counted(session: mttp.Session) -> None:
    """
    No episode gets a reward then.
    """
    with mttp.episode() as one, mttp.episode() as other:
        assert [1.0] == mttp.instrument(lambda _: [1.0], records="reward")([one, other])

    assert {"rewards_unaligned": 1} == dict(session.stats.faults)


def test_a_function_that_raises_ends_in_error(session: mttp.Session) -> None:
    """
    The exception propagates; the reward has the status error, and is not zero.
    """

    @mttp.instrument(records="reward")
    def broken() -> float:
        raise ValueError("no")

    @mttp.instrument(records="episode")
    def rollout() -> None:
        broken()

    with pytest.raises(ValueError, match="no"):
        rollout()

    episode = only(session)
    assert ("error", "ValueError") == (episode.status, episode.error_type)
    assert ("error", None) == (episode.reward.status, episode.reward.value)
    assert "no" in str(episode.reward.error)


def test_functions_may_be_coroutines(session: mttp.Session) -> None:
    """
    A hundred at once, each with its own episode and reward.
    """

    @mttp.instrument(records="reward")
    async def score(number: int) -> float:
        await asyncio.sleep(0)
        return float(number)

    @mttp.instrument(records="episode")
    async def rollout(number: int) -> int:
        await asyncio.sleep(0)
        await score(number)
        return number

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*map(rollout, range(100)))

    assert inspect.iscoroutinefunction(rollout)
    assert list(range(100)) == asyncio.run(all_of_them())

    assert {(float(n), n) for n in range(100)} == {
        (e.return_, e.inputs["number"]) for e in mttp.read(session)
    }


def test_methods_are_functions(session: mttp.Session) -> None:
    """
    A decorated method gets its instance, which is not an input.
    """

    class Agent:
        @mttp.instrument(records="episode")
        def rollout(self, task: str) -> str:
            return task + self.suffix

        suffix = "!"

    assert "go!" == Agent().rollout("go")

    assert {"task": "go"} == only(session).inputs


def test_an_object_that_can_be_called_is_a_function(session: mttp.Session) -> None:
    """
    As reward models often are; the class's name is the grader.
    """

    class Judge:
        def __call__(self, answer: str) -> float:
            return 0.75

    with mttp.episode():
        assert 0.75 == mttp.instrument(Judge())("4")

    assert ("Judge", 0.75) == (only(session).reward.grader, only(session).return_)


def test_detaching_a_function(session: mttp.Session) -> None:
    """
    A detached function is called without recording; instrumenting it again records again.
    """
    rollout = mttp.instrument(play, inputs=False)
    assert {"play": True} == rollout.status()
    assert rollout is mttp.instrument(rollout)

    with rollout:
        rollout(PLAYS[0])
    assert {"play": False} == rollout.status()
    rollout(Play(()))
    mttp.instrument(rollout, inputs=False)(PLAYS[1])

    assert list(PLAYS) == [told(episode) for episode in started(session)]


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (play, {"records": "score"}, "records='score' is not one of episode, reward"),
        (play, {"recrods": "reward"}, "there is no option 'recrods'"),
    ],
)
def test_wrong_options_are_refused(target: Any, options: Any, message: str) -> None:
    """
    When the function is instrumented, not when it is called.
    """
    with pytest.raises(InstrumentError, match=message):
        mttp.instrument(target, **options)


def test_a_generator_is_refused() -> None:
    """
    It returns before its rollout runs.
    """

    def rollout() -> Any:
        yield 1

    with pytest.raises(InstrumentError, match="rollout is a generator"):
        mttp.instrument(rollout)


@pytest.mark.parametrize("value", [math.nan, "much", [1.0, 2.0]])
def test_a_reward_that_is_no_number_is_an_error(session: mttp.Session, value: Any) -> None:
    """
    It is a fault, as for every reward.
    """
    with mttp.episode():
        assert value is mttp.instrument(lambda: value)()

    assert ("error", None) == (only(session).reward.status, only(session).return_)


def test_an_option_that_raises_costs_only_the_recording(session: mttp.Session) -> None:
    """
    The function is called once, without an episode.
    """
    calls: list[int] = []

    recorded = mttp.instrument(calls.append, task=lambda _: 1 / 0, records="episode")
    recorded(1)

    assert [1] == calls
    assert {"integration_error": 1} == dict(session.stats.faults)


def batch() -> list[mttp.recording.OpenEpisode]:
    """Return two ended episodes."""
    with mttp.episode() as first, mttp.episode() as second:
        pass
    return [first, second]


def test_an_iterator_is_left_to_the_caller(session: mttp.Session) -> None:
    """
    It can be read only once, so that it is counted and not read.
    """

    @mttp.instrument(records="reward")
    def judge(episodes: list[mttp.recording.OpenEpisode]) -> Any:
        return (float(position) for position, _ in enumerate(episodes))

    assert [0.0, 1.0] == list(judge(batch()))

    assert [{}, {}] == [episode.scores for episode in started(session)]
    assert {"rewards_unaligned": 1} == dict(session.stats.faults)


@pytest.mark.parametrize(("answer", "counted"), [(None, {}), (0.5, {"rewards_unaligned": 1})])
def test_a_single_result_for_a_batch(session: mttp.Session, answer: Any, counted: dict[str, int]) -> None:
    """
    None is an abstention for each episode; one number for several episodes is counted.
    """

    @mttp.instrument(records="reward")
    def judge(episodes: list[mttp.recording.OpenEpisode]) -> Any:
        return answer

    judge(batch())

    statuses = [[one.status for one in episode.scores.values()] for episode in started(session)]
    assert [["abstained"], ["abstained"]] == statuses if answer is None else [[], []]
    assert counted == dict(session.stats.faults)


@pytest.mark.parametrize("target", [Bonus(0.5), functools.partial(float, 0.5), Bonus(0.5).__call__, exact])
def test_a_copy_of_a_recorded_function_records(session: mttp.Session, target: Any) -> None:
    """
    As in a configuration that holds a reward function, and is copied or pickled.
    """
    recorded = mttp.instrument(target, records="reward")
    arguments = ("4", "4") if target is exact else ()

    copies = [copy.copy(recorded), copy.deepcopy({"reward": recorded})["reward"]]
    copies.append(pickle.loads(pickle.dumps(recorded)))

    for one in copies:
        with mttp.episode():
            one(*arguments)
    assert [recorded(*arguments)] * 3 == [episode.return_ for episode in started(session)]


@pytest.mark.parametrize("method", [Player(0.5).judge, Player.even])
def test_a_method_is_copied_with_its_object(session: mttp.Session, method: Any) -> None:
    """
    A pool of processes gets it by pickle.
    """
    for one in (copy.copy(method), copy.deepcopy([method])[0], pickle.loads(pickle.dumps(method))):
        with mttp.episode():
            one()

    assert [0.5, 0.5, 0.5] == [episode.return_ for episode in started(session)]


def test_static_and_class_methods_are_recorded_from_either_side(session: mttp.Session) -> None:
    """
    In either order of decorators; an async one is awaited.
    """

    class Judge:
        @mttp.instrument(records="reward")
        @staticmethod
        async def exact(answer: str) -> float:
            return float(answer == "4")

        @mttp.instrument(records="reward")
        @classmethod
        def short(cls, answer: str) -> float:
            return 1 / len(answer)

        @classmethod
        @mttp.instrument(records="reward")
        def long(cls, answer: str) -> float:
            return len(answer)

    with mttp.episode():
        assert 1.0 == asyncio.run(Judge.exact("4"))
    with mttp.episode():
        assert 0.5 == Judge().short("42")
    with mttp.episode():
        assert 2 == Judge.long("42")

    assert [1.0, 0.5, 2.0] == [episode.return_ for episode in started(session)]


def test_arguments_without_names_are_kept_as_they_are(session: mttp.Session) -> None:
    """
    Those of a builtin without a signature, and those that do not match a signature.
    """
    largest = mttp.instrument(max, records="episode")
    rollout = mttp.instrument(play, records="episode")

    assert 2 == largest(1, 2)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        rollout()

    assert [("max", {"args": [1, 2]}, "completed"), ("play", {"args": []}, "error")] == [
        (episode.env, episode.inputs, episode.status) for episode in started(session)
    ]
    assert {} == dict(session.stats.faults)
