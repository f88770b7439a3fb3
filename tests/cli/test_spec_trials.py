"""`mttp spec test` and `mttp spec mutate`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app

SPECS = Path(__file__).parents[2] / "examples" / "specs"
GRADERS = """
def it(text):
    if text == "boom":
        raise ValueError("\\x00 <&> no")
    return float(text)
"""
WEAK = """
mttp: reward-spec/1
name: weak
version: 0.1.0
inputs: {text: string}
components: [{name: it, kind: rubric, use: "graders:it", range: [0, 1]}]
combine: weighted_sum
cases:
  - {name: fine, kind: valid, input: {text: "1"}, human: 5}
  - {name: half, kind: near-miss, input: {text: "0.5"}, human: 3}
"""


def run(*args: object) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["spec", *map(str, args)])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def weak(tmp_path: Path) -> Path:
    """A spec whose cases expect next to nothing."""
    (tmp_path / "graders.py").write_text(GRADERS)
    file = tmp_path / "weak.yaml"
    file.write_text(WEAK)
    return file


def failing(weak: Path) -> Path:
    """The same with a case that is not as expected, and one that raises."""
    weak.write_text(
        f"{WEAK}  - {{name: boom, kind: violation, input: {{text: boom}}}}\n"
        "  - {name: more, kind: valid, input: {text: '0.25'}, expect: {value: 0.5}}\n"
        "  - {better: half, than: fine}\n"
    )
    return weak


@pytest.mark.parametrize("name", ["gsm8k", "spreadsheet", "taste"])
def test_the_examples_pass(name):
    """
    All cases pass, and all faults are detected.
    """
    tested, mutated = run("test", SPECS / f"{name}.yaml"), run("mutate", SPECS / f"{name}.yaml", "--strict")

    assert (0, 0) == (tested[0], mutated[0])
    assert "all passed" in tested[1]
    assert "faults detected" in mutated[1]


def test_a_case_that_fails_is_1(weak):
    """
    The report says which, and why; control characters of a grader have no effect.
    """
    code, printed, _ = run("test", failing(weak))

    assert 1 == code
    assert "4 cases and 1 order; 3 failed" in printed
    assert "value is 0.25, expected 0.5" in printed
    assert r"status is error, expected ok: it: ValueError: \x00 <&> no" in printed
    assert "half over fine: the margin is -0.5, expected more than 0" in printed


def test_bad_input_is_3(tmp_path, weak):
    """
    A spec that can't be read, and people's scores that are none.
    """
    table = tmp_path / "people.csv"
    assert (3, "", "mttp: /dev/zero: it is a device, not a regular file\n") == run(
        "test", weak, "--human", "/dev/zero"
    )
    table.write_text("case,human\nfine,five\n")

    assert 3 == run("test", tmp_path / "none.yaml")[0]
    assert 3 == run("mutate", tmp_path / "none.yaml")[0]
    code, _, said = run("test", weak, "--human", table)
    assert (3, f"mttp: {table}:2: human is 'five', expected a number\n") == (code, said)
    table.write_text("name,score\n")
    assert (
        f"mttp: {table}:1: it has no column case and no column human\n"
        == run("test", weak, "--human", table)[2]
    )


def test_wrong_usage_is_2(weak):
    """
    As everywhere.
    """
    assert 2 == run("test", weak, "--repeats", 0)[0]


def test_json_is_one_document(weak):
    """
    Cases, components, coverage, agreement, and what failed.
    """
    code, printed, _ = run("test", failing(weak), "--json", "--repeats", 2)
    found = json.loads(printed)

    assert (1, False, 3) == (code, found["passed"], len(found["failed"]))
    assert ["fine", "half", "boom", "more"] == [one["name"] for one in found["cases"]]
    assert ([1.0, 1.0], 1.0, True) == tuple(found["cases"][0][name] for name in ("values", "value", "passed"))
    assert ("it", 1.0) == tuple(found["cases"][0]["components"][0][name] for name in ("name", "value"))
    assert {"cases": 2, "tau_b": 1.0, "accuracy": 1.0, "pairs": 1, "agreed": 1} == found["agreement"]
    assert [("it", [0.25, 0.5, 1.0], None)] == [
        (one["name"], one["values"], one["gap"]) for one in found["coverage"]
    ]


def test_people_come_from_a_table(tmp_path, weak):
    """
    Their scores go before those in the cases.
    """
    table = tmp_path / "people.csv"
    table.write_text("case,human,note\nfine,1,\nhalf,2,odd\n")
    _, printed, _ = run("test", weak, "--human", table)

    assert "human scores agree on 0 % of 1 pair that they rank; Kendall's tau-b -1, 2 cases" in printed


def test_junit_is_well_formed(tmp_path, weak):
    """
    A test per case and per order, a failure where one was not as expected, and no character that XML has not.
    """
    report = tmp_path / "report.xml"
    run("test", failing(weak), "--junit", report)
    suite = ElementTree.parse(report).getroot()

    assert ("weak 0.1.0", "5", "3", "0") == tuple(
        suite.get(name) for name in ("name", "tests", "failures", "errors")
    )
    assert ["fine", "half", "boom", "more", "half over fine"] == [
        one.get("name") for one in suite.iter("testcase")
    ]
    assert r"status is error, expected ok: it: ValueError: \x00 <&> no" == next(suite.iter("failure")).get(
        "message"
    )


def test_survivors_are_listed(weak):
    """
    Faults that no case notices are 1 under `--strict` only.
    """
    code, printed, _ = run("mutate", weak)
    found = json.loads(run("mutate", weak, "--json")[1])

    assert 0 == code
    assert "weak 0.1.0: 0 of 4 faults detected" in printed
    assert "it is inverted" in printed
    assert (4, 0, 4) == (found["mutants"], found["caught"], len(found["survivors"]))
    assert 1 == run("mutate", weak, "--strict")[0]


def test_cases_that_fail_are_not_mutated(weak):
    """
    That is 1: there is nothing to be learned from the faults.
    """
    code, printed, _ = run("mutate", failing(weak))

    assert 1 == code
    assert "no fault was tried, because cases fail without one" in printed


def test_what_differs_is_printed(tmp_path, weak):
    """
    A judge that says something else each time is seen in the table, and named below it.
    """
    (tmp_path / "graders.py").write_text(
        "import itertools\nturn = itertools.cycle([0, 1, 1])\ndef it(text):\n    return next(turn)\n"
    )
    _, printed, _ = run("test", weak, "--repeats", 3)

    assert "0 to 1" in printed
    assert "it scored the same input 0 and 1" in printed


def test_code_elsewhere_needs_trust(weak):
    """
    What a spec may not call it may not test either.
    """
    weak.write_text(WEAK.replace("graders:it", "math:fabs").replace("text: string", "x: any"))

    assert 3 == run("test", weak)[0]


def test_the_contract_runs_from_anywhere(tmp_path):
    """
    What the documentation shows does not hang on where it is run.
    """
    program = f"""
import mttp
spec = mttp.RewardSpec.load({str(SPECS / "gsm8k.yaml")!r})
print(spec.score(completion="8", answer="8").value)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)

    assert "0.7\n" == done.stdout


UNSTABLE = """
import itertools

COUNT = itertools.count()


def it(text):
    return float(next(COUNT) % 2 if text == "1" else 0.5)
"""


def test_instability_is_a_rate_with_an_interval(weak):
    """
    Above --max-unstable the exit code is 1, with the reason.
    """
    (weak.parent / "graders.py").write_text(UNSTABLE)
    code, text, _ = run("test", weak, "--repeats", 2)
    allowed, said, _ = run("test", weak, "--repeats", 2, "--max-unstable", 0.5, "--json")
    refused, _, why = run("test", weak, "--repeats", 2, "--max-unstable", 0.49)

    assert (0, 0, 1) == (code, allowed, refused)
    assert "unstable: 1 of 2 cases, scored 2 times each: 50.0 %, 9.5 to 90.5 % (Wilson, 95 %)" in text
    assert "unstable: 0.5 is above --max-unstable 0.49" in why
    found = json.loads(said)["instability"]
    assert (2, 1, 2, 0.5, "Wilson, 95 %") == tuple(
        found[key] for key in ("samples", "unstable", "repeats", "rate", "interval_method")
    )
    assert [0.0945, 0.9055] == [round(bound, 4) for bound in found["interval"]]


def test_what_is_stable_says_so(weak):
    """
    A rate of 0 has an interval, too; without repeats there is none.
    """
    code, text, _ = run("test", weak, "--repeats", 3, "--max-unstable", 0)

    assert (0, True) == (code, "unstable: 0 of 2 cases, scored 3 times each: 0.0 %, 0.0 to 65.8 %" in text)
    assert json.loads(run("test", weak, "--json")[1])["instability"] is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--max-unstable", "0.1"], "needs --repeats 2 or more"),
        (["--repeats", "2", "--max-unstable", "2"], "less than or equal to 1"),
        (["--on", "runs", "--junit", "report.xml"], "which need cases"),
    ],
)
def test_options_that_go_together_badly_are_refused(weak, options, words):
    """
    Before anything is scored.
    """
    code, _, why = run("test", weak, *options)

    assert (2, True) == (code, words in why)


def recorded(*texts):
    """A run whose episodes people said something of."""
    with mttp.configure(transport="file://run.jsonl"):
        for text in texts:
            with mttp.episode(inputs={"text": text}) as episode:
                pass
            mttp.score(episode, 5.0 if text == "1" else 2.0, grader="ada", grader_kind="human")
            mttp.annotate(episode, "label", "good", by="bob")
    return Path("run.jsonl")


def test_a_spec_is_held_against_a_recording(weak):
    """
    With the number of scores, the rewards, and the agreement of each rater.
    """
    run_ = recorded("1", "0.5", "0.25")
    code, text, _ = run("test", weak, "--on", run_, "--repeats", 2, "--max-unstable", 0)
    found = json.loads(run("test", weak, "--on", run_, "--json")[1])

    assert 0 == code
    assert "weak 0.1.0: 3 episodes scored" in text
    assert "mean reward 0.5833, of 3 of 3" in text
    assert "unstable: 0 of 3 episodes, scored 2 times" in text
    assert "ada" in text
    assert "score to reward" in text
    assert max(map(len, text.splitlines())) <= 200
    assert [("ada", "score", 3, 0), ("bob", "label", 3, 0)] == sorted(
        (one["by"], one["key"], one["episodes"], one["left_out"]) for one in found["agreements"]
    )
    assert [1.0, 0.5, 0.25] == [one["values"][0] for one in found["scored"]]


def test_an_episode_that_cannot_be_scored_fails(weak):
    """
    As does a recording of which none can.
    """
    code, text, _ = run("test", weak, "--on", recorded("1", "boom"))
    with mttp.configure(transport="file://bare.jsonl"), mttp.episode():
        pass
    none, said, _ = run("test", weak, "--on", "bare.jsonl")

    assert (1, 1) == (code, none)
    assert "not ok: error 1" in text
    assert "1  it: ValueError" in text
    assert "1  did not record text" in said


def test_a_closed_pipe_leaves_the_exit_code(weak: Path) -> None:
    """
    The cases that are not as expected fail the command, also where nobody reads which ones.
    """
    command = f"{sys.executable} -m mttp spec test {failing(weak)}"
    for redirected in ("", "2>&1"):
        script = f"{command} {redirected} | true; echo ${{PIPESTATUS[0]}}"
        cut = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)

        assert "1" == cut.stdout.strip()
