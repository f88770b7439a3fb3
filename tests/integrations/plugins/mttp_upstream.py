"""
A pytest plugin for a library's own tests: the outcome of each, with everything recorded or nothing.

The outcomes are written to the file in MTTP_OUTCOMES.
With MTTP_RECORDED=1, everything that the tests create is recorded, and a failure of a hook fails the tests.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest

import mttp

_outcomes: dict[str, list[str]] = {}
_RECORDED = os.environ.get("MTTP_RECORDED") == "1"


def pytest_configure() -> None:
    """Record everything from now on."""
    if _RECORDED:
        mttp.configure(f"file://{tempfile.mkdtemp(prefix='mttp-upstream-')}/")
        mttp.instrument()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the outcome of each phase of a test."""
    _outcomes.setdefault(report.nodeid, []).append(f"{report.when} {report.outcome}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the outcomes, and check what was recorded."""
    Path(os.environ["MTTP_OUTCOMES"]).write_text(json.dumps(_outcomes, indent=1, sort_keys=True))
    recorded = mttp.current_session()
    if _RECORDED:
        assert recorded is not None, "the tests have closed the session"

        stats = recorded.stats
        print(f"\n{stats.episodes} episodes, {stats.steps} steps, faults: {dict(stats.faults)}")
        if stats.faults.get("integration_error"):
            session.exitstatus = 1
