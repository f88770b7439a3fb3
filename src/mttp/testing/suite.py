"""One test session's episodes, written where `--mttp` says."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import quote

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from mttp import transports
from mttp.codec import kinds
from mttp.errors import MttpError
from mttp.model import ids
from mttp.otlp.spans import RecordingSpan
from mttp.recording import configuration
from mttp.recording.isolation import IsolatedRecording
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.transports.export_target import Transport

__all__ = ["Suite"]

_RUN = "pytest"


class Suite:
    """
    Records a test session as one run, each worker of pytest-xdist its part.

    The process that only hands out tests to the workers records nothing, and adds up what they say.
    """

    def __init__(self, config: pytest.Config, path: str, base: Path) -> None:
        handed: dict[str, str] = getattr(config, "workerinput", {})
        self._config = config
        self._path = path
        self._address = handed.get("mttp_address") or _address(path, base)
        self._run_id = handed.get("mttp_run_id") or ids.run_id()
        self._episodes = 0
        self._transport: _Labelling | None = None
        self._apart: IsolatedRecording | None = None
        self._ending = ExitStack()

    def pytest_sessionstart(self) -> None:
        """Begin to record."""
        if self._config.pluginmanager.hasplugin("dsession"):
            return
        try:
            transport = self._transport = _Labelling(transports.open(self._address))
            recorded = configuration.isolated(transport, run=_RUN, run_id=self._run_id)
            self._apart = self._ending.enter_context(recorded)
        except MttpError as error:
            raise pytest.UsageError(f"--mttp {self._path}: {error}") from error

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """A test begins as in a new process, but for what fixtures have open."""
        if self._transport is not None:
            self._transport.test = item.nodeid
            configuration.resume()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        """Have everything written that the test recorded, while it is known which test that was."""
        yield
        if self._apart is not None:
            self._apart.opened = [session for session in self._apart.opened if not session.closed]
            for session in self._apart.opened:
                if session.stats.pending:
                    session.flush()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End the run."""
        self._ending.close()
        if self._transport is not None:
            self._transport.release()
            self._episodes = self._transport.episodes
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["mttp_episodes"] = self._episodes

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what there is."""
        counted = "one episode" if self._episodes == 1 else f"{self._episodes} episodes"
        terminalreporter.write_line(f"mttp: {counted} in {self._path}")

    # What pytest-xdist calls, where tests are handed out.

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where to write, and which run it is part of."""
        node.workerinput |= {"mttp_address": self._address, "mttp_run_id": self._run_id}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add up what a worker recorded."""
        self._episodes += getattr(node, "workeroutput", {}).get("mttp_episodes", 0)


def _address(path: str, base: Path) -> str:
    """The transport's address; a name without an ending is a directory."""
    if "://" in path:
        return path
    place = base / Path(path).expanduser()
    is_directory = place.is_dir() or not place.suffix or path.endswith("/")
    return f"file://{quote(str(place))}{'/' if is_directory else ''}"


class _Labelling:
    """A transport that says of each episode which test recorded it, and counts the episodes."""

    def __init__(self, inner: Transport) -> None:
        self.test = ""
        self._inner = inner
        self._traces: set[int] = set()

    @property
    def episodes(self) -> int:
        """How many episodes were handed on."""
        return len(self._traces)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Hand the spans on, but for those with counting ids: these are the same in every test."""
        kept = [self._labelled(span) for span in spans if not _is_counted(span)]
        answer = self._inner.export(kept)
        if answer is SpanExportResult.SUCCESS:
            self._traces |= {span.trace_id for span in kept if _is_root(span)}
        return answer

    def shutdown(self) -> None:
        """A session ended; there may be others."""

    def release(self) -> None:
        """The test session ended."""
        self._inner.shutdown()

    def _labelled(self, span: ReadableSpan) -> ReadableSpan:
        if not isinstance(span, RecordingSpan) or _type(span) not in (names.EPISODE, names.EPISODE_START):
            return span
        labelled = copy.copy(span)  # the test's own sessions have no label
        labelled.values = {**span.values, a.TEST_CASE_NAME: self.test}
        return labelled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __repr__(self) -> str:
        return repr(self._inner)


def _is_counted(span: ReadableSpan) -> bool:
    context = span.get_span_context()
    return context is not None and context.trace_id < 2**64


def _is_root(span: ReadableSpan) -> TypeGuard[RecordingSpan]:
    return isinstance(span, RecordingSpan) and span.parent is None and _type(span) == names.EPISODE


def _type(span: RecordingSpan) -> str:
    return kinds.of(span.name, span.values, is_root=span.parent is None)
