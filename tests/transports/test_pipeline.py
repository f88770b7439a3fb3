"""What has ended is written soon; what can't be is kept, and what can't be kept is counted and told."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from exporters import Exporter, raising, refusing
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from polling import SECONDS, eventually

import mttp
from mttp.model.spans import SpanRecord
from mttp.otlp.frames import Frame
from mttp.semconv import attributes as a
from mttp.transports.export_target import taking_frames
from mttp.transports.file import FileTransport
from mttp.transports.pipeline import pipeline as thread
from mttp.transports.pipeline.export_retry import FrameQueue
from mttp.transports.stats import Stats

NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    """An exporter that is unblocked in the end, whatever happened."""
    made = Exporter()
    yield made
    made.open.set()
    made.trouble = lambda segment: None


def play(steps: int = 1, **facts: Any) -> mttp.recording.OpenEpisode:
    """Record one episode."""
    with mttp.episode(**facts) as episode:
        for _ in range(steps):
            with episode.step() as step:
                step.reward(1.0)
    return episode


def balanced(stats: Stats) -> bool:
    """Whether every span is accounted for."""
    seen = stats.as_dict()
    return seen["pending"] >= 0 and seen["spans"] == (
        seen["delivered"] + seen["pending"] + sum(seen["lost"].values())
    )


def names(path: Path) -> list[str]:
    """The names of the spans in a file that may be growing."""
    found = []
    for line in path.read_text().splitlines():
        blocks = json.loads(line)["resourceSpans"]
        found += [
            span["name"] for block in blocks for scope in block["scopeSpans"] for span in scope["spans"]
        ]
    return found


# Soon.


def test_an_ended_step_is_in_the_file_soon(tmp_path: Path) -> None:
    """
    Without anything that follows it: whatever kills the process afterwards.
    """
    assert thread.INTERVAL < 0.5
    with mttp.configure("file://a.jsonl"), mttp.episode() as episode:
        for number in range(1, 6):
            with episode.step():
                pass
            assert eventually(lambda number=number: names(tmp_path / "a.jsonl").count("step") >= number)


def test_much_is_written_at_once(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A full segment does not wait for the interval.
    """
    monkeypatch.setattr(thread, "INTERVAL", 3600.0)
    with mttp.configure(exporter), mttp.episode() as episode:
        for _ in range(3):
            with episode.step() as step:
                step.observation("x" * 600_000)

        assert eventually(lambda: exporter.names().count("step") >= 2)


def test_a_flush_while_spans_are_sorted_loses_none(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A signal's handler may ask for it at any time.
    """
    monkeypatch.setattr(thread, "INTERVAL", 3600.0)
    asked: list[Any] = []
    with mttp.configure(exporter) as session:
        play(5)
        (pipeline,) = session._recorder.pipelines

        class Interrupted(deque[Any]):
            def popleft(self) -> Any:
                if not asked:
                    asked.append(self)
                    session.flush()
                return super().popleft()

        pipeline._inbox = session.stats.transports[pipeline.address].arrivals = Interrupted(pipeline._inbox)
        with pipeline._lock:
            pipeline._retry.queue.extend(pipeline._taken())

    assert 5 == exporter.names().count("step")
    assert balanced(session.stats)


def test_an_idle_session_sleeps(exporter: Exporter) -> None:
    """
    Nothing has ended, so the writer does not wake up.
    """
    with mttp.configure(exporter) as session:
        play()
        assert eventually(lambda: exporter.names().count("run.start") == 2)
        session.flush()
        changed = session._pipeline._changed
        woken = threading.Event()
        wait = changed.wait

        def watched(timeout: float | None = None) -> bool:
            woken.set()
            return wait(timeout)

        changed.wait = watched  # type: ignore[method-assign]

        assert not woken.wait(2.5 * thread.INTERVAL)
        play()
        assert woken.wait(SECONDS)


def test_a_wake_up_during_a_check_is_not_lost(exporter: Exporter) -> None:
    """
    What came too late for one look is seen by the next, without anything else happening.
    """
    with mttp.configure(exporter) as session:
        part, looks = session._pipeline, 0

        def look() -> None:
            nonlocal looks
            looks += 1
            if looks == 1:
                part.wake()

        part._owner.mark = look  # type: ignore[method-assign]
        play()

        assert eventually(lambda: looks >= 2)


def test_a_thread_is_started_only_by_something_to_write(exporter: Exporter) -> None:
    """
    A session that records nothing costs nothing, and its run is written all the same.
    """
    before = threading.active_count()
    with mttp.configure(exporter):
        assert before == threading.active_count()

    assert ["run"] == exporter.names()


def test_an_episode_within_a_flush_is_one_segment_on_one_line(tmp_path: Path) -> None:
    """
    However the steps of several episodes mix.
    """
    with mttp.configure("file://a.jsonl") as session:
        session._pipeline._owner.mark = lambda: None  # type: ignore[method-assign]
        with mttp.episode(env="a") as first, mttp.episode(env="b") as second:
            for _ in range(5):
                with first.step(), second.step():
                    pass
        session.flush()

        (line,) = (tmp_path / "a.jsonl").read_text().splitlines()

    (scope,) = json.loads(line)["resourceSpans"][0]["scopeSpans"]
    traces = [span["traceId"] for span in scope["spans"]]
    assert 12 == len(traces)
    assert sorted(traces, key=traces.index) == traces


def test_an_open_episode_has_one_marker_and_the_run_two(exporter: Exporter) -> None:
    """
    However often it is flushed; an episode that ends before the first flush needs none.

    The run's first marker comes at once, the second knows what was found out about the machine.
    """
    with mttp.configure(exporter, run="r") as session:
        play(task="short")
        with mttp.episode(task="long") as long:
            for _ in range(5):
                with long.step():
                    pass
                session.flush()
            assert eventually(lambda: session.flush() and exporter.names().count("run.start") == 2)
            session.flush()
        session.flush()

    found = list(exporter.records())
    marks = [record for record in found if record.name == "episode.start r"]
    starts = [record for record in found if record.name == "run.start"]
    (run,) = [record for record in found if record.name == "run r"]
    assert [(long.trace_id, "long")] == [(mark.trace_id, mark.attributes[a.TASK_ID]) for mark in marks]
    assert [(run.trace_id, run.span_id)] * 2 == [(start.trace_id, start.parent_id) for start in starts]
    assert starts[0].attributes.keys() < starts[1].attributes.keys() <= run.attributes.keys()


def test_an_episode_that_is_open_at_the_end_has_its_marker(exporter: Exporter) -> None:
    """
    Closing marks it, even right after it began.
    """
    with mttp.configure(exporter) as session:
        left = mttp.episode(task="left open")

    (mark,) = [record for record in exporter.records() if record.name == "episode.start"]
    assert (left.trace_id, "left open") == (mark.trace_id, mark.attributes[a.TASK_ID])
    assert {} == dict(session.stats.lost)


def test_a_slow_look_at_the_machine_holds_up_nothing(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    git on a slow disk delays the commit in the run's marker, and no episode.
    """
    go = threading.Event()
    monkeypatch.setattr(
        "mttp.recording.provenance.DETECTORS", (lambda directory: go.wait(SECONDS) and {"revision": "abc"},)
    )
    with mttp.configure(exporter) as session:
        play()
        assert session.flush(30.0)
        assert {"episode", "run.start"} <= set(exporter.names())
        go.set()
        assert eventually(lambda: exporter.names().count("run.start") == 2)

    runs = [record for record in exporter.records() if record.name.startswith("run")]
    assert [None, "abc", "abc"] == [record.attributes.get(a.VCS_REF_HEAD_REVISION) for record in runs]


# A transport in trouble.


@pytest.mark.parametrize(
    "trouble",
    [raising(NO_SPACE), raising(RuntimeError("broken")), refusing],
    ids=["OSError", "raises", "refuses"],
)
def test_what_is_refused_is_kept_and_written_once_it_can_be(
    trouble: Callable[..., Any], exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    """
    In the end everything is there, once, and the log told of trouble and of its end.
    """
    with caplog.at_level(logging.WARNING), mttp.configure(exporter) as session:
        exporter.trouble = trouble
        for _ in range(20):
            play(3)
            assert not session.flush()
        assert (True, 0) == (balanced(session.stats), session.stats.delivered)
        exporter.trouble = lambda segment: None
        assert session.flush()
        assert eventually(lambda: not session.stats.pending)

    ids = [record.span_id for record in exporter.records()]
    assert len(set(ids)) == len(ids)
    recording = mttp.read(session)
    assert [3] * 20 == [len(episode.steps) for episode in recording if episode.complete]
    assert {} == dict(session.stats.lost)
    assert 2 == len(caplog.messages)
    assert "kept for later" in caplog.messages[0]
    assert "works again" in caplog.messages[1]


def test_a_transport_that_keeps_failing_is_asked_again_without_hurry(exporter: Exporter) -> None:
    """
    A few times a second, with little at a time, however much waits.
    """
    exporter.trouble = refusing
    with mttp.configure(exporter) as session:
        session._pipeline.max_block_seconds = 0.0
        for _ in range(30):
            play(1, inputs="x" * 100_000)
        started, before = time.monotonic(), exporter.offers
        eventually(lambda: exporter.offers >= before + 5)
        spent = time.monotonic() - started
        exporter.trouble = lambda segment: None

    assert spent > 4 * thread.INTERVAL * 0.5


def test_an_episode_that_can_not_be_taken_does_not_hold_up_the_others(
    exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    """
    It is offered alone a few times, then lost, counted and told of; everything else is delivered.
    """

    def trouble(segment: Sequence[SpanRecord]) -> None:
        if any(record.attributes.get(a.TASK_ID) == "poison" for record in segment):
            raise ValueError("can't encode this")

    exporter.trouble = trouble
    with caplog.at_level(logging.WARNING), mttp.configure(exporter) as session:
        played = 0
        while not session.stats.lost and played < 1000:
            play(task="poison" if played == 3 else "good")
            played += 1
            session.flush()
        play(task="good")
        assert eventually(lambda: session.flush() and "gap" in exporter.names())
        lost = dict(session.stats.lost)

    (gap,) = [record for record in exporter.records() if record.name == "gap"]
    assert (["refused"], 1) == (list(lost), session.stats.lost_episodes)
    assert ("refused", 1, lost["refused"]) == (
        gap.attributes[a.GAP_REASON],
        gap.attributes[a.GAP_EPISODES],
        gap.attributes[a.GAP_SPANS],
    )
    assert {"good"} == {episode.task for episode in mttp.read(session)}
    assert played == len(mttp.read(session))
    assert 0 == session.stats.pending
    assert any("refused: whole episodes are lost" in message for message in caplog.messages)


def test_on_a_full_disk_nothing_is_ever_given_up(exporter: Exporter) -> None:
    """
    What the system refuses may be taken later, even where smaller things are taken meanwhile.
    """

    def trouble(segment: Sequence[SpanRecord]) -> None:
        if any(record.attributes.get(a.TASK_ID) == "large" for record in segment):
            raise NO_SPACE

    exporter.trouble = trouble
    with mttp.configure(exporter) as session:
        play(task="large")
        for _ in range(20):
            play(task="small")
            session.flush()
        assert {} == dict(session.stats.lost)
        exporter.trouble = lambda segment: None

    assert 21 == len(mttp.read(session))
    assert {} == dict(session.stats.lost)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last attempts follow each other closely."""
    monkeypatch.setattr(thread, "RESTS", (0.02, 0.04, 0.08))


@pytest.mark.usefixtures("soon")
def test_closing_writes_what_it_can_and_counts_the_rest(exporter: Exporter) -> None:
    """
    One episode that is refused does not cost the others at the very end.
    """

    def trouble(segment: Sequence[SpanRecord]) -> None:
        if any(record.attributes.get(a.TASK_ID) == "poison" for record in segment):
            raise ValueError("can't encode this")

    exporter.trouble = trouble
    session = mttp.configure(exporter)
    for task in ("poison", "good", "good"):
        play(task=task)
    written = session.close()

    assert not written
    assert ["good", "good"] == [episode.task for episode in mttp.read(session)]
    assert "run" in exporter.names()
    assert (["write_failed"], 1, 0) == (
        list(session.stats.lost),
        session.stats.lost_episodes,
        session.stats.pending,
    )


@pytest.mark.usefixtures("soon")
def test_closing_a_dead_transport_counts_everything_as_lost(exporter: Exporter) -> None:
    """
    It returns soon, raises nothing, and releases the transport.
    """
    exporter.trouble = raising(NO_SPACE)
    session = mttp.configure(exporter)
    for _ in range(10):
        play(2)

    assert not session.close()

    assert ({"write_failed": session.stats.spans}, 0, 1) == (
        dict(session.stats.lost),
        session.stats.pending,
        exporter.shutdowns,
    )
    assert session.stats.spans >= 31


def test_a_transport_that_raises_when_it_is_released_is_logged(
    exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Leaving the block does not raise.
    """
    exporter.shutdown = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    with caplog.at_level(logging.ERROR), mttp.configure(exporter) as session:
        play()

    assert session.closed
    (said,) = caplog.messages
    assert said.startswith("mttp: recording or closing failed: ZeroDivisionError at ")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_disk_that_is_full_for_a_while_costs_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Once there is space everything is written, once, and no line is torn.
    """
    free = 0
    write = os.write

    def limited(fd: int, data: bytes) -> int:
        nonlocal free
        count = min(free, len(data))
        if not count:
            raise NO_SPACE
        free -= count
        return write(fd, data[:count])

    with mttp.configure(tmp_path / name) as session:
        with monkeypatch.context() as patch:
            patch.setattr("mttp.transports.file.os.write", limited)
            for number in range(20):
                free += 150
                play(3, task=number)
                session.flush()
        before = session.stats.pending
        assert eventually(session.flush)

    recording = mttp.read(tmp_path / name)
    assert before > 0
    assert sorted(map(str, range(20))) == sorted(episode.task or "" for episode in recording)
    assert all(episode.complete for episode in recording)
    assert ([], 0, {}) == (recording.problems, recording.duplicates, dict(session.stats.lost))


def test_a_directory_that_is_deleted_costs_what_was_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Recording continues in a new file, and the log says so once.
    """
    with caplog.at_level(logging.WARNING), mttp.configure("file://runs/") as session:
        play(task="before")
        session.flush()
        shutil.rmtree(tmp_path / "runs")
        for number in range(3):
            play(task=number)
            session.flush()

    recording = mttp.read(tmp_path / "runs")
    assert (["0", "1", "2"], 1) == ([episode.task for episode in recording], len(recording.runs))
    assert 1 == len(caplog.messages)


def test_where_no_thread_can_be_started_everything_is_written_all_the_same(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    By the caller that records, flushes or closes: where no thread can be started, and at interpreter exit.
    """

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with mttp.configure(exporter) as session:
        play(2, task="flushed")
        assert session.flush()
        assert "episode" in exporter.names()
        play(2, task="large", inputs="x" * 1_200_000)
        assert eventually(lambda: exporter.names().count("episode") == 2)
        play(2, task="closed")

    assert ["flushed", "large", "closed"] == [episode.task for episode in mttp.read(session)]
    assert (0, 1) == (session.stats.pending, exporter.shutdowns)


# A transport that hangs.


def test_flush_and_close_come_back_when_a_transport_hangs(exporter: Exporter) -> None:
    """
    Within about their timeout; unwritten spans are counted once, even if they are written later.
    """
    session = mttp.configure(exporter)
    exporter.open.clear()
    play()

    assert [False, False] == [session.flush(0.2), session.close(0.2)]
    assert (["session_closed"], 0, 0) == (
        list(session.stats.lost),
        session.stats.pending,
        session.stats.delivered,
    )
    exporter.open.set()
    assert eventually(lambda: exporter.shutdowns)
    assert (0, True) == (session.stats.delivered, balanced(session.stats))


def test_recording_goes_on_while_a_transport_hangs(exporter: Exporter) -> None:
    """
    Callers do not wait for the transport before the buffer is full.
    """
    with mttp.configure(exporter) as session:
        exporter.open.clear()
        for _ in range(200):
            play()
        blocked = session.stats.blocked_seconds
        exporter.open.set()

    assert (0.0, 200) == (blocked, len(mttp.read(session)))


def test_flushing_from_within_an_exporter_does_not_wait_for_itself(exporter: Exporter) -> None:
    """
    It answers that it could not.
    """
    answers = []
    with mttp.configure(exporter) as session:
        exporter.trouble = lambda segment: answers.append(session.flush())  # type: ignore[func-returns-value]
        play()

    assert answers
    assert not any(answers)


def test_closing_from_within_an_exporter_does_not_wait_for_itself(exporter: Exporter) -> None:
    """
    It answers that not everything is written yet; what there is still is.
    """
    answers = []
    session = mttp.configure(exporter)
    exporter.trouble = lambda segment: answers.append(session.close())  # type: ignore[func-returns-value]
    play()
    assert eventually(lambda: exporter.shutdowns)

    assert not answers[0]
    assert {"episode", "run"} <= set(exporter.names())
    assert (True, 0) == (session.closed, session.stats.pending)


def test_recording_from_within_an_exporter_is_fine(exporter: Exporter) -> None:
    """
    An exporter that is itself instrumented neither deadlocks nor waits for space.
    """
    played = []

    def trouble(segment: Sequence[SpanRecord]) -> None:
        if len(played) < 3:
            played.append(play(env="inner"))

    exporter.trouble = trouble
    with mttp.configure(exporter) as session:
        session._pipeline.buffer_bytes = 1
        session._pipeline.max_block_seconds = 60.0
        play(env="outer")
        assert eventually(lambda: exporter.names().count("episode inner") == 3)


def test_an_exporter_is_not_traced(exporter: Exporter) -> None:
    """
    An instrumented HTTP client makes no spans of our own exports, as with the SDK's processors.
    """
    seen = []

    def trouble(segment: Sequence[SpanRecord]) -> None:
        seen.append(otel_context.get_value(otel_context._SUPPRESS_INSTRUMENTATION_KEY))

    exporter.trouble = trouble
    with mttp.configure(exporter):
        play()

    assert {True} == set(seen)
    assert {} == dict(otel_context.get_current())


# A buffer that is full.


@contextmanager
def full_buffer(exporter: Exporter, max_block_seconds: float) -> Iterator[mttp.Session]:
    """A session whose buffer is full: the transport hangs."""
    with mttp.configure(exporter) as session:
        exporter.open.clear()
        for _ in range(5):
            play(10, env="early")
        session._pipeline.buffer_bytes = 8_000
        session._pipeline.max_block_seconds = max_block_seconds
        assert not session._pipeline._fits()
        yield session
        exporter.open.set()


def test_a_full_buffer_holds_up_the_caller_a_while_per_episode(exporter: Exporter) -> None:
    """
    Not per step: the patience of one episode is spent once.
    """
    with full_buffer(exporter, max_block_seconds=1.0) as session:
        before = session.stats.blocked_seconds
        play(50)
        blocked = session.stats.blocked_seconds - before

    assert 0.99 < blocked < 25


def test_a_caller_goes_on_as_soon_as_there_is_space(exporter: Exporter) -> None:
    """
    A disk that is merely slow costs time, and no episode.
    """
    with full_buffer(exporter, max_block_seconds=3600.0) as session:
        threading.Timer(0.2, exporter.open.set).start()
        play(50)

    assert {} == dict(session.stats.lost)
    assert all(episode.complete for episode in mttp.read(session))


def test_what_a_full_buffer_lost_was_not_delivered(exporter: Exporter) -> None:
    """
    flush() is false once for what was lost before it, and close() for anything that the session lost.
    """
    with full_buffer(exporter, max_block_seconds=0.0) as session:
        play(3, env="late")
        exporter.open.set()
        answers = [session.flush(), session.flush()]

    assert session.stats.lost["buffer_full"]
    assert [False, True, False] == [*answers, session.close()]


def test_what_finds_no_space_is_lost_by_whole_episodes_and_a_gap_tells(
    exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The counters and the recording agree on losses and reasons; it is logged once.
    """
    with caplog.at_level(logging.WARNING), full_buffer(exporter, max_block_seconds=0.01) as session:
        early = session.stats.episodes
        for _ in range(5):
            play(3, env="late")
        lost = session.stats.lost["buffer_full"]
        assert (20, 5) == (lost, session.stats.lost_episodes)
        assert balanced(session.stats)
        exporter.open.set()
        assert eventually(lambda: session.flush() and "gap" in exporter.names())
        play(3, env="after")

    (gap,) = [record for record in exporter.records() if record.name == "gap"]
    recording = mttp.read(session)
    assert ("buffer_full", 5, 20) == (
        gap.attributes[a.GAP_REASON],
        gap.attributes[a.GAP_EPISODES],
        gap.attributes[a.GAP_SPANS],
    )
    assert gap.start_time < gap.end_time
    assert ["early"] * early + ["after"] == [episode.env for episode in recording]
    assert all(episode.complete for episode in recording)
    assert 1 == sum("whole episodes are lost" in message for message in caplog.messages)


def test_what_was_on_its_way_when_its_episode_was_lost_is_accounted_for(exporter: Exporter) -> None:
    """
    A segment that is refused in the end is not kept for an episode that is lost already.
    """
    with mttp.configure(exporter) as session:
        exporter.open.clear()
        with mttp.episode(env="cut") as cut:
            with cut.step():
                pass
            assert eventually(lambda: exporter.offers)
            session._pipeline.max_block_seconds = 0.0
            session._pipeline.buffer_bytes = 1
            with cut.step():
                pass
            exporter.trouble = raising(NO_SPACE)
            exporter.open.set()
            assert not session.flush()
            exporter.trouble = lambda segment: None
        assert eventually(session.flush)

    assert [] == [record for record in exporter.records() if record.trace_id == cut.trace_id]
    assert (["buffer_full"], 1) == (list(session.stats.lost), session.stats.lost_episodes)
    assert 0 == session.stats.pending


def test_an_episode_that_lost_a_step_loses_the_rest(exporter: Exporter) -> None:
    """
    Steps that come after there is space again are not recorded either: an episode with a hole would mislead.
    """
    with full_buffer(exporter, max_block_seconds=0.0) as session:
        with mttp.episode(env="cut") as cut:
            with cut.step():
                pass
            exporter.open.set()
            assert eventually(session.flush)
            with cut.step():
                pass
        session.flush()

    assert [] == [record for record in exporter.records() if record.trace_id == cut.trace_id]
    assert (["buffer_full"], 1) == (list(session.stats.lost), session.stats.lost_episodes)


def test_the_run_itself_is_never_lost_to_a_full_buffer(exporter: Exporter) -> None:
    """
    Its spans are few, and everything else refers to them.
    """
    with full_buffer(exporter, max_block_seconds=0.0):
        play(5)
        exporter.open.set()

    assert 1 == exporter.names().count("run")


def test_nothing_is_remembered_of_what_is_over(exporter: Exporter) -> None:
    """
    Memory does not grow with the number of episodes, whatever became of them.
    """
    with full_buffer(exporter, max_block_seconds=0.0) as session:
        for _ in range(50):
            play(2)
        exporter.trouble = refusing
        exporter.open.set()
        session.flush()
        exporter.trouble = lambda segment: None
        assert eventually(lambda: session.flush() and "gap" in exporter.names())
        part = session._pipeline
        share = session._recorder

        assert ({}, {}, {}, {}) == (
            part._waited,
            part._losses._causes,
            part._losses._unreported,
            part._retry._refusals,
        )
        assert ({}, 0, 0) == (share._without_marker, part._inbox_bytes, part._retry.bytes)


def test_a_long_queue_is_emptied_in_linear_time() -> None:
    """
    A transport that was down for a while does not slow down what comes after: quadratic work takes minutes.
    """
    backlog = FrameQueue()
    backlog.extend([Frame((number // 5).to_bytes(16, "big") + bytes(400)) for number in range(100_000)])
    taken = 0
    while segment := backlog.take(1000):
        backlog.extend(segment)
        taken += len(backlog.take(1000))

    assert (100_000, 0) == (taken, backlog.bytes)


# Counting.


def test_every_span_is_accounted_for_whatever_happens(exporter: Exporter) -> None:
    """
    Threads, a failing and slow transport, a full buffer, closing in the midst of it: the sums always hold.
    """
    calls = 0

    def trouble(segment: Sequence[SpanRecord]) -> SpanExportResult | None:
        nonlocal calls
        calls += 1
        time.sleep(0.001)
        if calls % 5 == 0:
            raise NO_SPACE
        return SpanExportResult.FAILURE if calls % 7 == 0 else None

    exporter.trouble = trouble
    session = mttp.configure(exporter)
    session._pipeline.buffer_bytes = 30_000
    session._pipeline.max_block_seconds = 0.002
    over = threading.Event()
    wrong: list[dict[str, Any]] = []

    def record() -> int:
        played = 0
        while not over.is_set():
            with session.episode() as episode:
                for _ in range(3):
                    with episode.step() as step:
                        step.reward(1.0)
            played += 1
        return played

    def watch() -> None:
        while not over.is_set():
            if not balanced(session.stats):
                wrong.append(session.stats.as_dict())

    with ThreadPoolExecutor(6) as pool:
        watcher = pool.submit(watch)
        players = [pool.submit(record) for _ in range(4)]
        flusher = pool.submit(lambda: [session.flush(0.01) for _ in range(20)])
        flusher.result()
        eventually(lambda: session.stats.delivered > 500)
        session.close()
        time.sleep(0.05)
        over.set()
        assert all(player.result() for player in players)
        watcher.result()

    assert [] == wrong
    assert 0 == session.stats.pending
    assert session.stats.delivered == len(list(exporter.records()))
    assert session.stats.spans == session.stats.delivered + sum(session.stats.lost.values())


class Growing(deque[object]):
    """A transport at which a span arrives each time it is read."""

    def __len__(self) -> int:
        self.append(None)
        return super().__len__()


def test_counters_are_of_one_moment_though_spans_arrive_meanwhile() -> None:
    """
    Spans arrive without the lock: what was recorded is looked at once.
    """
    stats = Stats([("memory://", "memory")])
    stats.transports["memory://"].arrivals = Growing()
    shown = stats.as_dict()

    assert shown["recorded"] == shown["pending"] == shown["transports"]["memory://"]["pending"]


def test_what_ends_after_the_session_is_counted_as_lost(exporter: Exporter) -> None:
    """
    A step that outlives the session is not written, and not forgotten either.
    """
    with mttp.configure(exporter) as session:
        episode = mttp.episode()
        step = episode.step()
    step.end()
    episode.end()

    assert ({"session_closed": 2}, 0) == (dict(session.stats.lost), session.stats.pending)
    assert balanced(session.stats)


def test_marks_and_ends_may_race() -> None:
    """
    Episodes that end during a flush have at most one marker, and the right span count.
    """
    with mttp.configure("memory://") as session:
        over = threading.Event()

        def flush() -> None:
            while not over.is_set():
                session.flush()

        flusher = threading.Thread(target=flush)
        flusher.start()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: play(2), range(400)))
        over.set()
        flusher.join()

    traces: dict[str, list[SpanRecord]] = {}
    for record in session.records():
        if a.EPISODE_ID in record.attributes:
            traces.setdefault(record.trace_id, []).append(record)
    marks = [[record.name for record in trace].count("episode.start") for trace in traces.values()]
    counts = [
        (len(trace), record.attributes[a.EPISODE_SPAN_COUNT])
        for trace in traces.values()
        for record in trace
        if not record.parent_id
    ]
    assert (400, 400) == (len(traces), len(counts))
    assert max(marks) <= 1
    assert [] == [pair for pair in counts if pair[0] != pair[1]]
    assert 1 == [record.name for record in session.records()].count("run")


def test_stats_are_numbers_by_name(session: mttp.Session) -> None:
    """
    For a log line or a dashboard.
    """
    play(2)
    session.close()

    seen = session.stats.as_dict()
    assert (1, 2, 0, {}, 0, {}, 0.0) == tuple(
        seen[name]
        for name in ("episodes", "steps", "pending", "lost", "lost_episodes", "faults", "blocked_seconds")
    )
    assert seen["spans"] == seen["delivered"] >= 3
    assert "Stats(episodes=1, steps=2, " in repr(session.stats)


# Exporters of others.


def test_a_users_own_exporter_gets_real_spans() -> None:
    """
    The SDK's in-memory exporter stands for any other.
    """
    exporter = InMemorySpanExporter()
    with mttp.configure(exporter), mttp.episode(task="a") as episode, episode.step() as step:
        step.observation([1.0, 2.0])

    spans = {span.name: span for span in exporter.get_finished_spans()}
    found, root = spans["step"], spans["episode"]
    assert found.parent is not None
    assert found.context is not None
    assert (root.get_span_context(), "a") == (found.parent, (root.attributes or {})[a.TASK_ID])
    assert (1.0, 2.0) == (found.attributes or {})[a.OBSERVATION_VALUE]
    assert "mttp" == found.instrumentation_scope.name  # type: ignore[union-attr]
    assert (found.start_time or 0) <= (found.end_time or 0)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_a_users_own_exporter_is_told_what_is_sampled(ratio: float) -> None:
    """
    It gets every episode, with the flag of its trace.
    """
    exporter = InMemorySpanExporter()
    with mttp.configure(exporter, sampling=mttp.Sampling(ratio)):
        play()

    (root,) = [span for span in exporter.get_finished_spans() if span.name == "episode"]
    assert root.context is not None
    assert bool(ratio) is root.context.trace_flags.sampled


def test_the_sdks_console_exporter_prints_every_span() -> None:
    """
    Even one that holds bytes, NaN, maps and nothing.
    """
    out = io.StringIO()
    console = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(None) + "\n")
    odd = [b"\x00", float("nan"), None, {"a": b"b"}]
    with mttp.configure(console), mttp.episode(metadata={"odd": odd}) as episode, episode.step() as step:
        step.observation(b"\x00\xff")
        episode.span.add_event("e", {"bytes": b"\x00"})

    printed = {span["name"]: span for span in map(json.loads, out.getvalue().splitlines())}
    assert {"episode", "step", "run"} <= printed.keys()
    assert "AP8=" == printed["step"]["attributes"][a.OBSERVATION_VALUE]


def test_an_exporter_needs_no_more_than_export() -> None:
    """
    Something without `shutdown` does as well.
    """

    class Least:
        def __init__(self) -> None:
            self.names: list[str] = []

        def export(self, spans: Sequence[Any]) -> SpanExportResult:
            self.names += [span.name for span in spans]
            return SpanExportResult.SUCCESS

    least = Least()
    with mttp.configure(least) as session:  # type: ignore[arg-type]
        play()

    assert {"step", "episode", "run"} <= set(least.names)
    assert 0 == session.stats.pending


def test_a_caller_encodes_what_waits_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Beyond a few megabytes, a part at each end of a span; the bytes are those that the thread would write.
    """
    monkeypatch.setattr(thread, "URGENT_BYTES", 2**12)
    monkeypatch.setattr(thread, "RELIEF_BYTES", 2**15)
    monkeypatch.setattr(thread, "PART_BYTES", 2**13)
    gate, exporting = threading.Event(), threading.Event()

    class Stuck(FileTransport):
        @taking_frames
        def export(self, spans: Any) -> SpanExportResult:
            exporting.set()
            gate.wait(SECONDS)
            return super().export(spans)

    with mttp.configure(Stuck(tmp_path / "a.jsonl")) as session:
        play()
        assert exporting.wait(SECONDS)
        for number in range(20):
            with mttp.episode(task=f"{number}") as episode:
                for index in range(10):
                    with episode.step() as step:
                        step.observation([{"role": "user", "content": f"{number} {index} " * 50}])
                        step.tokens(ids=[number, index], logprobs=[-0.5, -1.5])
        (pipeline,) = session._recorder.pipelines
        waiting: list[Any] = list(pipeline._inbox)
        gate.set()
    encoded = [frame for frame in waiting if frame.is_encoded]

    assert 100 < len(encoded)
    assert encoded == waiting[: len(encoded)]
    assert balanced(session.stats)
    recording = mttp.read(tmp_path / "a.jsonl")
    assert [] == recording.problems
    for number, played in enumerate(sorted(recording.episodes[1:], key=lambda one: int(one.task or 0))):
        assert played.complete
        assert [[number, index] for index in range(10)] == [step.tokens.ids.tolist() for step in played.steps]
        assert f"{number} 9 " * 50 == played.steps[9].observation[0]["content"]
