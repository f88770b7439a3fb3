"""The tables of a recording: those of its source, reduced to what the recording has."""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reading.recorded_kinds import every_way
from reading.traces import episode, write

import mttp
from mttp.errors import MissingExtra, ReadError
from mttp.reading.recording import read_without
from mttp.tables import TABLES, Database

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")


@pytest.fixture
def recorded() -> mttp.Recording:
    """Two runs, each with a group of two episodes, an update, a score and an evaluation."""
    for name in ("first", "second"):
        with mttp.configure(f"file://runs/{name}.jsonl", run=name, run_id=name):
            members = []
            for number in range(2):
                with mttp.episode(env=name, task=f"t{number}") as member:
                    with member.step() as step:
                        step.action("left")
                    member.reward(float(number), components={"x": 1.0})
                members.append(member)
            mttp.group(name, members, rewards=[0.0, 1.0]).end()
            mttp.update(loss=0.5, groups=[name])
            mttp.score(members[1], 0.5, grader="late")
            with mttp.evaluate(name, tasks=["a"], progress=False) as evaluation:
                evaluation.map(lambda _: 1.0)
    return mttp.read("runs")


def counts(recording: mttp.Recording) -> dict[str, int]:
    """The number of rows of each table."""
    return {name: len(getattr(recording.tables, name)) for name in TABLES}


@pytest.mark.parametrize("table", TABLES)
def test_tables_are_those_of_the_source(session: mttp.Session, table: str) -> None:
    """
    Of episodes of several processes, agents and late facts.
    """
    every_way(session)
    recording = mttp.read(session)

    with Database(session) as database:
        expected = database.sql(f"select * from {table}").rows()
    assert repr(expected) == repr(getattr(recording.tables, table).rows())


def test_a_filtered_recording_has_its_own_tables(recorded: mttp.Recording) -> None:
    """
    Episodes that match, the groups, scores and evaluations of these, and the updates of their runs.
    """
    of_second = recorded.filter(run="second")
    one = of_second.filter(task="t0")

    assert {name: count / 2 for name, count in counts(recorded).items()} == counts(of_second)
    of_one = dict.fromkeys(("episodes", "steps", "scorings", "components", "groups", "updates"), 1)
    assert dict.fromkeys(TABLES, 0) | of_one == counts(one)
    assert [{"task": "t0", "group": "second"}] == one.tables.sql('select task, "group" from episodes').rows()
    assert 0 == sum(counts(recorded.filter(env="third")).values())


def test_a_recording_without_some_traces_has_tables_without_them(recorded: mttp.Recording) -> None:
    left_out = {recorded[0].trace_id}

    assert len(recorded) - 1 == len(read_without("runs", left_out).tables.episodes)


def test_traces_that_were_recorded_later_are_not_in_the_tables() -> None:
    with mttp.configure("memory://") as session:
        with mttp.episode():
            pass
        recording = mttp.read(session)
        with mttp.episode():
            pass

        assert (1, 2) == (len(recording.tables.episodes), len(mttp.read(session).tables.episodes))


@pytest.mark.parametrize(
    "changed",
    [
        lambda recording: mttp.Recording(recording.episodes),
        lambda recording: replace(recording, episodes=recording.episodes[:1]),
        lambda recording: mttp.Recording(recording.episodes).filter(task="t0"),
        lambda recording: pickle.loads(pickle.dumps(recording)),
    ],
)
def test_values_without_a_source_have_no_tables(
    recorded: mttp.Recording, changed: Callable[[mttp.Recording], mttp.Recording]
) -> None:
    """
    Tables of the source would not be those of the values; the error says what to do.
    """
    with pytest.raises(ReadError, match=r"by hand has no spans.*record its episodes with session\.record"):
        _ = changed(recorded).tables


def test_values_that_are_recorded_have_tables(recorded: mttp.Recording) -> None:
    with mttp.configure("memory://") as session:
        for value in recorded:
            session.record(value)

    assert [one.trace_id for one in recorded] == [
        row["trace_id"] for row in mttp.read(session).tables.episodes.rows()
    ]


def test_a_data_frame_has_dicts_and_exact_integers() -> None:
    """
    As floats, nanoseconds since 1970 would be rounded.
    """
    pytest.importorskip("pandas")
    with mttp.configure("memory://") as session:
        with mttp.episode() as first:
            first.reward(1.0, components={"x": 0.5})
        mttp.score(first, 1.0, grader="a", revision=2**62 + 1)
    tables = mttp.read(session).tables
    scorings, annotations = tables.scorings.df(), tables.annotations.df()

    assert {2**62 + 1} == {*scorings["revision"].dropna()}
    assert annotations["step"].isna().all()
    assert [{"x": 0.5}, {}] == [*scorings["components"]]


def test_a_table_that_there_is_not_is_an_error_that_says_what_there_is(recorded: mttp.Recording) -> None:
    with pytest.raises(AttributeError, match="there is no table 'rewards'; the tables are episodes, steps"):
        _ = recorded.tables.rewards
    assert {*TABLES} < {*dir(recorded.tables)}


def test_tables_outlive_the_recording_and_free_their_disk(recorded: mttp.Recording) -> None:
    tables: Any = mttp.read("runs").tables
    folder = Path(tables._folder.name)
    gc.collect()

    assert (6, True) == (len(tables.episodes), folder.is_dir())
    del tables
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize("package", ["duckdb", "pyarrow"])
def test_without_a_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    recording = mttp.read(write("a.jsonl", episode(0)))
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(MissingExtra, match=rf"needs {package}: pip install 'mttp\[study\]'"):
        _ = recording.tables
