"""The commands about reward specs, from their arguments to their exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from rewards.specimens import GRADERS, HELPERS, changed, write
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app

FILE = "specs/gsm8k.yaml"


def invoke(*arguments: str, code: int = 0) -> Any:
    """The result of `mttp spec …`, which must end with this exit code."""
    result = CliRunner().invoke(app, ["spec", *arguments])
    assert code == result.exit_code, result.output
    return result


def document(*arguments: str, code: int = 0) -> Any:
    """What it prints with --json."""
    return json.loads(invoke(*arguments, "--json", code=code).stdout)


@pytest.fixture(autouse=True)
def specimen():
    """A spec with its graders."""
    write()


def test_a_good_spec_is_checked():
    """
    Nothing is wrong with it.
    """
    assert "gsm8k 1.2.0: 0 errors, 0 warnings\n" == invoke("check", FILE).stdout


def test_warnings_fail_only_when_asked():
    """
    Each is a line with file, line, rule, reason and fix.
    """
    write(spec=changed("kind: exploit", "kind: unusual"))
    printed = invoke("check", FILE).stdout.splitlines()

    assert printed[0].startswith("specs/gsm8k.yaml:11:1: warning: no-exploit: no case has the kind exploit")
    assert "gsm8k 1.2.0: 0 errors, 1 warning" == printed[1]
    invoke("check", FILE, "--strict", code=1)


def test_errors_fail():
    """
    With 1.
    """
    write(spec=changed("combine: weighted_sum", "combine: weighted_sum\nfloor: 0.5"))
    found = document("check", FILE, code=1)

    assert (1, 0, ["high-floor"]) == (
        found["errors"],
        found["warnings"],
        [one["rule"] for one in found["findings"]],
    )
    assert ("gsm8k", 11) == (found["spec"]["name"], found["findings"][0]["line"])


@pytest.mark.parametrize("command", ["check", "show", "lock"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "not valid YAML"),
        (changed("kind: check", "kind: chek"), "gsm8k.yaml:9:33: unknown kind 'chek'; did you mean 'check'?"),
        (changed("combine:", "combin:"), "gsm8k.yaml:10:1: unknown key 'combin'; did you mean 'combine'?"),
    ],
    ids=["no yaml", "unknown kind", "unknown key"],
)
def test_what_can_not_be_used_ends_with_three(command, text, words):
    """
    Its fault on standard error, with file and line.
    """
    write(spec=text)
    result = invoke(command, FILE, code=3)

    assert ("", True) == (result.stdout, words in result.stderr)


def test_code_that_can_not_be_called_ends_with_three():
    """
    Unless it need not be imported.
    """
    write(graders="import nowhere_to_be_found\n" + GRADERS)

    assert "gsm8k.yaml:6:39: importing graders needs nowhere" in invoke("check", FILE, code=3).stderr
    assert 1 == document("check", FILE, "--no-import")["warnings"]


def test_foreign_code_needs_trust():
    """
    And the option that gives it.
    """
    write(
        spec=changed(
            "graders:language_reward",
            "textwrap:dedent",
            changed("answer: string}", "answer: string, text: string}"),
        )
    )

    assert "--trust" in invoke("check", FILE, code=3).stderr
    assert {"impossible-case"} == {
        one["rule"] for one in document("check", FILE, "--trust", code=1)["findings"]
    }


SHELL = """\
mttp: reward-spec/1
name: shell
version: 1.0.0
inputs: {astr: string, dict: object}
distributions: [numpy]
components:
  - {name: run, kind: rubric, use: "numpy.testing._private.utils:runstring", range: [0, 1]}
cases:
  - {name: it, kind: valid, input: {astr: "__import__('os').system('touch ran')", dict: {}}}
"""


@pytest.mark.parametrize(
    "command",
    [["check"], ["test"], ["mutate"], ["diff", "lone.yaml", "--on", "runs"]],
    ids=lambda one: one[0],
)
def test_a_lone_file_runs_nothing(command):
    """
    A spec that says itself which distribution it needs does not get to call it.
    """
    Path("lone.yaml").write_text(SHELL)
    with mttp.configure("file://runs/a.jsonl"), mttp.episode(inputs={"astr": "open('ran', 'w')", "dict": {}}):
        pass

    said = invoke(*command, "lone.yaml", code=3).stderr

    assert "lone.yaml:7:36: the module numpy.testing._private.utils is not trusted" in said
    assert "--trust-module numpy.testing._private.utils" in said
    assert not Path("ran").exists()


@pytest.mark.parametrize("command", [["show"], ["lock"], ["diff", "lone.yaml"], ["check", "--no-import"]])
def test_what_imports_nothing_needs_no_trust(command):
    """
    A spec can be looked at before it is trusted.
    """
    Path("lone.yaml").write_text(SHELL)

    result = CliRunner().invoke(app, ["spec", *command, "lone.yaml"])

    assert "is not trusted" not in result.output
    assert result.exit_code in (0, 1)


def test_a_module_may_be_trusted_by_its_name(monkeypatch):
    """
    By the option, which may be repeated, or by the variable.
    """
    text = changed(
        "graders:language_reward", "statistics:mean", changed("answer: string}", "answer: string, data: any}")
    )
    write(
        spec=text.replace("graders:format_reward", "textwrap:dedent").replace(
            "data: any", "data: any, text: any"
        )
    )
    options = ("--trust-module", "statistics", "--trust-module", "textwrap")

    assert "textwrap is not trusted" in invoke("check", FILE, *options[:2], code=3).stderr
    assert {"impossible-case"} == {
        one["rule"] for one in document("check", FILE, *options, code=1)["findings"]
    }
    monkeypatch.setenv("MTTP_TRUST", "statistics,textwrap")
    assert {"impossible-case"} == {one["rule"] for one in document("check", FILE, code=1)["findings"]}


@pytest.mark.parametrize(
    ("file", "kind"), [("/dev/zero", "a device"), ("pipe", "a pipe"), ("specs", "a directory")]
)
@pytest.mark.parametrize("command", ["check", "show", "lock", "test", "mutate"])
def test_a_spec_is_a_regular_file(command, file, kind):
    """
    Anything else is named with its kind.
    """
    os.mkfifo("pipe")

    assert (
        f"mttp: {file}: can't read the file: it is {kind}, not a regular file\n"
        == invoke(command, file, code=3).stderr
    )


def test_a_lock_is_a_regular_file():
    """
    It lies beside the spec, and comes along with it.
    """
    os.mkfifo(f"{FILE}.lock")

    assert "gsm8k.yaml.lock: can't read the lock: it is a pipe" in invoke("show", FILE, code=3).stderr


@pytest.mark.parametrize("command", ["check", "show", "lock", "diff"])
def test_wrong_usage_ends_with_two(command):
    """
    As of every command.
    """
    invoke(command, FILE, FILE, FILE, code=2)


def test_a_missing_file_ends_with_three():
    """
    Of either spec of a comparison, too.
    """
    assert "nowhere.yaml: can't read the file" in invoke("diff", FILE, "nowhere.yaml", code=3).stderr
    assert "nowhere" in invoke("diff", FILE, FILE, "--on", "nowhere.jsonl", code=3).stderr


def test_a_spec_is_shown():
    """
    With shares, digests and gates.
    """
    spec = mttp.RewardSpec.load(FILE)
    printed = invoke("show", FILE).stdout

    for words in (spec.sha256, spec.code_sha256, "50.0%", "0 to 1", "graders:math_reward"):
        assert words in printed


def test_a_spec_is_shown_as_json_with_what_it_includes():
    """
    Shares are of the whole reward; gates are marked.
    """
    include = changed("combine:", "include: [{spec: inner.yaml, as: inner, weight: 1}]\ncombine:")
    write(spec=include)
    Path("specs/inner.yaml").write_text(changed("name: gsm8k", "name: inner"))
    found = document("show", FILE)
    parts = {one["name"]: one for one in found["components"]}

    assert (0.25, 0.5, 0.25) == (
        parts["math"]["share"],
        parts["inner"]["share"],
        parts["inner"]["include"]["components"][0]["share"],
    )
    assert [False, True] == [parts[name]["gates"] for name in ("math", "no-tool-abuse")]


def test_a_spec_is_locked():
    """
    What changes under its version is an error from then on.
    """
    invoke("lock", FILE, "--check", code=1)
    assert "wrote specs/gsm8k.yaml.lock\n" == invoke("lock", FILE).stdout
    invoke("lock", FILE, "--check")
    write(helpers=changed("SCALE = 1.0", "SCALE = 2.0", HELPERS))

    assert "differs from that in its lock" in invoke("lock", FILE, "--check", code=1).stdout
    assert ["changed-unversioned"] == [one["rule"] for one in document("check", FILE, code=1)["findings"]]


def test_two_specs_are_compared():
    """
    1 where the version is not raised as far as the changes deserve.
    """
    write("next", spec=changed("weight: 0.5", "weight: 0.6", changed("1.2.0", "1.3.0")))
    write("major", spec=changed("weight: 0.5", "weight: 0.6", changed("1.2.0", "2.0.0")))
    found = document("diff", FILE, "next/gsm8k.yaml", code=1)

    assert ("major", "minor") == (found["deserved"], found["stated"])
    assert ["range", "components.math.weight"] == [one["what"] for one in found["differences"]]
    assert "the version is a new major version" in invoke("diff", FILE, "major/gsm8k.yaml").stdout
    assert "nothing changed" in invoke("diff", FILE, FILE).stdout


def test_two_specs_are_compared_on_a_recording():
    """
    Which rewards change, by slice, and which verdicts flip.
    """
    spec = mttp.RewardSpec.load(FILE)
    with mttp.configure(transport="file://run.jsonl"):
        for answer in ("<think></think><answer>8</answer>", "8"):
            inputs = {"completion": answer, "answer": "8"}
            with mttp.episode(inputs=inputs, slices=["sums"], task=answer) as episode:
                episode.reward(spec.score(inputs))
    write("next", spec=changed("weight: 0.3", "weight: 0.1", changed("1.2.0", "2.0.0")))
    arguments = ("diff", FILE, "next/gsm8k.yaml", "--on", "run.jsonl")
    found = document(*arguments)["rescored"]
    printed = invoke(*arguments).stdout

    assert (2, 1, 0) == tuple(found["all"][name] for name in ("episodes", "changed", "flipped"))
    assert (["sums"], 2, 1) == (
        [one["name"] for one in found["slices"]],
        found["reproduced"],
        len(found["episodes"]),
    )
    assert "tau-b" in printed
    assert ("invalid by" in printed, {}) == (False, found["reasons_after"])


def test_a_comparison_says_why_samples_are_invalid():
    """
    For each spec, with the reason and the number of episodes; what raised can't act on the terminal.
    """
    write()
    with mttp.configure(transport="file://run.jsonl"):
        for _ in range(2):
            with mttp.episode(inputs={"completion": "8", "answer": "8"}):
                pass
    raises = GRADERS.replace("return 1.0\n", 'raise ValueError("\\x1b[31mred")\n')
    write("next", graders=raises)
    arguments = ("diff", FILE, "next/gsm8k.yaml", "--on", "run.jsonl")
    printed = invoke(*arguments, code=1).stdout

    assert "Invalid by B\nepisodes  reason\n       2  language: ValueError: \\x1b[31mred" in printed
    assert "invalid by A" not in printed
    found = json.loads(invoke(*arguments, "--json", code=1).stdout)["rescored"]
    assert ({}, {"language: ValueError: \x1b[31mred": 2}) == (found["reasons_before"], found["reasons_after"])
