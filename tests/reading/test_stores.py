"""Reading from trace stores: the same episodes as from the file, and what the store lost shows as lost."""

from __future__ import annotations

import json
import math
import socket
import threading
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from specimen import EVERYTHING
from stores import (
    Answer,
    Asked,
    Backend,
    JaegerServer,
    TempoServer,
    adjusted,
    answered,
    answering,
    dripping,
    redirecting,
    serving,
)

import mttp
from mttp.errors import ReadError
from mttp.model.spans import SpanRecord
from mttp.reading import stores
from mttp.reading.stores import tempo
from mttp.reading.stores.address import Address
from mttp.recording import configuration
from mttp.testing import assert_same

RUN = "a-run"


def sent(to: str, *, profile: str, config: Any = None, **options: Any) -> mttp.Recording:
    """A recording in a file and at a store, both with content."""
    route = mttp.Route(f"http://{to}", profile=profile, content=True)
    with mttp.configure([route, "file://a.jsonl"], run_id=RUN, config=config, **options) as session:
        session.record(EVERYTHING)
        with mttp.episode(env="toy", group="g") as episode:
            for number in range(3):
                with episode.step() as step:
                    step.observation(f"state {number}")
                    step.reward(0.5)
            episode.end(outcome="success", terminated=True)
    assert session.close()
    assert not session.stats.lost
    configuration.forget()
    return mttp.read("a.jsonl")


def kinds(recording: mttp.Recording) -> set[str]:
    """What is wrong with a recording."""
    return {problem.kind for problem in recording.problems}


@pytest.mark.parametrize(("scheme", "server"), [("jaeger", JaegerServer), ("tempo", TempoServer)])
def test_a_store_gives_the_episodes_that_the_file_has(scheme: str, server: type[Backend]) -> None:
    """
    Every attribute with its type, every time to the nanosecond, every link.
    """
    with serving(server()) as place:
        expected = sent(place, profile="collector")
        found = mttp.read(f"{scheme}://{place}?run={RUN}")

    assert [] == found.problems
    for one, other in zip(expected.episodes, found.episodes, strict=True):
        assert_same(one, other)
    assert_same(expected.runs[0], found.runs[0])
    assert f"<Recording of 2 episodes, 1 run, 0 problems, from {scheme}:http://{place}>" == repr(found)


def test_the_older_api_of_jaeger_is_read_where_there_is_no_other() -> None:
    """
    Times are in microseconds there, and arrays are text, which the registry tells apart; it is reported.
    """
    with serving(JaegerServer(newer=False)) as place:
        expected = sent(place, profile="jaeger")
        found = mttp.read(f"jaeger://{place}?run={RUN}")

    assert {"store_loss"} == kinds(found)
    assert "has Jaeger's older API only" in found.problems[0].message
    plain, other = expected.episodes[1], found.episodes[1]
    assert_same(plain, other, ignore=["start_time", "end_time", "steps"])
    assert [step.observation for step in plain.steps] == [step.observation for step in other.steps]
    assert [step.reward for step in plain.steps] == [step.reward for step in other.steps]
    first, again = expected.episodes[0].steps[0], found.episodes[0].steps[0]
    assert_same(first.tokens.ids, again.tokens.ids)
    assert_same(first.tokens.logprobs, again.tokens.logprobs)
    assert_same(expected.episodes[0].final_observation, found.episodes[0].final_observation)
    assert first.calls[1].error_message == again.calls[1].error_message


def test_a_store_without_the_newer_api_may_say_so_in_its_own_way() -> None:
    """
    VictoriaTraces answers 400 to a path that it does not have.
    """

    class Victoria(JaegerServer):
        def answer(self, asked: Asked) -> Answer:
            if "/api/v3/" in asked.path:
                return 400, "text/plain", f"unsupported path requested: {asked.path!r}".encode()
            return super().answer(asked)

    with serving(Victoria()) as place:
        expected = sent(place, profile="jaeger")
        found = mttp.read(f"jaeger://{place}?run={RUN}")

    assert len(expected) == len(found)
    assert "has Jaeger's older API only" in found.problems[0].message


class Victoria(JaegerServer):
    """VictoriaTraces: every attribute is text, a whole number without its point, empty text a dash."""

    def kept(self, record: SpanRecord) -> SpanRecord:
        texts = {key: written(value) for key, value in record.attributes.items() if type(value) is not bytes}
        return replace(record, attributes=texts)


def written(value: Any) -> str:
    """A value as VictoriaTraces keeps it."""
    if isinstance(value, str):
        return value or "-"
    return json.dumps(_whole(value), separators=(",", ":"))


def _whole(value: Any) -> Any:
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.parametrize("newer", [True, False])
def test_a_store_that_keeps_text_alone_gives_numbers_all_the_same(newer: bool) -> None:
    """
    VictoriaTraces does, by both of Jaeger's APIs: the registry knows the numbers; it is reported.
    """
    with serving(Victoria(newer=newer)) as place:
        expected = sent(place, profile="strict").episodes[1]
        found = mttp.read(f"jaeger://{place}?run={RUN}")

    times = [] if newer else ["start_time", "end_time", "steps"]
    assert_same(expected, found.episodes[1], ignore=times)
    assert [0.5, 0.5, 0.5] == [step.reward for step in found.episodes[1].steps]
    assert {"store_loss"} == kinds(found)
    said = " ".join(problem.message for problem in found.problems)
    assert "keeps strings only" in said
    assert ("older API only" in said) == (not newer)


def study(to: str) -> mttp.Recording:
    """Packed steps, a group, and late facts of steps, in a file and at a store that got all of it."""
    route = mttp.Route(f"http://{to}", profile="strict", content=True)
    with mttp.configure([route, "file://a.jsonl"], run_id=RUN, steps="packed") as session:
        episodes = []
        for reward in (1.0, 0.0):
            with mttp.episode(env="walk", group="g", metadata={"level": 3}) as episode:
                for action in (1, 0):
                    with episode.step() as step:
                        step.observation(np.array([1.0, 0.5]))
                        step.action(action)
                        step.reward(reward)
                        step.record(value_estimate=1.0)
                episode.end(terminated=True)
            episodes.append(episode)
            mttp.annotate((episode, 0), "steps", {"return_target": np.array([2.0, 1.0])})
            mttp.annotate(episode, "advantage", 1.0)
            mttp.annotate(episode, "label", "")
        mttp.group("g", episodes=episodes, rewards=[1.0, 0.0], advantages=[1.0, -1.0])
    assert session.close()
    configuration.forget()
    return mttp.read("a.jsonl")


@pytest.mark.parametrize("newer", [True, False])
def test_columns_groups_and_late_facts_come_back_from_a_store_that_keeps_text_alone(newer: bool) -> None:
    """
    No trace is broken: columns of steps, times, advantages and rewards have the convention's types.
    """
    with serving(Victoria(newer=newer)) as place:
        expected = study(place)
        found = mttp.read(f"jaeger://{place}?run={RUN}")

    assert {"store_loss"} == kinds(found)
    for one, other in zip(expected.episodes, found.episodes, strict=True):
        assert [step.reward for step in one.steps] == [step.reward for step in other.steps]
        assert [step.return_target for step in one.steps] == [step.return_target for step in other.steps]
        assert_same(one.steps[0].observation, other.steps[0].observation)
        assert [1, 0] == [step.action for step in other.steps]
        assert ("float", 1.0) == (type(other.advantage).__name__, other.advantage)
    assert {"float"} == {type(number).__name__ for number in found.groups[0].rewards}
    assert (expected.groups[0].rewards, expected.groups[0].advantages) == (
        found.groups[0].rewards,
        found.groups[0].advantages,
    )
    values = {one.key: type(one.value).__name__ for one in found.annotations if one.kind == "advantage"}
    assert {"advantage": "float"} == values


def test_what_a_store_that_keeps_text_alone_can_not_tell_is_named() -> None:
    """
    A number in metadata, an action that is one number, and an empty text.
    """
    with serving(Victoria()) as place:
        sent(place, profile="strict")
        found = mttp.read(f"jaeger://{place}?run={RUN}")

    said = [problem.message for problem in found.problems]
    assert any(message.startswith("mttp.metadata.") for message in said)
    assert len(said) == len({*said})


def test_columns_that_are_none_are_problems_of_a_store_that_keeps_text() -> None:
    """
    A conversion that fails is one of a wrong type, and its message does not quote the value.
    """

    class Broken(JaegerServer):
        def kept(self, record: SpanRecord) -> SpanRecord:
            broken = {
                "mttp.steps.start_times": [*["x" * 50] * 1000],
                "mttp.steps.column.mttp.step.reward": "[" * 9000,
            }
            return replace(record, attributes=record.attributes | broken)

    with serving(Broken()) as place:
        study(place)
        found = mttp.read(f"jaeger://{place}?run={RUN}")

    broken = [problem for problem in found.problems if problem.kind == "wrong_type"]
    assert {"mttp.steps.start_times", "mttp.steps.column.mttp.step.reward"} <= {
        problem.message.split()[0] for problem in broken
    }
    assert all(len(problem.message) < 400 for problem in broken)


def test_without_its_profile_jaegers_older_api_can_not_show_nan() -> None:
    """
    It answers 500 for the whole trace, which is what the profile is for.
    """
    with serving(JaegerServer(newer=False)) as place:
        sent(place, profile="collector")

        with pytest.raises(ReadError, match=r"answers 500: .*failed marshalling .* unsupported value: NaN"):
            mttp.read(f"jaeger://{place}?run={RUN}")


def test_what_tempo_cut_shows_as_lost() -> None:
    """
    A text that ends where Tempo cuts was longer, unless the span says otherwise.
    """
    with serving(TempoServer()) as place:
        for profile in ("collector", "tempo"):
            route = mttp.Route(f"http://{place}", profile=profile, content=True)
            with mttp.configure(route, run_id=profile), mttp.episode() as episode, episode.step() as step:
                step.observation("x" * 3000)
            configuration.forget()
        cut, named = (mttp.read(f"tempo://{place}?run={run}") for run in ("collector", "tempo"))

    (problem,) = cut.problems
    assert "store_loss" == problem.kind
    assert "mttp.observation.value of span 'step'" in problem.message
    assert "is 2,048 bytes long, the length at which Tempo truncates" in problem.message
    assert ([], 2048) == (named.problems, len(named.episodes[0].steps[0].observation))
    assert ("mttp.observation.value: cut to 2048 of 3000 bytes",) == named.episodes[0].steps[0].omissions


def test_spans_that_a_store_lost_in_silence_show_as_lost() -> None:
    """
    The episode's end says how many there were.
    """
    with serving(TempoServer(max_trace_bytes=4000)) as place:
        sent(place, profile="collector")
        found = mttp.read(f"tempo://{place}?run={RUN}")

    assert {"unfinished_episode", "incomplete_episode"} & kinds(found)


def test_a_trace_that_is_there_in_part_says_so() -> None:
    """
    Tempo knows when it could not reach all of it.
    """
    with serving(TempoServer(partial=True)) as place:
        sent(place, profile="collector")
        found = mttp.read(f"tempo://{place}?run={RUN}")

    assert {"store_loss"} == kinds(found)
    assert "is partial: too large" in found.problems[0].message


def test_one_trace_may_be_asked_for() -> None:
    """
    By its id, without any search.
    """
    with serving(server := TempoServer()) as place:
        episode = sent(place, profile="collector").episodes[1]
        found = mttp.read(f"tempo://{place}?trace={episode.trace_id}")

    assert [episode.trace_id] == [one.trace_id for one in found.episodes]
    assert "/api/search" not in {asked.path for asked in server.asked}


@pytest.mark.parametrize("scheme", ["jaeger", "tempo"])
def test_as_many_traces_are_asked_for_as_may_be(scheme: str) -> None:
    """
    That there may be more is a problem of what was read.
    """
    with serving(JaegerServer() if scheme == "jaeger" else TempoServer()) as place:
        sent(place, profile="collector")
        found = mttp.read(f"{scheme}://{place}?run={RUN}&limit=2")

    said = " ".join(problem.message for problem in found.problems)
    assert "2 traces were found, and no more are requested" in said


def test_of_several_runs_the_one_that_is_meant_is_read() -> None:
    """
    Without a run, all that mttp recorded is.
    """
    with serving(JaegerServer()) as place:
        for run in ("one", "two"):
            with mttp.configure(f"http://{place}", run_id=run), mttp.episode(env=run):
                pass
            configuration.forget()
        found = {run: mttp.read(f"jaeger://{place}?run={run}") for run in ("one", "two")}
        everything = mttp.read(f"jaeger://{place}")

    assert {"one": ["one"], "two": ["two"]} == {run: [e.env for e in one] for run, one in found.items()}
    assert 2 == len(everything)


def test_a_summary_and_a_scan_read_stores_too() -> None:
    """
    Whatever reads files reads stores.
    """
    with serving(TempoServer()) as place:
        sent(place, profile="collector")
        summary = mttp.summarize(f"tempo://{place}")
        names = [span.name for span in mttp.scan(f"tempo://{place}")]

    assert (2, 3) == (len(summary), names.count("step") - len(EVERYTHING.steps))
    assert math.isclose(1.5, max(summary.returns))


@pytest.mark.parametrize(
    ("scheme", "run", "asked"),
    [
        ("tempo", 'a"b\\', '{ span.mttp.run.id = "a\\"b\\\\" }'),
        ("tempo", "日本", '{ span.mttp.run.id = "日本" }'),
        ("mlflow", "plain", "tags.`mttp.run.id` = 'plain'"),
        ("mlflow", "it's", 'tags.`mttp.run.id` = "it\'s"'),
        ("phoenix", "42", 'mttp.run.id:"42"'),
        ("phoenix", "日本", ""),
    ],
)
def test_a_run_is_asked_for_whatever_its_id_looks_like(scheme: str, run: str, asked: str) -> None:
    """
    Quotes in it end no text, and a number is none; what Phoenix can't find is looked for here.
    """
    questions: list[Asked] = []

    def answer(question: Asked) -> Answer:
        questions.append(question)
        attributes = [{"key": "mttp.run.id", "value": {"string_value": "another"}}]
        return answered({"data": [{"trace_id": "1", "attributes": attributes}] if not asked else []})

    wait = "&wait=0" if scheme == "tempo" else ""
    with serving(answer) as place, pytest.raises(ReadError, match="no trace"):
        mttp.read(f"{scheme}://{place}?{urlencode({'run': run})}{wait}")

    (question,) = questions
    said = json.loads(question.body)["filter"] if question.body else question.query
    values = [said] if isinstance(said, str) else [said.get(name, [""])[0] for name in ("q", "attribute")]
    assert asked in values


# What Jaeger does besides.


def recorded(place: str, *contents: bool, run: str = RUN, profile: str = "jaeger") -> mttp.Episode:
    """An episode with a step after its end, in a file and, once for each `content`, at a Jaeger."""
    routes = [mttp.Route(f"http://{place}", profile=profile, content=content) for content in contents]
    with mttp.configure([*routes, f"file://{run}.jsonl"], run_id=run):
        with mttp.episode(env="toy", metadata={"z": -0.0, "a": [1, {"y": 0.0}]}) as episode:
            episode.metric("ratio", math.nan)
            headers = mttp.inject({})
        with mttp.extract(headers), mttp.step() as step:
            step.observation(np.array([1.0, -0.0]))
            step.action("late")
    configuration.forget()
    return mttp.read(f"{run}.jsonl")[0]


def test_a_trace_is_read_from_jaeger_as_it_was_sent() -> None:
    """
    Neither sorted nor moved; Jaeger's warnings are left out also where somebody else's query left them there.
    """
    with serving(server := JaegerServer()) as place:
        expected = recorded(place, True, profile="collector")
        (found,) = mttp.read(f"jaeger://{place}?run={RUN}")
        server.traces = {key: adjusted(spans) for key, spans in server.traces.items()}
        (touched,) = mttp.read(f"jaeger://{place}?run={RUN}")

    assert_same(expected, found)
    assert (["z", "a"], "-0.0") == ([*found.metadata], str(found.metadata["z"]))
    assert touched.steps[0].start_time < found.steps[0].start_time
    assert ({}, {}) == (dict(touched.extra), dict(touched.steps[0].extra))


@pytest.mark.parametrize("newer", [True, False])
def test_of_two_copies_at_jaeger_the_one_with_content_is_read(newer: bool) -> None:
    """
    Whichever came last, and whatever else the other one has.
    """
    with serving(JaegerServer(newer=newer)) as place:
        for run, contents in (("last", (False, True)), ("first", (True, False))):
            recorded(place, *contents, run=run)
            found = mttp.read(f"jaeger://{place}?run={run}")

            assert [1.0, 0.0] == [*found[0].steps[0].observation]
            assert ("late", True) == (found[0].steps[0].action, found.duplicates > 0)
            assert set() == kinds(found) - ({"store_loss"} if not newer else set())


def test_one_trace_with_nan_hides_no_other_one_at_jaeger() -> None:
    """
    Its older API answers 500 to every search that finds the trace: the newer one is asked, within its limit.
    """
    with serving(JaegerServer(max_traces=500)) as place:
        recorded(place, True, run="good")
        recorded(place, True, run="bad", profile="collector")
        found = {run: mttp.read(f"jaeger://{place}?run={run}") for run in ("good", "bad")}
        everything = mttp.read(f"jaeger://{place}")

    assert {"good": (1, []), "bad": (1, [])} == {run: (len(it), it.problems) for run, it in found.items()}
    assert (2, []) == (len(everything), everything.problems)


def test_traces_of_a_probe_are_no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    They are read only if their service is asked for.
    """
    with serving(JaegerServer()) as place:
        with monkeypatch.context() as patched:
            patched.setenv("OTEL_SERVICE_NAME", "mttp-probe")
            recorded(place, True, run="probe")
        recorded(place, True, run="one")
        mttp.read(f"jaeger://{place}?run=one")  # waits until both are stored

        assert ["one"] == [run.id for run in mttp.read(f"jaeger://{place}").runs]
        assert ["probe"] == [run.id for run in mttp.read(f"jaeger://{place}?service=mttp-probe").runs]


@pytest.mark.parametrize("profile", ["jaeger", "collector"])
def test_a_limit_that_jaeger_refuses_is_halved(profile: str) -> None:
    """
    Its memory takes none above the number of traces that it holds; more than one search gives is a loss.
    """
    with serving(server := JaegerServer(max_traces=31)) as place:
        for number in range(16):
            recorded(place, True, run=str(number), profile=profile)
        run, cut = mttp.read(f"jaeger://{place}?run=15"), mttp.read(f"jaeger://{place}")
        server.max_traces = 63
        whole = mttp.read(f"jaeger://{place}")

    problem, missing = cut.problems
    assert "the run states 1 episode, 0 are here (run 0)" in missing.message
    assert "31 traces of service mttp were found, and the store returns no more at once" in problem.message
    assert (15, 1, [], 16, []) == (len(cut), len(run), run.problems, len(whole), whole.problems)


def test_a_run_is_read_from_jaeger_directly_after_its_end() -> None:
    """
    Jaeger stores what it has accepted a moment later, and the reader waits for it, unless told otherwise.
    """
    with serving(JaegerServer()) as place:
        recorded(place, True, run="one")
        with pytest.raises(ReadError, match="no trace of run one was found"):
            mttp.read(f"jaeger://{place}?run=one&wait=0")
        recorded(place, True, run="two")
        found = mttp.read(f"jaeger://{place}?run=two")

    assert (1, []) == (len(found), found.problems)


def test_a_run_without_an_end_is_read_from_jaeger_as_far_as_it_is() -> None:
    """
    After the time to wait, with a problem.
    """
    with serving(JaegerServer()) as place:
        session = mttp.configure(f"http://{place}", profile="jaeger", run_id=RUN)
        with mttp.episode(env="toy"):
            pass
        session.flush()
        found = mttp.read(f"jaeger://{place}?run={RUN}&wait=0.3")
        session.close()
        whole = mttp.read(f"jaeger://{place}?run={RUN}")

    assert 1 == len(found)
    assert "the end of run a-run was not found" in found.problems[0].message
    assert (1, []) == (len(whole), whole.problems)


# Addresses.


def test_a_query_in_braces_is_taken_whole() -> None:
    """
    It may hold what would separate options.
    """
    query = '{ span.mttp.env.id = "a&b" && span.mttp.episode.return > 0.5 }'

    found = Address.parse(f"tempo://host?limit=5&q={query}&start=1&end=2")

    assert {"q": query, "start": "1", "end": "2"} == found.options
    assert (5, "http://host:3200") == (found.limit, found.url)


def test_an_address_says_where_and_how() -> None:
    """
    The port, a path before the API, TLS and headers.
    """
    found = Address.parse("jaeger://[::1]/select/jaeger?tls=true&headers=authorization=Bearer%20x,tenant=a")

    assert "https://[::1]:16686/select/jaeger" == found.url
    assert {"authorization": "Bearer x", "tenant": "a"} == found.headers
    assert "Bearer" not in repr(found)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tempo://", "no host; write tempo://HOST:3200"),
        ("tempo://host:99999", "write tempo://HOST:3200"),
        ("jaeger://me:secret@host", "credentials are not allowed in the address"),
        ("jaeger://host?q={}", "unknown option 'q'; known are run, trace, limit"),
        ("tempo://host?limit=many", "option limit='many': expected a number above zero"),
        ("jaeger://host?tags=error", "option tags='error': expected a JSON object"),
        ("jaeger://host?start=yesterday", "option start='yesterday': expected a number above zero"),
        ("tempo://host?trace=../x", "option trace='../x': expected ids of traces"),
        ("tempo://host?headers=x", "option headers: expected name=value"),
    ],
)
def test_a_wrong_address_is_reported(address: str, words: str) -> None:
    """
    And what to write instead; a secret is not repeated.
    """
    with pytest.raises(ReadError) as caught:
        mttp.read(address)

    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


# What may be wrong with a store.


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, "text/html", b"<!doctype html><html>Grafana"), "returns an HTML page instead of JSON"),
        ((200, "application/grpc", b"\x00\x01"), "returns 'application/grpc' instead of JSON"),
        ((401, "text/plain", b"no"), "answers 401: no (give credentials"),
        ((429, "text/plain", b"slow"), "answers 429: slow (the store is busy"),
        ((404, "text/plain", b"who knows"), "answers 404: who knows (is this the port of the query API?"),
        ((500, "text/plain", b"broken"), "answers 500: broken (see the log of the store)"),
        (answered({"traces": []}), "no trace was found by { span.mttp.run.id != nil } in the last 7 days"),
    ],
    ids=["html", "grpc", "401", "429", "404", "500", "nothing"],
)
def test_what_is_no_answer_is_reported(answer: Any, words: str) -> None:
    """
    Where, what came back, and what to try.
    """
    with serving(lambda asked: answer) as place, pytest.raises(ReadError) as caught:
        mttp.read(f"tempo://{place}")

    assert words in str(caught.value)
    assert place in str(caught.value)


@pytest.mark.parametrize("scheme", ["jaeger", "tempo", "phoenix", "mlflow"])
@pytest.mark.parametrize(
    "document",
    [
        [],
        "ok",
        7,
        None,
        {"data": [7], "traces": [7]},
        {"data": [{}], "traces": [{}]},
        {"data": 7, "traces": 7},
    ],
    ids=["list", "text", "number", "null", "numbers", "empty", "no-list"],
)
def test_json_of_another_program_is_no_store(scheme: str, document: object) -> None:
    """
    It says so, and raises nothing else.
    """
    with serving(lambda asked: answered(document)) as place, pytest.raises(ReadError) as caught:
        mttp.read(f"{scheme}://{place}")

    assert place in str(caught.value)


@pytest.mark.parametrize("scheme", ["jaeger", "tempo"])
@pytest.mark.parametrize("document", [{"trace": 7, "result": 7}, {"trace": {"x": 1}, "result": {"x": 1}}])
def test_a_trace_that_is_none_is_reported(scheme: str, document: object) -> None:
    """
    With what came instead.
    """
    with serving(lambda asked: answered(document)) as place, pytest.raises(ReadError) as caught:
        mttp.read(f"{scheme}://{place}?trace=1")

    assert "can't be read" in str(caught.value) or "no traces" in str(caught.value)


def test_no_store_is_there() -> None:
    """
    It says where it looked.
    """
    with pytest.raises(
        ReadError, match=r"127\.0\.0\.1:1/api/services: connection refused; is the store running"
    ):
        mttp.read("jaeger://127.0.0.1:1")


def test_a_port_that_speaks_something_else() -> None:
    """
    A gRPC port, for one.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(1000)
            connection.sendall(b"\x00\x00\x18\x04\x00\x00\x00\x00\x00")
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(ReadError, match="is this the port of"):
            mttp.read(f"tempo://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_an_answer_that_comes_byte_by_byte_is_left_at_the_timeout() -> None:
    """
    The timeout is that of the whole answer.
    """
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"
    for written in (b"", head):
        with dripping(written) as place, pytest.raises(ReadError, match=r"no answer within 0\.3 seconds"):
            mttp.read(f"tempo://{place}?timeout=0.3")


def test_a_redirect_is_not_followed() -> None:
    """
    Credentials are sent only to the given host; the error names the redirect's target.
    """
    with (
        serving(elsewhere := TempoServer()) as other,
        redirecting(f"http://{other}/login") as (place, asked),
        pytest.raises(ReadError, match=rf"answers 302: .*redirects to http://{other}/login: use that"),
    ):
        mttp.read(f"tempo://{place}?headers=authorization=secret")

    assert (["secret"], []) == ([one.headers["authorization"] for one in asked], elsewhere.asked)


def test_an_answer_that_breaks_off_is_reported() -> None:
    """
    With how much of it there was.
    """
    with (
        answering(b'HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"traces"') as place,
        pytest.raises(ReadError, match=r"the answer ended after 9 bytes"),
    ):
        mttp.read(f"tempo://{place}")


def test_a_query_that_the_store_refuses_is_repeated() -> None:
    """
    With what the store has against it.
    """
    with (
        serving(TempoServer()) as place,
        pytest.raises(ReadError, match="answers 400: invalid TraceQL query"),
    ):
        mttp.read(f"tempo://{place}?q={{ nonsense }}")


def test_what_names_no_store_is_a_path() -> None:
    """
    Only the known schemes are addresses.
    """
    assert [True, False, False] == [stores.is_address(given) for given in ("tempo://x", "tempo", "s3://x")]


class LateTempo(TempoServer):
    """Its search finds a trace only when it was asked so often, as Tempo's does some seconds late."""

    def __init__(self, *, whole_after: int) -> None:
        super().__init__()
        self.searches = 0
        self.whole_after = whole_after

    def of_run(self, run: str | None) -> dict[str, list[SpanRecord]]:
        found = super().of_run(run)
        self.searches += 1
        if self.searches > self.whole_after:
            return found
        episodes = [key for key, spans in found.items() if any(one.name.startswith("run") for one in spans)]
        return {key: found[key] for key in episodes[: self.searches - 1]}


def test_a_run_that_the_search_does_not_find_whole_yet_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Nothing at first, then the run alone, then everything: the reader waits, and says that it does.
    """
    monkeypatch.setattr(tempo, "_PAUSE_SECONDS", 0.01)
    with serving(LateTempo(whole_after=2)) as place:
        sent(place, profile="tempo")
        found = mttp.read(f"tempo://{place}?run={RUN}")

    assert (2, set()) == (len(found), kinds(found) - {"store_loss"})
    assert "Tempo's search returns 0 traces of run a-run so far" in caplog.text


def test_a_part_of_a_run_is_a_problem() -> None:
    """
    Where the time to wait is over, what was found is read, and the rest is missed.
    """
    with serving(LateTempo(whole_after=100)) as place:
        sent(place, profile="tempo")
        with pytest.raises(ReadError, match="no trace was found"):
            mttp.read(f"tempo://{place}?run={RUN}&wait=0")
        found = mttp.read(f"tempo://{place}?run={RUN}&wait=0")

    assert 0 == len(found)
    assert kinds(found) == {"missing_episodes"}
    assert found.problems[0].message.startswith("the run states 2 episodes, 0 are here")


def test_every_store_misses_the_episodes_that_a_run_states() -> None:
    """
    A run's end says how many episodes it began, also where a store answers at once.
    """
    server = JaegerServer()
    with serving(server) as place:
        sent(place, profile="collector")
        lost = mttp.read(f"jaeger://{place}?run={RUN}").episodes[1]
        del server.traces[lost.trace_id]
        found = mttp.read(f"jaeger://{place}?run={RUN}&wait=0")

    assert any(
        problem.message.startswith("the run states 2 episodes, 1 is here") for problem in found.problems
    )


def test_a_run_whose_end_is_not_there_may_have_more_episodes() -> None:
    """
    It goes on, or the search does not find its end yet: the reader waits, then says so.
    """
    with serving(TempoServer()) as place:
        session = mttp.configure(f"http://{place}", profile="tempo", run_id=RUN)
        with mttp.episode(env="toy"):
            pass
        session.flush()
        found = mttp.read(f"tempo://{place}?run={RUN}&wait=0.01")
        session.close()
        whole = mttp.read(f"tempo://{place}?run={RUN}")

    assert 1 == len(found)
    assert "the end of run a-run was not found" in found.problems[0].message
    assert (1, []) == (len(whole), whole.problems)


@pytest.mark.parametrize("given", ["-1", "nan", "soon"])
def test_a_wait_is_a_number_of_seconds(given: str) -> None:
    """
    From zero on; anything else is refused with the option's name.
    """
    with pytest.raises(ReadError, match=f"option wait='{given}'"):
        mttp.read(f"tempo://127.0.0.1:1?run=x&wait={given}")


@pytest.mark.parametrize(
    ("query", "advice"),
    [
        ("{ span.mttp.episode.return > 100 }", "write 100.0 instead of 100"),
        ("{ span.mttp.group.reward_std = 0 && duration > 1s }", "write 0.0 instead of 0"),
    ],
)
def test_a_query_that_compares_a_double_with_an_integer_is_advised(query: str, advice: str) -> None:
    """
    TraceQL finds nothing then, without a word.
    """
    assert advice in tempo._of_integers(query)


@pytest.mark.parametrize(
    "query",
    [
        "{ span.mttp.episode.return > 100.5 }",
        "{ span.mttp.step.index = 3 }",
        "{ duration > 10s }",
        "{ span.mttp.episode.return > 1.0 }",
    ],
)
def test_a_query_that_compares_alike_is_not_advised(query: str) -> None:
    """
    A double with a double, an integer with an integer, a duration.
    """
    assert "" == tempo._of_integers(query)
