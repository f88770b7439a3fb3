"""Spans come into the tables as values do: from one process or several, of all types."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from reading.traces import episode, foreign, of_version, run, write
from released import Held
from tables.converted import assert_converted
from tables.converted import loaded as loaded_spans

import mttp
from mttp.model.spans import SpanRecord
from mttp.reading import decoder_pool, parquet, scanning
from mttp.reading import lines as reading_lines
from mttp.reading.lines import Rows
from mttp.semconv import attributes as a
from mttp.tables import TABLES, Database, lines
from mttp.tables.arrow import arrow_tables, encode
from mttp.tables.batches import BatchRows

BROKEN = b'{"resourceSpans": nonsense}\n'


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[decoder_pool.DecoderPool]:
    """Two processes decode parts of some lines, and nothing else does; the pools that were started."""
    started: list[decoder_pool.DecoderPool] = []

    def start(*args: Any, **kwargs: Any) -> decoder_pool.DecoderPool | None:
        pool = original(*args, **kwargs)
        started.extend([pool] if pool is not None else [])
        return pool

    original = decoder_pool.start
    monkeypatch.setattr(scanning, "_LARGE", 1)
    monkeypatch.setattr(decoder_pool, "_PART_BYTES", 5_000)
    monkeypatch.setattr(decoder_pool, "_cores", lambda: 2)
    monkeypatch.setattr(decoder_pool, "start", start)
    monkeypatch.setattr(decoder_pool, "decode", None)
    return started


def loaded(path: Path, *, tables: tuple[str, ...]) -> dict[str, Any]:
    """Return the rows of tables, the spans of runs and the problems."""
    with Database(path) as database:
        rows = {name: repr(database.sql(f"select * from {name}").rows()) for name in tables}
        return {**rows, "runs": database._run_records, "problems": database.problems}


def loaded_alone(path: Path, *, tables: tuple[str, ...]) -> dict[str, Any]:
    """Return what one process loads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_LARGE", math.inf)
        return loaded(path, tables=tables)


def lost(spans: int) -> SpanRecord:
    """Return the span of a loss."""
    attributes = {a.RUN_ID: "r", a.GAP_SPANS: spans, a.GAP_EPISODES: 1, a.GAP_REASON: "full"}
    return SpanRecord(trace_id="f" * 32, span_id=f"{spans:016x}", name="gap", attributes=attributes)


@pytest.mark.parametrize("seed", range(4))
def test_several_processes_load_what_one_does(
    tmp_path: Path, pools: list[decoder_pool.DecoderPool], seed: int
) -> None:
    """
    Rows, runs and problems are equal, also of repeated and broken spans, losses and later versions.
    """
    shuffled = random.Random(seed)
    spans = [*run(), foreign(1)]
    for number in range(40):
        components = {"correct": number / 60, "format": 0.1} if number % 2 else None
        made = episode(number, steps=1 + number % 5, marked=number % 3 == 0, components=components)
        spans += made + made[: shuffled.choice([0, 0, 1, 2])]
    spans[50:50] = [lost(3), *of_version(episode(98), "9.0.0")]
    spans += [*of_version(episode(99), "9.0.1"), *spans[20:40], lost(4), *run()]
    for _ in range(seed * 10):
        one, other = shuffled.randrange(len(spans)), shuffled.randrange(len(spans))
        spans[one], spans[other] = spans[other], spans[one]
    wrong = SpanRecord(trace_id="e" * 32, span_id="e" * 16, name="step", attributes={a.STEP_REWARD: "much"})
    spans[30:30] = spans[60:60] = [wrong]
    path = write(tmp_path / "a.jsonl", spans, per_line=3)
    lines = path.read_bytes().splitlines(keepends=True)
    for place in (0, 7, 8, len(lines) - 3):
        lines.insert(place, BROKEN)
    path.write_bytes(b"".join(lines) + lines[3][:50])

    several = loaded(path, tables=("spans", "episodes"))

    assert loaded_alone(path, tables=("spans", "episodes")) == several
    assert {"broken_line", "newer_convention", "lost_spans", "truncated_line"} <= {
        problem.kind for problem in several["problems"]
    }
    assert several["runs"]
    assert pools


PLAIN = {
    "text": {a.OBSERVATION_VALUE: 'ü "quoted" \\ {"key":"x"}', a.ACTION_VALUE: 7},
    "messages": {a.OBSERVATION_VALUE: [{"role": "user", "content": "a"}], a.ACTION_VALUE: [1, 2]},
    "label": {f"{a.METADATA}.level": 3, f"{a.METADATA}.names": ["x"], a.ACTION_VALUE: "left"},
    "components": {f"{a.REWARD_SCORE}.correct": 0.5, f"{a.REWARD_SCORE_STATUS}.format": "error"},
    "metrics": {f"{a.METRIC}.m{number}": 1.0 for number in range(300)},
    "array": {a.OBSERVATION_VALUE: b"\0" * 8, a.OBSERVATION_DTYPE: "int64", a.OBSERVATION_SHAPE: [1]},
    "type": {a.SPAN_TYPE: "step"},
}
"""Attributes of steps that become rows at once."""
OTHERS = {
    "empty text": {a.METADATA: ""},
    "unknown": {"mttp.of.tomorrow": 1.5, "of.others": "x"},
    "exact name": {f"{a.REWARD_SCORE}.a_b": 0.5, f"{a.REWARD_COMPONENT_NAME}.a_b": "a/b"},
    "omissions": {a.OMISSIONS: [f"{a.STEP_REWARD}: nan is not supported by the receiver"]},
    "faults": {a.FAULTS: ["wrong_value: x", "wrong_value: y"]},
    "deep": {a.ENV_KWARGS: "[" * 40 + "]" * 40},
    "many brackets": {a.ENV_KWARGS: "[]" * 40},
    "wrong type": {a.STEP_REWARD: "much", a.ENV_ID: 7},
    "huge": {a.ACTION_VALUE: 2**63},
    "dtype of nothing": {a.OBSERVATION_VALUE: "text", a.OBSERVATION_DTYPE: "int64"},
    "unknown dtype": {a.OBSERVATION_DTYPE: "words"},
    "loss": {a.GAP_SPANS: 2, a.GAP_EPISODES: 1},
    "value": {a.ANNOTATION_VALUE: 0.5},
}
"""Attributes of steps that become records first."""


def mixed(*attributes: dict[str, Any]) -> list[SpanRecord]:
    """Return episodes whose steps have these attributes in turn, with a run, a loss and spans of others."""
    spans = [span for number in range(12) for span in episode(number, steps=5, marked=number % 2 == 0)]
    more = cycle([{}, *attributes])
    spans = [
        replace(span, attributes={**span.attributes, **next(more)}) if span.name == "step" else span
        for span in spans
    ]
    return [*spans[:20], *run(), foreign(1), *spans[20:40], lost(3), *spans[40:], *spans[:30], *run()]


@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
def test_parquet_loads_as_its_spans_do(name: str) -> None:
    """
    Rows, runs and problems are equal, whatever a step has.
    """
    assert_converted(Held(mixed({**PLAIN, **OTHERS}[name])))


@pytest.mark.parametrize("version", ["9.0.0", "0.0.7", "x"])
def test_parquet_of_unknown_versions_loads_as_its_spans_do(version: str) -> None:
    spans = mixed(*PLAIN.values(), *OTHERS.values())
    theirs = [*of_version(episode(98), version), *of_version(episode(99), "9.0.1")]

    assert_converted(Held([*spans[:30], *theirs, *spans[30:], *theirs]))


def test_a_deep_resource_in_parquet_is_left_out_as_in_other_files() -> None:
    deep: Any = "x"
    for _ in range(31):
        deep = [deep]
    spans = [
        replace(span, scope=replace(span.scope, resource={"deep": deep}), trace_state="ot=th:8")
        if number % 3
        else replace(span, trace_state="ot=th:8")
        for number, span in enumerate(mixed())
    ]

    assert_converted(Held(spans))


def test_steps_of_a_parquet_file_become_rows_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Spans are made of the runs and of what reading changes or reports only.
    """
    path = tmp_path / "a.parquet"
    parquet.write(path, [*run(), *mixed(*PLAIN.values(), OTHERS["deep"])])
    made: list[SpanRecord] = []

    def spans_of(batch: Any, *, arrays: bool) -> list[SpanRecord]:
        made.extend(spans := original(batch, arrays=arrays))
        return spans

    original = parquet.spans_of
    monkeypatch.setattr(parquet, "spans_of", spans_of)
    with Database(path) as database:
        database.prepare("SELECT * FROM episodes")

    steps = [span for span in made if span.name == "step"]
    assert {"run first", "step", "gap", "GET"} == {span.name for span in made} - {"episode.start"}
    assert all(a.ENV_KWARGS in span.attributes for span in steps[1:])


def test_steps_of_lines_become_rows_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Spans are made of what reading changes or reports only, and of one span of each scope.
    """
    spans = mixed(*PLAIN.values(), OTHERS["deep"])
    path = write(tmp_path / "a.jsonl", spans, per_line=len(spans))
    made: list[SpanRecord] = []

    def decode_line(line: bytes, *, arrays: bool) -> list[SpanRecord]:
        made.extend(records := original(line, arrays=arrays))
        return records

    original = lines.decode_line
    monkeypatch.setattr(lines, "decode_line", decode_line)
    monkeypatch.setattr(reading_lines, "decode_documents", None)
    with Database(path) as database:
        database.prepare("SELECT * FROM episodes")

    steps = [span for span in made if span.name == "step"]
    assert {"run first", "step", "gap", "GET"} == {span.name for span in made} - {"episode.start"}
    assert all(a.ENV_KWARGS in span.attributes for span in steps[1:])


SPAN = b'{"traceId":"%032x","spanId":"%016x","name":"step"%b}'
UNLIKE_OURS = {
    "earlier names": (b"/0.0.7", b'"attributes":[{"key":"mttp.step.reward","value":{"doubleValue":1}}]'),
    "repeated key": (
        b"/0.1.0",
        b'"attributes":[{"key":"mttp.env.id","value":{"stringValue":"a"}},'
        b'{"key":"mttp.env.id","value":{"stringValue":"b"}}]',
    ),
    "repeated field": (b"/0.1.0", b'"name":"step 2"'),
    "no key": (b"/0.1.0", b'"attributes":[{"value":{"stringValue":"a"}}]'),
    "null": (b"/0.1.0", b'"attributes":null,"status":null,"startTimeUnixNano":null'),
    "null attribute": (b"/0.1.0", b'"attributes":[null]'),
    "not a number": (b"/0.1.0", b'"attributes":[{"key":"mttp.step.reward","value":{"doubleValue":"NaN"}}]'),
    "minus zero": (b"/0.1.0", b'"attributes":[{"key":"mttp.step.reward","value":{"doubleValue":-0}}]'),
    "several values": (
        b"/0.1.0",
        b'"attributes":[{"key":"mttp.env.id","value":{"intValue":"1","stringValue":"a"}}]',
    ),
    "number as number": (b"/0.1.0", b'"attributes":[{"key":"mttp.step.index","value":{"intValue":3}}]'),
    "hexadecimal": (b"/0.1.0", b'"attributes":[{"key":"mttp.step.index","value":{"intValue":"0x3"}}]'),
    "time": (b"/0.1.0", b'"startTimeUnixNano":"0x3"'),
    "early time": (b"/0.1.0", b'"startTimeUnixNano":"-3"'),
    "kind by name": (b"/0.1.0", b'"kind":"SPAN_KIND_CLIENT"'),
    "no kind": (b"/0.1.0", b'"kind":"words"'),
    "no status": (b"/0.1.0", b'"status":{"code":"words"}'),
    "zero parent": (b"/0.1.0", b'"parentSpanId":"0000000000000000"'),
    "upper-case parent": (b"/0.1.0", b'"parentSpanId":"00000000000000AB"'),
    "wrong parent": (b"/0.1.0", b'"parentSpanId":"parent"'),
    "not UTF-8": (b"/0.1.0", b'"traceState":"\xff"'),
    "surrogate": (b"/0.1.0", b'"traceState":"\\ud800"'),
    "deep": (b"/0.1.0", b'"foreign":' + b"[" * 5000 + b"]" * 5000),
    "spans within": (b"/0.1.0", b'"foreign":{"spans":[{}]}'),
    "dropped": (b"/0.1.0", b'"droppedAttributesCount":"words"'),
    "url": (b'/0.1.0","schemaUrl":"x', b'"name":"step"'),
}
"""The end of a schema URL, and fields of a span."""


@pytest.mark.parametrize("name", UNLIKE_OURS)
@pytest.mark.parametrize("before", [b"", b'"spans":[{"name":"first"}],'])
def test_lines_unlike_ours_load_as_their_spans_do(tmp_path: Path, name: str, before: bytes) -> None:
    """
    What other programs write, and what is damaged, is read as strictly and as leniently as ever.
    """
    version, fields = UNLIKE_OURS[name]
    several = b",".join(SPAN % (number, number, number % 2 * (b"," + fields)) for number in range(1, 9))
    line = (
        b'{"resourceSpans":[{"scopeSpans":[{%b"spans":[%b],"schemaUrl":"https://mttp.dev/schemas%b"}]}]}\n'
    ) % (before, several, version)
    path = write(tmp_path / "a.jsonl", episode(0))
    path.write_bytes(path.read_bytes() + line + line.replace(b"step", b"stop"))
    at_once = loaded_spans(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchRows, "of_lines", lambda *_, **__: None)
        one_by_one = loaded_spans(path)

    assert one_by_one == at_once


@pytest.mark.parametrize("table", TABLES)
def test_several_processes_compute_the_tables_that_one_does(
    tmp_path: Path, pools: list[decoder_pool.DecoderPool], table: str
) -> None:
    """
    Steps in columns, content and all types of attributes arrive.
    """
    path = tmp_path / "a.jsonl"
    for number in range(6):
        with mttp.configure(f"file://{path}", run_id="r", run=f"{number}", steps="packed"):
            for task in range(3):
                with mttp.episode(
                    env="env", task=f"ü{task}", group="g", metadata={"a": 1, "b": "x"}
                ) as played:
                    for step in range(4):
                        with played.step() as taken:
                            taken.tokens(ids=list(range(20)), logprobs=[-0.1 * step] * 20)
                            taken.observation([{"role": "user", "content": f"ask {step}"}])
                            taken.action("left")
                            taken.reward(step / 3, components={"speed": 0.5})
                    played.reward(1.0, components={"correct": number / 7})
            mttp.update(loss=0.5, metrics={"m": 1.0})

    several = loaded(path, tables=(table,))

    assert loaded_alone(path, tables=(table,)) == several
    assert pools


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("VARCHAR", ["a", None, "", "ü€"]),
        ("BIGINT", [1, None, -(2**63), 2**63 - 1]),
        ("DOUBLE", [0.5, None, math.inf, -0.0]),
        ("BOOLEAN", [True, None, False] * 5),
        ("VARCHAR[]", [["a"], None, [], ["ü", None]]),
        ("DOUBLE[]", [[0.5, 1.5], None]),
        ("MAP(VARCHAR, DOUBLE)", [[("a", 1.0)], None, [], [("b", 2.0), ("ü", None)]]),
        ("VARCHAR", []),
        ("MAP(VARCHAR, VARCHAR)", [None]),
    ],
)
def test_columns_become_arrow_arrays_of_their_values(type_: str, values: list[Any]) -> None:
    array = encode(values, type_)
    array.validate(full=True)

    assert array.to_pylist() == values


def test_rows_become_tables_whose_places_go_on() -> None:
    batches = [pyarrow.record_batch({"c": ["a", None]}), pyarrow.record_batch({"c": ["b"], "d": [1]})]
    (table,) = arrow_tables(map(Rows, batches), place=5)

    assert table == pyarrow.table({"place": [5, 6, 7], "c": ["a", None, "b"], "d": [None, None, 1]})


def test_a_value_of_another_library_that_is_of_no_such_type_is_null(tmp_path: Path) -> None:
    """
    Attributes of a foreign span that is no call may have any type.
    """
    attributes = {a.GEN_AI_USAGE_INPUT_TOKENS: "twelve", a.GEN_AI_RESPONSE_FINISH_REASONS: 5}
    record = SpanRecord(trace_id="1" * 32, span_id="1" * 16, name="other", attributes=attributes)
    path = write(tmp_path / "a.jsonl", [record, *episode(0)])
    query = (
        f'select "{a.GEN_AI_USAGE_INPUT_TOKENS}" as tokens, "{a.GEN_AI_RESPONSE_FINISH_REASONS}" as reasons '
    )
    with Database(path) as database:
        rows = database.sql(query + "from spans where name = 'other'").rows()

    assert rows == [{"tokens": None, "reasons": None}]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("columns", ["*", "count(*)"])
def test_a_query_loads_no_pandas(tmp_path: Path, suffix: str, columns: str) -> None:
    path = tmp_path / f"a{suffix}"
    write(path, mixed(PLAIN["messages"])) if suffix == ".jsonl" else parquet.write(
        path, mixed(PLAIN["messages"])
    )
    program = (
        "import sys; from mttp.tables import Database; database = Database(sys.argv[1]); "
        f"database.sql('select {columns} from episodes').rows(); print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_only_the_traces_that_count_are_loaded(tmp_path: Path) -> None:
    """
    Others are never in the table, and the runs are known all the same.
    """
    spans = [*run(), *episode(0), *episode(1)]
    path = write(tmp_path / "a.jsonl", spans)
    with Database(path, traces={spans[-1].trace_id}) as database:
        traces = database.sql("select distinct trace_id from spans").rows()

        assert [{"trace_id": spans[-1].trace_id}] == traces
        assert database.runs


def test_more_memory_is_taken_where_texts_are_asked_for(tmp_path: Path) -> None:
    """
    Texts of an episode are joined in memory; other queries spill to disk.
    """
    path = write(tmp_path / "a.jsonl", episode(0))
    limit = "select current_setting('memory_limit') as memory from episodes"
    with Database(path) as database:
        before = database.sql(limit).rows()
        database.sql("select prompt from episodes")
        after = database.sql(limit).rows()
        settings = database.sql("select current_setting('lock_configuration') as locked").rows()

    assert [before, after] == [[{"memory": "732.4 MiB"}], [{"memory": "1.8 GiB"}]]
    assert settings == [{"locked": True}]
