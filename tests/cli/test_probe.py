"""`mttp probe`: every kind of value goes to a store and is read back, and what was lost is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from stores import TAKEN, Answer, Asked, Backend, JaegerServer, TempoServer, answered, otlp_json, serving
from typer.testing import CliRunner

from mttp.cli.app import app
from mttp.probing import Probe
from mttp.probing.cases import _VALUES, KEY, every_case
from mttp.probing.findings import compared
from mttp.spans import SpanRecord
from mttp.testing import OtlpReceiver
from mttp.transports.otlp.profiles import PROFILES, Profile


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers here have everything at once: who waits longer waits for nothing."""
    monkeypatch.setattr("mttp.cli.probe.Probe", partial(Probe, quiet=0.0))
    monkeypatch.setattr("mttp.probing.probe.PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("mttp.probing.cases.MANY_SPANS", 50)
    monkeypatch.setattr("mttp.probing.cases.LARGE_DOUBLES", 1000)
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
    with serving(JaegerServer()) as place:
        report = probed(f"http://{place}", "--query", f"jaeger://{place}")

    found = outcomes(report)
    assert {"NaN", "infinity"} == set(found)
    assert "changed: Jaeger's user interface can't show it: " in found["NaN"]
    assert "unsupported value: NaN" in found["NaN"]
    assert ("jaeger", []) == (report["profile"], report["helpless"])
    assert "not taken: 404 Not Found" == report["logs"]


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
    assert "3 were changed or lost although they had been taken" in said
    assert "use profile=tempo" in said


def test_without_a_query_api_it_says_what_was_taken() -> None:
    """
    And that nobody knows what arrived.
    """
    with OtlpReceiver() as receiver:
        said = probe(receiver.http_address).stdout

    assert "what arrived is not known: give --query" in said


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, "text/plain", b"who are you"), ["401", "who are you", "give credentials as headers"]),
        ((404, "text/plain", b"no"), ["404", "check the path, which should end in /v1/traces"]),
        ((413, "text/plain", b"too much"), ["413", "too much"]),
        ((429, "text/plain", b"slow"), ["429", "slow"]),
        (
            (200, "text/html", b"<html>Sign in</html>"),
            ["Sign in", "a page for people"],
        ),
    ],
    ids=["401", "404", "413", "429", "html"],
)
def test_what_is_no_receiver_is_said(answer: Answer, words: list[str]) -> None:
    """
    What was tried, what came back, and what to try.
    """
    with serving(lambda asked: answer) as place:
        said = probe(f"http://{place}", code=2).stderr

    assert [] == [word for word in ["does not take one short text", place, *words] if word not in said]


def test_the_wrong_port_is_said() -> None:
    """
    gRPC spoken to HTTP, HTTP to gRPC, and TLS to what speaks none: each says what to write instead.
    """
    with OtlpReceiver() as receiver:
        http, grpc = (
            address.partition("://")[2] for address in (receiver.http_address, receiver.grpc_address)
        )
        said = [
            probe(url, code=2).stderr
            for url in (f"grpc://{http}?timeout=5", f"http://{grpc}?timeout=5", f"https://{http}?timeout=5")
        ]

    advice = ["does an HTTP receiver listen there?", "does a gRPC receiver listen there?", "https:// does"]
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
def test_a_query_api_that_is_absent_is_said(scheme: str, answer: Answer) -> None:
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


def test_a_query_port_where_nobody_is_is_said() -> None:
    """
    Before everything is sent, too.
    """
    with OtlpReceiver() as receiver:
        said = probe(receiver.http_address, "--query", "jaeger://127.0.0.1:1", code=2).stderr
        requests = len(receiver.requests)

    assert "nobody listens there (connection refused); is the store there" in said
    assert 1 == requests


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("localhost:4318",), "'localhost:4318' is no receiver"),
        (
            ("http://h:1", "--query", "http://h:2"),
            "'http://h:2' is no trace store; it begins with one of jaeger://",
        ),
        (("http://h:1", "--query", "tempo://h:2?x=1"), "unknown option 'x'"),
        (("http://h:1?profile=x",), "unknown profile 'x'"),
    ],
)
def test_wrong_use_is_said(arguments: tuple[str, ...], words: str) -> None:
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
def test_a_difference_is_said_in_words(change: Callable[[Any], Any], words: tuple[str, str]) -> None:
    """
    How much there is, or what it became.
    """
    outcome, said = case_of(change)

    assert (words[0], True) == (outcome, said.startswith(words[1]))
