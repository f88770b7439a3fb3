"""Episodes as Arrow tables."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from reading.traces import episode, write
from specimen import EVERYTHING

import mttp
from mttp.errors import MissingExtra
from mttp.model.episodes import Agent, Episode, Grade, Reward, Step, Tokens
from mttp.reading.schemas import AGENTS, COMPONENTS, EPISODES, GRADES, REWARDS, STEPS, TOKENS
from mttp.reading.tables import Tables

pyarrow = pytest.importorskip("pyarrow")

COLUMNS = {
    "episodes": EPISODES,
    "agents": AGENTS,
    "steps": STEPS,
    "rewards": REWARDS,
    "components": COMPONENTS,
    "grades": GRADES,
    "tokens": TOKENS,
}
EPISODE = replace(EVERYTHING, trace_id="ab" * 16, run_id="run-1")

every_table = pytest.mark.parametrize("name", COLUMNS)


def rows(name: str) -> list[dict[str, object]]:
    """The specimen's rows of one table."""
    return getattr(Tables([EPISODE]), name).to_pylist()  # type: ignore[no-any-return]


@every_table
def test_columns_are_there_even_when_nothing_fills_them(name: str):
    """
    The schema of a table does not depend on what is in it.
    """
    tables = [getattr(Tables(episodes), name) for episodes in ([], [Episode()], [EPISODE])]

    assert [list(COLUMNS[name])] * 3 == [table.column_names for table in tables]
    assert 1 == len({str(table.schema) for table in tables})


@every_table
def test_the_documentation_lists_every_column(name: str):
    """
    Names and types in the reading guide are those of the tables.
    """
    guide = (Path(__file__).parents[2] / "docs" / "reading.md").read_text()
    section = guide.partition(f"### `tables.{name}`")[2].partition("\n#")[0]
    documented = re.findall(r"^\| `(\w+)` \| (.+?) \|", section, re.MULTILINE)

    assert [(column, f"`{type_}`") for column, type_ in COLUMNS[name].items()] == documented


def test_every_field_of_an_episode_has_a_column():
    """
    What a value holds is in a table: a new field gets its column.
    """
    names = {field.name.rstrip("_") for field in fields(Episode)}

    own = {"reward_status", "reward_components", "duration", "scores"}
    assert names - {"steps", "agents", "rewards", "annotations", "results"} | own == set(EPISODES)


def test_every_field_of_an_agent_has_a_column():
    """
    So it is with agents; their scorings aside.
    """
    names = {field.name.rstrip("_") for field in fields(Agent)} - {"rewards"}

    assert names | {"reward_status", "trace_id", "run_id"} == set(AGENTS)


def test_every_field_of_a_step_has_a_column():
    """
    So it is with steps; tokens, scorings, calls and annotations aside.
    """
    names = {field.name for field in fields(Step)}

    assert names - {"tokens", "rewards", "calls", "annotations"} | {"trace_id", "run_id", "scores"} == set(
        STEPS
    )


def test_every_field_of_a_scoring_has_a_column():
    """
    So it is with scorings, the spec's parts being columns of their own, grades and calls aside.
    """
    names = {field.name for field in fields(Reward)} - {"spec", "grades", "calls"}
    spec = {f"spec_{field.name}" for field in fields(mttp.model.Spec)}

    assert names | spec | {"trace_id", "run_id", "step_index", "agent", "position"} == set(REWARDS)


def test_every_field_of_a_grade_has_a_column():
    """
    So it is with grades, parts being rows of their own, and calls aside.
    """
    names = {field.name for field in fields(Grade)} - {"parts", "calls"}

    place = {"trace_id", "run_id", "step_index", "agent", "position", "part_of"}
    assert names | place == set(GRADES)


def test_every_field_of_a_token_block_has_a_column():
    """
    So it is with token blocks, the parent being two columns.
    """
    names = {field.name for field in fields(Tokens)} - {"parent"}

    place = {"trace_id", "run_id", "step_index", "agent"}
    assert names | {"parent_step", "parent_length"} | place == set(TOKENS)


def test_an_episode_is_a_row():
    """
    Fields keep their names and values; free-form content is JSON.
    """
    (row,) = rows("episodes")

    expected = {
        "trace_id": "ab" * 16,
        "env": "toy-math",
        "env_wrappers": ["TimeLimit", "OrderEnforcing"],
        "slices": ["algebra", "日本"],
        "seed": "3",
        "return": 0.9,
        "reward": 0.9,
        "reward_status": EPISODE.reward.status,
        "terminated": True,
        "length": 12,
        "duration": 5.0,
        "faults": [],
        "error_type": None,
    }

    assert expected == {name: row[name] for name in expected}
    assert {"answer": "4", "state": {"board": [[0, 1], [2, 3]], "big": 2**70, "float": 0.1}} == json.loads(
        str(row["inputs"])
    )
    assert [[0, 1, 2], [3, 4, 5]] == json.loads(str(row["final_observation"]))


def test_times_are_timestamps():
    """
    Nanoseconds since the epoch become timestamps in UTC, to the microsecond, as Python's own.
    """
    column = Tables([EPISODE]).episodes["start_time"]

    assert (pyarrow.timestamp("us", tz="UTC"), [EPISODE.start_time // 1000]) == (
        column.type,
        column.cast(pyarrow.int64()).to_pylist(),
    )
    assert Tables([EPISODE]).episodes.to_pylist()


def test_a_step_is_a_row():
    """
    Steps name their episode; what is absent is null.
    """
    first, second, third, *of_agents = rows("steps")

    assert ("ab" * 16, 0, '"2+2=?"', 0.25, None) == tuple(
        first[name] for name in ("trace_id", "index", "observation", "reward", "reward_raw")
    )
    assert ([[1, 2], [3, 4]], "error", None, "nan") == (
        json.loads(str(second["observation"])),
        second["reward_status"],
        second["reward"],
        second["reward_raw"],
    )
    assert {"text": "hi", "grid": [[1, 2], [3, 4]], "mask": None} == json.loads(str(third["observation"]))
    assert [(3, "player_0", -1.0), (3, "日本 1", 1.0)] == [
        (row["index"], row["agent"], row["reward"]) for row in of_agents
    ]


def test_an_agent_is_a_row():
    """
    Of an episode with several; its steps and scorings name it.
    """
    first, second = rows("agents")

    assert ("ab" * 16, "player_0", "White", -1.0, 7, True, None) == tuple(
        first[name] for name in ("trace_id", "id", "name", "return", "length", "terminated", "reward")
    )
    assert ("日本 1", 0.5, 0.5, "ok") == tuple(
        second[name] for name in ("id", "return", "reward", "reward_status")
    )


def test_a_grade_is_a_row():
    """
    One row per component, those of included specs below the component that they are part of.
    """
    grades = rows("grades")

    expected = [
        (1, None, "answer", 1.0),
        (1, None, "no-leak", 1.0),
        (1, None, "style", 0.5),
        (1, "style", "length", 0.5),
        (1, "style", "words", 1.0),
        (1, "words", "nouns", 1.0),
        (1, None, "taste", None),
    ]
    assert expected == [(r["position"], r["part_of"], r["name"], r["value"]) for r in grades]
    assert json.loads(str(grades[0]["evidence"])) == {"expected": "4", "found": ["4", 4.0]}


def test_a_scoring_is_a_row():
    """
    One row per scoring, components and weights as maps, so that totals can be summed.
    """
    whole = [row for row in rows("rewards") if row["step_index"] is None and row["agent"] is None]
    of_agents = [row for row in rows("rewards") if row["step_index"] is None and row["agent"] is not None]
    of_steps = [row for row in rows("rewards") if row["step_index"] is not None]

    assert [(0, None, "abstained"), (1, 1.0, "ok"), (2, 0.9, "ok")] == [
        (r["position"], r["value"], r["status"]) for r in whole
    ]
    assert {"correct": 0.8, "format": 0.2, "part_39": 0.0} == dict(whole[2]["weights"])  # type: ignore[call-overload]
    assert ("math", "1.2.0", [0.0, 1.0]) == tuple(
        whole[2][name] for name in ("spec_name", "spec_version", "range")
    )
    assert [(0, None, 0.25, [("close", 0.25)]), (3, "player_0", -1.0, [("mate", -1.0)])] == [
        (r["step_index"], r["agent"], r["value"], r["components"]) for r in of_steps
    ]
    assert [("日本 1", 0, None), ("日本 1", 1, 0.5)] == [
        (r["agent"], r["position"], r["value"]) for r in of_agents
    ]


def test_a_component_is_a_row():
    """
    Each with its value, weight and status; one without a number has none, and says what kind of error it is.
    """
    with mttp.configure(transport="memory://") as session, mttp.episode() as made:
        with made.step() as step:
            step.reward(1.0, components={"moved": 1.0})
        made.reward(2.0, components={"x": 2.0, "y": float("nan"), "z": None}, weights={"x": 1.0, "y": 0.5})
    found = mttp.read(session).tables.components.to_pylist()

    shown = ("step_index", "component", "value", "weight", "status", "error_type")
    assert [
        (None, "x", 2.0, 1.0, "ok", None),
        (None, "y", None, 0.5, "error", "invalid_value"),
        (None, "z", None, None, "missing", None),
        (0, "moved", 1.0, None, "ok", None),
    ] == [tuple(row[name] for name in shown) for row in found]


def test_a_component_of_a_spec_has_the_type_of_its_error():
    """
    The class of the exception, and the spec's name and version.
    """

    def judge(completion: str) -> float:
        raise TimeoutError

    component = {"name": "judge", "kind": "rubric", "use": judge}
    spec = mttp.RewardSpec(name="slow", version="1.2.0", components=[component])
    with mttp.configure(transport="memory://") as session, mttp.episode() as made:
        made.reward(spec.score(completion="x"))
    (row,) = mttp.read(session).tables.components.to_pylist()

    shown = ("component", "value", "status", "error_type", "spec_name", "spec_version")
    expected = ("judge", None, "error", "TimeoutError", "slow", "1.2.0")
    assert expected == tuple(row[name] for name in shown)


def test_a_token_block_is_a_row():
    """
    Arrays are lists, of doubles even where they came as float32.
    """
    first, second = rows("tokens")

    assert ([11, 12, 2**31], 0, 2, None) == tuple(
        first[name] for name in ("ids", "parent_step", "parent_length", "omitted_reason")
    )
    assert np.array([-0.1, -0.2], np.float32).tolist() == first["trainer_logprobs"][:2]  # type: ignore[index]
    assert (None, 9000, "too long") == tuple(second[name] for name in ("ids", "count", "omitted_reason"))


def test_a_recording_has_its_tables():
    """
    They are made when they are asked for.
    """
    tables = mttp.read(write("a.jsonl", episode(0, steps=3))).tables

    assert (1, 3, 0, 0) == (
        tables.episodes.num_rows,
        tables.steps.num_rows,
        tables.rewards.num_rows,
        tables.tokens.num_rows,
    )
    assert tables.steps is tables.steps


def test_sql_runs_on_the_tables():
    """
    DuckDB takes Arrow tables as they are, maps included.
    """
    duckdb = pytest.importorskip("duckdb")
    made = [episode(n, components={"correct": n / 10}) for n in range(3)]
    tables = mttp.read(write("a.jsonl", [span for one in made for span in one])).tables
    connection = duckdb.connect()
    connection.register("rewards", tables.rewards)
    connection.register("episodes", tables.episodes)
    query = """
        select round(sum(components['correct']), 9), count(*)
        from rewards join episodes using (trace_id) where env = 'CartPole-v1'
    """

    assert [(0.3, 3)] == connection.execute(query).fetchall()


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    """
    Tables are an extra, and the error says which.
    """
    found = mttp.read(write("a.jsonl", episode(0)))
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(MissingExtra, match=r"recording.tables needs pyarrow: pip install 'mttp\[study\]'"):
        _ = found.tables
