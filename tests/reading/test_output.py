"""What mttp itself writes has nothing to find."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from specimen import EVERYTHING, episodes

import mttp
from mttp.reading.checking import Finding, Findings
from mttp.recording import configuration

ROOT = Path(__file__).parents[2]
SHOWN = {"fleet.py", "graded.py", "grpo.py", "own_grpo.py"}
"""The recordings of these are checked where a page shows what they print, and in `tests/test_fleet.py`."""
TRANSPORTS = ("memory://", "file://a.jsonl", "file://a.jsonl.gz", "file://a.jsonl.zst", "file://runs/")


STATED = ("recorded_fault", "grading_failed", "total_includes_failed_component")
"""Findings about what an episode says went wrong, not about how it is recorded."""


def unstated(findings: Findings) -> list[Finding]:
    """The findings about how something is recorded."""
    return [one for one in findings if one.id not in STATED]


def recorded(transport: str, value: mttp.Episode) -> mttp.reading.checking.Findings:
    """What a check finds in the value after recording."""
    with mttp.configure(transport=transport, run="checked", seed=1, config={"lr": 0.1}) as session:
        session.record(value)
        with mttp.episode() as episode, episode.step():
            session.flush()
    findings = mttp.check(session if transport == "memory://" else transport.removeprefix("file://"))
    configuration.forget()
    return findings


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_specimen_has_no_findings(transport: str):
    """
    An episode that uses every part of the vocabulary, one that was open at a flush, and their run.
    """
    findings = recorded(transport, EVERYTHING)

    assert ([], 0, []) == (unstated(findings), findings.foreign, findings.problems)
    assert findings.spans > 20


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(episodes())
def test_no_episode_has_findings(value: mttp.Episode):
    """
    Every episode without faults follows the convention.
    """
    with TemporaryDirectory() as directory:
        for transport in ("memory://", f"file://{directory}/a.jsonl"):
            assert [] == unstated(recorded(transport, value))


def imported(program: Path) -> set[str]:
    """The packages that a program imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize(
    "example",
    [path for path in sorted((ROOT / "examples").glob("*.py")) if path.name not in SHOWN],
    ids=lambda path: path.name,
)
def test_examples_have_no_findings(example: Path):
    """
    Each example's recording, a short one where it takes a number of episodes or updates.
    """
    for package in sorted(imported(example) - sys.stdlib_module_names):
        pytest.importorskip(package)
    short = ["--episodes", "12"] if '"--episodes"' in example.read_text() else []
    short = ["--updates", "4"] if example.name == "trl_grpo.py" else short
    command = [sys.executable, str(example), "--out", "out.jsonl", *short]
    subprocess.run(command, check=True, capture_output=True)
    findings = mttp.check("out.jsonl")

    assert ([], []) == (findings.all, findings.problems)
    assert findings.spans


def test_a_live_loop_has_no_findings():
    """
    Rewards that fail, tokens without logprobs, calls, errors, faults, and an unfinished episode.
    """
    with mttp.configure(transport="file://a.jsonl", run="live") as session:
        left = mttp.episode(env="toy", task="left")
        left.reward(float("nan"))
        with mttp.episode(env="toy", metadata={"Odd Name": object()}) as episode:
            episode.metric("a/b", 1)
            with episode.step() as step:
                step.observation({"text": "hi"})
                step.action(3)
                step.reward("not a number")
                step.tokens(ids=[1, 2], masks=[1, 0])
                with step.model_call("tiny", temperature=1) as call:
                    call.response(finish_reasons=["stop"], input_tokens=1, output_tokens=2)
                with step.tool_call("search", arguments={"q": "x"}) as call:
                    call.result(["y"])
            episode.reward(None, status="abstained", grader="judge", grader_kind="judge")
            session.flush()
        with pytest.raises(KeyError), mttp.episode(env="toy") as episode, episode.step():
            raise KeyError("no")
    findings = mttp.check("a.jsonl")

    assert [] == unstated(findings)
