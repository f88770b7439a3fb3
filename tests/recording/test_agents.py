"""Episodes with several agents, each with its own steps, reward and end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import mttp


def only(session: mttp.Session) -> mttp.Episode:
    """Return the recorded episode."""
    (episode,) = mttp.read(session).episodes
    return episode


def test_each_agent_has_a_return_of_its_own(session: mttp.Session) -> None:
    """
    An agent's return is the sum of its step rewards, or its stated total.
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


def test_the_episode_return_does_not_include_agents(session: mttp.Session) -> None:
    """
    Without a stated total the episode's return is unknown, because agents' rewards may sum to zero.
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


def test_steps_without_an_agent_count_in_the_episode_return(session: mttp.Session) -> None:
    """
    Rewards of steps without an agent add up to the episode's return.
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
    Agents that step together use equal indices; the longest agent gives the episode's length.
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
    Facts of later calls are added.
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


def test_an_agent_ends_by_itself(session: mttp.Session) -> None:
    """
    An agent's end ends neither the other agents nor the episode.
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
    Its open steps end too.
    """
    episode = mttp.episode()
    step = episode.agent("a").step()
    step.reward(1.0)
    episode.end()

    read = only(session)

    assert (True, 1.0, 1) == (read.complete, read.agents[0].return_, len(read.steps))
    assert step.ended
    assert {} == dict(session.stats.faults)


def test_steps_in_an_agent_s_block_belong_to_it(session: mttp.Session) -> None:
    """
    `mttp.step` starts a step of the agent, and the episode stays the current one.
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


def test_entering_a_block_twice_restores_the_outer_context(session: mttp.Session) -> None:
    """
    Finding the current episode ends even if a handle is its own outer handle.
    """
    with mttp.episode() as outer, mttp.episode() as episode:
        with episode, episode.agent("a") as agent, agent:
            episode.end()
            assert mttp.current_episode() is outer
        assert mttp.current_episode() is outer


def test_an_exception_is_recorded_on_the_agent_and_raised(session: mttp.Session) -> None:
    """
    The episode records only exceptions of its own block.
    """
    with mttp.episode() as episode, pytest.raises(KeyError), episode.agent("a"), mttp.step():
        raise KeyError("x")

    read = only(session)

    assert ("KeyError", "'x'", "completed") == (
        read.agents[0].error_type,
        read.agents[0].error_message,
        read.status,
    )


def test_an_ended_agent_accepts_no_step(session: mttp.Session) -> None:
    """
    The call is counted as a fault.
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


def test_inert_agents_accept_every_call(session: mttp.Session) -> None:
    """
    They record nothing, outside an episode and after its end.
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


def test_invalid_facts_of_an_agent_are_faults(session: mttp.Session) -> None:
    """
    No call raises, and valid facts are recorded.
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


def test_agents_run_in_concurrent_tasks(session: mttp.Session) -> None:
    """
    Each task has its own current agent and step.
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


def test_agents_of_an_unfinished_episode_are_read_from_their_steps() -> None:
    """
    Their length is the number of ended steps; their return is unknown.
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


def test_spans_within_a_step_name_its_index_and_agent(session: mttp.Session) -> None:
    """
    A reader needs no tree to assign them.
    """
    with mttp.episode() as episode, episode.agent("a") as agent, agent.step(index=4) as step:
        step.reward(1.0, grader="judge", components={f"part_{number}": 1.0 for number in range(33)})
        step.tool_call("search").end()

    named = {span.name.partition(" ")[0]: span.attributes for span in session.records()}

    for name in ("step", "reward", "grade", "execute_tool"):
        place: dict[str, Any] = {key: named[name].get(key) for key in ("mttp.step.index", "mttp.agent.id")}
        assert {"mttp.step.index": 4, "mttp.agent.id": "a"} == place


def test_a_summary_of_agents_matches_the_values() -> None:
    """
    Agents' steps count, and agents' rewards are not part of the episode's return.
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
