"""Episodes that get a handle when somebody asks for one, and are handed on as wholes where nobody does."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exporters import taken
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from polling import eventually

import mttp
from mttp.codec.generators import State
from mttp.codec.transitions import Form
from mttp.recorder import Play
from mttp.recorder.block import Block
from mttp.recorder.played import PlayedRoot, PlayedSteps
from mttp.testing import assert_same

AT = 1_700_000_000_000_000_000
FORM = Form(np.dtype(np.float32), (2,), 1 << 16)
OTHER = Form(np.dtype(np.float64), (2,), 1 << 16)


@pytest.fixture
def session() -> Iterator[mttp.Session]:
    """A session whose steps are packed."""
    with mttp.configure("memory://", run_id="run", steps="packed") as opened:
        yield opened


def begun(session: mttp.Session, *, at: int = AT, **facts: Any) -> Play:
    """An episode that has no handle."""
    play = session.setting(**{"env": "Walk-v1", **facts}).play(at, 7, None)
    assert play is not None
    return play


def go_on(block: Block, count: int = 1, *, ends: bool = False, form: Form = FORM) -> int:
    """Take so many steps; when the last of them ended."""
    at = block.start_time if not block.rows else block.rows[-1][-1]
    for number in range(1, count + 1):
        shown = np.array([at + number - AT, 0], form.dtype).tobytes()
        block.rows.append((shown, 1, 0.5, ends and number == count, False, at + number))
    return at + count


def finished(session: mttp.Session, count: int = 3) -> Play:
    """An episode that nobody asked for, over."""
    play = begun(session)
    block = play.gather(FORM, AT)
    assert play.conclude("success", None, go_on(block, count, ends=True))
    return play


class Paid(float):
    """A reward that can be referred to weakly."""


@contextmanager
def no_collector() -> Iterator[None]:
    """Nothing is collected but what nobody refers to."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_an_episode_that_nobody_asks_for_is_two_spans(session: mttp.Session) -> None:
    """
    Its steps and its root, in that order, and the session counts it.
    """
    spans = taken(session)
    finished(session)

    assert [PlayedSteps, PlayedRoot] == [type(span) for span in spans]
    assert (1, 3) == (session.stats.episodes, session.stats.steps)


def test_its_spans_are_counted_from_its_end_on(session: mttp.Session) -> None:
    """
    Though they are made by whoever writes.
    """
    (stats,) = session.stats.transports.values()
    before = stats.recorded
    for _ in range(3):
        finished(session)
    counted = stats.recorded

    assert before + 6 <= counted
    assert eventually(lambda: stats.delivered >= counted and not stats.pending)


def test_an_episode_that_somebody_asks_for_says_the_same(session: mttp.Session) -> None:
    """
    Whether that is before its first step, or before its last.
    """
    finished(session)
    for before in (0, 2):
        play = begun(session)
        block = play.gather(FORM, AT)
        go_on(block, before)
        handle = play.open()
        assert before == handle.length
        end = go_on(block, 3 - before, ends=True)
        assert not play.conclude("success", None, end)
        handle.end(terminated=True, truncated=False, outcome="success", end_time=end)

    first, *others = mttp.read(session).episodes
    for other in others:
        assert_same(first, other, ignore=["trace_id", "id", "index"])


def test_a_handle_of_an_episode_that_is_over_is_inert(session: mttp.Session) -> None:
    """
    Whoever asks that late has nothing to say of it.
    """
    play = finished(session)

    assert not play.open()
    play.open().metric("late", 1)
    play.mark()
    assert (1, {}) == (len(mttp.read(session).episodes), session.stats.faults)


def test_who_writes_may_see_an_episode_that_is_just_beginning(
    session: mttp.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The session knows of it before it knows its index: it is marked the next time.
    """
    share = session._share
    opened = share.opened

    def interrupted(episode: Any) -> int:
        index = opened(episode)
        share.mark()
        return index

    monkeypatch.setattr(share, "opened", interrupted)
    play = begun(session)
    go_on(play.gather(FORM, AT), 2)
    share.mark()

    (found,) = mttp.read(session).episodes
    assert ("unfinished", 0, 2) == (found.status, found.index, len(found.steps))


def test_who_asks_while_somebody_does_gets_the_same_handle(session: mttp.Session) -> None:
    """
    A signal's handler may ask at any time, on the same thread.
    """
    plays: list[Play] = []
    handles: list[Any] = []

    class Asking(State):
        def __str__(self) -> str:
            if plays:
                handles.append(plays.pop().open())
            return super().__str__()

    play = session.setting(env="Walk-v1").play(AT, 7, Asking({}))
    assert play is not None
    block = play.gather(FORM, AT)
    go_on(block, 2)
    plays.append(play)
    handles.append(play.open())
    handles[0].end(terminated=True)

    assert handles[0] is handles[1] is play.open()
    (found,) = mttp.read(session).episodes
    assert ("completed", 2) == (found.status, len(found.steps))


def test_steps_of_another_layout_follow_those_before(session: mttp.Session) -> None:
    """
    As where an environment's options change in the middle.
    """
    play = begun(session)
    end = go_on(play.gather(FORM, AT), 2)
    end = go_on(play.gather(OTHER, end), 2, form=OTHER, ends=True)
    play.open().end(terminated=True, end_time=end)

    (found,) = mttp.read(session).episodes
    assert ["float32", "float32", "float64", "float64"] == [
        step.observation.dtype.name for step in found.steps
    ]
    assert 4 == session.stats.steps


def test_processors_that_come_later_see_what_ends_from_there_on(session: mttp.Session) -> None:
    """
    Also the root of an episode that goes on; later episodes have a handle from the start.
    """

    class Seeing(SpanProcessor):
        def __init__(self) -> None:
            self.names: list[str] = []

        def on_end(self, span: ReadableSpan) -> None:
            self.names.append(span.name)

    processor = Seeing()
    play = begun(session)
    end = go_on(play.gather(FORM, AT), 2, ends=True)
    session.observe(processor)

    assert not play.conclude(None, None, end)
    play.open().end(terminated=True, end_time=end)
    assert "episode Walk-v1" == processor.names[-1]
    assert session.setting(env="Walk-v1").play(AT, None, None) is None


def test_what_gathers_before_somebody_asks_is_written_in_time(session: mttp.Session) -> None:
    """
    Not only at the episode's end, or once there is much.
    """
    play = begun(session)
    block = play.gather(FORM, AT)
    go_on(block, 2)
    play.open()
    session._share.mark()

    assert [] == block.rows
    assert 2 == session.stats.steps


def test_the_last_observation_counts_as_what_waits(session: mttp.Session) -> None:
    """
    A buffer knows how large an episode is.
    """
    sizes = []
    for final in (None, bytes(100_000)):
        arrivals: list[Any] = []
        session._share.take = arrivals.append
        play = begun(session)
        end = go_on(play.gather(FORM, AT), ends=True)
        play.conclude(None, final, end)
        sizes.append(sum(span.size for span in arrivals))

    assert 100_000 == sizes[1] - sizes[0]


@pytest.mark.parametrize("asks", [False, True])
def test_nothing_of_an_episode_is_left_once_it_is_written(asks: bool, tmp_path: Path) -> None:
    """
    Nor does it wait for the garbage collector, even where somebody still knows of the episode.
    """
    with mttp.configure(f"file://{tmp_path}/a.jsonl", steps="packed") as session, no_collector():
        play = begun(session)
        block = play.gather(FORM, AT)
        end = go_on(block, 3, ends=True)
        block.rows[0] = (*block.rows[0][:2], Paid(0.5), *block.rows[0][3:])
        paid, known = weakref.ref(block.rows[0][2]), weakref.ref(play)
        if asks:
            play.open()
        if not play.conclude(None, None, end):
            play.open().end(terminated=True, end_time=end)
        del block
        session.flush()

        assert eventually(lambda: paid() is None)  # whoever writes lets go of it a moment after the flush
        del play
        assert eventually(lambda: known() is None)


def test_threads_may_ask_while_episodes_end(session: mttp.Session) -> None:
    """
    Each is then either a whole or has a handle, and none is both.
    """
    count = 200
    plays: list[Play] = []
    start = threading.Barrier(2)

    def ask() -> None:
        for number in range(count):
            start.wait()
            plays[number].open()

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(count):
        play = begun(session)
        end = go_on(play.gather(FORM, AT), 3, ends=True)
        plays.append(play)
        start.wait()
        if not play.conclude(None, None, end):
            play.open().end(terminated=True, end_time=end)
    thread.join()

    found = mttp.read(session).episodes
    assert [3] * count == [len(episode.steps) for episode in found]
    assert (count, 3 * count, {}) == (session.stats.episodes, session.stats.steps, session.stats.faults)


# What transports are given.
