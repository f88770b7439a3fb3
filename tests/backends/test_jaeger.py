"""Jaeger itself, where the variable JAEGER names its binary, and the one of the tests: both behave alike."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np
import pytest
from polling import eventually
from specimen import EVERYTHING
from stores import TOO_DEEP, WARNINGS, JaegerServer, serving
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.errors import ReadError
from mttp.recording import configuration
from mttp.testing import assert_same

pytestmark = pytest.mark.timeout(600)
BINARY = os.environ.get("JAEGER", "")
"""Path of a Jaeger binary; empty where there is none."""
WAIT = 60
"""Seconds, longer than any machine needs."""
ALL_TIME = {"query.start_time_min": "1970-01-01T00:00:00Z", "query.start_time_max": "2100-01-01T00:00:00Z"}
CONFIGURATION = """
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {{receivers: [otlp], processors: [batch], exporters: [jaeger_storage_exporter]}}
  telemetry: {{metrics: {{level: none}}, logs: {{level: warn}}}}
extensions:
  jaeger_query:
    storage: {{traces: some}}
    http: {{endpoint: "127.0.0.1:{query}"}}
    grpc: {{endpoint: "127.0.0.1:{query_grpc}"}}
    max_clock_skew_adjust: 10s
  jaeger_storage: {{backends: {{some: {{memory: {{max_traces: {max_traces}}}}}}}}}
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{http}"}}}}}}}}
processors: {{batch: {{timeout: 200ms}}}}
exporters: {{jaeger_storage_exporter: {{trace_storage: some}}}}
"""


class Answered(NamedTuple):
    """The answer to a query."""

    status: int
    text: str

    @property
    def document(self) -> Any:
        """The answer as JSON."""
        return json.loads(self.text)


class Jaeger(NamedTuple):
    """A Jaeger that runs."""

    otlp: str
    """Where it takes spans: host and port."""
    query: str
    """Where it is asked: host and port."""

    def asked(self, path: str, **query: object) -> Answered:
        """The answer to a query; two underscores in a name are a point."""
        named = {name.replace("__", "."): value for name, value in query.items()}
        try:
            with urllib.request.urlopen(f"http://{self.query}{path}?{urlencode(named)}") as answer:
                return Answered(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            return Answered(error.code, error.read().decode())

    def spans(self, trace_id: str, **query: object) -> dict[str, dict[str, Any]]:
        """The spans of a trace as OTLP by name, with their attributes as a mapping."""
        document = self.asked(f"/api/v3/traces/{trace_id}", **query).document
        found = {}
        for block in document["result"]["resourceSpans"]:
            for scope in block["scopeSpans"]:
                for span in scope["spans"]:
                    pairs = {pair["key"]: pair["value"] for pair in span["attributes"]}
                    found[span["name"]] = {**span, "attributes": pairs}
        return found

    def read(self, run: str) -> mttp.Recording:
        """A run, as soon as it is whole."""
        return mttp.read(f"jaeger://{self.query}?{urlencode({'run': run, 'wait': WAIT})}")


@contextmanager
def running(kind: str, folder: Path, *, max_traces: int = 100_000) -> Iterator[Jaeger]:
    """A Jaeger, the real one or that of the tests, as long as the block lasts."""
    if kind == "stand-in":
        with serving(JaegerServer(max_traces=max_traces)) as place:
            yield Jaeger(place, place)
        return
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        for each in (one, two, three):
            each.bind(("127.0.0.1", 0))
        http, query, query_grpc = (each.getsockname()[1] for each in (one, two, three))
    file = folder / f"jaeger-{query}.yaml"
    ports = {"http": http, "query": query, "query_grpc": query_grpc}
    file.write_text(CONFIGURATION.format(**ports, max_traces=max_traces))
    jaeger = Jaeger(f"127.0.0.1:{http}", f"127.0.0.1:{query}")

    def answers() -> bool:
        assert process.poll() is None, file.with_suffix(".log").read_text()
        with suppress(OSError):
            return jaeger.asked("/api/services").status == 200
        return False

    with file.with_suffix(".log").open("wb") as log:
        command = [BINARY, "--config", str(file)]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            assert eventually(answers), "Jaeger does not answer"
            yield jaeger
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module", params=["stand-in", "real"])
def kind(request: pytest.FixtureRequest) -> str:
    """The Jaeger of the tests, and the real one if there is one."""
    if request.param == "real" and not BINARY:
        pytest.skip("no binary of Jaeger here: .ci/backends names or builds one")
    return str(request.param)


@pytest.fixture(scope="module")
def jaeger(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """One Jaeger for all tests of this file that need no other."""
    with running(kind, tmp_path_factory.mktemp("jaeger")) as started:
        yield started


def recorded(jaeger: Jaeger, run: str) -> mttp.Recording:
    """A run with a late step, times of zero length and numbers of every kind, in a file and at a Jaeger."""
    routes = [mttp.Route(f"http://{jaeger.otlp}", profile="jaeger", content=True), f"file://{run}.jsonl"]
    with mttp.configure(routes, run_id=run, config={"b": 1, "a": [1, None]}, close_timeout=WAIT) as session:
        metadata = {
            "z": -0.0,
            "a": [1, {"y": 0.0, "b": None}],
            "big": 2**63 - 1,
            "odd": 2**53 + 1,
            "whole": 3.0,
        }
        with mttp.episode(env="toy", metadata=metadata) as episode:
            episode.metric("ratio", 0.5)
            with episode.step() as step:
                step.observation(np.array([1.0, -0.0], np.float32))
                step.reward(-0.0)
            episode.reward(0.5, components={"z": 1.0, "a": 0.0}, weights={"z": 0.5, "a": 0.0})
            headers = mttp.inject({})
        with mttp.extract(headers), mttp.step(index=1) as step:
            step.action("late")
        session.record(mttp.Episode(env="instant"), start_time=10, end_time=10)
    assert not session.stats.lost
    configuration.forget()
    return mttp.read(f"{run}.jsonl")


# Seven facts.


def test_a_search_by_the_newer_api_needs_a_number_of_traces(jaeger: Jaeger) -> None:
    """
    By its older name; and another answer than that to a search without any trace.
    """
    query = {"query.service_name": "nobody", **ALL_TIME}
    answers = [jaeger.asked("/api/v3/traces", **query, **limit) for limit in ({}, {"query.search_depth": 9})]

    assert [(500, TOO_DEEP)] * 2 == [(one.status, one.document["error"]["message"]) for one in answers]
    assert 404 == jaeger.asked("/api/v3/traces", **query, query__num_traces=9).status


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_list_with_nan_or_infinity_is_refused(kind: str, tmp_path: Path, number: float) -> None:
    """
    The whole list; traces are still found by the newer API, and read with those beside them.
    """
    with running(kind, tmp_path) as jaeger:
        expected = recorded(jaeger, "good")
        jaeger.read("good")
        session = mttp.configure(
            f"http://{jaeger.otlp}", profile="collector", run_id="bad", close_timeout=WAIT
        )
        with session, mttp.episode(env="bad") as episode:
            episode.metric("ratio", number)
        found = {run: jaeger.read(run) for run in ("bad", "good")}
        everything = mttp.read(f"jaeger://{jaeger.query}")
        answer = jaeger.asked(
            "/api/traces", service="mttp", limit=9, lookback="custom", start=0, end=4 * 10**15
        )

    assert (500, True) == (answer.status, "json: unsupported value" in answer.text)
    assert str(number) == str(found["bad"][0].metrics["ratio"])
    assert repr(expected.episodes) == repr(found["good"].episodes)
    assert (3, [], []) == (len(everything), everything.problems, found["bad"].problems)


def test_a_limit_above_its_size_is_refused(kind: str, tmp_path: Path) -> None:
    """
    By both APIs; a reader finds one that is accepted, and says where that is too small.
    """
    with running(kind, tmp_path, max_traces=13) as jaeger:
        older = jaeger.asked("/api/traces", service="mttp", limit=14)
        newer = jaeger.asked("/api/v3/traces", query__service_name="mttp", query__num_traces=14, **ALL_TIME)
        recorded(jaeger, "one")
        one, everything = jaeger.read("one"), mttp.read(f"jaeger://{jaeger.query}")
        for run in ("two", "three"):
            recorded(jaeger, run)
        three, cut = jaeger.read("three"), mttp.read(f"jaeger://{jaeger.query}")

    assert [(500, True)] * 2 == [(answer.status, TOO_DEEP in answer.text) for answer in (older, newer)]
    assert [(2, [])] * 3 == [(len(run), run.problems) for run in (one, everything, three)]
    (problem,) = [problem for problem in cut.problems if "at once" in problem.message]
    assert "7 traces of service mttp were found, and the store returns no more at once" in problem.message


def test_a_span_without_a_duration_takes_a_nanosecond(jaeger: Jaeger) -> None:
    """
    And has a warning, also in what it returns raw.
    """
    recorded(jaeger, "instant")
    instant = jaeger.read("instant").episodes[0]
    span = jaeger.spans(instant.trace_id, raw_traces="true")["episode instant"]

    assert ("10", "11") == (span["startTimeUnixNano"], span["endTimeUnixNano"])
    (warning,) = span["attributes"][WARNINGS]["arrayValue"]["values"]
    assert warning["stringValue"].startswith("Negative duration detected")
    assert {} == dict(instant.extra)


def test_what_is_not_asked_for_raw_is_sorted_and_moved(jaeger: Jaeger) -> None:
    """
    And stays so, since its memory keeps what it has adjusted; queries of its interface change nothing.
    """
    expected = recorded(jaeger, "adjusted").episodes[1]
    trace_id = jaeger.read("adjusted").episodes[1].trace_id
    assert 200 == jaeger.asked(f"/api/traces/{trace_id}").status
    raw = jaeger.spans(trace_id, raw_traces="true")
    adjusted, again = jaeger.spans(trace_id), jaeger.spans(trace_id, raw_traces="true")

    names = [*raw["episode toy"]["attributes"]]
    assert [*expected.metadata] == [
        name.removeprefix("mttp.metadata.") for name in names if name.startswith("mttp.metadata.")
    ]
    assert sorted(names) == list(adjusted["episode toy"]["attributes"]) != names
    late = [spans["step"] for spans in (raw, adjusted, again)]
    assert [False, True, True] == [WARNINGS in span["attributes"] for span in late]
    assert int(late[0]["startTimeUnixNano"]) > int(late[1]["startTimeUnixNano"])


# Reading.


@pytest.mark.parametrize("profile", ["jaeger", "collector"])
def test_what_is_sent_is_read_back_equal(kind: str, tmp_path: Path, profile: str) -> None:
    """
    Values, the order of names, signs of zeros, times in nanoseconds; and directly after the end of the run.

    The second profile sends NaN, too, which takes the older API away.
    """
    with running(kind, tmp_path) as jaeger:
        routes = [mttp.Route(f"http://{jaeger.otlp}", profile=profile, content=True), "file://a.jsonl"]
        with mttp.configure(routes, run_id="equal", seed=7, config={"b": 1, "a": [1, None]}) as session:
            with mttp.episode(env="walk") as episode:
                for index in range(1200):
                    with episode.step() as step:
                        step.observation(np.array([index, 1.5], np.float32))
                        step.reward(1 / 3)
            mttp.group("g", episodes=[episode], rewards=[1.0], advantages=[-0.0])
            mttp.update(1, loss=0.5, episodes=[episode])
            if profile == "collector":
                mttp.annotate(session.record(EVERYTHING), "topic", {"z": [-0.0], "a": None})
        assert not session.stats.lost
        configuration.forget()
        expected, found = mttp.read("a.jsonl"), jaeger.read("equal")

    assert [] == found.problems
    for name in ("episodes", "runs", "groups", "updates", "annotations"):
        assert_same(getattr(expected, name), getattr(found, name))
    assert repr([expected.episodes[-1], expected.runs, expected.groups, expected.updates]) == repr(
        [found.episodes[-1], found.runs, found.groups, found.updates]
    )


def test_a_late_step_is_read_where_it_was(jaeger: Jaeger) -> None:
    """
    Also by the older API, in microseconds.
    """
    expected = recorded(jaeger, "late")
    found = jaeger.read("late")

    assert repr(expected.episodes[1]) == repr(found.episodes[1])


@pytest.mark.parametrize("contents", [(True, False), (False, True)])
def test_of_two_pushes_the_one_with_content_is_read(jaeger: Jaeger, contents: tuple[bool, bool]) -> None:
    """
    Whichever is the last, whatever Jaeger adds to it.
    """
    run = f"pushed-{contents[0]}"
    with (
        mttp.configure("file://a.jsonl", run_id=run),
        mttp.episode(env="toy", inputs={"answer": 3}) as episode,
    ):
        for index in range(3):
            with episode.step() as step:
                step.observation(np.array([index, 1.5], np.float32))
                step.action(index)
                step.reward(0.5)
    configuration.forget()
    for content in contents:
        more = ["--content"] if content else []
        result = CliRunner().invoke(
            app, ["push", "a.jsonl", "--to", f"http://{jaeger.otlp}?profile=jaeger", *more]
        )
        assert 0 == result.exit_code, result.output
    (expected,) = mttp.read("a.jsonl")
    found = eventually(lambda: [it] if (it := jaeger.read(run)).duplicates >= 4 else [])[0]

    assert_same(expected, found[0])
    assert [] == found.problems


def test_a_run_that_is_not_there_is_waited_for(jaeger: Jaeger) -> None:
    """
    As long as it is said to.
    """
    with pytest.raises(ReadError, match="no trace of run nobody was found"):
        mttp.read(f"jaeger://{jaeger.query}?run=nobody&wait=0.5")


def test_links_lead_both_ways_and_shares_are_kept(jaeger: Jaeger) -> None:
    """
    From a member to its group and back, as the interface shows them; what sampling states is read.
    """
    with (
        mttp.configure(f"http://{jaeger.otlp}", run_id="linked", sampling=1.0, close_timeout=WAIT),
        mttp.group("g") as group,
    ):
        with mttp.episode(env="toy", group=group) as episode:
            pass
        group.add(episode)
    configuration.forget()
    found = jaeger.read("linked")
    links = [
        [(link["traceId"], link["spanId"]) for link in jaeger.spans(trace_id)[name]["links"]]
        for trace_id, name in ((episode.trace_id, "episode toy"), (group.value.trace_id, "group"))
    ]

    assert [[(group.value.trace_id, group.span_id)], [(episode.trace_id, episode.span_id)]] == links
    assert 1.0 == found.episodes[0].sampling_share
