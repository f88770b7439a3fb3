"""
What mttp costs where it does nothing: its import, and its calls while recording is off.

An import is timed within a fresh interpreter, three of them for each measurement, of which the median
counts. `mttp, ready to record` is `import mttp` with `configure`, `episode` and `current_step` looked up,
since `import mttp` alone defers nearly everything. The SDK is what one imports to set it up: `sdk.trace`
and `sdk.trace.export`. Calls are timed 100,000 times each, after `OTEL_SDK_DISABLED=true`, and after a
session was closed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from goals import Goal, figure
from harness import main
from questions import Case, Measure, Question

SDK = "import opentelemetry.sdk.trace, opentelemetry.sdk.trace.export"
READY = "import mttp; mttp.configure, mttp.episode, mttp.current_step"
CALLS = 100_000


def importing(statement: str) -> Measure:
    """A measure of an import."""
    start, end = ("time.perf_counter(), time.process_time()",) * 2
    program = f"import time\na, b = {start}\n{statement}\nc, d = {end}\nprint(c - a, d - b)"

    def measure(_: float) -> tuple[bytes, dict[str, float]]:
        walls, cpus = zip(*(_imported(program) for _ in range(3)), strict=True)
        return b"", {"wall_ms": 1e3 * median(walls), "cpu_ms": 1e3 * median(cpus)}

    return measure


def _imported(program: str) -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    wall, cpu = map(float, done.stdout.split())
    return wall, cpu


def calling(turn_off: Callable[[], None]) -> Measure:
    """A measure of calls that do nothing."""

    def measure(_: float) -> tuple[bytes, dict[str, float]]:
        turn_off()
        import mttp

        episode = mttp.episode()
        step = episode.step()
        assert not episode, "recording is on"
        calls: dict[str, Callable[[], object]] = {
            "episode_us": mttp.episode,
            "step_us": episode.step,
            "reward_us": lambda: step.reward(1.0),
            "tokens_us": lambda: step.tokens(ids=None),
        }
        found = {name: _each(call) for name, call in calls.items()}
        assert not Path("mttp-runs").exists()
        return b"", {"longest_us": max(found.values()), **found}

    return measure


def _each(call: Callable[[], object]) -> float:
    """CPU µs that a call takes, the loop's own left out."""
    call()
    start = time.process_time()
    for _ in range(CALLS):
        call()
    middle = time.process_time()
    for _ in range(CALLS):
        pass
    return 1e6 * (2 * middle - start - time.process_time()) / CALLS


def disabled() -> None:
    """By OpenTelemetry's variable."""
    os.environ["OTEL_SDK_DISABLED"] = "true"


def closed() -> None:
    """By closing the session."""
    import mttp

    mttp.configure("memory://").close()


QUESTIONS = {
    "import": Question(
        "what an import takes",
        {"wall_ms": "ms", "cpu_ms": "CPU ms"},
        {
            "OpenTelemetry SDK": Case(importing(SDK)),
            "mttp": Case(importing("import mttp")),
            "mttp, ready to record": Case(importing(READY)),
        },
        [
            Goal(
                "11",
                "import mttp above importing the OpenTelemetry SDK",
                lambda get: get("mttp", "wall_ms") - get("OpenTelemetry SDK", "wall_ms"),
                60,
                unit="ms",
            ),
            Goal(
                "11",
                "import mttp, ready to record, above importing the OpenTelemetry SDK",
                lambda get: get("mttp, ready to record", "wall_ms") - get("OpenTelemetry SDK", "wall_ms"),
                60,
                unit="ms",
            ),
        ],
        own="mttp, ready to record",
    ),
    "off": Question(
        "what a call takes that does nothing",
        {
            "longest_us": "CPU µs of the longest",
            "episode_us": "mttp.episode()",
            "step_us": "episode.step()",
            "reward_us": "step.reward(1.0)",
            "tokens_us": "step.tokens(ids=...)",
        },
        {"OTEL_SDK_DISABLED": Case(calling(disabled)), "after close": Case(calling(closed))},
        [
            Goal(
                "11", "a call when off, by variable", figure("OTEL_SDK_DISABLED", "longest_us"), 1, unit="µs"
            ),
            Goal("11", "a call when off, after close", figure("after close", "longest_us"), 1, unit="µs"),
        ],
        own="OTEL_SDK_DISABLED",
    ),
}

if __name__ == "__main__":
    main(QUESTIONS)
