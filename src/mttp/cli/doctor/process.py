"""Checks of this process's surroundings: the tracer provider, and the encoding process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from importlib.metadata import entry_points

from opentelemetry.environment_variables import OTEL_PYTHON_TRACER_PROVIDER

from mttp.cli.doctor.findings import SetupFinding, ok, warning
from mttp.otlp import frames
from mttp.otlp.encoding.encoder import HELPER_VARIABLE, is_off
from mttp.otlp.frames import MESSAGES
from mttp.otlp.processes import DONE, Process, ProcessLostError, can_start, own_environment
from mttp.pages.words import duration

__all__ = ["tracer_provider", "encoding_process"]

_CHECK = "encoding process"
_GROUP = "opentelemetry_tracer_provider"
_USUAL = {"default_tracer_provider", "sdk_tracer_provider"}
"""The entry points of OpenTelemetry's own packages."""
_SECONDS = 10.0
"""How long the encoding process may take to start and answer."""
_THREAD = "encoding stays in the program's process, which may slow a training loop of small calls down"


def tracer_provider() -> Iterator[SetupFinding]:
    """Say whether a variable or another package sets a tracer provider."""
    others = sorted({point.name for point in entry_points(group=_GROUP)} - _USUAL)
    if named := os.environ.get(OTEL_PYTHON_TRACER_PROVIDER, "").strip():
        yield warning(
            "provider",
            f"{OTEL_PYTHON_TRACER_PROVIDER}={named}: spans of other instrumentations go to it",
            f"unset {OTEL_PYTHON_TRACER_PROVIDER}, or give it mttp's spans: configure(mirror=True)",
        )
    elif others:
        yield ok("provider", f"mttp's own; installed, and not selected: {', '.join(others)}")
    else:
        yield ok("provider", "mttp's own, unless the program sets another one")


def encoding_process() -> Iterator[SetupFinding]:
    """Start the encoding process, and have it answer."""
    if is_off():
        yield ok(_CHECK, f"{HELPER_VARIABLE} turns it off: {_THREAD}")
        return
    if not can_start():
        yield warning(_CHECK, f"this Python can't start one: {_THREAD}", "run a plain Python on POSIX")
        return
    begun = time.monotonic()
    try:
        process = Process("mttp.otlp.encoding", environment=own_environment())
    except (OSError, RuntimeError) as problem:
        yield warning(_CHECK, f"it can't be started: {problem}", _limits())
        return
    try:
        status, answer = process.ask(frames.joined([], {}), _SECONDS, kind=MESSAGES)
    except ProcessLostError as problem:
        yield warning(_CHECK, f"was lost: {problem}", _limits())
    else:
        if status == DONE:
            yield ok(_CHECK, f"answered in {duration(time.monotonic() - begun)}")
        else:
            yield warning(_CHECK, f"failed: {answer.decode(errors='replace')}", _limits())
    finally:
        process.close()


def _limits() -> str:
    return f"check limits of processes and memory, or set {HELPER_VARIABLE}=off"
