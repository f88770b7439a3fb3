"""Several agents in one episode: each has steps, rewards and an end of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import mttp


def only(session: mttp.Session) -> mttp.Episode:
    """The one episode that was recorded."""
    (episode,) = mttp.read(session).episodes
    return episode


def test_each_agent_is_paid_for_itself(session: mttp.Session) -> None:
    """
    Its return is the sum of its own steps, or the total that is stated for it.
    """
    with mttp.episode(env="duel") as episode:
        left, right = episode.agent("left"), episode.agent("right")
        for reward in (1.0, 2.0):
            with left.step() as step:
                step.reward(reward)
            with right.step() as step:
                step.reward(-reward)
        right.reward(0.5, components={"style": 0.5})
        assert (3.0, 0.5) == (left.return_, right.return_)

    read = only(session)

    assert [("left", 3.0, "missing"), ("right", 0.5, "ok")] == [
        (agent.id, agent.return_, agent.reward.status) for agent in read.agents
    ]
    assert {"style": 0.5} == read.agents[1].reward.components
    assert read.complete


def test_an_episode_is_not_paid_what_its_agents_are(session: mttp.Session) -> None:
    """
    The sum of a zero-sum game says nothing: the episode's return is what is stated for it, else not known.
    """
    for total in (None, 7.0):
        with mttp.episode() as episode:
            for name in ("a", "b"):
                with episode.agent(name).step() as step:
                    step.reward(1.0)
            episode.reward(total)

    silent, stated = mttp.read(session).episodes

    assert (None, None, None) == (silent.return_, silent.return_basis, silent.step_reward_sum)
    assert (7.0, "episode", None) == (stated.return_, stated.return_basis, stated.step_reward_sum)
    assert [1.0, 1.0] == [agent.return_ for agent in silent.agents]


def test_steps_of_nobody_are_the_episode_s(session: mttp.Session) -> None:
    """
    What the environment pays beside the agents is the episode's return.
    """
    with mttp.episode() as episode:
        with episode.step() as step:
            step.reward(2.0)
        with episode.agent("a").step() as step:
            step.reward(5.0)

    read = only(session)

    assert (2.0, "steps", 2.0) == (read.return_, read.return_basis, read.step_reward_sum)
    assert [None, "a"] == [step.agent for step in read.steps]


def test_each_agent_counts_its_own_steps(session: mttp.Session) -> None:
    """
    Agents that step together have one index at one time; the longest of them is the episode's length.
    """
    with mttp.episode() as episode:
        for _ in range(3):
            for name in ("a", "b"):
                episode.agent(name).step().end()
        episode.agent("a").step().end()

    read = only(session)

    expected = [(0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "a"), (2, "b"), (3, "a")]
    assert expected == [(step.index, step.agent) for step in read.steps]
    assert (4, 7, [4, 3]) == (read.length, read.step_count, [agent.length for agent in read.agents])


def test_the_same_id_is_the_same_agent(session: mttp.Session) -> None:
    """
    Whatever is stated of it later is added.
    """
    with mttp.episode() as episode:
        first = episode.agent("a", policy="tiny", metadata={"colour": "white"})
        assert episode.agent("a", policy_version=3, name="White") is first
        assert [first] == episode.agents

    (agent,) = only(session).agents

    assert ("a", "White", "tiny", "3", {"colour": "white"}) == (
        agent.id,
        agent.name,
        agent.policy,
        agent.policy_version_start,
        agent.metadata,
    )


def test_the_end_of_an_agent_is_its_own(session: mttp.Session) -> None:
    """
    One may be out while the others go on; neither end is the episode's.
    """
    with mttp.episode() as episode:
        with episode.agent("out") as agent:
            agent.metric("kills", 2)
            agent.end(terminated=True, advantage=-0.5, policy_version_end=9)
        with episode.agent("late").step() as step:
            step.record(truncated=True)

    read = only(session)

    out, late = read.agents
    assert (True, None, -0.5, "9", {"kills": 2.0}) == (
        out.terminated,
        out.truncated,
        out.advantage,
        out.policy_version_end,
        out.metrics,
    )
    assert (None, True) == (late.terminated, late.truncated)
    assert (None, None) == (read.terminated, read.truncated)


def test_an_open_agent_ends_with_its_episode(session: mttp.Session) -> None:
    """
    With its open steps.
    """
    episode = mttp.episode()
    step = episode.agent("a").step()
    step.reward(1.0)
    episode.end()

    read = only(session)

    assert (True, 1.0, 1) == (read.complete, read.agents[0].return_, len(read.steps))
    assert step.ended
    assert {} == dict(session.stats.faults)


def test_inside_an_agent_s_block_steps_are_its_own(session: mttp.Session) -> None:
    """
    `mttp.step` is the agent's there, and the episode is the current one all the same.
    """
    with mttp.episode() as episode:
        with episode.agent("a") as agent:
            assert mttp.current_episode() is episode
            with mttp.step(), mttp.step():
                assert mttp.current_episode() is episode
            agent.end()
            with mttp.step():
                pass
        with episode.agent("b").step():
            assert mttp.current_episode() is episode
            mttp.step().end()
        mttp.step().end()

    read = only(session)

    expected = [(0, "a"), (0, None), (0, "b"), (1, "a"), (1, "b"), (1, None)]
    assert expected == [(step.index, step.agent) for step in read.steps]
    assert not mttp.current_episode()


def test_a_block_within_itself_leaves_nothing_current_for_ever(session: mttp.Session) -> None:
    """
    A handle that is entered twice and ended inside is not looked behind without end.
    """
    with mttp.episode() as outer, mttp.episode() as episode:
        with episode, episode.agent("a") as agent, agent:
            episode.end()
            assert mttp.current_episode() is outer
        assert mttp.current_episode() is outer


def test_an_exception_ends_the_agent_and_goes_on(session: mttp.Session) -> None:
    """
    It is said of the agent; the episode has its own.
    """
    with mttp.episode() as episode, pytest.raises(KeyError), episode.agent("a"), mttp.step():
        raise KeyError("x")

    read = only(session)

    assert ("KeyError", "'x'", "completed") == (
        read.agents[0].error_type,
        read.agents[0].error_message,
        read.status,
    )


def test_an_agent_that_ended_takes_no_step(session: mttp.Session) -> None:
    """
    That is counted, and costs nothing else.
    """
    with mttp.episode() as episode:
        agent = episode.agent("a")
        agent.end()
        with episode.agent("a").step() as step:
            step.reward(1.0)
        agent.reward(1.0)

    assert not step
    assert 2 == session.stats.faults["after_end"]
    assert (0, None) == (only(session).agents[0].length, only(session).agents[0].return_)


def test_inert_agents_take_everything(session: mttp.Session) -> None:
    """
    Where nothing is recorded, or no more.
    """
    over = mttp.episode()
    over.end()
    for episode in (mttp.current_episode(), over):
        with episode.agent("a", policy="p", metadata={"x": 1}) as agent:
            with agent.step() as step:
                step.reward(1.0)
            agent.reward(1.0)
            agent.metric("x", 1)
            agent.end(terminated=True)
        assert not agent

    assert () == only(session).agents


def test_odd_facts_of_an_agent_lose_only_themselves(session: mttp.Session) -> None:
    """
    Nothing raises into the loop.
    """

    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError("no")

    with mttp.episode() as episode:
        agent = episode.agent(7, policy=Hostile(), policy_version=3, metadata=5)  # type: ignore[arg-type]
        episode.agent(Hostile()).step().end()
        agent.reward(float("nan"))
        agent.end(advantage="much", length="long")

    read, hostile = only(session).agents

    assert "Hostile" in hostile.id
    assert "Hostile" in str(read.policy)
    assert ("7", "3", None, None, "error") == (
        read.id,
        read.policy_version_start,
        read.advantage,
        read.return_,
        read.reward.status,
    )
    assert {
        "kept_as_text",
        "metadata_invalid",
        "reward_invalid",
        "advantage_invalid",
        "length_invalid",
    } == {fault.partition(":")[0] for fault in read.faults}


def test_agents_play_at_once(session: mttp.Session) -> None:
    """
    Each in a task of its own, with what is current there.
    """

    async def play(agent: mttp.recording.OpenAgent, turns: int) -> None:
        async with agent:
            for turn in range(turns):
                async with mttp.step() as step:
                    await asyncio.sleep(0)
                    assert mttp.current_step() is step
                    mttp.current_step().reward(float(turn))

    async def main() -> None:
        async with mttp.episode() as episode:
            await asyncio.gather(*(play(episode.agent(str(turns)), turns) for turns in (3, 5)))

    asyncio.run(main())

    read = only(session)
    assert {"3": (3, 3.0), "5": (5, 10.0)} == {
        agent.id: (agent.length, agent.return_) for agent in read.agents
    }
    assert 8 == len({(step.agent, step.index) for step in read.steps})


def test_agents_of_an_unfinished_episode_are_known_by_their_steps() -> None:
    """
    How long they were is what was found; what they were paid in all is not known.
    """
    with mttp.configure(transport="memory://") as session:
        agent = mttp.episode(env="left open").agent("a")
        for _ in range(2):
            agent.step().end()
        agent.step()

    read = only(session)

    assert ("unfinished", 2, [("a", 2, None)]) == (
        read.status,
        read.length,
        [(agent.id, agent.length, agent.return_) for agent in read.agents],
    )


def test_tokens_calls_and_scorings_say_whose_step_they_are_of(session: mttp.Session) -> None:
    """
    Everything within a step has its index and its agent: no tree is needed to read it.
    """
    with mttp.episode() as episode, episode.agent("a") as agent, agent.step(index=4) as step:
        step.reward(1.0, grader="judge", components={f"part_{number}": 1.0 for number in range(33)})
        step.tool_call("search").end()

    named = {span.name.partition(" ")[0]: span.attributes for span in session.records()}

    for name in ("step", "reward", "grade", "execute_tool"):
        place: dict[str, Any] = {key: named[name].get(key) for key in ("mttp.step.index", "mttp.agent.id")}
        assert {"mttp.step.index": 4, "mttp.agent.id": "a"} == place


def test_a_summary_of_agents_says_what_the_values_say() -> None:
    """
    Agents' steps count, agents' pay is not the episode's.
    """
    with mttp.configure(transport="file://a.jsonl"):
        for turns in (1, 3):
            with mttp.episode() as episode:
                for _ in range(turns):
                    for name in ("a", "b"):
                        with episode.agent(name).step() as step:
                            step.reward(1.0, components={"x": 1.0})
                episode.agent("a").reward(1.0, components={"y": 1.0})
                episode.reward(turns, components={"z": 1.0})

    summary, recording = mttp.summarize("a.jsonl"), mttp.read("a.jsonl")

    assert [1.0, 3.0] == summary.returns.tolist() == [episode.return_ for episode in recording]
    assert [1, 3] == summary.lengths.tolist() == [episode.length for episode in recording]
    assert (["z"], []) == (
        [one.component for one in summary.graders if one.component and one.scope == "episode"],
        summary.problems,
    )
