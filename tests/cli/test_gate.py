"""`mttp gate`: output, files and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import mttp

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that solves half of its tasks, in the working directory."""
    monkeypatch.chdir(tmp_path)
    with mttp.configure("file://new.jsonl", run_id="new"):
        for task in range(100):
            with mttp.episode(env="maths", task=f"t{task}") as episode:
                episode.reward(float(task % 2))
                episode.end(outcome="success" if task % 2 else "failure")


def rules(limit: float) -> str:
    """The file of a rule: at least this share of successes."""
    Path("rules.yaml").write_text(f"aggregate:\n  - metric: success\n    min: {limit}\n")
    return "rules.yaml"


def run(*arguments: str, width: int | None = None, **env: str) -> tuple[int, str, str]:
    environment = {**os.environ, **({"COLUMNS": str(width)} if width else {}), **env}
    command = [sys.executable, "-m", "mttp", "gate", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("limit", "options", "code", "verdict"),
    [
        (0.3, (), 0, "promote"),
        (0.3, ("--strict",), 0, "promote"),
        (0.5, (), 2, "inconclusive"),
        (0.5, ("--strict",), 2, "inconclusive"),
        (0.5, ("--lenient",), 0, "inconclusive"),
        (0.9, (), 1, "reject"),
        (0.9, ("--strict",), 1, "reject"),
    ],
)
def test_exit_codes(limit: float, options: tuple[str, ...], code: int, verdict: str) -> None:
    """
    The verdict is printed in each case, what speaks against promotion also on standard error.
    """
    found, out, error = run("new.jsonl", "--rules", rules(limit), *options)

    assert code == found
    assert f"\n{verdict}: " in out
    assert ("" if verdict == "promote" else f"{verdict}: aggregate success min") in error
    assert ("warning: " in error) == ("--lenient" in options)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--nonsense",),
        (),
        ("missing.jsonl", "--rules", "rules.yaml"),
        ("new.jsonl", "--rules", "missing.yaml"),
        ("new.jsonl", "--rules", "wrong.yaml"),
        ("new.jsonl", "--rules", "needs.yaml"),
        ("empty.jsonl", "--rules", "rules.yaml"),
    ],
)
def test_bad_input_is_no_verdict(arguments: tuple[str, ...]) -> None:
    """
    It exits with 3, so that it can't be taken for one.
    """
    rules(0.3)
    Path("empty.jsonl").write_text("")
    Path("wrong.yaml").write_text("aggregat: []\n")
    Path("needs.yaml").write_text("aggregate:\n  - {metric: success, gain: 0}\n")

    code, out, error = run(*arguments)

    assert (3, "") == (code, out)
    assert error


@pytest.mark.parametrize("redirected", ["", "2>&1"])
def test_a_closed_pipe_leaves_the_exit_code(redirected: str) -> None:
    """
    Whatever a reader leaves unread, of either stream, each time.
    """
    command = f"{sys.executable} -m mttp gate new.jsonl --rules"
    for limit, code in ((0.9, "1"), (0.5, "2")):
        script = f"{command} {rules(limit)} {redirected} | true; echo ${{PIPESTATUS[0]}}"
        codes = [
            subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.strip()
            for _ in range(2)
        ]
        assert [code] * 2 == codes


@pytest.mark.parametrize(
    "command",
    [
        "compare new.jsonl other.jsonl --strict",
        "check broken.jsonl",
        "diagnose hacked.jsonl --fail-on low",
        "summary broken.jsonl --strict",
    ],
)
def test_other_commands_keep_theirs(command: str) -> None:
    """
    What `head` does not read decides nothing.
    """
    Path("broken.jsonl").write_text(Path("new.jsonl").read_text() + "{\n")
    with mttp.configure("file://other.jsonl", run_id="other", kind="eval"):
        for task in range(100):
            with mttp.episode(env="maths", task=f"t{task}") as episode:
                episode.reward(0.0)
    with mttp.configure("file://hacked.jsonl", run_id="hacked"):
        for number in range(200):
            with mttp.episode(env="maths") as episode:
                episode.reward(number / 200 if number < 100 else 0.0)
    arguments = f"{sys.executable} -m mttp {command}"
    whole = subprocess.run(["bash", "-c", arguments], capture_output=True, check=False).returncode
    piped = f"{arguments} 2>&1 | true; echo ${{PIPESTATUS[0]}}"
    cut = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=True).stdout

    assert str(whole) == cut.strip()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("missing.jsonl", "--rules", "rules.yaml"), "missing.jsonl"),
        (("new.jsonl", "--rules", "missing.yaml"), "missing.yaml"),
        (("new.jsonl", "--rules", "wrong.yaml"), "aggregat is not known"),
        (("empty.jsonl", "--rules", "rules.yaml"), "holds no episodes"),
        (
            ("new.jsonl", "--rules", "rules.yaml", "--baseline", "fewer.jsonl"),
            "the sides differ in their tasks",
        ),
        (("new.jsonl", "--rules", "rules.yaml", "--baseline", "new.jsonl"), "compared with itself"),
    ],
)
def test_no_verdict_is_written_too(arguments: tuple[str, ...], reason: str) -> None:
    """
    To each file and stream that a machine reads, with the reason.
    """
    rules(0.3)
    Path("wrong.yaml").write_text("aggregat: []\n")
    with mttp.configure("file://empty.jsonl", run_id="empty"):
        pass
    with (
        mttp.configure("file://fewer.jsonl", run_id="fewer"),
        mttp.episode(env="maths", task="t0") as episode,
    ):
        episode.reward(1.0)
    files = ("--json", "--junit", "gate.xml", "--github")

    code, out, error = run(*arguments, *files, GITHUB_STEP_SUMMARY="summary.md")

    assert (3, "none") == (code, json.loads(out)["verdict"])
    suite = ElementTree.parse("gate.xml").getroot()
    texts = [
        json.loads(out)["reason"],
        str(suite[0][0].get("message")),
        Path("summary.md").read_text(),
        error,
    ]
    assert ("1", "error") == (suite.get("errors"), suite[0][0].tag)
    assert [True] * 4 == [reason in text for text in texts], texts
    assert "::error title=mttp gate%3A no verdict::" in error


def test_the_verdict_is_recorded() -> None:
    """
    As a late fact with its evidence; the digest of the recording stays.
    """
    before = mttp.gate("new.jsonl", rules=rules(0.3))

    assert 0 == run("new.jsonl", "--rules", "rules.yaml", "--record")[0]

    after = mttp.gate("new.jsonl", rules="rules.yaml")
    facts = [one for episode in mttp.read("new.jsonl").episodes for one in episode.annotations]
    assert [("gate", "promote", "mttp gate")] == [(one.key, one.value, one.by) for one in facts]
    for words in (
        "promote: ",
        f"rules: 2, sha256 {before.rules_sha256[:16]}",
        before.candidate_identity.sha256[:16],
    ):
        assert words in str(facts[0].explanation)
    assert before.candidate_identity == after.candidate_identity
    assert (
        "promote by mttp gate"
        in subprocess.run(
            [sys.executable, "-m", "mttp", "show", "new.jsonl", "--episode", "last"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )


def test_a_summary_lists_recorded_verdicts() -> None:
    """
    With the evidence, from files and from values alike; other late facts are none.
    """
    assert 0 == run("new.jsonl", "--rules", rules(0.3), "--record")[0]
    with mttp.configure("file://new.labels.jsonl", run_id="labels"):
        mttp.annotate(mttp.read("new.jsonl").episodes[0], "gate", "promote", by="Ada")

    found = mttp.summarize("new*.jsonl")
    (verdict,) = found.verdicts
    assert ("promote", mttp.gate("new.jsonl", rules=rules(0.3)).candidate_identity.last_episode) == (
        verdict.verdict,
        verdict.episode,
    )
    assert verdict.evidence.startswith("promote: ")
    assert found.verdicts == mttp.read("new*.jsonl").summary().verdicts
    shown = subprocess.run(
        [sys.executable, "-m", "mttp", "summary", "new.jsonl"], capture_output=True, text=True, check=True
    )
    assert "Recorded verdicts" in shown.stdout
    assert verdict.episode[:8] in shown.stdout


def test_a_commented_file_is_written(tmp_path: Path) -> None:
    """
    Once, and it can be used as it is where there is a baseline.
    """
    with mttp.configure("file://base.jsonl", run_id="base"):
        for task in range(100):
            with mttp.episode(env="maths", task=f"t{task}") as episode:
                episode.reward(float(task % 2))
                episode.end(outcome="success" if task % 2 else "failure")

    assert (0, "wrote promotion.yaml\n", "") == run("--init")
    assert 3 == run("--init")[0]
    assert 0 == run("new.jsonl", "--baseline", "base.jsonl")[0]
    assert (0, "wrote env.yaml\n", "") == run("--init", "--for", "env", "--rules", "env.yaml")
    assert 3 == run("--init", "--for", "robots")[0]


def test_the_gate_needs_no_other_extra() -> None:
    """
    The extras `cli` and `study` are enough, which the page about CI installs.
    """
    Path("rules.yaml").write_text("aggregate: [{metric: return, min: 0.5}]")
    with mttp.configure("file://new.jsonl"):
        for task in range(60):
            with mttp.episode(task=f"t{task}") as episode:
                episode.reward(1.0)
    others = ("rfc8785", "sqlglot", "sklearn", "krippendorff", "matplotlib", "starlette", "openai")
    code = f"import sys; sys.modules |= dict.fromkeys({others}); from mttp.cli import main; main()"
    command = [sys.executable, "-c", code, "gate", "new.jsonl", "--rules", "rules.yaml"]
    done = subprocess.run(command, capture_output=True, text=True)

    assert (0, "") == (done.returncode, done.stderr)
    assert "promote" in done.stdout


def test_json_is_one_document() -> None:
    """
    With the evidence of each rule.
    """
    code, out, _ = run("new.jsonl", "--rules", rules(0.9), "--json")

    found = json.loads(out)
    assert (1, "reject", "fail", 0.5) == (
        code,
        found["verdict"],
        found["rules"][0]["verdict"],
        found["rules"][0]["value"],
    )


def test_markdown_junit_and_github() -> None:
    """
    All at once; what is in a workflow command is escaped.
    """
    summary = Path("summary.md")
    arguments = ("new.jsonl", "--rules", rules(0.9), "--markdown", "--junit", "gate.xml", "--github")

    _, out, error = run(*arguments, GITHUB_STEP_SUMMARY=str(summary))

    assert "| fail | aggregate success min |" in out
    assert out == summary.read_text()
    assert "::error title=mttp gate%3A aggregate success min::fail: 0.5, at least" in error
    suite = ElementTree.parse("gate.xml").getroot()
    assert ("3", "1", "0") == (suite.get("tests"), suite.get("failures"), suite.get("skipped"))
    assert "fail: 0.5" in str(suite[0][0].get("message"))


def test_an_inconclusive_rule_may_be_skipped_in_junit() -> None:
    """
    With --lenient; else it fails, as the exit code says.
    """
    file = rules(0.5)

    for options, counts in ((("--lenient",), ("0", "1")), ((), ("1", "0")), (("--strict",), ("1", "0"))):
        run("new.jsonl", "--rules", file, "--junit", "gate.xml", *options)
        suite = ElementTree.parse("gate.xml").getroot()
        assert counts == (suite.get("failures"), suite.get("skipped"))


def test_a_narrow_terminal_shows_it_all() -> None:
    """
    The evidence wraps.
    """
    _, out, _ = run("new.jsonl", "--rules", rules(0.9), width=80)

    assert "Wilson over 100 tasks" in " ".join(out.split())


def test_the_fixture_fails_a_test(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """
    With the rule and its evidence; `strict=False` lets an inconclusive verdict pass.
    """
    path = tmp_path / "new.jsonl"
    pytester.makepyfile(
        f"""
        def rules(limit):
            return {{"aggregate": [{{"metric": "success", "min": limit}}]}}

        def test_promoted(mttp_gate):
            assert mttp_gate({str(path)!r}, rules=rules(0.3)).verdict == "promote"

        def test_open(mttp_gate):
            mttp_gate({str(path)!r}, rules=rules(0.5), strict=False)

        def test_strict(mttp_gate):
            mttp_gate({str(path)!r}, rules=rules(0.5))

        def test_rejected(mttp_gate):
            mttp_gate({str(path)!r}, rules=rules(0.9))
        """
    )

    found = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n0")

    found.assert_outcomes(passed=2, failed=2)
    found.stdout.fnmatch_lines(["*fail: aggregate success min: 0.5, at least*"])
