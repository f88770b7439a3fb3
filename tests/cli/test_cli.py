"""The commands, from their arguments to their exit codes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reading.traces import episode, foreign, run, span_id, trace_id, write, write_bytes
from typer.testing import CliRunner

import mttp
from mttp import cli
from mttp.cli import output
from mttp.cli.app import app
from mttp.semconv import attributes as a

ROOT = Path(__file__).parents[2]


def invoke(*arguments: str) -> Any:
    """The command's result: exit code, standard output, standard error."""
    return CliRunner().invoke(app, list(arguments), prog_name="mttp")


def document(*arguments: str) -> Any:
    """What the command printed, which must be one JSON document and nothing else."""
    result = invoke(*arguments, "--json")

    assert (0, "") == (result.exit_code, result.stderr)
    return json.loads(result.stdout, parse_constant=pytest.fail)


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as people run it."""
    code = "from mttp.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def good() -> str:
    """A file of a run and thirty episodes."""
    spans = [
        *run(),
        *(s for n in range(30) for s in episode(n, return_=n / 10, components={"correct": n / 30})),
    ]
    return str(write("good.jsonl", spans))


@pytest.fixture
def bad(good: str) -> str:
    """The same with a broken line and an unfinished episode."""
    data = Path(good).read_bytes() + b"{broken\n" + write("end.jsonl", episode(40)[:-1]).read_bytes()
    return str(write_bytes("bad.jsonl", data))


# show


def test_show_lists_runs_and_episodes(good: str):
    """
    The first twenty episodes, and how many more there are.
    """
    result = invoke("show", good)
    rows = [line for line in result.stdout.splitlines() if "CartPole-v1" in line]

    assert (0, "", 20) == (result.exit_code, result.stderr, len(rows))
    assert "run-1" in result.stdout
    assert "… and 10 more; --limit 0 shows all" in result.stdout


def test_show_says_that_there_are_no_episodes():
    """
    As in a recording of other people's spans.
    """
    path = write("other.jsonl", [replace(span, name="GET", attributes={}) for span in episode(0)])

    assert "no episodes\n" == invoke("show", str(path)).stdout


def test_show_takes_a_limit_and_an_order(good: str):
    """
    The three best episodes.
    """
    result = invoke("show", good, "--sort", "return", "--reverse", "--limit", "3")
    rows = [line.split()[-4] for line in result.stdout.splitlines() if "CartPole-v1" in line]

    assert ["2.9", "2.8", "2.7"] == rows


def test_show_prints_one_episode(good: str):
    """
    As a tree, named by the beginning of its trace id.
    """
    result = invoke("show", good, "--episode", trace_id(4)[:8])

    assert (0, True, True) == (result.exit_code, trace_id(4) in result.stdout, "step 1" in result.stdout)


def test_show_prints_json(good: str):
    """
    All episodes unless there is a limit.
    """
    found, limited = document("show", good), document("show", good, "--limit", "2")

    keys = {"runs", "groups", "updates", "annotations", "evals", "episodes", "graders", "faults", "problems"}

    assert (keys, 30, 2) == (
        set(found),
        len(found["episodes"]),
        len(limited["episodes"]),
    )
    assert [0.0, 0.1] == [one["return"] for one in limited["episodes"]]


def test_show_prints_one_episode_as_json(good: str):
    """
    With its steps.
    """
    found = document("show", good, "--episode", trace_id(4)[:8])

    assert (trace_id(4), [0, 1]) == (found["trace_id"], [step["index"] for step in found["steps"]])


def test_show_says_what_is_wrong(bad: str):
    """
    Problems are listed after the episodes.
    """
    result = invoke("show", bad)

    assert 0 == result.exit_code
    assert "2 problems\n" in result.stdout
    assert "bad.jsonl:" in result.stdout


# summary


def test_summary_prints_figures(good: str):
    """
    Returns with the means at both ends, graders, and a curve.
    """
    result = invoke("summary", good)

    assert (0, "") == (result.exit_code, result.stderr)
    for words in (
        "30 episodes, 60 steps, 1 run",
        "mean 1.45 (n = 30); first 6: 0.25, last 6: 2.65",
        "correct",
        "▁▁▁▂▂▂▂",
    ):
        assert words in result.stdout


def test_summary_prints_json(good: str):
    """
    The same as a document.
    """
    found = document("summary", good)

    (run,), totals = found["runs"], found["totals"]

    assert (30, 60, "run-1", [good]) == (totals["episodes"], totals["steps"], run["id"], found["sources"])
    assert 1.45 == pytest.approx(totals["return"]["mean"])
    assert totals == {key: run[key] for key in totals}


def test_summary_prints_markdown(good: str):
    """
    For the page of a job: the figures, and a table of the components.
    """
    lines = invoke("summary", good, "--markdown").stdout.splitlines()

    assert "30 episodes, 60 steps, 1 run" == lines[0]
    assert any(line.startswith("- return: **mean 1.45 (n = 30); first 6: ") for line in lines)
    assert "Mean return over time:" in lines
    assert any(" | correct | " in line and line.endswith(" | 30 |") for line in lines)


def test_several_paths_are_one_recording(good: str):
    """
    What a shell makes of a glob is read as one.
    """
    other = str(write("other.jsonl", episode(50)))

    assert 31 == document("summary", good, other)["totals"]["episodes"]


# convert


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_convert_there_and_back_loses_nothing(good: str, name: str):
    """
    Every format holds every span.
    """
    there, back = invoke("convert", good, name), invoke("convert", name, "back.jsonl")

    assert [0, 0] == [there.exit_code, back.exit_code]
    assert "wrote 121 spans to " + name in there.stdout
    assert list(mttp.scan(good, arrays=True)) == list(mttp.scan("back.jsonl", arrays=True))
    assert not list(Path.cwd().glob(".*partial"))


def test_convert_does_not_replace_unless_reported(good: str):
    """
    A file that exists is kept.
    """
    write_bytes("there.jsonl", b"precious")
    refused = invoke("convert", good, "there.jsonl")

    assert (2, "mttp: there.jsonl exists; --overwrite replaces it\n") == (refused.exit_code, refused.stderr)
    assert b"precious" == Path("there.jsonl").read_bytes()
    assert 0 == invoke("convert", good, "there.jsonl", "--overwrite").exit_code
    assert 30 == len(mttp.read("there.jsonl"))


def test_convert_onto_itself_is_safe(good: str):
    """
    OUT appears only once it is whole, so that IN may be OUT.
    """
    before = list(mttp.scan(good, arrays=True))

    assert 0 == invoke("convert", good, good, "--overwrite").exit_code
    assert before == list(mttp.scan(good, arrays=True))


def test_convert_leaves_nothing_behind_when_it_fails():
    """
    Input that can't be read makes no output.
    """
    write_bytes("text.jsonl", b"no\n")
    result = invoke("convert", "text.jsonl", "out.parquet")

    assert (2, False) == (result.exit_code, Path("out.parquet").exists())
    assert ["text.jsonl"] == [path.name for path in Path.cwd().iterdir()]


def test_convert_knows_formats_by_name(good: str):
    """
    A name that says no format is refused.
    """
    result = invoke("convert", good, "out.csv")

    assert (2, True) == (result.exit_code, "out.csv: its name must end in .parquet, .jsonl" in result.stderr)


# check


def flawed(*, reward: float = 1) -> str:
    """A file of an episode whose two steps pay an integer, the first in a way that no enum lists."""
    paid = {a.STEP_REWARD: reward}
    spans = [
        replace(span, attributes={**span.attributes, **paid}) if span.name == "step" else span
        for span in episode(0)
    ]
    path = write("flawed.jsonl", spans)
    path.write_bytes(path.read_bytes().replace(b'"stringValue":"ok"', b'"stringValue":"odd"', 1))
    return str(path)


def test_check_finds_nothing_in_what_is_good(good: str):
    """
    One line, and exit code 0.
    """
    result = invoke("check", good, "--fail-on", "information")

    assert (0, "no findings in 121 spans\n", "") == (result.exit_code, result.stdout, result.stderr)


def test_check_prints_what_it_finds_and_fails():
    """
    A row per finding with its value and place; standard error has the reason of the failure.
    """
    result = invoke("check", flawed())
    (row,) = [line for line in result.stdout.splitlines() if line.startswith("violation")]
    said = "3 findings (2 of level violation, 1 of level information) in 3 spans"

    assert (1, ["violation", "type_mismatch", "step", "2"]) == (result.exit_code, row.split()[:4])
    assert "has type 'int'. Type should be 'double'. It holds 1." in row
    assert trace_id(0)[:8] in row.split()
    assert f"mttp: {said}\n" == result.stderr


@pytest.mark.parametrize(
    ("level", "expected"), [("violation", 0), ("improvement", 0), ("information", 1), ("none", 0)]
)
def test_check_fails_from_a_level_on(level: str, expected: int):
    """
    A value that no enum lists is information.
    """
    assert expected == invoke("check", flawed(reward=1.0), "--fail-on", level).exit_code


@pytest.mark.parametrize(("level", "expected"), [("violation", 1), ("none", 0)])
def test_check_fails_where_there_is_nothing_to_check(level: str, expected: int):
    """
    A gate that looked at nothing has not let anything through.
    """
    write("others.jsonl", [foreign(1), foreign(2)])

    result = invoke("check", "others.jsonl", "--fail-on", level)

    assert expected == result.exit_code
    assert ("no mttp spans; 2 spans of other libraries" in result.stderr) is bool(expected)


def test_check_prints_json(good: str):
    """
    The whole result, by the names that Python has for it.
    """
    fine, found = document("check", good), json.loads(invoke("check", flawed(), "--json").stdout)
    keys = {"findings", "levels", "ids", "unlisted", "omissions", "spans", "foreign", "problems", "sources"}
    first = {"trace_id": trace_id(0), "span_id": span_id(0, 1), "value": "1"}

    assert (keys, []) == (set(fine), fine["findings"])
    assert {"type_mismatch": 2, "undefined_enum_variant": 1} == found["ids"]
    assert first == found["findings"][0]["examples"][0]


def test_check_prints_markdown():
    """
    A table for the summary of a job.
    """
    shown = invoke("check", flawed(), "--markdown", "--fail-on", "none").stdout.splitlines()

    assert "**3 findings (2 of level violation, 1 of level information) in 3 spans**" == shown[0]
    assert "| level | finding | on | count | first in | message |" == shown[2]
    assert [8, 8] == [len(row.split("|")) for row in shown[4:]]


def test_check_shows_what_the_file_has_wrong(bad: str):
    """
    Beside what it finds.
    """
    assert "1 problem\n  bad.jsonl:2: not JSON" in invoke("check", bad).stdout


# What all share.


@pytest.mark.parametrize("command", ["show", "summary", "check", "convert"])
def test_strict_exits_with_one_where_there_are_problems(command: str, good: str, bad: str):
    """
    The output is the same; the exit code tells.
    """
    out = ["out.jsonl", "--overwrite"] if command == "convert" else []
    none = ["--fail-on", "none"] if command == "check" else []
    loose, strict, fine = (
        invoke(command, *arguments)
        for arguments in ([bad, *out, *none], [bad, *out, *none, "--strict"], [good, *out, "--strict"])
    )

    assert [0, 1, 0] == [result.exit_code for result in (loose, strict, fine)]
    assert loose.stdout == strict.stdout
    assert "mttp: the recording has problems, first: bad.jsonl:" in strict.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "none.jsonl"], "mttp: none.jsonl does not exist"),
        (["summary", "none/*.jsonl"], "mttp: no file matches none/*.jsonl"),
        (["show", "text.txt"], "mttp: text.txt: this is not a recording"),
        (["summary", "."], "mttp: . has no recordings"),
        (["show", "good.jsonl", "--episode", "zz"], "mttp: no episode's trace id begins with 'zz'"),
        (["show", "good.jsonl", "--episode", "0000"], "mttp: 30 episodes' trace ids begin with '0000'"),
        (["convert", "good.jsonl", "no/where/out.jsonl"], "No such file or directory"),
    ],
)
def test_an_error_is_one_sentence(arguments: list[str], words: str, good: str):
    """
    On standard error, without a traceback, and with exit code 2.
    """
    write_bytes("text.txt", b"hello\n")
    if arguments == ["summary", "."]:
        Path("text.txt").unlink()
        Path(good).unlink()
    result = invoke(*arguments)

    assert (2, "") == (result.exit_code, result.stdout)
    assert words in result.stderr
    assert 1 == len(result.stderr.splitlines())


@pytest.mark.parametrize(
    "arguments", [[], ["show"], ["show", "a", "--sort", "size"], ["dance"], ["convert", "a"]]
)
def test_wrong_usage_exits_with_two(arguments: list[str]):
    """
    The command says how it is used.
    """
    result = invoke(*arguments)

    assert (2, True) == (result.exit_code, "Usage: mttp" in result.output)


def test_version_is_reported():
    """
    Of the package.
    """
    result = invoke("--version")

    assert (0, f"mttp {mttp.__version__}\n") == (result.exit_code, result.stdout)


# In a process of its own.


def test_the_process_exits_as_promised(good: str, bad: str):
    """
    0 for fine, 1 for problems under --strict, 2 for what can't be read.
    """
    done = [process("summary", good), process("summary", bad, "--strict"), process("summary", "none.jsonl")]

    assert [0, 1, 2] == [one.returncode for one in done]
    assert [
        "",
        True,
        "mttp: none.jsonl does not exist; give a recording, a glob or a directory of recordings\n",
    ] == [
        done[0].stderr,
        done[1].stderr.startswith("mttp: the recording has problems"),
        done[2].stderr,
    ]


@pytest.mark.parametrize(
    "environment", [{}, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, {"PYTHONIOENCODING": "ascii"}]
)
def test_no_colour_where_none_is_wanted(good: str, environment: dict[str, str]):
    """
    A pipe gets plain text, NO_COLOR wins, and a terminal that only knows ASCII gets question marks.
    """
    done = process("summary", good, **environment)

    assert (0, False) == (done.returncode, "\x1b[3" in done.stdout)


def test_a_reader_that_goes_away_is_no_traceback(good: str):
    """
    `mttp show … | head -1` ends quietly.
    """
    code = "from mttp.cli import main; main()"
    shown = f"{sys.executable} -c '{code}' show {good} --limit 0 --json | head -c 1"
    done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, check=False)

    assert ("{", False) == (done.stdout, "Traceback" in done.stderr)


def test_without_typer_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """
    One line says what to install.
    """
    monkeypatch.delitem(sys.modules, "mttp.cli.app")
    monkeypatch.setitem(sys.modules, "typer", None)

    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert (2, "mttp: the command line needs typer and rich: pip install 'mttp[cli]'\n") == (
        caught.value.code,
        capsys.readouterr().err,
    )


@pytest.mark.parametrize(
    ("arguments", "labels"),
    [
        (["show", "\x1b[31m.jsonl"], ""),
        (["show", "good.jsonl", "--where", "\x1b[31m=1"], ""),
        (["annotate", "good.jsonl", "--from", "labels.csv"], "trace_id,score\n\x1b[31mred,1\n"),
        (["message", "check", "labels.csv"], "\x1b[31mred\n"),
    ],
)
def test_no_message_acts_on_the_terminal(good: str, arguments: list[str], labels: str):
    """
    What is quoted of the input has its control characters spelled out.
    """
    Path("labels.csv").write_text(labels)
    result = invoke(*arguments)

    assert (True, False) == (result.exit_code > 0, "\x1b[31m" in result.output)


def test_a_document_has_no_character_that_acts(good: str):
    """
    JSON escapes what a terminal takes for a control code, and reads back the same.
    """
    text = "\x9b31m\u202e\x7fred\ud800"
    with mttp.configure("file://evil.jsonl"), mttp.episode(task=text):
        pass
    printed = invoke("show", "evil.jsonl", "--json").stdout
    read = mttp.read("evil.jsonl").episodes[0].task

    assert set() == set(printed) & set("\x9b\u202e\x7f")
    assert read == json.loads(printed)["episodes"][0]["task"]


def test_a_terminal_sees_that_a_trace_store_is_asked(monkeypatch: pytest.MonkeyPatch, capfd: Any):
    """
    How much it will answer is not known.
    """
    monkeypatch.setenv("FORCE_COLOR", "1")
    with output.progress(["tempo://127.0.0.1:1?run=x"]) as advance:
        assert advance is None

    assert "reading" in capfd.readouterr().err


def test_a_terminal_sees_progress_while_much_is_read(good: str, monkeypatch: pytest.MonkeyPatch):
    """
    A bar on standard error, for large recordings and on terminals only.
    """
    assert [None] * 2 == [_bar(good), _bar(good, FORCE_COLOR="1", patch=monkeypatch)]
    monkeypatch.setattr(output, "_LARGE", 0)
    assert callable(_bar(good, FORCE_COLOR="1", patch=monkeypatch))


def _bar(path: str, *, patch: pytest.MonkeyPatch | None = None, **environment: str) -> Any:
    """What reading is to report its progress to."""
    for name, value in environment.items():
        assert patch is not None
        patch.setenv(name, value)
    with output.progress([path]) as advance:
        if advance is not None:
            advance(10)
        return advance


def test_an_invalid_step_reward_fails_a_summary():
    """
    A step reward that is NaN has no grader; `summary` and `show` count it, and `--fail-on gradings` fails.
    """
    with mttp.configure(transport="file://steps.jsonl"), mttp.episode() as opened, opened.step() as step:
        step.reward(math.nan)
    summary = invoke("summary", "steps.jsonl", "--fail-on", "gradings")

    assert 1 == summary.exit_code
    assert "failed gradings  1 (invalid step rewards 1)" in summary.stdout
    assert "\ninvalid step rewards: 1\n" in invoke("show", "steps.jsonl").stdout


def test_failed_gradings_fail_a_strict_summary_and_a_check():
    """
    A total beside a component in error is shown by both; `--fail-on` chooses what fails the command.
    """
    with mttp.configure(transport="file://graded.jsonl"), mttp.episode() as opened:
        opened.reward(5.0, components={"x": 1.0, "y": math.nan}, weights={"x": 1, "y": 1}, grader="hand")
    commands = {
        ("summary",): 0,
        ("summary", "--strict"): 1,
        ("summary", "--fail-on", "gradings"): 1,
        ("summary", "--fail-on", "problems"): 0,
        ("summary", "--fail-on", "faults,problems"): 1,
        ("summary", "--fail-on", "none,faults"): 2,
        ("summary", "--fail-on", "violation"): 2,
        ("check",): 1,
        ("check", "--fail-on", "violation"): 0,
        ("check", "--fail-on", "violation,gradings"): 1,
        ("check", "--fail-on", "none"): 0,
    }
    results = {words: invoke(words[0], "graded.jsonl", *words[1:]) for words in commands}

    assert commands == {words: result.exit_code for words, result in results.items()}
    assert "mttp: 2 gradings failed\nmttp: 1 fault recorded\n" == results["summary", "--strict"].stderr
    assert "failed gradings  2 (invalid 1, partial 1)" in results["summary",].stdout
    assert "The total of 'hand' includes a component that failed." in results["check",].stdout


def test_what_is_piped_has_no_blanks_at_the_ends_of_lines(good: str):
    """
    Tables are padded on a terminal alone.
    """
    for arguments in (["summary", good], ["show", good], ["check", good]):
        printed = invoke(*arguments).stdout.splitlines()

        assert printed
        assert [] == [line for line in printed if line != line.rstrip(" ")]
