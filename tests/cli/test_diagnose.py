"""`mttp diagnose`: output, options and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import training_runs as runs

from mttp.study.diagnosing.detectors import DETECTORS

COLOURS = re.compile("\x1b\\[[0-9;]*m")


@cache
def recording(name: str) -> str:
    """A run with the disease of that name, recorded once."""
    folder = Path(mkdtemp())
    return runs.record(folder / "run.jsonl", 0, episode=getattr(runs, name, None))


def run(*arguments: str, terminal: bool = False) -> tuple[int, str, str]:
    colours = {"COLUMNS": "80", "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"} if terminal else {}
    command = [sys.executable, "-m", "mttp", "diagnose", *arguments]
    folder = Path(arguments[0]).parent
    shown = [Path(one).name if one == arguments[0] else one for one in command]
    done = subprocess.run(
        shown, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **colours}
    )
    return done.returncode, done.stdout, done.stderr


def test_findings_then_the_reading_then_what_is_missing() -> None:
    """
    A finding of the severity high exits with 1.
    """
    code, out, error = run(recording("hacked"))

    assert 1 == code
    places = [
        out.index(part) for part in ("high  reward_hacking", "\nvalidation  down", "could not be judged: ")
    ]
    assert sorted(places) == places
    assert "together    stop: " in out
    assert "1 high" in error


def test_a_healthy_run_exits_with_0() -> None:
    """
    What was judged and what was not are listed by --all, else what was not is one line.
    """
    code, out, _ = run(recording("healthy"), "--all")
    _, brief, _ = run(recording("healthy"))

    assert 1 == sum("leakage" in line for line in brief.splitlines())
    assert "300 prompts" not in brief

    assert 0 == code
    assert re.search(r"no findings; \d+ detectors found nothing, \d could not judge", out)
    assert "300 prompts of trained and 0 of held-out tasks have text" in out


def test_json_is_one_document() -> None:
    """
    With every detector.
    """
    code, out, _ = run(recording("hacked"), "--json")

    found = json.loads(out)
    assert (1, "reward_hacking", "high") == (
        code,
        found["findings"][0]["kind"],
        found["findings"][0]["severity"],
    )
    kinds = ("findings", "judged", "missing", "inapplicable")
    assert len(DETECTORS) == sum(len(found[kind]) for kind in kinds)
    assert 0 <= found["findings"][0]["false_alarm_rate"] <= 0.05
    assert found["should_stop"] is True


def test_markdown_has_a_table() -> None:
    """
    For a pull request.
    """
    _, out, _ = run(recording("hacked"), "--markdown")

    assert "| high | reward_hacking |" in out
    assert "\ncould not be judged: " in out
    assert "| not judged | leakage |" in run(recording("hacked"), "--markdown", "--all")[1]


@pytest.mark.parametrize(("severity", "code"), [("high", 0), ("medium", 1), ("low", 1), ("none", 0)])
def test_fail_on_is_the_severity_that_fails(severity: str, code: int) -> None:
    """
    The worst finding of this run is of the severity medium.
    """
    assert code == run(recording("cut_off"), "--fail-on", severity)[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quality", "audti"], "did you mean 'audit'"),
        (["--run", "other"], "no run is called 'other'"),
        (["--fail-on", "bad"], "'bad' is not one of high, medium, low, none"),
    ],
)
def test_a_wrong_question_exits_with_2(arguments: list[str], message: str) -> None:
    """
    With the nearest that there is.
    """
    code, _, error = run(recording("hacked"), *arguments)

    assert 2 == code
    assert message in error


def test_a_file_that_is_no_recording_exits_with_2(tmp_path: Path) -> None:
    """
    An empty file is no healthy run.
    """
    (tmp_path / "empty.jsonl").write_text("")

    assert [2, 2] == [run(str(tmp_path / name))[0] for name in ("empty.jsonl", "missing.jsonl")]


@pytest.mark.parametrize("name", ["hacked", "healthy"])
def test_it_is_readable_at_80_columns(name: str) -> None:
    """
    No line is longer than the terminal.
    """
    _, out, _ = run(recording(name), terminal=True)

    assert "\x1b[" in out
    assert max(len(COLOURS.sub("", line)) for line in out.splitlines()) <= 80
