"""Files of OTLP JSON as programs, Collectors and exporters write them, imported as traces of agents."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from formats.test_agent_traces import TRACE, chat, messages, span
from typer.testing import CliRunner

import mttp
from mttp import formats
from mttp.cli.app import app
from mttp.errors import ReadError
from mttp.formats.records import UnreadableRecord

MARK = "\ufeff"


def call(number: int, **fields: Any) -> dict[str, Any]:
    """A model's call."""
    asked, answered = messages(("user", f"q{number}")), messages(("assistant", f"a{number}"))
    return {**chat(number, None, asked, answered), **fields}


def document(*spans: Any) -> dict[str, Any]:
    """A document with these spans."""
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [*spans]}]}]}


FIRST, SECOND = document(call(0)), document(call(1))
LINES = f"{json.dumps(FIRST)}\n{json.dumps(SECOND)}\n"
LOGS, METRICS = '{"resourceLogs":[{"scopeLogs":[]}]}\n', '{"resourceMetrics":[]}\n'


def read(tmp_path: Path, content: str | bytes) -> tuple[list[str], list[UnreadableRecord]]:
    """The answers of the episodes in a file, and what could not be read."""
    path = tmp_path / "traces.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    records = list(formats.read(path))
    episodes = [one for one in records if isinstance(one, mttp.Episode)]
    answers = [step.action["content"] for episode in episodes for step in episode.steps]
    return answers, [one for one in records if isinstance(one, UnreadableRecord)]


@pytest.mark.parametrize(
    "content",
    [
        LINES,
        LOGS + LINES,
        METRICS + LINES,
        LOGS * 2000 + LINES + METRICS,
        "{}\n" + LINES,
        json.dumps(document(span(7, "GET"))) + "\n" + LINES,
        '{"resourceSpans":[{"scopeSpans":[]}]}\n' + LINES,
        f"\n  \n{MARK}" + LINES.replace("\n", f"\n\n{MARK}", 1),
        json.dumps(FIRST, indent=2) + "\n" + json.dumps(SECOND),
        json.dumps(FIRST, indent=2).replace("\n", "\r\n") + "\r\n" + json.dumps(SECOND, indent=1),
        json.dumps([FIRST, SECOND]),
        json.dumps([FIRST, json.loads(LOGS), SECOND], indent=1),
        f"[\n{json.dumps(FIRST)},\n{json.dumps(SECOND)}\n]\n",
        f"[{json.dumps(FIRST)},\n{json.dumps(SECOND)}]",
        gzip.compress(json.dumps([FIRST, SECOND], indent=1).encode()),
        LINES + LINES,
        json.dumps(document(call(0), call(1), call(1))),
    ],
)
def test_every_layout_of_documents_is_read(content: str | bytes, tmp_path: Path) -> None:
    """
    The line that is first decides nothing, and spans that are repeated count once.
    """
    assert (["a0", "a1"], []) == read(tmp_path, content)


@pytest.mark.parametrize("content", [LOGS, LOGS + METRICS, json.dumps(json.loads(LOGS), indent=1)])
def test_a_file_without_traces_says_what_it_holds(content: str, tmp_path: Path) -> None:
    """
    Also if its format is given.
    """
    with pytest.raises(ReadError, match=r"holds logs.* no traces"):
        read(tmp_path, content)
    with pytest.raises(ReadError, match=r"holds logs.* no traces"):
        list(formats.read(tmp_path / "traces.jsonl", format="agent_traces"))


ODD: list[Any] = [
    None, 1, -5, 1.5, True, "x", "", [], {}, [1], [None], [{}], [{"key": 1}],
    [{"key": "a", "value": 5}], [{"key": "a", "value": {"odd": 1}}], [{"value": {"stringValue": "x"}}],
    [{"attributes": 5}], "SPAN_KIND_ROBOT",
]  # fmt: skip
FIELDS = [*call(0), "events", "links", "flags", "traceState", "parentSpanId", "droppedEventsCount"]


@pytest.mark.parametrize("field", FIELDS)
def test_a_damaged_field_costs_its_span_only(field: str, tmp_path: Path) -> None:
    """
    The other spans of the document are read.
    """
    for odd in ODD:
        answers, unreadable = read(tmp_path, json.dumps(document(call(0), call(1, **{field: odd}), call(2))))

        assert {"a0", "a2"} <= {*answers}
        assert len(answers) == 3 or unreadable or field in ("attributes", "spanId"), (field, odd)


@pytest.mark.parametrize("odd", [None, 1, "x", [], {"attributes": 5}, {"scopeSpans": 3}, {"spans": 4}])
@pytest.mark.parametrize("place", ["span", "scope", "resource", "block", "scope block"])
def test_a_damaged_part_costs_nothing_around_it(place: str, odd: Any, tmp_path: Path) -> None:
    """
    A resource or a scope that is wrong leaves its spans.
    """
    block = document(call(0))["resourceSpans"][0]
    scope = block["scopeSpans"][0]
    if place in ("resource", "scope"):
        (block if place == "resource" else scope)[place] = odd
    elif place == "span":
        scope["spans"].append(odd)
    elif place == "scope block":
        block["scopeSpans"].insert(0, odd)
    blocks = [*SECOND["resourceSpans"], block, *([odd] if place == "block" else [])]
    answers, _ = read(tmp_path, json.dumps({"resourceSpans": blocks}))

    assert ["a0", "a1"] == answers


def test_a_line_that_is_cut_costs_itself(tmp_path: Path) -> None:
    """
    Wherever it was cut, at the end or between others.
    """
    line = json.dumps(SECOND)
    for length in range(1, len(line), 37):
        for content in (f"{json.dumps(FIRST)}\n{line[:length]}", f"{line[:length]}\n{json.dumps(FIRST)}\n"):
            answers, unreadable = read(tmp_path, content)

            assert (["a0"], 1) == (answers, len(unreadable)), length


CONVERTED: list[tuple[str, Any, Any]] = [
    ("gen_ai.usage.output_tokens", "12", 12),
    ("gen_ai.usage.output_tokens", 12.0, 12),
    ("gen_ai.usage.output_tokens", "12.0", 12),
    ("gen_ai.request.model", 5, "5"),
    ("gen_ai.request.seed", "7", 7),
    ("gen_ai.request.temperature", "0.5", 0.5),
    ("gen_ai.request.temperature", 1, 1.0),
    ("gen_ai.response.finish_reasons", "stop", ("stop",)),
    ("gen_ai.response.finish_reasons", '["stop"]', ("stop",)),
    ("gen_ai.response.finish_reasons", 5, ("5",)),
]
WRONG: list[tuple[str, Any]] = [
    ("gen_ai.request.temperature", "hot"),
    ("gen_ai.request.temperature", "nan"),
    ("gen_ai.request.seed", "seven"),
    ("gen_ai.request.seed", 7.5),
    ("gen_ai.usage.output_tokens", True),
    ("gen_ai.usage.output_tokens", str(2**70)),
]
NAMES = {
    "gen_ai.usage.output_tokens": "output_tokens",
    "gen_ai.request.model": "name",
    "gen_ai.response.finish_reasons": "finish_reasons",
}


def with_value(key: str, value: Any) -> dict[str, Any]:
    """A call with this attribute."""
    kinds: Mapping[type, str] = {bool: "boolValue", int: "intValue", float: "doubleValue"}
    attributes = [one for one in call(1)["attributes"] if one["key"] != key]
    return call(
        1, attributes=[*attributes, {"key": key, "value": {kinds.get(type(value), "stringValue"): value}}]
    )


def imported(tmp_path: Path, *spans: Any) -> tuple[mttp.Episode, dict[str, Any]]:
    """The episode that `mttp import` records of these spans, and what the command reports."""
    source, out = tmp_path / "traces.json", tmp_path / "out.jsonl"
    source.write_text(json.dumps(document(*spans), indent=1))
    done = CliRunner().invoke(app, ["import", str(source), "-o", str(out), "--json", "--overwrite"])
    assert 0 == done.exit_code, done.output
    assert 0 == CliRunner().invoke(app, ["check", str(out)]).exit_code
    recording = mttp.read(out)
    assert [] == recording.problems
    (episode,) = recording.episodes
    return episode, json.loads(done.stdout)


@pytest.mark.parametrize(("key", "value", "expected"), CONVERTED)
def test_a_value_of_another_type_is_converted(key: str, value: Any, expected: Any, tmp_path: Path) -> None:
    """
    By the type that the attribute has in the registry.
    """
    episode, report = imported(tmp_path, call(0), with_value(key, value))
    (recorded,) = episode.steps[1].calls
    parameter = recorded.parameters.get(key.rpartition(".")[2])

    assert expected == (getattr(recorded, NAMES[key]) if key in NAMES else parameter)
    assert [] == report["files"][0]["unreadable"]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_value_that_is_wrong_costs_itself_and_is_named(key: str, value: Any, tmp_path: Path) -> None:
    """
    In what `mttp import` reports; calls and episode are whole.
    """
    episode, report = imported(tmp_path, call(0), with_value(key, value), call(2))
    (left_out,) = report["files"][0]["unreadable"]

    assert (3, "completed", 0) == (len(episode.steps), episode.status, sum(report["faults"].values()))
    assert left_out["reason"].startswith(f"{key} of span ")


def test_two_spans_with_one_id_are_named(tmp_path: Path) -> None:
    """
    The first is kept.
    """
    answers, (unreadable,) = read(tmp_path, json.dumps(document(call(0), call(0, name="other"))))

    assert (["a0"], "line 1") == (answers, unreadable.place)
    assert "has the id of another one" in unreadable.reason


def choice(*texts: str, reasons: str = "") -> dict[str, Any]:
    """A call with several answers."""
    given = messages(*(("assistant", text) for text in texts))
    return chat(0, None, messages(("user", "q")), given)


def test_further_choices_are_kept_beside_the_action(tmp_path: Path) -> None:
    """
    The first is the action; the next observation does not repeat it.
    """
    asked = messages(("user", "q"), ("assistant", "one"), ("user", "more"))
    episode, _ = imported(tmp_path, choice("one", "two"), chat(1, None, asked, messages(("assistant", "x"))))
    first, second = episode.steps

    assert ("one", [{"role": "assistant", "content": "two"}]) == (
        first.action["content"],
        first.metadata["choices"],
    )
    assert [{"role": "user", "content": "more"}] == second.observation


def test_parts_of_one_answer_are_one_action(tmp_path: Path) -> None:
    """
    A text and the calls of tools may be messages of their own.
    """
    tools = [
        {"role": "assistant", "parts": [{"type": "tool_call", "id": name, "name": name}]} for name in "ab"
    ]
    given = json.dumps([*json.loads(messages(("assistant", "look"))), *tools])
    episode, _ = imported(tmp_path, chat(0, None, messages(("user", "q")), given))
    (step,) = episode.steps

    assert ("look", ["a", "b"]) == (step.action["content"], [one["id"] for one in step.action["tool_calls"]])
    assert {} == step.metadata


def test_traces_are_in_order(tmp_path: Path) -> None:
    """
    Each is an episode.
    """
    spans = [call(number, traceId=TRACE[:-1] + str(number)) for number in range(3)]
    path = tmp_path / "traces.json"
    path.write_text(json.dumps([document(one) for one in reversed(spans)]))
    episodes = [one for one in formats.read(path) if isinstance(one, mttp.Episode)]

    assert 3 == len(episodes)
    assert all((one.start_time or 0) < (other.start_time or 0) for one, other in pairwise(episodes))
