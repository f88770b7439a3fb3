"""Memory keeps episodes as they are, whole ones, and no more than it may."""

from __future__ import annotations

import numpy as np
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

import mttp
from mttp.errors import ReadError
from mttp.transports.memory import MemoryTransport


def kept(session: mttp.Session) -> list[str | None]:
    """The tasks of the episodes that are kept, in order."""
    return [episode.task for episode in mttp.read(session)]


def test_arrays_stay_arrays(session: mttp.Session) -> None:
    """
    Nothing is encoded: what was recorded is there, copied once.
    """
    observation = np.arange(6, dtype=np.float32).reshape(2, 3)
    with mttp.episode() as episode, episode.step() as step:
        step.observation(observation)

    values = [record.attributes.get("mttp.observation.value") for record in session.records()]
    found = next(value for value in values if value is not None)
    assert isinstance(found, np.ndarray)
    assert (observation.tolist(), observation.dtype) == (found.tolist(), found.dtype)
    assert not np.shares_memory(observation, found)


def test_what_has_ended_is_there_at_once(session: mttp.Session) -> None:
    """
    Reading a session flushes it.
    """
    seen = []
    for number in range(3):
        with mttp.episode(task=number):
            pass
        seen.append(len(mttp.read(session)))

    assert [1, 2, 3] == seen


def test_a_closed_session_can_be_read() -> None:
    """
    The usual order in a test: record, close, look.
    """
    with mttp.configure("memory://") as session, mttp.episode(task="a"):
        pass

    recording = mttp.read(session)
    assert (["a"], "completed") == (kept(session), recording.runs[0].status)


def test_the_oldest_episodes_go_first_and_are_counted() -> None:
    """
    Whole episodes: those that stay are complete, and the run is never forgotten: it says how many there were.
    """
    with mttp.configure("memory://?max_episodes=3") as session:
        for number in range(10):
            with mttp.episode(task=number) as episode:
                for _ in range(3):
                    with episode.step():
                        pass
            session.flush()

    recording = mttp.read(session)
    assert ["7", "8", "9"] == kept(session)
    assert [(3, True)] * 3 == [(len(episode.steps), episode.complete) for episode in recording]
    assert (1, ["missing_episodes"]) == (len(recording.runs), [one.kind for one in recording.problems])
    assert isinstance(session.transport, MemoryTransport)
    assert 7 == session.transport.evicted


def test_an_episode_that_goes_on_outlives_the_finished_ones() -> None:
    """
    Open episodes are not evicted.
    """
    with mttp.configure("memory://?max_episodes=2") as session:
        with mttp.episode(task="long") as long:
            for number in range(5):
                with long.step():
                    pass
                with mttp.episode(task=number):
                    pass
                session.flush()
        session.flush()

    recording = mttp.read(session)
    assert {"long", "4"} == set(kept(session))
    assert all(episode.complete for episode in recording)


def test_of_more_open_episodes_than_may_be_kept_the_oldest_is_given_up_whole() -> None:
    """
    Its later spans do not make half an episode.
    """
    with mttp.configure("memory://?max_episodes=2") as session:
        episodes = [mttp.episode(task=number) for number in range(3)]
        session.flush()
        for episode in episodes:
            with episode.step():
                pass
            episode.end()
        session.flush()

    assert ["1", "2"] == kept(session)
    assert ["missing_episodes"] == [one.kind for one in mttp.read(session).problems]
    assert session.transport._refused == set()  # type: ignore[union-attr]


@pytest.mark.parametrize("foreign_first", [True, False])
def test_spans_of_others_belong_to_their_episode(foreign_first: bool) -> None:
    """
    A trace is dropped as a whole, whichever library made its spans, in any order.
    """
    transport = MemoryTransport(max_episodes=1)
    with mttp.configure(transport) as session:
        for number in range(3):
            with mttp.episode(task=number) as episode:
                foreign = foreign_span(int(episode.trace_id, 16))
                if foreign_first:
                    transport.export([foreign])
            session.flush()
            if not foreign_first:
                transport.export([foreign])

    assert ["2"] == kept(session)
    assert 2 == len({record.trace_id for record in transport.records()})


def foreign_span(trace_id: int) -> ReadableSpan:
    """A span of another library in an episode's trace."""
    return ReadableSpan("http", SpanContext(trace_id, 7, is_remote=False), resource=Resource({}))


def test_it_can_be_cleared(session: mttp.Session) -> None:
    """
    Between two measurements, say.
    """
    assert isinstance(session.transport, MemoryTransport)
    with mttp.episode():
        pass
    session.close()

    session.transport.clear()

    assert [] == list(session.transport.records())
    assert "memory://" == repr(session.transport)
    assert "memory://?max_episodes=3" == repr(MemoryTransport(max_episodes=3))
    assert session.transport.force_flush()


def test_a_session_elsewhere_keeps_no_records() -> None:
    """
    Its files are to be read instead, and the error says so.
    """
    with mttp.configure("file://a.jsonl") as session, pytest.raises(ReadError, match="no memory transport"):
        session.records()
