"""
What recording chat episodes costs, in a fresh process, at full speed, without a pause to flush.

Episodes are recorded for 10 seconds, one after another, and recording is closed. The clock starts before the
library is imported and stops when the 10 seconds are over; what a session starts is in it. Of the caller's
wall time per step there are mean, median, 99th percentile and the longest (a stall); closing an episode and
opening the next one count to the last step. CPU is that of all threads and processes until all is closed, per
step that arrived; memory is that of all processes together at its highest, as sampled. The queue of the SDK,
mlflow and langfuse has room for everything, so that the same information arrives; `default queue` is the SDK
with 2,048 spans, which drops what comes when it is full.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from itertools import pairwise
from statistics import quantiles
from typing import Any

from cases import Case, Environment, Measure
from chat import POOL, STEPS, chats
from usage import cpu_seconds

SECONDS, QUICK_SECONDS, ROUNDS = 10.0, 0.3, 3

JSON_FILE = Environment(
    "otlp-json-file",
    ("opentelemetry-exporter-otlp-json-file==0.66b1", "opentelemetry-sdk==1.45.1", "numpy>=1.26"),
)
LANGFUSE = Environment("langfuse", ("langfuse==5.0.4", "numpy>=1.26"))
MLFLOW = Environment(
    "mlflow-tracing",
    ("mlflow-tracing==3.17.2", "opentelemetry-exporter-otlp-proto-http==1.45.2", "numpy>=1.26"),
)


def recorded(name: str, *, lists: bool = True, **options: Any) -> Measure:
    """Return a measure of that recorder."""

    def measure(seconds: float) -> dict[str, float]:
        given = chats(lists=lists)
        clock, took = time.perf_counter, array("d")
        used, start = -cpu_seconds(), clock()
        import recorders

        recorder = getattr(recorders, name)(**options)
        play, number, began = recorder.play, 0, clock()
        while clock() < began + seconds:
            for _ in play(given[number % POOL]._replace(number=number)):
                took.append(clock())
            number += 1
        took.append(ended := clock())
        recorder.close()
        closed = clock()
        used += cpu_seconds(recorder.apart)  # what helps with encoding is idle by now, or a zombie
        each = [1e6 * (later - earlier) for earlier, later in pairwise(took)]
        cuts = quantiles(each, n=100)
        return {
            "recorded": number * STEPS,
            "mean_us": 1e6 * (ended - start) / number / STEPS,
            "median_us": cuts[49],
            "p99_us": cuts[98],
            "stall_ms": max(each) / 1e3,
            "start_ms": 1e3 * (began - start),
            "cpu_s": used,
            "close_s": closed - ended,
        }

    return measure


def _checked(count: str, *arguments: Any) -> Callable[[dict[str, float]], dict[str, float]]:
    """Divides the figures by the number of steps that arrived."""

    def check(figures: dict[str, float]) -> dict[str, float]:
        import arrived

        steps = getattr(arrived, count)(*arguments)
        return {
            "arrived_pct": 100 * steps / figures["recorded"],
            "cpu_us": 1e6 * figures["cpu_s"] / steps,
        }

    return check


_OWN, _FILE = _checked("own_arrived"), _checked("sdk_file_arrived")

CASES = {
    "mttp, lists": Case(recorded("own"), check=_OWN),
    "SDK, JSON file, lists": Case(recorded("sdk_file"), JSON_FILE, check=_FILE),
    "mttp, arrays": Case(recorded("own", lists=False), check=_OWN),
    "SDK, JSON file, arrays": Case(recorded("sdk_file", lists=False), JSON_FILE, check=_FILE),
    "SDK, OTLP, lists": Case(recorded("sdk_otlp"), check=_checked("sink_arrived"), rounds=1),
    "mlflow, lists": Case(recorded("mlflow"), MLFLOW, check=_checked("sink_arrived", "mlflow"), rounds=1),
    "langfuse, lists": Case(
        recorded("langfuse"), LANGFUSE, check=_checked("sink_arrived", "langfuse"), rounds=1
    ),
    "SDK, file, default queue": Case(recorded("sdk_file", room=None), JSON_FILE, check=_FILE, rounds=1),
}
