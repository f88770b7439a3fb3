"""Recordings in ClickHouse, in the table of the Collector's exporter: what is read equals what was sent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading.test_engines import LINES, RULES, document, record_runs, run, unnamed
from reading.traces import write

import mttp
from mttp.errors import ReadError
from mttp.model.spans import SpanRecord
from mttp.reading import engines
from mttp.testing import OtlpReceiver

pytest.importorskip("chdb")
pytest.importorskip("clickhouse_connect")
pytest.importorskip("sqlglot")

from clickhouse import ClickHouse

pytestmark = pytest.mark.filterwarnings("ignore")  # of its client


@pytest.fixture(scope="module")
def server() -> ClickHouse:
    return ClickHouse()


@pytest.fixture
def table(server: ClickHouse) -> Iterator[str]:
    """The address of an empty table, to which options can be added."""
    server.clear()
    with server.serve() as address:
        yield address


def sent(*paths: str) -> list[SpanRecord]:
    """The spans that a receiver gets of recordings: without packed arrays, content included."""
    with OtlpReceiver() as receiver:
        done = run("push", *paths, "--to", receiver.http_address, "--content")
        assert 0 == done.exit_code, done.output
        return list(receiver.records())


def without_losses(source: str) -> dict[str, Any]:
    """The summary, without what the table does not give back."""
    found = document(source)
    found["problems"] = [one for one in found.get("problems", ()) if "store_loss" not in str(one)]
    return found


def same(expected: Any, found: Any) -> bool:
    """Whether two results are equal, but for their sources and the notes about the table."""
    one, other = unnamed(expected), unnamed(found)
    other["problems"] = [text for text in other.get("problems", ()) if "keeps strings only" not in str(text)]
    return bool({"problems": []} | one == other)


def recorded(server: ClickHouse) -> tuple[str, list[SpanRecord]]:
    """Runs as files, and in the table; the lines that the receiver got."""
    record_runs()
    spans = sent(*LINES)
    server.insert(spans)
    return str(write("received.jsonl", spans)), spans


def test_what_is_read_is_what_was_sent(server: ClickHouse, table: str):
    """
    Episodes with their steps, tokens, rewards, groups and runs, and the summary.
    """
    lines, _ = recorded(server)
    expected, found = mttp.read(lines), mttp.read(table)

    assert len(expected) == len(found) > 20
    by_id = {one.trace_id: one for one in found}
    for one in expected:
        other = by_id[one.trace_id]
        for name in ("env", "task", "status", "outcome", "reward", "start_time", "run_id"):
            assert getattr(one, name) == getattr(other, name), name
        assert [step.reward for step in one.steps] == [step.reward for step in other.steps]
        assert [str(step.tokens) for step in one.steps] == [str(step.tokens) for step in other.steps]
    assert {one.id for one in expected.runs} == {one.id for one in found.runs}
    assert len(expected.groups) == len(found.groups)
    assert without_losses(lines) == without_losses(table)


def test_a_sample_of_a_run_is_a_problem(server: ClickHouse, table: str):
    """
    A sampler before the table drops episodes: a run that was asked for misses them, a task does not.
    """
    _, spans = recorded(server)
    *_, dropped = (span.trace_id for span in spans if span.name.startswith("episode") and not span.parent_id)
    server.clear()
    server.insert([span for span in spans if span.trace_id != dropped])
    run_id = next(span.attributes["mttp.run.id"] for span in spans if span.trace_id == dropped)

    for read in (mttp.read, mttp.summarize):
        kinds = [problem.kind for problem in read(f"{table}&run={run_id}").problems]
        assert 1 == kinds.count("missing_episodes")
        assert 1 == [problem.kind for problem in read(table).problems].count("missing_episodes")
        partly = read(f"{table}&run={run_id}&task=t/1").problems
        assert "missing_episodes" not in {problem.kind for problem in partly}


def test_studies_and_commands(server: ClickHouse, table: str):
    """
    Comparisons, gates, diagnoses and the commands, of selected runs.
    """
    recorded(server)
    Path("both.jsonl").write_bytes(Path("one.jsonl").read_bytes() + Path("three.jsonl").read_bytes())
    lines = ("both.jsonl", "two.jsonl")
    chosen = [f"{table}&run={name}" for name in ("one", "two")]

    assert same(mttp.compare(*lines), mttp.compare(*chosen))
    gated = [mttp.gate(both[1], baseline=both[0], rules=RULES) for both in (lines, chosen)]
    assert same(*gated)
    assert same(mttp.diagnose(lines[1]), mttp.diagnose(chosen[1]))
    done = run("summary", chosen[0], "--json")
    assert 0 == done.exit_code, done.output
    assert 0 == run("show", f"{table}&run=one&task=t/1").exit_code
    checked = run("check", chosen[0])  # as with other stores, what is not kept is a problem
    assert 1 == checked.exit_code
    assert "keeps strings only" in checked.output


@pytest.mark.parametrize("name", ["run", "env", "task", "trace", "since", "until"])
def test_options_select_episodes(name: str, server: ClickHouse, table: str):
    """
    As they do for a dataset.
    """
    lines, _ = recorded(server)
    episodes = sorted(mttp.read(lines), key=lambda each: each.start_time)
    middle = episodes[len(episodes) // 2]
    moment = datetime.fromtimestamp(middle.start_time / 1e9, timezone.utc).isoformat().replace("+00:00", "Z")
    value = {
        "run": middle.run_id,
        "env": middle.env,
        "task": middle.task,
        "trace": middle.trace_id,
        "since": moment,
        "until": moment,
    }[name]
    assert 0 == run("convert", lines, "dataset", "--partition").exit_code
    expected = mttp.read(f"file://{Path('dataset').absolute()}?{name}={value}")
    found = mttp.read(f"{table}&{name}={value}")

    assert 0 < len(found) < len(episodes) or name == "env"
    assert {one.trace_id for one in expected} == {one.trace_id for one in found}


def test_only_what_is_wanted_comes_back(server: ClickHouse, table: str):
    """
    A summary fetches no arrays, and one run no rows of another.
    """
    with mttp.configure("file://long.jsonl", run_id="long"), mttp.episode(env="toy"):
        random = np.random.default_rng(0)  # answers are compressed
        for _ in range(500):
            with mttp.current_episode().step() as step:
                step.tokens(random.integers(0, 50_000, 200), logprobs=random.random(200))
    record_runs()
    server.insert(sent(*LINES, "long.jsonl"))
    fetched = []
    for read, address in ((mttp.read, table), (mttp.summarize, table), (mttp.summarize, f"{table}&run=two")):
        server.bytes = 0
        read(address)
        fetched.append(server.bytes)

    assert fetched[0] > 2 * fetched[1] > 4 * fetched[2]


def test_many_traces_are_not_listed(server: ClickHouse, table: str):
    """
    A server takes queries of 256 KiB: of more traces than fit, those that are wanted are among all.
    """
    recorded(server)
    wanted = mttp.read(table).episodes[3].trace_id
    others = {f"{number:032x}" for number in range(8_000)}

    assert {wanted} == {span.trace_id for span in engines.open(table).records(traces={wanted})}
    assert wanted in {span.trace_id for span in engines.open(table).records(traces={wanted, *others})}


def test_values_that_text_can_hold(server: ClickHouse, table: str):
    """
    NaN and infinities, 64 bits, unicode and quotes; metadata stays text, which is named.
    """
    with OtlpReceiver() as receiver:
        name = "näve ' \" \\ \x00 😀"
        with (
            mttp.configure(mttp.Route(receiver.http_address, content=True)),
            mttp.episode(env=name, metadata={"depth": 3}) as episode,
        ):
            with episode.step() as step:
                step.observation(np.array([1.5, 2.5]))
                step.reward(2.5)
            episode.metric("ratio", math.nan)
            episode.metric("large", 2.0**60)
        server.insert(receiver.records())
        expected = mttp.read(receiver).episodes[0]
    recording = mttp.read(table)
    (found,) = recording.episodes

    assert expected.env == found.env
    assert math.isnan(found.metrics["ratio"])
    assert 2.0**60 == found.metrics["large"]
    assert list(expected.steps[0].observation) == list(found.steps[0].observation)
    assert any("mttp.metadata.depth" in one.message for one in recording.problems)


@pytest.mark.parametrize(
    "option", ["run=x'%20OR%201=1%20--%20", "task=%22);DROP%20TABLE%20mttp.spans;--", "env=\\'"]
)
def test_options_are_values_and_no_sql(option: str, server: ClickHouse, table: str):
    """
    Nothing matches, and the table stays.
    """
    recorded(server)
    with pytest.raises(ReadError, match="nothing was found"):
        mttp.read(f"{table}&{option}")
    assert len(mttp.read(table)) > 20


def test_what_can_not_be_read(server: ClickHouse, table: str, monkeypatch: pytest.MonkeyPatch):
    """
    An error names the address and what to do, and no password.
    """
    monkeypatch.setenv("CLICKHOUSE_PASSWORD", "not-to-be-shown")
    place = table.partition("?")[0]
    for address, said in (
        (table, "nothing was found"),
        (f"{place}?table=none", "none"),
        (f"{place.replace('/mttp', '/otel')}?table=other", "lacks 'TraceId'"),
        ("clickhouse://127.0.0.1:9?timeout=2", "127.0.0.1"),
        (f"{table}&colour=red", "unknown option 'colour'"),
        ("clickhouse://me:secret@host/x", "credentials"),
        ("clickhouse://", "write clickhouse://HOST:8123/DATABASE"),
    ):
        with pytest.raises(ReadError, match=said) as caught:
            mttp.summarize(address)
        assert "not-to-be-shown" not in str(caught.value)
        assert "secret" not in str(caught.value)
    done = run("convert", "a.jsonl", table, "--partition")
    assert 2 == done.exit_code
    assert 2 == run("summary", f"{place}?table=none", "--json").exit_code
