"""A copy of a handle is the handle."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

import mttp


@dataclasses.dataclass
class State:
    handle: object


def test_a_handle_copies_to_itself_also_within_a_state() -> None:
    """Agents copy their state; no copy records an episode of its own."""
    handles: list[object] = [mttp.current_episode(), mttp.current_step(), mttp.extract({})]
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode, episode.agent("a") as agent, agent.step() as step:
            handles += [session, episode, agent, step, step.tool_call("t"), step.span]
        handles += [mttp.group("g", [episode]), mttp.instrument()]

    for handle in handles:
        assert copy.deepcopy({"key": [handle]})["key"][0] is handle
        assert dataclasses.asdict(State(handle))["handle"] is handle
    assert len(mttp.read(session).episodes) == 1


def test_a_handle_that_is_pickled_names_what_to_use_instead() -> None:
    """It records in this process only."""
    with (
        mttp.configure("memory://"),
        mttp.episode() as episode,
        pytest.raises(TypeError, match=r"OpenEpisode can't be pickled.*mttp\.inject"),
    ):
        pickle.dumps(episode)
