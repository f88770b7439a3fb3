"""Values that are not what the registry says of their attributes, and such as are nested too deeply."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.model.nesting import MAX_DEPTH
from mttp.model.spans import SpanRecord
from mttp.reading import parquet
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.semconv.registry import fits, wanted
from mttp.tables import TABLES
from tests.reading.recorded_kinds import every_kind
from tests.reading.traces import episode, lines, trace_id, write, write_bytes

VALUES: list[Any] = [
    *(
        "lots",
        "",
        "[",
        "[1]",
        '{"a":1}',
        '[["x","float32",[2],null]]',
        '[["mttp.step.reward","float64",[],[99]]]',
    ),
    *(True, 0, -3, 2**63 - 1, -(2**63), 2**70, 0.5, math.nan, math.inf, b"", b"abc", b"12345678", None),
    *([], ["a"], [1, 2], [0.5], [1, 0.5], [1, "a"], [True], [None], [[1]], {}, {"a": {"b": [1]}}),
]
PLACING = {a.RUN_ID, a.EPISODE_ID, a.SEGMENT_ID, a.AGENT_ID, a.STEP_INDEX, a.SPAN_TYPE, a.GRADER_NAME}
"""What says which span it is: without one of these `summarize` and `read` may place it differently."""
COUNTS = {a.TOKEN_COUNT, a.TOKEN_PROMPT_COUNT}
"""What values count in their arrays, at which a summary does not look."""


def nested(depth: int, *, maps: bool = False) -> Any:
    """A value with so many lists, or maps, within each other."""
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if maps else [value]
    return value


def with_value(key: str, value: Any, *, of: str = names.EPISODE) -> list[SpanRecord]:
    """An episode, of whose spans of one kind one attribute has this value, and another episode."""
    spans = [
        replace(span, attributes={**span.attributes, key: value}) if span.name.split()[0] == of else span
        for span in episode(0, components={"x": 1.0})
    ]
    return [*spans, *episode(1)]


def said(recording: mttp.Recording) -> list[tuple[str, str | None]]:
    """Each problem's kind and trace."""
    return [(problem.kind, problem.trace_id) for problem in recording.problems]


def test_a_reward_that_is_text_is_missing() -> None:
    """
    A problem names file, line, span, attribute, and both types; tables and `mttp show` take the episode.
    """
    path = write("a.jsonl", with_value(a.EPISODE_RETURN, "lots"))
    recording = mttp.read(path)
    (problem,) = recording.problems

    assert ("wrong_type", str(path), 1, trace_id(0)) == (
        problem.kind,
        problem.file,
        problem.line,
        problem.trace_id,
    )
    assert f"{a.EPISODE_RETURN} of span 'episode" in problem.message
    assert "is string, expected double" in problem.message
    assert [None, 1.0] == [recording.episodes[0].return_, recording.episodes[1].return_]
    assert None is recording.tables.episodes.rows(1)[0]["return"]
    assert 0 == CliRunner().invoke(app, ["show", str(path)]).exit_code


@pytest.mark.parametrize(
    ("key", "of", "value", "found"),
    [
        (a.EPISODE_LENGTH, names.EPISODE, True, "boolean, expected int"),
        (a.EPISODE_LENGTH, names.EPISODE, "12", "string, expected int"),
        (a.EPISODE_LENGTH, names.EPISODE, {"a": 1}, "map, expected int"),
        (a.EPISODE_LENGTH, names.EPISODE, 2.0, "double, expected int"),
        (a.EPISODE_RETURN, names.EPISODE, "NaN", "string, expected double"),
        (a.ENV_ID, names.EPISODE, None, "empty, expected string"),
        (a.TASK_SLICES, names.EPISODE, ["a", 1], "(int|string)[], expected string[]"),
        (a.REWARD_RANGE, names.REWARD, [0, "1"], "(int|string)[], expected double[]"),
        (f"{a.REWARD_SCORE}.x", names.REWARD, "1", "string, expected double"),
    ],
)
def test_a_value_of_another_type_is_missing(key: str, of: str, value: Any, found: str) -> None:
    """
    This holds for list elements, digits as text and integers beyond 64 bits; nothing else is lost.
    """
    recording = mttp.read(write("a.jsonl", with_value(key, value, of=of)))
    (problem,) = recording.problems

    assert ("wrong_type", trace_id(0)) == (problem.kind, problem.trace_id)
    assert (True, True) == (f"{key} of span" in problem.message, found in problem.message)
    assert 2 == len(recording)


@pytest.mark.parametrize("key", [a.EPISODE_LENGTH, a.EPISODE_RETURN, f"{a.METADATA}.x", "own.key"])
@pytest.mark.parametrize("digits", [str(2**63), str(-(2**63) - 1), "9" * 400])
def test_an_integer_beyond_64_bits_is_missing(key: str, digits: str) -> None:
    """
    This holds for every attribute, for JSON strings and numbers, and for list elements.
    """
    for written in (
        f'{{"intValue":"{digits}"}}',
        f'{{"arrayValue":{{"values":[{{"intValue":"{digits}"}}]}}}}',
    ):
        path = write("a.jsonl", with_value(key, "HUGE"))
        path.write_bytes(path.read_bytes().replace(b'{"stringValue":"HUGE"}', written.encode()))
        recording = mttp.read(path)

        assert [("wrong_type", trace_id(0))] == said(recording)
        assert key in recording.problems[0].message


def test_a_map_as_an_index_is_no_update() -> None:
    """
    The problem says which attribute it was.
    """
    update = episode(0)[-1]
    update = replace(
        update, name="update", parent_id="", attributes={a.RUN_ID: "r", a.UPDATE_INDEX: {"a": 1}}
    )
    recording = mttp.read(write("a.jsonl", [update, *episode(1)]))

    assert ([], ["wrong_type"]) == (recording.updates, [problem.kind for problem in recording.problems])


def test_an_integer_is_a_double_too() -> None:
    """
    Many JSON writers emit whole doubles as integers, alone and in lists.
    """
    spans = with_value(a.REWARD_RANGE, [0, 1.5], of=names.REWARD)
    spans = [
        replace(one, attributes=one.attributes | {a.EPISODE_RETURN: 2})
        if a.EPISODE_RETURN in one.attributes
        else one
        for one in spans
    ]
    recording = mttp.read(write("a.jsonl", spans))

    assert [] == recording.problems
    assert [float, float] == [type(one.return_) for one in recording]
    assert (0.0, 1.5) == recording.episodes[0].reward.range


def test_attributes_of_others_have_any_type() -> None:
    """
    Attributes outside the convention are not checked, nor are foreign spans except for `mttp` attributes.
    """
    foreign = replace(episode(0)[0], name="GET", attributes={"server.port": "80", a.STEP_REWARD: "x"})
    spans = [foreign, *with_value("own.key", 7)]

    assert [{"server.port": "80"}] == [
        one.attributes for one in mttp.scan(write("a.jsonl", spans), arrays=True)
    ][:1]


def packed(directory: Path) -> list[SpanRecord]:
    """An episode of packed steps."""
    path = directory / "packed.jsonl"
    with mttp.configure(transport=f"file://{path}"), mttp.episode(env="e", steps="packed") as played:
        for index in range(4):
            with played.step() as step:
                step.observation(np.full(2, index, np.float32))
                step.reward(float(index))
    return list(mttp.scan(str(path), arrays=True))


@pytest.mark.parametrize("value", [b"abc", b"12345678", "lots", [1.0], ["a"] * 4, 7, {"a": 1}, None])
@pytest.mark.parametrize("key", [a.STEP_REWARD, a.OBSERVATION_VALUE])
def test_a_column_that_is_not_what_the_layout_says_is_missing(tmp_path: Path, key: str, value: Any) -> None:
    """
    A column of another type or length is left out; the steps keep all other values.
    """
    column = f"{a.STEPS_COLUMN}.{key}"
    spans = [
        replace(one, attributes={**one.attributes, column: value}) if column in one.attributes else one
        for one in packed(tmp_path)
    ]
    recording = mttp.read(write("a.jsonl", spans))
    (problem,) = [one for one in recording.problems if one.kind == "wrong_type"]
    (found,) = recording
    left = [
        one.observation is None if key == a.OBSERVATION_VALUE else one.reward is None for one in found.steps
    ]

    assert column in problem.message
    assert [True] * 4 == left
    assert [0, 1, 2, 3] == [one.index for one in found.steps]


def test_a_block_of_a_trillion_steps_is_none(tmp_path: Path) -> None:
    """
    Such a block would not fit into memory, and is left out.
    """
    spans = [
        replace(one, attributes={**one.attributes, a.STEPS_COUNT: 10**12})
        if a.STEPS_COUNT in one.attributes
        else one
        for one in packed(tmp_path)
    ]
    (problem,) = [one for one in mttp.read(write("a.jsonl", spans)).problems if one.kind == "wrong_type"]

    assert f"{a.STEPS_COUNT} of span 'steps'" in problem.message


@pytest.mark.parametrize("maps", [True, False])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 200, 900, 5000])
@pytest.mark.parametrize("key", [f"{a.METADATA}.x", "own.key"])
def test_a_value_that_is_nested_too_deeply_costs_itself(key: str, depth: int, maps: bool) -> None:
    """
    The value is left out and named in a problem; the rest of the line is read.
    """
    marked = write_bytes("a.jsonl", b"".join(lines(with_value(key, "DEEP"))))
    opening, closing = (
        (b'{"kvlistValue":{"values":[{"key":"a","value":', b"}]}}")
        if maps
        else (b'{"arrayValue":{"values":[', b"]}}")
    )
    deep = opening * depth + b'{"intValue":"1"}' + closing * depth
    marked.write_bytes(marked.read_bytes().replace(b'{"stringValue":"DEEP"}', deep))
    recording = mttp.read(marked)
    (problem,) = recording.problems

    assert ("deep_value", 1, trace_id(0)) == (problem.kind, problem.line, problem.trace_id)
    assert f"{key} of span 'episode" in problem.message
    assert (2, {}) == (len(recording), recording.episodes[0].metadata)
    assert 2 == len(mttp.summarize(marked))
    assert ["deep_value"] == [one.kind for one in mttp.check(marked).problems]


def test_a_value_that_is_just_not_too_deep_is_read() -> None:
    """
    The limit applies to lists and to maps.
    """
    for value in (nested(MAX_DEPTH), nested(MAX_DEPTH, maps=True)):
        recording = mttp.read(write("a.jsonl", with_value(f"{a.METADATA}.x", value)))

        assert ([], value) == (recording.problems, recording.episodes[0].metadata["x"])


@pytest.mark.parametrize("key", [a.ENV_KWARGS, a.INPUTS_JSON])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 50_000])
def test_json_in_text_that_is_nested_too_deeply_is_missing(key: str, depth: int) -> None:
    """
    The limit also applies to JSON in strings, which is parsed on read.
    """
    recording = mttp.read(write("a.jsonl", with_value(key, "[" * depth + "]" * depth)))

    assert [("deep_value", trace_id(0))] == said(recording)
    assert 2 == len(recording)


def test_a_deep_value_in_an_event_and_in_the_resource_is_left_out() -> None:
    """
    The problem says where it was.
    """
    first, *rest = episode(0)
    scope = replace(first.scope, resource={**first.scope.resource, "r": nested(40)})
    event = mttp.model.spans.SpanEvent("happened", 1, {"e": nested(40), "kept": 1})
    path = write("a.jsonl", [replace(first, scope=scope, events=(event,)), *rest])
    found = mttp.scan(path, arrays=True)
    (part,) = next(iter(found)).events
    messages = [problem.message for problem in found.problems]

    assert {"kept": 1} == part.attributes
    assert messages[0].startswith("e of event 1 of span")
    assert messages[1].startswith("r of the resource of span")


def posted(receiver: Any, value: Any) -> int:
    """The listener's answer to a span whose attribute is that value."""
    import urllib.request

    from mttp.mist import span_messages

    spans = with_value(f"{a.METADATA}.x", "DEEP")
    status = 0
    for one in spans:
        (message,) = span_messages.envelop(one)
        body = message.to_bytes().replace(b'"DEEP"', json.dumps(value).encode())
        document = json.loads(body)
        document.pop("checksum", None)
        request = urllib.request.Request(
            receiver.address.removeprefix("mttp+") + "/mist", json.dumps(document).encode(), method="POST"
        )
        with urllib.request.urlopen(request) as answer:
            status = answer.status
    return status


def test_a_message_that_is_nested_900_deep_does_not_stop_reading() -> None:
    """
    The receiver accepts the message; reading it reports a problem and returns all other spans.
    """
    with mttp.mist.receive("mttp+http://127.0.0.1:0") as receiver:
        status = posted(receiver, nested(900))
    found = list(receiver.records())

    assert 202 == status
    recording = mttp.read(Spans(found))

    assert [0, 1] == [one.index for one in recording]
    assert set(said(recording)) <= {("deep_value", trace_id(0)), ("incomplete_episode", trace_id(0))}


class Spans:
    """Spans in memory."""

    def __init__(self, found: list[SpanRecord]) -> None:
        self._found = found

    def records(self) -> list[SpanRecord]:
        """All of them."""
        return self._found


@pytest.mark.parametrize("give", ["metadata", "config", "inputs", "observation"])
def test_what_a_user_nests_too_deeply_is_recorded_as_text(give: str, tmp_path: Path) -> None:
    """
    A value beyond the limit is recorded as text, and reading it has no problem.
    """
    deep = nested(500)
    config = {"config": {"x": deep}} if give == "config" else {}
    with (
        mttp.configure(transport=f"file://{tmp_path / 'a.jsonl'}", **config),
        mttp.episode(
            **({"metadata": {"x": deep}} if give == "metadata" else {}),
            inputs=deep if give == "inputs" else None,
        ) as played,
        played.step() as step,
    ):
        if give == "observation":
            step.observation(deep)

    assert [] == mttp.read(str(tmp_path / "a.jsonl")).problems


@pytest.mark.parametrize(("words", "expected"), [([], 0), (["--strict"], 1)])
def test_the_command_fails_where_it_is_strict(words: list[str], expected: int) -> None:
    """
    `mttp summary` counts the problem, and `mttp check` finds the type.
    """
    path = str(write("a.jsonl", with_value(a.EPISODE_RETURN, "lots")))
    summary = CliRunner().invoke(app, ["summary", path, *words, "--json"])
    checked = CliRunner().invoke(app, ["check", path, "--json"])

    assert (expected, 1) == (summary.exit_code, checked.exit_code)
    assert ["wrong_type"] == [one["kind"] for one in json.loads(summary.stdout)["problems"]]
    assert 1 == json.loads(checked.stdout)["ids"]["type_mismatch"]


def test_all_ways_to_read_say_the_same() -> None:
    """
    Lines, compressed lines, Parquet, and spans in memory.
    """
    spans = with_value(a.EPISODE_RETURN, "lots")
    write("a.jsonl", spans)
    write("b.jsonl.gz", spans)
    parquet.write("c.parquet", spans)
    read: list[Callable[[], mttp.Recording]] = [
        lambda: mttp.read("a.jsonl"),
        lambda: mttp.read("b.jsonl.gz"),
        lambda: mttp.read("c.parquet"),
        lambda: mttp.read(Spans(spans)),
    ]
    for one in read:
        recording = one()

        assert [("wrong_type", trace_id(0))] == said(recording)
        assert recording.episodes[0].return_ is None


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Spans:
    """A span of every kind."""
    return Spans(every_kind(tmp_path_factory.mktemp("every")))


PLACES = st.integers(0, 10_000)
ANY_EXAMPLE = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@settings(ANY_EXAMPLE)
@given(place=PLACES, value=st.sampled_from(VALUES))
def test_any_value_in_any_attribute_is_read_or_named(recorded: Spans, place: int, value: Any) -> None:
    """
    Nothing raises, wrong types are named, and `summarize` equals `Recording.summary`.
    """
    check_value(recorded.records(), place, value)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(ANY_EXAMPLE, max_examples=3000)
@given(place=PLACES, value=st.sampled_from(VALUES))
def test_many_values_in_any_attribute_are_read_or_named(recorded: Spans, place: int, value: Any) -> None:
    """
    Nothing raises, wrong types are named, and `summarize` equals `Recording.summary`.
    """
    check_value(recorded.records(), place, value)


def check_value(recorded: list[SpanRecord], place: int, value: Any) -> None:
    """Read, summarize, check and show the recording with this value of one attribute of one span."""
    places = [(number, key) for number, span in enumerate(recorded) for key in sorted(span.attributes)]
    number, key = places[place % len(places)]
    span = recorded[number]
    spans = [*recorded]
    spans[number] = replace(span, attributes={**span.attributes, key: value})
    with TemporaryDirectory() as directory:
        path = Path(directory, "a.jsonl")
        path.write_bytes(b"".join(lines(spans)))
        recording, summary = mttp.read(path), mttp.summarize(path)
        mttp.check(path)
        shown = CliRunner().invoke(app, ["show", str(path), "--episode", "last"])
        recording.tables.sql(f"select {', '.join(f'(select count(*) from {table})' for table in TABLES)}")

    assert shown.exit_code in (0, 2)
    if not is_lenient(key, value):
        assert any(
            problem.kind == "wrong_type" and problem.message.startswith(key) for problem in recording.problems
        )
    if key not in PLACING | COUNTS and not is_impossible(value):
        assert of_values(recording) == counted(summary)


def is_impossible(value: Any) -> bool:
    """Whether it is an integer that nothing counts up to: a summary has zero for it."""
    return type(value) is int and not 0 <= value < 2**62


def is_lenient(key: str, value: Any) -> bool:
    """Whether a value may stand there; an integer beyond 64 bits is written as text."""
    expected = wanted(key) or "any"
    if type(value) is int and value >= 2**63:
        value = str(value)
    if expected.startswith("double") and type(value) is int:
        return True
    if expected == "double[]" and isinstance(value, list):
        return all(type(item) in (int, float) for item in value)
    if key == a.GEN_AI_RESPONSE_FINISH_REASONS and isinstance(value, str):
        return True
    return fits(value, expected)


def counted(summary: Any) -> tuple[object, ...]:
    """What a summary counts."""
    return (
        sorted(summary.lengths.tolist()),
        summary.statuses.counts(),
        summary.envs.counts(),
        summary.prompt_tokens,
        summary.completion_tokens,
        summary.groups,
        summary.updates,
        summary.annotations,
    )


def of_values(recording: mttp.Recording) -> tuple[object, ...]:
    """Return the figures of a summary, computed from the values of a recording."""
    blocks = [step.tokens for episode in recording for step in episode.steps if step.tokens is not None]
    return (
        sorted(episode.length for episode in recording),
        dict(Counter(episode.status for episode in recording)),
        dict(Counter(episode.env for episode in recording)),
        sum(block.prompt_count or 0 for block in blocks),
        sum(block.count or 0 for block in blocks),
        len(recording.groups),
        len(recording.updates),
        len(recording.annotations),
    )


def test_an_outcome_under_another_key_is_none_of_the_episode(tmp_path: Path) -> None:
    """
    This holds for `summarize` and for `Recording.summary`.
    """
    path = tmp_path / "a.jsonl"
    with mttp.configure(f"file://{path}"):
        with mttp.episode() as episode:
            pass
        mttp.annotate(episode, "outcome", "success")
    changed = tmp_path / "b.jsonl"
    key = f'"{a.ANNOTATION_KEY}","value":{{"stringValue":"'
    before = path.read_text()
    changed.write_text(before.replace(f"{key}{a.EPISODE_OUTCOME}", f"{key}lots"))

    assert before != changed.read_text()
    for source, expected in ((path, "success"), (changed, "unknown")):
        assert [expected] == list(mttp.summarize(source).outcomes)
        assert [expected] == list(mttp.read(source).summary().outcomes)
