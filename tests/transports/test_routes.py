"""Several transports at once: each gets everything, and none waits for, or costs, another."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from exporters import Exporter, raising, refusing
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from polling import SECONDS, eventually

import mttp
from mttp.errors import ConfigureError, ReadError, TransportError
from mttp.model.spans import SpanRecord
from mttp.transports.pipeline import Pipeline
from mttp.transports.stats import TransportStats

DOWN = OSError("down")


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    """A healthy exporter."""
    yield from unblocked()


@pytest.fixture
def troubled() -> Iterator[Exporter]:
    """One that is going to be in trouble."""
    yield from unblocked()


def unblocked() -> Iterator[Exporter]:
    """An exporter that is unblocked in the end, whatever happened."""
    made = Exporter()
    yield made
    made.open.set()
    made.trouble = lambda segment: None


def play(steps: int = 2, **facts: Any) -> mttp.recording.OpenEpisode:
    """Record one episode."""
    with mttp.episode(**facts) as episode:
        for _ in range(steps):
            with episode.step() as step:
                step.reward(1.0)
    return episode


def pipelines(session: mttp.Session) -> list[Pipeline]:
    """Those of the transports, in their order."""
    return session._recorder.pipelines


def counters(session: mttp.Session) -> list[TransportStats]:
    """Those of the transports, in their order."""
    return list(session.stats.transports.values())


def spans(exporter: Exporter) -> list[str]:
    """The ids of the spans that were taken."""
    return sorted(record.span_id for record in exporter.records())


def slow(segment: Sequence[SpanRecord]) -> None:
    """Trouble that passes."""
    time.sleep(0.05)


# Everything, everywhere.


def test_each_transport_gets_everything_once(exporter: Exporter, tmp_path: Path) -> None:
    """
    Episodes, markers, the run's own spans and its end.
    """
    with mttp.configure(["memory://", "file://a.jsonl", tmp_path / "runs", exporter]) as session:
        play(task="first")
        with mttp.episode(task="open"):
            session.flush()
        play(task="last")

    kept = sorted(record.span_id for record in session.records())
    assert kept == spans(exporter)
    assert len(set(kept)) == len(kept)
    assert {"run", "run.start", "episode.start", "episode", "step"} == set(exporter.names())
    for source in ("a.jsonl", "runs"):
        recording = mttp.read(source)
        assert ["first", "open", "last"] == [episode.task for episode in recording]
        assert ([], True, "completed") == (
            recording.problems,
            all(episode.complete for episode in recording),
            recording.runs[0].status,
        )


@pytest.mark.parametrize(
    "trouble",
    [raising(DOWN), raising(ValueError("broken")), raising(SystemExit(1)), refusing, slow],  # type: ignore[arg-type]
    ids=["dead", "broken", "leaves", "refuses", "slow"],
)
@pytest.mark.parametrize("place", [0, 1])
def test_trouble_with_one_costs_no_other(
    trouble: Callable[..., Any], place: int, exporter: Exporter, troubled: Exporter
) -> None:
    """
    Wherever it stands in the list; and in the end it gets everything, too.
    """
    order = [exporter]
    order.insert(place, troubled)
    with mttp.configure(order) as session:
        troubled.trouble = trouble
        for number in range(10):
            play(task=number)
        assert eventually(lambda: exporter.names().count("episode") == 10)
        healthy = counters(session)[1 - place]
        assert {} == dict(healthy.lost)
        troubled.trouble = lambda segment: None

    assert (0, {}) == (session.stats.pending, dict(session.stats.lost))
    assert spans(exporter) == spans(troubled)
    assert all(episode.complete for episode in mttp.read(exporter))


def test_one_that_hangs_holds_up_no_other(exporter: Exporter, troubled: Exporter) -> None:
    """
    Neither what is recorded nor what is flushed, read or closed elsewhere.
    """
    session = mttp.configure(["memory://", troubled, exporter])
    troubled.open.clear()
    for number in range(20):
        play(task=number)
    assert eventually(lambda: exporter.names().count("episode") == 20)
    seen = len(mttp.read(session))
    flushed = session.flush(0.2)
    closed = session.close(0.5)
    memory, hanging, healthy = counters(session)

    assert (20, False, False) == (seen, flushed, closed)
    assert ({}, {}) == (dict(healthy.lost), dict(memory.lost))
    assert "run" in exporter.names()
    assert {"session_closed": hanging.recorded} == dict(hanging.lost)
    assert (20, 0) == (hanging.lost_episodes, session.stats.pending)


def test_a_file_is_read_while_another_transport_hangs(troubled: Exporter) -> None:
    """
    Reading a session waits for what it reads, and for nothing else.
    """
    session = mttp.configure([troubled, "file://a.jsonl"])
    troubled.open.clear()
    play()

    assert 1 == len(mttp.read(session))
    session.close(0.1)


def test_a_span_that_waits_for_space_in_one_is_given_to_all(exporter: Exporter, troubled: Exporter) -> None:
    """
    A full buffer holds up the caller, and not the other transports.
    """
    with mttp.configure([troubled, exporter]) as session:
        troubled.open.clear()
        full, _ = pipelines(session)
        full.buffer_bytes, full.max_block_seconds = 1, 60.0
        player = threading.Thread(target=play)
        player.start()

        assert eventually(lambda: "step" in exporter.names())
        assert player.is_alive()
        troubled.open.set()
        player.join()

    assert (0.0, {}) == (counters(session)[1].blocked_seconds, dict(session.stats.lost))
    assert counters(session)[0].blocked_seconds > 0


def test_ctrl_c_while_waiting_for_space_costs_no_transport_the_span(
    exporter: Exporter, troubled: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The step that was interrupted is in each of them.
    """
    with mttp.configure([troubled, exporter]) as session:
        troubled.open.clear()
        full, _ = pipelines(session)
        full.buffer_bytes, full.max_block_seconds = 1, 60.0

        def interrupt(*args: Any) -> bool:
            full.buffer_bytes = 10**9
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(full, "_throttle", interrupt)
            with pytest.raises(KeyboardInterrupt):
                play()
        troubled.open.set()

    assert spans(troubled) == spans(exporter)
    (episode,) = mttp.read(exporter)
    assert ("aborted", True, 1) == (episode.status, episode.complete, len(episode.steps))


def test_markers_reach_the_others_while_one_is_full(exporter: Exporter, troubled: Exporter) -> None:
    """
    The thread that writes marks what is open, for all, and waits for no space.
    """
    with mttp.configure([exporter, troubled]) as session:
        troubled.open.clear()
        _, full = pipelines(session)
        opened = [mttp.episode(task=number) for number in range(20)]
        full.buffer_bytes, full.max_block_seconds = 1, 60.0

        assert eventually(lambda: exporter.names().count("episode.start") == 20)
        assert 0.0 == session.stats.blocked_seconds
        full.buffer_bytes = 10**9
        troubled.open.set()
        for episode in opened:
            episode.end()

    assert (20, {}) == (troubled.names().count("episode.start"), dict(session.stats.lost))


def test_what_is_open_at_the_end_is_marked_in_each(exporter: Exporter, troubled: Exporter) -> None:
    """
    Whichever of them looks first.
    """
    for _ in range(20):
        with mttp.configure([exporter, troubled]) as session:
            session._recorder.pipelines[0]._awake = session._recorder.pipelines[1]._awake = True
            mttp.episode(task="left open")
        assert {} == dict(session.stats.lost)

    assert 20 == exporter.names().count("episode.start")
    assert spans(exporter) == spans(troubled)


def test_a_caller_is_held_up_once_where_several_are_full(exporter: Exporter, troubled: Exporter) -> None:
    """
    The patience of one episode is not spent on each of them.
    """
    with mttp.configure([exporter, troubled]) as session:
        for each in (exporter, troubled):
            each.open.clear()
        for part in pipelines(session):
            part.buffer_bytes, part.max_block_seconds = 1, 0.4
        play(10)
        first, second = (each.blocked_seconds for each in counters(session))
        for each in (exporter, troubled):
            each.open.set()

    assert first > 0.39
    assert second < first / 2
    assert [["buffer_full"], ["buffer_full"]] == [list(each.lost) for each in counters(session)]


def test_what_one_loses_is_reported_there_and_nowhere_else(exporter: Exporter, troubled: Exporter) -> None:
    """
    Its gap is its own, and so are its counters.
    """
    with mttp.configure([exporter, troubled]) as session:
        troubled.open.clear()
        play(task="early")
        _, full = pipelines(session)
        full.buffer_bytes, full.max_block_seconds = 1, 0.0
        full._weigh()  # the limit is looked at when something was written
        play(task="lost")
        full.buffer_bytes = 10**9
        troubled.open.set()
        assert eventually(lambda: session.flush() and "gap" in troubled.names())
        play(task="after")

    healthy, lossy = counters(session)
    assert (0, 3, 1) == (exporter.names().count("gap"), lossy.lost["buffer_full"], lossy.lost_episodes)
    assert ({}, 0) == (dict(healthy.lost), healthy.lost_episodes)
    assert ["early", "lost", "after"] == [episode.task for episode in mttp.read(exporter)]
    assert ["early", "after"] == [episode.task for episode in mttp.read(troubled)]
    assert (session.stats.lost_episodes, session.stats.spans) == (1, lossy.recorded)


# Counting.


def test_counters_are_kept_by_address_and_summed(exporter: Exporter, tmp_path: Path) -> None:
    """
    Two transports of one address have a number.
    """
    with mttp.configure(["memory://", "file://a.jsonl", exporter, "memory://"]) as session:
        play()

    stats = session.stats
    assert ["memory://", f"file://{tmp_path}/a.jsonl", "Exporter", "memory:// (2)"] == list(stats.transports)
    assert ["memory", "file", "exporter", "memory"] == [each.name for each in stats.transports.values()]
    shown = stats.as_dict()
    assert list(shown["transports"]) == list(stats.transports)
    for name in ("recorded", "delivered", "pending", "lost_episodes", "sampled_out", "blocked_seconds"):
        assert shown[name] == sum(each[name] for each in shown["transports"].values())
    assert (4 * stats.spans, stats.spans) == (stats.delivered, stats.transports["Exporter"].delivered)


# Flushing and closing.


def test_a_flush_succeeds_when_all_have_everything(exporter: Exporter, troubled: Exporter) -> None:
    """
    It asks all at once, so that one that is slow takes none of the time of another.
    """
    go = threading.Event()

    def trouble(segment: Sequence[SpanRecord]) -> None:
        go.wait(SECONDS)

    with mttp.configure([troubled, exporter]) as session:
        troubled.trouble = trouble
        play()
        threading.Timer(0.2, go.set).start()
        assert session.flush(30.0)
        assert exporter.names().count("episode") == troubled.names().count("episode") == 1
        exporter.trouble = raising(DOWN)
        play()
        assert not session.flush(30.0)
        exporter.trouble = lambda segment: None


def test_exporters_that_flush_the_session_do_not_wait_for_each_other(
    exporter: Exporter, troubled: Exporter
) -> None:
    """
    It can't be done, which is the answer, and at once.
    """
    answers: list[bool] = []
    together = threading.Barrier(2, timeout=SECONDS)

    with mttp.configure([exporter, troubled]) as session:

        def trouble(segment: Sequence[SpanRecord]) -> None:
            if len(answers) < 2:
                together.wait()
                answers.append(session.flush(3600.0))

        exporter.trouble = troubled.trouble = trouble
        play()
        assert eventually(lambda: len(answers) == 2)

    assert [False, False] == answers


def test_closing_takes_no_longer_than_the_slowest_may(exporter: Exporter, troubled: Exporter) -> None:
    """
    They end side by side, each within its own time or the one that is given.
    """
    for each, seconds in ((exporter, 0.5), (troubled, 0.7)):
        each.close_timeout = seconds  # type: ignore[attr-defined]
        each.open.clear()
    session = mttp.configure([exporter, troubled])
    play()

    assert not session.close()
    assert [{"session_closed": each.recorded} for each in counters(session)] == [
        dict(each.lost) for each in counters(session)
    ]


def test_a_transport_that_can_not_even_be_released_blocks_no_caller(troubled: Exporter) -> None:
    """
    As where the lock that its release takes is held by what hangs.
    """
    released = threading.Event()

    def shutdown() -> None:
        released.set()
        troubled.open.wait()

    troubled.shutdown = shutdown  # type: ignore[method-assign]
    session = mttp.configure(troubled)
    troubled.open.clear()
    play()

    assert not session.close(0.2)
    assert released.wait(SECONDS)


def test_who_closes_during_another_close_waits_along(troubled: Exporter) -> None:
    """
    A signal's handler, say: the process must not end before the rest is written.
    """
    session = mttp.configure(troubled)
    troubled.open.clear()
    play()
    answers: list[bool] = []
    threads = [threading.Thread(target=lambda: answers.append(session.close())) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: session.closed)
    assert [] == answers
    troubled.open.set()
    for thread in threads:
        thread.join()

    assert ([True] * 3, 1, {}) == (answers, troubled.names().count("run"), dict(session.stats.lost))


def test_of_several_who_close_the_least_patient_decides(troubled: Exporter) -> None:
    """
    What is not written by then is lost for all of them.
    """
    session = mttp.configure(troubled)
    troubled.open.clear()
    play()
    answers: list[bool] = []
    patient = threading.Thread(target=lambda: answers.append(session.close(600.0)))
    patient.start()
    assert eventually(lambda: session.closed)
    answers.append(session.close(0.1))
    patient.join(SECONDS)

    assert [False, False] == answers
    assert 0 == session.stats.pending


# Reading a session.


@pytest.mark.parametrize(
    ("addresses", "sources"),
    [
        (["memory://"], []),
        (["memory://", "file://a.jsonl"], ["a.jsonl"]),
        (["file://a.jsonl", "memory://"], ["a.jsonl"]),
        (["file://a.jsonl", "file://b.jsonl"], ["a.jsonl"]),
    ],
)
def test_a_session_is_read_from_a_file_or_memory(addresses: list[str], sources: list[str]) -> None:
    """
    From the first file, where there is one, whatever else there is.
    """
    with mttp.configure([InMemorySpanExporter(), *addresses]) as session:
        play(task="seen")
        during = mttp.read(session)
    after = mttp.read(session)

    assert ["seen"] == [episode.task for episode in during] == [episode.task for episode in after]
    assert sources == [path.name for path in after.sources]


def test_a_session_that_keeps_nothing_says_so() -> None:
    """
    With all that it writes to.
    """

    class Unreadable:
        def export(self, spans: Sequence[Any]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

        def shutdown(self) -> None:
            pass

        def __repr__(self) -> str:
            return "<nowhere>"

    said = "a session on <nowhere>, <nowhere> has no memory transport"
    with mttp.configure([Unreadable(), Unreadable()]) as session, pytest.raises(ReadError, match=said):
        mttp.read(session)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "runs/"])
def test_two_transports_to_one_place_make_two_of_each_and_are_read_once(name: str) -> None:
    """
    A reader leaves out what it has seen.
    """
    with mttp.configure([f"file://{name}", f"file://{name}"]) as session:
        for number in range(20):
            play(task=number)
            if number % 5 == 0:
                session.flush()

    recording = mttp.read(name)
    assert [str(number) for number in range(20)] == [episode.task for episode in recording]
    assert ([], session.stats.spans) == (recording.problems, recording.duplicates)


# Routes.


def test_a_route_is_a_transport_with_terms(tmp_path: Path) -> None:
    """
    To an address, a path, or an exporter.
    """
    exporter = Exporter()
    with mttp.configure(
        [mttp.Route("memory://"), mttp.Route(tmp_path / "a.jsonl"), mttp.Route(exporter)]
    ) as session:
        play(task="everywhere")

    for source in (session, tmp_path / "a.jsonl", exporter):
        assert ["everywhere"] == [episode.task for episode in mttp.read(source)]


def test_a_routes_own_terms_precede_those_of_the_session() -> None:
    """
    Content and redaction, each for itself.
    """

    def mine(key: str, value: Any) -> Any:
        return value

    def theirs(key: str, value: Any) -> Any:
        return value

    routes = [
        mttp.Route("memory://"),
        mttp.Route("memory://", content=False),
        mttp.Route("memory://", redact=mine),
    ]
    lanes = [route.open(content=True, redact=theirs, close_timeout=3.0) for route in routes]

    assert [(True, theirs), (False, theirs), (True, mine)] == [
        (lane.withholding.content, lane.withholding.redact) for lane in lanes
    ]
    assert {3.0} == {lane.close_timeout for lane in lanes}


def test_a_transport_says_how_it_wants_to_be_used(exporter: Exporter) -> None:
    """
    By attributes named as those of a lane.
    """
    exporter.name, exporter.max_block_seconds, exporter.buffer_bytes = "mine", 0.5, 1000  # type: ignore[attr-defined]

    lane = mttp.Route(exporter).open()

    assert ("mine", 0.5, 1000, 30.0) == (
        lane.name,
        lane.max_block_seconds,
        lane.buffer_bytes,
        lane.close_timeout,
    )


def test_a_route_shows_no_secrets() -> None:
    """
    Options may be headers with keys.
    """
    route = mttp.Route("http://localhost:4318", headers={"authorization": "Bearer secret"})

    assert "Route('http://localhost:4318')" == repr(route)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"content": "no"}, "content='no' is neither True nor False"),
        ({"redact": "*"}, "redact='\\*' is not a function"),
        ({"close_timeout": "soon"}, "close_timeout='soon' is not a number of seconds"),
        ({"close_timeout": -1}, "close_timeout=-1 is not a number of seconds"),
        ({"close_timeout": float("nan")}, "close_timeout=nan is not a number of seconds"),
    ],
)
def test_terms_that_make_no_sense_are_refused(terms: dict[str, Any], message: str, tmp_path: Path) -> None:
    """
    Before anything is opened.
    """
    with pytest.raises(ConfigureError, match=message):
        mttp.configure("file://a.jsonl", **terms)
    assert ([], None) == (list(tmp_path.iterdir()), mttp.current_session())


def test_a_route_of_an_exporter_takes_no_options(exporter: Exporter) -> None:
    """
    It is open already; the message names them, and not their values.
    """
    with pytest.raises(
        ConfigureError, match="is already open and takes no options: headers, timeout"
    ) as told:
        mttp.configure(mttp.Route(exporter, timeout=3, headers={"key": "secret"}))

    assert "secret" not in str(told.value)


# Opening.


def test_where_one_can_not_be_opened_none_is_left_open(exporter: Exporter, tmp_path: Path) -> None:
    """
    Nor is anything published; an exporter that was given is its owner's to release.
    """
    (tmp_path / "occupied").write_text("")
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(TransportError, match="occupied"):
        mttp.configure([exporter, "file://a.jsonl", "memory://", "file://occupied/b.jsonl"])

    assert before == set(Path("/proc/self/fd").iterdir())
    assert (0, None) == (exporter.shutdowns, mttp.current_session())
    assert not {name for name in os.environ if name.startswith("MTTP_")}
    with mttp.configure([exporter, "file://a.jsonl"]):
        play(task="now")
    assert ["now"] == [episode.task for episode in mttp.read("a.jsonl")]
    assert 1 == exporter.shutdowns


def test_exporters_are_further_transports(exporter: Exporter) -> None:
    """
    Beside the default, or what is named.
    """
    with mttp.configure("memory://", exporters=[exporter]) as session:
        play()
    assert ["memory://", "Exporter"] == list(session.stats.transports)
    with mttp.configure(exporters=[exporter]) as session:
        play()

    assert f"file://{Path.cwd()}/mttp-runs/{session.run_id}/" == next(iter(session.stats.transports))
    assert 2 == exporter.names().count("episode")


def test_children_inherit_every_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    In the order of the list, whatever is in a path; memory and objects stay where they are.
    """
    odd = tmp_path / "a,file:" / "b%2C c.jsonl"
    with mttp.configure([odd, "memory://", Exporter(), "file://runs/?suffix=.jsonl.gz"], run_id="r"):
        inherited = os.environ["MTTP_TRANSPORT"]
    assert "MTTP_TRANSPORT" not in os.environ

    monkeypatch.setenv("MTTP_TRANSPORT", inherited)
    with mttp.configure() as session:
        play()
    assert [f"file://{odd}", f"file://{tmp_path}/runs/"] == list(session.stats.transports)
    assert (1, 1) == (len(mttp.read(odd)), len(mttp.read("runs")))
