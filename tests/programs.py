"""Python programs of their own, for what a process can do only once."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

from polling import SECONDS


def told(code: str, *, warned: str = "") -> Any:
    """
    What a program says by its last line, as JSON, once it has ended well.

    It is expected to write nothing to stderr, but for what contains `warned`, a session's line about it, and
    the line that a receiver gets no content.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
    )
    assert 0 == done.returncode, done.stderr
    expected = ("content=True", *((warned, "`mttp doctor` checks the set-up") if warned else ()))
    unexpected = [line for line in done.stderr.splitlines() if not any(text in line for text in expected)]
    assert [] == unexpected
    return json.loads(done.stdout.splitlines()[-1])
