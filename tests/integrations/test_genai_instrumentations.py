"""Other packages' instrumentations of model clients, each with its client and a server on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from integrations import genai_calls

import mttp

pytest.importorskip("openinference.instrumentation")


@pytest.mark.parametrize("case", genai_calls.CASES)
def test_a_request_within_a_step_is_a_call(case: str) -> None:
    """
    One call with model, tokens and both sides of the conversation, whatever is recorded around it.
    """
    done = subprocess.run(
        [sys.executable, genai_calls.__file__, case], capture_output=True, text=True, check=False, timeout=120
    )

    assert 0 == done.returncode, done.stderr[-2000:]

    found = json.loads(done.stdout.splitlines()[-1])
    ((operation, model, given, sampled, asked, answered),) = found["calls"]

    assert operation in ("chat", "generate_content")
    assert str(model).rpartition("/")[2] in ("claude-x", "gemini-x", "gpt-x")
    assert (9, 3) == (given, sampled)
    assert [9, 3] == found["tokens"]
    assert "2+2?" in asked
    assert "It is 4." in answered


def test_the_example_runs(tmp_path: Path) -> None:
    """
    The agent's two model calls and its tool call are calls of the step, and the recording has no findings.
    """
    example = Path(__file__).parents[2] / "examples" / "langgraph_sums.py"
    done = subprocess.run(
        [sys.executable, str(example), "--out", str(tmp_path / "langgraph.jsonl")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert 0 == done.returncode, done.stderr
    assert ["chat", "execute_tool", "chat"] == [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert [] == list(mttp.check(tmp_path / "langgraph.jsonl"))
