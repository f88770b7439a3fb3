"""Benchmarks run; what they find is not for tests to judge."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ENCODERS = Path(__file__).parents[1] / "benchmarks" / "encoders.py"


def test_a_question_is_answered_as_a_table_and_as_json(tmp_path: Path) -> None:
    """
    Each case and the control have their figures for every round, and all had the same output.
    """
    found = tmp_path / "found.json"
    asked = ["--only", "scalars", "--rounds", "2", "--seconds", "0.001", "--json", str(found)]
    done = subprocess.run(
        [sys.executable, str(ENCODERS), *asked], capture_output=True, text=True, check=False
    )

    assert (0, "") == (done.returncode, done.stderr)
    answered = json.loads(found.read_text())["questions"]["scalars"]
    assert ["official", "mttp", "mttp, native arrays", "control"] == list(answered)
    assert {2} == {len(case["rounds"]) for case in answered.values()}
    assert all(f"\n{case} " in done.stdout for case in answered)
