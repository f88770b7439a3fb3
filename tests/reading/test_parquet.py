"""Spans as Parquet and back, with nothing lost."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading.traces import SCOPE, episode, foreign, run, span_id, trace_id, write

import mttp
from mttp.errors import MissingExtra, ReadError
from mttp.model.spans import Link, Scope, SpanEvent, SpanRecord
from mttp.reading import parquet
from mttp.reading.column_types import ATTRIBUTES, TEMPLATES
from mttp.reading.scanning import Scan
from mttp.semconv import attributes as a

arrow = pytest.importorskip("pyarrow")
from pyarrow import parquet as arrow_parquet  # noqa: E402

DATA = Path(__file__).parent / "data"


def back(records: list[SpanRecord], *, arrays: bool = True) -> list[SpanRecord]:
    """The spans as they were written, after writing and reading."""
    parquet.write("a.parquet", records)
    return list(Scan("a.parquet", arrays=arrays, as_written=True))


def span(**fields: Any) -> SpanRecord:
    """A span of these fields."""
    return SpanRecord(**{"trace_id": trace_id(0), "span_id": span_id(0, 0), "name": "step", **fields})


def told(record: SpanRecord) -> str:
    """All that a span says, NaN included, whatever the order of its attributes."""
    return repr(replace(record, attributes=dict(sorted(record.attributes.items()))))


def test_spans_come_back_in_order():
    """
    Spans of mttp and foreign spans are unchanged.
    """
    spans = [*run(), *episode(0, components={"correct": 1.0}), foreign(1), *episode(1)]

    assert spans == back(spans)


@pytest.mark.parametrize("name", ["official.jsonl", "collector.jsonl"])
def test_files_of_others_come_back(name: str):
    """
    Files of other programs are converted without loss.
    """
    spans = list(mttp.scan(DATA / name, arrays=True))

    assert list(map(told, spans)) == list(map(told, back(spans)))


def test_every_type_has_its_column():
    """
    An attribute of the convention is a column with the convention's type.
    """
    back(episode(0))
    schema = arrow_parquet.read_schema("a.parquet")

    assert {
        a.ENV_ID: arrow.string(),
        a.EPISODE_LENGTH: arrow.int64(),
        a.EPISODE_RETURN: arrow.float64(),
        a.EPISODE_TERMINATED: arrow.bool_(),
        a.TASK_SLICES: arrow.list_(arrow.string()),
        a.TOKEN_IDS: arrow.list_(arrow.int64()),
        a.TOKEN_LOGPROBS: arrow.list_(arrow.float64()),
        a.TOKEN_DATA: arrow.binary(),
        a.REWARD_SCORE: arrow.map_(arrow.string(), arrow.float64()),
        "start_time": arrow.timestamp("ns", tz="UTC"),
    }.items() <= {field.name: field.type for field in schema}.items()


def test_columns_hold_what_attributes_hold():
    """
    A column has the attribute's name and its values.
    """
    back(episode(0, components={"correct": 1.0, "format": 0.5}))
    table = arrow_parquet.read_table("a.parquet")

    assert [0, 1, None, None] == table[a.STEP_INDEX].to_pylist()
    assert [("correct", 1.0), ("format", 0.5)] == table[a.REWARD_SCORE].to_pylist()[2]
    assert [None] * 4 == table["attributes"].to_pylist()


@pytest.mark.parametrize(
    "attributes",
    [
        {a.EPISODE_LENGTH: "twelve", a.EPISODE_RETURN: 1, a.ENV_ID: 7, a.EPISODE_TERMINATED: "yes"},
        {a.TASK_SLICES: ["a", 1, None], a.TOKEN_IDS: [1, 2.0], a.TOKEN_LOGPROBS: [[0.5]]},
        {a.TASK_SLICES: [], a.TOKEN_IDS: [], a.TOKEN_LOGPROBS: []},
        {a.TOKEN_LOGPROBS: [math.inf, -0.0, 5e-324]},
        {a.OBSERVATION_VALUE: b"\x00\xff", a.ACTION_VALUE: 3},
        {a.OBSERVATION_VALUE: "text", a.ACTION_VALUE: {"x": [1, {"y": None}]}},
        {f"{a.METRIC}.loss": 0.5, f"{a.METRIC}.steps": 3, f"{a.METRIC}.a.b": 1.0, a.METRIC: 2.0},
        {f"{a.REWARD_SCORE_STATUS}.judge": "error", f"{a.REWARD_WEIGHT}.judge": 0.0},
        {f"{a.METADATA}.x": b"\x00", "own": [True, {}], "": "", "empty": None, "a.b": {}},
        {a.ENV_ID: None, a.STEP_INDEX: True},
    ],
)
def test_values_of_any_type_come_back(attributes: dict[str, Any]):
    """
    A value that does not fit its column, or has none, is kept beside the columns.
    """
    (found,) = back([span(attributes=attributes)])

    assert told(span(attributes=attributes)) == told(found)


def test_events_links_scope_and_resource_come_back():
    """
    Everything else of a span is kept as well.
    """
    scope = Scope(
        name="a",
        version="1",
        schema_url="https://a/1",
        resource={"x": [1], "y": None},
        attributes={"z": b"\x01"},
        resource_schema_url="https://b/2",
    )
    whole = span(
        kind=4,
        parent_id=span_id(1, 0),
        start_time=2**62,
        end_time=2**62 + 1,
        status_code=2,
        status_message="no",
        trace_state="k=v",
        flags=2**32 - 1,
        events=(SpanEvent("e", 5, {"a": 1.5}),),
        links=(Link(trace_id(2), span_id(2, 0), {"why": ["x"]}),),
        scope=scope,
    )

    assert [whole, span()] == back([whole, span()])


def test_spans_of_one_scope_share_it():
    """
    Spans with one scope share the object, so that they are written as one block.
    """
    found = back([*episode(0), *episode(1)])

    assert 1 == len({id(record.scope) for record in found})


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.one_of(
    texts, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.binary(max_size=5)
)
values = st.recursive(
    st.none() | scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from([*ATTRIBUTES, *(f"{prefix}.x" for prefix in TEMPLATES), "own", "gen_ai.other"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.dictionaries(keys, values, max_size=6), min_size=1, max_size=4))
def test_any_attributes_come_back(attribute_sets: list[dict[str, Any]]):
    """
    This holds for known and unknown attributes, with any type.
    """
    spans = [span(attributes=attributes, scope=SCOPE) for attributes in attribute_sets]

    assert list(map(told, spans)) == list(map(told, back(spans)))


def test_without_arrays_the_same_is_left_out_as_from_lines():
    """
    Scanning for scalars gives the same from either format.
    """
    attributes = {
        a.TOKEN_IDS: [1],
        a.TOKEN_DATA: b"x",
        a.ENV_ID: "e",
        "own": [1],
        "mine": 1,
        f"{a.METRIC}.x": 1.0,
    }
    spans = [span(attributes=attributes, events=(SpanEvent("e", 5, {}),)), *episode(0, components={"c": 1.0})]
    from_lines = list(mttp.scan(write("a.jsonl", spans)))

    assert from_lines == back(spans, arrays=False)


def test_large_groups_are_written_in_pieces(monkeypatch: pytest.MonkeyPatch):
    """
    Row groups end at so many rows or bytes, and nothing is lost between them.
    """
    monkeypatch.setattr(parquet, "_GROUP_ROWS", 7)
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 3)
    spans = [span for number in range(20) for span in episode(number)]

    assert spans == back(spans)
    assert 9 == arrow_parquet.ParquetFile("a.parquet").num_row_groups


def test_episodes_are_read_from_parquet():
    """
    A Parquet file is a recording as any other, for values, tables and summaries.
    """
    spans = [span for number in range(5) for span in episode(number, components={"c": 1.0})]
    parquet.write("b.parquet", spans)
    lines = write("a.jsonl", spans)
    read: list[int] = []

    assert mttp.read(lines).episodes == mttp.read("b.parquet", progress=read.append).episodes
    assert mttp.summarize(lines).returns.tolist() == mttp.summarize("b.parquet").returns.tolist()
    assert abs(Path("b.parquet").stat().st_size - sum(read)) <= 1


def test_a_parquet_file_of_others_is_an_error():
    """
    The error names `mttp convert`.
    """
    arrow_parquet.write_table(arrow.table({"x": [1]}), "x.parquet")

    with pytest.raises(ReadError, match=r"x\.parquet: this Parquet file is not a recording"):
        mttp.read("x.parquet")


def damaged(data: bytes, place: int) -> bytes:
    """The bytes with one bit of one of them flipped."""
    return data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :]


def without_checksum(spans: list[SpanRecord]) -> bytes:
    """A file of these spans as another program would write it."""
    parquet.write("a.parquet", spans)
    arrow_parquet.write_table(arrow_parquet.read_table("a.parquet"), "b.parquet", compression="none")
    return Path("b.parquet").read_bytes()


def test_a_flipped_bit_anywhere_is_noticed():
    """
    It is an error, unless it is in the mark of the checksum: then a problem says that there is none.
    """
    spans = episode(0, components={"c": 1.0})
    parquet.write("a.parquet", spans)
    data = Path("a.parquet").read_bytes()
    found: list[str] = []
    for place in (*range(200), *range(200, len(data), 211), *range(len(data) - 50, len(data))):
        Path("b.parquet").write_bytes(damaged(data, place))
        try:
            recording = mttp.scan("b.parquet", arrays=True)
            assert spans == list(recording)
        except ReadError:
            found.append("error")
        else:
            found += [problem.kind for problem in recording.problems] or ["unnoticed"]

    mark = len("mttp sha256 ")
    assert ["error"] * 4 + ["unverified_file"] * mark + ["error"] * (len(found) - 4 - mark) == found


@pytest.mark.parametrize("arrays", [True, False])
def test_damage_that_pyarrow_meets_is_a_read_error(arrays: bool):
    """
    In a file without a checksum anything may be wrong; each failure is a ReadError that names the file.
    """
    data = without_checksum(episode(0, components={"c": 1.0}))
    errors: list[str] = []
    for place in range(4, len(data), 1511):
        Path("b.parquet").write_bytes(damaged(data, place))
        try:
            list(mttp.scan("b.parquet", arrays=arrays))
        except ReadError as error:
            errors.append(str(error))

    assert len(errors) > 10
    assert all("b.parquet: this Parquet file is " in error and "`mttp convert`" in error for error in errors)


def test_a_file_cut_short_is_an_error():
    """
    A partially written file is an error too.
    """
    parquet.write("a.parquet", episode(0))
    data = Path("a.parquet").read_bytes()
    for end in (4, 5, 30, 90, 1000, len(data) - 1):
        Path("a.parquet").write_bytes(data[:end])

        with pytest.raises(ReadError, match=r"a\.parquet: this Parquet file is damaged or cut short"):
            mttp.read("a.parquet")


@pytest.mark.parametrize("program", ["duckdb", "pyarrow"])
def test_a_file_that_another_program_wrote_is_read(program: str):
    """
    The file is read, with the problem `unverified_file`.
    """
    spans = [*run(), *episode(0, components={"c": 1.0}), foreign(1)]
    data = without_checksum(spans)
    if program == "duckdb":
        duckdb = pytest.importorskip("duckdb", minversion="2")  # earlier ones cut times to microseconds
        duckdb.sql("copy (select * from 'a.parquet') to 'b.parquet'")
    else:
        Path("b.parquet").write_bytes(data)
    scan = mttp.scan("b.parquet", arrays=True)

    assert spans == list(scan)
    assert ["unverified_file"] == [problem.kind for problem in scan.problems]


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("trace_id", "xyz", "trace_id is not an id in every span"),
        ("span_id", "", "span_id is not an id in every span"),
        ("span_id", None, "a span has no span_id"),
        ("start_time", -1, "start_time is before 1970"),
        ("name", 7.5, None),
        (a.STEP_INDEX, "twelve", "twelve"),
        ("attributes", "[{", "truncated"),
    ],
)
def test_columns_of_other_types_are_converted_or_refused(column: str, value: Any, reason: str | None):
    """
    What another program wrote must still say what a span must say.
    """
    parquet.write("a.parquet", [span()])
    table = arrow_parquet.read_table("a.parquet")
    place = table.schema.get_field_index(column)
    arrow_parquet.write_table(table.set_column(place, column, [[value]]), "b.parquet")

    if reason is None:
        assert [str(value)] == [found.name for found in mttp.scan("b.parquet")]
    else:
        with pytest.raises(ReadError, match=reason):
            list(mttp.scan("b.parquet", arrays=True))


def test_a_damaged_file_in_a_directory_is_a_problem():
    """
    The others are read; a file of another kind is reported as such.
    """
    Path("runs").mkdir()
    write("runs/a.jsonl", episode(0))
    parquet.write("runs/b.parquet", episode(1))
    Path("runs/b.parquet").write_bytes(damaged(Path("runs/b.parquet").read_bytes(), 300))
    arrow_parquet.write_table(arrow.table({"x": [1]}), "runs/c.parquet")
    recording = mttp.read("runs")

    assert 1 == len(recording)
    assert [("damaged_file", "runs/b.parquet"), ("not_traces", "runs/c.parquet")] == [
        (problem.kind, problem.file) for problem in recording.problems if problem.file
    ]


def test_an_id_beyond_64_bits_of_time_is_refused():
    """
    A value that a column can't hold is an error.
    """
    with pytest.raises(ReadError, match="beyond 64 bits"):
        parquet.write("a.parquet", [span(end_time=2**64 - 1)])


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    """
    Parquet is an extra, in both directions.
    """
    parquet.write("a.parquet", episode(0))
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(MissingExtra, match=r"reading a\.parquet needs pyarrow: pip install 'mttp\[study\]'"):
        mttp.read("a.parquet")
    with pytest.raises(MissingExtra, match=r"writing Parquet needs pyarrow"):
        parquet.write("b.parquet", episode(0))
