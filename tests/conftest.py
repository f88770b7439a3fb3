"""Every test starts without a session, in a directory of its own, deaf to the machine's environment."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from opentelemetry import context as otel_context

import mttp
from mttp.integrations import instrumentation
from mttp.recording import configuration

os.environ.setdefault("HYPOTHESIS_NO_NPM", "1")
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))
"""One certificate authority, instead of the machine's 140, which take each client some 50 ms to load."""

settings.register_profile("ci", max_examples=25, deadline=None)
settings.register_profile("long", max_examples=300, deadline=None)
settings.load_profile("ci")  # `make test-long` chooses the other


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: now and then a test waits for a process or a clock."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


def pytest_report_header() -> list[str]:
    """The versions that a failure may hang on."""
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in ("opentelemetry-sdk", "pydantic", "wrapt", "numpy", "msgspec", "gymnasium", "pyarrow"):
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return ["versions: " + ", ".join(found)]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No session and no instrumented library before or after, no variable that configures a session."""
    for name in list(os.environ):
        if name.startswith(("MTTP_", "OTEL_", "SLURM_", "TORCHELASTIC_")) or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
        if name in ("COLUMNS", "LINES"):  # a process that has loaded readline hands them to its children
            monkeypatch.delenv(name)
        if name.lower().endswith("_proxy"):  # whom tests talk to is on this machine
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    logging.getLogger("mttp").setLevel(logging.NOTSET)  # a documented example changes it
    before = otel_context.get_current()
    yield
    if instrumentation._everything is not None:
        instrumentation._everything.detach()
    configuration.forget()
    assert before == otel_context.get_current(), "the test left something current behind"


@pytest.fixture
def session() -> Iterator[mttp.Session]:
    """A session that keeps its episodes in memory."""
    with mttp.configure(transport="memory://", run="test") as opened:
        yield opened
