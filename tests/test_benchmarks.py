"""Benchmarks run and compare like with like; what they find is not for tests to judge."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import Request, urlopen

import pytest
from programs import told

FOLDER = Path(__file__).parents[1] / "benchmarks"

BURNING = """
import sys, time
while time.process_time() < 0.2:
    pass
print("burnt", flush=True)
sys.stdin.read()
"""


def answer(code: str) -> Any:
    """What a program says that may import the benchmarks."""
    return told(f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n{textwrap.dedent(code)}")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmarks."""
    return subprocess.run(
        [sys.executable, str(FOLDER), *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of the benchmarks, which is gone again after the test."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(FOLDER)
    yield import_module
    for name in set(sys.modules) - known:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


# The command.


def test_a_row_is_measured_by_its_name(tmp_path: Path) -> None:
    """
    It is printed with median and spread at 80 columns, and every figure of every round is in the JSON.
    """
    found = tmp_path / "found.json"

    done = run("encoder", "--quick", "--rounds", "2", "--json", str(found))

    assert 0 == done.returncode, done.stderr
    report = json.loads(found.read_text())
    assert ["official", "mttp"] == list(report["rounds"]["encoding"][0])
    assert (2, [9]) == (len(report["rounds"]["encoding"]), [row["number"] for row in report["rows"]])
    assert [] == [line for line in done.stdout.splitlines() if len(line) > 80]
    assert {"processor", "processors", "python", "system", "load"} <= set(report["machine"])


def test_an_unknown_row_is_an_error_with_the_known_ones() -> None:
    """
    The error names the row, and all names.
    """
    done = run("nonsense")

    assert 2 == done.returncode
    assert "no such row: nonsense; there are 1 to 12, or caller, cpu, stall" in done.stderr


def test_a_missing_optional_environment_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    The row says what makes it, and its other parts are measured.
    """
    monkeypatch.setenv("MTTP_INTEGRATIONS", str(tmp_path))

    done = run("environments", "--quick")

    assert 0 == done.returncode, done.stderr
    said = " ".join(done.stdout.split())
    assert "CartPole: recorded over bare" in said
    assert "stable-baselines3 is not installed: .ci/integrations stable-baselines3" in said


def test_there_are_twelve_rows(load: Callable[[str], ModuleType]) -> None:
    """
    Each has a name of its own, and parts of workloads that there are.
    """
    rows = load("rows").ROWS

    assert 12 == len(rows) == len({row.name for row in rows})
    assert all((FOLDER / f"{part.workload}.py").exists() for row in rows for part in row.parts)


# What is made of figures.


@pytest.mark.parametrize(
    ("at_least", "value", "verdict"),
    [
        (True, 12.0, "good"),
        (True, 7.0, "pass"),
        (True, 6.9, "MISS"),
        (False, 0.9, "good"),
        (False, 7.0, "pass"),
        (False, 7.1, "MISS"),
    ],
)
def test_what_must_be_is_a_lower_bound_or_an_upper_one(
    load: Callable[[str], ModuleType], at_least: bool, value: float, verdict: str
) -> None:
    """
    A number is judged by what must be, and by what would be better.
    """
    rows = load("rows")
    part = rows.Part(
        "", "work", lambda found: found["mttp"]["x"], 7, 10 if at_least else 1, at_least=at_least
    )

    judged = rows.judged(part, [{"mttp": {"x": value}}])

    assert (value, verdict) == (judged["median"], judged["verdict"])


def test_a_ratio_is_that_of_one_round(load: Callable[[str], ModuleType]) -> None:
    """
    The median, the lowest and the highest are those of the rounds' ratios.
    """
    rows = load("rows")
    part = rows.Part("", "work", lambda found: found["theirs"]["x"] / found["mttp"]["x"], 2)
    rounds = [{"theirs": {"x": 3.0}, "mttp": {"x": own}} for own in (1.0, 2.0, 3.0)]

    judged = rows.judged(part, rounds)

    assert (1.5, 1.0, 3.0) == (judged["median"], judged["lowest"], judged["highest"])


def test_rows_are_80_columns_wide(load: Callable[[str], ModuleType]) -> None:
    """
    With long labels and large numbers, and with the table of chats.
    """
    report, rows = load("report"), load("rows")
    found = {"mttp": dict.fromkeys(report.COLUMNS, 123_456.0)}
    parts = [
        rows.judged(
            rows.Part("if nothing is recorded, by", "loop", lambda found: found["mttp"]["x"], 100, unit="ms"),
            [{"mttp": {"x": value}} for value in (12_345.0, 13_456.0)],
        )
    ]

    printed = report.printed([{"number": 1, "text": "Chats", "parts": parts}], [found], "A machine. " * 20)

    assert [] == [line for line in printed.splitlines() if len(line) > 80]
    assert ["12,900", "ms", "12,345", "to", "13,456", "ms", "100", "ms", "pass"] == printed.split()[12:21]


def test_figures_are_written_between_the_marks_of_a_page(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    """
    What is around them stays; a page without marks is an error.
    """
    report, page = load("report"), tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")

    report.written(page, "new")

    assert f"before\n{report.BEGIN}\nnew\n{report.END}\nafter\n" == page.read_text()
    page.write_text("nothing\n")
    with pytest.raises(SystemExit, match="has no lines"):
        report.written(page, "new")


def test_cases_that_did_different_work_are_not_compared(load: Callable[[str], ModuleType]) -> None:
    """
    The workload fails by the figure that differs and the names of the cases.
    """
    harness = load("harness")
    found = {"theirs": {"bytes": 1.0}, "mttp": {"bytes": 2.0}, "another": {}}

    with pytest.raises(harness.Failed, match="encoding: not the same bytes: theirs, mttp"):
        harness._agree("encoding", found, ["bytes"])


def test_a_child_that_still_runs_counts(load: Callable[[str], ModuleType]) -> None:
    """
    Its CPU time is counted while it runs, unless it is excluded.
    """
    usage = load("usage")
    child = subprocess.Popen(
        [sys.executable, "-c", BURNING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()

    without, both = usage.cpu_seconds([child.pid]), usage.cpu_seconds()
    memory = usage.resident_mb(child.pid)
    child.communicate()

    assert 0.15 < both - without
    assert 1 < memory


# What is recorded, and what arrives.


def test_the_same_chats_arrive_from_all_that_record_them() -> None:
    """
    mttp's file and the SDK's requests have every step, and each value that is compared is what was recorded.
    """
    counted = answer(
        """
        import json
        import arrived, recorders
        from chat import chats

        def record(recorder, lists):
            for chat in chats(40, lists=lists):
                for _ in recorder.play(chat):
                    pass
            recorder.close()

        record(recorders.own(), lists=True)
        found = [arrived.own_arrived()]
        recorders.LOCAL.with_suffix(".jsonl").unlink()
        record(recorders.own(), lists=False)
        found.append(arrived.own_arrived())
        record(recorders.sdk_otlp(), lists=False)
        print(json.dumps([*found, arrived.sink_arrived()]))
        """
    )

    assert [320, 320, 320] == counted


def test_another_action_than_was_recorded_is_noticed() -> None:
    """
    Equal numbers of spans are not enough: their content is compared.
    """
    noticed = answer(
        """
        import json
        import arrived, recorders
        from chat import chats

        recorder = recorders.own()
        for chat in chats(4, lists=True):
            steps = [step._replace(action="another") for step in chat.steps]
            for _ in recorder.play(chat._replace(steps=steps)):
                pass
        recorder.close()
        try:
            arrived.own_arrived()
        except AssertionError as error:
            print(json.dumps("another" in str(error)))
        """
    )

    assert noticed


def test_the_receiver_keeps_what_is_sent(load: Callable[[str], ModuleType], tmp_path: Path) -> None:
    """
    Spans are read back from its file, those of compressed requests included.
    """
    import gzip

    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    module, path = load("sink"), tmp_path / "received"
    request = TracesData()
    request.resource_spans.add().scope_spans.add().spans.add(name="step")
    body = request.SerializeToString()

    sink = module.Sink(path)
    urlopen(Request(f"{sink.address}/v1/traces", body)).read()
    urlopen(Request(sink.address, gzip.compress(body), {"Content-Encoding": "gzip"})).read()
    sink.close()

    assert ["step", "step"] == [span.name for span in module.received(path)]


# The workloads, at sizes that take no time.


def test_chats_are_measured_with_all_their_figures() -> None:
    """
    Of the caller, of all processes, and of closing.
    """
    figures = answer(
        """
        import json, realistic
        print(json.dumps(realistic.CASES["mttp, arrays"].measure(0.01)))
        """
    )

    assert {"recorded", "mean_us", "median_us", "p99_us", "stall_ms", "start_ms", "cpu_s", "close_s"} == set(
        figures
    )


def test_a_loop_is_measured_beside_nothing_and_beside_recording() -> None:
    """
    Both have the same figures, and steps were recorded.
    """
    nothing, own = answer(
        """
        import json, loop
        loop.WINDOWS = 2
        print(json.dumps([loop.slowed(name)(0.02) for name in ("", "own")]))
        """
    )

    assert nothing.keys() == own.keys()
    assert own["steps_per_s"] > 0


def test_steps_of_tokens_are_measured_for_all_that_record_them() -> None:
    """
    A block is recorded by each.
    """
    figures = answer(
        """
        import json, tokens
        tokens.BLOCK = 64
        print(json.dumps([case.measure(0.0) for name, case in tokens.CASES.items() if "arrays" in name]))
        """
    )

    assert all(one["caller_us"] > 0 for one in figures)


def test_readers_give_the_same_answers() -> None:
    """
    Grouping by SQL and by a summary; columns by hand and episode by episode.
    """
    pytest.importorskip("orjson")
    pytest.importorskip("duckdb")
    found = answer(
        """
        import json, os, reading
        from pathlib import Path
        reading.DISTINCT, reading.QUICK_SECONDS = 16, 1.0
        reading.prepare(quick=True)
        Path("here").mkdir()
        os.chdir("here")
        print(json.dumps([
            [reading.own_groups(), reading.duckdb_groups()],
            [reading.orjson_columns(), reading.own_columns()],
        ]))
        """
    )

    groups, columns = found
    assert 8 == len(groups[0])
    assert groups[0] == groups[1]
    assert 64 == columns[0]["steps"]
    assert columns[0] == columns[1]


def test_a_burst_is_counted_by_what_its_receiver_was_sent() -> None:
    """
    Our spans and the SDK's are counted alike; none of so few is lost.
    """
    lost = answer(
        """
        import burst, json
        found = []
        for case in burst.CASES.values():
            found.append(case.check(case.measure(2.0))["lost"])
        print(json.dumps(found))
        """
    )

    assert [0, 0] == lost


def test_a_pole_is_balanced_alike_with_and_without_recording() -> None:
    """
    What the file says is what was played.
    """
    pytest.importorskip("gymnasium")
    bare, own = answer(
        """
        import cartpole, json
        bare, own = (case.measure(0.005) for case in cartpole.CASES.values())
        cartpole.CASES["mttp"].check(own)
        print(json.dumps([bare, own]))
        """
    )

    assert (bare["episodes"], bare["returns"]) == (own["episodes"], own["returns"])
    assert 10 < bare["episodes"]
