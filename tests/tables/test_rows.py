"""The SQL tables of steps, calls, scorings, components, groups, updates and evaluations equal the values."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from reading import recorded
from reading.recorded_kinds import every_kind, every_way
from reading.traces import episode as finished_episode
from reading.traces import write
from specimen import episodes
from tables.converted import assert_converted
from tables.reference import columns
from tables.values import ROWS, grades

import mttp
from mttp.model.spans import SpanRecord
from mttp.recording import configuration
from mttp.semconv import attributes as a

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

from mttp.tables import Database

DATA = Path(__file__).parents[1]
RECORDED = {
    "scorings": "WHERE revision IS NULL",
    "components": "WHERE revision IS NULL AND part_of IS NULL",
}
"""Rows of scorings and components without scores of annotations, and without parts of components."""
_DOCUMENTS = {"observation", "action", "metadata", "extra", "evidence", "discarded_episodes", "value"}


def plain(column: str, value: Any) -> Any:
    """Return a cell of SQL without the writing of JSON."""
    return json.loads(value) if column in _DOCUMENTS and isinstance(value, str) else value


def is_same(expected: Any, found: Any) -> bool:
    """Return whether two cells are equal, numbers to 1e-12 relative; NaN equals NaN."""
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=1e-12) or (math.isnan(expected) and math.isnan(found))
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(is_same(expected[key], found[key]) for key in expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(is_same, expected, found))
    return type(expected) is type(found) and bool(expected == found)


def assert_rows(name: str, expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> None:
    """Each row of the values is the row of the SQL table at its place, column by column."""
    for number, (old, new) in enumerate(zip(expected, found, strict=False)):
        for column in old:
            pair = old[column], plain(column, new[column])
            assert is_same(*pair), (name, number, column, *pair)
    assert len(expected) == len(found), name


def assert_equal(source: Any) -> None:
    """Every table of a source equals the table of its values, also if it is converted."""
    assert_converted(source)
    recording = mttp.read(source)
    with Database(source) as database:
        for name, rows_of in ROWS.items():
            found = database.sql(f"SELECT * FROM {name} {RECORDED.get(name, '')}").rows()
            assert_rows(name, [*rows_of(recording)], found)
        _assert_grades(recording, database)
        _assert_annotations(recording, database)
        _assert_calls(recording, database)
        _assert_tokens(recording, database)


def _assert_grades(recording: mttp.Recording, database: Database) -> None:
    """Components with a grade are the grades, those of included specs among them."""
    found = database.sql(
        "SELECT *, component AS name FROM components WHERE revision IS NULL AND kind IS NOT NULL"
    ).rows()
    expected = [*grades(recording)]
    assert_rows("grades", sorted(expected, key=_grade_key), sorted(found, key=_grade_key))


def _grade_key(row: dict[str, Any]) -> str:
    keys = ("trace_id", "step_index", "agent", "position", "part_of", "start_time", "end_time", "name")
    return repr([row[key] for key in keys])


_OF_SCORES = ("value", "status", "raw", "label", "explanation", "grader", "grader_kind", "grader_version")


def _assert_annotations(recording: mttp.Recording, database: Database) -> None:
    """Scores of annotations are scorings with a revision."""
    known = {episode.trace_id for episode in recording.episodes}
    scores = [one for one in recording.annotations if one.reward is not None and one.episode in known]
    expected = [
        {name: getattr(one.reward, name) for name in _OF_SCORES}
        | {"trace_id": one.episode, "revision": one.revision, "annotated_by": one.by}
        | {"components": one.reward.components, "span_id": one.span_id}
        for one in scores
        if one.reward is not None
    ]
    found = database.sql("SELECT * FROM scorings WHERE revision IS NOT NULL").rows()

    def key(row: dict[str, Any]) -> tuple[str, str]:
        return row["trace_id"], row["span_id"]

    assert_rows("annotations", sorted(expected, key=key), sorted(found, key=key))


_OF_CALLS = {
    **{
        name: name
        for name in ("operation", "name", "id", "provider", "error_type", "error_message", "span_id")
    },
    **{name: name for name in ("input_tokens", "output_tokens", "reasoning_tokens", "time_to_first_chunk")},
    "model": "response_model",
}


def _assert_calls(recording: mttp.Recording, database: Database) -> None:
    """The calls in steps are the policy's, and those in scorings and grades the graders'."""
    expected: list[dict[str, Any]] = []
    graded: list[str] = []
    for episode in recording.episodes:
        for step in episode.steps:
            place = {"trace_id": episode.trace_id, "caller_id": step.span_id}
            place |= {"step_index": step.index, "agent": step.agent}
            expected += [_call(call, position=at, **place) for at, call in enumerate(step.calls)]
        graded += [call.span_id for reward in _scorings(episode) for call in _graders_calls(reward)]
    of_steps = (
        "SELECT calls.* FROM calls "
        "JOIN steps ON steps.trace_id = calls.trace_id AND steps.span_id = calls.caller_id"
    )
    found = [row | {"seconds": row["duration"]} for row in database.sql(of_steps).rows()]
    assert_rows("calls", sorted(expected, key=_call_key), sorted(found, key=_call_key))
    rows = database.sql("SELECT span_id FROM calls WHERE grader IS NOT NULL").rows()
    assert {*graded} <= {row["span_id"] for row in rows}


def _call_key(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["trace_id"], row["caller_id"], row["position"]


def _call(call: mttp.model.Call, **place: Any) -> dict[str, Any]:
    facts = {name: getattr(call, field) for name, field in _OF_CALLS.items()}
    seconds = ((call.end_time or 0) - (call.start_time or 0)) / 1e9
    return place | facts | {"finish_reasons": [*call.finish_reasons], "seconds": seconds}


def _scorings(episode: mttp.Episode) -> Iterator[mttp.Reward]:
    yield from episode.rewards
    for member in (*episode.agents, *episode.steps):
        yield from member.rewards


def _graders_calls(scored: Any) -> Iterator[mttp.model.Call]:
    yield from scored.calls
    for part in getattr(scored, "grades", ()) or getattr(scored, "parts", ()):
        yield from _graders_calls(part)


def _assert_tokens(recording: mttp.Recording, database: Database) -> None:
    """Steps have the counts of their token blocks."""
    steps = [step for episode in recording.episodes for step in episode.steps]
    blocks = [step.tokens for step in steps]
    expected = [(block.prompt_count, block.count) if block else (None, None) for block in blocks]
    found = database.sql("SELECT prompt_tokens, completion_tokens FROM steps").rows()
    assert expected == [(row["prompt_tokens"], row["completion_tokens"]) for row in found]


RELEASED = sorted(
    path
    for path in (DATA / "data" / "released").rglob("*")
    if ".jsonl" in path.name or path.suffix == ".parquet"
)


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.name)
def test_rows_of_released_files(path: Path) -> None:
    """
    The tables of each file of a release equal those of its values.
    """
    assert_equal(path)


@pytest.mark.parametrize(
    "path", sorted((DATA / "reading" / "data").glob("*.jsonl")), ids=lambda path: path.name
)
def test_rows_of_other_writers_files(path: Path) -> None:
    """
    Spans that a Collector and other libraries wrote have the same rows.
    """
    assert_equal(path)


RECORDINGS: dict[str, Callable[[], None]] = {
    "everything": recorded.record_everything,
    "training": recorded.record_training,
    "environment": recorded.record_environment,
}


@pytest.mark.parametrize("name", RECORDINGS)
def test_rows_of_recordings(name: str) -> None:
    """
    A little of everything, groups with late facts, and steps in columns.
    """
    RECORDINGS[name]()

    assert_equal(f"{name}.jsonl")


def test_rows_of_spans_of_every_kind(tmp_path: Path) -> None:
    """
    The specimen, packed steps, agents, late facts, a group, an update and an evaluation.
    """
    assert_equal(write("a.jsonl", every_kind(tmp_path)))


@pytest.fixture
def ways(session: mttp.Session) -> list[SpanRecord]:
    """The spans of episodes of several processes, and of facts that come late."""
    return every_way(session)


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_shuffled_and_repeated_spans(ways: list[SpanRecord], seed: int) -> None:
    """
    Parts of other processes, in any order and with copies.
    """
    spans = [*ways, *ways[::3]]
    random.Random(seed).shuffle(spans)

    assert_equal(write("a.jsonl", spans))


def _copy(span: SpanRecord, chance: random.Random) -> SpanRecord:
    """Return a copy from which a transport left an attribute out, or another span with the same id."""
    if chance.random() < 0.2:
        return replace(span, start_time=span.start_time + 1, end_time=span.end_time + 1)
    dropped = chance.choice([key for key in span.attributes if not key.startswith(_IDENTITY)] or [""])
    attributes = {key: value for key, value in span.attributes.items() if key != dropped}
    return replace(span, attributes=attributes | {a.OMISSIONS: [f"{dropped}: too large"]})


_IDENTITY = ("mttp.run", "mttp.episode.id", "mttp.segment", "mttp.steps", "mttp.step.index", "mttp.span")


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_copies_that_differ(ways: list[SpanRecord], seed: int) -> None:
    """
    Of copies that a transport left something out of, the fullest is the span; another span is none.
    """
    chance = random.Random(seed)
    spans = [*ways, *(_copy(span, chance) for span in ways[seed % 3 :: 3])]
    chance.shuffle(spans)

    assert_equal(write("a.jsonl", spans))


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_incomplete_recordings(ways: list[SpanRecord], seed: int) -> None:
    """
    Roots, markers, parents and steps that are missing.
    """
    spans = random.Random(seed).sample(ways, len(ways) * 2 // 3)

    assert_equal(write("a.jsonl", spans))


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(episodes())
def test_rows_of_any_episode(value: mttp.Episode) -> None:
    """
    Whatever can be recorded has the same rows.
    """
    with TemporaryDirectory() as directory:
        with mttp.configure(transport=f"file://{directory}/a.jsonl") as session:
            session.record(value)
        configuration.forget()
        assert_equal(f"{directory}/a.jsonl")


def test_rows_of_late_facts() -> None:
    """
    Scores, facts and numbers of steps that are annotated later, the highest revision of each.
    """
    with mttp.configure("file://a.jsonl"):
        with mttp.episode(env="toy", steps="packed") as packed:
            for index in range(4):
                with packed.step() as step:
                    step.set_metadata("note", index)
                    step.action(index)
                    step.reward(float(index), components={"x": 1.0, "A b": 2.0})
        with mttp.episode(env="toy") as opened:
            for _ in range(3):
                with opened.step() as step:
                    step.set_metadata("note", {"big": 2**62, "text": 'a\n"ü'})
                    step.reward(1.0)
            opened.reward(1.0, grader="judge", components={"right": 1.0})
        for target, at in ((packed, 2), (opened, 1)):
            step = (target, at)
            mttp.score(step, 0.25, grader="late", revision=2)
            mttp.score(step, 0.75, grader="late", revision=1)
            mttp.score(step, 0.5, components={"y": 0.5, "z": math.nan})
            mttp.score(target, 0.5, grader="judge")
            mttp.annotate(step, "note", {"deep": [1, None, 2.5]}, revision=5)
            mttp.annotate(step, "note", "early", revision=4)
            mttp.annotate(step, "other", True)
            mttp.score((target, 99), 1.0)
            numbers = {"advantage": [0.1, math.nan, 0.3, 0.4], "logprob": [-1.0, -2.0]}
            mttp.annotate((target, 0), "steps", numbers)
            mttp.annotate((target, at), "steps", {"advantage": [0.7]})

    assert_equal("a.jsonl")
    with Database("a.jsonl") as database:
        scores = database.sql("SELECT trace_id, scores FROM steps WHERE map_contains(scores, 'late')").rows()
        current = database.sql("SELECT value FROM scorings WHERE is_current AND grader = 'late'").rows()
    assert [0.25, 0.25] == [dict(row["scores"])["late"] for row in scores]
    assert [{"value": 0.25}, {"value": 0.25}] == current


_KEYS = ("mttp.metadata.x", "mttp.metadata.y", "mttp.reward.value", "mttp.episode.outcome", None)


def _notes(ways: list[SpanRecord], chance: random.Random) -> Iterator[SpanRecord]:
    """Yield annotations of any kind of the episodes and steps of these spans, and of others."""
    targets = [span for span in ways if span.name.partition(" ")[0] in ("step", "episode", "reward")]
    for number in range(60):
        target = chance.choice(targets)
        kind = chance.choice(["score", "score", "fact", "outcome", "preference"])
        facts: dict[str, Any] = {
            a.RUN_ID: "run",
            a.ANNOTATION_KIND: kind,
            a.ANNOTATION_KEY: chance.choice(_KEYS),
            a.ANNOTATION_TARGET_TRACE_ID: chance.choice([target.trace_id, target.trace_id, "f" * 32]),
            a.ANNOTATION_TARGET_SPAN_ID: chance.choice([target.span_id, "", None]),
            a.STEP_INDEX: chance.choice([None, 0, 1, 2, 10, 99]),
            a.ANNOTATION_REVISION: chance.choice([None, 1, 2]),
            a.ANNOTATION_VALUE: chance.choice([0.5, 1.0]) if kind == "score" else "success",
            a.REWARD_STATUS: chance.choice([None, "ok", "error"]),
            a.GRADER_NAME: chance.choice([None, "g", "late"]),
        }
        yield SpanRecord(
            trace_id=f"{number:031x}a",
            span_id=f"{number:015x}b",
            name="annotate",
            start_time=ways[0].start_time + chance.randrange(3),
            end_time=ways[0].start_time + 3,
            attributes={key: value for key, value in facts.items() if value is not None},
            scope=ways[0].scope,
        )


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_any_annotations(ways: list[SpanRecord], seed: int) -> None:
    """
    On the root, on steps by index or span, on what is not there, with equal revisions and without.
    """
    assert_equal(write("a.jsonl", [*ways, *_notes(ways, random.Random(seed))]))


def _results(chance: random.Random) -> Iterator[SpanRecord]:
    """Yield the spans of evaluations in any state: whole, without end or start, and as messages."""
    for number in range(8):
        trace, base = f"{number:031x}e", 1_000 * chance.randrange(4)
        id = chance.choice([None, None, "e1", "e2"])
        facts = {a.RUN_ID: f"run-{number}", a.EVAL_SUITE_NAME: chance.choice(["s", "t"]), a.EVAL_ID: id}
        facts |= {a.EVAL_TAGS: ["a=b=c", f"n={number}"], a.SPEC_NAME: chance.choice([None, "spec"])}

        def span(
            name: str, place: int, start: int, more: dict[str, Any], trace: str = trace, facts: Any = facts
        ) -> SpanRecord:
            found = {key: value for key, value in (facts | more).items() if value is not None}
            return SpanRecord(
                trace_id=trace,
                span_id=f"{place:016x}",
                name=name,
                start_time=start,
                end_time=start + 10,
                attributes=found,
            )

        shape = chance.choice(["whole", "open", "results"])
        if shape != "results":
            note = chance.choice([None, "0" * 48])
            yield span("eval.run.start", 100, base, {a.MESSAGE_ID: note})
        for place in range(chance.randrange(1, 5)):
            told = {a.TASK_ID: chance.choice("xy"), a.EVAL_OUTCOME: "scored", a.TASK_SLICES: ["all"]}
            told |= {a.GEN_AI_EVALUATION_SCORE_VALUE: 0.5, a.EVAL_REVISION: chance.choice([None, 1, 2])}
            told |= {a.MESSAGE_ID: chance.choice([None, None, f"{trace}{0:016x}-1"]) if place else None}
            told |= {a.TEST_CASE_RESULT_STATUS: chance.choice([None, "pass", "fail"])}
            yield span("eval.result", place, base + chance.randrange(-2_000, 2_000), told)
        if shape == "whole":
            yield span("eval.run", 101, base, {a.EVAL_STATUS: "completed"})


@pytest.mark.parametrize("seed", range(30))
def test_rows_of_any_evaluations(seed: int) -> None:
    """
    Parts with one id are one evaluation, whose results replace earlier ones; results without an id belong to
    the latest evaluation of their suite that began before, else to one of their own.
    """
    chance = random.Random(seed)
    spans = [*_results(chance)]
    chance.shuffle(spans)

    assert_equal(write("a.jsonl", spans))


def _played(chance: random.Random) -> Iterator[SpanRecord]:
    """Yield the spans of an episode whose agents have steps, scorings and ends in several processes."""
    root, *_ = spans = finished_episode(0, steps=0)
    yield from spans
    ids = (f"{number:016x}" for number in range(100, 1_000))
    for agent in "ab":
        parts = chance.sample(["", "p", "q"], chance.randrange(3))
        for part in [*parts, *chance.choices(["", "p", "q"], k=3)]:
            own: dict[str, Any] = {a.AGENT_ID: agent, a.SEGMENT_ID: part or None}
            own |= {key: root.attributes[key] for key in (a.RUN_ID, a.EPISODE_ID)}
            start = root.start_time + chance.randrange(4)
            found = [("agent", root.span_id, _of_agent(chance))] if part in parts else []
            found += [("step", root.span_id, _of_step(chance, index)) for index in range(chance.randrange(3))]
            agent_id = next(ids)
            found += [("reward", agent_id, _of_reward(chance)) for _ in range(chance.randrange(3))]
            for name, parent, facts in found:
                yield SpanRecord(
                    trace_id=root.trace_id,
                    span_id=agent_id if name == "agent" else next(ids),
                    parent_id=parent,
                    name=name,
                    start_time=start,
                    end_time=start + chance.randrange(4),
                    status_message=chance.choice(["", "no"]) if name == "agent" else "",
                    attributes={key: value for key, value in (own | facts).items() if value is not None},
                    scope=root.scope,
                )


def _of_agent(chance: random.Random) -> dict[str, Any]:
    names = {f"{a.METADATA}.{name}": chance.choice([None, 1, "x", [1, {"y": "z"}]]) for name in "xy"}
    numbers = {f"{a.METRIC}.{name}": chance.choice([None, 0.5, 2.0]) for name in "kl"}
    facts = {a.POLICY_ID: chance.choice([None, "p", "q"]), a.AGENT_RETURN: chance.choice([None, 7.0])}
    ending = {
        a.AGENT_TERMINATED: chance.choice([None, True, False]),
        a.AGENT_LENGTH: chance.choice([None, 9]),
    }
    return names | numbers | facts | ending | {a.FAULTS: chance.choice([None, ["x: y"]])}


def _of_step(chance: random.Random, index: int) -> dict[str, Any]:
    status = chance.choice([None, "error"])
    return {a.STEP_INDEX: index, a.STEP_REWARD: chance.choice([None, 0.1, 0.2]), a.STEP_REWARD_STATUS: status}


def _of_reward(chance: random.Random) -> dict[str, Any]:
    status, part = chance.choice([None, "error", "ok"]), chance.choice(["", "p", "q"])
    return {a.REWARD_VALUE: chance.choice([None, 3.0, 4.0]), a.REWARD_STATUS: status, a.SEGMENT_ID: part}


@pytest.mark.parametrize("seed", range(30))
def test_rows_of_agents_of_several_processes(seed: int) -> None:
    """
    The process that began an agent states its facts; others add steps, scorings and what it lacks.
    """
    assert_equal(write("a.jsonl", [*_played(random.Random(seed))]))


def test_rows_of_nested_calls_of_other_libraries() -> None:
    """
    A client's call within its framework's span is a call once, without what is below it.
    """
    spans = finished_episode(0)
    step = next(span for span in spans if span.name == "step")
    above = {
        "chain": step.span_id,
        "inner": "chain",
        "below": "inner",
        "again": "chain",
        "tool": step.span_id,
    }
    facts: dict[str, dict[str, Any]] = {
        "chain": {},
        "inner": {a.GEN_AI_RESPONSE_ID: "r", a.GEN_AI_OUTPUT_MESSAGES: '[{"role": "assistant"}]'},
        "below": {a.GEN_AI_RESPONSE_ID: "other"},
        "again": {a.GEN_AI_RESPONSE_ID: "r", a.GEN_AI_OUTPUT_MESSAGES: "[]"},
        "tool": {a.GEN_AI_OPERATION_NAME: "execute_tool", a.GEN_AI_TOOL_NAME: "search"},
    }
    ids = {name: f"{number:016x}" for number, name in enumerate(above, 1)}
    for name, parent in above.items():
        operation = {a.GEN_AI_OPERATION_NAME: "chat"} if name != "chain" else {}
        spans.insert(
            0,
            replace(
                step,
                span_id=ids[name],
                parent_id=ids.get(parent, parent),
                name=name,
                attributes=operation | facts[name],
            ),
        )

    assert_equal(write("a.jsonl", spans))
    with Database("a.jsonl") as database:
        found = database.sql("SELECT span_id, step_index FROM calls ORDER BY span_id").rows()
        (action,) = database.sql("SELECT action FROM steps WHERE action IS NOT NULL").rows()
    assert ids["tool"] in {row["span_id"] for row in found}
    assert len(found) == 2
    assert {0} == {row["step_index"] for row in found}
    assert action["action"] in ('[{"role": "assistant"}]', "[]")


@pytest.mark.parametrize(
    "table", ["roots", "played", "targets", "judgements", "marks", "calls", "notes", *ROWS]
)
def test_each_column_has_a_note(table: str) -> None:
    """
    The reference of the tables is made of the notes, one before each column.
    """
    with Database(DATA / "data" / "released" / "0.1.0" / "recording.jsonl") as database:
        names = [name for name, _ in database.columns(table)]

    assert names == [*columns(table)]
    assert all(columns(table).values())
