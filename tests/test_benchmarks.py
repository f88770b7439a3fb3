"""Benchmarks run and compare like with like; what they find is not for tests to judge."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
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

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from goals import Goal, figure, times
from harness import main
from questions import Case, Environment, Question

def case(said, cpu, **more):
    return Case(lambda seconds: (said, {{"cpu_us": cpu}}), **more)

main({{
    "same": Question("the same", {{"cpu_us": "CPU"}}, {{
        "theirs": case(b"output", 30.0),
        "mttp": case(b"output", 10.0),
        "odd": case(b"another", 20.0, alike=False, rounds=1),
        "missing": case(b"output", 1.0, absent=lambda: "no such thing"),
    }}, [
        Goal("1", "theirs over ours", times("theirs", "mttp", "cpu_us"), 2, 4, at_least=True),
        Goal("2", "missing", figure("missing", "cpu_us"), 2),
    ]),
    "other": Question("not the same", {{"cpu_us": "CPU"}}, {{
        "theirs": case(b"output", 1.0), "mttp": case(b"another", 1.0),
    }}),
    "peer": Question("a peer", {{"cpu_us": "CPU"}}, {{
        "theirs": case(b"output", 1.0, environment=Environment("nobody-has-this", ("nothing",))),
    }}),
}})
"""


def answer(code: str, *, warned: str = "") -> Any:
    """What a program says that may import the benchmarks."""
    program = f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n{textwrap.dedent(code)}"
    return told(program, warned=warned)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of the benchmarks, which is gone again after the test."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(FOLDER)
    yield import_module
    for name in set(sys.modules) - known:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark."""
    return subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A benchmark with figures that are known."""
    path = tmp_path / "known.py"
    path.write_text(SCRIPT.format(folder=str(FOLDER)))
    return path


# The harness.


def test_a_question_is_answered_as_a_table_and_as_json(script: Path, tmp_path: Path) -> None:
    """
    Each case has its figures for every round, the control for every second one; the machine is named.
    """
    found = tmp_path / "found.json"

    done = run(script, "--only", "same", "--rounds", "2", "--json", str(found))

    assert (0, "") == (done.returncode, done.stderr)
    report = json.loads(found.read_text())
    answered = report["questions"]["known"]["same"]
    assert ["theirs", "mttp", "odd", "control"] == list(answered)
    assert {"theirs": [30.0, 30.0], "mttp": [10.0, 10.0], "odd": [20.0], "control": [30.0]} == {
        case: figures["cpu_us"]["rounds"] for case, figures in answered.items()
    }
    assert {"processor", "processors", "python", "system", "rounds", "quick"} <= set(report["machine"])
    assert all(f"\n{case} " in done.stdout for case in answered)


def test_goals_are_one_table_in_markdown(script: Path) -> None:
    """
    What was reached stands beside what must be and what would be better, with the rounds' spread.
    """
    done = run(script, "--only", "same", "--rounds", "2")

    assert "| 1 | theirs over ours | 2x | 4x | 3x | 3x | 3x to 3x | yes |" in done.stdout.splitlines()


def test_what_is_skipped_is_said_by_name(script: Path) -> None:
    """
    A case that can't be measured here has no figures, and neither has a goal that needs it.
    """
    lines = run(script, "--only", "same", "--rounds", "1").stdout.splitlines()

    assert "| 2 | missing | 2x |  |  |  |  | missing: no such thing |" in lines
    assert ["missing", "skipped:", "no", "such", "thing"] in [line.split() for line in lines]


def test_what_stands_aside_is_measured_by_name(load: Callable[[str], ModuleType]) -> None:
    """
    A run of everything leaves it out, and says so.
    """
    case = load("questions").Case(lambda _: (b"", {}), aside=True)
    absent = load("harness")._absent

    everything, named = (SimpleNamespace(quick=False, only=only) for only in (None, ["trainer"]))
    assert ("measured where its question is asked for by name", "") == (
        absent(case, everything),
        absent(case, named),
    )


def test_another_output_fails_the_question_by_name(script: Path) -> None:
    """
    Nothing is compared that does different work; the other questions are answered all the same.
    """
    done = run(script, "--only", "other", "--rounds", "1")

    assert 1 == done.returncode
    assert "not the same: not the same output: theirs, mttp" in done.stdout


def test_a_peer_that_is_not_installed_fails_by_name(script: Path) -> None:
    """
    It is not left out in silence.
    """
    done = run(script, "--only", "peer", "--rounds", "1")

    assert (1, "nobody-has-this is not installed; run: python benchmarks --install\n") == (
        done.returncode,
        done.stderr,
    )


@pytest.mark.parametrize(
    ("at_least", "value", "verdict"),
    [
        (True, 12.0, "stretch"),
        (True, 7.0, "yes"),
        (True, 6.9, "MISSED"),
        (False, 6.9, "yes"),
        (False, 7.1, "MISSED"),
    ],
)
def test_a_goal_is_a_lower_bound_or_an_upper_one(
    load: Callable[[str], ModuleType], at_least: bool, value: float, verdict: str
) -> None:
    """
    What is reached is judged by what must be, and by what would be better.
    """
    goals = load("goals")
    goal = goals.Goal("1", "a goal", goals.figure("mttp", "x"), 7, 10 if at_least else 1, at_least=at_least)

    judged = goals.judged(goal, {"mttp": [{"x": value}]}, {}, apart=0.0)

    assert (value, verdict) == (judged["reached"], judged["verdict"])


def test_a_busy_machine_is_no_verdict(load: Callable[[str], ModuleType]) -> None:
    """
    Where the control is far from what it repeats, a goal is neither reached nor missed.
    """
    goals = load("goals")
    goal = goals.Goal("1", "a goal", goals.times("theirs", "mttp", "x"), 2, at_least=True)

    judged = goals.judged(goal, {"theirs": [{"x": 3.0}], "mttp": [{"x": 1.0}]}, {}, apart=1 / 3)

    assert (3.0, "the machine was too busy: the control is 33% off") == (judged["reached"], judged["verdict"])


def test_a_child_that_still_runs_counts(load: Callable[[str], ModuleType]) -> None:
    """
    Its CPU time is counted while it lives, unless it is said not to.
    """
    usage = load("usage")
    child = subprocess.Popen(
        [sys.executable, "-c", BURNING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()

    without, both = usage.cpu_seconds([child.pid]), usage.cpu_seconds()
    peaks = usage.peak_mb([child.pid]), usage.peak_mb()
    child.communicate()

    assert 0.15 < both - without
    assert peaks[0] < peaks[1]


def test_the_receiver_keeps_what_is_sent_until_it_is_told_not_to(load: Callable[[str], ModuleType]) -> None:
    """
    Requests come back as they were sent, once.
    """
    with load("sink").Sink() as sink:
        for body in (b"one", b""):
            urlopen(Request(f"{sink.address}/v1/traces", body)).read()
        first, second = sink.requests(), sink.requests()
        sink.keep_nothing()
        urlopen(Request(f"{sink.address}/v1/traces", b"two")).read()
        third = sink.requests()

    assert ([b"one", b""], [], []) == (first, second, third)


# The questions, at sizes that take no time.


def test_every_question_is_asked_by_the_one_command() -> None:
    """
    Each file's questions are there, and the goals' numbers are those of the table.
    """
    numbers = answer(
        """
        import json, runpy
        from importlib import import_module
        files = runpy.run_path(sys.path[0] + "/__main__.py", run_name="listed")["FILES"]
        questions = [one for name in files for one in import_module(name).QUESTIONS.values()]
        print(json.dumps(sorted({goal.number for one in questions for goal in one.goals})))
        """
    )

    assert ["1", "10", "11", "12", "13", "1b", "2", "3", "4", "5", "6", "7", "8", "9"] == numbers


@pytest.mark.parametrize("question", ["scalars", "bytes", "size"])
def test_a_question_without_peers_runs(question: str, tmp_path: Path) -> None:
    """
    All cases have the same output.
    """
    found = tmp_path / "found.json"

    done = run(FOLDER, "--only", question, "--rounds", "1", "--seconds", "0.001", "--json", str(found))

    assert (0, "", []) == (done.returncode, done.stderr, json.loads(found.read_text())["failures"])


def test_recorders_are_given_the_same_steps(tmp_path: Path) -> None:
    """
    Lists and arrays, ours and the SDK's: what arrives is the same.
    """
    outputs = answer(
        """
        import functools, hashlib, json
        import recording
        from workload import recorded
        cases = [
            (recording.own, True),
            (functools.partial(recording.sdk, recording.sdk_record), True),
            (functools.partial(recording.sdk, recording.sdk_record_arrays), False),
            (recording.sdk_otlp, True),
        ]
        measured = [recorded(make, lists=lists, block=2, threads=2)(0.0) for make, lists in cases]
        print(json.dumps([[hashlib.sha256(said).hexdigest(), sorted(figures)] for said, figures in measured]))
        """
    )

    assert 4 == len(outputs)
    assert [outputs[0]] * 4 == outputs
    assert ["caller_us", "peak_mb", "total_us", "wall_us"] == outputs[0][1]


def test_readers_give_the_same_answers(tmp_path: Path) -> None:
    """
    Grouping by SQL and by a summary; columns by hand, span by span and episode by episode.
    """
    pytest.importorskip("orjson")
    pytest.importorskip("duckdb")
    outputs = answer(
        """
        import json, os, reading
        from pathlib import Path
        reading.write({Path("native.jsonl"): 1})
        Path("here").mkdir()
        os.chdir("here")
        print(json.dumps([
            [reading.own_groups(), reading.duckdb_groups()],
            [reading.orjson_columns(), reading.read_columns()],
        ]))
        """
    )

    groups, columns = outputs
    assert 8 == len(groups[0])
    assert groups[0] == groups[1]
    assert 64 == columns[0]["steps"]
    assert columns[0] == columns[1]


def test_a_training_loop_is_measured_with_and_without(tmp_path: Path) -> None:
    """
    Everything that was recorded arrived, whichever way.
    """
    figures = answer(
        """
        import json, trainer
        print(json.dumps([trainer.slowed(make)(0.01)[1] for make in (trainer.nothing, trainer.own)]))
        """
    )

    assert [sorted(figures[0])] * 2 == [sorted(one) for one in figures]
    assert all(0 < one["delivered_pct"] for one in figures)


def test_a_burst_is_counted_by_its_receiver(tmp_path: Path) -> None:
    """
    Ours and the SDK's spans are counted alike; so few are lost by nobody.
    """
    lost = answer(
        """
        import json, burst
        burst.EPISODES, burst.SPANS = 4, 36
        print(json.dumps([burst.burst(make)(0.0)[1]["lost_pct"] for make in (burst.own, burst.official)]))
        """
    )

    assert [0.0, 0.0] == lost


def test_a_pole_is_balanced_alike_with_and_without_recording(tmp_path: Path) -> None:
    """
    What was recorded is what was played.
    """
    pytest.importorskip("gymnasium")
    returns = answer(
        """
        import json, cartpole
        print(json.dumps([cartpole.played(options)(0.1)[0].decode() for options in (None, {})]))
        """
    )

    assert returns[0] == returns[1]
    assert 20 < len(json.loads(returns[0]))


def test_calls_are_measured_while_recording_is_off(tmp_path: Path) -> None:
    """
    Nothing is recorded meanwhile, which the measure itself asserts.
    """
    found = answer(
        """
        import json, importing
        importing.CALLS = 10
        print(json.dumps(sorted(importing.calling(importing.disabled)(0.0)[1])))
        """,
        warned="OTEL_SDK_DISABLED",
    )

    assert ["episode_us", "longest_us", "reward_us", "step_us", "tokens_us"] == found
