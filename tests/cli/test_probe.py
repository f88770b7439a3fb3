"""`mttp probe`: every kind of value goes to a store and is read back, and what was lost is said."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from stores import TAKEN, Answer, Asked, Backend, JaegerServer, TempoServer, answered, otlp_json, serving
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.model.spans import SpanRecord
from mttp.testing import OtlpReceiver
from mttp.transports.otlp.profiles import PROFILES, Profile
from mttp.workflows.probing import Probe
from mttp.workflows.probing.cases import _VALUES, KEY, every_case
from mttp.workflows.probing.findings import compared


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers here have everything at once: who waits longer waits for nothing."""
    monkeypatch.setattr("mttp.workflows.probing.Probe", partial(Probe, quiet=0.0, first=0.0))
    monkeypatch.setattr("mttp.workflows.probing.probe.PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("mttp.workflows.probing.cases.MANY_SPANS", 50)
    monkeypatch.setattr("mttp.workflows.probing.cases.LARGE_DOUBLES", 1000)
    monkeypatch.delitem(_VALUES, "100,000 integers")
    monkeypatch.setitem(_VALUES, "10,000 integers", np.arange(2000))


def probe(*arguments: str, code: int = 0) -> Any:
    """The command's result, which exits so."""
    result = CliRunner().invoke(app, ["probe", *arguments], prog_name="mttp")

    assert code == result.exit_code, result.output + result.stderr
    return result


def probed(*arguments: str) -> dict[str, Any]:
    """The report of a probe."""
    return dict(json.loads(probe(*arguments, "--json").stdout))


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    """What was not whole, by case: outcome and detail."""
    return {
        finding["case"]: f"{finding['outcome']}: {finding['detail']}"
        for finding in report["findings"]
        if finding["outcome"] != "whole"
    }


@dataclass
class PhoenixServer(Backend):
    """Phoenix: a span with bytes is lost, NaN too, maps come in pieces, and only spans come back."""

    def kept(self, record: SpanRecord) -> SpanRecord | None:
        if isinstance(record.attributes.get(KEY), bytes):
            return None
        values = {key: value for key, value in record.attributes.items() if value == value}
        if isinstance(nested := values.pop(KEY, None), dict):
            values |= {f"{KEY}.{key}": value for key, value in nested.items()}
        elif nested is not None:
            values[KEY] = [str(item) for item in nested] if _is_mixed(nested) else nested
        return replace(record, attributes=values, kind=1, links=())

    def answer(self, asked: Asked) -> Answer:
        if asked.path != "/v1/projects/default/spans/otlpv1":
            return 404, "text/plain", b"Not Found"
        (trace_id,) = asked.query["trace_id"]
        blocks = otlp_json(self.traces.get(trace_id, ()))["resourceSpans"]
        spans = [span for block in blocks for scope in block["scopeSpans"] for span in scope["spans"]]
        first = int(asked.query.get("cursor", ["0"])[0])
        more = str(first + 20) if first + 20 < len(spans) else None
        return answered({"data": [snake(span) for span in spans[first : first + 20]], "next_cursor": more})


def _is_mixed(value: Any) -> bool:
    return isinstance(value, list) and len({type(item) for item in value} | {list}) > 2


def snake(item: Any) -> Any:
    """Names as Python has them."""
    if isinstance(item, dict):
        return {
            "".join(f"_{c.lower()}" if c.isupper() else c for c in key): snake(value)
            for key, value in item.items()
        }
    return [snake(value) for value in item] if isinstance(item, list) else item


def test_a_store_that_keeps_everything_needs_no_profile() -> None:
    """
    Everything that Jaeger has it gives back; only its user interface can't show NaN, which is a finding.
    """
    server = JaegerServer()
    with serving(server) as place:
        report = probed(f"http://{place}", "--query", f"jaeger://{place}")

    found = outcomes(report)
    assert {"NaN", "infinity"} == set(found)
    assert {"mttp-probe"} == {
        span.scope.resource["service.name"] for spans in server.traces.values() for span in spans
    }
    assert "changed: Jaeger's user interface can't show it: " in found["NaN"]
    assert "unsupported value: NaN" in found["NaN"]
    assert ("jaeger", []) == (report["profile"], report["helpless"])
    assert "not taken: 404 Not Found" == report["logs"]


@dataclass
class LossyServer(JaegerServer):
    """A store that changes spans as the test configures it."""

    change: Callable[[SpanRecord], SpanRecord | None] = lambda record: record

    def kept(self, record: SpanRecord) -> SpanRecord | None:
        return self.change(record)


def changing(which: Callable[[Any], bool], to: Callable[[Any], Any]) -> Callable[[SpanRecord], SpanRecord]:
    """What changes the values of the cases that are such."""

    def change(record: SpanRecord) -> SpanRecord:
        value = record.attributes.get(KEY)
        if KEY not in record.attributes or not which(value):
            return record
        return replace(record, attributes={**record.attributes, KEY: to(value)})

    return change


def dropping(which: Callable[[Any], bool]) -> Callable[[SpanRecord], SpanRecord]:
    """What drops the values of the cases that are such."""

    def change(record: SpanRecord) -> SpanRecord:
        kept = {key: value for key, value in record.attributes.items() if key != KEY or not which(value)}
        return replace(record, attributes=kept)

    return change


def is_list(value: Any, more_than: int = 1) -> bool:
    """Whether it is a long list."""
    return isinstance(value, list) and len(value) > more_than


FRAME = "kind, status, event, link, times, scope"
LOSSES: dict[str, tuple[Any, dict[str, str]]] = {
    "drops infinities": (
        dropping(lambda value: value == math.inf),
        {"infinity": f"lost: {KEY} is lost"},
    ),
    "drops long arrays": (
        dropping(lambda value: is_list(value, 1500)),
        {"10,000 integers": f"lost: {KEY} is lost"},
    ),
    "cuts arrays": (
        changing(lambda value: is_list(value, 1500), lambda value: value[:1500]),
        {"10,000 integers": "changed: 1,500 of 2,000 elements came back"},
    ),
    "turns arrays round": (
        changing(lambda value: is_list(value, 1500), lambda value: value[::-1]),
        {"10,000 integers": "changed: came back in another order"},
    ),
    "cuts texts": (
        changing(lambda value: isinstance(value, str) and len(value) > 100_000, lambda value: value[:99]),
        {"text of 1 MB": "changed: cut to 99 of 1,000,000 bytes"},
    ),
    "reads numbers in text": (
        changing(lambda value: value == "7", int),
        {"text that is a number": "changed: came back as integer: 7"},
    ),
    "has no int64": (
        changing(lambda value: isinstance(value, int) and value == 2**53 + 1, float),
        {"integer beyond 2^53": "changed: came back as double: 9007199254740992.0"},
    ),
    "makes empty lists null": (
        changing(lambda value: value == [], lambda value: None),
        {"empty list": "changed: came back as nothing: None"},
    ),
    "loses a step": (
        lambda record: None if record.attributes.get("mttp.step.index") == 7 else record,
        {"50 steps": "changed: 1 of 51 spans are lost", "a trace of 6 MB": "changed: 1 of 31 spans are lost"},
    ),
    "loses whole traces": (
        lambda record: None if record.attributes.get(KEY) == "" else record,
        {"empty text": "lost: the whole span"},
    ),
    "cuts the times of events": (
        lambda record: replace(
            record, events=[replace(event, time=event.time - 7) for event in record.events]
        ),
        {FRAME: "changed: event time is 7 ns off"},
    ),
    "renames events": (
        lambda record: replace(record, events=[replace(event, name="x") for event in record.events]),
        {FRAME: "changed: event came back as another"},
    ),
    "forgets attributes of links": (
        lambda record: replace(record, links=[replace(link, attributes={}) for link in record.links]),
        {FRAME: "changed: attributes of the link came back changed"},
    ),
    "keeps a dozen attributes": (
        lambda record: replace(record, attributes=dict(list(record.attributes.items())[:12])),
        {"200 attributes": "changed: 190 of 202 attributes are lost"},
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_what_a_store_does_to_one_kind_of_value_is_reported_of_it_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Whatever else it is sent arrives whole; of the kinds that every store here keeps a few are sent.
    """
    change, expected = LOSSES[name]
    lossy = {case for _, cases in LOSSES.values() for case in cases}
    for case in [case for case in _VALUES if case not in lossy][8:]:
        monkeypatch.delitem(_VALUES, case)
    with serving(LossyServer(change=change)) as place:
        found = outcomes(probed(f"http://{place}", "--query", f"jaeger://{place}"))

    shown_elsewhere = {"NaN", "infinity"}  # Jaeger's user interface can't
    assert expected.keys() == found.keys() - (shown_elsewhere - expected.keys())
    for case, words in expected.items():
        assert found[case].startswith(words)


def test_spans_that_come_back_twice_are_reported() -> None:
    """
    Counts over them would be wrong.
    """

    class Doubling(JaegerServer):
        def take(self, records: list[SpanRecord]) -> Answer:
            super().take(records)
            return super().take([one for one in records if one.attributes.get(KEY) == "right"])

    with serving(Doubling()) as place:
        found = outcomes(probed(f"http://{place}", "--query", f"jaeger://{place}"))

    assert "changed: 1 of 1 spans came back more than once" == found["short text"]
    assert {"short text", "NaN", "infinity"} == found.keys()


def test_what_arrives_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Some stores show nothing for a while, and then part of it.
    """

    class Late(JaegerServer):
        looks = 0

        def answer(self, asked: Asked) -> Answer:
            if asked.path.startswith("/api/v3/traces/"):
                self.looks += 1
                if self.looks < 60 or (self.looks < 120 and self.looks % 2):
                    return answered({"error": {"httpCode": 404, "message": "No traces found"}}, 404)
            return super().answer(asked)

    monkeypatch.setattr("mttp.workflows.probing.Probe", partial(Probe, quiet=10.0, first=10.0))
    with serving(Late()) as place:
        found = outcomes(probed(f"http://{place}", "--query", f"jaeger://{place}"))

    assert {"NaN", "infinity"} == found.keys()


def test_a_receiver_that_is_busy_for_a_while_refuses_nothing() -> None:
    """
    It is tried again when it says so; only one that takes nothing from the start is left at once.
    """

    class Busy(JaegerServer):
        requests = 0

        def take(self, records: list[SpanRecord]) -> Answer:
            self.requests += 1
            if self.requests % 3 == 2:
                return 503, "text/plain\r\nRetry-After: 0", b"slower"
            return super().take(records)

    with serving(Busy()) as place:
        found = outcomes(probed(f"http://{place}", "--query", f"jaeger://{place}"))

    assert {"NaN", "infinity"} == found.keys()


def test_tempo_cuts_texts_and_loses_large_traces_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    All of it with a 200; the profile keeps back what would be lost.
    """
    tempo = PROFILES["tempo"]
    smaller = replace(tempo, withholding=replace(tempo.withholding, max_trace_bytes=200_000))
    monkeypatch.setitem(cast("dict[str, Profile]", PROFILES), "tempo", smaller)
    with serving(TempoServer(max_trace_bytes=220_000)) as place:
        report = probed(f"http://{place}", "--query", f"tempo://{place}")

    found = outcomes(report)
    assert "changed: cut to 2,048 of 4,000 bytes" == found["text of 4 kB"]
    assert found["a trace of 6 MB"].endswith("of 31 spans are lost")
    assert ("tempo", []) == (report["profile"], report["helpless"])
    assert set(found) == {finding["case"] for finding in report["silent"]}


def test_phoenix_loses_spans_values_and_frames() -> None:
    """
    What no profile can help is named.
    """
    with serving(PhoenixServer()) as place:
        report = probed(f"http://{place}?profile=phoenix", "--query", f"phoenix://{place}")

    found = outcomes(report)
    assert "lost: the whole span" == found["bytes"]
    assert f"lost: {KEY} is lost" == found["NaN"]
    assert found["nested map"].startswith(f"changed: {KEY} became {KEY}.grid, {KEY}.text")
    assert "changed: came back as list of text: ['1', '2.5', 'True', 'x']" == found["list of several kinds"]
    frame = "kind, status, event, link, times, scope"
    assert [] == [word for word in ("kind is 1", "links", "resource", "scope") if word not in found[frame]]
    assert ("phoenix", [frame]) == (report["profile"], report["helpless"])


def test_the_advice_is_the_profile_that_the_address_chooses() -> None:
    """
    VictoriaTraces' path chooses strict, as the documentation says; another that saves as much is not better.
    """

    class Victoria(JaegerServer):
        def __call__(self, asked: Asked) -> Answer:
            return super().__call__(replace(asked, path=asked.path.removeprefix("/insert/opentelemetry")))

        def kept(self, record: SpanRecord) -> SpanRecord:
            kept = {key: value for key, value in record.attributes.items() if type(value) is not bytes}
            return replace(record, attributes=kept)

    with serving(Victoria()) as place:
        report = probed(f"http://{place}/insert/opentelemetry/v1/traces", "--query", f"jaeger://{place}")

    assert "strict" == report["profile"]


def test_the_table_shows_what_was_not_whole() -> None:
    """
    And a conclusion of a few lines.
    """
    with serving(TempoServer()) as place:
        said = probe(f"http://{place}", "--query", f"tempo://{place}").stdout
        everything = probe(f"http://{place}", "--query", f"tempo://{place}", "--all").stdout

    assert "cut to 2,048 of 64,000 bytes" in said
    assert "short text" not in said
    assert "short text" in everything
    assert "3 were accepted and then changed or lost" in said
    assert "use profile=tempo" in said


def test_without_a_query_api_it_says_what_was_taken() -> None:
    """
    It suggests a query.
    """
    with OtlpReceiver() as receiver:
        said = probe(receiver.http_address).stdout

    assert "give --query to see which arrived" in said
    assert "use profile=jaeger" in said


def test_a_probe_takes_no_other_list_away() -> None:
    """
    Jaeger lists no traces of a service while one has NaN, so the probe has a service of its own.
    """
    with serving(JaegerServer(newer=False)) as place:
        with mttp.configure(f"http://{place}"), mttp.episode(env="toy"):
            pass
        said = probe(f"http://{place}", "--query", f"jaeger://{place}").stdout
        found = mttp.read(f"jaeger://{place}?service=mttp")

    assert "service and run id of the probe's traces: mttp-probe, " in said
    assert ["toy"] == [episode.env for episode in found]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, "text/plain", b"who are you"), ["401", "who are you", "give credentials as headers"]),
        ((404, "text/plain", b"no"), ["404", "check the path, which should end in /v1/traces"]),
        ((413, "text/plain", b"too much"), ["413", "too much"]),
        ((429, "text/plain", b"slow"), ["429", "slow"]),
        (
            (200, "text/html", b"<html>Sign in</html>"),
            ["Sign in", "an HTML page"],
        ),
    ],
    ids=["401", "404", "413", "429", "html"],
)
def test_what_is_no_receiver_is_reported(answer: Answer, words: list[str]) -> None:
    """
    What was tried, what came back, and what to try.
    """
    with serving(lambda asked: answer) as place:
        said = probe(f"http://{place}", code=2).stderr

    assert [] == [word for word in ["does not accept a short string", place, *words] if word not in said]


def test_the_wrong_port_is_reported() -> None:
    """
    gRPC to an HTTP port, HTTP to a gRPC port, and TLS to a plain port: each error suggests the address.
    """
    with OtlpReceiver() as receiver:
        http, grpc = (
            address.partition("://")[2] for address in (receiver.http_address, receiver.grpc_address)
        )
        said = [
            probe(url, code=2).stderr
            for url in (f"grpc://{http}?timeout=5", f"http://{grpc}?timeout=5", f"https://{http}?timeout=5")
        ]

    advice = ["if it is an HTTP receiver", "if it is a gRPC receiver", "https:// does"]
    assert [True] * 3 == [words in one for words, one in zip(advice, said, strict=True)]


@pytest.mark.parametrize("scheme", ["jaeger", "tempo", "phoenix", "mlflow"])
@pytest.mark.parametrize(
    "answer",
    [
        (404, "text/html", b"<html>404</html>"),
        (404, "text/plain", b"404 page not found\n"),
        (404, "application/json", b'{"detail":"Not Found"}'),
        (405, "text/plain", b"method not allowed"),
        (400, "text/plain", b'remoteAddr: "x"; unsupported path requested: "/api"'),
    ],
    ids=["html", "go", "python", "405", "victoria"],
)
def test_a_query_api_that_is_absent_is_reported(scheme: str, answer: Answer) -> None:
    """
    Where it was looked for, what came back, and what to try, before everything is sent; nothing is lost.
    """
    taken: list[Asked] = []

    def only_receives(asked: Asked) -> Answer:
        if asked.path != "/v1/traces":
            return answer
        taken.append(asked)
        return TAKEN

    with serving(only_receives) as place:
        said = probe(f"http://{place}", "--query", f"{scheme}://{place}", code=2).stderr

    assert f"http://{place}/" in said
    assert f"answers {answer[0]}" in said
    assert "is this the port of the query API?" in said
    assert 1 == len(taken)


def test_a_query_port_where_nobody_is_is_reported() -> None:
    """
    Before everything is sent, too.
    """
    with OtlpReceiver() as receiver:
        said = probe(receiver.http_address, "--query", "jaeger://127.0.0.1:1", code=2).stderr
        requests = len(receiver.requests)

    assert "connection refused; is the store running" in said
    assert 1 == requests


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("localhost:4318",), "'localhost:4318' is not the address of a receiver"),
        (
            ("http://h:1", "--query", "http://h:2"),
            "'http://h:2' is not the address of a trace store; start it with one of jaeger://",
        ),
        (("http://h:1", "--query", "tempo://h:2?x=1"), "unknown option 'x'"),
        (("http://h:1?profile=x",), "unknown profile 'x'"),
    ],
)
def test_wrong_use_is_reported(arguments: tuple[str, ...], words: str) -> None:
    """
    Before anything is sent.
    """
    assert words in probe(*arguments, code=2).stderr


def case_of(change: Callable[[Any], Any]) -> tuple[str, str]:
    """What is said of a case whose value was changed so."""
    case = next(one for one in every_case("run", 10**18) if one.name == "10 integers")
    (span,) = case.spans
    value = change(span.attributes[KEY].tolist())
    return compared(case, [replace(span, attributes={**span.attributes, KEY: value})])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda value: value, ("whole", "")),
        (lambda value: value[:4], ("changed", "4 of 10 elements came back")),
        (lambda value: str(value), ("changed", "came back as text: '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]'")),
        (
            lambda value: [float(item) for item in value],
            ("changed", "came back as list of double: [0"),
        ),
        (lambda value: None, ("changed", "came back as nothing: None")),
    ],
)
def test_a_difference_is_reported_in_words(change: Callable[[Any], Any], words: tuple[str, str]) -> None:
    """
    How much there is, or what it became.
    """
    outcome, said = case_of(change)

    assert (words[0], True) == (outcome, said.startswith(words[1]))
