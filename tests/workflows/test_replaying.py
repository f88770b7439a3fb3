"""Episodes played again, branched, aligned, and agent loops with recorded tools."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.errors import ReadError, StudyError
from mttp.model import Call
from mttp.study import RecordedCalls, align, branch

ENVS = {
    "CartPole-v1": {},
    "Taxi-v4": {},
    "FrozenLake-v1": {"is_slippery": True},
    "Pendulum-v1": {"max_episode_steps": 30},
    "Blackjack-v1": {},
}


class Changing(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose physics change before its eighth step."""

    def __init__(self, env: Any, **changes: Any) -> None:
        super().__init__(env)
        self.changes = changes

    def reset(self, **options: Any) -> Any:
        self.taken = 0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        if self.taken == 7:
            for name, value in self.changes.items():
                setattr(self.unwrapped, name, value)
        self.taken += 1
        return self.env.step(action)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The working directory, and no words about old versions of environments."""
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def play(env: Any, episodes: int = 3, seeds: Any = None, longest: int = 60) -> None:
    """Play at random; by default only the first episode has a seed."""
    for number in range(episodes):
        env.reset(seed=(7 if number == 0 else None) if seeds is None else seeds[number])
        env.action_space.seed(number)
        for _ in range(longest):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                break
    env.close()


def record(
    path: str, name: str = "CartPole-v1", *, steps: str = "auto", options: Any = None, **kwargs: Any
) -> str:
    with mttp.configure(f"file://{path}", steps=steps):
        play(mttp.wrap(gymnasium.make(name, **kwargs), **(options or {})))
    return path


@pytest.mark.parametrize("steps", ["spans", "packed"])
@pytest.mark.parametrize("name", ENVS)
def test_episodes_are_reproduced(name: str, steps: str) -> None:
    """
    Those whose seed is not known, too: after the episodes before them.
    """
    recording = mttp.read(record("run.jsonl", name, steps=steps, **ENVS[name]))

    found = [mttp.replay(recording, episode=one.trace_id) for one in recording]

    assert [(True, None)] * 3 == [(one.reproduced, one.divergence) for one in found]
    assert [0, 1, 2] == [len(one.before) for one in found]
    assert [one.length for one in recording] == [one.steps for one in found]


def test_parquet_is_reproduced_as_well() -> None:
    """
    Conversion keeps what a replay needs.
    """
    record("run.jsonl", "Pendulum-v1", max_episode_steps=20)
    CliRunner().invoke(app, ["convert", "run.jsonl", "run.parquet"])
    recording = mttp.read("run.parquet")

    assert all(mttp.replay(recording, episode=one.trace_id).reproduced for one in recording)


def test_nothing_is_recorded_by_a_replay() -> None:
    """
    Also where everything is instrumented.
    """
    recording = mttp.read(record("run.jsonl"))

    with mttp.configure("memory://") as session, mttp.instrument():
        mttp.replay(recording, episode=recording[0].trace_id)
        with mttp.episode():
            pass
        session.flush()

        assert 1 == len(mttp.read(session))


@pytest.mark.parametrize(
    ("name", "changes", "what"),
    [("CartPole-v1", {"gravity": 20.0}, "observation"), ("Pendulum-v1", {"g": 5.0}, "observation")],
)
def test_changed_physics_are_caught_at_their_step(name: str, changes: dict[str, Any], what: str) -> None:
    """
    Step 7 is the first whose outcome differs.
    """
    recording = mttp.read(record("run.jsonl", name))
    first = recording[0].trace_id

    found = mttp.replay(recording, episode=first, env=lambda: Changing(gymnasium.make(name), **changes))

    assert found.divergence is not None
    assert (False, 7, what) == (found.reproduced, found.divergence.step, found.divergence.what)
    assert (found.divergence.distance or 0) > 1e-6
    assert 8 == found.steps


def test_a_changed_reward_is_caught() -> None:
    """
    Where observations are equal.
    """
    recording = mttp.read(record("run.jsonl"))
    env = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: reward + 0.5)

    found = mttp.replay(recording, episode=recording[0].trace_id, env=env).divergence

    assert found is not None
    assert (0, "reward", 1.0, 1.5, 0.5) == (
        found.step,
        found.what,
        found.recorded,
        found.seen,
        found.distance,
    )


def test_an_earlier_end_is_caught() -> None:
    """
    A shorter time limit truncates.
    """
    recording = mttp.read(record("run.jsonl", "Pendulum-v1"))

    found = mttp.replay(
        recording,
        episode=recording[0].trace_id,
        env=lambda: gymnasium.make("Pendulum-v1", max_episode_steps=9),
    ).divergence

    assert found is not None
    assert (8, "truncated", False, True) == (found.step, found.what, found.recorded, found.seen)


def test_another_seed_is_caught_after_the_reset() -> None:
    """
    Step -1 is the reset.
    """
    recording = mttp.read(record("run.jsonl"))

    class Other(gymnasium.Wrapper[Any, Any, Any, Any]):
        def reset(self, *, seed: int | None = None, **options: Any) -> Any:
            return self.env.reset(seed=seed and seed + 1, **options)

    found = mttp.replay(
        recording, episode=recording[0].trace_id, env=lambda: Other(gymnasium.make("CartPole-v1"))
    )

    assert found.divergence is not None
    assert (-1, "observation", 0) == (found.divergence.step, found.divergence.what, found.steps)


def test_a_tolerance_is_kept() -> None:
    """
    Differences within it are none.
    """
    recording = mttp.read(record("run.jsonl"))
    env = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: reward + 1e-3)
    first = recording[0].trace_id

    assert not mttp.replay(recording, episode=first, env=env).reproduced
    assert mttp.replay(recording, episode=first, env=env, tolerance=0.01).reproduced


def test_what_was_not_recorded_is_noted() -> None:
    """
    Rewards and ends are compared all the same.
    """
    recording = mttp.read(record("run.jsonl", options={"observations": False}))

    found = mttp.replay(recording, episode=recording[0].trace_id)

    assert (None, "rewards only") == (found.reproduced, found.verdict)
    assert ("not recorded for each step, and compared where they are: observations",) == found.notes


def test_wrappers_that_are_missing_are_noted() -> None:
    """
    A replay without them differs for that reason.
    """
    with mttp.configure("file://run.jsonl"):
        scaled = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: reward / 10)
        play(mttp.wrap(scaled), episodes=1)

    found = mttp.replay("run.jsonl")

    assert "reward" == (found.divergence and found.divergence.what)
    assert "wrappers that this environment lacks: TransformReward" in found.notes[0]


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"actions": False}, "has no recorded action"), ({}, "the seed of episode")],
)
def test_what_can_not_be_played_is_an_error(options: dict[str, Any], reason: str) -> None:
    """
    That says what was not recorded.
    """
    with mttp.configure("file://run.jsonl"):
        env = gymnasium.make("CartPole-v1")
        env.reset(seed=1)
        play(mttp.wrap(env, **options), episodes=1, seeds=[7 if options else None])

    with pytest.raises(StudyError, match=reason):
        mttp.replay("run.jsonl")


def test_what_is_no_environment_is_an_error() -> None:
    """
    An unknown id, no id at all, no steps, several agents.
    """
    with (
        mttp.configure("file://unknown.jsonl"),
        mttp.episode(env="Nowhere-v0", seed=1) as one,
        one.step() as step,
    ):
        step.action(1)
    with mttp.configure("file://none.jsonl"), mttp.episode(seed=1) as one, one.step() as step:
        step.action(1)
    with mttp.configure("file://empty.jsonl"), mttp.episode(env="CartPole-v1", seed=1):
        pass
    with (
        mttp.configure("file://agents.jsonl"),
        mttp.episode(env="CartPole-v1", seed=1) as one,
        one.agent("a") as agent,
        agent.step() as step,
    ):
        step.action(1)

    for name, reason in (
        ("unknown", r"gymnasium\.make\('Nowhere-v0'\) failed"),
        ("none", "recorded no environment; give one by env="),
        ("empty", "has no recorded steps to play"),
        ("agents", "has several agents"),
    ):
        with pytest.raises(StudyError, match=reason):
            mttp.replay(f"{name}.jsonl")


def test_an_episode_must_be_named_where_there_are_several() -> None:
    """
    An unknown one is an error of reading.
    """
    path = record("run.jsonl")

    with pytest.raises(StudyError, match="there are 3 episodes; choose one"):
        mttp.replay(path)
    with pytest.raises(ReadError, match="begins with 'zzz'"):
        mttp.replay(path, episode="zzz")


def test_own_loops_are_replayed() -> None:
    """
    Recorded by hand, with the id and the seed of the environment.
    """
    env = gymnasium.make("CartPole-v1")
    with mttp.configure("file://run.jsonl"), mttp.episode(env="CartPole-v1", seed=3) as episode:
        observation, _ = env.reset(seed=3)
        over = False
        while not over:
            with episode.step() as step:
                step.observation(observation)
                step.action(0)
                observation, reward, terminated, truncated, _ = env.step(0)
                step.reward(float(reward))
                over = terminated or truncated
                step.end(terminated=terminated, truncated=truncated)

    assert mttp.replay("run.jsonl").reproduced


# Branches.


def test_a_branch_is_a_new_episode() -> None:
    """
    It begins with the recorded steps, and is itself reproduced.
    """
    recording = mttp.read(record("run.jsonl"))
    old = recording[1]

    with mttp.configure("file://branch.jsonl", run_id="branch"):
        branch(recording, episode=old.trace_id, step=5, policy=lambda _: 1, max_steps=40)

    new = mttp.read("branch.jsonl")[0]
    assert [step.action for step in old.steps[:5]] == [step.action for step in new.steps[:5]]
    assert {1} == {step.action for step in new.steps[5:]}
    assert np.array_equal(old.steps[5].observation, new.steps[5].observation)
    assert (old.trace_id, 5) == (new.metadata["branch_episode"], new.metadata["branch_step"])
    assert new.steps[-1].terminated


def test_a_branch_links_to_the_step() -> None:
    """
    By a span link on the root.
    """
    recording = mttp.read(record("run.jsonl", steps="spans"))
    old = recording[0]

    with mttp.configure("file://branch.jsonl"):
        branch(recording, episode=old.trace_id, step=3, policy=lambda _: 1)

    (link,) = [link for record in mttp.scan("branch.jsonl", arrays=True) for link in record.links]
    assert (old.trace_id, old.steps[3].span_id, 3) == (
        link.trace_id,
        link.span_id,
        link.attributes["mttp.step.index"],
    )


def test_a_branch_ends_at_its_limit() -> None:
    """
    As truncated.
    """
    recording = mttp.read(record("run.jsonl", "Pendulum-v1"))

    with mttp.configure("file://branch.jsonl"):
        branch(
            recording, episode=recording[0].trace_id, step=0, policy=lambda _: np.zeros(1, "f4"), max_steps=4
        )

    new = mttp.read("branch.jsonl")[0]
    assert (4, True) == (new.length, new.truncated)


def test_a_branch_of_another_environment_is_refused() -> None:
    """
    As is a step that is not there.
    """
    recording = mttp.read(record("run.jsonl"))
    first = recording[0].trace_id
    other = Changing(gymnasium.make("CartPole-v1"), gravity=20.0)

    with pytest.raises(StudyError, match="differs before step 9: observation at step 7"):
        branch(recording, episode=first, step=9, policy=lambda _: 1, env=other)
    with pytest.raises(StudyError, match="step 999 is not among"):
        branch(recording, episode=first, step=999, policy=lambda _: 1)


# Side by side.


def texts(*steps: dict[str, Any]) -> Any:
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode:
            for facts in steps:
                with episode.step() as step:
                    step.action(facts.get("action"))
                    if "ids" in facts:
                        step.tokens(facts["ids"], logprobs=facts.get("logprobs"))
                    if "reward" in facts:
                        step.reward(facts["reward"])
        return mttp.read(session)[0]


def test_the_first_difference_of_two_episodes() -> None:
    """
    Down to the token.
    """
    ids = list(range(20))
    first = texts({"action": "a", "ids": ids}, {"action": "b", "ids": ids})
    second = texts({"action": "a", "ids": ids}, {"action": "b", "ids": [*ids[:12], 99, *ids[13:]]})

    found = align(first, second).first_difference

    assert found is not None
    assert (1, ["tokens"]) == (found.index, [one.what for one in found.differences])
    token = found.differences[0].token
    assert token is not None
    assert ("ids", 12) == (token.array, token.position)
    assert (7, 8, 9, 10, 11, 12, 13, 14, 15, 16) == token.first
    assert 99 == token.second[5]


def test_equal_episodes_have_no_difference() -> None:
    """
    NaN equals NaN, and a number within the tolerance is equal.
    """
    first = texts({"action": [1.0, float("nan")], "ids": [1, 2], "logprobs": [-0.5, -0.25], "reward": 1.0})
    second = texts(
        {"action": [1.0, float("nan")], "ids": [1, 2], "logprobs": [-0.5, -0.25], "reward": 1.0 + 1e-9}
    )

    found = align(first, second)

    assert found.first_difference is None
    assert found.to_dict()["equal"]


def test_lengths_differ_at_the_first_missing() -> None:
    """
    Of steps, and of tokens.
    """
    first, second = texts({"ids": [1, 2, 3]}, {}), texts({"ids": [1, 2]})

    found = align(first, second)

    assert [["tokens"], ["missing"]] == [[one.what for one in step.differences] for step in found.steps]
    assert found.steps[0].differences[0].token is not None
    assert 2 == found.steps[0].differences[0].token.position


def test_arguments_of_a_tool_as_json_are_the_object_s() -> None:
    """
    Whether a call was recorded with the text or the object; another object or text is another call.
    """

    def called(arguments: object) -> mttp.Episode:
        call = Call(operation="execute_tool", name="search", arguments=arguments)
        return mttp.Episode(steps=(mttp.Step(calls=(call,)),))

    episodes = [called(one) for one in ({"a": 1}, '{"a":1}', '{ "a" : 1 }', '{"a":2}', "a=1")]

    assert [True, True, False, False] == [
        align(episodes[0], one).first_difference is None for one in episodes[1:]
    ]
    assert RecordedCalls(episodes[1]).serve("search", a=1) is None


# Recorded tools.


@pytest.fixture
def called() -> Any:
    """An episode with calls of tools, one of which failed."""
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode, episode.step() as step:
            for query, answer in (("a", "1"), ("b", "2"), ("a", "3")):
                with step.tool_call("search", arguments={"query": query, "limit": 5}) as call:
                    call.result({"text": answer})
            try:
                with step.tool_call("fetch", arguments={"url": "x"}):
                    raise TimeoutError("too slow")
            except TimeoutError:
                pass
        return mttp.read(session)[0]


def test_calls_are_answered_as_they_were(called: Any) -> None:
    """
    Once each; equal calls in their order.
    """
    calls = RecordedCalls(called)

    @calls.tool
    def search(query: str, limit: int) -> Any:
        raise AssertionError("the tool itself is not called")

    assert [{"text": "2"}, {"text": "1"}, {"text": "3"}] == [
        search("b", limit=5),
        search("a", 5),
        search("a", 5),
    ]
    assert ["fetch"] == [call.name for call in calls.left]


def test_a_recorded_exception_is_raised(called: Any) -> None:
    """
    Of the same kind.
    """
    with pytest.raises(TimeoutError, match="too slow"):
        RecordedCalls(called).serve("fetch", url="x")


@pytest.mark.parametrize(
    ("name", "arguments", "near"),
    [
        (
            "search",
            {"query": "c", "limit": 5},
            r'the next recorded call is search\({"query": "a", "limit": 5}\)',
        ),
        ("serach", {}, "the nearest recorded tool is 'search'"),
    ],
)
def test_a_call_that_was_not_recorded_is_named(called: Any, name: str, arguments: Any, near: str) -> None:
    """
    With the nearest one.
    """
    with pytest.raises(StudyError, match=near):
        RecordedCalls(called).serve(name, **arguments)


# On the command line.


def invoke(*arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["replay", *arguments])
    assert code == done.exit_code, done.output
    return done


def test_the_command_tells_whether_it_was_reproduced() -> None:
    """
    And from where a function makes the environment.
    """
    path = record("run.jsonl")
    second = mttp.read(path)[1].trace_id
    Path("heavy.py").write_text(
        "import gymnasium\n"
        "def make():\n"
        "    env = gymnasium.make('CartPole-v1')\n"
        "    env.unwrapped.gravity = 20.0\n"
        "    return env\n"
    )

    good = invoke(path, "--episode", second[:8])
    document = json.loads(invoke(path, "--episode", second[:8], "--json").stdout)
    bad = invoke(path, "--episode", second[:8], "--env", "heavy:make", code=1)

    assert "after 1 earlier episode, from the last one with a seed" in good.stdout
    assert "reproduced: " in good.stdout
    assert (True, None) == (document["reproduced"], document["divergence"])
    assert "diverged at step 0: observation" in bad.stdout or "random generator" in bad.output


def test_the_command_says_rewards_only_without_observations() -> None:
    """
    The states are unknown then, so that the exit code is that of an episode that can't be played.
    """
    path = record("run.jsonl", options={"observations": False})
    first = mttp.read(path)[0].trace_id

    shown = invoke(path, "--episode", first, code=2)
    document = json.loads(invoke(path, "--episode", first, "--json", code=2).stdout)

    assert "rewards only: " in shown.stdout
    assert (None, "rewards only", None) == (
        document["reproduced"],
        document["verdict"],
        document["divergence"],
    )


def test_the_command_shows_two_episodes_and_steps() -> None:
    """
    Episodes that differ exit with 1.
    """
    path = record("run.jsonl")
    one, other = (episode.trace_id for episode in mttp.read(path)[:2])

    assert "first difference at step 0" in invoke(path, "--episode", one, "--against", other, code=1).stderr
    assert "0 of" in invoke(path, "--episode", one, "--against", one).stdout
    assert "step 1 (2 of" in invoke(path, "--episode", one, "--steps").stdout


@pytest.mark.parametrize("arguments", [("missing.jsonl",), ("run.jsonl",), ("run.jsonl", "--env", "nothing")])
def test_bad_input_exits_with_2(arguments: tuple[str, ...]) -> None:
    """
    A missing recording, an episode that is not named, a function that is none.
    """
    record("run.jsonl")

    invoke(*arguments, code=2)
