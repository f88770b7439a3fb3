"""Live pages: the index follows recordings, answers queries, and finds each episode again."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from viewing.recorded import seeds

import mttp
from mttp.cli.conditions import matching
from mttp.errors import ConfigureError, ReadError
from mttp.reading import following, parquet
from mttp.reading.scanning import Scan
from mttp.tables import Database
from mttp.tables.summary import HEALTH
from mttp.tables.summary import health as health_of
from mttp.viewing import index as index_module
from mttp.viewing.figures import UPDATES
from mttp.viewing.index import EpisodeIndex
from mttp.viewing.live import LivePages

VIEWER = Path(__file__).parents[2] / "viewer"


def record(path: str, count: int = 12, start: int = 0) -> list[str]:
    """Record episodes; their trace ids."""
    ids = []
    with mttp.configure(f"file://{path}"):
        for number in range(start, start + count):
            with mttp.episode(
                env="e",
                task=f"t{number % 4}",
                split="easy" if number % 2 else None,
                metadata={"who": "AB"[number % 2]},
            ) as episode:
                with episode.step() as step:
                    step.observation(f"question {number}")
                    step.action("answer")
                value = math.nan if number % 5 == 3 else float(number)
                episode.reward(
                    value, components={"right": float(number % 2), "neat's": 0.5}, weights={"right": 1.0}
                )
                episode.end(outcome="success" if number % 2 else "failure")
            ids.append(episode.trace_id)
    return ids


@pytest.fixture
def index(tmp_path: Path) -> Iterator[EpisodeIndex]:
    """An index of twelve episodes."""
    record("run.jsonl")
    found = EpisodeIndex(["run.jsonl"])
    found.refresh()
    yield found
    found.close()


def query(**changes: Any) -> dict[str, Any]:
    return {
        "search": "",
        "filters": [],
        "runs": [],
        "sort": "start",
        "descending": False,
        "offset": 0,
        "limit": 100,
        **changes,
    }


def query_rows(index: EpisodeIndex, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    with index.snapshot() as database:
        return [tuple(row.values()) for row in database.rows(statement)]


@pytest.fixture
def pages() -> Iterator[LivePages]:
    """Pages of a recording, without the thread that follows it."""
    record("run.jsonl")
    found = LivePages(["run.jsonl"])
    found._index.refresh()
    yield found
    found.close()


FILTERS = [
    ("reward", ">", "4"),
    ("reward", "!=", "5"),
    ("reward", "=", "abc"),
    ("reward", "!=", "abc"),
    ("reward", "~", "^1"),
    ("task", "=", "t1"),
    ("task", "!=", "t1"),
    ("task", "~", "T[12]"),
    ("task", "~", "t(1"),
    ("task", "<", "t2"),
    ("split", "=", "easy"),
    ("split", "!=", "easy"),
    ("outcome", "=", "success"),
    ("reward_status", "!=", "ok"),
    ("components.right", ">=", "1"),
    ("components.neat's", "<=", "0.5"),
    ("metadata.who", "=", "A"),
    ("length", "<", ""),
]


@pytest.mark.browser
def test_queries_have_the_same_answers_as_in_a_report(pages: LivePages) -> None:
    """
    The rules of the page's script and of SQL agree: filters, missing values, sorting, search, paging.
    """
    queries = [
        query(filters=[{"column": column, "operator": operator, "value": value}])
        for column, operator, value in FILTERS
    ]
    queries += [
        query(sort=name, descending=down)
        for name in ("reward", "task", "split", "outcome")
        for down in (False, True)
    ]
    queries += [query(search="T1 success"), query(search="none"), query(offset=5, limit=3), query(offset=50)]
    overview = pages.overview()
    queries.append(query(runs=[overview["runs"][0]["id"]]))
    rows = pages.episodes(query())["rows"]
    script = f"""
import {{ run }} from {json.dumps(str(VIEWER / "src" / "query.ts"))};
const {{ queries, columns, rows }} = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(queries.map((one) => run(one, columns, rows))));
"""
    Path("check.ts").write_text(script)
    bundle = subprocess.run(
        [
            VIEWER / "node_modules" / ".bin" / "esbuild",
            "check.ts",
            "--bundle",
            "--platform=node",
            "--outfile=check.js",
        ],
        capture_output=True,
        text=True,
    )
    assert 0 == bundle.returncode, bundle.stderr
    given = json.dumps({"queries": queries, "columns": overview["columns"], "rows": rows})
    answered = subprocess.run(
        ["node", "check.js"], input=given, capture_output=True, text=True, check=True
    ).stdout

    for one, expected in zip(queries, json.loads(answered), strict=True):
        found = pages.episodes(one)
        assert (expected["total"], expected["matched"]) == (found["total"], found["matched"]), one
        if one["sort"] == "start":  # rows that are equal in other columns come in any order
            assert {row[0] for row in expected["rows"]} == {row[0] for row in found["rows"]}, one
        sort = [column["key"] for column in overview["columns"]].index(one["sort"])
        assert [row[sort] for row in expected["rows"]] == [row[sort] for row in found["rows"]], one


@pytest.mark.parametrize(
    "wrong",
    [
        {"filters": 3},
        {"filters": [3]},
        {"filters": [{"column": "reward", "operator": "; DROP TABLE episodes", "value": "1"}]},
        {"filters": [{"column": "reward", "operator": "=", "value": 1}]},
        {"search": 3},
        {"offset": -1},
        {"limit": "all"},
        {"limit": True},
        {"limit": 1_001},
        {"offset": 1 << 60},
        {"offset": math.nan},
        {"descending": "no"},
        {"sort": "nothing"},
        {"sort": '"; DROP TABLE episodes --'},
        {"filters": [{"column": "nothing", "operator": "=", "value": "1"}]},
        {"filters": [{"column": "task", "operator": "=", "value": "t" * 1_001}]},
        {"filters": [{"column": "task", "operator": "=", "value": "t1"}] * 21},
        {"search": "t " * 21},
        {"search": "t" * 201},
        {"unknown": 1},
    ],
)
def test_a_wrong_query_is_refused(pages: LivePages, wrong: dict[str, Any]) -> None:
    """
    Nothing of it reaches the database.
    """
    with pytest.raises(ConfigureError):
        pages.episodes(query(**wrong))

    assert 12 == pages.episodes(query())["matched"]


def test_twenty_words_and_filters_are_answered(pages: LivePages) -> None:
    """
    As many as a query may have.
    """
    filters = [{"column": "task", "operator": "=", "value": "t1"}] * 20

    assert 3 == pages.episodes(query(search="t1 " * 20, filters=filters))["matched"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=9), some, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from([*query()]) | st.text(max_size=9), JSON, max_size=6))
def test_any_query_is_answered_or_refused(pages: LivePages, asked: dict[str, Any]) -> None:
    """
    No other error comes of it.
    """
    with suppress(ConfigureError):
        pages.episodes(asked)


def test_names_of_components_are_quoted(pages: LivePages) -> None:
    """
    A quote in a name ends no statement.
    """
    found = pages.episodes(query(sort="components.neat's"))

    assert 12 == len(found["rows"])


def test_new_episodes_appear(index: EpisodeIndex) -> None:
    """
    After a refresh, with a new version; without news nothing changes.
    """
    version = index.version
    assert not index.refresh()
    assert version == index.version

    record("run.2.jsonl", 3, start=12)
    Path("run.jsonl").write_bytes(Path("run.jsonl").read_bytes() + Path("run.2.jsonl").read_bytes())

    assert index.refresh()
    assert version < index.version
    assert 15 == len(index)
    assert [(15,)] == query_rows(index, "SELECT count(*) FROM episodes")


def test_late_facts_change_rows(tmp_path: Path) -> None:
    """
    Outcomes, scores and metadata that are annotated after the episode was indexed.
    """
    with mttp.configure("file://run.jsonl") as session:
        with mttp.episode(env="e", metadata={"who": "A"}) as episode:
            pass
        session.flush()
        index = EpisodeIndex(["run.jsonl"])
        index.refresh()
        before = query_rows(index, "SELECT outcome, reward, metadata['who'] FROM episodes")
        mttp.annotate(episode, "outcome", "success")
        mttp.annotate(episode, "who", "B")
        mttp.score(episode, 0.5, grader="human")
        session.flush()
        index.refresh()
        after = query_rows(index, "SELECT outcome, reward, metadata['who'] FROM episodes")
        again = index.episode(episode.trace_id)
        index.close()

    assert [("unknown", None, "A")] == before
    assert [("success", 0.5, "B")] == after
    assert ("success", 0.5) == (again.episodes[0].outcome, again.episodes[0].reward.value)


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz", "run.parquet"])
def test_every_episode_is_found_again(name: str) -> None:
    """
    Whole, as `mttp.read` returns it, in each format.
    """
    ids = record("run.jsonl" if name == "run.parquet" else name)
    if name == "run.parquet":
        parquet.write(Path(name), Scan("run.jsonl", arrays=True, as_written=True))
    index = EpisodeIndex([name])
    index.refresh()

    for trace_id in ids:
        (found,) = index.episode(trace_id).episodes
        assert mttp.read(name).episode(trace_id) == found
    with pytest.raises(ReadError, match="there is no episode"):
        index.episode("0" * 32)
    index.close()


def test_an_episode_of_several_processes_is_one_row() -> None:
    """
    Parts of other processes are merged when they arrive.
    """
    with mttp.configure("file://run.jsonl") as session:
        with mttp.episode(env="e") as episode:
            with episode.step() as step:
                step.reward(1.0)
            carrier = mttp.inject({})
            with mttp.extract(carrier), mttp.step() as remote:
                remote.reward(2.0)
        session.flush()
    index = EpisodeIndex(["run.jsonl"])
    index.refresh()
    found = query_rows(index, 'SELECT length, "return" FROM episodes')
    index.close()

    assert [(one.length, one.return_) for one in mttp.read("run.jsonl")] == found


def test_group_members_are_rows_of_the_overview() -> None:
    """
    With their rewards, and the page of a member has its group.
    """
    with mttp.configure("file://run.jsonl"), mttp.group(id="g", task="t") as group:
        for value in (0.0, 1.0, 1.0):
            with mttp.episode(env="e", task="t", group=group) as episode:
                episode.reward(value)
            group.add(episode)
    pages = LivePages(["run.jsonl"])
    pages._index.refresh()
    sections = {one["id"]: one for one in pages.overview()["sections"]}
    page = pages.episode(episode.trace_id)
    pages.close()

    first = mttp.read("run.jsonl").episodes[0].trace_id
    assert [[f"{first} g", "t", 3]] == [row[:3] for row in sections["groups"]["blocks"][-1]["rows"]]
    (group,) = (each for each in page["blocks"] if each.get("id") == "group")
    assert ("Group g", [0.0, 1.0, 1.0]) == (group["title"], [row[2] for row in group["blocks"][0]["rows"]])


def test_an_empty_file_is_an_empty_page() -> None:
    """
    The recording may not have begun.
    """
    Path("run.jsonl").touch()
    pages = LivePages(["run.jsonl"])
    pages._index.refresh()
    overview, rows = pages.overview(), pages.episodes(query())
    pages.close()

    assert "no episodes" in json.dumps(overview["sections"])
    assert (0, 0, []) == (rows["total"], rows["matched"], rows["rows"])


def test_what_is_read_so_far_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Rows of a large file appear before it is read to its end, and the page says how much is read.
    """
    for part in range(3):
        record(f"{part}.jsonl", 10, start=10 * part)
    Path("run.jsonl").write_bytes(b"".join(Path(f"{part}.jsonl").read_bytes() for part in range(3)))
    monkeypatch.setattr(following, "_PART", 2_000)
    monkeypatch.setattr(index_module, "_STORE_SECONDS", 0.0)
    monkeypatch.setattr(index_module, "_FIRST_STORE_SECONDS", 0.0)
    pages = LivePages(["run.jsonl"])
    seen = []
    store = pages._index._store

    def stored() -> None:
        store()
        overview, rows = pages.overview(), pages.episodes(query())
        seen.append((rows["total"], overview["sampling"]))

    monkeypatch.setattr(pages._index, "_store", stored)
    pages._index.refresh()
    after = pages._made(())["sampling"]
    pages.close()

    assert any(0 < total < 30 and "% of the files are read so far" in text for total, text in seen)
    assert "" == after


def test_what_is_no_recording_is_refused() -> None:
    """
    With what is wrong, and where.
    """
    Path("run.jsonl").write_text("hello\n" * 3)
    index = EpisodeIndex(["run.jsonl"])

    with pytest.raises(ReadError, match="this is not a recording"):
        index.refresh()
    index.close()


def test_reading_while_a_program_records() -> None:
    """
    Queries on other threads see whole rows at any time, and all of them in the end.
    """
    pages = LivePages(["run.jsonl"])
    Path("run.jsonl").touch()
    ended = threading.Event()
    failures: list[BaseException] = []

    def look() -> None:
        try:
            while not ended.is_set():
                found = pages.episodes(query(sort=random.choice(("start", "return"))))
                assert found["matched"] == len(found["rows"]) <= found["total"]
                pages.overview()
        except BaseException as error:
            failures.append(error)

    pages.start()
    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    with mttp.configure("file://run.jsonl") as session:
        for number in range(60):
            with mttp.episode(env="e", task=f"t{number}") as episode:
                episode.reward(float(number))
            if number % 10 == 0:
                session.flush()
                threading.Event().wait(0.2)
    until = 50
    while pages.episodes(query())["total"] < 60 and until:
        threading.Event().wait(0.2)
        until -= 1
    ended.set()
    for thread in threads:
        thread.join()
    total = pages.episodes(query())["total"]
    pages.close()

    assert [] == failures
    assert 60 == total


def chats(path: str, count: int = 3) -> None:
    """Record chats with calls of tools, and one that fails."""
    with mttp.configure(f"file://{path}"):
        for number in range(count):
            with mttp.episode(env="chat") as episode:
                with episode.step() as step:
                    step.observation([{"role": "user", "content": f"{'long ' * 100}What is {number}+4?"}])
                    call = {"id": "c", "function": {"name": "add", "arguments": f'{{"first": "n{number}"}}'}}
                    step.action([{"role": "assistant", "content": "I compute it.", "tool_calls": [call]}])
                    with suppress(OSError), step.tool_call("add", arguments={"sum": f"{number}+5="}) as tool:
                        tool.result(f"{number + 5}apples")
                        if number == 1:
                            raise OSError("Disk full")
                with episode.step() as step:
                    step.observation([{"role": "user", "content": f"Sure, {number}?"}])
                    step.action({"role": "assistant", "content": "Yes."})
            episode.reward(1.0)
        with suppress(ValueError), mttp.episode(env="chat"):
            raise ValueError("the Sandbox is gone")


@pytest.mark.parametrize(
    ("search", "matched"),
    [
        *[("2+4", 1), ("long what", 3), ("COMPUTE", 3), ("n1", 1), ("sandbox valueerror", 1), ("absent", 0)],
        *[("2+5=", 1), ("apples", 3), ("7apples", 1), ("sure, 2?", 1), ("disk oserror", 1)],
    ],
)
def test_words_of_messages_calls_and_errors_are_found(search: str, matched: int) -> None:
    """
    In the whole texts, of which the list shows the ends; `--where` finds the same.
    """
    chats("run.jsonl")
    pages = LivePages(["run.jsonl"])
    pages._index.refresh()
    columns = [column["key"] for column in pages.overview()["columns"]]
    found = pages.episodes(query(search=search))
    (last, *_) = pages.episodes(query(search="2+4"))["rows"]
    pages.close()
    conditions = [f"text~(?i){re.escape(word)}" for word in search.split()]

    assert matched == len(matching(["run.jsonl"], conditions))
    assert matched == found["matched"]
    prompt = last[columns.index("prompt")]
    assert ("…", "What is 2+4?", 121) == (prompt[0], prompt[-12:], len(prompt))
    assert last[columns.index("completion")].startswith("I compute it.")


def test_a_run_that_turns_out_to_train_counts_as_such() -> None:
    """
    An episode that a training cut off is left out as soon as an update says that it trains.
    """
    reasons = []
    with mttp.configure("file://run.jsonl", kind="eval") as session:
        with suppress(KeyboardInterrupt), mttp.episode(env="e"):
            raise KeyboardInterrupt
        session.flush()
        index = EpisodeIndex(["run.jsonl"])
        for _ in range(2):
            index.refresh()
            reasons += query_rows(index, "SELECT counts_reason FROM episodes")
            mttp.update(index=0)
            session.flush()
        index.close()

    assert [("not_finished",), ("cut_off",)] == reasons


def test_an_overview_is_of_the_picked_runs(tmp_path: Path) -> None:
    """
    Its facts, graders, findings and columns; the table of runs has all of them.
    """
    seeds(str(tmp_path), number=1)
    with closing(LivePages([str(tmp_path)])) as pages:
        pages._index.refresh()
        pages._study()
        slow, fast = [run["id"] for run in pages.overview()["runs"]]
        picked = pages.overview((fast,))
        found = pages.episodes({"runs": [fast], "limit": 100, "sort": "start"})
        by_section = {section["id"]: section["blocks"] for section in picked["sections"]}

        assert 2 == len(by_section["runs"][0]["rows"])
        assert {"label": "runs", "value": 1, "detail": "", "state": "plain"} in by_section["summary"][0][
            "items"
        ]
        assert {fast} == {mark["run"] for mark in picked["marks"]}
        assert [12, 12] == [found["total"], found["matched"]]
        assert {slow, fast} == {mark["run"] for mark in pages.overview()["marks"]}
        assert 12 == pages.update(fast, 1)["sections"][1]["blocks"][0]["rows"][0][2] * 3


def test_graders_faults_and_updates_are_counted_as_in_a_report(tmp_path: Path) -> None:
    """
    Also when they come bit by bit, and late.
    """
    with mttp.configure(f"file://{tmp_path}/run.jsonl", run="r") as session:
        with mttp.group(id="g") as group:
            for value in (1.0, math.nan):
                with mttp.episode(env="e", group=group) as episode:
                    episode.reward(value, components={"right": value}, weights={"right": 1.0}, grader="exact")
                group.add(episode)
        mttp.update(index=0, loss=1.0, groups=[group])
        mttp.score(episode.trace_id, 0.5, by="person")
        session.flush()
    lines_of = (tmp_path / "run.jsonl").read_bytes().splitlines(keepends=True)
    grown = tmp_path / "grown.jsonl"
    with closing(LivePages([str(grown)])) as pages:
        for line in lines_of:
            with grown.open("ab") as file:
                file.write(line)
            pages._index.refresh()
        health, updates = pages._index.health(), pages._index.updates
    with Database(tmp_path / "run.jsonl") as database:
        database.prepare(*HEALTH, UPDATES)
        expected = health_of(database, database.runs)

        assert expected == health
        assert database.rows(UPDATES) == updates
