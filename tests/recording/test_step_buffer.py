"""`StepBuffer`: steps without handles are written together, and read as steps with handles."""

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
from opentelemetry.sdk.trace import SpanProcessor
from polling import eventually

import mttp
from mttp.codec.transitions import RowSchema
from mttp.otlp.frames import record
from mttp.recording.trajectory import StepBuffer
from mttp.semconv import attributes as a
from mttp.testing import assert_same
from mttp.transports.file import FileTransport

AT = 1_700_000_000_000_000_000
FORM = RowSchema(np.dtype(np.float32), (2,), 1 << 16)
OTHER = RowSchema(np.dtype(np.float64), (2,), 1 << 16)


@pytest.fixture
def session() -> Iterator[mttp.Session]:
    """A session with packed steps."""
    with mttp.configure("memory://", run_id="run", steps="packed") as opened:
        yield opened


def open_buffer(episode: mttp.recording.OpenEpisode, at: int = AT, form: RowSchema = FORM) -> StepBuffer:
    """Return the buffer for the episode's next steps."""
    buffer = episode._open_buffer(form, at)
    assert buffer is not None
    return buffer


def append_steps(buffer: StepBuffer, count: int = 1, *, ends: bool = False, form: RowSchema = FORM) -> int:
    """Append that many steps, and return the end of the last one."""
    at = buffer.start_time if not buffer.rows else buffer.rows[-1][-1]
    for number in range(1, count + 1):
        observation = np.array([at + number - AT, 0], form.dtype).tobytes()
        buffer.rows.append((observation, 1, 0.5, ends and number == count, False, None, None, at + number))
    return at + count


def record_by_handle(
    episode: mttp.recording.OpenEpisode, count: int, *, start: int = 0, ends: bool = False
) -> None:
    """Record the same steps with handles."""
    for number in range(start, start + count):
        step = episode.step(start_time=AT + number)
        step.observation(np.array([number + 1, 0], np.float32))
        step.action(1)
        step.reward(0.5)
        step.end(terminated=ends and number == start + count - 1, truncated=False, end_time=AT + number + 1)


class ReferableReward(float):
    """A reward that can have weak references."""


@contextmanager
def no_collector() -> Iterator[None]:
    """Disable the garbage collector."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("steps", ["packed", "auto"])
@pytest.mark.parametrize("address", ["memory://", "file://{}.jsonl"])
def test_buffered_steps_equal_steps_with_handles(steps: str, address: str) -> None:
    """
    Some of them may have handles, and the transport may take columns or spans.
    """
    where = address.format("a")
    with mttp.configure(where, run_id="run", steps=steps) as session:
        for first, then in ((3, 0), (0, 3), (1, 2)):
            with mttp.episode(env="toy", start_time=AT) as episode:
                if first:
                    end = append_steps(open_buffer(episode), first, ends=not then)
                record_by_handle(episode, then, start=first, ends=True)
                end = AT + 3
                episode.end(outcome="success", end_time=end)
    found = mttp.read(session if where == "memory://" else "a.jsonl").episodes

    assert (True, False, 1.5) == (found[0].terminated, found[0].truncated, found[0].return_)
    for other in found[1:]:
        assert_same(found[0], other, ignore=["trace_id", "id", "index"])


def test_an_open_episode_counts_buffered_steps(session: mttp.Session) -> None:
    """
    Its length, return and flags include steps that are not written.
    """
    with mttp.episode() as episode:
        append_steps(open_buffer(episode), 3, ends=True)

        assert (3, 1.5, True) == (episode.length, episode.return_, episode.terminated)
        assert 3 == session.stats.steps


def test_buffered_steps_are_one_span_before_the_root(session: mttp.Session) -> None:
    """
    The root's span count includes each of them.
    """
    spans = taken(session)
    with mttp.episode() as episode:
        append_steps(open_buffer(episode), 3)

    assert [True, False] == [span.has_rows for span in spans]
    steps, root = [record(span).attributes for span in spans]
    assert (3, 4) == (steps[a.STEPS_COUNT], root[a.EPISODE_SPAN_COUNT])


def test_a_new_schema_continues_the_steps(session: mttp.Session) -> None:
    """
    The options of an environment may change during an episode.
    """
    with mttp.episode() as episode:
        end = append_steps(open_buffer(episode), 2)
        append_steps(open_buffer(episode, end, OTHER), 2, form=OTHER, ends=True)

    (found,) = mttp.read(session).episodes
    assert ["float32", "float32", "float64", "float64"] == [
        step.observation.dtype.name for step in found.steps
    ]
    assert 4 == session.stats.steps


def test_no_buffer_if_each_step_must_be_a_span(session: mttp.Session) -> None:
    """
    The episode asks for spans, or there are span processors, even ones that were added later.
    """
    assert mttp.episode(steps="spans")._open_buffer(FORM, AT) is None
    assert mttp.episode()._open_buffer(FORM, AT) is not None
    session._add_processor(SpanProcessor())
    assert mttp.episode()._open_buffer(FORM, AT) is None


def test_buffered_steps_are_written_periodically(session: mttp.Session) -> None:
    """
    They wait neither for the episode's end nor for a full buffer.
    """
    with mttp.episode() as episode:
        buffer = open_buffer(episode)
        append_steps(buffer, 2)
        buffer.schedule()
        session.flush()

        assert [] == buffer.rows
        assert 2 == session.stats.steps
        assert 2 == len(mttp.read(session).episodes[0].steps)


def test_buffered_steps_count_in_the_queue_size(session: mttp.Session) -> None:
    """
    The size includes their observations.
    """
    sizes = []
    for shape in (0, 100_000):
        spans = taken(session)
        with mttp.episode() as episode:
            buffer = open_buffer(episode, form=RowSchema(np.dtype(np.uint8), (shape,), None))
            buffer.rows.append((bytes(shape), 1, 0.5, True, False, None, None, AT + 1))
        sizes.append(sum(map(len, spans)))

    assert 100_000 <= sizes[1] - sizes[0] <= 100_010


def test_a_written_episode_is_freed(tmp_path: Path) -> None:
    """
    It does not wait for the garbage collector.
    """
    with mttp.configure(f"file://{tmp_path}/a.jsonl", steps="packed") as session, no_collector():
        episode = mttp.episode(start_time=AT)
        buffer = open_buffer(episode)
        end = append_steps(buffer, 3, ends=True)
        buffer.rows[0] = (*buffer.rows[0][:2], ReferableReward(0.5), *buffer.rows[0][3:])
        reward, known = weakref.ref(buffer.rows[0][2]), weakref.ref(episode)
        episode.end(end_time=end)
        session.flush()

        assert eventually(lambda: reward() is None)  # the writing thread drops it after the flush
        del buffer, episode
        assert eventually(lambda: known() is None)


def test_one_thread_may_write_while_another_appends(session: mttp.Session) -> None:
    """
    No row is lost or written twice.
    """
    count = 20_000
    over = threading.Event()
    with mttp.episode() as episode:
        buffer = open_buffer(episode)

        def write() -> None:
            while not over.is_set():
                buffer.write()

        thread = threading.Thread(target=write)
        thread.start()
        for number in range(count):
            observation = np.float32([number, 0]).tobytes()
            buffer.rows.append((observation, number, 0.5, False, False, None, None, AT + number))
        over.set()
        thread.join()

    (found,) = mttp.read(session).episodes
    assert list(range(count)) == [step.action for step in found.steps]
    assert list(range(count)) == [step.index for step in found.steps]
    assert (True, {}) == (found.complete, session.stats.faults)


def test_an_observation_that_raises_loses_only_its_batch(session: mttp.Session) -> None:
    """
    The episode continues, and the fault is counted.
    """

    class Odd:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("no")

    with mttp.episode() as episode:
        open_buffer(episode).rows.append((Odd(), 1, 0.5, False, False, None, None, AT + 1))
        with episode.step() as step:
            step.reward(1.0)

    assert "completed" == mttp.read(session).episodes[0].status
    assert session.stats.faults


def test_steps_in_columns_and_as_spans_are_read_once(tmp_path: Path) -> None:
    """
    A file has columns and another transport spans: reading both gives each step once, with the span's id.
    """

    class Spans(FileTransport):
        takes_columns = False

    with mttp.configure(tmp_path / "a.jsonl", exporters=[Spans(tmp_path / "b.jsonl")]), mttp.episode() as ep:
        buffer = ep._open_buffer(RowSchema(np.dtype(np.float32), (1,), None), 1)
        assert buffer is not None
        buffer.rows += [
            (np.float32([at]).tobytes(), at, 1.0, False, False, None, None, 2 + at) for at in range(5)
        ]
        buffer.schedule()
        with ep.step() as step:
            step.reward(2.0)

    for paths in (["a", "b"], ["b", "a"]):
        recording = mttp.read([tmp_path / f"{name}.jsonl" for name in paths])
        (episode,) = recording.episodes
        assert ([], True, 7.0) == (recording.problems, episode.complete, episode.return_)
        assert list(range(6)) == [one.index for one in episode.steps]
        assert all(one.span_id for one in episode.steps)
