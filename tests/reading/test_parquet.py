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
from mttp.reading import parquet
from mttp.reading.columns import ATTRIBUTES, TEMPLATES
from mttp.reading.scanning import Scan
from mttp.semconv import attributes as a
from mttp.spans import Link, Scope, SpanEvent, SpanRecord

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
    Ours and other people's, each as it was.
    """
    spans = [*run(), *episode(0, components={"correct": 1.0}), foreign(1), *episode(1)]

    assert spans == back(spans)


@pytest.mark.parametrize("name", ["official.jsonl", "collector.jsonl"])
def test_files_of_others_come_back(name: str):
    """
    What other programs wrote is kept too.
    """
    spans = list(mttp.scan(DATA / name, arrays=True))

    assert list(map(told, spans)) == list(map(told, back(spans)))


def test_every_type_has_its_column():
    """
    Known attributes are columns of their own, typed as the convention types them.
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
    So that they are written as one block again.
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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(st.lists(st.dictionaries(keys, values, max_size=6), min_size=1, max_size=4))
def test_any_attributes_come_back(attribute_sets: list[dict[str, Any]]):
    """
    Known or not, of the right type or of another.
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
    It says how to make one that is a recording.
    """
    arrow_parquet.write_table(arrow.table({"x": [1]}), "x.parquet")

    with pytest.raises(ReadError, match=r"x\.parquet: this Parquet file is not a recording"):
        mttp.read("x.parquet")


def test_an_id_beyond_64_bits_of_time_is_refused():
    """
    What a column can't hold is said.
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
