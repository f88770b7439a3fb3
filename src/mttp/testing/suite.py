"""Recording a test session to the path of `--mttp`."""

from __future__ import annotations

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
from mttp.otlp.spans.span_records import EndedSpan
from mttp.recording import configuration
from mttp.recording.configuration import IsolatedRecording
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.transports.export_target import Transport

__all__ = ["Suite"]

_RUN = "pytest"


class Suite:
    """
    A pytest plugin object that records a test session as one run.

    With pytest-xdist the workers record, and the controlling process adds up their numbers of episodes.
    """

    def __init__(self, config: pytest.Config, path: str, base: Path) -> None:
        workerinput: dict[str, str] = getattr(config, "workerinput", {})
        self._config = config
        self._path = path
        self._address = workerinput.get("mttp_address") or _address(path, base)
        self._run_id = workerinput.get("mttp_run_id") or ids.run_id()
        self._episodes = 0
        self._transport: _LabellingTransport | None = None
        self._isolated: IsolatedRecording | None = None
        self._exit_stack = ExitStack()

    def pytest_sessionstart(self) -> None:
        """Start recording."""
        if self._config.pluginmanager.hasplugin("dsession"):
            return
        try:
            transport = self._transport = _LabellingTransport(transports.open(self._address))
            isolated = configuration.isolated(transport, run=_RUN, run_id=self._run_id)
            self._isolated = self._exit_stack.enter_context(isolated)
        except MttpError as error:
            raise pytest.UsageError(f"--mttp {self._path}: {error}") from error

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Set the test's name, and let a session start by itself again, as in a new process."""
        if self._transport is not None:
            self._transport.test = item.nodeid
            configuration.resume()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        """Write the test's episodes before the next test sets its name."""
        yield
        if self._isolated is not None:
            self._isolated.opened = [session for session in self._isolated.opened if not session.closed]
            for session in self._isolated.opened:
                if session.stats.pending:
                    session.flush()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End the run."""
        self._exit_stack.close()
        if self._transport is not None:
            self._transport.release()
            self._episodes = self._transport.episodes
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["mttp_episodes"] = self._episodes

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the number of episodes and the path."""
        counted = "one episode" if self._episodes == 1 else f"{self._episodes} episodes"
        terminalreporter.write_line(f"mttp: {counted} in {self._path}")

    # Hooks of pytest-xdist in the controlling process.

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass the transport's address and the run id to a worker."""
        node.workerinput |= {"mttp_address": self._address, "mttp_run_id": self._run_id}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add a worker's number of episodes."""
        self._episodes += getattr(node, "workeroutput", {}).get("mttp_episodes", 0)


def _address(path: str, base: Path) -> str:
    """Return the transport's address; a path without a suffix is a directory."""
    if "://" in path:
        return path
    place = base / Path(path).expanduser()
    is_directory = place.is_dir() or not place.suffix or path.endswith("/")
    return f"file://{quote(str(place))}{'/' if is_directory else ''}"


class _LabellingTransport:
    """A transport that adds the test's name to each episode, and counts the episodes."""

    def __init__(self, inner: Transport) -> None:
        self.test = ""
        self._inner = inner
        self._traces: set[int] = set()

    @property
    def episodes(self) -> int:
        """The number of exported episodes."""
        return len(self._traces)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export the spans, except those with counting ids, which are the same in every test."""
        kept = [self._labelled(span) for span in spans if not _has_counting_id(span)]
        result = self._inner.export(kept)
        if result is SpanExportResult.SUCCESS:
            self._traces |= {span.trace_id for span in kept if _is_root(span)}
        return result

    def shutdown(self) -> None:
        """Do nothing: other sessions of the test session use the transport."""

    def release(self) -> None:
        """Shut the transport down at the end of the test session."""
        self._inner.shutdown()

    def _labelled(self, span: ReadableSpan) -> ReadableSpan:
        if not isinstance(span, EndedSpan) or _type(span) not in (names.EPISODE, names.EPISODE_START):
            return span
        return span.with_values({**span.values, a.TEST_CASE_NAME: self.test})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __repr__(self) -> str:
        return repr(self._inner)


def _has_counting_id(span: ReadableSpan) -> bool:
    context = span.get_span_context()
    return context is not None and context.trace_id < 2**64


def _is_root(span: ReadableSpan) -> TypeGuard[EndedSpan]:
    return isinstance(span, EndedSpan) and span.parent is None and _type(span) == names.EPISODE


def _type(span: EndedSpan) -> str:
    return kinds.of(span.name, span.values, is_root=span.parent is None)
